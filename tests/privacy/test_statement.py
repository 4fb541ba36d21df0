"""A statement says what is protected, against whom, at what price, and what is not."""

import json
import math

import pytest

from tacit import Open, Privacy, Release
from tacit.privacy.statement import at_most, price_in_words, released_in_words, state

RECORDS = Privacy(unit="record", epsilon=3, delta=1e-5, clip=1)


def step(site: str, count: int = 10, **fields: object) -> Release:
    return Release(scale=3.0, sensitivity=1.0, rate=0.1, count=count, subject=f"records@{site}", **fields)


def test_a_private_run_is_stated_in_full():
    said = state(RECORDS, [step("oslo"), step("bergen")])
    assert (said.unit, said.relation, said.delta, said.rehearsal) == ("record", "add-remove", 1e-5, False)
    assert said.epsilon == max(said.subjects.values()) > 0
    assert set(said.subjects) == {"records@oslo", "records@bergen"}
    assert said.against == ("the server", "the other sites", "the public")
    assert said.bare == ()
    assert "the names of the sites" in said.not_protected


def test_costs_at_different_sites_do_not_add_up():
    assert state(RECORDS, [step("oslo"), step("bergen")]).epsilon == state(RECORDS, [step("oslo")]).epsilon


def test_an_open_run_promises_nothing_and_says_what_is_bare():
    said = state(Open(), [], bare=["loss curves"])
    assert said.epsilon is None
    assert said.as_dict()["proven"] is False
    assert said.bare == ("each site's model update in every round", "loss curves")
    assert said.sentences()[0] == "No promise: this run is open, and what leaves the sites is not protected."


def test_a_trusted_server_is_named_and_not_protected_against():
    privacy = Privacy(unit="site", epsilon=3, delta=1e-5, clip=1, noise="server")
    release = Release(scale=1.0, sensitivity=1.0, unit="site", subject="sites", view="sites")
    said = state(privacy, [release])
    assert "the server" not in said.against
    assert any("server" in name for name in said.trusted)


def test_replacement_is_stated_when_any_release_needs_it():
    privacy = Privacy(unit="site", epsilon=3, delta=1e-5, clip=1)
    release = Release(scale=9.0, sensitivity=2.0, relation="replace", unit="site", subject="sites")
    assert state(privacy, [release]).relation == "replace"


def test_a_rehearsal_is_stamped_first():
    privacy = Privacy(unit="record", epsilon=3, delta=1e-5, clip=1, rehearsal=True)
    assert state(privacy, [step("oslo", rehearsal=True)]).sentences()[0].startswith("REHEARSAL")


def test_json_never_holds_infinity():
    release = Release(scale=1e-200, sensitivity=1.0, subject="records@oslo")
    plain = state(RECORDS, [release]).as_dict()
    assert plain["epsilon"] is None
    assert plain["proven"] is False
    assert "Infinity" not in json.dumps(plain)


def test_what_is_alike_at_several_sites_is_said_once():
    (words,) = released_in_words([step("oslo"), step("bergen"), step("oslo")])
    assert words.startswith("10 to 20 noisy sums over the records of each of 2 sites (Gaussian noise of ")
    assert "standard deviation 3" in words
    assert "each record sampled with probability 0.1" in words


def test_a_choice_is_told_from_a_sum():
    choice = Release(law="selection", scale=2.0, sensitivity=1.0)
    assert released_in_words([choice]) == ["1 private choice at epsilon 0.5, computed from all records"]


@pytest.mark.parametrize(
    ("epsilon", "share"),
    [
        (math.log(3), "at most 75.0 %"),
        (1.0, "at most 73.2 %"),
        (3.0, "at most 95.3 %"),
        (50.0, "become practically certain"),
    ],
)
def test_the_price_says_how_sure_somebody_can_become(epsilon: float, share: str):
    assert share in price_in_words(epsilon, 1e-5, "record", "add-remove")


@pytest.mark.parametrize(
    ("unit", "relation", "what"),
    [
        ("record", "add-remove", "whether a record was used"),
        ("site", "add-remove", "whether a site's data were used"),
        ("record", "replace", "which of two given records was used"),
    ],
)
def test_the_price_is_of_what_the_promise_is_about(unit, relation, what):
    assert f"starts at 50:50 about {what} can become" in price_in_words(1.0, 0.0, unit, relation)
    assert "probability" not in price_in_words(1.0, 0.0, unit, relation)


def test_an_unbounded_price_is_not_dressed_up():
    assert price_in_words(math.inf, 1e-5, "record", "add-remove") == "not bounded; nothing can be proven."


def test_whoever_is_sure_or_knows_it_is_not_so_stays_that_way():
    assert at_most(0.0, 1000.0) == 0.0
    assert at_most(1.0, 3.0) == 1.0
    assert at_most(0.5, 0.0) == 0.5
    assert at_most(0.5, math.log(3)) == pytest.approx(0.75)

"""Attacks on the membership of records: what an open model gives away, and a private one does not."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from tacit.audits.membership import best_hit_count, membership, sentence, setting
from tacit.errors import InvalidValue, Refused
from tacit.experiments import experiment
from tacit.privacy.accounting.release import Release
from tacit.privacy.policy import Open

EXAMPLE = Path(__file__).parents[2] / "examples" / "audit.toml"
# As small as it gets: one step, so that it is quick, and learns nothing.
QUICK = ["rounds=1", "task.steps=1", "task.hidden=[]", "data.records=120"]
CURVES = """[data]
kind = "simulated-curves"
design = "smooth"
records = 80
points = 21
[sites]
kind = "columns"
count = 3
[task]
kind = "functional-boosting"
size = 8
release = "moments"
[privacy]
unit = "record"
noise = "server"
epsilon = 1.0
delta = 1e-5
clip = 1.5
rehearsal = true
"""


def attacked(changes=(), shadows=2, **options):
    asked = experiment.read(EXAMPLE, [*QUICK, *changes])
    return membership(asked, asked.open_federation(), shadows=shadows, **options)


def gaussian(**fields):
    return Release(scale=4.0, sensitivity=1.0, **fields)


def toy(releases=(), name="private"):
    draws = np.random.default_rng(0)
    present = draws.random((5, 60)) < 0.5
    return setting(name, 1.0, 1e-5, ("c_index", 0.6), draws.normal(size=(5, 60)), present, releases)


def test_an_open_model_that_learnt_by_heart_names_its_patients_and_a_private_one_does_not():
    asked = experiment.read(EXAMPLE)
    found = membership(asked, asked.open_federation(), shadows=8)
    bare, kept = found.settings
    assert (bare["name"], bare["epsilon"], bare["ceiling"]) == ("open", None, None)
    assert bare["attacks"]["lira"]["auc"] > 0.85
    # Clearly more than guessing, even at the lower end of what chance could make of it.
    assert bare["attacks"]["lira"]["named"] >= 10
    assert bare["attacks"]["lira"]["low"] >= 5
    assert kept["epsilon"] == pytest.approx(1, abs=1e-3)
    assert kept["ceiling"]["named"] == 2
    assert best_hit_count(kept) <= kept["ceiling"]["named"]
    assert 0.45 < kept["attacks"]["lira"]["auc"] < 0.55
    # It has learned something about others too: it is not the attack that fails on bad models alone.
    assert bare["score"][0] == "c_index"
    assert bare["score"][1] > 0.55
    assert f"would identify {best_hit_count(bare)} from the open model" in found.sentence


def test_what_is_found_is_plain_data_with_a_sentence_for_anybody():
    found = attacked().as_dict()
    assert json.loads(json.dumps(found)) == found
    assert (found["kind"], found["unit"], found["models"], found["records"]) == (
        "membership", "record", 3, 96,
    )  # fmt: skip
    assert found["members"] + found["others"] == 3 * 96
    assert [each["name"] for each in found["settings"]] == ["open", "private"]
    for each in found["settings"]:
        assert set(each["attacks"]) == {"lira", "loss"}
        for told in each["attacks"].values():
            assert set(told) == {"auc", "found", "alarms", "named", "low", "high", "roc"}
    assert found["sentence"].startswith("Of 100 people in the study an attacker would identify ")


def test_without_a_promise_only_the_open_model_is_attacked():
    asked = replace(experiment.read(EXAMPLE, QUICK), privacy=Open())
    found = membership(asked, asked.open_federation(), shadows=2)
    assert [each["name"] for each in found.settings] == ["open"]
    assert found.sentence.endswith("there is no promise, so a better attacker may identify more.")


def test_a_seed_repeats_and_another_one_does_not():
    first, again, other = (attacked(seed=seed).as_dict() for seed in (0, 0, 1))
    assert first == again
    assert first["members"] != other["members"]


def test_whoever_waits_is_told_how_far_it_is():
    told = []
    attacked(tell=lambda words, share: told.append((words, share)))
    words = ["training open models"] * 3 + ["training private models"] * 3
    assert told == list(zip(words, [0, 1 / 3, 2 / 3] * 2, strict=True))


def test_curves_are_attacked_by_their_residuals_half_of_the_subjects_at_a_time(tmp_path):
    (tmp_path / "curves.toml").write_text(CURVES)
    asked = experiment.read(tmp_path / "curves.toml")
    found = membership(asked, asked.open_federation(), shadows=4)
    assert (found.models, found.records, found.members) == (5, 60, 5 * 30)
    bare, kept = found.settings
    assert bare["score"][0] == "r2"
    assert bare["attacks"]["lira"]["auc"] > 0.65
    assert 0.35 < kept["attacks"]["lira"]["auc"] < 0.65
    assert kept["ceiling"]["named"] == 2


def test_the_ceiling_is_that_of_all_releases_about_one_record():
    # Two releases about each of two sites: nobody is at both.
    ceiling = toy([gaussian(subject=f"records@{name}", count=2) for name in ("oslo", "bergen")])["ceiling"]
    expected = norm.cdf(norm.ppf(np.array(ceiling["false"])) + np.sqrt(2) / 4)
    np.testing.assert_allclose(ceiling["true"], expected, atol=1e-9)
    assert ceiling["named"] == np.ceil(100 * norm.cdf(norm.ppf(0.01) + np.sqrt(2) / 4))


def test_a_promise_to_whole_sites_is_to_a_record_that_makes_its_site_another():
    ceiling = toy([gaussian(unit="site", subject="sites")])["ceiling"]
    expected = norm.cdf(norm.ppf(np.array(ceiling["false"])) + 2 / 4)
    np.testing.assert_allclose(ceiling["true"], expected, atol=1e-9)


def test_the_sentence_takes_the_better_attack_and_says_what_a_rehearsal_is_worth():
    bare, kept = toy(name="open"), toy([gaussian()])
    bare["attacks"] = {"lira": {"named": 3, "low": 1}, "loss": {"named": 22, "low": 15}}
    kept["attacks"] = {"lira": {"named": 1, "low": 0}, "loss": {"named": 0, "low": 0}}
    assert sentence([bare, kept]) == (
        "Of 100 people in the study an attacker would identify 22 from the open model, and 1 from the "
        "private one, at one false alarm in 100 others, where guessing identifies 1; proven: no attacker can "
        "identify more than 2."
    )
    again = {**kept, "ceiling": toy([gaussian(rehearsal=True)])["ceiling"]}
    assert "; proven for the same run with secret noise: " in sentence([bare, again], "episodes")
    assert sentence([bare, again], "episodes").startswith("Of 100 episodes ")


def test_an_attack_that_is_better_than_is_possible_is_called_so():
    bare, kept = toy(name="open"), toy([gaussian()])
    kept["attacks"] = {"lira": {"named": 9, "low": 3}, "loss": {"named": 0, "low": 0}}
    told = sentence([bare, kept])
    assert told.endswith("no attacker should identify more than 2: the promise is broken, or it was chance.")
    # As long as its interval reaches below the ceiling, nothing is said.
    kept["attacks"]["lira"]["low"] = 2
    assert sentence([bare, kept]).endswith("; proven: no attacker can identify more than 2.")


def test_records_that_are_promised_protection_are_not_looked_at():
    asked = experiment.read(EXAMPLE, [*QUICK, "privacy.rehearsal=false"])
    federation = copy.copy(asked.open_federation())
    # Simulated patients may be looked at, and then the noise is a secret one.
    assert not membership(asked, federation, shadows=2).settings[1]["ceiling"]["rehearsal"]
    federation.public = False
    with pytest.raises(
        Refused, match="single records would leave the sites unprotected: attack an experiment"
    ):
        membership(asked, federation, shadows=2)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        (["task.kind='cox-ph'"], Refused, "cox-ph has no loss of a single record"),
        (["clusters.count=2"], Refused, "an attack needs one"),
        (["sites.count=9"], InvalidValue, "it must hold at least 16; take fewer sites"),
    ],
)
def test_what_cannot_be_attacked_is_refused_in_words(changes, error, words):
    asked = experiment.read(EXAMPLE, [*QUICK, *changes])
    with pytest.raises(error, match=words):
        membership(asked, asked.open_federation(), shadows=2)


def test_agents_have_no_records_to_attack():
    asked = experiment.read(EXAMPLE.parent / "control-cartpole.toml")
    with pytest.raises(Refused, match="ppo learns from episodes, not from records"):
        membership(asked, asked.open_federation(), shadows=2)


def test_too_few_shadows_are_refused():
    with pytest.raises(InvalidValue, match="shadows = 1 is not allowed: it must be at least 2"):
        attacked(shadows=1)

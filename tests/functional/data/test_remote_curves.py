"""Curves that parties hold: what a file agrees on, and what a party's own settings may and may not say."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tacit.errors import InvalidFile, InvalidValue, Refused, TacitError
from tacit.experiments.experiment import read
from tacit.functional.curves import Curves
from tacit.functional.data.remote import RemoteCurves
from tacit.functional.tasks import Boosting
from tacit.privacy.policy import Open, Provenance
from tacit.sites.vertical import ByParty

AGREED = RemoteCurves(domains={"b": (0.0, 1.0), "y": (0.0, 2.0), "a": (0.0, 1.0)}, records=30)
PARTIES = ByParty(parties={"one": ["a"], "two": ["b", "y"]})
TIMES = [0.0, 0.25, 0.5, 1.0]


def frame(seed: int = 0, count: int = 30, times: list[float] = TIMES) -> pd.DataFrame:
    values = np.random.default_rng(seed).normal(size=(count, len(times)))
    return pd.DataFrame(values, columns=[str(time) for time in times])


def spoilt(value: object) -> pd.DataFrame:
    """One subject has this instead of numbers."""
    made = frame().astype(object)
    made.iloc[17] = value
    return made


def at_two(folder: Path, b: pd.DataFrame | None = None, y: pd.DataFrame | None = None, **changes):
    (folder / "own").mkdir(exist_ok=True)
    (frame(1) if b is None else b).to_csv(folder / "own" / "b.csv", index=False)
    (frame(2) if y is None else y).to_parquet(folder / "own" / "Y.parquet")
    holding = {"path": "own", "files": {"y": "Y.parquet", "b": "b.csv"}, **changes}
    return AGREED.at_site("two", holding, folder, sites=PARTIES)


def test_a_party_has_its_curves_and_knows_their_domains(tmp_path):
    found = at_two(tmp_path)
    held = found.cohort(["two"]).holdings[0]
    assert (list(found), list(held), found.distant) == (["two"], ["b", "y"], False)
    assert isinstance(held["y"], Curves)
    assert (held["y"].domain, held["b"].domain, len(held["y"])) == ((0.0, 2.0), (0.0, 1.0), 30)
    assert np.allclose(held["b"].values, frame(1).to_numpy())


def test_who_is_not_asked_for_others_may_say_what_it_holds(tmp_path):
    frame().to_csv(tmp_path / "a.csv", index=False)
    assert list(AGREED.at_site("one", {"files": {"a": "a.csv"}}, tmp_path).holdings["one"]) == ["a"]


def named(subjects: list[str], seed: int = 1) -> pd.DataFrame:
    made = frame(seed)
    made.insert(0, "subject", subjects)
    return made


WHO = [f"secret-{row}" for row in range(30)]


@pytest.mark.parametrize(
    ("b", "words"),
    [
        (frame(count=29), r'\[data.files\] b = "b.csv" has 29 subjects, and 30 are agreed'),
        (spoilt("secret-17"), "does not match the agreement"),
        (frame().rename(columns={"0.5": "secret-17"}), "does not match the agreement"),
        (frame(times=[0.0, 0.5, 17.25]), "between 0 and 1"),
        (frame(times=[0.0, 0.75, 0.5]), "ascend"),
        (spoilt(None), "every subject has an observation"),
        (frame() * 0 + 17.25, "not all have the same"),
        (named([*WHO[:-1], WHO[0]]), "does not match the agreement"),
    ],
)
def test_what_is_not_as_agreed_is_named_and_never_shown(tmp_path, b, words):
    with pytest.raises(TacitError, match=words) as caught:
        _ = at_two(tmp_path, b)
    for secret in ("secret", "17.25", "row 17"):
        assert secret not in str(caught.value)
    assert r"[data.files] b" in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_subjects_that_have_names_are_the_same_in_all_files_of_a_party(tmp_path):
    assert at_two(tmp_path, named(WHO), named(WHO)).subjects["b"].subjects == tuple(WHO)
    with pytest.raises(InvalidValue, match="different subjects in 30 of 30 rows") as caught:
        _ = at_two(tmp_path, named(WHO), named([*WHO[1:], WHO[0]]))
    assert "secret" not in str(caught.value)


def test_a_file_without_headings_is_refused(tmp_path):
    (tmp_path / "own").mkdir()
    frame(1).to_csv(tmp_path / "own" / "b.csv", index=False, header=False)
    frame(2).to_csv(tmp_path / "own" / "y.csv", index=False)
    holding = {"path": "own", "files": {"y": "y.csv", "b": "b.csv"}}
    with pytest.raises(InvalidValue, match="29 subjects"):
        _ = AGREED.at_site("two", holding, tmp_path, sites=PARTIES)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"files": {"b": "b.csv"}}, r"\[data.files\] y is missing: two holds that curve"),
        ({"files": {"b": "b.csv", "y": "Y.parquet", "a": "a.csv"}}, r"\[data.files\] a is not known"),
        ({"files": {"b": "absent.csv", "y": "Y.parquet"}}, r'b = "absent.csv" cannot be read \(No such'),
        ({"path": "elsewhere"}, "cannot be read"),
        ({"fils": {}}, r"\[data\] fils is not known"),
    ],
)
def test_settings_that_nobody_understands_are_refused_by_name(tmp_path, changes, words):
    with pytest.raises((InvalidFile, InvalidValue), match=words):
        _ = at_two(tmp_path, **changes)


def test_a_party_that_does_not_take_part_is_refused(tmp_path):
    with pytest.raises(InvalidValue, match="name = 'three'"):
        _ = AGREED.at_site("three", {"files": {"a": "a.csv"}}, tmp_path, sites=PARTIES)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"domains": {"y": (0.0, 1.0)}}, "domains"),
        ({"domains": {"y": (0.0, 1.0), "x": (1.0, 0.0)}}, "domains.x"),
        ({"response": "z"}, "response"),
        ({"records": 0}, "records"),
    ],
)
def test_agreements_that_cannot_be_kept_are_refused(changes, words):
    with pytest.raises(InvalidValue, match=words):
        _ = RemoteCurves(**{"domains": AGREED.domains, "records": 30, **changes})


def test_a_task_is_settled_from_the_agreement_alone():
    federation = AGREED.open(PARTIES, 0)
    provenance = Provenance(Open(), public=False)
    settled = Boosting(size=6).with_privacy(Open()).bind(federation, provenance)
    assert settled.predictors == ("b", "a")
    assert settled.parties == {"one": ("a",), "two": ("b", "y")}
    assert (settled.domains, settled.records) == (AGREED.domains, 30)
    assert provenance.bare == []
    assert settled.start(federation, None).shape[0] > 0
    with pytest.raises(InvalidValue, match="30 subjects, fewer than"):
        _ = Boosting(size=40).bind(federation, provenance)
    with pytest.raises(Refused, match="curves b are at the party"):
        _ = federation.subjects.take([0, 1])


def test_subjects_to_score_on_are_read_where_they_are_and_passed_over_elsewhere(tmp_path):
    agreed = RemoteCurves(domains=AGREED.domains, records=30, test=str(tmp_path / "test"))
    assert agreed.open(PARTIES, 0).held_out is None
    (tmp_path / "test").mkdir()
    for name in AGREED.domains:
        frame(count=5).to_csv(tmp_path / "test" / f"{name}.csv", index=False)
    found = agreed.open(PARTIES, 0)
    assert found.held_out is not None
    assert (len(found.held_out), found.held_out_public, found.records) == (5, True, 30)


def test_parties_are_those_of_the_file_and_each_curve_has_one(tmp_path):
    text = (
        '[data]\nkind = "held-curves"\nrecords = 30\ndomains = { x = [0, 1], y = [0, 1] }\n[sites]\n'
        'parties = { one = ["x"], %s = ["y"] }\n[task]\nkind = "functional-boosting"\nsize = 6\n'
    )
    (tmp_path / "e.toml").write_text(text % "two")
    asked = read(tmp_path / "e.toml")
    assert list(asked.open_federation()) == ["one", "two"]
    assert asked.plan().statement.epsilon is None
    (tmp_path / "e.toml").write_text(text % "coordinator")
    with pytest.raises(InvalidValue, match="coordinator"):
        read(tmp_path / "e.toml").check()
    with pytest.raises(InvalidValue, match="no party holds a"):
        AGREED.check(ByParty(parties={"one": ["b", "y"]}))

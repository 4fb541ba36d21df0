"""Records that sites hold: what a file agrees on, and what a site's own settings may and may not say."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tacit.errors import InvalidFile, InvalidValue, Refused, TacitError
from tacit.experiments.experiment import read
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.sites.splits import Iid, NamedSites
from tacit.survival import CoxPH, DeepHit, LogisticHazard
from tacit.survival.data.remote import RemoteRecords

AGREED = RemoteRecords(
    columns=["age", "sex"],
    time="days",
    event="status",
    levels={"sex": ["f", "m"]},
    fill={"sex": "f"},
    center={"age": 60.0},
    scale={"age": 10.0},
    records=40,
)
SITES = NamedSites(names=["oslo", "bergen"])


def frame(count: int = 20) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "Alter": np.linspace(40, 80, count),
            "sex": ["f", "m"] * (count // 2),
            "days": np.arange(1.0, count + 1),
            "status": np.arange(count) % 2,
            "name": [f"patient-{row}" for row in range(count)],
        }
    )


def opened(folder: Path, given: pd.DataFrame, agreed: RemoteRecords = AGREED, task=None, **holding):
    given.to_csv(folder / "own.csv", index=False)
    told = {"path": "own.csv", "columns": {"age": "Alter"}, **holding}
    return agreed.at_site("oslo", told, folder, sites=SITES, task=task)


def test_a_site_calls_its_columns_what_it_likes_and_keeps_others_to_itself(tmp_path):
    found = opened(tmp_path, frame())
    assert list(found) == ["oslo"]
    table = found.records_of("oslo")
    assert table.columns == ("age", "sex=m")
    assert np.allclose(table.features[:, 0], (np.linspace(40, 80, 20) - 60) / 10)
    assert set(table.targets) == {"time", "event"}
    assert (found.distant, found.public, found.encoding) == (False, False, AGREED.open(SITES, 0).encoding)


def test_the_same_table_as_parquet_and_with_codes_for_words(tmp_path):
    agreed = RemoteRecords(columns=["grade"], levels={"grade": [1, 2]}, fill={"grade": 2})
    given = pd.DataFrame({"grade": [1.0, 2.0, np.nan, 1.0], "time": [1, 2, 3, 4], "event": [1, 0, 1, 1]})
    given.to_parquet(tmp_path / "own.parquet")
    found = agreed.at_site("oslo", {"path": "own.parquet"}, tmp_path)
    assert found.records_of("oslo").features.ravel().tolist() == [0, 1, 1, 0]


def broken(**changes) -> pd.DataFrame:
    found = frame().astype(dict.fromkeys(changes, object))
    for name, value in changes.items():
        found.loc[3, name] = value
    return found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (frame().drop(columns="Alter"), 'no column "Alter", which is age in the experiment.*data.columns'),
        (frame().drop(columns="status"), 'no column "status"'),
        (
            broken(Alter="secret-17"),
            'column "Alter", which is age.*must hold finite numbers, and nothing may',
        ),
        (broken(Alter=None), 'column "Alter"'),
        (broken(Alter=np.inf), 'column "Alter"'),
        (broken(sex="secret-17"), 'column "sex".*must hold "f" or "m" or nothing'),
        (broken(days="secret-17"), 'column "days"'),
        (broken(days=-17.25), "1 of 20 records are not above 0"),
        (broken(status=17.25), "1 of 20 records are not 0"),
        (frame(20).head(1), "site oslo holds one record"),
    ],
)
def test_what_is_not_as_agreed_is_named_and_never_shown(tmp_path, given, words):
    with pytest.raises(TacitError, match=words) as caught:
        _ = opened(tmp_path, given)
    for secret in ("secret", "17.25", "patient"):
        assert secret not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_a_file_without_headings_does_not_show_its_first_record(tmp_path):
    frame().to_csv(tmp_path / "own.csv", index=False, header=False)
    with pytest.raises(InvalidValue, match='no column "Alter"') as caught:
        _ = AGREED.at_site("oslo", {"path": "own.csv", "columns": {"age": "Alter"}}, tmp_path)
    assert "patient" not in str(caught.value)


@pytest.mark.parametrize(
    ("holding", "words"),
    [
        ({"columns": {"agee": "Alter"}}, r'\[data.columns\] agee is not known \(did you mean "age"'),
        ({"columns": {"age": "days"}}, r"\[data.columns\] age = 'days' is not allowed: .*column of its own"),
        ({"columns": ["age"]}, r"\[data\] columns"),
        ({"columns": {"age": 7}}, r"\[data\] columns"),
        ({"pth": "own.csv"}, r'\[data\] pth is not known \(did you mean "path"'),
        ({"path": "absent.csv"}, r'\[data\] path = "absent.csv" cannot be read \(No such file'),
    ],
)
def test_settings_that_nobody_understands_are_refused_by_name(tmp_path, holding, words):
    with pytest.raises((InvalidFile, InvalidValue), match=words):
        _ = opened(tmp_path, frame(), **holding)


def test_a_site_that_does_not_take_part_and_one_without_a_path_are_refused(tmp_path):
    with pytest.raises(InvalidValue, match="name = 'paris'"):
        _ = AGREED.at_site("paris", {"path": "own.csv"}, tmp_path, sites=SITES)
    with pytest.raises(InvalidFile, match="path"):
        _ = AGREED.at_site("oslo", {}, tmp_path)


def test_records_are_held_against_the_task_if_it_is_known(tmp_path):
    several = frame().assign(status=np.arange(20) % 3)
    assert set(opened(tmp_path, several).records_of("oslo").targets["event"]) == {0, 1, 2}
    _ = opened(tmp_path, several, task=DeepHit(causes=2))
    with pytest.raises(InvalidValue, match=r"event in site oslo.*1 \(happened\)"):
        _ = opened(tmp_path, several, task=LogisticHazard())
    censored = frame().assign(status=0)
    _ = opened(tmp_path, censored)
    with pytest.raises(InvalidValue, match="all 20 records are censored"):
        _ = opened(tmp_path, censored, task=CoxPH())


def test_one_cause_may_be_agreed_on_and_need_not_be_seen_by_everybody(tmp_path):
    agreed = RemoteRecords(columns=["sex"], time="days", event="status", levels={"sex": ["f", "m"]}, cause=2)
    found = opened(tmp_path, frame().assign(status=np.arange(20) % 3), agreed, columns={})
    assert found.records_of("oslo").targets["event"].sum() == 6
    none = opened(tmp_path, frame(), agreed, columns={})
    assert none.records_of("oslo").targets["event"].sum() == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"columns": []}, "columns"),
        ({"columns": ["age", "age"]}, "columns = 'age'"),
        ({"columns": ["age", "time"]}, "columns = 'time'"),
        ({"levels": {"stage": ["1"]}}, "levels = 'stage'"),
        ({"center": {"weight": 1.0}}, "center = 'weight'"),
        ({"records": 0}, "records"),
        ({"cause": 0}, "cause"),
        ({"site": "age"}, "site = 'age'"),
        ({"levels": {"age": ["one"]}}, "columns"),
    ],
)
def test_agreements_that_cannot_be_kept_are_refused(changes, words):
    with pytest.raises(InvalidValue, match=words):
        _ = RemoteRecords(**{"columns": ["age"], **changes})


def test_public_records_are_read_where_they_are_and_passed_over_elsewhere(tmp_path):
    given = frame().rename(columns={"Alter": "age"}).assign(where=["oslo"] * 12 + ["bergen"] * 8)
    given.to_csv(tmp_path / "test.csv", index=False)
    agreed = RemoteRecords(
        columns=["age"], time="days", event="status", test=str(tmp_path / "test.csv"), site="where",
        reference=str(tmp_path / "absent.csv"),
    )  # fmt: skip
    found = agreed.open(SITES, 0)
    assert found.held_out is not None
    assert found.held_out.sites is not None
    assert (len(found.held_out), found.held_out_public, found.reference) == (20, True, None)
    assert found.held_out.sites.tolist()[:1] == ["oslo"]
    with pytest.raises(InvalidValue, match=r"column sexx is missing in test\.csv"):
        _ = RemoteRecords(columns=["sexx"], time="days", event="status", test=agreed.test).open(SITES, 0)


def test_a_grid_that_nobody_said_is_asked_for_even_in_open_runs():
    federation = AGREED.open(SITES, 0)
    for privacy in (Open(), Privacy(unit="record", epsilon=1.0, delta=1e-5, clip=1.0)):
        provenance = Provenance(privacy, public=False)
        settled = LogisticHazard(cuts=7).bind(federation, provenance)
        assert settled.cuts == 7
        assert settled.initial_query is not None
        assert (settled.columns, settled.encoding) == (("age", "sex=m"), federation.encoding)
        assert LogisticHazard(cuts=2, horizon=6.0).bind(federation, provenance).cuts == (3.0, 6.0)
        assert LogisticHazard(cuts=[1.0, 4.0]).bind(federation, provenance).cuts == (1.0, 4.0)
        assert provenance.bare == []


FILE = """
rounds = 3
[data]
kind = "held-records"
columns = ["age"]
records = 400
public = {public}
[sites]
kind = "{kind}"
{more}
[task]
kind = "logistic-hazard"
sample = 0.1
[privacy]
unit = "record"
epsilon = 2.0
delta = 1e-5
clip = 1.0
rehearsal = true
"""


def written(
    folder: Path, kind: str = "named", more: str = 'names = ["oslo", "bergen"]', public: str = "false"
):
    (folder / "e.toml").write_text(FILE.format(kind=kind, more=more, public=public))
    return read(folder / "e.toml")


@pytest.mark.parametrize("public", ["false", "true"])
def test_a_plan_counts_the_question_for_a_grid_that_nobody_can_look_up(tmp_path, public):
    told = written(tmp_path, public=public).plan()
    assert any("time grid" in line for line in told.statement.released)
    explicit = read(tmp_path / "e.toml", ["task.horizon=5.0"]).plan()
    assert not any("time grid" in line for line in explicit.statement.released)
    assert set(told.statement.subjects) == {"records@oslo", "records@bergen"}


def test_what_sites_hold_is_not_dealt_out_and_what_is_here_has_no_named_sites(tmp_path):
    with pytest.raises(InvalidValue, match=r"\[sites\] kind = 'iid' is not allowed.*held-records.*named"):
        written(tmp_path, "iid", "count = 3").check()
    with pytest.raises(InvalidValue, match="do not go together"):
        written(tmp_path, "columns", "count = 2").check()
    (tmp_path / "f.toml").write_text(
        '[sites]\nkind = "named"\nnames = ["a"]\n[task]\nkind = "logistic-hazard"\n'
    )
    with pytest.raises(InvalidValue, match=r"\[sites\] kind = 'named' is not allowed.*simulated"):
        read(tmp_path / "f.toml").check()
    with pytest.raises(InvalidValue, match="held-records"):
        AGREED.check(Iid(count=2))


def test_a_run_of_what_is_elsewhere_says_where_it_is(tmp_path):
    with pytest.raises(Refused, match="are at"):
        _ = read_and_run(tmp_path)


def read_and_run(folder: Path):
    _ = written(folder)
    return read(folder / "e.toml", ["task.horizon=5.0", "baselines=false"]).run(None)

"""Sources of data: public facts stay apart from private ones, and every record is at one place."""

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Federation
from tacit.errors import InvalidFile, InvalidValue, Refused
from tacit.learning.record import describe
from tacit.runtime.tables import construct
from tacit.sites.splits import ByColumn, Dirichlet, Iid, NonIid, SplitByCount, TimeNonIid
from tacit.survival.data import simulate
from tacit.survival.data.sources import Csv, Simulated
from tacit.survival.targets import require_sites

PATIENTS = simulate("SDGM1", records=90, features=3, seed=1).assign(site=["oslo", "bergen", "aker"] * 30)


def csv(folder: Path, frame: pd.DataFrame = PATIENTS, **options: object) -> Csv:
    path = folder / "patients.csv"
    frame.to_csv(path, index=False)
    return Csv(path=str(path), **options)


def everybody(federation: Federation) -> list[float]:
    """The times of all records, at the sites and held out; no two are alike."""
    held_out = [] if federation.held_out is None else federation.held_out.targets["time"].tolist()
    return sorted([*federation.store.targets["time"].tolist(), *held_out])


def test_simulated_patients_are_public_and_counted():
    found = Simulated(records=200, features=4).open(Iid(count=4), 7)
    assert (found.public, found.held_out_public, found.records) == (True, True, 160)
    assert (len(found), len(found.store), len(found.held_out)) == (4, 160, 40)
    assert found.store.columns == ("x1", "x2", "x3", "x4")
    wanted = simulate("SDGM1", records=200, features=4, seed=7)
    assert everybody(found) == sorted(wanted["time"])


@given(
    records=st.integers(20, 300),
    held_out=st.sampled_from([0, 0.1, 0.2, 0.25, 0.5]),
    seed=st.integers(-5, 5),
    split=st.sampled_from([Iid(count=2), Dirichlet(count=3, alpha=0.1)]),
)
@settings(max_examples=40)
def test_the_number_of_records_that_a_plan_counts_on_is_what_is_trained_on(
    records: int, held_out: float, seed: int, split: SplitByCount
):
    source = Simulated(records=records, features=2, held_out=held_out)
    found = source.open(split, seed)
    assert source.public_records == found.records == len(found.store)
    assert len(found.store) + (0 if found.held_out is None else len(found.held_out)) == records


def test_the_same_seed_gives_the_same_federation_and_another_one_others():
    source = Simulated(records=100)
    first, again, other = (source.open(NonIid(), seed) for seed in (3, 3, 4))
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint
    assert first.held_out.digest() == again.held_out.digest()


@pytest.mark.parametrize("seed", [-1, 0, 7])
def test_reference_records_are_other_patients_of_the_same_design(seed: int):
    found = Simulated(records=400, features=3).open(Iid(), seed)
    assert not set(found.reference.targets["time"]) & set(everybody(found))
    assert found.reference.columns == found.store.columns
    ratio = np.median(found.reference.targets["time"]) / np.median(found.store.targets["time"])
    assert 0.5 < ratio < 2


def test_options_of_a_design_are_heard():
    often = Simulated(records=1000, c_mean=4.0).open(Iid(), 1)
    seldom = Simulated(records=1000, c_mean=0.04).open(Iid(), 1)
    assert often.store.targets["event"].mean() < 0.4 < 0.8 < seldom.store.targets["event"].mean()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"design": "SDGM5"}, "design = 'SDGM5' is not allowed.*did you mean"),
        ({"records": 0}, "records = 0 is not allowed"),
        ({"features": -1}, "features = -1 is not allowed"),
        ({"held_out": 1.0}, "held_out = 1.0 is not allowed"),
        ({"held_out": -0.1}, "held_out = -0.1 is not allowed"),
        ({"held_out": float("nan")}, "held_out = nan is not allowed"),
    ],
)
def test_a_simulation_that_cannot_be_drawn_is_refused(options: dict, said: str):
    with pytest.raises(InvalidValue, match=said):
        Simulated(**options)


def test_an_option_of_another_design_is_refused():
    with pytest.raises(InvalidValue, match=r"c_mean = 1.0 is not allowed: SDGM2 takes u_max alone"):
        Simulated(design="SDGM2", c_mean=1.0).open(Iid(), 1)


def test_simulated_patients_have_no_column_of_sites():
    with pytest.raises(InvalidValue, match="by-column"):
        Simulated().open(ByColumn(), 1)


def test_a_file_is_parted_by_its_own_column(tmp_path: Path):
    found = csv(tmp_path).open(ByColumn(), 1)
    assert set(found) == {"oslo", "bergen", "aker"}
    for name, site in found.items():
        own = PATIENTS[PATIENTS["site"] == name]
        assert site.table.targets["time"].tolist() == pytest.approx(own["time"].tolist())
        assert site.table.features.tolist() == pytest.approx(own[["x1", "x2", "x3"]].to_numpy())
    assert found.store.columns == ("x1", "x2", "x3")


@pytest.mark.parametrize("split", [Iid(count=4), NonIid(count=4), TimeNonIid(count=4), Dirichlet(count=4)])
def test_a_file_can_be_dealt_out_and_its_column_of_sites_is_no_feature(tmp_path: Path, split: SplitByCount):
    found = csv(tmp_path, site="site").open(split, 1, may_look=True)
    assert list(found) == ["site-1", "site-2", "site-3", "site-4"]
    assert found.store.columns == ("x1", "x2", "x3")
    assert everybody(found) == pytest.approx(sorted(PATIENTS["time"]))


def test_parquet_is_read_like_csv(tmp_path: Path):
    PATIENTS.to_parquet(tmp_path / "patients.parquet")
    found = Csv(path=str(tmp_path / "patients.parquet")).open(ByColumn(), 1)
    assert everybody(found) == sorted(PATIENTS["time"])


def test_records_of_a_file_are_private_and_so_is_their_number(tmp_path: Path):
    source = csv(tmp_path, site="site")
    for split in (ByColumn(), Iid(count=3)):
        found = source.open(split, 1, may_look=True)
        assert (found.public, found.records, found.mean_site_size, found.reference) == (
            False,
            None,
            None,
            None,
        )
        assert found.held_out_public is False
    assert source.public_records is None


@pytest.mark.parametrize("split", [ByColumn(), Iid(count=3)], ids=["by column", "dealt"])
def test_records_are_held_out_only_where_somebody_may_look(tmp_path: Path, split: ByColumn | SplitByCount):
    source = csv(tmp_path, site="site")
    private = source.open(split, 1, may_look=False)
    assert private.held_out is None
    assert len(private.store) == 90
    looked_at = source.open(split, 1, may_look=True)
    assert len(looked_at.held_out) == 18
    assert everybody(looked_at) == everybody(private)
    asked_for = Csv(path=source.path, site="site", held_out=0.5).open(split, 1, may_look=False)
    assert len(asked_for.held_out) == 45
    assert Csv(path=source.path, site="site", held_out=0.0).open(split, 1, may_look=True).held_out is None


def test_every_site_holds_out_its_share_with_its_share_of_events(tmp_path: Path):
    found = csv(tmp_path).open(ByColumn(), 1, may_look=True)
    assert [len(site.table) for site in found.values()] == [24, 24, 24]
    share = found.held_out.targets["event"].mean()
    assert share == pytest.approx(PATIENTS["event"].mean(), abs=0.1)


def test_a_test_file_is_public_and_leaves_all_records_to_the_sites(tmp_path: Path):
    simulate("SDGM1", records=25, features=3, seed=2).to_csv(tmp_path / "test.csv", index=False)
    found = csv(tmp_path, test=str(tmp_path / "test.csv")).open(ByColumn(), 1, may_look=True)
    assert (len(found.store), len(found.held_out), found.held_out_public) == (90, 25, True)


def test_a_test_file_and_a_share_to_hold_out_exclude_each_other():
    with pytest.raises(
        InvalidValue, match=r"held_out = 0.2 is not allowed: it must be left out where `test`"
    ):
        Csv(path="patients.csv", test="test.csv", held_out=0.2)


def test_what_is_wrong_in_a_test_file_is_named_with_the_file(tmp_path: Path):
    path = tmp_path / "test.csv"
    simulate("SDGM1", records=25, features=3, seed=2).assign(x2=np.nan).to_csv(path, index=False)
    with pytest.raises(InvalidValue, match=r"^x2 in test.csv .* 25 of 25 records"):
        csv(tmp_path, test=str(path)).open(ByColumn(), 1)
    path.unlink()
    with pytest.raises(InvalidFile, match=r"test.csv cannot be read: No such file"):
        csv(tmp_path, test=str(path)).open(ByColumn(), 1)


def test_columns_of_times_and_events_may_have_any_name(tmp_path: Path):
    renamed = PATIENTS.rename(columns={"time": "days", "event": "died", "site": "ward"})
    found = csv(tmp_path, renamed, time="days", event="died").open(ByColumn(column="ward"), 1)
    assert everybody(found) == pytest.approx(sorted(PATIENTS["time"]))
    assert found.store.columns == ("x1", "x2", "x3")
    assert found.store.targets["event"].sum() == PATIENTS["event"].sum()


def test_sites_that_a_file_numbers_are_named_by_their_numbers(tmp_path: Path):
    numbered = PATIENTS.assign(site=np.arange(90) % 3 + 9)
    assert set(csv(tmp_path, numbered).open(ByColumn(), 1)) == {"9", "10", "11"}


def test_the_order_of_the_lines_of_a_file_does_not_change_who_holds_what(tmp_path: Path):
    first = csv(tmp_path).open(ByColumn(), 1)
    second = csv(tmp_path, PATIENTS[::-1]).open(ByColumn(), 1)
    for name in first:
        one, other = (found[name].table.targets["time"] for found in (first, second))
        assert sorted(one) == sorted(other)


@pytest.mark.parametrize(
    ("frame", "options", "said"),
    [
        (PATIENTS.drop(columns="time"), {}, "^column time is missing in site aker"),
        (PATIENTS.rename(columns={"event": "events"}), {}, 'event is missing .*did you mean "events"'),
        (PATIENTS, {"time": "tim"}, 'column tim is missing in site aker .did you mean "time"'),
        (PATIENTS.assign(x2="a"), {}, "^x2 in site aker does not hold numbers"),
        (PATIENTS.assign(x2=[np.nan, *range(89)]), {}, "^x2 in site oslo .* 1 of 30 records"),
        (PATIENTS.assign(time=np.inf), {}, "^time in site aker .* 30 of 30 records"),
        (PATIENTS.drop(columns="site"), {}, "^column site is missing in patients.csv"),
        (PATIENTS.assign(site=[None, *PATIENTS["site"][1:]]), {}, "^column site in patients.csv .* no site"),
        (PATIENTS.iloc[[*range(0, 90, 3), 1]], {}, "^site bergen holds one record"),
        (PATIENTS.assign(site="oslo@norway"), {}, "^site = 'oslo@norway' is not allowed"),
        (PATIENTS[["time", "event", "site"]], {}, "at least one column beside"),
    ],
    ids=["no time", "no event", "misnamed time", "text", "NaN", "infinity", "no column of sites",
         "a record without a site", "one record", "a confusing name", "no features"],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_named_with_its_place(
    tmp_path: Path, frame: pd.DataFrame, options: dict, said: str
):
    with pytest.raises(InvalidValue, match=said):
        csv(tmp_path, frame, **options).open(ByColumn(), 1)


def test_the_share_of_censored_patients_can_be_asked_for():
    found = Simulated(records=5000, censoring=0.6).open(Iid(), 1)
    assert found.store.targets["event"].mean() == pytest.approx(0.4, abs=0.03)
    assert found.reference.targets["event"].mean() == pytest.approx(0.4, abs=0.03)


def test_simulated_patients_may_have_several_causes():
    found = Simulated(design="competing", records=500, causes=3).open(Iid(), 1)
    assert set(found.store.targets["event"]) == {0, 1, 2, 3}


# Times, events, entries and weights


def test_entries_and_weights_are_targets_and_no_features(tmp_path: Path):
    frame = PATIENTS.assign(start=PATIENTS["time"] / 2, counts=2.0)
    found = csv(tmp_path, frame, entry="start", weight="counts").open(ByColumn(), 1, may_look=True)
    assert set(found.store.targets) == set(found.held_out.targets) == {"time", "event", "entry", "weight"}
    assert found.store.columns == ("x1", "x2", "x3")
    assert found.store.targets["entry"] == pytest.approx(found.store.targets["time"] / 2)
    assert set(found.store.targets["weight"]) == {2}


def first(column: str, value: float) -> pd.DataFrame:
    """The patients, of whom the first has another value."""
    frame = PATIENTS.assign(start=0.0, counts=1.0).astype({column: float})
    frame.loc[0, column] = value
    return frame


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (first("time", 0.0), "^time in site oslo is not allowed: 1 of 30 records are not above 0; correct"),
        (first("time", -3.0), "^time in site oslo is not allowed: 1 of 30 records are not above 0"),
        (first("event", 0.5), "^event in site oslo is not allowed: 1 of 30 .* whole number from 1 on"),
        (first("event", -1.0), "^event in site oslo is not allowed: 1 of 30 records are not 0 .censored"),
        (first("start", 99.0), "^entry in site oslo is not allowed: 1 of 30 records are not before the time"),
        (first("start", float(PATIENTS["time"][0])), "^entry in site oslo .* not before the time"),
        (first("start", -1.0), "^entry in site oslo is not allowed: 1 of 30 records are not at least 0"),
        (first("start", np.nan), "^start in site oslo is not allowed: 1 of 30 records hold NaN"),
        (first("counts", 0.0), "^weight in site oslo is not allowed: 1 of 30 records are not above 0"),
        (first("counts", -1.0), "^weight in site oslo is not allowed: 1 of 30 records are not above 0"),
        (first("counts", np.inf), "^counts in site oslo is not allowed: 1 of 30 records hold NaN or inf"),
        (PATIENTS.assign(start=0.0), "^column counts is missing in site aker"),
    ],
)
def test_a_target_that_makes_no_sense_is_named_with_its_place(tmp_path: Path, frame: pd.DataFrame, said: str):
    with pytest.raises(InvalidValue, match=said):
        csv(tmp_path, frame, entry="start", weight="counts").open(ByColumn(), 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"entry": "time"}, "entry = 'time' is not allowed: it must be a column of its own"),
        ({"entry": "start", "weight": "start"}, "weight = 'start' is not allowed"),
        ({"cause": 0}, 'cause = 0 is not allowed: it must be a whole number of at least 1, or "any"'),
        ({"cause": "first"}, "cause = 'first' is not allowed"),
        ({"fill": {"time": 1.0}}, "fill, center or scale of time = .* that of a feature"),
        ({"leave": ["x1"], "center": {"x1": 1.0}}, "scale of x1 = .* that of a feature"),
        ({"levels": {"x1": []}}, "levels of x1"),
        ({"scale": {"x1": 0.0}}, "scale of x1 = 0.0 is not allowed"),
    ],
)
def test_options_of_a_file_that_contradict_each_other_are_refused(options: dict, said: str):
    with pytest.raises(InvalidValue, match=said):
        Csv(path="patients.csv", **options)


# Causes

CAUSES = PATIENTS.assign(event=np.where(PATIENTS["event"] == 1, np.arange(90) % 2 + 1, 0))


def test_causes_keep_their_codes_unless_one_is_chosen(tmp_path: Path):
    each, second, whichever = (
        csv(tmp_path, CAUSES, cause=cause, held_out=0.0).open(ByColumn(), 1).store.targets["event"]
        for cause in (None, 2, "any")
    )
    assert set(each) == {0, 1, 2}
    assert second.tolist() == (each == 2).tolist()
    assert whichever.tolist() == (each > 0).tolist()


def test_a_cause_may_be_absent_at_a_site_but_not_everywhere(tmp_path: Path):
    at_one = CAUSES.assign(
        event=np.where(CAUSES["site"] == "oslo", CAUSES["event"].clip(upper=1), CAUSES["event"])
    )
    found = csv(tmp_path, at_one).open(ByColumn(), 1)
    require_sites(found, causes=2)
    with pytest.raises(InvalidValue, match=r"cause = 3 is not allowed: the causes in patients.csv are 1, 2"):
        csv(tmp_path, at_one, cause=3).open(ByColumn(), 1)
    with pytest.raises(InvalidValue, match="causes = 3 is not allowed: no site has an event of cause 3"):
        require_sites(found, causes=3)
    with pytest.raises(InvalidValue, match=r"event in site aker .* 1 .happened. or 0 .*cause = 1, or .any"):
        require_sites(found)


def test_a_site_without_an_event_of_the_chosen_cause_is_named(tmp_path: Path):
    at_one = CAUSES.assign(
        event=np.where(CAUSES["site"] == "oslo", CAUSES["event"].clip(upper=1), CAUSES["event"])
    )
    found = csv(tmp_path, at_one, cause=2).open(ByColumn(), 1)
    with pytest.raises(InvalidValue, match="event in site oslo is not allowed: all 30 records are censored"):
        require_sites(found)


# Words and missing values

WORDS = PATIENTS.assign(
    sex=["f", "m"] * 45, grade=[1, 2, 3] * 30, bmi=[np.nan, 20.0, 30.0] * 30, id=range(90)
)
RULES = {
    "levels": {"sex": ["f", "m"], "grade": [1, 2, 3]},
    "fill": {"bmi": 25},
    "center": {"bmi": 25.0},
    "leave": ["id"],
}


@pytest.mark.parametrize("split", [ByColumn(), Iid(count=3)], ids=["by column", "dealt"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_words_and_missing_values_of_a_file_follow_public_rules(
    tmp_path: Path, split: ByColumn | SplitByCount, suffix: str
):
    path = tmp_path / f"patients.{suffix}"
    WORDS.to_csv(path, index=False) if suffix == "csv" else WORDS.to_parquet(path)
    found = Csv(path=str(path), site="site", **RULES).open(split, 1)
    assert found.store.columns == ("x1", "x2", "x3", "sex=m", "grade=2", "grade=3", "bmi")
    assert found.encoding.levels == {"sex": ["f", "m"], "grade": ["1", "2", "3"]}
    assert np.bincount(found.store.features[:, 3].astype(int)).tolist() == [45, 45]
    assert sorted(set(found.store.features[:, 6])) == [-5, 0, 5]


def test_a_test_file_is_encoded_like_the_others(tmp_path: Path):
    WORDS[::-1].to_csv(tmp_path / "test.csv", index=False)
    found = csv(tmp_path, WORDS, test=str(tmp_path / "test.csv"), **RULES).open(ByColumn(), 1)
    assert found.held_out.columns == found.store.columns
    assert np.bincount(found.held_out.features[:, 3].astype(int)).tolist() == [45, 45]


def test_a_level_may_read_like_a_missing_value(tmp_path: Path):
    frame = PATIENTS.assign(finding=["None", "NA", "some"] * 30)
    found = csv(tmp_path, frame, levels={"finding": ["some", "None", "NA"]}).open(ByColumn(), 1)
    assert found.store.features[:, 3:].sum(axis=0).tolist() == [30, 30]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"levels": {"grade": [1, 2, 3]}}, r"^sex in site aker does not hold numbers .*levels = \{ sex = "),
        (
            {"levels": {"sex": ["f"], "grade": [1, 2, 3]}},
            '^sex in site aker .* it holds "m", its levels are "f"',
        ),
        (
            {"fill": {}},
            r"^bmi in site oslo is not allowed: 30 of 30 records hold NaN or nothing.*fill = \{ bmi = 25.0",
        ),
        ({"fill": {"bmi": 1.0, "bim": 1.0}}, "^column bim is missing in site aker .did you mean"),
        ({"leave": ["di"]}, "^column di is missing in patients.csv"),
    ],
)
def test_what_no_rule_covers_is_refused_with_the_way_out(tmp_path: Path, change: dict, said: str):
    with pytest.raises(InvalidValue, match=said):
        csv(tmp_path, WORDS, **{**RULES, **change}).open(ByColumn(), 1)


def test_means_and_spreads_are_taken_from_records_only_where_somebody_may_look(tmp_path: Path):
    source = csv(tmp_path, WORDS, **RULES, standardize=True, held_out=0.0)
    with pytest.raises(Refused, match="give public ones as `center` and `scale`"):
        source.open(ByColumn(), 1, may_look=False)
    found = source.open(ByColumn(), 1, may_look=True)
    assert found.store.features[:, :3].mean(axis=0) == pytest.approx(0, abs=1e-12)
    assert found.store.features[:, :3].std(axis=0) == pytest.approx(1)
    # What the file says, it says.
    assert found.encoding.center["bmi"] == 25
    assert set(found.encoding.scale) == {"x1", "x2", "x3"}


def test_the_rules_of_a_file_survive_the_file_that_a_run_writes(tmp_path: Path):
    source = csv(tmp_path, WORDS, site="site", **RULES, standardize=True, cause="any")
    written = tomli_w.dumps({"data": source.open(Iid(count=2), 1, may_look=True).origin["data"]})
    table = tomllib.loads(written)["data"]
    assert table.pop("kind") == "csv"
    assert describe(construct(Csv, "data", table)) == describe(source)


def test_opening_a_file_leaves_it_as_it_was(tmp_path: Path):
    source = csv(tmp_path)
    before = Path(source.path).read_bytes()
    source.open(ByColumn(), 1, may_look=True)
    assert Path(source.path).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["patients.csv"]

"""Where data come from: what is public stays apart from what is not, and every record is somewhere once."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Federation
from tacit.errors import InvalidFile, InvalidValue
from tacit.sites.splits import ByColumn, Dealt, Dirichlet, Iid, NonIid, TimeNonIid
from tacit.survival.data import simulate
from tacit.survival.sources import Csv, Simulated

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
    records: int, held_out: float, seed: int, split: Dealt
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
def test_a_file_can_be_dealt_out_and_its_column_of_sites_is_no_feature(tmp_path: Path, split: Dealt):
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
        assert (found.public, found.records, found.typical, found.reference) == (False, None, None, None)
        assert found.held_out_public is False
    assert source.public_records is None


@pytest.mark.parametrize("split", [ByColumn(), Iid(count=3)], ids=["by column", "dealt"])
def test_records_are_held_out_only_where_somebody_may_look(tmp_path: Path, split: ByColumn | Dealt):
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


def test_opening_a_file_leaves_it_as_it_was(tmp_path: Path):
    source = csv(tmp_path)
    before = Path(source.path).read_bytes()
    source.open(ByColumn(), 1, may_look=True)
    assert Path(source.path).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["patients.csv"]

"""Slips of a first user in Python: the message names a remedy that works, and no ledger is charged."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit import Federation, Ledger, Privacy, fit
from tacit.errors import TacitError
from tacit.privacy.ledger.data_book import DataBook
from tacit.sites.encoding import Encoding
from tacit.survival import PoissonPH
from tacit.survival.figures import forest
from tacit.survival.statistics import cox, life_table, logrank

PRIVATE = Privacy(unit="record", epsilon=1.0, delta=1e-5, clip=1.0)
SCALED = Encoding(center={"age": 60.0}, scale={"age": 10.0})
GRID = [1.0, 2.0, 3.0, 4.0]


def patients(count=200):
    draws = np.random.default_rng(0)
    return pd.DataFrame({
        "age": draws.normal(60, 10, count), "stage": draws.choice(["I", "II", "III"], count),
        "time": draws.exponential(2, count) + 0.01, "event": draws.integers(0, 2, count),
        "site": draws.choice(["oslo", "bergen"], count),
    })  # fmt: skip


def sites(frame, encoding=SCALED, targets=("time", "event")):
    return Federation.from_frame(frame, site="site", targets=list(targets), encoding=encoding)


def remedy(error, pattern):
    return re.findall(pattern, str(error.value))[-1]


def test_targets_of_other_names_are_renamed_as_the_message_says():
    frame = patients().drop(columns="stage").rename(columns={"time": "duration", "event": "died"})
    for work in (lambda given: fit(PoissonPH(horizon=4.0), given, privacy=PRIVATE), logrank, cox):
        with pytest.raises(TacitError, match="the targets of survival data are time and event") as told:
            work(sites(frame, targets=("duration", "died")))
        assert "as by frame.rename(columns=" in str(told.value)
    renamed = eval(remedy(told, r"(frame\.rename\(columns=\{.*?\}\))"))
    assert fit(PoissonPH(horizon=4.0), sites(renamed), privacy=PRIVATE).privacy.epsilon <= 1.0


def test_words_get_the_encoding_that_the_message_writes():
    frame = patients()
    with pytest.raises(TacitError, match="encode it by all levels that it may have") as told:
        sites(frame)
    encoding = eval(remedy(told, r"encoding=(tacit\.sites\.encoding\.Encoding\(.*?\)),"), {"tacit": tacit})
    assert sites(frame, encoding).store.columns == ("age", "stage=II", "stage=III")


def test_events_of_words_get_the_levels_that_the_message_writes():
    frame = patients().drop(columns="stage")
    worded = frame.assign(event=np.where(frame["event"] == 1, "dead", "alive"))
    with pytest.raises(TacitError, match="first the one for censored") as told:
        sites(worded)
    encoding = eval(remedy(told, r"encoding=(tacit\.sites\.encoding\.Encoding\(.*\))"), {"tacit": tacit})
    assert (
        sites(worded, encoding).store.targets["event"].tolist()
        == sites(frame).store.targets["event"].tolist()
    )


@pytest.mark.parametrize("as_text", [False, True])
def test_dates_become_days_as_the_message_writes(as_text):
    frame = patients().drop(columns="stage")
    start = pd.Timestamp("2010-01-01")
    end = start + pd.to_timedelta((frame["time"] * 100).round() + 1, unit="D")
    dated = frame.assign(time=end.dt.strftime("%Y-%m-%d") if as_text else end)
    with pytest.raises(
        TacitError, match=r"time in .* it holds dates: give the days between two dates"
    ) as told:
        sites(dated)
    exec(
        remedy(told, r"(frame\[\"time\"\] = .*)"),
        {"frame": dated, "pandas": pd, "START": "start", "END": "time"}
        | {"frame": (both := dated.assign(start=start))},
    )
    assert sites(both.drop(columns="start")).store.targets["time"].min() >= 1


def test_one_record_may_be_a_series_and_a_column_is_refused():
    frame = patients().drop(columns="stage")
    model = fit(PoissonPH(horizon=4.0, steps=2), sites(frame), rounds=1).model
    assert model.risk(frame.iloc[0]).tolist() == model.risk(frame.iloc[[0]]).tolist()
    with pytest.raises(TacitError, match=r"a DataFrame, as frame.iloc\[\[0\]\] for one record"):
        model.risk(frame["time"])


def test_a_forest_of_a_single_fit_is_drawn():
    assert forest(cox(sites(patients().drop(columns="stage")))) is not None


@pytest.mark.parametrize("strata", ["site", None])
def test_a_coefficient_without_bound_is_refused_by_name(strata):
    frame = patients().drop(columns="stage").assign(omen=lambda given: (given.index < 30).astype(float))
    frame.loc[frame["omen"] == 1, "event"] = 0
    with pytest.raises(TacitError, match=r"column omen cannot be fitted: .* give a ridge"):
        cox(sites(frame), strata=strata)
    assert np.isfinite(cox(sites(frame), strata=strata, ridge=1.0).coefficients).all()
    assert cox(sites(frame.drop(columns="omen")), strata=strata).columns == ("age",)


@pytest.mark.parametrize(
    "ask",
    [
        lambda given, ledger, delta: life_table(given, grid=GRID, epsilon=1.0, delta=delta, ledger=ledger),
        lambda given, ledger, delta: cox(
            given, grid=GRID, epsilon=3.0, delta=delta, ledger=ledger, ranges={"age": (0, 10)}
        ),
    ],
    ids=["life table", "cox"],
)
def test_statistics_refuse_copies_and_a_loose_delta_before_they_charge(ask):
    frame, ledger = patients().drop(columns="stage"), Ledger()
    twice = sites(pd.concat([frame, frame], ignore_index=True))
    for given, delta, rule in (
        (twice, 1e-5, "no record may be there twice"),
        (sites(frame), 0.1, "delta = 0.1"),
    ):
        with pytest.raises(TacitError, match=rule):
            ask(given, ledger, delta)
        assert ledger.releases() == []
        assert DataBook(given.people()).total(1e-5, "record").runs == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ask(sites(frame), ledger, 1e-5)
    assert ledger.releases() != []

"""One record of absurd size discloses nothing beside the charges: no warning, no word, no exit code.

A numpy warning once told of one record in 60 of 60 runs at epsilon 1.
"""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import tacit
from tacit.compat.functional_regressor import FunctionalRegressor
from tacit.compat.privacy_manager import PrivacyManager
from tacit.compat.scikit_survival import Estimator
from tacit.functional import Boosting
from tacit.functional.curves import curves
from tacit.learning.supervised import Supervised
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.policy import Privacy
from tacit.runs.stopping import Stopping
from tacit.sites.federation import RowFederation
from tacit.sites.table import Table
from tacit.sites.vertical import VerticalFederation
from tacit.survival.augment import MVAEC, MVAES
from tacit.survival.statistics import cox_regression, federated
from tacit.survival.tasks import LEARNERS, KaplanMeier

ABSURD = (1e5, 1e160, 1e300)
ENDS = (0.5, 1.0, 2.0, 4.0)
PROMISE = Privacy(unit="record", epsilon=2.0, delta=1e-6, clip=1.0)
# What a loss needs to protect single records; every network is small.
OPTIONS: dict[str, dict[str, object]] = {
    "deep-hit": {"hidden": (5,), "ranking": 0.0},
    **{kind: {"hidden": (5,), "groups_per_site": 20} for kind in ("deep-surv", "cox-cc", "cox-time")},
    "cox-ph": {"groups_per_site": 20},
    **{kind: {"hidden": (5,)} for kind in ("logistic-hazard", "pc-hazard")},
}


def federation(size: float | None) -> RowFederation:
    """Two sites, one of which has a record of this size or none."""
    draws = np.random.default_rng(0)
    tables = {}
    for name in ("a", "b"):
        x, time = draws.normal(size=(60, 3)), draws.exponential(1, 60) + 0.01
        event = (draws.random(60) < 0.6).astype(float)
        if size is not None and name == "a":
            x = np.vstack([x, [size, size, -size]])
            time, event = np.append(time, 1.0), np.append(event, 1.0)
        tables[name] = Table(x, {"time": time, "event": event}, ("u", "v", "w"))
    return RowFederation(tables, records=120)


def silent(capfd, work, sizes=ABSURD) -> None:
    """Do something with and without an absurd record, under warnings as errors: not a word is printed."""
    for size in (None, *sizes):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            work(size)
        assert [str(warning.message) for warning in caught] == [], size
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            work(size)
    # Some libraries print past Python.
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", sorted(LEARNERS))
def test_a_warning_never_tells_of_a_record_that_was_trained_on(kind, capfd):
    task = LEARNERS[kind](cuts=ENDS, steps=2, sample=0.3, **OPTIONS.get(kind, {}))
    stop = Stopping(patience=2, epsilon=0.5)
    silent(capfd, lambda size: tacit.fit(task, federation(size), privacy=PROMISE, rounds=2, stop=stop))


@pytest.mark.parametrize("kind", ["cox-ph", "poisson-ph", "deep-hit"])
def test_a_warning_never_tells_of_a_record_that_a_rehearsal_scored(kind, capfd):
    task = LEARNERS[kind](cuts=ENDS, steps=2, sample=0.3, **OPTIONS.get(kind, {}))
    rehearsal = Privacy(unit="record", epsilon=2.0, delta=1e-6, clip=1.0, rehearsal=True)

    def work(size):
        whole = federation(size)
        tables = {name: whole.records_of(name) for name in whole}
        both = RowFederation(tables, held_out=whole.store, records=120)
        tacit.fit(task, both, privacy=rehearsal, rounds=1, baselines=True)

    # Models of single sites cannot be scored on larger ones, and a rehearsal says so.
    silent(capfd, work, sizes=(1e5,))


def test_a_warning_never_tells_of_a_record_in_a_network_of_the_users_own(capfd):
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 1)).double()

    def work(size):
        whole = federation(size)
        tables = {
            name: Table(part.features, {"y": part.targets["time"]}, part.columns)
            for name, part in ((name, whole.records_of(name)) for name in whole)
        }
        task = Supervised(module=module, loss="squared", steps=2, sample=0.3)
        tacit.fit(task, RowFederation(tables, records=120), privacy=PROMISE, rounds=2)

    silent(capfd, work)


@pytest.mark.parametrize("kind", [MVAEC, MVAES])
def test_a_warning_never_tells_of_a_record_that_was_augmented(kind, capfd):
    task, augment = LEARNERS["poisson-ph"](cuts=ENDS), kind(epsilon=0.5, steps=3, span=(0.1, 3.0))
    silent(capfd, lambda size: tacit.fit(task, federation(size), privacy=PROMISE, augment=augment))


def test_a_warning_never_tells_of_a_record_that_was_counted(capfd):
    pure = Privacy(unit="record", epsilon=2.0, delta=0.0, clip=1.0, mechanism="laplace")

    def work(size):
        sites, paid = federation(size), {"epsilon": 1.0, "delta": 1e-6}
        tacit.fit(KaplanMeier(grid=ENDS), sites, privacy=pure)
        table = federated.life_table(sites, grid=ENDS, **paid, ledger=Ledger())
        for statistic in (federated.kaplan_meier, federated.nelson_aalen, federated.censoring):
            statistic(sites, grid=ENDS, **paid, ledger=Ledger())
        federated.breslow(sites, lambda x: x[:, 0], table, bound=2.0, **paid, ledger=Ledger())
        cox_regression.cox(sites, grid=ENDS, epsilon=4.0, delta=1e-6, bound=3.0, ledger=Ledger())

    silent(capfd, work)


def test_a_warning_never_tells_of_a_record_in_statistics_without_a_promise(capfd):
    def work(size):
        sites = federation(size)
        fit = cox_regression.cox(sites)
        cox_regression.proportional_hazards(sites, fit)
        federated.kaplan_meier(sites)

    silent(capfd, work, sizes=(1e5,))


@pytest.mark.parametrize("noise", ["site", "server", "secure"])
@pytest.mark.parametrize("size", [None, 1e5, 1e45])
def test_a_warning_never_tells_of_a_curve(noise, size, capfd):
    draws, grid = np.random.default_rng(0), np.linspace(0, 1, 11)
    values = {
        name: draws.normal(size=(60, 1)) + 0.3 * draws.normal(size=(60, 11)) for name in ("y", "x", "z")
    }
    if size is not None:
        values["x"][7] = size
    parties = VerticalFederation(
        {name: {name: curves((grid, found), name=name)} for name, found in values.items()}
    )
    task = Boosting(size=8, steps=10, smooth_s=0.0, smooth_t=0.0, ridge=1.0)
    promise = Privacy(unit="record", epsilon=5.0, delta=1e-5, clip=1.0, noise=noise)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        tacit.fit(task, parties, privacy=promise)
    assert capfd.readouterr() == ("", "")


def test_a_warning_never_tells_of_a_record_of_an_estimator(capfd):
    def work(size):
        sites = federation(size)
        x, time, event = sites.store.features, sites.store.targets["time"], sites.store.targets["event"]
        task = LEARNERS["poisson-ph"](cuts=ENDS)
        found = Estimator(task, privacy=PROMISE, rounds=1).fit(x, (time, event))
        found.predict(x)
        manager = PrivacyManager(epsilon=1.0, delta=1e-5)
        manager.apply_privacy([np.array([1.0 if size is None else size, 2.0])])

    silent(capfd, work)


def test_a_warning_never_tells_of_a_curve_of_an_estimator(capfd):
    draws = np.random.default_rng(0)
    x = draws.normal(size=(60, 11))
    promise = Privacy(unit="record", epsilon=5.0, delta=1e-5, clip=1.0, noise="site")
    for size in (None, 1e5, 1e45):
        if size is not None:
            x[7] = size
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            FunctionalRegressor(privacy=promise, domain=(0.0, 1.0), size=8).fit({"x": x}, x[:, ::-1])
    assert capfd.readouterr() == ("", "")


FILE = """
name = "leak"
rounds = 2
[data]
kind = "csv"
path = "patients.csv"
time = "days"
event = "death"
center = { age = 60.0 }
scale = { age = 10.0 }
[sites]
kind = "by-column"
column = "hospital"
[task]
kind = "KIND"
cuts = [0.5, 1.0, 2.0, 4.0]
steps = 2
OPTIONS
[privacy]
unit = "record"
epsilon = 1.0
delta = 1e-5
clip = 1.0
"""
# Noise is drawn in secret; without it two runs would print the same, if the record told nothing else.
WITHOUT_NOISE = """
import numpy as np, sys
from tacit.cli.app import main
from tacit.privacy.mechanisms import noise
noise.gaussian = noise.laplace = lambda values, scale, *keys: np.zeros_like(np.asarray(values, dtype=float))
main()
"""


def printed(folder: Path, age: float | None, kind: str, options: str) -> tuple[int, str, str]:
    draws = np.random.default_rng(1)
    rows = [
        f"{draws.integers(40, 80)},{draws.exponential(2) + 0.1:.3f},{draws.integers(0, 2)},{site}"
        for site in ("oslo", "bergen")
        for _ in range(40)
    ]
    rows += [] if age is None else [f"{age!r},1.0,1,oslo"]
    folder.mkdir()
    (folder / "patients.csv").write_text("\n".join(["age,days,death,hospital", *rows]) + "\n")
    (folder / "leak.toml").write_text(FILE.replace("KIND", kind).replace("OPTIONS", options))
    answer = subprocess.run(
        [sys.executable, "-c", WITHOUT_NOISE, "run", "leak.toml", "--out", "run"],
        cwd=folder, capture_output=True, text=True,
        # These people are new to each of the runs: how many runs there were is public, and printed.
        env={**os.environ, "PYTHONWARNINGS": "always", "XDG_STATE_HOME": str(folder / "state")},
    )  # fmt: skip
    # Stages are named when they take long: that is the clock's, which no promise covers.
    spoken = [line for line in answer.stderr.splitlines() if not line.endswith(" ...")]
    return answer.returncode, answer.stdout, "\n".join(spoken)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"), [("cox-ph", "groups_per_site = 20"), ("logistic-hazard", "hidden = [4]")]
)
def test_the_command_prints_the_same_bytes_with_and_without_an_absurd_record(kind, options, tmp_path):
    plain = printed(tmp_path / "plain", None, kind, options)
    assert plain[0] == 0, plain
    for age in (98765.0, 1e300):
        assert printed(tmp_path / f"{age:g}", age, kind, options) == plain

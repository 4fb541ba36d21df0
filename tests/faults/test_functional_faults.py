"""Fits of curves that are killed, fed with other curves, or given broken ones: nothing is paid twice."""

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from processes import forked
from test_run_kill import KEPT_SECRET, dying

from tacit import Open, Privacy, fit
from tacit.errors import BudgetExhausted, InvalidFile, InvalidValue, LedgerUnusable, RunUnusable
from tacit.experiments import studies
from tacit.experiments.studies.curves import CurveStudyResult
from tacit.functional import Boosting
from tacit.functional.curves import Curves, curves
from tacit.functional.data import simulate
from tacit.functional.data.sources import CurveFiles
from tacit.privacy.ledger.store import Ledger, verify
from tacit.runs.directory import LEDGER, SECRET, STATE, SUMMARY, Directory
from tacit.sites.vertical import ByParty, VerticalFederation

TASK = Boosting(size=5, components=3, smooth_s=0.0, smooth_t=0.0, ridge=1.0, steps=5)
PRIVATE = Privacy(unit="record", epsilon=8.0, delta=1e-5, clip=1.5)
MADE = simulate("smooth", records=60, points=11, predictors=3, seed=4)
WAYS = {
    "local": (PRIVATE, TASK),
    "moments": (replace(PRIVATE, noise="server"), TASK),
    "in secret": (replace(PRIVATE, noise="secure"), TASK),
    "bought radii": (replace(PRIVATE, noise="server"), replace(TASK, radius="private")),
}
PAID = {
    "local": {"column x1": 1, "column x2": 1, "column x3": 1},
    "moments": {"products of all columns": 1},
    "in secret": {"products of all columns": 1},
    "bought radii": {"clip radii": 1, "products of all columns": 1},
}


def federation(**changed: Curves) -> VerticalFederation:
    """Three parties with a predictor each, the first with the response as well."""
    known = {**MADE.predictors, "y": MADE.response, **changed}
    held = {"a": ("x1", "y"), "b": ("x2",), "c": ("x3",)}
    return VerticalFederation({party: {name: known[name] for name in names} for party, names in held.items()})


@dataclass(frozen=True)
class Fit:
    """A fit in a directory of its own, whose secret is known, so that noise can be compared."""

    out: Path
    way: str
    data: VerticalFederation = field(default_factory=federation)

    def __post_init__(self):
        self.out.mkdir(exist_ok=True)
        (self.out / SECRET).write_bytes(KEPT_SECRET)

    def go(self):
        privacy, task = WAYS[self.way]
        return fit(task, self.data, privacy=privacy, seed=3, out=self.out, resume=True)

    def paid(self) -> Counter[str]:
        try:
            with Ledger(self.out / LEDGER, mode="read") as ledger:
                return Counter(release.purpose for release in ledger.releases())
        except LedgerUnusable:
            return Counter()


def killed_before(trial: Fit, name: str, which: int) -> None:
    """Kill the run just before it writes this file for the time number `which`."""

    def work():
        real, times = Directory.write, count(1)

        def call(self, written: str, *given: Any):
            if written == name and next(times) == which:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(self, written, *given)

        Directory.write = call
        trial.go()

    _, status = os.waitpid(forked(work), 0)
    assert os.WIFSIGNALED(status), "the run was not killed"


@pytest.mark.parametrize(("way", "every"), [("local", 5), ("bought radii", 5)])
def test_a_fit_killed_before_steps_that_change_the_disk_is_resumed_to_the_same_bits(tmp_path, way, every):
    whole, stages = Fit(tmp_path / "whole", way).go(), set()
    for at in count(1, every):
        trial = Fit(tmp_path / f"run-{at}", way)
        if not dying(trial, at):
            break
        stages.add(tuple((trial.out / name).exists() for name in (LEDGER, STATE, SUMMARY)))
        assert trial.paid() <= Counter(PAID[way])
        run = trial.go()
        assert np.array_equal(run.state, whole.state)
        assert run.privacy == whole.privacy
        assert trial.paid() == PAID[way]
    # Before the ledger, before the first checkpoint, and around the one round at least.
    assert stages >= {(False,) * 3, (True, False, False), (True, True, False)}


@pytest.mark.parametrize("way", ["local", "moments", "bought radii"])
def test_a_fit_killed_after_it_paid_goes_on_with_the_noise_that_it_paid_for(tmp_path, way):
    trial = Fit(tmp_path / "run", way)
    killed_before(trial, STATE, 2)
    paid = trial.paid()
    assert paid
    run = trial.go()
    assert trial.paid() == PAID[way]
    assert paid <= trial.paid()
    assert verify(trial.out / LEDGER).valid
    assert verify(trial.out / LEDGER).epsilon == run.privacy.epsilon <= 8
    assert np.array_equal(run.state, Fit(tmp_path / "whole", way).go().state)


def test_products_in_secret_are_not_taken_twice_for_one_price(tmp_path):
    """Whatever becomes of a run that was killed while parties multiplied: its books hold."""
    trial = Fit(tmp_path / "run", "in secret")
    killed_before(trial, STATE, 2)
    with suppress(BudgetExhausted):
        trial.go()
    assert trial.paid() == PAID["in secret"]
    assert verify(trial.out / LEDGER).epsilon <= 8


@pytest.mark.parametrize("way", ["local", "moments", "in secret"])
def test_other_curves_after_a_kill_are_not_released_under_the_old_price(tmp_path, way):
    trial = Fit(tmp_path / "run", way)
    killed_before(trial, STATE, 2)
    values = MADE.predictors["x2"].values.copy()
    values[7] += 1
    other = federation(x2=replace(MADE.predictors["x2"], values=values))
    with pytest.raises(RunUnusable, match="the data have changed since it started"):
        Fit(trial.out, way, other).go()
    assert trial.paid() == PAID[way]


def renamed(subjects: str) -> Curves:
    return replace(MADE.predictors["x2"], subjects=tuple(subjects + str(row) for row in range(60)))


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "the same for all": (
        {"x2": curves(np.ones((60, 11)), name="x2", domain=(0, 1))},
        "x2 is not allowed: it must differ between subjects",
    ),
    "other subjects": (
        {"x2": renamed("p"), "x3": renamed("q")},
        "x3 and x2 must have the same subjects",
    ),
    "no curves": ({"x2": MADE.predictors["x2"].values}, "x2 is not allowed: it is of type ndarray"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_curves_are_refused_before_anything_is_paid(tmp_path, name):
    changed, message = BROKEN[name]
    trial = Fit(tmp_path / "run", "local", federation(**changed))
    with pytest.raises(InvalidValue, match=message):
        trial.go()
    assert trial.paid() == Counter()


def test_curves_of_fewer_subjects_at_one_party_make_no_federation():
    with pytest.raises(
        InvalidValue, match="x2 has 59 subjects and x1 has 60: every column must hold the same"
    ):
        federation(x2=MADE.predictors["x2"].take(range(59)))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"size": 61}, "x1 has 60 subjects, fewer than its 61 basis functions"),
        ({"folds": 31, "release": "moments"}, "x1 has 60 subjects, fewer than 2 for each of 31 folds"),
        ({"radius": {"x1": 1.0, "x2": 1.0}}, "radius = .* must be one for each of x1, x2, x3"),
        ({"radius": {"x1": 1.0, "z": 1.0}}, "radius = 'z' is not allowed"),
        ({"response": "z"}, "response = 'z' is not allowed"),
    ],
)
def test_choices_that_curves_do_not_bear_are_refused_before_anything_is_paid(tmp_path, task, message):
    privacy = replace(PRIVATE, noise="server" if "release" in task else "site")
    with pytest.raises(InvalidValue, match=message):
        fit(replace(TASK, **task), federation(), privacy=privacy, out=tmp_path / "run")
    assert not (tmp_path / "run" / LEDGER).exists() or not Fit(tmp_path / "run", "local").paid()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_curves_in_absurd_units_are_fitted_all_the_same(scale):
    """Their squares are numbers, and those of curves beyond 1e50 would not be."""
    given = {name: replace(found, values=found.values * scale) for name, found in MADE.predictors.items()}
    plain, scaled = fit(TASK, federation()).model, fit(TASK, federation(**given)).model
    assert scaled.selected == plain.selected
    expected = plain.predict(MADE.predictors)
    np.testing.assert_allclose(scaled.predict(given), expected, rtol=1e-6, atol=1e-9)


def test_what_nobody_may_say_beforehand_changes_nothing():
    plain = fit(TASK, federation()).model
    said = replace(TASK, noise=3.0, secret=True, stretch={"x1": 2.0}, records=5)
    np.testing.assert_array_equal(
        fit(said, federation()).model.boosted.coefficients, plain.boosted.coefficients
    )


STUDY = """
name = "killed"
[data]
kind = "simulated-curves"
design = "smooth"
records = 60
points = 11
[task]
kind = "functional-boosting"
size = 5
steps = 5
smooth_s = 0.0
smooth_t = 0.0
ridge = 1.0
[study]
replicates = 4
folds = 2
parties = [1, 2]
workers = 1
"""


def test_a_study_that_is_interrupted_goes_on_to_the_same_table(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    words = [str(Path(sys.executable).with_name("tacit")), "run", "study.toml", "--out", "run"]
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # Whoever started these tests in the background may have taught them to ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert process.stderr.readline().startswith("1 of 16: ")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert "tacit: interrupted; resume with: tacit run run --resume" in err
    kept = (tmp_path / "run" / "cells.jsonl").read_text().count("\n")
    announced = []
    study = studies.read(tmp_path / "run", ["study.workers=1"])
    again = study.run(tmp_path / "run", resume=True, announce=announced.append)
    assert len(announced) == 16 - kept < 16
    whole = studies.read(tmp_path / "study.toml").run()
    pd.testing.assert_frame_equal(scored(again), scored(whole))


def scored(studied: CurveStudyResult) -> pd.DataFrame:
    """Return the results that do not depend on the clock, in a fixed order."""
    names = ["replicate", "fold", "parties", "r2", "ril2", "steps", "bytes"]
    return studied.frame.sort_values(names[:3])[names].reset_index(drop=True)


def frame(rows: int = 60) -> pd.DataFrame:
    found = MADE.predictors["x1"]
    return pd.DataFrame(found.values[:rows], columns=[f"{time:g}" for time in found.times])


def spoiled(row: int, column: int, value: object) -> pd.DataFrame:
    given = frame().astype(object)
    given.iloc[row, column] = value
    return given


def called(names: dict[int, str]) -> pd.DataFrame:
    given = frame()
    given.columns = [names.get(place, name) for place, name in enumerate(given.columns)]
    return given


FILES: dict[str, tuple[pd.DataFrame | bytes | None, str]] = {
    "missing": (None, "x1.csv cannot be read: No such file or directory"),
    "empty": (b"", "x1.csv cannot be read: No columns"),
    "not text": (bytes(range(256)), "x1.csv cannot be read: its text must be UTF-8"),
    "no rows": (frame(0), "x1.csv holds no records"),
    "fewer subjects": (
        frame(50),
        "x2 has 60 subjects and x1 has 50: every column must hold the same subjects",
    ),
    "a word among numbers": (spoiled(2, 3, "high"), "0.3 in x1 does not hold numbers"),
    "infinity": (spoiled(2, 3, np.inf), "x1 is not allowed: the subject in row 2 has an infinite value"),
    "beyond all numbers": (spoiled(2, 3, 1e300), "the subject in row 2 has an infinite value; .* at most 1e"),
    "times go back": (called({3: "0.4", 4: "0.3"}), "times of x1 are not allowed: 0.3 comes after 0.4"),
    "a time twice": (called({4: "0.30"}), "times of x1 are not allowed: 0.3 comes after 0.3"),
    "a name among times": (called({0: "site"}), "column of x1 = 'site' is not allowed: it must be a time"),
    "names for times": (
        called({place: f"t{place}" for place in range(11)}),
        "columns of x1 = 'words' is not allowed: it must be times",
    ),
    "one time": (frame().iloc[:, :1], "domain of x1 = 'missing' is not allowed"),
    "nothing of somebody": (
        frame().mask(np.repeat(np.arange(60)[:, None] == 5, 11, axis=1)),
        "x1 is not allowed: the subject in row 5 has no observation",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_broken_file_is_refused_by_the_name_of_its_curve(tmp_path, name):
    given, message = FILES[name]
    frame().to_csv(tmp_path / "x2.csv", index=False)
    frame().to_csv(tmp_path / "y.csv", index=False)
    if isinstance(given, bytes):
        (tmp_path / "x1.csv").write_bytes(given)
    elif given is not None:
        given.to_csv(tmp_path / "x1.csv", index=False)
    source = CurveFiles(path=str(tmp_path), files={name: f"{name}.csv" for name in ("x1", "x2", "y")})
    with pytest.raises((InvalidValue, InvalidFile), match=message):
        source.open(ByParty(count=2), seed=1)


def test_holes_in_a_file_are_no_fault(tmp_path):
    holes = np.random.default_rng(0).random((60, 11)) < 0.3
    for name, found in {**MADE.predictors, "y": MADE.response}.items():
        table = pd.DataFrame(found.values, columns=[f"{time:g}" for time in found.times])
        table.mask(holes & (np.arange(11) > 0)).to_csv(tmp_path / f"{name}.csv", index=False)
    source = CurveFiles(path=str(tmp_path), files={name: f"{name}.csv" for name in ("x1", "x2", "x3", "y")})
    run = fit(TASK, source.open(ByParty(count=2), seed=1), privacy=Open())
    assert "x1" in run.model.selected

"""Work of the user's own code is paid for again after a crash; what the budget then lacks is said."""

import json
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

import tacit
from tacit.engines.base import Engine, Local
from tacit.experiments.experiment import load
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.statement import from_dict, state
from tacit.runs.directory import LEDGER, STATEMENT, SUMMARY
from tacit.runs.fit import fit
from tacit.sites.table import from_arrays
from tacit.survival import CoxPH, PoissonPH

PROMISE = tacit.Privacy(unit="record", epsilon=3.0, delta=1e-5, clip=1.0)
LEFT = "Left out, because the budget did not cover it: "


class Cut(Exception):
    """The power is cut."""


class Failing(Engine):
    """The local engine; its power is cut when a round has been paid for."""

    kind = "failing"

    def __init__(self, at: int = 0) -> None:
        self.at = at

    def train(self, *given):
        if given[-1].path[0] == self.at:
            raise Cut
        return Local().train(*given)


@dataclass(frozen=True, kw_only=True)
class OwnCox(CoxPH):
    """A user's own task: it may be another one after a crash."""


@dataclass(frozen=True, kw_only=True)
class OwnPoisson(PoissonPH):
    """A user's own task without a closing question."""


def federation():
    draws = np.random.default_rng(0)
    tables = {
        name: from_arrays(
            draws.normal(size=(60, 2)), time=draws.exponential(size=60) + 0.01, event=np.ones(60)
        )
        for name in ("oslo", "bergen")
    }
    return tacit.Federation(tables, records=120)


def go(task, out, **options):
    return fit(task, federation(), privacy=PROMISE, rounds=4, out=out, resume=True, **options)


def resumed(task, out, *, cuts):
    """A run that is cut off in these rounds, each after it was charged, and resumed to its end."""
    for at in cuts:
        with pytest.raises(Cut):
            go(task, out, engine=Failing(at=at))
    return go(task, out, engine=Failing())


def paid(out):
    with Ledger(out / LEDGER, mode="read") as ledger:
        rows = [row for row in ledger.entries() if row["kind"] == "release"]
    return Counter(row["purpose"] for row in rows if row["party"] == "oslo")


COX = {"cuts": [0.5, 1.0, 2.0], "groups_per_site": 10, "steps": 1, "sample": 0.5}


def test_a_closing_question_that_the_budget_lacks_is_said_in_notes_and_statement(tmp_path):
    run = resumed(OwnCox(**COX), tmp_path / "run", cuts=(3,))
    assert paid(tmp_path / "run")["round 3"] == 2
    assert "baseline hazard" not in paid(tmp_path / "run")
    said = [note for note in run.record.notes if "was left out" in note]
    assert [note.partition(" was left out: ")[0] for note in said] == run_left(run)
    assert "charged twice" in said[-1]
    assert run_left(run)[-1] == "the query for the baseline hazard"
    assert any(LEFT in words and "baseline hazard" in words for words in run.privacy.sentences())
    assert "the query for the baseline hazard was left out" in " ".join(run.summary().split())
    on_disk = json.loads((tmp_path / "run" / STATEMENT).read_text())
    assert on_disk["left_out"] == run_left(run)
    assert json.loads((tmp_path / "run" / SUMMARY).read_text())["left_out"] == run_left(run)
    again = load(tmp_path / "run", OwnCox(**COX))
    assert again.record == run.record
    assert again.privacy == run.privacy
    assert "baseline hazard" in run.report(tmp_path / "report.md").read_text()


def run_left(run):
    assert run.privacy.left_out == run.record.left_out
    return list(run.record.left_out)


def test_rounds_that_the_budget_lacks_are_said_in_notes_and_statement(tmp_path):
    task = OwnPoisson(cuts=[0.5, 1.0, 2.0], steps=1, sample=1.0)
    run = resumed(task, tmp_path / "run", cuts=(2, 2))
    assert run.record.stopped == "the budget covers no further round"
    done = len(run.record.rounds)
    assert 1 <= done < 4
    assert run_left(run) == [f"training from round {done + 1} to round 4"]
    assert any(LEFT in words for words in run.privacy.sentences())


def test_a_run_that_pays_once_leaves_nothing_out(tmp_path):
    whole = go(CoxPH(**COX), tmp_path / "whole", engine=Failing())
    run = resumed(CoxPH(**COX), tmp_path / "run", cuts=(1, 3))
    assert run_left(run) == run_left(whole) == []
    assert paid(tmp_path / "run") == paid(tmp_path / "whole")
    assert "baseline hazard" in paid(tmp_path / "run")
    assert not any("Left out" in words for words in run.privacy.sentences())
    assert "left_out" not in json.loads((tmp_path / "run" / SUMMARY).read_text())


def test_a_statement_from_before_says_that_nothing_was_left_out():
    fields = state(PROMISE, []).as_dict()
    del fields["left_out"]
    assert from_dict(fields).left_out == ()

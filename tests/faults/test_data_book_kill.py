"""A run is killed between the book of its data and its own ledger: the book is never behind."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from processes import forked

from patients_and_books import PRIVATE, TASK, borne, never_behind, opened, patients
from tacit import Ledger, fit
from tacit.privacy.ledger import data_book
from tacit.privacy.ledger.data_book import beside
from tacit.privacy.ledger.run_ledger import RunLedger
from tacit.runs.directory import LEDGER
from tacit.runs.fit import book_of_file
from tacit.survival.statistics import life_table

INSTANTS = 50


def trained(csv: Path, place: Path):
    return fit(TASK, opened(csv), privacy=PRIVATE, rounds=2, out=place, resume=True)


class Instants:
    """Counts every call from the first charge of the book until the first one of the run's own ledger."""

    def __init__(self, last: int | None) -> None:
        self.last, self.count = last, 0

    def begin(self) -> None:
        charge_book, charge_own = data_book.charge_plan, RunLedger.charge

        def in_book(*args, **kwargs):
            sys.setprofile(self.see)
            return charge_book(*args, **kwargs)

        def in_own(*args, **kwargs):
            found = charge_own(*args, **kwargs)
            sys.setprofile(None)
            return found

        data_book.charge_plan, RunLedger.charge = in_book, in_own

    def see(self, frame, event, argument) -> None:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def count_instants(csv: Path, place: Path, told: Path) -> int:
    """Count the instants in a process of its own."""

    def work():
        instants = Instants(None)
        instants.begin()
        trained(csv, place)
        told.write_text(str(instants.count))

    assert os.waitstatus_to_exitcode(os.waitpid(forked(work), 0)[1]) == 0
    return int(told.read_text())


@pytest.mark.slow
def test_a_kill_at_fifty_instants_between_both_ledgers_never_leaves_the_book_behind(tmp_path):
    for name, seed in (("first", 1000), ("whole", 0)):
        patients(seed=seed).to_csv(tmp_path / f"{name}.csv", index=False)
    # What is computed once in a process is known in all that are forked from it: they count alike.
    trained(tmp_path / "first.csv", tmp_path / "first")
    many = count_instants(tmp_path / "whole.csv", tmp_path / "whole", tmp_path / "count")
    assert many > INSTANTS
    killed, ahead = 0, 0
    for number, last in enumerate(np.linspace(1, many, INSTANTS).astype(int).tolist()):
        csv, place = tmp_path / f"{number}.csv", tmp_path / f"run-{number}"
        patients(seed=number + 1).to_csv(csv, index=False)

        def work(csv=csv, place=place, last=last):
            Instants(last).begin()
            trained(csv, place)

        code = os.waitstatus_to_exitcode(os.waitpid(forked(work), 0)[1])
        killed += code == -signal.SIGKILL
        books = book_of_file(csv).ledgers()
        never_behind(place / LEDGER, [beside(csv)])
        ahead += bool(books) and bool(borne(beside(csv))) and not borne(place / LEDGER)
        done = trained(csv, place)
        for book in (books := book_of_file(csv).ledgers()):
            assert borne(book) == borne(tmp_path / "whole.csv.ledger")
        assert len(books) == 2
        never_behind(place / LEDGER, books)
        assert done.privacy.all_runs.runs == 1
    # Counts differ a little from process to process; most instants come.
    assert killed > 0.9 * INSTANTS
    # Some kills fell between the two.
    assert ahead > 0


def test_two_processes_at_once_charge_the_book_both(tmp_path):
    frame = patients()
    frame.to_csv(tmp_path / "a.csv", index=False)
    pd.concat([frame, patients(10, seed=1)]).to_csv(tmp_path / "b.csv", index=False)
    ready, go = os.pipe()

    def work(csv):
        def both():
            os.close(go)
            os.read(ready, 1)
            for _ in range(3):
                life_table(opened(csv), grid=[1.0, 3.0], epsilon=0.25, ledger=Ledger())

        return both

    processes = [forked(work(tmp_path / name)) for name in ("a.csv", "b.csv", "a.csv")]
    os.close(ready)
    os.close(go)
    assert [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes] == [0, 0, 0]
    for name in ("a.csv", "b.csv"):
        told = book_of_file(tmp_path / name).total(1e-5, "record")
        assert told.runs == 9
        assert told.epsilon == pytest.approx(9 * 0.25, rel=0.01)

"""A ledger as people read it."""

import sqlite3

import pytest

from tacit.privacy.accounting import epsilon
from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger import view
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.ledger.view import MOST_LINES, account, ledger_summary, lines

DELTA = 1e-5


def release(number: int, site: str, **fields) -> Release:
    given = {"scale": 4.0, "sensitivity": 1.0, "rate": 0.5, "subject": f"records@{site}", "party": site}
    return Release(purpose=f"round {number}", **{**given, **fields})


def ledger(path, rounds: int = 3, sites=("oslo", "bergen")):
    with Ledger(path) as kept:
        kept.allow(epsilon=50.0, delta=DELTA)
        kept.register([release(0, site, count=rounds) for site in sites], plan="run")
        for number in range(1, rounds + 1):
            kept.charge([release(number, site) for site in sites], ticket=str(number), plan="run")
    return path


def test_every_row_is_told_and_the_last_price_is_that_of_all(tmp_path):
    found = account(ledger(tmp_path / "ledger.db"))
    assert found["events"] == len(found["releases"]) == 6
    alone = epsilon([release(1, "oslo", count=3)], DELTA)
    assert found["releases"][-1]["running_epsilon"] == found["epsilon"] == pytest.approx(alone)
    assert found["subjects"] == pytest.approx({"records@oslo": alone, "records@bergen": alone})
    assert found["budgets"]["*"]["epsilon"] == 50.0


def test_what_is_alike_at_several_sites_is_one_line(tmp_path):
    found = ledger_summary(ledger(tmp_path / "ledger.db"), (), DELTA)
    assert found["valid"] is True
    assert [(row["first"], row["last"], row["purpose"]) for row in found["releases"]] == [
        (4, 5, "round 1"), (6, 7, "round 2"), (8, 9, "round 3"),
    ]  # fmt: skip
    assert found["releases"][0]["subject"] == "2 subjects"
    assert found["releases"][0]["subjects"] == ["records@oslo", "records@bergen"]
    assert found["releases"][-1]["running_epsilon"] == found["epsilon"]


def test_other_noise_is_another_line():
    rows = [{"number": n, **release(1, site, scale=s).as_dict(), "running_epsilon": None}
            for n, (site, s) in enumerate([("a", 1.0), ("b", 2.0), ("c", 2.0)])]  # fmt: skip
    assert [row["subject"] for row in lines(rows)] == ["records@a", "2 subjects"]


def test_more_lines_than_anybody_reads_are_told_by_what_they_are_for():
    rows = [
        {"number": n, **release(n, site).as_dict(), "running_epsilon": float(n)}
        for n in range(MOST_LINES + 1)
        for site in ("a", "b")
    ]
    (only,) = lines(rows)
    assert only["purpose"] == f"round 0 to round {MOST_LINES}"
    assert (only["first"], only["last"], only["running_epsilon"]) == (0, MOST_LINES, float(MOST_LINES))


def test_as_many_lines_as_are_read_are_told_one_by_one():
    rows = [
        {"number": n, **release(n, "a").as_dict(), "running_epsilon": float(n)} for n in range(MOST_LINES)
    ]
    assert len(lines(rows)) == MOST_LINES


def test_a_run_that_was_not_kept_tells_its_releases(tmp_path):
    rows = [release(1, "oslo", count=3)]
    found = ledger_summary(None, rows, DELTA)
    assert found["epsilon"] == pytest.approx(epsilon(rows, DELTA))
    assert found["valid"] is None
    assert found["head"] is None
    assert len(found["releases"]) == 1


def test_nothing_charged_costs_nothing(tmp_path):
    found = ledger_summary(None, (), None)
    assert (found["events"], found["epsilon"], found["releases"]) == (0, 0.0, [])


def test_a_ledger_that_was_changed_has_no_price(tmp_path):
    path = ledger(tmp_path / "ledger.db")
    with sqlite3.connect(path) as file:
        file.execute("DROP TRIGGER stay")
        file.execute("UPDATE entries SET body = replace(body, '4.0', '9.0') WHERE number = 4")
    found = ledger_summary(path, (), DELTA)
    assert found["valid"] is False
    assert found["problems"]
    assert found["epsilon"] is None
    assert found["releases"] == []


def test_running_prices_are_for_some_rows_and_never_fall(tmp_path, monkeypatch):
    monkeypatch.setattr(view, "RUNNING_PRICES", 3)
    found = account(ledger(tmp_path / "ledger.db", rounds=6))
    known = [row["running_epsilon"] for row in found["releases"] if row["running_epsilon"] is not None]
    assert len(known) == 3
    assert known == sorted(known)
    assert known[-1] == found["releases"][-1]["running_epsilon"]

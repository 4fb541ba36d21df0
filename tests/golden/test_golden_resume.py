"""Run directories that an earlier version wrote: resumed, shown, reported and verified.

`kept/killed` was ended by SIGKILL before its sixth round of twelve was charged; `kept/finished` is the same
experiment without the kill. Both are rehearsals on simulated records: the secret in them gives no protection.
"""

import contextlib
import json
import shutil

import capture
import numpy as np
import pytest

import tacit

RESUMED = ("resumed", "resumed-by-file")
ROUNDS, SITES = 12, 3
WORDS = ("released", "public", "trusted", "not_protected")


def test_the_killed_run_was_cut_off_before_its_sixth_round():
    rounds = (capture.KEPT / "killed" / "rounds.jsonl").read_text().splitlines()
    rows = [
        row for row in capture.read_rows(capture.KEPT / "killed" / "ledger.db") if row["kind"] == "release"
    ]
    assert len(rounds) == 5
    assert len(rows) == 5 * SITES


def test_a_run_that_is_not_over_is_not_shown_as_one_that_is(old):
    code, out, _ = capture.call("show", str(old / "killed"), "--json")
    assert (code, json.loads(out)["error"]["exit_code"]) == (2, 2)


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_ends_in_the_state_of_a_run_without_the_kill(old, name):
    found, golden = capture.describe_state(old / name), capture.load("states/interrupted")
    assert list(found) == list(golden)
    for array in golden:
        np.testing.assert_allclose(found[array]["values"], golden[array]["values"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_pays_for_no_round_twice(old, name):
    rows = [row for row in capture.read_rows(old / name / "ledger.db") if row["kind"] == "release"]
    paid = [(row["purpose"], row["subject"]) for row in rows]
    assert len(paid) == len(set(paid)) == ROUNDS * SITES


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_directory_says_what_a_finished_one_says(old, name):
    found, golden = (capture.describe_directory(old / one) for one in (name, "finished"))
    found["summary.json"]["run"] = golden["summary.json"]["run"]
    # The version that ended the old run did not judge its result.
    for key in ("simplest", "verdict", "sizes"):
        for directory in (found, golden):
            directory["summary.json"].pop(key, None)
    # The sentences are those of the version that ended the run; one reworded since then stands there twice.
    for file, keys in (("statement.json", WORDS), ("provenance.json", ("public",))):
        for key in keys:
            assert len(found[file][key]) >= len(golden[file][key])
            del found[file][key], golden[file][key]
    # The plan is registered again on a ledger that is opened again.
    del found["ledger.db"]["rows"], golden["ledger.db"]["rows"]
    assert capture.compare(found, golden) == []


@pytest.mark.parametrize("name", ["finished", *RESUMED])
def test_an_old_run_is_shown_reported_and_verified(old, name):
    with contextlib.chdir(old):
        shown = capture.call_json("show", name)["runs"][0]
        verified = capture.call_json("ledger", name, "--verify")
        capture.call_json("report", name, "-o", f"{name}.json")
        capture.call_json("report", name, "-o", f"{name}.html")
        report = json.loads((old / f"{name}.json").read_text())
    assert shown["rounds"] == len(report["rounds"]) == ROUNDS
    assert (verified["valid"], verified["events"]) == (True, ROUNDS * SITES)
    assert report["ledger"]["valid"]
    kept = json.loads((capture.KEPT / "finished" / "summary.json").read_text())
    assert shown["scores"] == report["result"]["models"][0]["scores"]
    assert capture.compare(shown["scores"], kept["scores"]) == []
    assert capture.compare(verified["epsilon"], kept["privacy"]["epsilon"]) == []


def test_an_old_run_is_loaded(old):
    run = tacit.load(old / "finished")
    assert len(run.history) == ROUNDS
    assert run.model is not None


def test_a_finished_run_is_resumed_without_a_charge(old, tmp_path):
    shutil.copytree(old / "finished", tmp_path / "finished")
    with contextlib.chdir(tmp_path):
        document = capture.call_json("run", "finished", "--resume")
        assert capture.call_json("ledger", "finished", "--verify")["events"] == ROUNDS * SITES
    kept = json.loads((capture.KEPT / "finished" / "summary.json").read_text())
    assert capture.compare(document, kept) == []

"""With a price that counts on secret sampling of sites, no file has times finer than the run's start."""

import io
import json
import os
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

import tacit
from tacit.deploy.coordinator import run as coordinator
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.ledger.view import account
from tacit.privacy.policy import Privacy
from tacit.runs.directory import EXPERIMENT, LEDGER, Directory
from tacit.sites.federation import RowFederation
from tacit.sites.table import Table
from tacit.survival.tasks import PoissonPH

ROUNDS = 6


def sites():
    rng = np.random.default_rng(0)

    def table(size):
        targets = {"time": rng.exponential(1, size) + 0.01, "event": (rng.random(size) < 0.6).astype(float)}
        return Table(rng.standard_normal((size, 3)), targets, ("a", "b", "c"))

    return RowFederation({f"site-{place}": table(size) for place, size in enumerate([20] * 4 + [200])})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("secret") / "run"
    privacy = Privacy(
        unit="site", noise_multiplier=1.0, delta=1e-5, clip=1.0, noise="server", participation=0.5
    )
    task = PoissonPH(cuts=[0.5, 1.0, 2.0], steps=2, sample=0.5)
    return tacit.fit(task, sites(), privacy=privacy, rounds=ROUNDS, out=out)


def test_every_charge_of_a_run_has_the_time_of_its_beginning(run):
    with Ledger(run.path / LEDGER, mode="read") as ledger:
        entries = ledger.entries()
        stream = io.StringIO()
        ledger.export(stream)
    kinds = [entry["kind"] for entry in entries]
    assert kinds.count("release") >= ROUNDS
    assert {entry["kind"] for entry in entries} == {"opened", "plan", "release"}
    (began,) = {entry["at"] for entry in entries if entry["kind"] == "plan"}
    assert {entry["at"] for entry in entries if entry["kind"] == "release"} == {began}
    exported = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {row["at"] for row in exported if row["kind"] == "release"} == {began}


def test_what_is_printed_of_a_ledger_has_no_other_times(run):
    assert len({row["at"] for row in account(run.path / LEDGER)["releases"]}) == 1


def test_no_round_tells_how_long_it_took(run):
    rounds = [json.loads(line) for line in (run.path / "rounds.jsonl").read_text().splitlines()]
    assert [row["seconds"] for row in rounds] == [None] * ROUNDS


def test_weights_that_are_kept_of_each_round_have_the_time_of_the_run(tmp_path):
    directory = Directory(tmp_path)
    directory.write(EXPERIMENT, "name = 'x'")
    os.utime(tmp_path / EXPERIMENT, ns=(10**18, 10**18))
    for number in (1, 2, 3):
        directory.write_weights(number, {"global": np.zeros(3)})
    kept = list((tmp_path / "weights").iterdir())
    assert [file.stat().st_mtime_ns for file in kept] == [10**18] * 3


@pytest.mark.parametrize(("noise", "secret"), [("server", True), ("site", False)])
def test_the_log_of_a_coordinator_has_no_clock_where_the_draw_is_secret(tmp_path, monkeypatch, noise, secret):
    known = SimpleNamespace(
        privacy=SimpleNamespace(noise=noise), sites=SimpleNamespace(names=("oslo", "bergen"))
    )
    ticks = (f"2026-01-01T00:00:{second:02d}+00:00" for second in count())
    monkeypatch.setattr(coordinator, "read", lambda path: known)
    monkeypatch.setattr(coordinator, "_now", lambda: next(ticks))
    told = coordinator.log_to(tmp_path / "log.txt", tmp_path)
    for line in ("oslo agrees: poisson-ph", "round 1/2", "oslo: no answer (late)", "round 2/2"):
        told(line)
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert (len({line.split()[0] for line in lines}) == 1) is secret
    assert ("a site: no answer (late)" in lines[2]) is secret
    assert "oslo agrees" in lines[0]

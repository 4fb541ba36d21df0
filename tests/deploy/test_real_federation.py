"""A real federation on loopback: Flower's own programs, TLS, node keys, guards, and the command line.

Two tests start everything, the shorter one before every landing: a minute, most of it Flower's own.
"""

import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from in_process import OPEN

from tacit.deploy import certificates, folders
from tacit.deploy.coordinator.run import charges, default_place, launch, lay_out
from tacit.deploy.folders import commands
from tacit.deploy.processes import free_port, start_processes
from tacit.deploy.site.config import DOOR
from tacit.engines.flower.socket import is_listening
from tacit.errors import BudgetExhausted
from tacit.experiments import experiment

pytest.importorskip("flwr")
SURVIVAL = Path(__file__).parents[2] / "examples" / "network.toml"
SMALL = [
    "sites.count=2", "rounds=2", "data.records=200", "task.cuts=5", "task.hidden=[4]", "baselines=false"
]  # fmt: skip


def patiently(found, seconds: float = 600.0) -> bool:
    """Wait until a condition holds; return False after a time limit."""
    until = time.monotonic() + seconds
    while not found() and time.monotonic() < until:
        time.sleep(0.2)
    return found()


def node(folder: Path, *, said: Path, **files: Path) -> "subprocess.Popen[bytes]":
    """The node of a site, started with another key or another authority."""
    script = (folder / "start-node.sh").read_text()
    for name, path in files.items():
        script = script.replace({"key": "node/node.key", "authority": "node/ca.crt"}[name], str(path))
    other = folder / f"start-{said.stem}.sh"
    other.write_text(script)
    command = commands(folder)["node"]
    env = {**__import__("os").environ, **command.env, "TACIT_NODE_PORT": str(free_port())}
    with said.open("wb") as stream:
        return subprocess.Popen(
            ["bash", str(other)], env=env, cwd=folder, stdout=stream, stderr=stream, start_new_session=True
        )


def end(program: "subprocess.Popen[bytes]") -> None:
    import os
    import signal

    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(program.pid, number)
            program.wait(timeout=10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


@contextmanager
def standing(tmp_path: Path, *changes: str):
    """A federation of two sites that is up, and gone afterwards."""
    chosen = experiment.read(SURVIVAL, [*SMALL, *changes])
    federation = chosen.open_federation()
    out = tmp_path / "town"
    document, tables = lay_out(chosen, federation, out)
    port = free_port()
    made = folders.write(
        document, tables, out, host="127.0.0.1", port=port, limits=dict.fromkeys(tables, OPEN)
    )
    with start_processes(made.coordinator, made.sites, port, logs=tmp_path / "logs") as up:
        yield made, up, chosen, federation
        pids = dict(up.pids)
    for role, pid in pids.items():
        assert not Path(f"/proc/{pid}").exists(), role


def test_two_sites_come_to_what_one_process_does(tmp_path: Path):
    with standing(tmp_path, "rounds=1") as (made, _, chosen, federation):
        run = launch(made.coordinator, default_place(made.coordinator))
        require_equal(run, chosen.run_on(federation, tmp_path / "alone"))


@pytest.mark.slow
def test_two_rounds_are_those_of_one_process_strangers_are_turned_away_and_a_spent_site_refuses(
    tmp_path: Path,
):
    with standing(tmp_path) as (made, up, chosen, federation):
        run = launch(made.coordinator, default_place(made.coordinator))
        require_equal(run, chosen.run_on(federation, tmp_path / "alone"))
        strangers(made.sites["site-1"], tmp_path, up.log("superlink"))
        over_budget(made, up)


def require_equal(run, alone) -> None:
    assert float(np.abs(run.state - alone.state).max()) <= 1e-6
    assert charges(run.path) == charges(alone.path) != []
    assert run.scores == pytest.approx(alone.scores, abs=1e-9)
    assert not run.record.warnings()


def strangers(site: Path, tmp_path: Path, superlink: Path) -> None:
    """A key that was not registered, and an authority that is not ours, get nowhere; logs say so."""
    (tmp_path / "key").write_bytes(certificates.node_key().private)
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "ca.crt").write_bytes(certificates.authority().certificate)
    unknown = node(site, said=tmp_path / "unknown.log", key=tmp_path / "key")
    deceived = node(site, said=tmp_path / "deceived.log", authority=tmp_path / "ca.crt")
    try:
        assert patiently(lambda: unknown.poll() is not None)
        assert unknown.returncode != 0
        assert "activate" in (tmp_path / "unknown.log").read_text().lower()
        assert patiently(lambda: "certificate" in (tmp_path / "deceived.log").read_text().lower())
        assert "No SuperNode found with the given public key" in superlink.read_text()
    finally:
        end(unknown)
        end(deceived)


def over_budget(made, up) -> None:
    """A server that asks for more than a site allows is refused, with the reason in both logs."""
    up.kill("guard:site-2", gently=True)
    file = made.sites["site-2"] / "site.toml"
    text = file.read_text()
    file.write_text(text.replace("lifetime = inf", "lifetime = 3.5", 1))
    assert file.read_text() != text
    up.start("guard:site-2")
    assert patiently(lambda: is_listening(str(made.sites["site-2"] / DOOR)))
    place = default_place(made.coordinator)
    with pytest.raises(BudgetExhausted, match="site-2 refuses: budget of records@site-2 exhausted"):
        launch(made.coordinator, place)
    assert "refused: budget of records@site-2 exhausted" in up.log("guard:site-2").read_text()
    assert "site-2 refuses: budget of records@site-2 exhausted" in (place / "log.txt").read_text()

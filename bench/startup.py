"""Waiting time before anything happens: imports, help, and a small first run from the shell.

CPU seconds of a whole process, including the interpreter. Ours loads libraries when they are used, so its
import takes almost no time, and its first run includes loading them. That run has 300 simulated patients at 3
sites for 2 rounds, and writes files and figures, as the peer's `quickstart` does. There is no answer to
compare: a command must end with exit code 0 and print something.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from bench.racing import Race, Work

FIRST = """
name = "first"
rounds = 2
baselines = true
[data]
kind = "simulated"
design = "weibull"
records = 300
features = 10
[sites]
kind = "iid"
count = 3
[task]
kind = "deep-surv"
"""


def waiting(name, module, command=None, first=None):
    """A side that imports its module, asks its command for help, or has it run something."""

    def side(what):
        if what == "import":
            return Work(lambda: ended(sys.executable, "-c", f"import {module}"), nothing)
        words = ("--help",) if what == "help" else first
        return Work(lambda: ended(Path(sys.executable).with_name(command), *words), nothing)

    side.__name__ = name
    return side


def nothing():
    """Compare nothing: every run checks its own exit code."""
    return 0.0


def ended(*words):
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "first.toml").write_text(FIRST)
        done = subprocess.run(words, capture_output=True, text=True, cwd=place)
    assert done.returncode == 0, done.stderr[-2000:]
    assert words[1] == "-c" or done.stdout, "it has to say something"


ours = waiting("ours", "tacit", "tacit", ("run", "first.toml"))
QUICKSTART = "quickstart --output first --model DeepSurv --samples 300 --features 10 --clients 3 --rounds 2"
federated_survival = waiting(
    "federated_survival", "federated_survival", "federated-survival", QUICKSTART.split()
)
flower = waiting("flower", "flwr.app, flwr.clientapp, flwr.serverapp", "flwr")
pfl = waiting("pfl", "pfl.algorithm.federated_averaging, pfl.model.pytorch")
opacus = waiting("opacus", "opacus")

COMMANDS = {"federated-survival 0.8.0": federated_survival, "Flower 1.41": flower}
PACKAGES = {
    **COMMANDS,
    "pfl 0.6": pfl,
    "Opacus 1.6": opacus,
}
FIRST_RUN = {"federated-survival 0.8.0": federated_survival}
RACES = [
    Race(name=name, group=name, given={"what": what}, ours=ours, theirs=theirs, same=0.0, repeats=3)
    for name, what, theirs in (
        ("import", "import", PACKAGES),
        ("`--help`", "help", COMMANDS),
        ("a first run from the shell", "first", FIRST_RUN),
    )
]

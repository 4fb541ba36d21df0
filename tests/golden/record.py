"""Record the golden data anew: `.venv/bin/python tests/golden/record.py`.

Do so only where a change of the outside is meant, and read the difference before it is committed. With names
of parts, as in `record.py names help`, it records these alone. The run directories in `kept/` were written by
the code before the package was rearranged: only `record.py kept` replaces them, and drops that evidence.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import capture

# The command, killed before its sixth round is charged: a round that is charged and not answered would be
# charged again on another machine, which may round otherwise.
KILLED = """
import os, signal, sys
from importlib.metadata import entry_points
import tacit

charge, calls = tacit.Ledger.charge, []

def charge_or_die(*arguments, **options):
    calls.append(1)
    if len(calls) == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return charge(*arguments, **options)

tacit.Ledger.charge = charge_or_die
sys.argv[0] = "tacit"
entry_points(group="console_scripts", name="tacit")["tacit"].load()()
"""


def record_names(folder: Path) -> None:
    """Public names, parameters and import paths."""
    import tacit

    capture.save("names/tacit", sorted(tacit.__all__))
    capture.save("names/promised", capture.collect_promised())
    capture.save("names/run", capture.RUN_MEMBERS)
    capture.save("names/history", list(tacit.load(train(folder, "record")).history.columns))
    for name, paths in (
        ("documented", capture.collect_documented()),
        ("references", capture.collect_references()),
    ):
        capture.save(f"names/{name}", {path: path for path in paths})


def record_kinds(folder: Path) -> None:
    """Kinds and keys of experiment files."""
    capture.save("kinds", capture.collect_kinds(folder))


def record_help(folder: Path) -> None:
    """Help of every verb."""
    capture.save("help", {verb: text.splitlines() for verb, text in capture.collect_help().items()})


def record_directories(folder: Path) -> None:
    """Files of run directories."""
    for name in capture.RUNS:
        capture.save(f"directories/{name}", capture.describe_directory(train(folder, name)))


def record_documents(folder: Path) -> None:
    """Documents that verbs print."""
    for name in capture.RUNS:
        train(folder, name)
    with contextlib.chdir(folder):
        for name, document in capture.collect_documents().items():
            capture.save(f"documents/{name}", document)


def record_states(folder: Path) -> None:
    """Final states of rehearsals, and the machine that computed them."""
    for name in capture.RUNS:
        capture.save(f"states/{name}", capture.describe_state(train(folder, name)))
    capture.save("states_of", capture.describe_machine())


def record_kept(folder: Path) -> None:
    """Run directories to be resumed: one killed on its way, one finished, and the state that both end in."""
    file = Path(shutil.copy(capture.EXPERIMENTS / "interrupted.toml", folder)).name
    command = [str(Path(sys.executable).with_name("tacit")), "run", file, "-q", "--out", "finished"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    command = [sys.executable, "-c", KILLED, "run", file, "-q", "--out", "killed"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    for name in ("killed", "finished"):
        shutil.rmtree(capture.KEPT / name, ignore_errors=True)
        shutil.copytree(folder / name, capture.KEPT / name)
    capture.save("states/interrupted", capture.describe_state(folder / "finished"))


def train(folder: Path, name: str) -> Path:
    """Run an experiment once; its directory."""
    out = folder / name
    if not out.exists():
        shutil.copy(capture.EXPERIMENTS / f"{name}.toml", folder)
        with contextlib.chdir(folder):
            printed = capture.call_json("run", f"{name}.toml", "--out", name)
            Path(f"{name}.printed").write_text(json.dumps(printed))
    return out


PARTS = {
    "names": record_names,
    "kinds": record_kinds,
    "help": record_help,
    "directories": record_directories,
    "documents": record_documents,
    "states": record_states,
    "kept": record_kept,
}


def main() -> None:
    """Record the parts that are named, or all but the kept directories."""
    chosen = sys.argv[1:] or [part for part in PARTS if part != "kept"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = str(Path(folder) / "state")
        for part in chosen:
            PARTS[part](Path(folder))
            print(f"recorded {part}")


if __name__ == "__main__":
    main()

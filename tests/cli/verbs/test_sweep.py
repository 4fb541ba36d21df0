"""The verb `sweep`: what it prints, where it keeps it, and that killed half-way it finishes the rest only."""

import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.cli.verbs.run import RunRequest, run_sweep, sweep_progress
from tacit.errors import InvalidFile, InvalidValue, RunUnusable
from tacit.experiments import sweeps
from tacit.experiments.batch import CELLS
from tacit.experiments.sweep_results import SweepResult

TACIT = str(Path(sys.executable).with_name("tacit"))
# Data that note down when they are opened, which every run does once.
COUNTED = """
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tacit.survival.data.sources import Simulated


@dataclass(frozen=True, kw_only=True)
class Counted(Simulated):
    kind: ClassVar[str] = "counted:Counted"

    def open(self, split, seed, *, may_look=False):
        with Path(__file__).with_name("opened.txt").open("a") as file:
            file.write("opened\\n")
        return super().open(split, seed, may_look=may_look)
"""
FILE = """
name = "small"
seed = 3
rounds = 2
[data]
kind = "counted:Counted"
design = "weibull"
records = 150
features = 3
[sites]
kind = "iid"
count = 3
[task]
kind = "poisson-ph"
cuts = 3
sample = 1.0
[privacy]
unit = "record"
delta = 1e-4
clip = 1.0
rehearsal = true
"""
LIST = "privacy.epsilon=2,5,20,inf"
LINE = re.compile(
    r"\d+ of 12: epsilon (\S+), seed (\d): C-index [\d.]+(, open| at epsilon [\d.]+)(; \d+ left, .+)?"
)


def words(*also: str) -> list[str]:
    return ["sweep", "small.toml", "--set", LIST, *also]


def opened(folder: Path) -> int:
    place = folder / "opened.txt"
    return len(place.read_text().splitlines()) if place.exists() else 0


def rows(place: Path) -> list[dict]:
    return [json.loads(line) for line in (place / CELLS).read_text().splitlines()]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "counted.py").write_text(COUNTED)
    (tmp_path / "small.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "counted", raising=False)
    yield tmp_path
    sys.modules.pop("counted", None)


@pytest.fixture
def quick(monkeypatch):
    """Runs that take no time; how many there were."""
    made: list[tuple[object, int]] = []

    def trained(experiment):
        epsilon = getattr(experiment.privacy, "epsilon", None)
        made.append((epsilon, experiment.seed))
        return {
            "unit": None if epsilon is None else "record", "delta": 1e-4, "spent": epsilon, "rounds": 2,
            "seconds": 0.1, "scores": {"c_index": 0.6 + 0.01 * experiment.seed}, "baselines": {},
        }  # fmt: skip

    monkeypatch.setattr(sweeps, "run_experiment", trained)
    return made


def swept(*changes: str, seeds: int | None = None, **asked) -> SweepResult:
    return run_sweep(RunRequest(Path("small.toml"), changes or [LIST], **asked), seeds=seeds, workers=1)


def test_resume_refuses_to_begin_a_sweep_and_continues_one(folder, quick):
    for asked in ({}, {"out": folder / "here"}):
        with pytest.raises(InvalidValue, match="leave it out to begin one"):
            swept(seeds=1, resume=True, **asked)
    assert not quick
    assert not (folder / "here").exists()
    assert not (folder / "runs").exists()
    # The advice works; then there is one to resume, by its file and by its directory.
    begun = swept(seeds=1, out=folder / "here")
    lines = (folder / "here" / CELLS).read_text().splitlines(keepends=True)
    (folder / "here" / CELLS).write_text("".join(lines[:3]))
    assert len(swept(seeds=1, out=folder / "here", resume=True).rows) == len(begun.rows) == 4
    assert len(run_sweep(RunRequest(folder / "here", resume=True), workers=1).rows) == 4
    assert len(quick) == 5
    # Another sweep is refused there, resumed or not.
    with pytest.raises(RunUnusable):
        swept(seeds=2, out=folder / "here", resume=True)


@pytest.mark.slow
def test_a_killed_sweep_finishes_the_rest_only(folder):
    options = words("--seeds", "3", "--out", "here")
    process = subprocess.Popen(
        [TACIT, *options, "--workers", "2"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("4 of 12:"):
                process.send_signal(signal.SIGKILL)
                break
        # What is still open on the pipe are the other processes: they end with the one that started them.
        process.communicate(timeout=600)
    assert process.returncode == -signal.SIGKILL
    held = (folder / "here" / CELLS).read_bytes().splitlines(keepends=True)
    known = [line for line in held if line.endswith(b"\n")]
    assert 4 <= len(known) < 12
    (folder / "opened.txt").unlink()

    once_more = [TACIT, *options, "--workers", "1"]
    again = subprocess.run(once_more, cwd=folder, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    told = [line for line in again.stderr.splitlines() if LINE.fullmatch(line)]
    assert len(told) == opened(folder) == 12 - len(known)
    assert f"{len(known)} of them known" in again.stderr
    lines = (folder / "here" / CELLS).read_bytes().splitlines(keepends=True)
    assert lines[: len(known)] == known
    cells = {(row["changes"]["privacy.epsilon"], row["seed"]) for row in rows(folder / "here")}
    assert len(lines) == len(cells) == 12
    # By several processes and with a crash in between it comes to what one process comes to.
    done, alone = sweeps.load(folder / "here"), swept(seeds=1)
    assert done is not None
    first = done.frame[done.frame["seed"] == 3]["c_index"].tolist()
    assert first == alone.frame["c_index"].tolist()


def test_a_finished_sweep_is_shown_again_and_nothing_is_run(folder, quick):
    first = swept(seeds=2)
    assert len(quick) == 8
    again = swept(seeds=2)
    assert len(quick) == 8
    assert again.as_dict() == first.as_dict()
    assert again.path == first.path


def test_a_sweep_lies_under_runs_by_its_name_and_its_choices(folder, quick):
    first, other = swept(seeds=1).path, swept(LIST, "rounds=3", seeds=1).path
    assert first is not None
    assert re.fullmatch(r"runs/small-sweep-[0-9a-f]{6}", str(first))
    assert first != other
    assert (first / "report.html").is_file()


def test_an_unfinished_sweep_is_found_by_the_same_command_or_by_its_directory(folder, quick):
    place = swept(seeds=1).path
    held = (place / CELLS).read_text().splitlines(keepends=True)
    for rest, start in ((2, lambda: swept(seeds=1)), (3, lambda: run_sweep(RunRequest(place), workers=1))):
        (place / CELLS).write_text("".join(held[:-rest]))
        quick.clear()
        assert start().path == place
        assert len(quick) == rest
        assert (place / CELLS).read_text().splitlines(keepends=True) == held


def test_another_sweep_in_the_same_place_is_refused(folder, quick):
    swept(seeds=1, out=Path("here"))
    with pytest.raises(RunUnusable, match="it belongs to another experiment"):
        swept("privacy.epsilon=2,5", seeds=1, out=Path("here"))
    assert len(quick) == 4


def test_nothing_is_made_where_something_is_refused(folder, quick):
    with pytest.raises(InvalidFile, match="with epsilon -1"):
        swept("privacy.epsilon=2,-1")
    assert not quick
    assert not Path("runs").exists()


def test_runs_are_told_as_they_end_with_what_is_left(folder, quick, capsys):
    swept(seeds=1)
    said = capsys.readouterr()
    assert said.out == ""
    head, *lines = said.err.splitlines()
    assert re.fullmatch(r"4 runs: 4 of privacy\.epsilon x 1 seed; kept in runs/small-sweep-\w+", head)
    assert lines[0].startswith("1 of 4: epsilon 2, seed 3: C-index 0.63 at epsilon 2; 3 left, ")
    assert lines[3] == "4 of 4: epsilon inf, seed 3: C-index 0.63, open"
    assert all(len(line) <= 80 for line in lines[:4])
    swept(seeds=1, quiet=True)
    swept("rounds=5", LIST, seeds=1, quiet=True)
    assert capsys.readouterr().err == ""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar_below_the_lines(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    with sweep_progress(3, 6) as announce:
        announce("4 of 6: epsilon [bold]1[/bold], seed 3: C-index 0.6")
        announce("5 of 6: epsilon 2, seed 3: C-index 0.6")
    said = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert "epsilon [bold]1[/bold], seed 3: C-index 0.6; 2 left" in said
    assert "sweep, 3 runs" in said


def test_the_command_prints_its_summary_or_one_document(folder, quick):
    plain = CliRunner().invoke(app, words("--seeds", "2", "--workers", "1"))
    assert plain.exit_code == 0, plain.stderr
    assert plain.stdout.startswith("sweep    small\n")
    assert max(map(len, plain.stdout.splitlines())) <= 80
    assert "saved runs/small-sweep-" in plain.stderr
    told = CliRunner().invoke(app, words("--seeds", "2", "--json", "-q"))
    assert (told.exit_code, told.stderr) == (0, "")
    document = json.loads(told.stdout)
    assert (document["kind"], document["runs"], document["of"]) == ("sweep", 8, 8)
    shown = CliRunner().invoke(app, ["show", document["run"]])
    assert shown.stdout == plain.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "rounds=3"], "there is nothing to sweep"),
        (["--set", "privacy.epsilom=1,2"], 'did you mean "epsilon"?'),
        (["--set", LIST, "--seeds", "0"], "seeds = 0 is not allowed"),
        (["--set", LIST, "--workers", "0"], "workers = 0 is not allowed"),
        (["--set", LIST, "--set", "privacy.rehearsal=false", "--set", "data.kind=csv"], "data"),
    ],
)
def test_what_is_refused_is_said_in_one_line_with_the_code_of_bad_usage(folder, quick, options, message):
    done = CliRunner().invoke(app, ["sweep", "small.toml", *options])
    assert done.exit_code == 2
    assert message in done.stderr
    assert not quick


def test_a_sweep_of_which_nothing_worked_still_says_so(folder, monkeypatch):
    def failing(experiment):
        raise InvalidFile("no luck")

    monkeypatch.setattr(sweeps, "run_experiment", failing)
    done = CliRunner().invoke(app, words("--seeds", "1", "--workers", "1"))
    assert done.exit_code == 2
    assert "no luck" in done.stdout

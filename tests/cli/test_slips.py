"""Slips of a first user: each is refused before anything is charged, and the remedy in its message works.

The table in docs/promise/sharp-edges.md has the same rows, which a test compares.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tacit.cli.app import app

SCALED = "center = { age = 60.0, nodes = 4.0 }\nscale = { age = 10.0, nodes = 4.0 }"
DOCS = Path(__file__).parents[2] / "docs" / "promise" / "sharp-edges.md"


def patients(count: int = 300) -> pd.DataFrame:
    draws = np.random.default_rng(0)
    age, nodes = draws.normal(60, 10, count).round(), draws.poisson(4, count)
    happens, leaves = draws.exponential(1500, count), draws.uniform(300, 3600, count)
    return pd.DataFrame({
        "age": age, "nodes": nodes, "er": draws.integers(0, 2, count),
        "time": np.minimum(happens, leaves).round() + 1, "event": (happens <= leaves).astype(int),
        "hospital": draws.choice(["oslo", "bergen", "tromso"], count),
    })  # fmt: skip


def as_csv(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=False)


@dataclass
class Trial:
    """An experiment in a folder, and what the command said about it."""

    folder: Path
    data: str = SCALED
    privacy: str = "epsilon = 1.0\ndelta = 1e-5\nclip = 1.0"
    task: str = "horizon = 3650.0"
    path: str = "patients.csv"
    said: str = ""
    details: str = ""

    def run(self, out: str = "run") -> int:
        file = self.folder / "trial.toml"
        file.write_text(
            f'name = "trial"\nrounds = 1\n[data]\nkind = "csv"\npath = "{self.path}"\n{self.data}\n'
            '[sites]\nkind = "by-column"\ncolumn = "hospital"\n'
            f'[task]\nkind = "poisson-ph"\nsteps = 1\n{self.task}\n'
            f'[privacy]\nunit = "record"\n{self.privacy}\n'
        )
        found = CliRunner().invoke(app, ["run", str(file), "--out", str(self.folder / out)])
        told = [path.read_text() for path in self.folder.glob("*.refused.txt")]
        self.said, self.details = found.stderr, "".join(told).partition("Records, the first")[0]
        return found.exit_code

    @property
    def charged(self) -> bool:
        return any(path.suffix in (".db", ".ledger") for path in self.folder.rglob("*"))

    def read(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / self.path)

    def write(self, frame: pd.DataFrame) -> None:
        as_csv(frame, self.folder / self.path)

    def find(self, pattern: str) -> str:
        """The last place of the message that looks like this: details come after the rule."""
        return re.findall(pattern, self.said + self.details)[-1]


# Remedies, each as the message proposes it.


def add_line(trial: Trial) -> None:
    """Put the proposed keys into [data], beside what is there; details are for the owner, and come last."""
    known = tomllib.loads(trial.data)
    for line in re.findall(r"\w+ = (?:\{ .*? \}|\[.*?\])", trial.details or trial.said):
        for key, value in tomllib.loads(line).items():
            known[key] = {**known.get(key, {}), **value} if isinstance(value, dict) else value
    trial.data = inline(known)


def inline(table: dict[str, Any]) -> str:
    """Write keys of [data] on one line each."""
    shown = {
        key: "{ " + ", ".join(f'"{name}" = {json.dumps(part)}' for name, part in value.items()) + " }"
        if isinstance(value, dict)
        else json.dumps(value)
        for key, value in table.items()
    }
    return "\n".join(f"{key} = {value}" for key, value in shown.items())


def run_code(trial: Trial) -> None:
    """Execute the proposed line of Python on the table."""
    frame, code = trial.read(), trial.find(r"(frame\[.*)")
    exec(code, {"frame": frame, "pandas": pd, "START": "start", "END": "end"})
    trial.write(frame)


def run_command(trial: Trial) -> None:
    """Execute the proposed command; its result is another file."""
    command = trial.find(r'python -c "(.*)"')
    subprocess.run([sys.executable, "-c", command], cwd=trial.folder, check=True)
    trial.path = re.findall(r"[\w./-]+-new\.csv", command)[0]


def change(**parts: str) -> Callable[[Trial], None]:
    def changed(trial: Trial) -> None:
        for name, value in parts.items():
            setattr(trial, name, value)

    return changed


def rewrite(made: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Trial], None]:
    return lambda trial: trial.write(made(trial.read()))


@dataclass(frozen=True)
class Slip:
    """A slip: what was given, the words of the message, and the remedy that they propose."""

    given: str
    said: str
    mend: Callable[[Trial], None]
    table: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame
    write: Callable[[pd.DataFrame, Path], None] = as_csv
    trial: Mapping[str, Any] = field(default_factory=dict)


def words(column: str, values: list[str]) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.assign(**{column: np.array(values)[frame[column].astype(int)]})


def dates(frame: pd.DataFrame) -> pd.DataFrame:
    start = pd.Timestamp("2010-01-01")
    end = start + pd.to_timedelta(frame["time"], unit="D")
    return frame.assign(time=end.dt.strftime("%Y-%m-%d"), start="2010-01-01", end=end.dt.strftime("%Y-%m-%d"))


def missing(column: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.assign(**{column: frame[column].astype(float).where(frame.index != 5)})


def second_age(frame: pd.DataFrame, path: Path) -> None:
    frame.assign(other=frame["age"]).rename(columns={"other": "age"}).to_csv(path, index=False)


def commas(frame: pd.DataFrame, path: Path) -> None:
    text = (frame["age"] + 0.5).astype(str).str.replace(".", ",")
    frame.assign(age=text).to_csv(path, index=False)


def many(frame: pd.DataFrame, copies: int = 2) -> pd.DataFrame:
    return pd.concat([frame] * copies, ignore_index=True)


SLIPS = [
    Slip(
        "a column that spans thousands, without `scale`",
        "it must not span more than 100, or it drowns the other features; give public numbers",
        add_line,
        lambda frame: frame.assign(pgr=np.random.default_rng(1).exponential(500, len(frame))),
    ),
    Slip(
        "the index that pandas writes (`Unnamed: 0`)",
        "by its name it is an identifier; leave it out",
        add_line,
        write=lambda frame, path: frame.to_csv(path),
    ),
    Slip(
        "whole numbers in ascending order",
        "it must not be a row number or a patient number; leave it out",
        add_line,
        lambda frame: frame.assign(nr=7_000_000 + 3 * np.arange(len(frame))),
    ),
    Slip(
        "patient numbers in any order, under any name",
        "it must not be a row number or a patient number; leave it out",
        add_line,
        lambda frame: frame.assign(nr=np.random.default_rng(2).permutation(len(frame))),
    ),
    Slip(
        "`patient_id` among the features",
        "by its name it is an identifier; leave it out",
        add_line,
        lambda frame: frame.assign(patient_id=np.random.default_rng(2).integers(10**9, size=len(frame))),
    ),
    Slip(
        "times in years, a horizon in days",
        "times must be in the unit of the horizon, 3650",
        change(task="horizon = 10.0"),
        lambda frame: frame.assign(time=frame["time"] / 365.25),
    ),
    Slip(
        "a horizon before nearly all events",
        "times must be in the unit of the horizon, 1",
        change(task="horizon = 3650.0"),
        trial={"task": "horizon = 1.0"},
    ),
    Slip(
        "`delta` above 1 / the number of records",
        "it must be at most 1 / the number of records",
        change(privacy="epsilon = 1.0\ndelta = 1e-06\nclip = 1.0"),
        trial={"privacy": "epsilon = 1.0\ndelta = 0.1\nclip = 1.0"},
    ),
    Slip(
        "every row twice",
        "no record may be there twice",
        rewrite(lambda frame: frame.drop_duplicates()),
        many,
    ),
    Slip(
        "every row but one three times",
        "no record may be there twice",
        rewrite(lambda frame: frame.drop_duplicates()),
        lambda frame: many(frame, 3).iloc[2:],
    ),
    Slip(
        "persons with several rows, by a column that `leave` names",
        "it must name a person in one record only",
        rewrite(lambda frame: frame.drop_duplicates("pid")),
        lambda frame: frame.assign(pid=np.arange(len(frame)) // 2),
        trial={"data": f'{SCALED}\nleave = ["pid"]'},
    ),
    Slip(
        "events coded 1 and 2",
        "where 1 means censored and 2 the event, as in some programs, set cause = 2",
        change(data=f"{SCALED}\ncause = 2"),
        lambda frame: frame.assign(event=frame["event"] + 1),
    ),
    Slip(
        'events coded 1 and 2, with `cause = "any"`',
        "every record would have an event. Where 1 means censored and 2 the event, set cause = 2",
        change(data=f"{SCALED}\ncause = 2"),
        lambda frame: frame.assign(event=frame["event"] + 1),
        trial={"data": f'{SCALED}\ncause = "any"'},
    ),
    Slip(
        "a header that names a column twice",
        "its header names the column 'age' 2 times: rename all but one",
        rewrite(
            lambda frame: frame.rename(columns={"age.1": "age_at_surgery"}).drop(columns="age_at_surgery")
        ),
        write=second_age,
    ),
    Slip(
        'events "alive" and "dead"',
        "give words as its levels, first the word for censored",
        add_line,
        words("event", ["alive", "dead"]),
    ),
    Slip(
        "a feature of words",
        "encode words by all levels that it may have",
        add_line,
        words("er", ["neg", "pos"]),
    ),
    Slip(
        "a missing age",
        "nothing may be missing; give a value for them, as in fill = { age = 60.0 }",
        add_line,
        missing("age"),
    ),
    Slip(
        "a missing time",
        "it must hold finite numbers; leave out records where it does not",
        rewrite(lambda frame: frame.dropna(subset="time")),
        missing("time"),
    ),
    Slip(
        "a missing event",
        "it must hold finite numbers; leave out records where it does not",
        rewrite(lambda frame: frame.dropna(subset="event")),
        missing("event"),
    ),
    Slip(
        "dates as times",
        "of two dates give the days between them",
        run_code,
        dates,
        trial={"data": f'{SCALED}\nleave = ["start", "end"]'},
    ),
    Slip("decimal commas", "must hold numbers, with a point for decimals", run_code, write=commas),
    Slip(
        "semicolons between columns",
        "its columns have semicolons between them, and must have commas; convert it: python -c",
        run_command,
        write=lambda frame, path: frame.assign(age=frame["age"] + 0.5).to_csv(
            path, index=False, sep=";", decimal=","
        ),
    ),
    Slip(
        "a text in UTF-16",
        "its text must be UTF-8; it is UTF-16, convert it: python -c",
        run_command,
        write=lambda frame, path: frame.to_csv(path, index=False, encoding="utf-16"),
    ),
    Slip(
        "a text in Latin-1",
        "its text must be UTF-8; if it is Latin-1, convert it: python -c",
        run_command,
        lambda frame: frame.replace({"hospital": {"tromso": "tromsø"}}),
        lambda frame, path: frame.to_csv(path, index=False, encoding="latin-1"),
    ),
    Slip(
        "a file of Stata",
        "convert it: python -c",
        run_command,
        write=lambda frame, path: frame.to_stata(path, write_index=False),
        trial={"path": "patients.dta"},
    ),
    Slip(
        "no `delta`",
        "[privacy] delta is missing: give a number (The probability with which the promise may fail",
        change(privacy="epsilon = 1.0\ndelta = 1e-05\nclip = 1.0"),
        trial={"privacy": "epsilon = 1.0\nclip = 1.0"},
    ),
]


@pytest.mark.parametrize("slip", SLIPS, ids=[slip.given for slip in SLIPS])
def test_a_slip_is_refused_before_anything_is_charged_and_its_remedy_works(slip: Slip, tmp_path: Path):
    trial = Trial(tmp_path, **slip.trial)
    slip.write(slip.table(patients()), tmp_path / trial.path)
    assert trial.run() == 2
    assert slip.said in trial.said
    assert not trial.charged
    slip.mend(trial)
    assert trial.run() == 0, trial.said
    assert trial.charged


ADVISED = [
    (
        "a column of one value",
        "it teaches nothing, so leave it out",
        lambda frame: frame.assign(er=1),
        lambda frame: frame.drop(columns="er"),
    ),
    (
        "an age of 5,500",
        "look for typing errors, and correct them",
        lambda frame: frame.assign(age=frame["age"].where(frame.index != 7, 5500)),
        lambda frame: frame.assign(age=frame["age"].clip(upper=100)),
    ),
    (
        "copies of a few rows",
        "remove copies, or a person counts twice",
        lambda frame: pd.concat([frame, frame.head(10)], ignore_index=True),
        lambda frame: frame.drop_duplicates(),
    ),
    (
        "one site in months, the others in days",
        "give all sites one unit",
        lambda frame: frame.assign(time=frame["time"].where(frame["hospital"] != "oslo", frame["time"] / 30)),
        lambda frame: frame.assign(time=frame["time"].where(frame["hospital"] != "oslo", frame["time"] * 30)),
    ),
]


@pytest.mark.parametrize(
    ("said", "table", "mended"), [row[1:] for row in ADVISED], ids=[row[0] for row in ADVISED]
)
def test_what_may_be_right_is_advice_for_the_owner_of_the_records(
    said: str,
    table: Callable[[pd.DataFrame], pd.DataFrame],
    mended: Callable[[pd.DataFrame], pd.DataFrame],
    tmp_path: Path,
):
    trial = Trial(tmp_path)
    trial.write(table(patients()))
    # A rehearsal says it to everybody before the first round.
    trial.privacy += "\nrehearsal = true"
    assert trial.run("rehearsal") == 0
    assert f"{said}\n" in trial.said
    # A run under a promise says the same words whatever it found.
    trial.privacy = trial.privacy.removesuffix("\nrehearsal = true")
    assert trial.run("run") == 0
    kept = tmp_path / "patients.csv.advice.txt"
    place = (
        f"warning: advice about the records is in {kept.name}, beside them, which only its owner can read\n"
    )
    assert place in trial.said
    assert said not in trial.said
    assert said in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0
    trial.write(mended(table(patients())))
    assert trial.run("again") == 0
    assert place in trial.said
    assert kept.read_text() == "Nothing in these records calls for advice."


def test_the_page_has_the_same_rows():
    page = DOCS.read_text()
    rows = re.findall(r"^\| (.+?) \| \u201c(.+?)\u201d \| 2 \| nothing \|$", page, re.MULTILINE)
    assert rows == [(slip.given, slip.said) for slip in SLIPS]
    advised = re.findall(r"^\| (.+?) \| \u201c(.+?)\u201d \| 0 \| the run \|$", page, re.MULTILINE)
    assert advised == [row[:2] for row in ADVISED]

"""Cases by kind: each is made of a seed alone, from files that were right before they were spoiled."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pandas as pd
from answers import Answer, Hanging, bounded, tacit
from hostile import KEYS, WORDS, damage, damaged_bytes, damaged_text, literal, quoted, replace_oddly

from tacit.deploy.coordinator.run import lay_out, run_federation
from tacit.deploy.folders import write
from tacit.deploy.site.config import SiteLimits
from tacit.deploy.site.guard import Guard
from tacit.experiments import experiment
from tacit.survival.data import simulate

EXAMPLES = Path(__file__).parents[2] / "examples"
TRIAL = """
name = "trial"
seed = 5
rounds = 1
baselines = false
[data]
kind = "csv"
path = "patients.csv"
[sites]
kind = "by-column"
[task]
kind = "logistic-hazard"
hidden = [3]
cuts = 3
horizon = 3.0
steps = 1
sample = 0.5
"""
PROMISES = (
    "",
    '[privacy]\nunit = "record"\nnoise_multiplier = 3.0\ndelta = 1e-5\nclip = 1.0\nrehearsal = true\n',
    '[privacy]\nunit = "record"\nepsilon = 3.0\ndelta = 1e-5\nclip = 1.0\n',
)
SIMULATED = TRIAL.replace('kind = "csv"\npath = "patients.csv"', "records = 80\nfeatures = 3").replace(
    'kind = "by-column"', "count = 3"
)
VERBS = (
    ("show",), ("report",), ("report", "--dpia"), ("ledger",), ("ledger", "--verify"), ("export",),
    ("run", "--resume"),
)  # fmt: skip
HELD = {
    "name": "trial",
    "rounds": 1,
    "baselines": False,
    "data": {"kind": "held-records", "columns": ["age", "grade"], "records": 120},
    "sites": {"kind": "named", "names": ["oslo", "bergen"]},
    "task": {"kind": "logistic-hazard", "cuts": [1.0, 2.0, 3.0], "hidden": [4], "steps": 2, "sample": 0.1},
    "privacy": {"unit": "record", "epsilon": 0.9, "delta": 1e-5, "clip": 1.0},
}


@dataclass(frozen=True)
class Right:
    """Everything as it should be, to be copied and spoiled.

    Args:
        run: The directory of a run that is over.
        site: The folder of a site, with its records.
        asked: The experiment that the site is asked for.
        town: The folders of a federation, by site.
        letters: What the sites of that federation were sent.
    """

    run: Path
    site: Path
    asked: Path
    town: dict[str, Path]
    letters: tuple[bytes, ...]


def experiments(chance: Random, place: Path, right: Right) -> list[Answer]:
    """An experiment file, and options beside it."""
    bases = [path.read_text() for path in sorted(EXAMPLES.glob("*.toml"))]
    text = chance.choice([*bases, *(SIMULATED + promise for promise in PROMISES)])
    words: list[str] = []
    if chance.random() < 0.3:
        words = ["--set", f"{chance.choice((*KEYS, *WORDS))}={literal(chance)}"]
    else:
        for _ in range(chance.choice([1, 1, 2, 3])):
            text = damaged_text(text, chance)
    content = text.encode(errors="surrogateescape")
    file = place / "trial.toml"
    file.write_bytes(damaged_bytes(content, chance) if chance.random() < 0.08 else content)
    if chance.random() < 0.02:
        replace_oddly(file, chance)
    verb = chance.choices(("plan", "deploy", "tune"), (90, 5, 5))[0]
    return [tacit(place, verb, "trial.toml", *words, *chance.choice([[], ["--json"]]))]


def tables(chance: Random, place: Path, right: Right) -> list[Answer]:
    """The records of a run, as CSV or Parquet."""
    frame = simulate("SDGM1", records=60, features=3, seed=chance.randrange(9)).assign(
        site=["oslo", "bergen", "aker"] * 20
    )
    (place / "trial.toml").write_text(TRIAL + chance.choice(PROMISES))
    data, what = place / "patients.csv", chance.random()
    if what < 0.1:
        (place / "trial.toml").write_text(TRIAL.replace("patients.csv", "patients.parquet"))
        frame.to_parquet(place / "patients.parquet")
        data = place / "patients.parquet"
        data.write_bytes(damaged_bytes(data.read_bytes(), chance))
    elif what < 0.75:
        data.write_bytes(spoiled(frame, chance).encode(errors="surrogateescape"))
    elif what < 0.95:
        data.write_bytes(damaged_bytes(frame.to_csv(index=False).encode(), chance))
    else:
        frame.to_csv(data, index=False)
        replace_oddly(data, chance)
    return [tacit(place, "run", "trial.toml", "--out", "out", *chance.choice([[], ["--json"], ["-q"]]))]


def spoiled(frame: pd.DataFrame, chance: Random) -> str:
    """A table with one thing wrong in its cells or its header."""
    rows = [line.split(",") for line in frame.to_csv(index=False).splitlines()]
    what, column = chance.randrange(7), chance.randrange(len(rows[0]))
    cells = (
        *WORDS,
        "nan",
        "inf",
        "-inf",
        "1e400",
        "1e300",
        "-1",
        "0",
        "9" * 5000,
        '"',
        '""',
        "x" * 200_000,
        "1,2",
        "é",
    )
    if what == 0:
        rows[0][column] = chance.choice((*WORDS, *rows[0]))
    elif what <= 3:
        for _ in range(chance.choice([1, 1, 5, 60])):
            rows[chance.randrange(1, len(rows))][column] = chance.choice(cells)
    elif what == 4:
        rows = [[*row[:column], *row[column + 1 :]] for row in rows]
    elif what == 5:
        rows = rows[: chance.randrange(4)]
    else:
        rows = [row * chance.choice([2, 40]) for row in rows]
    between = chance.choice([",", ",", ",", ",", ";", "\t"])
    return "\n".join(between.join(row) for row in rows) + "\n"


def directories(chance: Random, place: Path, right: Right) -> list[Answer]:
    """The directory of a run, in which files were changed."""
    run = Path(shutil.copytree(right.run, place / "run"))
    files = sorted(path for path in run.rglob("*") if path.is_file())
    for path in chance.sample(files, chance.choice([1, 1, 2])):
        damage(path, chance)
    return [tacit(place, verb, "run", *more) for verb, *more in [chance.choice(VERBS)]]


def ledgers(chance: Random, place: Path, right: Right) -> list[Answer]:
    """The file of a ledger, changed as a file or as a database."""
    path = place / "ledger.db"
    shutil.copy(right.run / "ledger.db", path)
    if chance.random() < 0.5:
        damage(path, chance)
    else:
        _rewrite(path, chance)
    words = [["--verify"], [], ["--delta", chance.choice(["1e-5", "0", "nan", "2", "1e-300"])]]
    return [tacit(place, "ledger", "ledger.db", *chance.choice(words), *chance.choice([[], ["--json"]]))]


def _rewrite(path: Path, chance: Random) -> None:
    with sqlite3.connect(path) as connection:
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (trigger,) in triggers:
            connection.execute(f'DROP TRIGGER "{trigger}"')
        name = chance.choice([name for name in names if not name.startswith("sqlite_")])
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')]
        value = chance.choice([*WORDS, None, -1, 2**62, float("inf"), b"\x00\xff", "9" * 5000, "[" * 5000])
        statement, given = chance.choice(
            [
                *3 * [(f'UPDATE "{name}" SET "{chance.choice(columns)}" = ?', (value,))],
                (f'DELETE FROM "{name}" WHERE "{columns[0]}" > {chance.randrange(4)}', ()),
                (f'DROP TABLE "{name}"', ()),
                (f"PRAGMA user_version = {chance.choice([0, 1, 2, 10, 2**31 - 1])}", ()),
            ]
        )
        # A column that takes no such value keeps its own.
        with suppress(sqlite3.IntegrityError):
            connection.execute(statement, given)
    connection.close()


def sites(chance: Random, place: Path, right: Right) -> list[Answer]:
    """The folder of a site, or the experiment that it is asked for."""
    folder = Path(shutil.copytree(right.site, place / "oslo", symlinks=True))
    asked = Path(shutil.copy(right.asked, place / "asked.toml"))
    if chance.random() < 0.5:
        text = asked.read_text()
        for _ in range(chance.choice([1, 1, 2])):
            text = damaged_text(text, chance)
        asked.write_text(text)
    else:
        everything = sorted(path for path in folder.rglob("*") if not path.is_symlink())
        damage(chance.choice(everything), chance)
    verb = chance.choice(
        [
            ("check", "oslo"),
            ("check", "oslo", "--experiment", "asked.toml"),
            ("accept", "oslo", "asked.toml"),
            ("renew", "oslo"),
        ]
    )
    return [tacit(place, "site", *verb)]


def letters(chance: Random, place: Path, right: Right) -> list[Answer]:
    """Messages to a guard."""
    folder = Path(shutil.copytree(chance.choice(sorted(right.town.values())), place / "site"))
    heard: list[str] = []
    guard = Guard(folder, heard.append)
    one, other = chance.choice(right.letters), chance.choice(right.letters)
    what = chance.random()
    if what < 0.7:
        sent = damaged_bytes(one, chance)
    elif what < 0.8:
        sent = one[: len(one) // 2] + other[len(other) // 2 :]
    elif what < 0.9:
        sent = chance.choice(
            [b"\x91" * 50_000, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"{" * 10_000, b""]
        )
    else:
        sent = one.replace(
            chance.choice([b"site-1", b"site-2", b"coordinator", b"work"]), quoted("\x1b[2J").encode()
        )
    try:
        with bounded():
            answered = guard.answer(sent)
    except Hanging:
        return [Answer(("letter", sent.hex()[:200]), None, "")]
    finally:
        guard.close()
    said = "\n".join(heard)
    return [Answer(("letter", sent.hex()[:200]), 0 if isinstance(answered, bytes) else 1, said)]


KINDS: dict[str, Callable[[Random, Path, Right], list[Answer]]] = {
    case.__name__: case for case in (experiments, tables, directories, ledgers, sites, letters)
}


def made_right(place: Path) -> Right:
    """Everything that cases begin with."""
    place.mkdir()
    (place / "trial.toml").write_text(SIMULATED.replace("rounds = 1", "rounds = 2") + PROMISES[1])
    done = tacit(place, "run", "trial.toml", "--out", "run", "-q")
    assert done.code == 0, done.said
    made = write(
        HELD,
        {"oslo": {"path": "data/records.csv"}, "bergen": {}},
        place / "out",
        host="127.0.0.1",
        port=20000,
    )
    frame = simulate("SDGM1", records=60, features=2, seed=1)
    frame.columns = ["age", "grade", *frame.columns[2:]]
    frame.to_csv(made.sites["oslo"] / "data" / "records.csv", index=False)
    asked = next(made.coordinator.rglob("experiment.toml"))
    town, sent = _talked(place / "town")
    return Right(place / "run", made.sites["oslo"], asked, town, sent)


def _talked(place: Path) -> tuple[dict[str, Path], tuple[bytes, ...]]:
    """A federation in this process, and every letter that its sites were sent."""
    small = [
        "sites.count=2",
        "rounds=1",
        "data.records=120",
        "task.cuts=3",
        "task.hidden=[3]",
        "baselines=false",
    ]
    chosen = experiment.read(EXAMPLES / "network.toml", small)
    document, held = lay_out(chosen, chosen.open_federation(), place)
    trusting = SiteLimits(epsilon=float("inf"), lifetime=float("inf"), fewest=2, trusted=True)
    made = write(document, held, place, host="127.0.0.1", port=9999, limits=dict.fromkeys(held, trusting))
    before = {
        name: Path(shutil.copytree(folder, place / f"{name} before")) for name, folder in made.sites.items()
    }
    guards, sent = (
        {name: Guard(folder, lambda line: None) for name, folder in made.sites.items()},
        list[bytes](),
    )

    class Neighbours:
        def __call__(self, asked: dict[str, bytes], seconds: float) -> dict[str, bytes]:
            sent.extend(asked.values())
            return {name: guards[name].answer(content) for name, content in asked.items()}

        def wait_for_sites(self, names: list[str], seconds: float) -> frozenset[str]:
            return frozenset(names)

    def met(greet: bytes, recognise: Callable[[bytes], str | None]) -> Neighbours:
        sent.append(greet)
        for guard in guards.values():
            recognise(guard.answer(greet))
        return Neighbours()

    run_federation(met, made.coordinator, place / "run")
    for guard in guards.values():
        guard.close()
    return before, tuple(sent)

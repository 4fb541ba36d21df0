"""Capture of all that users and other programs see of the package: names, files, documents and help.

Nothing here imports an internal module: the package may be rearranged behind what is captured. The command is
called in this process, by the entry point that `pip` installs: importing everything anew takes seconds.
"""

import ast
import contextlib
import dataclasses
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import io
import json
import math
import os
import platform
import re
import sqlite3
import sys
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
from safetensors.numpy import load_file

from tacit.experiments import experiment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DATA = HERE / "data"
EXPERIMENTS = HERE / "experiments"
# Run directories that an earlier version wrote; `runs/` would be ignored by git.
KEPT = HERE / "kept"
RUNS = tuple(sorted(path.stem for path in EXPERIMENTS.glob("*.toml") if path.stem != "interrupted"))

MASK = "<differs from run to run>"
# Leaves of documents that depend on the clock, the machine or the identity of a ledger.
VOLATILE = frozenset({"at", "hash", "head", "id", "plan", "seconds", "ticket"})
# Tables whose keys stay and whose values depend on the machine.
MACHINE = frozenset({"environment"})
# Texts that hold numbers of full precision.
EMBEDDED = frozenset({"experiment"})


# --- the command


def call(*words: str) -> tuple[int, str, str]:
    """Run `tacit` with these words; its exit code, standard output and standard error."""
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="tacit")
    main, code = script.load(), 0
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    plain = {"COLUMNS": "100", "LINES": "50", "NO_COLOR": "1", "TERM": "dumb"}
    with (
        mock.patch.object(sys, "argv", ["tacit", *words]),
        mock.patch.dict(os.environ, plain),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return code, *(stream.buffer.getvalue().decode() for stream in (out, err))


def call_json(*words: str) -> typing.Any:
    """Run `tacit`, which must succeed in silence, and parse the document that it prints."""
    code, out, err = call(*words, "--json", "-q")
    assert (code, err) == (0, ""), (words, code, out, err)
    return json.loads(out)


def collect_help() -> dict[str, str]:
    """Help of the command and of each verb, by the words that ask for it."""
    found = {}
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        verb = waiting.pop()
        code, text, err = call(*verb, "--help")
        assert (code, err) == (0, "")
        found[" ".join(("tacit", *verb))] = text
        _, _, commands = text.partition("\nCommands:\n")
        waiting += [(*verb, name) for name in re.findall(r"^  ([a-z-]+)", commands, re.MULTILINE)]
    return dict(sorted(found.items()))


# --- names


# DESIGN.md section 8, and figures that the guides list, by the module to import them from. Written by hand,
# in a format that scripts leave alone when they rewrite imports. To be added once they are there: from_frame,
# from_arrays and alignment of `sites`; cause_specific and fine_gray of `survival.statistics`.
PROMISED = json.loads((HERE / "section8.json").read_text())
# Of a run, in the same section.
RUN_MEMBERS = ("history", "scores", "privacy", "model", "summary", "report")

_FENCE = re.compile(r"^(?:<!-- runs -->\n)?```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DOTTED = re.compile(r"(?<![\w./:-])tacit(?:\.[A-Za-z_]\w*)+")
_REFERENCE = re.compile(r"^<!-- reference: ([\w.]+) -->$.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def resolve(path: str) -> object:
    """Import the object that a dotted path names.

    Attributes come first, as in `from tacit import audits; audits.membership`. A package may offer a function
    under the name of the module that has it, so modules are tried as well.
    """
    names = path.split(".")
    try:
        return functools.reduce(getattr, names[1:], importlib.import_module(names[0]))
    except AttributeError:
        module = importlib.import_module(names[0])
    for number in range(2, len(names) + 1):
        try:
            module = importlib.import_module(".".join(names[:number]))
        except ModuleNotFoundError:
            return functools.reduce(getattr, names[number - 1 :], module)
    return module


def collect_promised() -> dict[str, typing.Any]:
    """Parameters of each callable that DESIGN.md section 8 names, by its path."""
    paths = [f"{module}.{name}" for module, names in PROMISED.items() for name in names]
    return {path: describe_parameters(resolve(path)) for path in sorted(paths)}


def describe_parameters(thing: object) -> dict[str, dict[str, typing.Any]]:
    """Return the kind and the default of each parameter, by name."""
    return {
        name: {"given": str(one.kind.description)}
        | ({} if one.default is one.empty else {"default": plain(one.default)})
        for name, one in inspect.signature(typing.cast(typing.Any, thing)).parameters.items()
    }


def collect_documented() -> list[str]:
    """Dotted paths that README, docs and examples tell a user to import, in code and in prose."""
    found = set[str]()
    for page in _pages():
        # What one block imports, the next ones on a page use.
        code = "\n".join(body for language, body in _FENCE.findall(page) if language == "python")
        found |= _imported(ast.parse(code))
        prose = _REFERENCE.sub("", _FENCE.sub("", page))
        found |= set(_DOTTED.findall(prose)) - {"tacit.md", "tacit.conf"}
    for example in sorted((ROOT / "examples").glob("*.py")):
        found |= _imported(ast.parse(example.read_text()))
    return sorted(found)


def collect_references() -> list[str]:
    """Dotted paths of which docs/reference shows the docstrings."""
    return sorted({path for page in _pages() for path in _REFERENCE.findall(page)})


def _pages() -> list[str]:
    return [path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))]


def _imported(tree: ast.AST) -> set[str]:
    """Paths that code imports, and attributes of modules that it takes from them."""
    homes = dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tacit":
            homes |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            homes |= {alias.asname or alias.name: alias.name for alias in node.names}
    homes = {name: home for name, home in homes.items() if home.split(".")[0] == "tacit"}
    used = {path for node in ast.walk(tree) if (path := _taken(node, homes)) is not None}
    return {*homes.values(), *used} - {"tacit"}


def _taken(node: ast.AST, homes: Mapping[str, str]) -> str | None:
    """The path of an attribute of a module, at most one step beyond modules."""
    names = list[str]()
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    if not names or not isinstance(node, ast.Name) or node.id not in homes:
        return None
    path = homes[node.id]
    for name in names:
        if not isinstance(resolve(path), types.ModuleType):
            break
        path = f"{path}.{name}"
    return path


# --- kinds and keys of experiment files


LISTED = ("tasks", "data", "splits", "aggregators", "attacks")
HEAD = frozenset({"name", "seed", "rounds", "baselines"})
# Keys that a kind cannot be read without.
_REQUIRED = {
    ("data", "csv"): {"path": "records.csv"},
    ("data", "curve-files"): {"files": {"x": "x.csv", "y": "y.csv"}},
    ("data", "held-records"): {"columns": ["x1"], "records": 10},
    ("data", "held-curves"): {"domains": {"x": [0.0, 1.0], "y": [0.0, 1.0]}, "records": 10},
    ("data", "held-worlds"): {"env": "CartPole-v1"},
    ("sites", "named"): {"names": ["oslo", "turin"]},
    ("privacy", "private"): {"unit": "record", "epsilon": 1.0, "delta": 1e-5, "clip": 1.0},
    ("aggregation", "mixing"): {"then": {"kind": "median"}},
    ("aggregation", "bucketing"): {"then": {"kind": "median"}},
    ("sampling", "fixed"): {"count": 2},
    ("clusters", "clusters"): {"count": 2},
    **{("attack", kind): {"liars": 1} for kind in (
        "sign-flip", "scaling", "gaussian", "label-flip", "alie", "inner-product", "mimic", "backdoor",
        "adaptive-alie", "adaptive-inner-product", "min-max", "min-sum",
    )},
}  # fmt: skip


def collect_kinds(folder: Path) -> dict[str, typing.Any]:
    """Keys that each kind of each table takes: allowed types or words, and the default."""
    top = refused_words(folder, MINIMAL, "unknown_key=1")
    # Answers have no kinds.
    tables = [name for name in top if name not in (*HEAD, "dpia")]
    kinds = {table: refused_words(folder, MINIMAL, f"{table}.kind='unknown-kind'") for table in tables}
    return {
        "head and tables": top,
        "kinds": {
            table: {kind: describe_kind(folder, table, kind) for kind in kinds[table]} for table in tables
        },
        "answers": refused_words(folder, MINIMAL, "dpia.unknown_key='yes'"),
        "study of curves": refused_words(folder, CURVES, "study.unknown_key=1"),
        "study of worlds": refused_words(folder, WORLDS, "study.unknown_key=1"),
    }


MINIMAL, CURVES, WORLDS = (
    f'[task]\nkind = "{kind}"\n' for kind in ("logistic-hazard", "functional-boosting", "ppo")
)


def refused_words(folder: Path, text: str, change: str) -> list[str]:
    """Words that the refusal of a change puts in quotes: those that are allowed instead."""
    file = folder / "refused.toml"
    file.write_text(text)
    code, out, _ = call("plan", str(file), "--set", change, "--json", "-q")
    error = json.loads(out)["error"]
    assert (code, error["kind"], error["exit_code"]) == (2, "InvalidFile", 2)
    return re.findall(r'"([^"]+)"', error["message"].rpartition("it must be")[2])


def describe_kind(folder: Path, table: str, kind: str) -> dict[str, typing.Any]:
    """Keys of one kind, read through the experiment that has it."""
    keys = {"kind": kind, **_REQUIRED.get((table, kind), {})}
    document: dict[str, typing.Any] = {"task": {"kind": "logistic-hazard"}}
    document[table] = keys
    file = folder / "kind.toml"
    file.write_text("".join(f"[{name}]\n{_as_toml(content)}" for name, content in document.items()))
    made = type(getattr(experiment.read(file), table))
    hints = typing.get_type_hints(made)
    return {
        entry.name: {"allowed": describe_type(hints[entry.name])}
        | ({} if (default := _default(entry)) is dataclasses.MISSING else {"default": plain(default)})
        for entry in dataclasses.fields(made)
        if not entry.metadata.get("bound")
    }


def _default(entry: dataclasses.Field[typing.Any]) -> object:
    if entry.default_factory is not dataclasses.MISSING:
        return entry.default_factory()
    return entry.default


def _as_toml(content: Mapping[str, object]) -> str:
    return "".join(f"{key} = {_as_value(value)}\n" for key, value in content.items())


def _as_value(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_as_value(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


def describe_type(hint: object) -> list[str]:
    """Types and words that an annotation allows, as an author of files knows them."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return sorted(f'"{word}"' for word in inner)
    if origin in (typing.Union, types.UnionType):
        return sorted({name for part in inner for name in describe_type(part)})
    if origin is typing.Annotated:
        return describe_type(inner[0])
    kind = origin or hint
    names = {bool: "true or false", int: "whole number", float: "number", str: "text", type(None): "nothing"}
    if kind in names:
        return [names[typing.cast(type, kind)]]
    if isinstance(kind, type) and issubclass(kind, Sequence):
        return ["list"]
    return ["table"]


def plain(value: object) -> typing.Any:
    """A default as JSON: an object by its kind and fields, never by the name of its class or module."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {entry.name: plain(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
        return {"kind": getattr(value, "kind", "object"), **fields}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [plain(inner) for inner in value]
    return "object"


# --- what a run leaves behind


def describe_directory(folder: Path) -> dict[str, typing.Any]:
    """Files of a run directory, with the keys or the content of each that other programs read."""
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return {
        "files": sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()),
        "experiment.toml": tomllib.loads((folder / "experiment.toml").read_text()),
        "environment.json": sorted(_json(folder / "environment.json")),
        "statement.json": _json(folder / "statement.json"),
        "provenance.json": _json(folder / "provenance.json"),
        "summary.json": _json(folder / "summary.json"),
        "rounds.jsonl": normalise(lines),
        "state.safetensors": {
            name: [array.dtype.name, *array.shape]
            for name, array in sorted(load_file(folder / "state.safetensors").items())
        },
        "ledger.db": {"schema": read_schema(folder / "ledger.db"), "rows": read_rows(folder / "ledger.db")},
    }


def read_schema(path: Path) -> dict[str, typing.Any]:
    """Tables of a ledger with their columns, and the names of its triggers."""
    with _opened(path) as database:
        named = database.execute("SELECT type, name FROM sqlite_master ORDER BY type, name").fetchall()
        tables = [name for kind, name in named if kind == "table"]
        columns = {
            table: [list(row) for row in database.execute(f"PRAGMA table_info({table})")] for table in tables
        }
    return {"tables": columns, "triggers": [name for kind, name in named if kind == "trigger"]}


def read_rows(path: Path) -> list[dict[str, typing.Any]]:
    """Entries of a ledger in their order, without clocks, identities and hashes."""
    with _opened(path) as database:
        found = database.execute("SELECT number, body FROM entries ORDER BY number").fetchall()
    return [{"number": number, **normalise(json.loads(body))} for number, body in found]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        yield database


def _json(path: Path) -> typing.Any:
    return normalise(json.loads(path.read_text()))


# --- documents


def normalise(document: typing.Any) -> typing.Any:
    """The same document with a mask over each leaf that differs from run to run."""
    if isinstance(document, list):
        return [normalise(part) for part in document]
    if not isinstance(document, dict):
        return document
    return {key: _normalise_entry(key, value) for key, value in document.items()}


def _normalise_entry(key: str, value: typing.Any) -> typing.Any:
    if isinstance(value, dict) and key in MACHINE:
        return dict.fromkeys(value, MASK)
    leaf = isinstance(value, str | int | float)
    if leaf and (key in VOLATILE or (key in EMBEDDED and "\n" in str(value))):
        return MASK
    return normalise(value)


def outline(document: typing.Any) -> typing.Any:
    """Keys and types of a document; a list has the distinct outlines of its parts."""
    if isinstance(document, dict):
        return {key: outline(value) for key, value in document.items()}
    if isinstance(document, list):
        parts = [outline(part) for part in document]
        return [part for number, part in enumerate(parts) if part not in parts[:number]]
    if document is None:
        return "null"
    if isinstance(document, bool):
        return "boolean"
    return "text" if isinstance(document, str) else "number"


def compare(found: typing.Any, golden: typing.Any, *, tolerance: float = 1e-9, place: str = "$") -> list[str]:
    """Places where a document differs from the golden one; numbers are equal up to a relative tolerance."""
    if isinstance(golden, dict) and isinstance(found, dict):
        wrong = [f"{place}.{key}: is new" for key in found if key not in golden]
        wrong += [f"{place}.{key}: is gone" for key in golden if key not in found]
        for key in golden:
            if key in found:
                wrong += compare(found[key], golden[key], tolerance=tolerance, place=f"{place}.{key}")
        return wrong
    if isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        pairs = enumerate(zip(found, golden, strict=True))
        return [
            line
            for number, (mine, yours) in pairs
            for line in compare(mine, yours, tolerance=tolerance, place=f"{place}[{number}]")
        ]
    return [] if _same(found, golden, tolerance) else [f"{place}: found {found!r}, golden {golden!r}"]


def _same(found: object, golden: object, tolerance: float) -> bool:
    numbers = (int, float)
    if isinstance(found, numbers) and isinstance(golden, numbers) and not isinstance(golden, bool):
        return type(found) is type(golden) and math.isclose(found, golden, rel_tol=tolerance, abs_tol=1e-12)
    return type(found) is type(golden) and found == golden


def collect_documents() -> dict[str, typing.Any]:
    """Documents of each verb on the runs in this folder; `record.train` left what `tacit run` printed."""
    tiny = ("--canaries", "200", "--shadows", "3", "--skip", "mechanisms")
    audited = call_json("audit", "record.toml", *tiny, "--out", "audit")
    asked = {f"show-{name}": ("show", name) for name in RUNS}
    asked |= {f"plan-{name}": ("plan", f"{name}.toml") for name in RUNS}
    asked |= {f"ledger-{name}": ("ledger", name) for name in RUNS}
    asked |= {f"verify-{name}": ("ledger", name, "--verify") for name in RUNS}
    asked |= {f"list-{what}": ("list", what) for what in LISTED}
    asked |= {"show-several": ("show", "open", "record"), "show-audit": ("show", "audit")}
    asked |= {"noise": CALCULATOR[0], "epsilon": CALCULATOR[1], "laplace": CALCULATOR[2]}
    found = {name: normalise(call_json(*words)) for name, words in asked.items()}
    for name in RUNS:
        found[f"run-{name}"] = normalise(json.loads(Path(f"{name}.printed").read_text()))
        assert call_json("report", name, "-o", f"{name}.json") == {"report": f"{name}.json"}
        found[f"report-{name}"] = normalise(json.loads(Path(f"{name}.json").read_text()))
    # Published sets are read from packages that may be missing.
    data = found["list-data"]
    found["list-data"] = {name: re.sub(r" \([^()]*install[^()]*\)$", "", data[name]) for name in data}
    # Ranks of attacked records may change with the last bit of a loss.
    found["show-audit"] = outline(found["show-audit"])
    found["audit"] = {
        "outline": outline(audited),
        "facts": {name: audited["run"][name] for name in ("claim", "delta", "canaries", "charged", "kept")},
        "of": audited["of"],
    }
    code, out, _ = call("plan", "missing.toml", "--json")
    found["failure"] = {"exit code": code, "document": json.loads(out)}
    return found


CALCULATOR = (
    ("privacy", "--epsilon", "1", "--delta", "1e-5", "--steps", "100", "--rate", "0.1"),
    ("privacy", "--noise-multiplier", "2", "--delta", "1e-6", "--steps", "10", "--relation", "replace"),
    ("privacy", "--epsilon", "1", "--delta", "0", "--mechanism", "laplace", "--steps", "10"),
)


# --- states


def describe_state(folder: Path) -> dict[str, typing.Any]:
    """Arrays of the final state of a run, each with the digest of its bits."""
    arrays = load_file(folder / "state.safetensors")
    return {
        name: {
            "shape": list(array.shape),
            "values": array.ravel().tolist(),
            "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest(),
        }
        for name, array in sorted(arrays.items())
    }


def describe_machine() -> dict[str, str]:
    """Processor and packages that the last bit of a result may depend on."""
    text = _read(Path("/proc/cpuinfo"))
    # One name stands for several generations, whose vectors differ.
    parts = ("model name", "cpu family", "model", "stepping")
    found = [re.search(rf"^{part}\s*: (.*)$", text, re.MULTILINE) for part in parts]
    packages = ("numpy", "scipy", "numba", "llvmlite")
    return {
        "processor": " ".join(platform.processor() if one is None else one[1] for one in found),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def _read(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


# --- golden data


def load(name: str) -> typing.Any:
    """The golden document of this name."""
    return json.loads((DATA / f"{name}.json").read_text())


def save(name: str, document: object) -> None:
    """Write a golden document; keys keep their order."""
    path = DATA / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")

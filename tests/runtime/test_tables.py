"""Files of tables that strangers send: their size, nesting, digits and keys come before what they say."""

import sys
from pathlib import Path

import pytest

from tacit.errors import LONGEST_FILE, LONGEST_TEXT, MOST_DEPTH, InvalidFile
from tacit.experiments.experiment import load, read
from tacit.runtime import imports
from tacit.runtime.tables import override_value, parse

FILE = """
[data]
records = 80
[sites]
count = 3
[task]
kind = "KIND"
"""
OWN = """
from dataclasses import dataclass
from pathlib import Path
from helper import HELPED
from tacit.survival.tasks import LogisticHazard

Path(__file__).with_name("imported").touch()

@dataclass(frozen=True, kw_only=True)
class Task(LogisticHazard):
    help: int = HELPED
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed = " + "9" * 5000, "it holds a number that is too long"),
        ("seed = 0x" + "f" * 5000, "it holds a whole number of more than 100 digits"),
        ("seed = " + "9" * 200, "it holds a whole number of more than 100 digits"),
        ("seed = " + "[" * 5000, "its lists or tables are nested too deep"),
        ("seed = " + "[" * 5000 + "]" * 5000, "its lists or tables are nested too deep"),
        ("seed = " + "[" * 50 + "]" * 50, f"nested more than {MOST_DEPTH} deep"),
        ("seed = " + "{a = " * 50 + "1" + "}" * 50, f"nested more than {MOST_DEPTH} deep"),
        (".".join(["a"] * 200_000) + " = 1", f"a key has more than {MOST_DEPTH} parts"),
        (" . ".join(['"a"'] * 200_000) + " = 1", f"a key has more than {MOST_DEPTH} parts"),
        ("[" + ".".join(["a"] * 200_000) + "]", f"a key has more than {MOST_DEPTH} parts"),
        (f'name = "{"x" * (LONGEST_TEXT + 1)}"', "it holds a text of 100,001 characters"),
        (f"{'x' * (LONGEST_TEXT + 1)} = 1", "it holds a text of 100,001 characters"),
        ("#" * (LONGEST_FILE + 1), "at most 4,194,304 are read"),
        ('name = "' + '\\"' * 500_000, "is not TOML"),
        ("seed = ", "is not TOML"),
    ],
)
def test_a_text_is_no_larger_and_no_deeper_than_any_experiment(text, said):
    with pytest.raises(InvalidFile, match=f"^a file.*{said}"):
        parse(text, "a file")


def test_texts_and_comments_may_hold_dots_and_quotes():
    text = 'a = "' + "x." * 500 + '"\n# ' + "y." * 500 + "\nb = '" + "z." * 500 + "'\n"
    text += 'c = """' + 'u."v".' * 500 + '"""\nd.e.f = 1.5\n'
    assert set(parse(text, "a file")) == {"a", "b", "c", "d"}


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    place = tmp_path / "large.toml"
    with place.open("wb") as stream:
        stream.truncate(2**40)
    with pytest.raises(InvalidFile, match=r"large\.toml cannot be read: it is larger than"):
        read(place)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("a=" + "[" * 5000, "nested too deep"),
        ("seed=" + "9" * 5000, "too long"),
        (".".join(["a"] * 5000) + "=1", "table.key=value"),
        ("a.b", "table.key=value"),
        ("=1", "table.key=value"),
    ],
)
def test_a_change_is_looked_at_like_a_file(change, said):
    with pytest.raises(InvalidFile, match=said) as told:
        override_value({}, change)
    assert len(str(told.value)) < 1_000


def test_a_change_may_be_a_word_without_quotes():
    document = {"task": {"kind": "ppo"}}
    for change in ("task.kind=cox-ph", "task.lr=0.5", "name=two words"):
        override_value(document, change)
    assert document == {"task": {"kind": "cox-ph", "lr": 0.5}, "name": "two words"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a class of its author's own, in a module of a name that nobody else has."""
    module = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(OWN.replace("helper", f"{module}_helper"))
    (tmp_path / f"{module}_helper.py").write_text("HELPED = 7\n")
    (tmp_path / "experiment.toml").write_text(FILE.replace("KIND", f"{module}:Task"))
    yield tmp_path, module
    for name in (module, f"{module}_helper"):
        sys.modules.pop(name, None)


def test_a_file_imports_what_it_names_and_says_so_before(folder):
    place, module = folder
    said = []

    def announce(words):
        assert not (place / "imported").exists()
        said.append(words)

    before = list(sys.path)
    with imports.announcing(announce):
        task = read(place / "experiment.toml").task
    assert task.help == 7
    assert sys.path == before
    assert said == [f"importing {module} from {place / module}.py, for [task] kind = '{module}:Task'"]


def test_a_directory_imports_nothing_unless_it_is_trusted(folder):
    place, module = folder
    for opened in (read, load):
        with pytest.raises(InvalidFile, match=rf"would import {module} from {place / module}\.py.*--trust"):
            opened(place)
    assert not (place / "imported").exists()
    assert module not in sys.modules
    assert read(place, trust=True).task.help == 7
    # What is loaded already need not be trusted: nothing is executed by reading its name once more.
    assert read(place).task.help == 7


@pytest.mark.parametrize("table", ["data", "task"])
def test_a_directory_names_no_environment_that_gymnasium_would_import(tmp_path, table):
    texts = {"data": '[data]\nkind = "gymnasium"\n', "task": '[task]\nkind = "ppo"\n'}
    texts[table] += 'env = "nobody_has_this:World-v0"\n'
    (tmp_path / "experiment.toml").write_text("".join(texts.values()))
    with pytest.raises(InvalidFile, match=rf"\[{table}\] env = .* would import nobody_has_this from an unkn"):
        read(tmp_path)


@pytest.mark.parametrize(
    "kind", ["../evil:Task", "sub/evil:Task", ".evil:Task", ":Task", "evil..x:Task", "a b:Task", "1:2"]
)
def test_a_module_has_a_name(tmp_path, kind):
    (tmp_path / "experiment.toml").write_text(FILE.replace("KIND", kind))
    with pytest.raises(InvalidFile, match=r"it must be package\.module:Class"):
        read(tmp_path / "experiment.toml")


def test_the_path_of_modules_is_restored_where_an_import_fails(tmp_path):
    (tmp_path / "broken_module_of_a_test.py").write_text("import sys\nsys.path.insert(0, 'mine')\n1 / 0\n")
    (tmp_path / "experiment.toml").write_text(FILE.replace("KIND", "broken_module_of_a_test:Task"))
    before = list(sys.path)
    with pytest.raises(InvalidFile, match="cannot be loaded: division by zero"):
        read(tmp_path / "experiment.toml")
    assert [place for place in sys.path if place != "mine"] == before
    sys.path.remove("mine")
    assert str(Path(tmp_path)) not in sys.path

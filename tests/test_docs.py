"""Links, pages, commands, files and code of the documentation exist."""

import ast
import contextlib
import importlib
import io
import itertools
import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest
import typer.core
import typer.main

import tacit
from printed import difference
from tacit.cli.app import app
from tacit.experiments import experiment
from tools import reference

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {str(page.relative_to(ROOT)): page.read_text() for page in sorted(DOCS.rglob("*.md"))}
PAGES["README.md"] = (ROOT / "README.md").read_text()
SITE = (ROOT / "mkdocs.yml").read_text()
FENCE = re.compile(r"^(<!-- runs -->\n)?```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VERBS = typer.main.get_command(app)


class Block(NamedTuple):
    page: str
    runs: bool
    language: str
    text: str
    # What it prints, where the next block has no language and follows at once.
    printed: str | None


def blocks(page: str) -> list[Block]:
    found = list(FENCE.finditer(PAGES[page]))
    answers = {}
    for one, following in itertools.pairwise(found):
        between = PAGES[page][one.end() : following.start()].strip()
        if not following[2] and not between:
            answers[one.start()] = following[3]
    return [Block(page, bool(one[1]), one[2], one[3], answers.get(one.start())) for one in found]


def of(language: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.language == language]


def prose(page: str) -> str:
    """A page without code."""
    return re.sub(r"`[^`]+`", "code", FENCE.sub("", PAGES[page]))


def anchors(page: str) -> set[str]:
    """The anchors of its headings, as Python-Markdown makes them."""
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", PAGES[page]), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles]
    return {re.sub(r"[-\s]+", "-", title) for title in plain}


def test_links_lead_to_pages_and_headings_that_are_there():
    links = [(page, link) for page in PAGES for link in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(page))]
    inner = [(page, link) for page, link in links if not re.match(r"[a-z]+:", link)]
    assert len(inner) > 100
    assert [(page, link) for page, link in inner if not leads_somewhere(page, link)] == []


def leads_somewhere(page: str, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (ROOT / page).parent / path if path else ROOT / page
    there = target.resolve().relative_to(ROOT)
    inside = page == "README.md" or there.parts[0] == "docs"
    known = str(there) not in PAGES or not anchor or anchor in anchors(str(there))
    return target.exists() and inside and known


def test_every_page_is_in_the_navigation_once():
    listed = re.findall(r"[\w/-]+\.md", SITE)
    assert sorted(listed) == sorted(page.removeprefix("docs/") for page in PAGES if page != "README.md")


def test_every_page_has_one_title_and_knows_no_machine():
    titles = {
        page: len(re.findall(r"^# ", FENCE.sub("", text), re.MULTILINE)) for page, text in PAGES.items()
    }
    assert titles == dict.fromkeys(PAGES, 1)
    assert [page for page, text in PAGES.items() if re.search(r"/root/|/home/\w|/work/|/tmp/\w", text)] == []


def test_commands_are_understood():
    for block in of("console"):
        asked = [line for line in block.text.splitlines() if line.startswith("$ ")]
        assert asked, block
        for line in asked:
            program, *words = shlex.split(line.removeprefix("$ "), comments=True)
            if program == "tacit":
                command, arguments = verb(words)
                # Parsed and checked by the command itself, and not run.
                assert command.make_context(program, arguments), (block.page, line)


def test_commands_in_sentences_name_verbs_and_options_that_are_there():
    for page, text in PAGES.items():
        for said in re.findall(r"`tacit ([a-z][^`]*)`", FENCE.sub("", text)):
            command, arguments = verb(said.replace("|", " ").split())
            options = {option for parameter in command.params for option in parameter.opts}
            asked = {word.partition("=")[0] for word in arguments if word.startswith("--")}
            assert asked <= options | {"--help"}, (page, said)


def verb(words: list[str]) -> tuple[typer.core.TyperCommand, list[str]]:
    """The command that these words call, and what is left for it."""
    command, left = VERBS, list(words)
    while hasattr(command, "commands") and left:
        command = command.commands[left.pop(0)]
    return command, left


def test_make_knows_what_it_is_asked_for():
    made = re.findall(r"^([\w-]+)[:%]", (ROOT / "Makefile").read_text(), re.MULTILINE)
    asked = {target for page in PAGES for target in re.findall(r"(?:\$ |`)make ([\w-]+)", PAGES[page])}
    assert {target for target in asked if target not in made and not target.startswith("bench-")} == set()
    benches = {target.removeprefix("bench-") for target in asked if target.startswith("bench-")}
    assert {name for name in benches if not (ROOT / "bench" / f"{name}.py").exists()} == set()


@pytest.mark.parametrize("page", sorted({block.page for block in of("toml")}))
def test_experiments_are_read(page):
    for block in blocks(page):
        document = tomllib.loads(block.text) if block.language == "toml" else {}
        if "task" in document and not {"tune", "study"} & set(document):
            assert experiment.construct_experiment(document, ROOT)


def test_code_is_python():
    for block in of("python"):
        assert ast.parse(block.text, filename=block.page)


@pytest.mark.parametrize("page", [page for page in PAGES if any(block.runs for block in blocks(page))])
def test_code_that_is_meant_to_run_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(page):
        if not block.runs:
            continue
        printed = io.StringIO()
        # Other packages warn of what is theirs.
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(block.text, names)
        if block.printed is not None:
            assert difference(printed.getvalue(), block.printed, 0.02) is None


def test_the_site_is_built_without_a_warning():
    # In place: it is made from the sources as they are, and thrown away with `make clean`.
    words = [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "--strict"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    said = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 0, said
    assert [line for line in said if line and not line.startswith("Build ")] == ["No issues found"]
    for page in (page for page in PAGES if page != "README.md"):
        place = Path(page).relative_to("docs").with_suffix("")
        folder = place.parent if place.name == "index" else place
        assert "<h1" in (ROOT / "site" / folder / "index.html").read_text()


REFERENCE = re.findall(r"^<!-- reference: ([\w.]+) -->$", "\n".join(PAGES.values()), re.MULTILINE)


def test_the_reference_is_of_what_there_is():
    for name in REFERENCE:
        module, _, attribute = name.rpartition(".")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            assert getattr(importlib.import_module(module), attribute).__doc__, name


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/reference/")])
def test_generated_parts_of_the_reference_are_what_the_code_has_now(page):
    # `make reference` writes them.
    assert difference(reference.rewrite(PAGES[page]), PAGES[page], 0) is None
    assert not re.search(r"^:::", PAGES[page], re.MULTILINE)


def test_maps_of_the_package_are_what_the_folders_say():
    for page in reference.MAPS:
        text = page.read_text()
        assert reference.rewrite_map(text) == text, page.name
        assert len(reference.MAP_LINE.findall(text)) == len(
            list((ROOT / "src" / "tacit").glob("*/__init__.py"))
        )


def test_every_option_of_a_file_is_explained():
    page = PAGES["docs/reference/experiment-files.md"]
    named = re.findall(r"^<!-- options: (\w+) -->$", page, re.MULTILINE)
    assert sorted(named) == sorted([*experiment.KINDS, "header", "dpia", "tune", "study"])
    assert not re.findall(r"^\| `\w+` \|.*\| +\|$", page, re.MULTILINE)


def test_nothing_is_in_the_reference_twice():
    assert sorted(REFERENCE) == sorted(set(REFERENCE))


def test_whatever_a_user_may_name_is_in_the_reference():
    named = [getattr(tacit, name) for name in tacit.__all__]
    named += [kind for kinds in experiment.KINDS.values() for kind in kinds.values()]
    homes = {(kind.__module__, kind.__qualname__) for kind in named}
    missing = {name for module, name in homes if not {module, f"{module}.{name}"} & set(REFERENCE)}
    assert not missing


def test_every_verb_and_option_is_on_the_page_of_commands():
    page = PAGES["docs/reference/commands.md"]
    for verb, command in VERBS.commands.items():
        for name, part in getattr(command, "commands", {"": command}).items():
            title = f"tacit {verb} {name}".strip()
            assert f"## `{title}" in page, title
            section = page.partition(f"## `{title}")[2].partition("\n## ")[0]
            options = [opt for param in part.params for opt in param.opts if opt.startswith("--")]
            shared = {"--json", "--quiet", "--debug"}
            assert not [opt for opt in options if opt not in shared and f"`{opt}" not in section], title


def test_every_exception_is_on_the_page_of_errors():
    errors = importlib.import_module("tacit.errors")
    page = PAGES["docs/reference/errors.md"]
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, tacit.TacitError):
            assert name in (errors.__doc__ or ""), name
            assert f"#### `{name}`" in page

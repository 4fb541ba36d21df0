"""Generator of the reference pages: every option and parameter with its type, default and meaning.

Pages of `docs/reference/` are written by hand, except blocks that `python -m tools.reference` writes. A block
begins with a comment, `<!-- reference: MODULE -->`, `<!-- reference: MODULE.NAME -->` or
`<!-- options: TABLE -->`, and ends with `<!-- end -->`. Its content comes from signatures and docstrings, so
that a page read in a clone shows what the code does; a test compares them.
"""

import dataclasses
import importlib
import inspect
import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "reference"
# Both hold the map of the package: a line for each folder, with the first line of its docstring.
MAPS = (ROOT / "CONTRIBUTING.md", ROOT / "src" / "tacit" / "__init__.py")
MAP_LINE = re.compile(r"^    (\w+)(?: +)([A-Z].*\.)$", re.MULTILINE)
BLOCK = re.compile(r"(<!-- (reference|options): ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)
SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Guarantee|Guarantees|Example|Examples|Note):$")
PLAIN = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true or false",
    bytes: "bytes",
    object: "anything",
}
PLAIN |= {Path: "path", types.NoneType: "none"}
# A table of a file whose kinds share most of their options, by the base class that has those.
SHARED = {
    "task": "tacit.survival.models.learner.SurvivalLearner",
    "data": "tacit.survival.data.published.Published",
}


class Text(NamedTuple):
    """A docstring: its paragraphs, and the entries of its sections."""

    paragraphs: list[str]
    sections: dict[str, dict[str, str]]


class Option(NamedTuple):
    """A row of a table: a field of a class or a parameter of a function."""

    name: str
    kind: str
    default: str
    meaning: str


def write() -> list[str]:
    """Rewrite the blocks of all pages; return the names of the pages that differed."""
    changed = list[str]()
    for page in (*sorted(PAGES.glob("*.md")), *MAPS):
        before = page.read_text(encoding="utf-8")
        after = rewrite_map(before) if page in MAPS else rewrite(before)
        if after != before:
            changed.append(str(page.relative_to(ROOT)))
            page.write_text(after, encoding="utf-8")
    return changed


def rewrite_map(text: str) -> str:
    """Return a text with every line of the map of the package as the folders describe themselves now."""
    known = {
        path.parent.name: describe_folder(path) for path in (ROOT / "src" / "tacit").glob("*/__init__.py")
    }
    listed = [name for name, _ in MAP_LINE.findall(text)]
    lines = iter([*(name for name in listed if name in known), *sorted(known.keys() - set(listed))])
    rows = [f"    {name:<13}{known[name]}" for name in lines]
    first, last = (list(MAP_LINE.finditer(text))[place] for place in (0, -1))
    return text[: first.start()] + "\n".join(rows) + text[last.end() :]


def describe_folder(init: Path) -> str:
    """Return the first line of the docstring of a folder."""
    return init.read_text(encoding="utf-8").splitlines()[0].strip('"')


def rewrite(page: str) -> str:
    """Return a page with every generated block as the code has it now."""
    writers = {"reference": reference, "options": options}
    return BLOCK.sub(lambda found: f"{found[1]}\n{writers[found[2]](found[3])}\n{found[4]}", page)


def reference(name: str) -> str:
    """Describe a module with its public classes and functions, or one of them."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        home, _, attribute = name.rpartition(".")
        return "\n".join(member(attribute, getattr(importlib.import_module(home), attribute), 3))
    lines = [f"### `{name}`", ""]
    for paragraph in parse(inspect.getdoc(module)).paragraphs:
        lines += [paragraph, ""]
    for attribute, value in vars(module).items():
        is_public = not attribute.startswith("_") and getattr(value, "__module__", None) == name
        if is_public and (inspect.isclass(value) or inspect.isfunction(value)) and value.__doc__:
            lines += member(attribute, value, 4)
    return "\n".join(lines)


def member(name: str, value: Any, level: int) -> list[str]:  # noqa: ANN401
    """Describe a class or a function: what it is, its parameters, what it returns and raises, its methods."""
    text = parse(inspect.getdoc(value))
    lines = [f"{'#' * level} `{name}`", ""]
    if inspect.isfunction(value):
        lines += [f"`{signature(name, value)}`", ""]
    for paragraph in text.paragraphs:
        lines += [paragraph, ""]
    kind = vars(value).get("kind") if inspect.isclass(value) else None
    if isinstance(kind, str):
        lines += [f'In a file: `kind = "{kind}"`.', ""]
    if inspect.isfunction(value):
        rows = parameters(value, text)
        lines += table("parameter", rows) if any(row.meaning for row in rows) else []
    elif not issubclass(value, BaseException):
        lines += table("option", class_options(value))
    for title in ("Guarantee", "Guarantees", "Returns", "Yields", "Raises", "Note"):
        lines += section(title, text.sections.get(title, {}))
    return lines + (methods(value) if inspect.isclass(value) else [])


def section(title: str, entries: Mapping[str, str]) -> list[str]:
    """Describe what a function guarantees, returns or raises, one line each."""
    lines = [
        f"*{title}* {f'`{name}`: ' if name else ''}{meaning}" for name, meaning in entries.items() if meaning
    ]
    return [part for line in lines for part in (line, "")]


def methods(kind: type) -> list[str]:
    """List the public methods and properties of a class that have a docstring of their own."""
    rows = list[str]()
    for name, value in vars(kind).items():
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        is_property = isinstance(plain, property) or type(plain).__name__ == "cached_property"
        doc = parse(inspect.getdoc(plain)).paragraphs if is_property or inspect.isfunction(plain) else []
        if doc and not name.startswith("_"):
            shown = name if is_property else signature(name, plain)
            rows.append(f"| `{escape(shown)}` | {escape(' '.join(doc))} |")
    return ["| member | meaning |", "| --- | --- |", *rows, ""] if rows else []


def signature(name: str, function: Callable[..., Any]) -> str:
    """Write a function with its parameters and defaults, without types."""
    parts, was_keyword = list[str](), False
    for place, one in enumerate(inspect.signature(function).parameters.values()):
        if place == 0 and one.name in ("self", "cls"):
            continue
        keyword = one.kind is one.KEYWORD_ONLY
        parts += ["*"] if keyword and not was_keyword else []
        was_keyword |= keyword or one.kind is one.VAR_POSITIONAL
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        parts.append(f"{stars}{one.name}" + ("" if one.default is one.empty else f"={shown(one.default)}"))
    return f"{name}({', '.join(parts)})"


def options(name: str) -> str:
    """Describe every kind of a table of an experiment file, with every option."""
    from tacit.experiments import experiment

    if name == "header":
        return "\n".join(table("key", class_options(experiment.Header, toml=True)))
    kinds = extra_kinds(name) or experiment.KINDS[name]
    shared = load(SHARED[name]) if name in SHARED else None
    family = [kind for kind in kinds.values() if shared and issubclass(kind, shared)]
    lines, common = list[str](), list[Option]()
    for word, kind in kinds.items():
        rows = class_options(kind, toml=True)
        if kind in family:
            if kind is family[0]:
                common = [row for row in rows if all(in_class(other, row.name) for other in family)]
                lines += shared_options(name, kinds, family, common)
            rows = [row for row in rows if row not in common]
            if not rows and name == "data":
                continue
        lines += (
            []
            if name == word
            else [f"### `{name}`: `{word}`" if " " not in word else f"### `{name}` {word}", ""]
        )
        lines += [*parse(inspect.getdoc(kind)).paragraphs[:1], ""]
        lines += ["The shared options, and:" if rows else "The shared options.", ""] if kind in family else []
        lines += table("key", rows) if rows or kind in family else ["It has no options.", ""]
    return "\n".join(lines)


def extra_kinds(name: str) -> dict[str, type]:
    """Kinds of tables that are no option of a run: answers for a page, and requests for many runs."""
    from tacit.experiments.studies.curves import CurveFactors
    from tacit.experiments.studies.environments import WorldFactors
    from tacit.experiments.tuning.selection import Tuning
    from tacit.reports.dpia_form import Answers

    tables = {
        "dpia": {"dpia": Answers},
        "tune": {"tune": Tuning},
        "study": {"of curves": CurveFactors, "of environments": WorldFactors},
    }
    return tables.get(name, {})


def shared_options(
    name: str, kinds: Mapping[str, type], family: list[type], common: list[Option]
) -> list[str]:
    """Describe the options that several kinds of a table have, once."""
    words = ", ".join(f"`{word}`" for word, kind in kinds.items() if kind in family)
    title = f"### `{name}`: " + ("published sets" if name == "data" else "shared options")
    return [title, "", f"Of {words}:", "", *table("key", common)]


def in_class(kind: type, name: str) -> bool:
    """Return whether a dataclass has a field of this name."""
    return name in {entry.name for entry in dataclasses.fields(kind)}


def load(name: str) -> type:
    """Import a class by its dotted path."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def class_options(kind: type, toml: bool = False) -> list[Option]:
    """List the fields of a dataclass, or what another class is called with, in order."""
    own = "__init__" in vars(kind) and "__dataclass_params__" not in vars(kind)
    if own or not dataclasses.is_dataclass(kind):
        made = kind.__init__
        return parameters(made, parse(inspect.getdoc(kind))) if inspect.isfunction(made) else []
    meanings = inherited_meanings(kind)
    hints = hints_of(kind)
    rows = list[Option]()
    for name in inspect.signature(kind.__init__).parameters:
        entry = kind.__dataclass_fields__.get(name)
        # Results of `bind` are no keys of a file.
        bound = toml and entry is not None and bool(entry.metadata.get("bound"))
        if entry is not None and not name.startswith("_") and not bound:
            hint = hints.get(name, entry.type)
            wanted = words_of(hint.type if isinstance(hint, dataclasses.InitVar) else hint)
            rows.append(Option(entry.name, wanted, field_default(entry, toml), meanings.get(entry.name, "")))
    return rows


def inherited_meanings(kind: type) -> dict[str, str]:
    """The meaning of every field, from the docstring of the nearest class that gives one."""
    meanings = dict[str, str]()
    for base in reversed(kind.__mro__):
        known = parse(base.__doc__ and inspect.cleandoc(base.__doc__)).sections
        meanings |= known.get("Args", {}) | known.get("Attributes", {})
    return meanings


def parameters(function: Callable[..., Any], text: Text) -> list[Option]:
    """List the parameters of a function, in order."""
    hints = hints_of(function)
    rows = list[Option]()
    for one in inspect.signature(function).parameters.values():
        if one.name not in ("self", "cls"):
            default = "required" if one.default is one.empty else f"`{shown(one.default)}`"
            default = "any number" if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) else default
            wanted = words_of(hints.get(one.name, one.annotation))
            rows.append(Option(one.name, wanted, default, text.sections.get("Args", {}).get(one.name, "")))
    return rows


def hints_of(value: Any) -> dict[str, Any]:  # noqa: ANN401
    """The types of fields or parameters; those that only a type checker can resolve stay text."""
    try:
        return get_type_hints(value)
    except NameError:
        return {}


def field_default(entry: dataclasses.Field[Any], toml: bool) -> str:
    """Write the default of a field; `none` where it is None."""
    if entry.default is not dataclasses.MISSING:
        return (
            f"`{in_toml(entry.default) if toml else shown(entry.default)}`"
            if entry.default is not None
            else "none"
        )
    if entry.default_factory is not dataclasses.MISSING:
        made = entry.default_factory()
        return f"`{in_toml(made) if toml else shown(made)}`"
    return "required"


def shown(value: object) -> str:
    """Write a default as Python has it; objects by their class."""
    if inspect.isclass(value) or inspect.isfunction(value):
        return value.__name__
    if dataclasses.is_dataclass(value):
        return f"{type(value).__name__}()"
    text = repr(value)
    return text if " at 0x" not in text and len(text) <= 60 else f"{type(value).__name__}(...)"


def in_toml(value: object) -> str:
    """Write a default as a file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key} = {in_toml(entry)}" for key, entry in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(in_toml(entry) for entry in value)}]"
    return f'"{value}"' if isinstance(value, str) else shown(value)


def words_of(kind: Any) -> str:  # noqa: ANN401
    """Write a type in words: `integer`, `list of numbers`, the allowed words, or the name of a class."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is inspect.Parameter.empty or kind is Any:
        return "anything"
    if origin is Literal:
        return " or ".join(f"`{part!r}`" if not isinstance(part, str) else f'`"{part}"`' for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(words_of(part) for part in parts if part is not types.NoneType))
    if isinstance(origin, type):
        return words_of_generic(origin, parts)
    if isinstance(kind, str | TypeVar):
        return f"`{escape(kind if isinstance(kind, str) else kind.__name__)}`"
    return PLAIN.get(kind) or f"`{getattr(kind, '__forward_arg__', getattr(kind, '__name__', str(kind)))}`"


def words_of_generic(origin: type, parts: tuple[Any, ...]) -> str:
    """Write a type with parameters, such as a list, in words."""
    if issubclass(origin, Mapping):
        return f"table of {plural(words_of(parts[-1]))}" if parts else "table"
    if (
        issubclass(origin, Collection | Iterable)
        and issubclass(origin, Sequence | Iterable)
        and origin is not type
    ):
        if origin.__name__ == "ndarray":
            return "array"
        inner = [part for part in parts if part is not ...]
        return f"list of {plural(words_of(inner[0]))}" if inner else "list"
    return "function" if "Callable" in origin.__name__ else f"`{origin.__name__}`"


def plural(words: str) -> str:
    """Return the plural of a type in words."""
    many = {
        "integer": "integers",
        "number": "numbers",
        "text": "texts",
        "path": "paths",
        "true or false": "truth values",
    }
    if words.startswith("list of "):
        return "lists of " + words.removeprefix("list of ")
    if words.startswith("table of "):
        return "tables of " + words.removeprefix("table of ")
    return many.get(words, words)


def table(head: str, rows: Sequence[Option]) -> list[str]:
    """Write options as a Markdown table."""
    if not rows:
        return []
    lines = [f"| `{row.name}` | {row.kind} | {escape(row.default)} | {escape(row.meaning)} |" for row in rows]
    return [f"| {head} | type | default | meaning |", "| --- | --- | --- | --- |", *lines, ""]


def escape(text: str) -> str:
    """Escape what ends a cell of a table."""
    return text.replace("|", "\\|")


def parse(doc: str | None) -> Text:
    """Split a docstring in Google's style into paragraphs and sections; of a module, the same."""
    paragraphs, sections = list[str](), dict[str, dict[str, str]]()
    entries: dict[str, str] | None = None
    for chunk in re.split(r"\n\s*\n", doc or ""):
        lines = chunk.strip("\n").splitlines()
        found = SECTION.match(lines[0]) if lines else None
        if found:
            entries = sections.setdefault(found[1], {})
            read_entries(lines[1:], entries, named=found[1] in ("Args", "Attributes", "Raises"))
        elif lines and entries is not None and lines[0].startswith("    "):
            read_entries(lines, entries, named=False)
        elif lines:
            is_list = any(re.match(r"\s*([-*]|\d+\.) |    ", line) for line in lines)
            paragraphs.append("\n".join(lines) if is_list else " ".join(line.strip() for line in lines))
    return Text(paragraphs, sections)


def read_entries(lines: list[str], entries: dict[str, str], *, named: bool) -> None:
    """Add the lines of a section to its entries, `name: meaning`, continued where a line is indented."""
    name = ""
    for line in lines:
        found = re.match(r"    (\*{0,2}[\w.]+)(?: \([^)]*\))?: (.*)", line) if named else None
        if found:
            name = found[1].lstrip("*")
            entries[name] = found[2].strip()
        else:
            entries[name] = f"{entries.get(name, '')} {line.strip()}".strip()


if __name__ == "__main__":
    for name in write():
        print(f"wrote {name}")

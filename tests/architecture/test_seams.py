"""Contracts are typed: nobody is asked whether it has a hook, and nothing is cast to anything.

A hook is a member of a base class with a default (`TaskBase`, `SourceBase`, `AggregatorBase`). Fields that
are read by their names in a loop come from `fields_of`, which raises where one is missing.
"""

import ast
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "tacit"
# Modules that ask an object for a member it may not have, how often, and the reason.
ASKING = {
    "compat/federated_survival/core/runner.py": (1, "results of splitters of another package"),
    "compat/federated_survival/utils/metrics.py": (
        1,
        "frames of pandas, which need not be imported to know one",
    ),
    "compat/functional_regressor.py": (8, "arrays, frames and curves of other packages, by what they have"),
    "compat/scikit_survival.py": (2, "frames of pandas, which need not be imported to know one"),
    "functional/curves/forms.py": (1, "curves of scikit-fda, which need not be installed"),
    "learning/record.py": (1, "the kind of any dataclass of ours, which only some have"),
    "privacy/ledger/store.py": (1, "the code of an error of SQLite, which only SQLite itself sets"),
    "runs/directory.py": (1, "the scheduler of Linux"),
    "runtime/contracts.py": (2, "the one door: members of a user's own structural class"),
    "runtime/jit.py": (3, "globals of a compiled function, and where numba caches it"),
    "runtime/tables.py": (1, "the mark of a protocol, before typing.is_protocol"),
    "runtime/threads.py": (1, "the scheduler of Linux"),
    "sites/environments.py": (2, "the names of a callable, which only functions have"),
    "survival/models/prediction.py": (1, "frames of pandas, which need not be imported to know one"),
}
# Modules that take a member by its name, which raises where it is missing: how often, and the reason.
BY_NAME = {
    "__init__.py": (1, "public names of the package, loaded on first use"),
    "compat/federated_survival/core/runner.py": (1, "members of the task that a scored one stands for"),
    "learning/elementwise.py": (1, "a function of numpy by its name"),
    "learning/torch_modules.py": (1, "hooks of a module of torch, which has no other way to list them"),
    "runtime/contracts.py": (1, "the one helper that reads fields by their names, `fields_of`"),
    "runtime/imports.py": (2, "names of a module that is imported by its name"),
}
# Lines that mention either word, those with the `__getattr__` of packages and adapters too.
MOST_LINES = 50


def calls(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


def asks(call: ast.Call) -> bool:
    """A call of `hasattr`, or of `getattr` with a default."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return name == "hasattr" or (name == "getattr" and len(call.args) > 2)


def test_nobody_is_asked_for_a_hook_that_may_be_missing():
    found: Counter[str] = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        found[str(path.relative_to(PACKAGE))] += sum(map(asks, calls(path)))
    assert {name: count for name, count in found.items() if count} == {
        name: count for name, (count, _) in ASKING.items()
    }


def test_members_are_taken_by_name_in_one_helper_and_where_python_needs_it():
    found: Counter[str] = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        two = [call for call in calls(path) if isinstance(call.func, ast.Name) and call.func.id == "getattr"]
        found[str(path.relative_to(PACKAGE))] += sum(len(call.args) == 2 for call in two)
    assert {name: count for name, count in found.items() if count} == {
        name: count for name, (count, _) in BY_NAME.items()
    }


def test_few_lines_mention_members_by_name():
    lines = [line for path in PACKAGE.rglob("*.py") for line in path.read_text().splitlines()]
    assert sum("getattr" in line or "hasattr" in line for line in lines) <= MOST_LINES


def test_nothing_is_cast_to_anything():
    told = [
        f"{path.relative_to(PACKAGE)}:{call.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for call in calls(path)
        if isinstance(call.func, ast.Name) and call.func.id == "cast" and ast.unparse(call.args[0]) == "Any"
    ]
    assert told == []

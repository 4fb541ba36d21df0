"""Contracts are typed: nobody is asked whether it has a hook, and nothing is cast to anything.

A hook is a member of a base class with a default (`TaskBase`, `SourceBase`, `AggregatorBase`). Fields may be
read by their names in a loop: that raises where one is missing, so it is no contract.
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


def test_nothing_is_cast_to_anything():
    told = [
        f"{path.relative_to(PACKAGE)}:{call.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for call in calls(path)
        if isinstance(call.func, ast.Name) and call.func.id == "cast" and ast.unparse(call.args[0]) == "Any"
    ]
    assert told == []

"""The limits of the design: files, folders, functions, parameters, and who may charge a ledger."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "tacit"
SOURCES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(PACKAGE)) for path in SOURCES]
LINES, FILES, PARAMETERS = 50, 15, 8
# Modules in all, which a new capability may raise on purpose; and the largest share of them that exactly one
# other imports.
MODULES, SINGLE = 320, 0.1
# Public signatures that tests/golden freezes, figures, and verbs of the command (typer reads options off
# parameters).
MANY_PARAMETERS = {
    "audits/sensitivity/__init__.py check_sensitivity",
    "cli/verbs/deploy.py deploy",
    "cli/verbs/run.py run",
    "cli/verbs/show.py audit",
    "control/figures/learning.py learning_curves",
    "control/figures/learning.py overlay",
    "control/figures/learning.py side_by_side",
    "control/figures/maps.py weight_map",
    "functional/data/__init__.py simulate",
    "functional/figures/__init__.py predictions",
    "functional/figures/__init__.py surface",
    "regression/federated.py linear",
    "regression/federated.py logistic",
    "regression/federated.py poisson",
    "reports/plots/privacy_utility.py by_number",
    "reports/plots/privacy_utility.py by_word",
    "reports/plots/privacy_utility.py privacy_utility",
    "runs/fit.py fit",
    "survival/data/__init__.py simulate",
    "survival/figures/curves.py calibration",
    "survival/statistics/cox_regression.py cox",
    "survival/statistics/federated.py restricted_mean",
}
# The ledger is charged by what runs, by sites and by other libraries' names; a book is part of the ledger.
CHARGING = ("runs/", "deploy/site/", "compat/", "privacy/ledger/")


@cache
def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_a_function_holds_one_thought():
    long = []
    for path, name in zip(SOURCES, NAMES, strict=True):
        for node in functions(path):
            documented = ast.get_docstring(node) is not None and len(node.body) > 1
            first = node.body[1 if documented else 0].lineno
            if (node.end_lineno or first) - first >= LINES:
                long.append(f"{name}:{node.lineno} {node.name}")
    assert long == []


def test_a_folder_holds_at_most_fifteen_files():
    counts = Counter(str(path.parent.relative_to(PACKAGE)) for path in SOURCES)
    assert {folder: count for folder, count in counts.items() if count > FILES} == {}


def importers() -> dict[str, set[str]]:
    """For each module, the modules that import it anywhere: at the top, in functions, for types."""
    known = {name_of(path): path for path in SOURCES}
    found: dict[str, set[str]] = {name: set() for name in known}
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.module is not None
                assert not node.level
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                imported = {one if one in known else node.module for one in whole}
            elif isinstance(node, ast.Import):
                imported = {alias.name for alias in node.names}
            else:
                continue
            for one in imported & known.keys() - {name}:
                found[one].add(name)
    return found


def name_of(path: Path) -> str:
    """The dotted name of a module."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def test_a_module_that_one_other_imports_belongs_into_it():
    packages = {name_of(path) for path in SOURCES if path.name in ("__init__.py", "__main__.py")}
    single = sorted(name for name, by in importers().items() if len(by) == 1 and name not in packages)
    assert len(SOURCES) <= MODULES
    assert len(single) <= SINGLE * len(SOURCES), single


def test_nothing_lies_loose_beside_the_tree_of_errors():
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "errors.py"}


def test_options_travel_as_one_object_and_not_as_nine_parameters():
    many = set()
    for path, name in zip(SOURCES, NAMES, strict=True):
        for node in functions(path):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if sum(one.arg not in ("self", "cls") for one in given) > PARAMETERS:
                many.add(f"{name} {node.name}")
    assert many == MANY_PARAMETERS


def test_a_ledger_is_charged_where_runs_sites_and_books_are():
    charging = {
        name
        for path, name in zip(SOURCES, NAMES, strict=True)
        if re.search(r"\.charge\(", path.read_text()) and not name.startswith(CHARGING)
    }
    assert charging == set()

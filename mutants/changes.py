"""Mutants of a source file: one number, operator or comparison replaced by another, at one place.

Annotations, decorators, messages and raised exceptions are not changed: no promise depends on them.
"""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

Kind = Literal["number", "operator", "comparison"]

# Modules by pattern, from the root of the package.
SCOPE = (
    "privacy/**/*.py",
    "audits/lower_bounds.py",
    "audits/membership_statistics.py",
    "audits/tradeoff.py",
    "runs/setup.py",
    "runs/trainer.py",
    "runs/context.py",
    "aggregation/**/*.py",
    "survival/models/losses.py",
    "engines/**/*.py",
)
OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"), ast.Pow: ("**", "*"), ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.BitXor: ("^", "|"),
}  # fmt: skip
COMPARISONS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="),
}  # fmt: skip
Within = tuple[int, int] | None


@dataclass(frozen=True, order=True)
class Mutant:
    """A module with one change.

    Args:
        path: The module, from the root of the package.
        line: Where the change begins.
        start: The same, in bytes from the beginning of the file.
        end: Where it ends.
        before: The text that is replaced.
        after: The text that replaces it.
        kind: The kind of change.
        text: The line as it was.
        within: First and last line of the statement that it changes; None where tests cannot be chosen by
            line, since it is executed on import or compiled.
    """

    path: str
    line: int
    start: int
    end: int
    before: str
    after: str
    kind: Kind
    text: str
    within: Within

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {self.before} -> {self.after}  in  {self.text}"

    def apply(self, source: bytes) -> bytes:
        """Return the source with the change."""
        assert source[self.start : self.end] == self.before.encode()
        return source[: self.start] + self.after.encode() + source[self.end :]


def sample(package: Path, count: int, seed: int) -> list[Mutant]:
    """Draw mutants from all modules of the scope, each place as likely as any other."""
    paths = sorted({path for pattern in SCOPE for path in package.glob(pattern)})
    every = [
        mutant
        for path in paths
        for mutant in mutants(path.relative_to(package).as_posix(), path.read_bytes(), seed)
    ]
    return sorted(random.Random(seed).sample(every, min(count, len(every))))


def mutants(path: str, source: bytes, seed: int) -> list[Mutant]:
    """Return a mutant for each place of a module that can be changed."""
    finder = _Finder(path, source, random.Random(f"{seed} {path}"))
    finder.visit(ast.parse(source))
    return finder.found


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: bytes, chance: random.Random) -> None:
        self.path, self.source, self.chance = path, source, chance
        self.found: list[Mutant] = []
        self.lines = source.decode().splitlines()
        self.begins = [0]
        for line in source.splitlines(keepends=True):
            self.begins.append(self.begins[-1] + len(line))
        # Whether tests can be chosen by the lines that they execute, and those of the statement.
        self.traced, self.within = False, None

    def visit(self, node: ast.AST) -> None:
        before = self.within
        if self.traced and isinstance(node, ast.stmt):
            self.within = (node.lineno, _header_end(node))
        super().visit(node)
        self.within = before

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        before, self.traced = self.traced, not any(map(_compiles, node.decorator_list))
        within, self.within = self.within, None
        for statement in node.body:
            self.visit(statement)
        self.traced, self.within = before, within

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Messages are read, not computed with."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Formatted strings are messages too."""

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if type(value) is int:
            other = repr(value + (1 if value < 2 else self.chance.choice((-1, 1))))
        elif type(value) is float:
            other = repr(value * self.chance.choice((0.5, 2.0)) if value else 1.0)
        else:
            return
        self._add("number", node, self._place(node), other)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub):
            start, _ = self._place(node)
            self._add("operator", node, (start, start + 1), "+")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not (_is_text(node.left) or _is_text(node.right)):
            self._between("operator", OPERATORS, node.op, node.left, node.right)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if not _is_text(node.value):
            self._between("operator", OPERATORS, node.op, node.target, node.value)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, op, right in zip((node.left, *node.comparators), node.ops, node.comparators, strict=False):
            self._between("comparison", COMPARISONS, op, left, right)
        self.generic_visit(node)

    def _between(
        self,
        kind: Kind,
        known: dict[type[ast.AST], tuple[str, str]],
        op: ast.AST,
        left: ast.expr,
        right: ast.expr,
    ) -> None:
        if type(op) not in known:
            return
        sign, other = known[type(op)]
        first, last = self._place(left)[1], self._place(right)[0]
        start = first + self.source[first:last].index(sign.encode())
        self._add(kind, left, (start, start + len(sign)), other)

    def _place(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.begins[node.lineno - 1] + node.col_offset, self.begins[
            node.end_lineno - 1
        ] + node.end_col_offset

    def _add(self, kind: Kind, node: ast.expr, place: tuple[int, int], after: str) -> None:
        start, end = place
        line = self.source.count(b"\n", 0, start) + 1
        made = partial(Mutant, path=self.path, line=line, start=start, end=end, kind=kind, within=self.within)
        before, text = self.source[start:end].decode(), self.lines[line - 1].strip()
        self.found.append(made(before=before, after=after, text=text))


def _header_end(node: ast.stmt) -> int:
    """Return the last line of a statement itself, without the statements in its body."""
    body: list[ast.stmt] = getattr(node, "body", [])
    return max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno


def _compiles(decorator: ast.expr) -> bool:
    return any(isinstance(one, ast.Name) and one.id.startswith("compiled") for one in ast.walk(decorator))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def places(package: Path, seed: int) -> Iterator[Mutant]:
    """Yield every mutant of the scope."""
    yield from sample(package, 10**9, seed)

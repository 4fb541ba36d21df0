"""The engine of many runs: what is run, what is kept, what is gone on with, and what people are told."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.errors import InvalidValue, RunUnusable, TacitError
from tacit.experiments.batch import (
    CELLS,
    Cell,
    CellBatch,
    Row,
    count_words,
    finite,
    join_words,
    require_distinct,
    row_of,
    student_interval,
)
from tacit.experiments.experiment import Experiment
from tacit.runtime.tables import Table


@dataclass(frozen=True, kw_only=True)
class Square(Cell):
    number: int

    def __str__(self) -> str:
        return f"number {self.number}"


@dataclass(frozen=True, kw_only=True)
class Squares(CellBatch[Square, dict[int, Any]]):
    """Squares of whole numbers; three has none."""

    count: int = 5
    run_so_far: list[int] = field(default_factory=list, compare=False)
    dies_at: int | None = None

    @classmethod
    def construct(cls, document: Table, folder: Path) -> Self:
        return cls(experiment=cast(Experiment, None), document=document, folder=folder)

    @property
    def cells(self) -> tuple[Square, ...]:
        return tuple(Square(number=number) for number in range(self.count))

    def check(self) -> None:
        if self.count < 1:
            raise InvalidValue("there is nothing to square")

    def run_cell(self, cell: Square, place: Path | None) -> Row:
        if cell.number == self.dies_at:
            raise KeyboardInterrupt
        self.run_so_far.append(cell.number)

        def square() -> Row:
            if cell.number == 3:
                raise InvalidValue("three is not squared")
            return {"square": cell.number**2}

        return row_of(cell, square)

    def outcome(self, row: Row) -> str:
        return f"{row['square']}"

    def result(self, rows: Mapping[Square, Row], path: Path | None) -> dict[int, Any]:
        return {cell.number: row.get("square") for cell, row in rows.items()}


class Obstinate(Squares):
    """Squares that are not tried again."""

    retries: ClassVar[bool] = False


WHOLE = {0: 0, 1: 1, 2: 4, 3: None, 4: 16}


def squares(kind: type[Squares] = Squares, **options: Any) -> Squares:
    return replace(kind.construct({"name": "squares"}, Path()), run_so_far=[], **options)


def kept(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / CELLS).read_text().splitlines()]


def test_every_cell_is_run_once_and_told_of():
    lines: list[str] = []
    batch = squares()
    assert batch.run(announce=lines.append) == WHOLE
    assert batch.run_so_far == [0, 1, 2, 3, 4]
    assert lines[0] == "1 of 5: number 0: 0"
    assert lines[3] == "4 of 5: number 3: failed: three is not squared"


def test_rows_are_kept_as_lines_of_their_own(tmp_path):
    squares().run(tmp_path / "run")
    assert kept(tmp_path / "run")[2] == {"number": 2, "square": 4, "failed": None}
    assert [row["number"] for row in kept(tmp_path / "run")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dies_at", range(5))
def test_a_batch_that_is_cut_off_goes_on_where_it_was(tmp_path, dies_at):
    with pytest.raises(KeyboardInterrupt):
        squares(dies_at=dies_at).run(tmp_path / "run")
    rest = squares()
    assert rest.run(tmp_path / "run", resume=True) == WHOLE
    assert rest.run_so_far == ([3, 4] if dies_at == 4 else list(range(dies_at, 5)))


@given(cut=st.integers(0, 200))
def test_a_file_that_ends_anywhere_is_gone_on_with(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("cut") / "run"
    squares().run(folder)
    whole = (folder / CELLS).read_bytes()
    (folder / CELLS).write_bytes(whole[:cut])
    lines: list[str] = []
    assert squares().run(folder, resume=True, announce=lines.append) == WHOLE
    assert sorted(row["number"] for row in kept(folder)) == [0, 1, 2, 3, 4]
    assert lines[-1].startswith("5 of 5: ")


def test_what_failed_is_tried_again_unless_it_would_fail_again(tmp_path):
    for kind, again in ((Squares, [3]), (Obstinate, [])):
        squares(kind).run(tmp_path / kind.__name__)
        batch = squares(kind)
        assert batch.run(tmp_path / kind.__name__, resume=True) == WHOLE
        assert batch.run_so_far == again


def test_nothing_is_claimed_by_what_is_refused_nor_taken_from_another(tmp_path):
    with pytest.raises(InvalidValue, match="nothing to square"):
        squares(count=0).run(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    squares().run(tmp_path / "run")
    with pytest.raises(RunUnusable):
        squares().run(tmp_path / "run")
    with pytest.raises(RunUnusable):
        replace(squares(), document={"name": "cubes"}).run(tmp_path / "run", resume=True)


def test_a_row_says_why_it_has_no_score():
    def broken(error: Exception) -> Row:
        raise error

    cell = Square(number=1)
    assert row_of(cell, lambda: broken(TacitError("no")))["failed"] == "no"
    assert row_of(cell, lambda: broken(KeyError("x")))["failed"] == "a bug of ours, KeyError: 'x'"


@given(cell=st.builds(Square, number=st.integers(-(2**53), 2**53)))
def test_a_cell_is_known_by_its_row(cell):
    assert Square.from_row(json.loads(json.dumps(cell.row))) == cell


def test_numbers_and_words():
    assert [finite(value) for value in (1, math.inf, math.nan, None)] == [1.0, None, None, None]
    assert [count_words(count, "seed") for count in (1, 2)] == ["1 seed", "2 seeds"]
    assert [join_words(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])] == [
        "a",
        "a and b",
        "a, b and c",
    ]
    values = [0.5, 0.7, 0.9]
    low, high = student_interval(values)
    reference = stats.t.interval(0.95, 2, loc=0.7, scale=stats.sem(values))
    assert (low, high) == pytest.approx(reference)


def test_lists_are_of_different_values():
    require_distinct(parties=None, epsilons=(1, 2))
    with pytest.raises(InvalidValue, match="at least one"):
        require_distinct(parties=())
    with pytest.raises(InvalidValue, match="different"):
        require_distinct(parties=(2, 2))

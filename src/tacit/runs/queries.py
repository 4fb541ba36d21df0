"""Queries: asked of the sites once, before the first round or after the last, and saved for resuming."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from tacit.errors import BudgetExhausted
from tacit.learning.task import FinalQuery, InitialQuery, Query, Task
from tacit.runs.directory import OPENED, Directory
from tacit.runtime.arrays import Array


def initial_query_of(task: Task) -> InitialQuery | None:
    """Return the task's initial query, asked before the first round; None if it needs none."""
    return cast("InitialQuery | None", getattr(task, "initial_query", None))


def final_query_of(task: Task) -> FinalQuery | None:
    """Return the task's final query, asked after the last round; None if it needs none."""
    return cast("FinalQuery | None", getattr(task, "final_query", None))


def queries_of(task: Task) -> list[Query]:
    """Everything that a task asks once."""
    return [part for part in (initial_query_of(task), final_query_of(task)) if part is not None]


@contextmanager
def skip_if_unaffordable(question: Query | None, left: list[str], *, resumed: bool) -> Generator[None]:
    """Ask a question; where a resumed run has no budget for it any more, note it as left out instead.

    What was cut off and could not be repeated was paid twice, so that the plan no longer fits the budget.
    """
    try:
        yield
    except BudgetExhausted:
        if not resumed or question is None:
            raise
        left.append(f"the query for the {question.kind}")


def findings(task: Task, state: Array) -> list[str]:
    """Return the task's own sentences about its result; empty for most tasks."""
    return cast(Any, task).findings(state) if hasattr(task, "findings") else []


def shortcomings(task: Task, state: Array) -> list[str]:
    """Return the task's warnings against using its result as it stands; empty for most tasks."""
    return cast(Any, task).shortcomings(state) if hasattr(task, "shortcomings") else []


def with_answers(task: Task, found: dict[str, Any]) -> Task:
    """A task that knows what its opening found out."""
    return cast(Task, replace(cast(Any, task), **found))


def with_saved_answers(task: Task, directory: Directory) -> Task:
    """A task that knows what the run in a directory found out before its first round."""
    found = directory.read_json(OPENED) if initial_query_of(task) is not None else None
    return task if found is None else with_answers(task, found)

"""What is asked of the sites once, before the first round or after the last, and how that is kept."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from tacit.errors import BudgetExhausted
from tacit.learning.task import FinalQuery, InitialQuery, Query, Task
from tacit.runs.directory import OPENED, Directory
from tacit.runtime.arrays import Array


def initial_query_of(task: Task) -> InitialQuery | None:
    """What a task has to know before the first round; a user's own task need not say."""
    return cast("InitialQuery | None", getattr(task, "initial_query", None))


def final_query_of(task: Task) -> FinalQuery | None:
    """What a task has to know after the last round; a user's own task need not say."""
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
        left.append(f"the question for the {question.kind}")


def findings(task: Task, state: Array) -> list[str]:
    """What a task has to say of its result, in words; most say nothing."""
    return cast(Any, task).findings(state) if hasattr(task, "findings") else []


def shortcomings(task: Task, state: Array) -> list[str]:
    """Why the result of a task should not be taken as it stands, in words; most have nothing to say."""
    return cast(Any, task).shortcomings(state) if hasattr(task, "shortcomings") else []


def with_answers(task: Task, found: dict[str, Any]) -> Task:
    """A task that knows what its opening found out."""
    return cast(Task, replace(cast(Any, task), **found))


def with_saved_answers(task: Task, directory: Directory) -> Task:
    """A task that knows what the run in a directory found out before its first round."""
    found = directory.read_json(OPENED) if initial_query_of(task) is not None else None
    return task if found is None else with_answers(task, found)

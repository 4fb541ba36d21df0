"""Queries: asked of the sites once, before the first round or after the last, and saved for resuming."""

import hmac
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from tacit.errors import BudgetExhausted
from tacit.learning.query import FinalQueryBase, InitialQueryBase, QueryBase, as_final_query, as_initial_query
from tacit.learning.task import TaskBase
from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger.store import Ledger
from tacit.runs.directory import OPENED, Directory
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key


def initial_query_of(task: TaskBase) -> InitialQueryBase | None:
    """Return the task's initial query, asked before the first round; None if it needs none."""
    return as_initial_query(task.initial_query)


def final_query_of(task: TaskBase) -> FinalQueryBase | None:
    """Return the task's final query, asked after the last round; None if it needs none."""
    return as_final_query(task.final_query)


def queries_of(task: TaskBase) -> list[QueryBase]:
    """Return the queries of a task, initial and final."""
    return [part for part in (initial_query_of(task), final_query_of(task)) if part is not None]


@contextmanager
def skip_if_unaffordable(question: QueryBase | None, left: list[str], *, resumed: bool) -> Generator[None]:
    """Ask a question; where a resumed run has no budget for it any more, note it as left out instead.

    What was cut off and could not be repeated was paid twice, so that the plan no longer fits the budget.
    """
    try:
        yield
    except BudgetExhausted:
        if not resumed or question is None:
            raise
        left.append(f"the query for the {question.kind}")


def with_saved_answers(task: TaskBase, directory: Directory) -> TaskBase:
    """Return the task with the answers that the run in a directory has saved."""
    found = directory.read_json(OPENED) if initial_query_of(task) is not None else None
    return task if found is None else task.with_answers(found)


def charge_sums(
    ledger: Ledger,
    releases: Sequence[Release],
    name: str,
    sums: Mapping[str, Array],
    key: Key,
    plan: str | None,
) -> None:
    """Charge sums that are released once, beside the rounds.

    The ticket names these very sums: others are charged, and draw their noise, anew.

    Args:
        ledger: The ledger of the run.
        releases: Their releases, at every site.
        name: The name of the question.
        sums: The contributions at each site.
        key: The key of the question; the ticket depends on its entropy.
        plan: The plan that they are a part of.
    """
    digest = hmac.new(key.entropy, name.encode(), "sha256")
    for site, found in sums.items():
        digest.update(repr((site, found.shape)).encode() + found.tobytes())
    ledger.charge(releases, ticket=digest.hexdigest(), plan=plan)

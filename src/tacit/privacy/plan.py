"""What an experiment will cost, before it touches data.

A plan solves the promise for its noise and prices every round. It needs public facts alone.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tacit.privacy import accounting
from tacit.privacy.accounting.release import Release
from tacit.privacy.contracts import AggregatorSpec, QuerySpec, TaskSpec, exempt, with_privacy
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.snr import SignalToNoise, signal_to_noise, snr_warnings
from tacit.privacy.statement import Statement, state
from tacit.runtime.markup import facts

# Above this, a promise says little to the person it protects.
WEAK_EPSILON = 10.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A promise, its noise and its price.

    Args:
        statement: The promise, at the price of all rounds.
        rounds: How many are planned.
        noise_multiplier: Noise in units of the clip bound; None in an open run.
        spends: Epsilon after so many rounds, the last entry being one round more than planned.
        comparisons: Epsilon of the planned rounds by other theorems.
        budget: The epsilon that was asked for, if one was.
        warnings: What the author of the experiment may want to reconsider.
        signal: How long an update is against its noise, where that is known before the run.
        releases: What all rounds release, if everybody joins each.
    """

    statement: Statement
    rounds: int
    noise_multiplier: float | None
    spends: dict[int, float]
    comparisons: dict[str, float | None]
    budget: float | None
    warnings: tuple[str, ...]
    signal: SignalToNoise | None = None
    releases: tuple[Release, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        fields = ("rounds", "noise_multiplier", "spends", "comparisons", "budget", "warnings")
        told = {} if self.signal is None else {"signal": self.signal.as_dict()}
        return {"promise": self.statement.as_dict(), **{name: getattr(self, name) for name in fields}, **told}

    def _repr_html_(self) -> str:
        noise = (
            [] if self.noise_multiplier is None else [("Noise", f"{self.noise_multiplier:.4f} clip bounds")]
        )
        spends = [(f"Epsilon after {rounds} rounds", f"{price:.4g}") for rounds, price in self.spends.items()]
        budget = [] if self.budget is None else [("Budget", f"{self.budget:g}")]
        minded = [("Warning", warning) for warning in self.warnings]
        told = facts(f"Plan of {self.rounds} rounds", [*noise, *budget, *spends, *minded])
        return told + self.statement._repr_html_()  # pyright: ignore[reportPrivateUsage]


def plan(
    privacy: Privacy | Open,
    task: TaskSpec,
    sites: Collection[str],
    aggregation: AggregatorSpec,
    rounds: int,
    *,
    sampling: Literal["poisson", "fixed"] = "poisson",
    records: int | None = None,
    training: Privacy | Open | None = None,
    also: Collection[Release] = (),
    once: Collection[Release] = (),
    questions: Sequence[QuerySpec] = (),
    watched: bool = False,
    models: int = 1,
) -> Plan:
    """Solve a promise for its noise and price it.

    Args:
        privacy: The promise.
        task: What is learnt.
        sites: The names of the sites.
        aggregation: How updates are combined.
        rounds: How many.
        sampling: How the sites of a round are drawn.
        records: How many records there are in all, if that is public.
        training: What is left of the promise for training, if something else is paid from it.
        also: What else is released in every round.
        once: What else is released once.
        questions: What is asked once, before or after all rounds.
        watched: Whether the server decides about sites by looking at their updates.
        models: How many models share the sites.

    Raises:
        Refused: The promise cannot be kept for this combination.
    """
    kept, task = training or privacy, with_privacy(task, privacy)
    mechanism = kept.solve(
        task, sites, aggregation, rounds,
        sampling=sampling, records=records, questions=questions, watched=watched,
    )  # fmt: skip
    asked = [
        replace(release, purpose=part.kind)
        for part in questions
        for release in kept.solve_query(part, mechanism).release(0, sites)
    ]
    before, one_round = (
        [*mechanism.count_releases(sites), *asked, *once],
        [*mechanism.release(1, sites), *also],
    )
    whole = before + _times(one_round, rounds)
    statement = state(privacy, whole, but=exempt(task))
    if isinstance(privacy, Open):
        warnings = ("the run is open: give it a [privacy] table to protect records or sites",)
        return Plan(
            statement=statement,
            rounds=rounds,
            noise_multiplier=None,
            spends={},
            comparisons={},
            budget=None,
            warnings=warnings,
        )
    marks = sorted({1, (rounds + 1) // 2, rounds, rounds + 1})
    heard = signal_to_noise(privacy, mechanism, getattr(task, "width", None), len(sites) // models, rounds)
    return Plan(
        statement=statement,
        rounds=rounds,
        noise_multiplier=getattr(mechanism, "multiplier", None),
        spends={mark: accounting.epsilon(before + _times(one_round, mark), privacy.delta) for mark in marks},
        comparisons=accounting.compare(whole, privacy.delta),
        budget=privacy.epsilon,
        warnings=(*_warnings(privacy, statement, sites, records), *snr_warnings(heard)),
        signal=heard,
        releases=tuple(whole),
    )


def _times(releases: Collection[Release], rounds: int) -> list[Release]:
    return [replace(release, count=release.count * rounds, purpose="") for release in releases]


def _warnings(
    privacy: Privacy, statement: Statement, sites: Collection[str], records: int | None
) -> list[str]:
    found: list[str] = []
    if statement.rehearsal:
        found.append("a rehearsal repeats its noise and protects nobody; remove rehearsal for private data")
    if statement.epsilon is not None and statement.epsilon > WEAK_EPSILON:
        found.append(f"epsilon {statement.epsilon:.3g} promises little; {WEAK_EPSILON:g} or less is usual")
    units = records if privacy.unit == "record" else len(sites)
    if units is not None and privacy.delta * units > 1:
        found.append(
            f"delta {privacy.delta:g} is above one in {units:,} {privacy.unit}s: somebody may be exposed"
        )
    elif records is not None and privacy.unit == "record" and privacy.delta * 10 * records > len(sites):
        each = records // max(len(sites), 1)
        found.append(
            f"delta {privacy.delta:g} is loose for a site of about {each:,} records; 1e-5 or less is safer"
        )
    return found

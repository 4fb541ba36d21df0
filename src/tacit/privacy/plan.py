"""Price of an experiment before it touches data, and its signal-to-noise ratio.

`runs.setup.prepare`, which runs and plans share, decides what is released; here it is put into numbers and
words. That needs public facts alone. The signal-to-noise ratio compares the length of an update with that of
the noise, so that a run that cannot learn anything is refused before it is paid.
"""

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tacit.privacy import accounting
from tacit.privacy.accounting.release import Release
from tacit.privacy.contracts import TaskSpec
from tacit.privacy.forecast import Forecast
from tacit.privacy.mechanisms.base import Mechanism, Multiplied
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.statement import Statement, facts, state
from tacit.runtime.contracts import fields_of

# Updates point the same way from round to round, noise does not: over T rounds one grows T times, the other
# by the root of T. Below this ratio over the whole run, private policies were never seen to learn.
AUDIBLE = 5.0


@dataclass(frozen=True, kw_only=True)
class SignalToNoise:
    """Signal-to-noise ratio of a mean update in one round, by the clip bound.

    Args:
        update: Largest length of the mean of clipped updates, in bounds; under an L1 bound, of updates that
            move all numbers alike.
        noise: Length of its noise, in bounds.
        sites: Number of sites in the mean.
        numbers: Number of coordinates of an update.
        rounds: Number of rounds.
    """

    update: float
    noise: float
    sites: float
    numbers: int
    rounds: int

    @property
    def whole(self) -> float:
        """The signal of all rounds over the noise of all rounds, at best."""
        return self.update / self.noise * math.sqrt(self.rounds)

    @property
    def drowned(self) -> bool:
        """Return True if the signal is too weak for learning to be expected."""
        return self.whole < AUDIBLE

    def as_dict(self) -> dict[str, float]:
        """Return plain data for JSON."""
        return {**asdict(self), "whole": self.whole}

    def sentence(self) -> str:
        """Return the warning in words."""
        return (
            f"the noise will hide the signal: the mean of {self.sites:g} updates of {self.numbers:,} numbers "
            f"has norm at most {self.update:.3g}, its noise norm {self.noise:.3g}; over {self.rounds} rounds "
            f"that is {self.whole:.2g} to 1, and below ratio {AUDIBLE:g} no run learned anything. Take more "
            "sites, fewer numbers, or a larger epsilon"
        )


def snr_warnings(heard: SignalToNoise | None) -> list[str]:
    """Return warnings for the author of an experiment."""
    return [heard.sentence()] if heard is not None and heard.drowned else []


def signal_to_noise(
    privacy: Privacy, mechanism: Mechanism, numbers: int | None, sites: int, rounds: int
) -> SignalToNoise | None:
    """Compute the signal-to-noise ratio of a site-level promise, for updates of `numbers` coordinates.

    None for record-level promises, or if the number of coordinates is not known.
    """
    if privacy.unit != "site" or numbers is None:
        return None
    came = max(privacy.participation * sites, 1.0)
    # An L1 bound leaves a vector that moves all numbers by normal amounts this part of it, in L2.
    dense = 1.0 if privacy.mechanism == "gaussian" else math.sqrt(math.pi / 2 / numbers)
    noise = mechanism.deviation(max(round(came), 1)) * math.sqrt(numbers) / privacy.site_clip
    return SignalToNoise(update=dense, noise=noise, sites=came, numbers=numbers, rounds=rounds)


# Above this, a promise says little to the person it protects.
WEAK_EPSILON = 10.0
# Data of unknown size mostly have more records than this.
FEW_RECORDS = 1000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A promise, its noise and its price.

    Args:
        statement: The promise, at the price of all rounds.
        rounds: Number of planned rounds.
        noise_multiplier: Noise in units of the clip bound; None in an open run.
        spends: Epsilon by number of rounds; the last entry is one round more than planned.
        comparisons: Epsilon of the planned rounds by other theorems.
        budget: The budget, if one is set.
        warnings: Warnings for the author of the experiment.
        signal: Length of an update against its noise, where that is known before the run.
        forecast: The expected accuracy, where there is a forecast.
        choices: Sentences on what was chosen for this promise, and why.
        releases: Releases of all rounds if every site joins each.
    """

    statement: Statement
    rounds: int
    noise_multiplier: float | None
    spends: dict[int, float]
    comparisons: dict[str, float | None]
    budget: float | None
    warnings: tuple[str, ...]
    signal: SignalToNoise | None = None
    forecast: Forecast | None = None
    choices: tuple[str, ...] = ()
    releases: tuple[Release, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        names = ("rounds", "noise_multiplier", "spends", "comparisons", "budget", "warnings")
        told: dict[str, Any] = {} if self.signal is None else {"signal": self.signal.as_dict()}
        told |= {} if self.forecast is None else {"forecast": self.forecast.as_dict()}
        told |= {"choices": self.choices} if self.choices else {}
        return {"promise": self.statement.as_dict(), **fields_of(self, names), **told}

    def _repr_html_(self) -> str:
        noise = (
            [] if self.noise_multiplier is None else [("Noise", f"{self.noise_multiplier:.4f} clip bounds")]
        )
        spends = [(f"Epsilon after {rounds} rounds", f"{price:.4g}") for rounds, price in self.spends.items()]
        budget = [] if self.budget is None else [("Budget", f"{self.budget:g}")]
        spends += [("Choice", sentence) for sentence in self.choices]
        spends += [] if self.forecast is None else [("Forecast", self.forecast.sentence())]
        minded = [("Warning", warning) for warning in self.warnings]
        told = facts(f"Plan of {self.rounds} rounds", [*noise, *budget, *spends, *minded])
        return told + self.statement._repr_html_()  # pyright: ignore[reportPrivateUsage]


@dataclass(frozen=True)
class PlannedPrice:
    """Planned releases of a run.

    Args:
        once: Releases made once, before or after all rounds.
        each: Releases of a round if every site joins it: of every round where they differ in their noise, of
            one where they differ in their number alone.
        rounds: Number of planned rounds.
        scores: Releases about held-out records, made once after the last round.
    """

    once: tuple[Release, ...]
    each: tuple[tuple[Release, ...], ...]
    rounds: int
    scores: tuple[Release, ...] = ()

    def after(self, rounds: int) -> list[Release]:
        """Return the releases of `rounds` rounds, and of the scores after the last one."""
        return [*self.training(rounds), *(self.scores if rounds >= self.rounds else ())]

    def training(self, rounds: int) -> list[Release]:
        """Return the releases of `rounds` rounds without scores; equal ones are counted together."""
        if len(self.each) > 1:
            # One round more than planned is as the last.
            known = [self.each[min(number, len(self.each) - 1)] for number in range(rounds)]
            return [*self.once, *(replace(release, purpose="") for part in known for release in part)]
        alike = next(iter(self.each))
        repeated = [replace(release, count=release.count * rounds, purpose="") for release in alike]
        return [*self.once, *repeated]


def plan(
    privacy: Privacy | Open,
    task: TaskSpec,
    mechanism: Mechanism,
    price: PlannedPrice,
    *,
    sites: int,
    records: int | None = None,
    models: int = 1,
) -> Plan:
    """Put the price of a run into numbers and words.

    Args:
        privacy: The promise.
        task: The task.
        mechanism: The mechanism that keeps the promise.
        price: The planned releases.
        sites: Number of sites.
        records: Number of records in all, if that is public.
        models: Number of models that share the sites.
    """
    rounds, whole = price.rounds, price.after(price.rounds)
    statement = state(privacy, whole, but=task.exempt)
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
    heard = signal_to_noise(privacy, mechanism, task.width, sites // models, rounds)
    return Plan(
        statement=statement,
        rounds=rounds,
        noise_multiplier=mechanism.multiplier if isinstance(mechanism, Multiplied) else None,
        spends={mark: accounting.epsilon(price.after(mark), privacy.delta) for mark in marks},
        comparisons=accounting.compare(price.training(rounds), privacy.delta),
        budget=privacy.epsilon,
        warnings=(*_warnings(privacy, statement, sites, records), *snr_warnings(heard)),
        signal=heard,
        releases=tuple(whole),
    )


def _warnings(privacy: Privacy, statement: Statement, sites: int, records: int | None) -> list[str]:
    found: list[str] = []
    if statement.rehearsal:
        found.append(
            "a rehearsal repeats its noise and gives no protection; remove rehearsal for private data"
        )
    if statement.epsilon is not None and statement.epsilon > WEAK_EPSILON:
        found.append(f"epsilon {statement.epsilon:.3g} is a weak promise; {WEAK_EPSILON:g} or less is usual")
    units = records if privacy.unit == "record" else sites
    if units is not None and privacy.delta * units > 1:
        found.append(
            f"delta {privacy.delta:g} is above one in {units:,} {privacy.unit}s: a person may be exposed"
        )
    elif units is None and privacy.delta * FEW_RECORDS > 1:
        found.append(
            f"delta {privacy.delta:g} is for data of at most {1 / privacy.delta:,.0f} records: with more, "
            "a person may be exposed within the promise, and the run is refused; 1e-5 or less is usual"
        )
    elif records is not None and privacy.unit == "record" and privacy.delta * 10 * records > sites:
        each = records // max(sites, 1)
        found.append(
            f"delta {privacy.delta:g} is loose for a site of about {each:,} records; 1e-5 or less is safer"
        )
    return found

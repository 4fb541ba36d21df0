"""Names of privacy-manager for users with their own training loop, with noise that keeps its epsilon.

What is different from the scripts that these names come from: their noise followed `epsilon / sqrt(rounds)`,
which is not a theorem. For one release a round it wasted a third of the noise; where the budget was used
again for each local batch, or a batch gradient was clipped as a whole, the true epsilon was many times the
stated one. Here the noise is solved by `tacit.privacy.accounting` for the number of releases, every release
is charged to a ledger before its noise is drawn, and a release that the budget cannot bear is refused.
"""

import secrets
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BudgetExhausted, InvalidValue, require_count, require_positive, require_word
from tacit.privacy import accounting
from tacit.privacy.accounting import gaussian, theorems
from tacit.privacy.accounting.release import Relation, Release
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.mechanisms.base import noisy_answer
from tacit.privacy.mechanisms.clip import clip_rows, lengths
from tacit.runtime.arrays import TensorLike, as_array, as_numpy
from tacit.runtime.keys import Key
from tacit.runtime.silence import suppress_warnings

if TYPE_CHECKING:
    from torch import Tensor

    Array = NDArray[np.floating[Any]] | Tensor
    # One array, or one per parameter.
    Gradients = TypeVar("Gradients", NDArray[Any], Tensor, Mapping[str, NDArray[Any]], Mapping[str, Tensor])
else:
    Gradients = TypeVar("Gradients")


# How releases are composed, and the other theorems that users may name.
EXACT, THEOREMS = "exact", ("advanced", "basic")
# The part of the planned releases that is left when a warning comes.
FEW_LEFT = 0.1


class BudgetNearlyExhausted(UserWarning):
    """Few of the planned releases are left; nothing is refused yet."""


@dataclass(frozen=True)
class PrivacyParams:
    """A promise: at most `epsilon`, failing with probability `delta`, for contributions up to `clip_norm`."""

    epsilon: float = 1.0
    delta: float = 1e-5
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        accounting.require_delta(self.delta, "gaussian")
        require_positive("clip_norm", self.clip_norm)


class PrivacyBudget:
    """Budget of `num_rounds` Gaussian releases together, and their cost so far.

    Args:
        epsilon: The whole budget.
        delta: The probability with which the promise may fail.
        num_rounds: The number of releases. Every noisy gradient is one: with five batches a round, fifty
            rounds are 250.
        relation: The neighboring relation, see `PrivacyManager`.
        ledger: The account to charge; one in memory by default.
        rehearsal: True if the noise repeats, and so protects no one.
        composition: The theorem that prices several releases; see `PrivacyManager`.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        num_rounds: int = 100,
        *,
        relation: Relation = "add-remove",
        ledger: Ledger | None = None,
        rehearsal: bool = False,
        composition: str = EXACT,
    ) -> None:
        _explain_composition(composition)
        self.params = PrivacyParams(epsilon, delta)
        require_count("num_rounds", num_rounds)
        self.num_rounds = num_rounds
        self.rounds_used = 0
        self.noise_multiplier = accounting.calibrate(
            epsilon=epsilon, delta=delta, steps=num_rounds, relation=relation
        )
        self.ledger = ledger if ledger is not None else Ledger()
        if not self.ledger.budgets():
            self.ledger.allow(epsilon=epsilon, delta=delta)
        self._relation: Relation = relation
        self._rehearsal = rehearsal
        # All releases of this budget are one plan, whatever else is on the ledger.
        self._plan = secrets.token_hex(16)

    @property
    def epsilon_per_round(self) -> float:
        """Epsilon of a single release; those of several do not simply add up."""
        return accounting.epsilon([self.release(1.0)], self.params.delta)

    def release(self, clip_norm: float) -> Release:
        """One noisy gradient, as the ledger sees it."""
        return accounting.clipped_release(
            self.noise_multiplier,
            clip=clip_norm,
            relation=self._relation,
            purpose=f"round {self.rounds_used + 1}",
            rehearsal=self._rehearsal,
        )

    def use_round(self, clip_norm: float = 1.0) -> Release:
        """Pay for one release, and return it; a warning comes when few are left.

        Raises:
            BudgetExhausted: The budget is spent, or the ledger cannot bear all of it; nothing was charged.
        """
        release = self.pay(clip_norm)
        self.warn_early(depth=2)
        return release

    def pay(self, clip_norm: float) -> Release:
        """Pay for one release without a warning; see `use_round`."""
        if self.rounds_used >= self.num_rounds:
            raise BudgetExhausted(
                f"all {self.num_rounds} releases are used; give a budget for more with num_rounds"
            )
        release = self.release(clip_norm)
        if not self.rounds_used:
            self.ledger.register([replace(release, count=self.num_rounds)], plan=self._plan)
        self.ledger.charge([release], plan=self._plan)
        self.rounds_used += 1
        return release

    def warn_early(self, *, depth: int) -> None:
        """Warn once when few releases are left, before one is refused.

        Args:
            depth: The number of calls between this one and the user's line.
        """
        left = self.num_rounds - self.rounds_used
        few = max(round(FEW_LEFT * self.num_rounds), 1)
        if left == few and self.num_rounds > 1:
            warnings.warn(
                f"{left} of {self.num_rounds} releases are left: the one after them is refused; a budget for "
                "more "
                "is planned with num_rounds",
                BudgetNearlyExhausted,
                stacklevel=depth + 1,
            )

    def epsilon_spent(self) -> float:
        """Epsilon of everything released so far."""
        return self.ledger.spent(self.params.delta)

    def epsilon_remaining(self) -> float:
        """The budget minus what is spent; the last rounds cost less than the first."""
        return max(self.params.epsilon - self.epsilon_spent(), 0.0)

    def get_status(self) -> dict[str, Any]:
        """Everything about the budget, as plain data."""
        return {
            "epsilon": self.params.epsilon,
            "epsilon_total": self.params.epsilon,
            "delta": self.params.delta,
            "num_rounds": self.num_rounds,
            "rounds_used": self.rounds_used,
            "rounds_remaining": self.num_rounds - self.rounds_used,
            "epsilon_per_round": self.epsilon_per_round,
            "epsilon_spent": self.epsilon_spent(),
            "epsilon_remaining": self.epsilon_remaining(),
            "exhausted": self.rounds_used >= self.num_rounds,
            "composition": EXACT,
        }


class PrivacyManager:
    """Clips gradients and adds the noise that keeps the stated epsilon over all rounds.

    The stated epsilon is true: it is the composed price of `num_rounds` releases by our accountant. (The
    usual share of `epsilon / sqrt(num_rounds)` a round with the textbook Gaussian noise is not: for one
    release a round it adds 1.3 times the noise needed, and it under-states epsilon by any factor once a
    round releases more than one gradient.)

    The input is one participant's contribution, and its presence is protected: with or without it, the result
    changes little. To protect a single record in the gradient of a whole batch, give `relation="replace"`: a
    record can turn a clipped batch gradient into its opposite, which needs twice the noise.

    Args:
        epsilon: The whole budget.
        delta: The probability with which the promise may fail.
        clip_norm: The largest length of a contribution.
        num_rounds: The number of releases.
        relation: `add-remove` or `replace`.
        ledger: An account that outlives this object; one in memory by default.
        seed: Repeats the noise, for tests; such noise protects no one, and the status says so.
        composition: Taken for compatibility: releases are composed exactly, which is never worse than
            `advanced` or `basic` composition, so a warning says that those are not used.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        clip_norm: float = 1.0,
        num_rounds: int = 100,
        *,
        relation: Relation = "add-remove",
        ledger: Ledger | None = None,
        seed: int | None = None,
        composition: str = EXACT,
    ) -> None:
        _explain_composition(composition)
        self.params = PrivacyParams(epsilon, delta, clip_norm)
        self.privacy_budget = PrivacyBudget(
            epsilon, delta, num_rounds, relation=relation, ledger=ledger, rehearsal=seed is not None
        )
        self._key = Key(seed or 0, rehearsal=seed is not None) / "privacy manager"

    @property
    def clip_norm(self) -> float:
        """The largest length of a contribution."""
        return self.params.clip_norm

    @suppress_warnings()
    def clip_gradients(self, gradients: Gradients) -> Gradients:
        """Scale the gradients down, all together, to length `clip_norm`; NaN anywhere gives zero."""
        return _rebuild(gradients, clip_rows(_flat(gradients), self.clip_norm))

    def add_gaussian_noise(self, gradients: Gradients) -> Gradients:
        """Charge one release, clip to the bound, and add noise.

        Raises:
            BudgetExhausted: The budget is spent; nothing was charged and nothing is released.
        """
        return self.release(gradients, depth=3)

    def apply_privacy(self, gradients: Gradients) -> Gradients:
        """Clip, charge and add noise: one private release."""
        return self.release(gradients, depth=3)

    def release(self, gradients: Gradients, *, depth: int) -> Gradients:
        """One private release, with a warning when few are left; `depth` as for `warn_early`."""
        # Work on private gradients warns of nothing; what the budget has left does not depend on them.
        with suppress_warnings():
            flat = _flat(gradients)
            paid = self.privacy_budget.pay(self.clip_norm)
            key = self._key / self.privacy_budget.rounds_used
            noisy = _rebuild(gradients, noisy_answer(flat, paid, key))
        self.privacy_budget.warn_early(depth=depth)
        return noisy

    def get_noise_scale(self) -> float:
        """The standard deviation of the noise on each coordinate; the same in every round."""
        return self.privacy_budget.noise_multiplier * self.clip_norm

    def get_privacy_status(self) -> dict[str, Any]:
        """Everything about the promise and its price, as plain data."""
        return {
            **self.privacy_budget.get_status(),
            "clip_norm": self.clip_norm,
            "noise_scale": self.get_noise_scale(),
            "noise_multiplier": self.privacy_budget.noise_multiplier,
            "rehearsal": self._key.rehearsal,
        }


class DPSGDTrainer:
    """A training loop's view of a privacy manager: one call per gradient, with counts."""

    def __init__(self, privacy_manager: PrivacyManager) -> None:
        self.privacy_manager = privacy_manager
        self.steps = self.clipped = 0

    def clip_and_noise_gradients(self, gradients: Gradients) -> Gradients:
        """Make one private release; every call is charged, also several in one round."""
        with suppress_warnings():
            long = bool(lengths(_flat(gradients)) > self.privacy_manager.clip_norm)
        private = self.privacy_manager.release(gradients, depth=3)
        self.steps += 1
        self.clipped += long
        return private

    def get_stats(self) -> dict[str, Any]:
        """Return the number of processed gradients, of those that were too long, and their price.

        How many were clipped depends on private records: no epsilon covers it, so keep it to yourself.
        """
        return {
            "training_steps": self.steps,
            "gradients_clipped": self.clipped,
            "noise_added": self.steps,
            "privacy_budget": self.privacy_manager.privacy_budget.get_status(),
        }


def compute_epsilon_from_delta(
    delta: float, noise_scale: float, clip_norm: float = 1.0, num_rounds: int = 1
) -> float:
    """Return epsilon at `delta` of `num_rounds` releases with noise of standard deviation `noise_scale`."""
    release = accounting.clipped_release(_multiplier(noise_scale, clip_norm), count=num_rounds)
    accounting.require_delta(delta, "gaussian")
    return accounting.epsilon([release], delta)


def compute_delta_from_epsilon(
    epsilon: float, noise_scale: float, clip_norm: float = 1.0, num_rounds: int = 1
) -> float:
    """Return delta at `epsilon` of `num_rounds` releases with noise of standard deviation `noise_scale`."""
    require_positive("epsilon", epsilon)
    require_count("num_rounds", num_rounds)
    return gaussian.delta_of(_multiplier(noise_scale, clip_norm) / num_rounds**0.5, epsilon)


def estimate_noise_scale(epsilon: float, delta: float, clip_norm: float = 1.0, num_rounds: int = 1) -> float:
    """Return the least standard deviation with which `num_rounds` releases cost `epsilon` at `delta`."""
    require_positive("clip_norm", clip_norm)
    return clip_norm * accounting.calibrate(epsilon=epsilon, delta=delta, steps=num_rounds)


def advanced_composition_epsilon(eps: float, T: int, delta0: float) -> float:
    """Epsilon of `T` releases of `eps` each by advanced composition, at the price of `delta0` more delta.

    `sqrt(2 T ln(1/delta0)) eps + T eps (e^eps - 1)` (Dwork, Rothblum and Vadhan 2010); a comparison, never a
    claim.
    """
    require_positive("eps", eps)
    require_count("T", T)
    accounting.require_delta(delta0, "gaussian")
    return theorems.advanced_composition(eps, T, delta0)


def basic_composition_epsilon(eps: float, T: int) -> float:
    """Epsilon of `T` releases of `eps` each by basic composition: they add up."""
    require_positive("eps", eps)
    require_count("T", T)
    return theorems.basic_composition(eps, T)


def _explain_composition(given: str) -> None:
    """Warn of a theorem that would claim more than exact composition."""
    require_word("composition", given, (EXACT, *THEOREMS))
    if given != EXACT:
        warnings.warn(
            f'composition = "{given}" is not used: releases are composed exactly, which needs less noise for '
            "the "
            "same epsilon",
            UserWarning,
            stacklevel=3,
        )


def _multiplier(noise_scale: float, clip_norm: float) -> float:
    require_positive("noise_scale", noise_scale)
    require_positive("clip_norm", clip_norm)
    return noise_scale / clip_norm


def _arrays(gradients: object) -> list[Any]:
    return (
        list(cast("Mapping[str, Any]", gradients).values()) if isinstance(gradients, Mapping) else [gradients]
    )


def _flat(gradients: object) -> NDArray[np.float64]:
    try:
        parts = [as_array(array).ravel() for array in _arrays(gradients)]
    except (ValueError, TypeError):
        # The error of numpy would quote gradients.
        raise InvalidValue(
            "gradients are not allowed: give an array, or a dict of arrays; a list of them as "
            "dict(enumerate(...))"
        ) from None
    if not parts or sum(part.size for part in parts) == 0:
        raise InvalidValue("gradients are not allowed to be empty: give an array, or a dict of arrays")
    return np.concatenate(parts)


def _rebuild(gradients: Gradients, flat: NDArray[np.float64]) -> Gradients:
    """Return the flat values in the shapes, types and names of the gradients."""
    pieces: list[Any] = []
    start = 0
    for array in _arrays(gradients):
        shape = as_numpy(array).shape
        size = int(np.prod(shape))
        pieces.append(_like(array, flat[start : start + size].reshape(shape)))
        start += size
    if isinstance(gradients, Mapping):
        return cast("Gradients", dict(zip(gradients, pieces, strict=True)))
    return pieces[0]


def _like(array: Any, values: NDArray[np.float64]) -> Any:  # noqa: ANN401
    if isinstance(array, TensorLike):
        return array.detach().new_tensor(values)
    original = np.asarray(array)
    # Whole numbers cannot carry noise: they come back as doubles.
    return values.astype(original.dtype if np.issubdtype(original.dtype, np.floating) else np.float64)

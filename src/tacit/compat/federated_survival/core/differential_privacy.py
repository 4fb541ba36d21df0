"""Noise, clipping and private choice by the original's names, for users with their own training loop.

Every answer is charged to a ledger before its noise is drawn (`spent`); noise comes from the operating
system, never from a seed. In the original it came from the generator of torch or numpy, seeded with a public
default, so that anyone with the configuration could subtract it again.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike

from tacit.compat.federated_survival import explain
from tacit.compat.federated_survival.core.config import FSAConfig
from tacit.errors import BudgetExhausted, Refused, require, require_count, require_positive, require_word
from tacit.privacy import accounting
from tacit.privacy.accounting.release import Release, clipped_release
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.mechanisms.base import NORMS, NoiseLaw, noisy_answer
from tacit.privacy.mechanisms.clip import clip_rows, lengths
from tacit.privacy.mechanisms.selection import Selection
from tacit.runtime.arrays import Array, as_array, as_numpy
from tacit.runtime.keys import Key
from tacit.runtime.silence import suppress_warnings

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

MECHANISMS: tuple[NoiseLaw, NoiseLaw] = ("gaussian", "laplace")
# The multiplier of other objects that name none; it is then solved for.
NOT_CHOSEN = 1.0


class Options(Protocol):
    """Protocol of the configuration's fields that are read here."""

    dp_mechanism: str
    dp_epsilon: float
    dp_delta: float | None
    dp_sensitivity: float
    dp_noise_multiplier: float
    dp_clip_norm: float
    global_epochs: int
    local_epochs: int


class DifferentialPrivacy:
    """Private answers by the options of a configuration.

    A single answer (`add_gaussian_noise`, `add_laplace_noise`, `exponential_mechanism`) costs `dp_epsilon`
    each time. Gradients (`apply_dp_to_gradients`) cost `dp_epsilon` for all of `global_epochs` times
    `local_epochs` calls together, and the call after the last one is refused. `spent` tells what everything
    has cost together.
    """

    def __init__(self, config: Options) -> None:
        self.config = config
        self.epsilon, self.delta, self.sensitivity = config.dp_epsilon, config.dp_delta, config.dp_sensitivity
        self.noise_multiplier, self.clip_norm = config.dp_noise_multiplier, config.dp_clip_norm
        self.ledger = Ledger()
        self.gradients_used = 0
        self._key, self._answers = Key(0) / "differential privacy", 0

    def spent(self, delta: float | None = None) -> float:
        """Epsilon of everything that was answered so far, composed.

        Args:
            delta: The probability with which that may fail; `dp_delta` by default, 0 where there is none.
        """
        return self.ledger.spent(self.delta or 0.0 if delta is None else delta)

    @suppress_warnings()
    def exponential_mechanism(
        self,
        candidates: "Tensor | Sequence[object]",
        quality_scores: "Tensor | Sequence[float]",
        sensitivity: float | None = None,
        epsilon: float | None = None,
    ) -> int:
        """Return a candidate's index, drawn in proportion to exp(epsilon q / (2 sensitivity)) of its score q.

        The original had the formula right, but exponentiated scores of any size and charged no ledger.

        Args:
            candidates: As many as there are scores.
            quality_scores: The score of each; the higher, the better.
            sensitivity: The distance by which one record can move any score; `dp_sensitivity` by default. A
                concordance moves by far less than 1: give a value that you can prove.
            epsilon: The price of the choice; `dp_epsilon` by default.
        """
        scores = as_array(cast("ArrayLike", quality_scores)).ravel()
        given = f"{len(candidates)} for {len(scores)} scores"
        require(len(candidates) == len(scores) > 0, "candidates", given, "one for each score")
        choice = Selection(
            epsilon=self.epsilon if epsilon is None else epsilon,
            sensitivity=self.sensitivity if sensitivity is None else sensitivity,
        )
        return choice.choose(scores, self._charge(choice.release(purpose="choice")))

    def exponential_mechanism_tensor(
        self,
        candidates: "Tensor",
        quality_scores: "Tensor | Sequence[float]",
        sensitivity: float | None = None,
        epsilon: float | None = None,
    ) -> "Tensor":
        """The candidate itself, chosen by `exponential_mechanism`; it costs as much."""
        rows = cast("Sequence[object]", candidates)
        return candidates[self.exponential_mechanism(rows, quality_scores, sensitivity, epsilon)]

    def clip_gradients(self, model: "nn.Module") -> float:
        """Scale all gradients of a model down, together, to length `dp_clip_norm`; returns what it was.

        Gradients within the bound stay as they are, to the bit, and gradients that hold NaN or infinity
        become zero; the original let the second through.

        Guarantee:
            The gradients together have L2 norm at most the bound. That bounds the batch, not a record in it.
        """
        return self._clip(model, "gaussian")

    def add_gaussian_noise(self, tensor: "Tensor", sensitivity: float | None = None) -> "Tensor":
        """The tensor plus normal noise that keeps (`dp_epsilon`, `dp_delta`) for this one answer.

        The original multiplied the sensitivity by `dp_noise_multiplier` and never looked at epsilon: with
        its defaults one answer cost 4.4, not 1. Here a multiplier is used if it gives more noise than needed.

        Args:
            tensor: The answer.
            sensitivity: Its L2 sensitivity to one record; `dp_sensitivity` by default. It is your claim:
                nothing is clipped here.
        """
        bound = self.sensitivity if sensitivity is None else sensitivity
        return self._answer(tensor, self._single("gaussian", bound, None))

    def add_laplace_noise(
        self, tensor: "Tensor", sensitivity: float | None = None, epsilon: float | None = None
    ) -> "Tensor":
        """The tensor plus Laplace noise of scale sensitivity / epsilon on each coordinate.

        Args:
            tensor: The answer.
            sensitivity: Its L1 sensitivity to one record, that is, over all coordinates added up;
                `dp_sensitivity` by default. It is your claim: nothing is clipped here. (The original took an
                L2 bound, which for d coordinates can be sqrt(d) times too small.)
            epsilon: The price of the answer; `dp_epsilon` by default.
        """
        bound = self.sensitivity if sensitivity is None else sensitivity
        return self._answer(tensor, self._single("laplace", bound, epsilon))

    @suppress_warnings()
    def apply_dp_to_gradients(
        self, model: "nn.Module", optimizer: "Optimizer | None" = None, mechanism: str = "gaussian"
    ) -> float:
        """Clip the gradients of a model and add noise to them; returns their length before.

        What is clipped is the gradient of a batch, which one record can turn into its opposite: the noise is
        for twice the clip norm. It is solved for all `global_epochs * local_epochs` calls together. (The
        original took the clip norm itself, added noise for one call and divided it by the root of the number
        of clients.) Clipping each record's gradient needs far less: that is what `FSARunner` does.

        Args:
            model: With gradients in place.
            optimizer: Not needed; the original has it.
            mechanism: `gaussian`, or `laplace`, for which gradients are clipped in L1.

        Raises:
            BudgetExhausted: All calls are used; the gradients stay as they were.
        """
        if mechanism == "exponential":
            raise Refused(
                'mechanism = "exponential" chooses one of several candidates; use "gaussian" or "laplace"'
            )
        require_word("mechanism", mechanism, MECHANISMS)
        law, calls = cast("NoiseLaw", mechanism), self.config.global_epochs * self.config.local_epochs
        if self.gradients_used >= calls:
            raise BudgetExhausted(
                f"all {calls} gradients are used: dp_epsilon was planned for global_epochs times local_epochs"
            )
        release = self._plan_release(law, calls)
        length = self._clip(model, law)
        # All calls are one plan, which was fixed by the configuration.
        plan = f"{calls} gradients, {law} noise of {release.multiplier!r}"
        self.ledger.register([replace(release, count=calls)], plan=plan)
        key = self._charge(release, plan)
        self.gradients_used += 1
        parts = _gradients(model)
        flat = np.concatenate([as_array(part).ravel() for part in parts])
        _restore(parts, noisy_answer(flat, release, key))
        return length

    def compute_privacy_budget(self, num_rounds: int, num_clients: int) -> tuple[float, float]:
        """Return the price of one of `num_rounds` answers, and the noise with which all cost `dp_epsilon`.

        The noise is by composition: for Gaussian noise it grows with the root of the number of rounds, not
        with the number, and costs do not simply add up. It does not fall with `num_clients`: each client's
        answer is seen by itself. (The original divided epsilon by the rounds, used a formula that wastes
        noise, and then divided the noise by the root of the number of clients, which keeps no promise.)
        """
        require_count("num_rounds", num_rounds)
        require_count("num_clients", num_clients)
        law: NoiseLaw = "laplace" if self.config.dp_mechanism == "laplace" else "gaussian"
        multiplier = accounting.calibrate(
            epsilon=self.epsilon, delta=self._delta(law), steps=num_rounds, mechanism=law
        )
        one = clipped_release(multiplier, clip=self.sensitivity, law=law)
        return accounting.epsilon([one], self._delta(law)), one.scale

    def get_noise_scale(self, num_clients: int = 1) -> float:
        """The noise of a single answer of `dp_epsilon`; it does not depend on the number of clients."""
        return self.compute_privacy_budget(1, num_clients)[1]

    def _single(self, law: NoiseLaw, sensitivity: float, epsilon: float | None) -> Release:
        """Return one answer of the given sensitivity."""
        require_positive("sensitivity", sensitivity)
        promised = self.epsilon if epsilon is None else epsilon
        needed = accounting.calibrate(epsilon=promised, delta=self._delta(law), mechanism=law)
        if law == "laplace":
            return Release(law=law, scale=needed * sensitivity, sensitivity=sensitivity, purpose="answer")
        given = self.noise_multiplier if self._names_noise else needed
        if given < needed:
            self._explain_noise(needed)
        scale = max(given, needed) * sensitivity
        return Release(law=law, scale=scale, sensitivity=sensitivity, purpose="answer")

    @property
    def _names_noise(self) -> bool:
        if isinstance(self.config, FSAConfig):
            return self.config.was_chosen("dp_noise_multiplier")
        return self.noise_multiplier != NOT_CHOSEN

    def _explain_noise(self, needed: float) -> None:
        price = accounting.epsilon([clipped_release(self.noise_multiplier)], self._delta("gaussian"))
        said = (
            f"dp_noise_multiplier = {self.noise_multiplier:g} contradicts dp_epsilon = {self.epsilon:g}: one "
            f"answer would cost epsilon {price:.4g}. The promise is kept with a multiplier of {needed:.4g}"
        )
        explain([said], depth=4)

    def _plan_release(self, law: NoiseLaw, calls: int) -> Release:
        """Return the release of one of `calls` clipped batch gradients, under replacement of a record."""
        multiplier = accounting.calibrate(
            epsilon=self.epsilon, delta=self._delta(law), steps=calls, relation="replace", mechanism=law
        )
        return clipped_release(
            multiplier, clip=self.clip_norm, relation="replace", law=law, purpose="gradient"
        )

    def _delta(self, law: NoiseLaw) -> float:
        if law == "laplace":
            return 0.0
        require(self.delta is not None, "dp_delta", self.delta, "above 0 with Gaussian noise")
        return cast(float, self.delta)

    @suppress_warnings()
    def _answer(self, tensor: "Tensor", release: Release) -> "Tensor":
        values = as_numpy(cast("ArrayLike", tensor)).astype(np.float64)
        require(bool(np.isfinite(values).all()), "tensor", "some that are not finite", "finite numbers")
        return tensor.detach().new_tensor(noisy_answer(values, release, self._charge(release)))

    def _charge(self, release: Release, plan: str | None = None) -> Key:
        """Charge the ledger and return a fresh key; each answer is a plan of its own."""
        self.ledger.charge([release], plan=plan)
        self._answers += 1
        return self._key / self._answers

    @suppress_warnings()
    def _clip(self, model: "nn.Module", law: NoiseLaw) -> float:
        parts = _gradients(model)
        flat = np.concatenate([as_array(part).ravel() for part in parts])
        length = float(lengths(flat, norm=NORMS[law]))
        if length > self.clip_norm:
            # A hair shorter: written back in single precision, it may grow by that much.
            _restore(parts, clip_rows(flat, self.clip_norm * (1 - 1e-6), norm=NORMS[law]))
        return length


def _gradients(model: "nn.Module") -> "list[Tensor]":
    found = [values.grad for values in model.parameters() if values.grad is not None]
    require(bool(found), "model", "no gradients", "one whose loss was differentiated: call backward() first")
    return found


def _restore(parts: "Sequence[Tensor]", flat: Array) -> None:
    """Write a flat vector into the gradients."""
    start = 0
    for part in parts:
        values = flat[start : start + part.numel()].reshape(tuple(part.shape))
        part.copy_(part.new_tensor(values))
        start += part.numel()

"""Local work: the steps that the sites of a cohort take together, each on its own records."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import Literal, Protocol

import numpy as np

from tacit.learning import batches, kernels
from tacit.learning.batches import Batch
from tacit.privacy.mechanisms.base import Contributions, Mechanism, Norm
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.threads import one_thread
from tacit.sites.federation import Cohort
from tacit.sites.table import Table

Optimizer = Literal["sgd", "momentum", "adam"]

# Most numbers, and most units, of one step in memory at a time; larger batches come in pieces. The cuts
# depend on the program alone, so that a site's sums are the same beside any other.
LARGEST_STEP, LARGEST_PIECE = 32_000_000, 8192


class Program(Protocol):
    """A network and its loss, for many sites at once."""

    @property
    def size(self) -> int:
        """Number of coordinates of the flat vector."""
        ...

    @property
    def numbers_per_record(self) -> int:
        """Number of doubles in memory per record during a step."""
        ...

    @property
    def working_numbers(self) -> int:
        """Number of doubles in a good bucket of sites."""
        ...

    def contributions(self, weights: Array, batch: Batch, store: Table) -> Contributions:
        """The gradients of every unit of a batch, one row of weights (sites, coordinates) for each site."""
        ...

    def outputs(self, weights: Array, features: Array) -> Array:
        """Return the network's outputs (sites, records, outputs) for features (sites, records, columns)."""
        ...


class LocalTrainingSpec(Protocol):
    """Options of local training in a round; see `tacit.learning.supervised.LocalTraining`."""

    @property
    def steps(self) -> int: ...  # noqa: D102
    @property
    def sample(self) -> float: ...  # noqa: D102
    @property
    def epochs(self) -> int | None: ...  # noqa: D102
    @property
    def batch(self) -> int | None: ...  # noqa: D102
    @property
    def risk_groups(self) -> int | None: ...  # noqa: D102
    @property
    def separable(self) -> bool: ...  # noqa: D102
    @property
    def lr(self) -> float: ...  # noqa: D102
    @property
    def optimizer(self) -> Optimizer: ...  # noqa: D102
    @property
    def proximal(self) -> float: ...  # noqa: D102
    @property
    def decay(self) -> float: ...  # noqa: D102


def descend(
    work: LocalTrainingSpec,
    program: Program,
    start: Array,
    cohort: Cohort,
    mechanism: Mechanism,
    keys: Sequence[Key],
) -> Array:
    """Train each site locally and return how far it moved (sites, coordinates).

    Sites of similar size work together, in buckets that fit the cache.
    """
    moved = np.empty_like(start)
    for positions in cohort.buckets(_bucket_size(work, program, cohort)):
        part = cohort.part(positions)
        own = [keys[int(position)] for position in positions]
        # Diverged training shows in its state; a warning would disclose single records.
        with np.errstate(all="ignore"), one_thread():
            moved[positions] = _run_steps(work, program, start[positions], part, mechanism, own)
    return moved


def _run_steps(
    work: LocalTrainingSpec,
    program: Program,
    start: Array,
    cohort: Cohort,
    mechanism: Mechanism,
    keys: Sequence[Key],
) -> Array:
    weights = start.copy()
    optimizer = OPTIMIZERS[work.optimizer](start.shape, work.lr)
    expected = _denominator(work, cohort)
    noise = [key / "noise" for key in keys]
    for step, batch in enumerate(_batches(work, cohort, keys)):
        # Sites that are done with their shuffled batches wait; they are the last ones.
        here = len(batch.rows)
        contributions = ChunkedContributions.of(program, weights[:here], batch, cohort.store)
        sums = mechanism.noisy_sums(contributions, noise[:here], step)
        sums /= (batch.counts if expected is None else expected[:here])[:, None]
        if work.proximal:
            sums += work.proximal * (weights[:here] - start[:here])
        if work.decay:
            sums += work.decay * weights[:here]
        optimizer.step(weights[:here], sums)
    weights -= start
    return weights


def _batches(work: LocalTrainingSpec, cohort: Cohort, keys: Sequence[Key]) -> Iterator[Batch]:
    coupled = not work.separable
    if work.epochs is not None:
        return batches.shuffle(cohort, work.epochs, work.batch or 32, keys, coupled=coupled)
    if work.risk_groups is not None:
        return batches.poisson_groups(cohort, work.steps, work.sample, work.risk_groups, keys)
    return batches.poisson(cohort, work.steps, work.sample, keys, coupled=coupled)


def _denominator(work: LocalTrainingSpec, cohort: Cohort) -> Array | None:
    """Return the denominator of sums: a public number, the same at all sites, wherever there is one."""
    if work.epochs is not None:
        return None
    if work.risk_groups is not None:
        return np.full(len(cohort), work.sample * work.risk_groups)
    if not work.separable:
        return np.ones(len(cohort))
    if work.batch is not None:
        return np.full(len(cohort), float(work.batch))
    if cohort.mean_site_size is not None:
        return np.full(len(cohort), work.sample * cohort.mean_site_size)
    return work.sample * cohort.sizes.astype(np.float64)


def _bucket_size(work: LocalTrainingSpec, program: Program, cohort: Cohort) -> int:
    largest = int(cohort.sizes.max())
    records = min(work.batch or 32, largest) if work.epochs is not None else work.sample * largest
    needed = 3 * program.size + records * program.numbers_per_record
    return max(int(program.working_numbers / needed), 1)


class ChunkedContributions:
    """The contributions of a batch that is too large for memory, piece by piece, as often as needed."""

    def __init__(self, pieces: Sequence[Callable[[], Contributions]], units: int) -> None:
        self._pieces, self._units = pieces, units

    @staticmethod
    def of(program: Program, weights: Array, batch: Batch, store: Table) -> Contributions:
        """Return the contributions of a batch, in pieces that fit the memory."""
        units = batch.rows.shape[1]
        size = max(min(LARGEST_STEP // program.numbers_per_record, LARGEST_PIECE), 1)
        if units <= size:
            return program.contributions(weights, batch, store)
        cuts = [batch.units(slice(start, start + size)) for start in range(0, units, size)]
        return ChunkedContributions(
            [partial(program.contributions, weights, cut, store) for cut in cuts], size
        )

    def lengths(self, norm: Norm) -> Array:
        """The length of each contribution."""
        return np.concatenate([piece().lengths(norm) for piece in self._pieces], axis=1)

    def total(self, factors: Array | None) -> Array:
        """The sums over all pieces."""
        shares = (
            None if factors is None else factors[:, start * self._units : (start + 1) * self._units]
            for start in range(len(self._pieces))
        )
        totals = (piece().total(share) for piece, share in zip(self._pieces, shares, strict=True))
        return reduce(np.add, totals)


class Descent:
    """Plain gradient descent; others keep a memory of the sites (sites, coordinates) for one round."""

    def __init__(self, shape: tuple[int, ...], lr: float) -> None:
        self.lr = lr

    def step(self, weights: Array, gradient: Array) -> None:
        """Move `weights` against `gradient`, which is used up: the first sites, if others are done."""
        gradient *= self.lr
        weights -= gradient


class MomentumDescent(Descent):
    """Descent along a running sum of gradients."""

    def __init__(self, shape: tuple[int, ...], lr: float) -> None:
        super().__init__(shape, lr)
        self.velocity = np.zeros(shape)

    def step(self, weights: Array, gradient: Array) -> None:
        """Add the gradient to the decayed velocity, and move."""
        velocity = self.velocity[: len(gradient)]
        velocity *= 0.9
        velocity += gradient
        super().step(weights, velocity.copy())


class AdamDescent(Descent):
    """Descent with a pace for every coordinate (Kingma and Ba 2015)."""

    def __init__(self, shape: tuple[int, ...], lr: float) -> None:
        super().__init__(shape, lr)
        self.mean, self.square, self.taken = np.zeros(shape), np.zeros(shape), 0

    def step(self, weights: Array, gradient: Array) -> None:
        """Update both moments, correct their start at zero, and move."""
        here, self.taken = len(gradient), self.taken + 1
        kernels.adam(weights, gradient, self.mean[:here], self.square[:here], self.lr, self.taken)


OPTIMIZERS: dict[Optimizer, type[Descent]] = {
    "sgd": Descent,
    "momentum": MomentumDescent,
    "adam": AdamDescent,
}

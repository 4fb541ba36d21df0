"""A multi-task variational autoencoder: features and log event times of patients from a few hidden numbers.

Many sites train at once, each on its own records, by the closed form of `tacit.learning.perceptron`: the
length of every record's gradient is known without writing it out, so that a promise can clip it. Where the
synthetic records go, and what they cost, is said in `tacit.survival.augment`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.errors import require
from tacit.learning.batches import Batch, poisson
from tacit.learning.elementwise import exp
from tacit.learning.optimizers import OPTIMIZERS
from tacit.learning.perceptron import Layer, OuterProducts, backward, counts_of, forward
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort
from tacit.sites.table import Table, concatenate

# Inputs and outputs of every activation of a stack.
Passed = list[tuple[Array, Array]]

# The logarithm of a hidden number's spread stays inside: exp() of more is noise, of less is nothing.
LOG_SPREADS = (-6.0, 3.0)
# Number of times, at equal distances, that the learning rate is halved.
HALVINGS = 5
# Standardized numbers beyond are taken, and drawn, as this far out.
FARTHEST = 5.0
# Number of public draws that measure the spread of the decoders.
PROBES = 1000
# About what a cache holds (see `tacit.learning.perceptron.Perceptron`).
WORKING_NUMBERS = 400_000


class Losses(NamedTuple):
    """Loss terms of each record (sites, records); training minimizes their sum."""

    features: Array
    divergence: Array
    time: Array


class _Pass(NamedTuple):
    """One way through the network, from features to features and times."""

    encoder: Passed
    means: Array
    spreads: Array
    inside: NDArray[np.bool_]
    hidden: Array
    decoder: Passed
    clock: Passed


@dataclass(frozen=True)
class Autoencoder:
    """An encoder, and one decoder each for features and for the time.

    The loss of a record is its squared error in all features, plus `alpha` times the Kullback-Leibler
    divergence of its hidden numbers from standard normal ones, plus `beta` times its squared error in the
    time.

    Args:
        columns: Number of features.
        latent: Number of latent variables of a record.
        width: The width of every hidden layer.
        alpha: The weight of the divergence.
        beta: The weight of the time.
    """

    columns: int
    latent: int
    width: int
    alpha: float
    beta: float

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers in the order of the flat vector: encoder and its heads, then both decoders."""
        encoder = ([self.columns, self.width, self.width, 2 * self.latent], "relu")
        decoder = ([self.latent, self.width, self.columns], "tanh")
        clock = ([self.latent, self.width, self.width, 1], "relu")
        layers: list[Layer] = []
        for widths, activation in (encoder, decoder, clock):
            for place, (inputs, outputs) in enumerate(pairwise(widths), start=2):
                start = layers[-1].end if layers else 0
                last = place == len(widths)
                layers.append(Layer(inputs, outputs, True, "identity" if last else activation, start))
        return tuple(layers)

    @property
    def size(self) -> int:
        """Number of coordinates of the flat vector."""
        return self.layers[-1].end

    def start(self, key: Key) -> Array:
        """Small random weights, no biases; public."""
        generator = key.generator()
        weights = np.zeros(self.size)
        for layer in self.layers:
            bound = layer.inputs**-0.5
            weights[layer.start : layer.middle] = generator.uniform(-bound, bound, layer.middle - layer.start)
        return weights

    def decode(self, weights: Array, hidden: Array) -> tuple[Array, Array]:
        """Decode latent variables to features (sites, records, columns) and times (sites, records)."""
        features = forward(self.layers[3:5], weights, hidden)[-1][1]
        return features, forward(self.layers[5:], weights, hidden)[-1][1][..., 0]

    def losses(self, weights: Array, features: Array, time: Array, draws: Array) -> Losses:
        """The parts of each record's loss, for standard normal draws (sites, records, latent)."""
        through = self._forward(weights, features, draws)
        squares = through.means**2 + through.spreads**2
        divergence = (squares - 1 - 2 * np.log(through.spreads)).sum(axis=2) / 2
        return Losses(
            ((through.decoder[-1][1] - features) ** 2).sum(axis=2),
            self.alpha * divergence,
            self.beta * (through.clock[-1][1][..., 0] - time) ** 2,
        )

    def contributions(self, weights: Array, batch: Batch, store: Table, draws: Array) -> OuterProducts:
        """The gradients of every record of a batch, one row of weights for each site.

        Args:
            weights: Those of each site (sites, coordinates).
            batch: The sampled records; a record of `share` 0 has no effect.
            store: Records with the targets `time`, and `share`: by what their loss is multiplied.
            draws: Standard normal numbers (sites, records, latent).
        """
        rows, share = batch.rows[..., 0], store.targets["share"][batch.rows[..., 0]]
        taking = (batch.present[..., 0] & (share != 0))[..., None]
        features = np.where(taking, store.features[rows], 0.0)
        through = self._forward(weights, features, draws)
        share = share[..., None]
        back = np.where(taking, 2 * share * (through.decoder[-1][1] - features), 0.0)
        late = through.clock[-1][1] - store.targets["time"][rows][..., None]
        rear = np.where(taking, 2 * self.beta * share * late, 0.0)
        decoded, timed, encoded = (
            [entry, *(after for _, after in passed[:-1])]
            for entry, passed in (
                (through.hidden, through.decoder),
                (through.hidden, through.clock),
                (features, through.encoder),
            )
        )
        decoder, pull = backward(self.layers[3:5], weights, decoded, through.decoder, back, whole=True)
        clock, more = backward(self.layers[5:], weights, timed, through.clock, rear, whole=True)
        pull = pull + more
        slopes = pull * through.spreads * draws + self.alpha * share * (through.spreads**2 - 1)
        heads = np.concatenate([pull + self.alpha * share * through.means, slopes * through.inside], axis=2)
        there = np.where(taking, heads, 0.0)
        encoder, _ = backward(self.layers[:3], weights, encoded, through.encoder, there)
        signals = [*encoder, *decoder, *clock]
        return OuterProducts(
            self.layers,
            [*encoded, *decoded, *timed],
            signals,
            rows.shape[1],
            counts_of(batch.present[..., 0]),
        )

    def _forward(self, weights: Array, features: Array, draws: Array) -> _Pass:
        encoder = forward(self.layers[:3], weights, features)
        means, logs = encoder[-1][1][..., : self.latent], encoder[-1][1][..., self.latent :]
        spreads = exp(np.clip(logs, *LOG_SPREADS))
        inside = (logs > LOG_SPREADS[0]) & (logs < LOG_SPREADS[1])
        hidden = means + spreads * draws
        decoder = forward(self.layers[3:5], weights, hidden)
        clock = forward(self.layers[5:], weights, hidden)
        return _Pass(encoder, means, spreads, inside, hidden, decoder, clock)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of training an autoencoder.

    Args:
        steps: Number of steps.
        sample: Probability with which each record joins a step.
        lr: Learning rate of the first steps.
    """

    steps: int
    sample: float
    lr: float


def train(
    network: Autoencoder,
    cohort: Cohort,
    mechanism: Mechanism,
    keys: Sequence[Key],
    options: TrainingOptions,
    *,
    start: Array,
    expected: Array,
) -> Array:
    """Train the weights of each site (sites, coordinates) by steps of Adam on its own records.

    Args:
        network: The autoencoder.
        cohort: The sites; see `Autoencoder.contributions` for the targets of their records.
        mechanism: The privacy mechanism for the gradients of records.
        keys: One for each site.
        options: Number of steps, sampling rate and learning rate.
        start: The weights before the first step, the same everywhere.
        expected: Denominator of the sums at each site: public, or paid for.

    Guarantee:
        A record touches a site's weights through its own gradient alone, clipped and noised by `mechanism` in
        each of the steps. A record is mixed before its gradient with secret draws alone, independent
        of one another and of all records, so that one record more or less changes no other record's.
    """
    weights, steps, sample, lr = np.tile(start, (len(cohort), 1)), options.steps, options.sample, options.lr
    each = sum(2 * layer.inputs + 3 * layer.outputs for layer in network.layers)
    needed = 3 * network.size + sample * int(cohort.sizes.max()) * each
    for positions in cohort.buckets(max(int(WORKING_NUMBERS / needed), 1)):
        part, own = cohort.part(positions), [keys[int(position)] for position in positions]
        moving, optimizer = weights[positions], OPTIMIZERS["adam"]((len(part), network.size), lr)
        # Diverged training shows in its weights; a warning would disclose records.
        with np.errstate(all="ignore"):
            for step, batch in enumerate(poisson(part, steps, sample, own, coupled=False)):
                draws = _draws(batch, network.latent, own, step)
                contributions = network.contributions(moving, batch, part.store, draws)
                sums = mechanism.noisy_sums(contributions, [key / "noise" for key in own], step)
                optimizer.lr = lr * 0.5 ** (HALVINGS * step // steps)
                optimizer.step(moving, sums / expected[positions, None])
        weights[positions] = moving
    return weights


def draw(
    network: Autoencoder, weights: Array, number: int, key: Key, *, residuals: Literal["drawn", "none"]
) -> Array:
    """Draw `number` synthetic records of one site, standardized, with the time as last column.

    Args:
        network: The trained autoencoder.
        weights: Its weights (coordinates).
        number: Number of records.
        key: Key of the draws.
        residuals: `drawn` gives every column the variance 1 that standardized columns have; `none` leaves the
            means that the decoders give, which vary less.
    """

    def decode(hidden: Array) -> Array:
        features, time = network.decode(weights[None], hidden[None])
        return np.concatenate([features[0], time[0][:, None]], axis=1)

    made = decode(normal(key / "synthetic", (number, network.latent)))
    if residuals == "drawn":
        probes = decode((key / "probes").generator().standard_normal((PROBES, network.latent)))
        center, width = probes.mean(axis=0), probes.std(axis=0)
        # Variance that the decoders lack is drawn; excess variance, as after much noise, is taken back.
        made = center + (made - center) / np.maximum(width, 1.0)
        made += np.sqrt(np.maximum(1.0 - width**2, 0.0)) * normal(key / "residuals", made.shape)
    return np.clip(made, -FARTHEST, FARTHEST)


@dataclass(frozen=True, eq=False)
class Scale:
    """Standardization of features and log times; a column of width 0 does not vary.

    Args:
        centers: Of each feature.
        widths: Of each feature.
        center: Of log times.
        width: Of log times.
        ends: Log times between which synthetic ones stay: noise around a logarithm has a long tail.
    """

    centers: Array
    widths: Array
    center: float
    width: float
    ends: tuple[float, float]

    @classmethod
    def from_events(cls, events: Table) -> "Scale":
        """Compute means and standard deviations of these records, and the range of their times."""
        require(len(events) > 0, "events", f"none in {events.place}", "some, to standardize by")
        logs, features = np.log(events.targets["time"]), events.features
        ends = (float(logs.min()), float(logs.max()))
        return cls(features.mean(axis=0), features.std(axis=0), float(logs.mean()), float(logs.std()), ends)

    def keep_constant_columns(self) -> "Scale":
        """Return this scale, with columns that do not vary here, and may elsewhere, left unscaled."""
        still = self.widths == 0
        return replace(
            self, centers=np.where(still, 0.0, self.centers), widths=np.where(still, 1.0, self.widths)
        )

    def with_span(self, span: Sequence[float]) -> "Scale":
        """Return this scale with a span of nearly all event times: two widths around the center."""
        low, high = (float(end) for end in np.log(span))
        return replace(self, center=(low + high) / 2, width=(high - low) / 4, ends=(low, high))

    def standardise(self, table: Table) -> Table:
        """Standardize records for an autoencoder; censored ones have no share in its loss."""
        widths, width = np.where(self.widths > 0, self.widths, 1.0), self.width or 1.0
        features = np.clip((table.features - self.centers) / widths, -FARTHEST, FARTHEST)
        time = np.clip((np.log(table.targets["time"]) - self.center) / width, -FARTHEST, FARTHEST)
        happened = (table.targets["event"] == 1).astype(np.float64)
        share = happened * table.targets.get("weight", np.ones(len(table)))
        return Table(features, {"time": time, "share": share}, table.columns, table.place)

    def destandardise(self, numbers: Array, like: Table) -> Table:
        """Synthetic records as real ones are written down: all had the event, none weighs more.

        Args:
            numbers: Standardized features, and the time as last column (records, columns + 1).
            like: Records with the columns and targets to write down.
        """
        logs = np.clip(self.center + self.width * numbers[:, -1], *self.ends)
        targets = {name: np.ones(len(numbers)) for name in like.targets} | {"time": np.exp(logs)}
        features = self.centers + self.widths * numbers[:, :-1]
        return Table(features, targets, like.columns, "synthetic records")


def unit_scale(columns: int) -> Scale:
    """Return the scale of features that are standardized already, without times."""
    return Scale(np.zeros(columns), np.ones(columns), 0.0, 1.0, (-FARTHEST, FARTHEST))


def cohort_of(tables: Mapping[str, Table]) -> Cohort:
    """Sites as one batch of work, however few records they have."""
    sizes = np.array([len(table) for table in tables.values()], dtype=np.int64)
    return Cohort(tuple(tables), concatenate([*tables.values()]), np.cumsum(sizes) - sizes, sizes)


def normal(key: Key, shape: tuple[int, ...]) -> Array:
    """Draw standard normal numbers that cannot be predicted without the run's entropy."""
    return np.asarray(ndtri(key.secret().uniform(shape)), dtype=np.float64)


def _draws(batch: Batch, latent: int, keys: Sequence[Key], step: int) -> Array:
    """Draw latent noise for the records of a batch; the draws of a site do not depend on other sites."""
    sites, units, _ = batch.rows.shape
    draws = np.zeros((sites, units, latent))
    for site, (key, here) in enumerate(zip(keys, batch.present[..., 0].sum(axis=1).tolist(), strict=True)):
        draws[site, :here] = normal(key / "hidden" / step, (here, latent))
    return draws

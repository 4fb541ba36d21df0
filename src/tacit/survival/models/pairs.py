"""Case-control pairs: every event against one record that was still at risk (CoxCC and Cox-Time).

A pair is drawn anew in every step, inside a unit of records: a batch, or a risk group. Whoever is drawn as a
control has a part in somebody else's loss, so a unit has one gradient, and nothing here protects a single
record.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from tacit.learning.batches import Batch
from tacit.learning.perceptron import Layer, OuterProducts, Perceptron, counts_of
from tacit.sites.table import Table
from tacit.survival.models.cox_loss import Ranks

Array = NDArray[np.float64]


class Pairs(Perceptron):
    """A network whose loss is the mean of log(1 + e^lead), the lead of a control's log risk over its case's.

    Kvamme, Borgan and Scheel 2019, with one control for every case.

    Args:
        layers: The layers; with a clock, the first has one more input than there are features.
        clock: The ends of the intervals that tell time to the network, if risks change over time.
    """

    def __init__(self, layers: Sequence[Layer], clock: Sequence[float] | None = None) -> None:
        super().__init__(layers, _NoLoss())
        self._clock = None if clock is None else np.concatenate([[0.0], np.asarray(clock, dtype=np.float64)])
        self.numbers_per_record *= 2

    def contributions(self, weights: Array, batch: Batch, store: Table) -> OuterProducts:
        """The gradients of every unit of a batch: each case, then its control."""
        sites, units, _ = batch.rows.shape
        targets = {name: values.take(batch.rows, axis=0) for name, values in store.targets.items()}
        here = {"time": np.where(batch.present, targets["time"], -np.inf)}
        control, found = Ranks(here).draw_controls(batch.uniforms)
        paired = found & batch.present & (targets["event"] > 0)
        if "entry" in targets:
            paired &= np.take_along_axis(targets["entry"], control, axis=-1) < targets["time"]
        counted = np.where(paired, targets.get("weight", np.ones_like(batch.rows)), 0.0)
        counted /= np.maximum(batch.present.sum(axis=-1, keepdims=True), 1)
        # Cases to the front: whoever is none needs no place in the network.
        front = np.argsort(~paired, axis=-1, kind="stable")[..., : max(int(paired.sum(axis=-1).max()), 1)]
        counted = np.take_along_axis(counted, front, axis=-1)
        # A case and its control, one pair after the other: what is padded comes behind all of them.
        members = np.stack([front, np.take_along_axis(control, front, axis=-1)], axis=-1)
        members = members.reshape(sites, units, -1)
        rows = np.take_along_axis(batch.rows, members, axis=-1)
        moments = np.repeat(np.take_along_axis(targets["time"], front, axis=-1), 2, axis=-1)
        there = np.repeat(np.take_along_axis(paired, front, axis=-1), 2, axis=-1)
        inputs = np.where(there[..., None], self.append_time(store.features.take(rows, axis=0), moments), 0.0)

        def slopes(outputs: Array) -> Array:
            lead = np.diff(outputs.reshape(sites, units, -1, 2), axis=3)
            pull = counted[..., None] * np.asarray(expit(lead), dtype=np.float64)
            return np.concatenate([-pull, pull], axis=3).reshape(outputs.shape)

        flat, counts = inputs.reshape(sites, rows[0].size, -1), counts_of(there.reshape(sites, -1))
        return self.products(weights, flat, units, slopes, counts, grouped=batch.grouped)

    def append_time(self, features: Array, moments: Array) -> Array:
        """Features (..., columns), and the time as one more column where risks change over time."""
        if self._clock is None:
            return features
        # On the grid, times are about evenly spread; so they are for the network.
        told = np.interp(moments, self._clock, np.linspace(-1, 1, len(self._clock)))
        return np.concatenate([features, told[..., None]], axis=-1)


class _NoLoss:
    """Pairs have a loss of their own."""

    def slopes(self, outputs: Array, targets: object, present: object) -> Array:
        raise AssertionError("pairs slope by themselves")

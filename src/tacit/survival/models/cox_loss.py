"""Losses inside a unit of records, a batch or a risk group: Cox's partial likelihood, and case-control pairs.

The partial likelihood couples records: all those at risk when an event happens have a part in its term. Ties
are counted as Breslow does. CoxCC and Cox-Time compare every event with one record that was still at risk,
drawn anew in every step. Either way a unit has one loss and one gradient, and nothing here protects a single
record.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from tacit.learning.batches import Batch, Marks
from tacit.learning.elementwise import exp
from tacit.learning.perceptron import Layer, OuterProducts, Perceptron, counts_of
from tacit.runtime.arrays import Array
from tacit.sites.table import Table

Number = TypeVar("Number", np.float64, np.int64)


class PartialLikelihood:
    """The negative log partial likelihood of each unit, divided by the number of its members.

    The single output of the network is the log hazard ratio.
    """

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient of each unit's loss in its outputs (sites, units, members, 1)."""
        ranks = Ranks(targets)
        _, events, mass, at_risk = _sums(ranks, outputs[..., 0], targets, present)
        # If all risks underflow, an event carries no information.
        events = np.where(at_risk > 0, events, 0.0)
        expected = mass * ranks.during(np.divide(events, at_risk, out=np.zeros_like(mass), where=at_risk > 0))
        return ((expected - events) / _members(present))[..., None]

    def values(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The loss of each unit (sites, units)."""
        log_risks, events, _, at_risk = _sums(Ranks(targets), outputs[..., 0], targets, present)
        counted = (events > 0) & (at_risk > 0)
        logs = np.log(at_risk, out=np.zeros_like(at_risk), where=counted)
        terms = np.where(counted, events * (logs - log_risks), 0.0)
        return (terms / _members(present)).sum(axis=-1)


class Ranks:
    """Sums over risk sets along the last axis, by one sort of all times (and entries) of a unit.

    A member is at risk at a time if it left at that time or later, and entered before.
    """

    def __init__(self, targets: Mapping[str, Array]) -> None:
        moments = targets["time"]
        self.entries = "entry" in targets
        if self.entries:
            moments = np.concatenate([moments, targets["entry"]], axis=-1)
        order = np.argsort(-moments, axis=-1, kind="stable")
        # Places in all units together: to pick from one flat array is much faster than along an axis.
        firsts = np.arange(0, order.size, order.shape[-1], dtype=np.int64)
        starts = firsts.reshape((*order.shape[:-1], 1))
        self._order, self._flat = order, order + starts
        ordered = moments.take(self._flat)
        places = np.broadcast_to(np.arange(moments.shape[-1], dtype=np.int64), moments.shape)
        self._back = np.empty_like(order)
        self._back.put(self._flat, places)
        self._flat_back = self._back + starts
        fresh = np.ones(moments.shape, dtype=np.bool_)
        fresh[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
        # Beginning and end of the block of equal times that a place lies in.
        self._first = np.maximum.accumulate(np.where(fresh, places, 0), axis=-1) + starts
        last = np.where(np.roll(fresh, -1, axis=-1), places, places.shape[-1] - 1)
        last[..., -1] = places.shape[-1] - 1
        self._last = np.minimum.accumulate(last[..., ::-1], axis=-1)[..., ::-1]
        self._flat_last = self._last + starts

    def at_risk(self, mass: Array) -> Array:
        """Sum the mass of all members at risk at each member's time."""
        signed = np.concatenate([mass, -mass], axis=-1) if self.entries else mass
        summed = np.cumsum(signed.take(self._flat), axis=-1)
        return self._unsort(summed.take(self._flat_last))[..., : mass.shape[-1]]

    def during(self, amount: Array) -> Array:
        """The amounts, each at its member's time, that fall into the time each member was at risk."""
        padded = np.concatenate([amount, np.zeros_like(amount)], axis=-1) if self.entries else amount
        summed = np.cumsum(padded.take(self._flat)[..., ::-1], axis=-1)[..., ::-1]
        until = self._unsort(summed.take(self._first))
        members = amount.shape[-1]
        return until[..., :members] - until[..., members:] if self.entries else until

    def draw_controls(self, luck: Array) -> tuple[NDArray[np.int64], Marks]:
        """Draw for each member another one at risk at its time, uniformly; and whether there is one.

        Entries are ignored: the drawn member may have entered later.
        """
        at_risk, place = self._unsort(self._last), self._back
        others = np.minimum((luck * at_risk).astype(np.int64), np.maximum(at_risk - 1, 0))
        others = np.where(others >= place, others + 1, others)
        found = at_risk > 0
        return np.take_along_axis(self._order, np.where(found, others, 0), axis=-1), found

    def _unsort(self, ordered: NDArray[Number]) -> NDArray[Number]:
        return ordered.take(self._flat_back)


def _sums(
    ranks: Ranks, log_risks: Array, targets: Mapping[str, Array], present: Marks
) -> tuple[Array, Array, Array, Array]:
    """Return log risks less the largest, weighed events, risks, and risks summed over those at risk."""
    highest = np.max(log_risks, axis=-1, keepdims=True, where=present, initial=-np.inf)
    log_risks = log_risks - np.where(np.isfinite(highest), highest, 0.0)
    counted = np.where(present, targets.get("weight", np.ones_like(log_risks)), 0.0)
    mass = counted * exp(np.minimum(log_risks, 0.0))
    # With delayed entry, subtraction may leave less than the member's own mass.
    at_risk = np.maximum(ranks.at_risk(mass), mass)
    return log_risks, counted * (targets["event"] > 0), mass, at_risk


def _members(present: Marks) -> Array:
    return np.maximum(present.sum(axis=-1, keepdims=True), 1).astype(np.float64)


class Pairs(Perceptron):
    """Network whose loss is the mean of log(1 + e^lead), the lead of a control's log risk over its case's.

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
        # Cases to the front: other records need no place in the network.
        front = np.argsort(~paired, axis=-1, kind="stable")[..., : max(int(paired.sum(axis=-1).max()), 1)]
        counted = np.take_along_axis(counted, front, axis=-1)
        # A case and its control, one pair after the other: padding comes behind all of them.
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

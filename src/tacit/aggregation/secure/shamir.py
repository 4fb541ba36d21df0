"""Shamir secret sharing: any `threshold` shares give a secret back, one fewer tells nothing (Shamir 1979).

A share is a point of a polynomial over a prime field whose value at 0 is the secret. More shares than needed
also tell which of them are wrong (Gao 2003, for Reed-Solomon codes).

Not in constant time: Python's whole numbers take longer for some values than for others. An attacker who can
time the arithmetic of a site is not covered.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

# The largest prime below 2^257: all secrets of 32 bytes are below it.
PRIME = 2**257 - 93
SECRET_BYTES, SHARE_BYTES = 32, 33

# Coefficients, lowest first, without zeros at the end.
Polynomial = list[int]


def split_secret(secret: bytes, holders: Iterable[int], threshold: int) -> dict[int, bytes]:
    """Split a secret into one share for each holder.

    Args:
        secret: 32 bytes.
        holders: Points of the shares: different small numbers from 1.
        threshold: Number of shares that give the secret back.

    Guarantee:
        Any `threshold - 1` of the shares are uniform, whatever the secret.
    """
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return {holder: value_at(coefficients, holder).to_bytes(SHARE_BYTES, "big") for holder in holders}


def value_at(coefficients: Polynomial, point: int) -> int:
    """Evaluate the polynomial at a small integer."""
    value = 0
    # Points are small, so that one division at the end is cheaper than one at each step.
    for coefficient in reversed(coefficients):
        value = value * point + coefficient
    return value % PRIME


@dataclass(frozen=True)
class Reconstruction:
    """Result of a reconstruction from shares.

    Args:
        secret: The secret; None if the shares do not give it.
        wrong: Holders whose shares do not fit it, among those that were checked.
    """

    secret: bytes | None
    wrong: frozenset[int] = frozenset()


class Reconstructor:
    """Reconstructs one secret after the other that are shared among the same holders.

    Args:
        threshold: Number of shares that give a secret back.
    """

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold
        self._weights: dict[tuple[int, ...], list[int]] = {}
        self._caught: set[int] = set()

    def reconstruct(self, shares: Mapping[int, bytes], fits: Callable[[bytes], bool]) -> Reconstruction:
        """Reconstruct the secret from shares.

        Args:
            shares: By holder.
            fits: Whether it is the right one.
        """
        values = {holder: int.from_bytes(share, "big") for holder, share in shares.items()}
        if len(values) < self.threshold:
            return Reconstruction(None)
        # Holders caught with a wrong share are asked last.
        asked = sorted(sorted(values, key=lambda holder: (holder in self._caught, holder))[: self.threshold])
        secret = self._interpolate(values, tuple(asked))
        if secret is not None and fits(secret):
            return Reconstruction(secret)
        return self._correct(values, fits)

    def _interpolate(self, values: Mapping[int, int], holders: tuple[int, ...]) -> bytes | None:
        if holders not in self._weights:
            self._weights[holders] = _weights_at_zero(holders)
        pairs = zip(holders, self._weights[holders], strict=True)
        return _as_secret(sum(weight * values[holder] for holder, weight in pairs) % PRIME)

    def _correct(self, values: Mapping[int, int], fits: Callable[[bytes], bool]) -> Reconstruction:
        polynomial = decode_polynomial(values, self.threshold)
        secret = None if polynomial is None else _as_secret(value_at(polynomial, 0))
        if polynomial is not None and secret is not None and fits(secret):
            wrong = {holder for holder, value in values.items() if value_at(polynomial, holder) != value}
            self._caught |= wrong
            return Reconstruction(secret, frozenset(wrong))
        if len(values) == self.threshold + 1:
            # One share too many corrects nothing by itself, but a caller who recognizes the secret can leave
            # out each in turn.
            for holders in combinations(sorted(values), self.threshold):
                secret = self._interpolate(values, holders)
                if secret is not None and fits(secret):
                    self._caught |= set(values) - set(holders)
                    return Reconstruction(secret, frozenset(set(values) - set(holders)))
        return Reconstruction(None)


def decode_polynomial(values: Mapping[int, int], threshold: int) -> Polynomial | None:
    """The polynomial of a degree below `threshold` that all values lie on but half of the spare ones."""
    # Gao's algorithm: Euclid's, on the polynomial through all values and the one that vanishes at all points.
    vanishing, through = [1], list[int]()
    for point, value in values.items():
        step = (value - value_at(through, point)) * pow(value_at(vanishing, point), -1, PRIME) % PRIME
        through = _minus(through, [-step * term % PRIME for term in vanishing])
        vanishing = _times(vanishing, [-point % PRIME, 1])
    before, now, left, right = vanishing, through, list[int](), [1]
    while 2 * (len(now) - 1) >= len(values) + threshold:
        quotient, rest = _divide(before, now)
        before, now = now, rest
        left, right = right, _minus(left, _times(quotient, right))
    found, rest = _divide(now, right)
    return found if not rest and len(found) <= threshold else None


def _weights_at_zero(holders: tuple[int, ...]) -> list[int]:
    weights: list[int] = []
    for holder in holders:
        above = below = 1
        for other in holders:
            if other != holder:
                above, below = above * other, below * (other - holder)
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights


def _as_secret(value: int) -> bytes | None:
    return value.to_bytes(SECRET_BYTES, "big") if value < 2 ** (8 * SECRET_BYTES) else None


def _trim(terms: Polynomial) -> Polynomial:
    while terms and not terms[-1]:
        terms.pop()
    return terms


def _minus(first: Polynomial, second: Polynomial) -> Polynomial:
    size = max(len(first), len(second))
    pairs = zip(first + [0] * (size - len(first)), second + [0] * (size - len(second)), strict=True)
    return _trim([(one - other) % PRIME for one, other in pairs])


def _times(first: Polynomial, second: Polynomial) -> Polynomial:
    terms = [0] * max(len(first) + len(second) - 1, 0)
    for place, factor in enumerate(first):
        for offset, other in enumerate(second):
            terms[place + offset] += factor * other
    return _trim([term % PRIME for term in terms])


def _divide(above: Polynomial, below: Polynomial) -> tuple[Polynomial, Polynomial]:
    rest, inverse = list(above), pow(below[-1], -1, PRIME)
    quotient = [0] * max(len(above) - len(below) + 1, 0)
    for place in reversed(range(len(quotient))):
        quotient[place] = factor = rest[place + len(below) - 1] * inverse % PRIME
        for offset, term in enumerate(below):
            rest[place + offset] = (rest[place + offset] - factor * term) % PRIME
    return _trim(quotient), _trim(rest[: len(below) - 1])

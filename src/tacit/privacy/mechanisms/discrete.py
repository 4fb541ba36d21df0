"""Discrete Gaussian and discrete Laplace noise on the integers, drawn exactly.

Secure sums add up whole numbers, so their noise is whole as well.

Discrete Gaussian (Canonne, Kamath and Steinke 2020): x is drawn in proportion to `exp(-x^2 / (2 sigma^2))`.
Far from zero first: the line is cut into blocks of a power of two, one is drawn from a table in proportion to
the density where it begins, a place inside it from plain bits, and the place is kept with the probability
`exp(-r)` by which its density is lower.

Discrete Laplace, or two-sided geometric (Ghosh, Roughgarden and Sundararajan 2009): x has the probability
`(1 - a) / (1 + a) a^|x|` with `a = exp(-1 / scale)`. It is the difference of two geometric variables, which
are sums of negative binomial ones: so the law can be cut into shares. Each share is a difference of two
negative binomial variables, drawn from a table of their distribution function by inversion.

Random numbers have 256 bits, of which 64 decide nearly always; where doubles cannot tell, the other bits are
drawn and compared exactly.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.errors import is_between, require, require_count
from tacit.runtime.keys import Secret

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

# Up to the first, whole numbers are exact in doubles; down to the second, there is more than one block.
LARGEST, SMALLEST = 2.0**40, 0.1
# Bits of a random number, and digits that are more than those.
BITS, DIGITS = 256, 100
# Bits of the probabilities that a table adds up.
FINE = 320
# Blocks that are less likely than this are never drawn.
NEVER = Decimal(2) ** -260
# Roundings of u and of exp(-r), which are below 2^-48, and a wide margin.
UNSURE = 2.0**-40
# Scales of discrete Laplace noise: a table has about 180 entries for each unit of the scale.
LAPLACE_SMALLEST, LAPLACE_LARGEST = 2.0**-20, 2.0**10
# The most shares of one noise.
MOST_SHARES = 1000


def discrete_gaussian(sigma: float, size: int, secret: Secret) -> Integers:
    """Independent draws of the discrete Gaussian around zero.

    Args:
        sigma: The parameter of the law; from 1 on, also its standard deviation to ten digits.
        size: Number of draws.
        secret: Source of randomness.

    Guarantee:
        For truly random words, each draw is within 2^-200 of the law in total variation.
    """
    require(is_between(sigma, SMALLEST, LARGEST), "sigma", sigma, f"above {SMALLEST} and below 2^40")
    require(size >= 0, "size", size, "at least 0")
    blocks, drawn, missing = _blocks(float(sigma)), [np.empty(0, np.int64)], size
    while missing > 0:
        # A few per cent more than needed as a rule: the rest is thrown away.
        some = _accept(blocks, math.ceil(missing / blocks.kept * 1.02) + 32, secret)[:missing]
        drawn.append(some)
        missing -= some.size
    return np.concatenate(drawn)


def discrete_laplace(scale: float, size: int, secret: Secret) -> Integers:
    """Independent draws of the discrete Laplace law around zero, `(1 - a) / (1 + a) a^|k|`.

    Args:
        scale: Of the law: a is `exp(-1 / scale)`. A sum of counts that a record moves by 1 has the epsilon
            `1 / scale`.
        size: Number of draws.
        secret: Source of randomness.

    Guarantee:
        For truly random words, each draw is within 2^-200 of the law in total variation.
    """
    return discrete_laplace_share(scale, 1, size, secret)


def discrete_laplace_share(scale: float, shares: int, size: int, secret: Secret) -> Integers:
    """Draw shares of discrete Laplace noise: `shares` independent ones add up to exactly that law.

    Args:
        scale: Of the law of the sum.
        shares: Number of shares that add up to it.
        size: Number of draws.
        secret: Source of randomness.

    Guarantee:
        For truly random words, each draw is within 2^-200, in total variation, of the difference of two
        independent negative binomial variables of shape 1 / shares and parameter a. Their probability
        generating function is `((1 - a) / (1 - a z))^(1 / shares)`, so the sum of `shares` of them is
        geometric, and the difference of two geometric variables is discrete Laplace: `(1 - a)^2 a^|k|` times
        `1 + a^2 + a^4 + ...`. More shares than these add independent noise to that, which is post-processing.
    """
    require_laplace_scale(scale)
    require_count("shares", shares, MOST_SHARES)
    require(size >= 0, "size", size, "at least 0")
    table, (ups, downs) = _negative_binomial(float(scale), int(shares)), secret.words((2, size))
    return _pick(table, ups, secret) - _pick(table, downs, secret)


def require_laplace_scale(scale: float) -> None:
    """Refuse a scale of discrete Laplace noise whose table would be too long, or no table at all."""
    known = LAPLACE_SMALLEST <= scale <= LAPLACE_LARGEST
    require(known, "scale", scale, f"from 2^-20 to {LAPLACE_LARGEST:g} with discrete Laplace noise")


def discrete_laplace_variance(scale: float) -> float:
    """Return the variance of discrete Laplace noise: 2 a / (1 - a)^2."""
    return 2 * math.exp(-1 / scale) / math.expm1(-1 / scale) ** 2


class _Table(NamedTuple):
    """Distribution function of a law on 0, 1, 2, ..., for inversion.

    Args:
        ends: The probability of the numbers up to each, times 2^256.
        tops: The first 64 bits of these, without the last, which is 1.
    """

    ends: tuple[int, ...]
    tops: Words


@lru_cache(maxsize=8)
def _negative_binomial(scale: float, shares: int) -> _Table:
    """Tabulate the negative binomial law of shape 1 / shares.

    By its recurrence: P(0) = (1 - a)^r, P(k + 1) = P(k) (k + r) / (k + 1) a, in steps of 2^-320. As r is at
    most 1, what is left out is less than a geometric series of ratio a: at most 2^-260 / (1 - a) < 2^-249.
    Each step is rounded down by less than two units, and errors shrink along the recurrence: those of all
    ends, of fewer than 2^18 numbers, stay below 2^-280.
    """
    with localcontext(prec=DIGITS):
        a = (-1 / Decimal(scale)).exp()
        ratio, weight = (int(part * 2**FINE) for part in (a, (1 - a) ** (1 / Decimal(shares))))
    sums, so_far, k, least = list[int](), 0, 0, 2**FINE >> 260
    # Two numbers at least, so that there is something to choose from.
    while weight > least or k < 2:
        so_far += weight
        # Below 2^256 in spite of rounding: the last end is beyond every random number.
        sums.append(min(so_far >> FINE - BITS, 2**BITS - 1))
        weight = (weight * ratio >> FINE) * (k * shares + 1) // ((k + 1) * shares)
        k += 1
    sums[-1] = 2**BITS
    return _Table(tuple(sums), _tops(sums[:-1]))


class _Blocks(NamedTuple):
    """Blocks of the half line, with their probabilities.

    Args:
        sigma: The parameter of the law.
        length: Of each block: a power of two, at most an eighth of sigma or 1.
        ends: The probability of the blocks up to each, times 2^256.
        tops: The first 64 bits of these, without the last, which is 1.
        kept: About the share of draws that are kept.
    """

    sigma: float
    length: int
    ends: tuple[int, ...]
    tops: Words
    kept: float


@lru_cache(maxsize=64)
def _blocks(sigma: float) -> _Blocks:
    length = 2 ** max(math.floor(math.log2(sigma)) - 3, 0)
    with localcontext(prec=DIGITS):
        # Weights exp(-(k length)^2 / (2 sigma^2)): each is the one before times an odd power of the first.
        first = (-(Decimal(length) ** 2) / (2 * Decimal(sigma) ** 2)).exp()
        weights, weight, odd = list[Decimal](), Decimal(1), first
        while weight > NEVER:
            weights.append(weight)
            weight, odd = weight * odd, odd * first * first
        total, sums, so_far = sum(weights), list[int](), Decimal(0)
        for weight in weights[:-1]:
            so_far += weight
            sums.append(int(so_far / total * 2**BITS))
        kept = max(sigma * math.sqrt(2 * math.pi), 1.0) / (2 * length * float(total))
    return _Blocks(sigma, length, (*sums, 2**BITS), _tops(sums), min(kept, 1.0))


def _tops(ends: Sequence[int]) -> Words:
    """Return the first 64 bits of numbers of 256."""
    return np.array([end >> (BITS - 64) for end in ends], dtype=np.uint64)


def _accept(blocks: _Blocks, count: int, secret: Secret) -> Integers:
    """Draw `count` candidates and return the accepted ones."""
    picks, places, coins = secret.words((3, count))
    starts = _pick(blocks, picks, secret) * blocks.length
    inside = (places & np.uint64(blocks.length - 1)).view(np.int64)
    values = starts + inside
    kept = _flip_coin(blocks, starts, inside, coins, secret)
    negative = places >= np.uint64(2**63)
    # Zero has no sign: one of its two spellings goes.
    kept &= ~(negative & (values == 0))
    np.negative(values, out=values, where=negative)
    return values[kept]


def _pick(table: _Blocks | _Table, words: Words, secret: Secret) -> Integers:
    """Return the number of the entry that each word selects, by inversion."""
    index = np.searchsorted(table.tops, words, side="right").astype(np.int64)
    # Only where the first 64 bits are those of an end do the others matter; far out, ends share theirs.
    for tied in np.flatnonzero(table.tops[index - 1] == words):
        index[tied] = bisect_right(table.ends, _extend_word(int(words[tied]), secret))
    return index


def _flip_coin(
    blocks: _Blocks, starts: Integers, inside: Integers, coins: Words, secret: Secret
) -> NDArray[np.bool]:
    """Return coin flips u < exp(-r), where r is the fall of the log density since the block's start."""
    # r = ((start + inside)^2 - start^2) / (2 sigma^2), in factors of which each is rounded once.
    falls = (inside.astype(np.float64) / blocks.sigma) * ((2 * starts + inside) / (2 * blocks.sigma))
    chances, numbers = np.exp(-falls), coins * 2.0**-64
    kept = numbers < chances
    for place in np.flatnonzero(np.abs(numbers - chances) < UNSURE):
        fall = int(inside[place]) * int(2 * starts[place] + inside[place])
        kept[place] = _below(_extend_word(int(coins[place]), secret), fall, blocks.sigma)
    return kept


def _below(number: int, fall: int, sigma: float) -> bool:
    """Return number / 2^256 < exp(-fall / (2 sigma^2)), with enough digits that rounding cannot decide."""
    with localcontext(prec=DIGITS):
        return Decimal(number) < (-Decimal(fall) / (2 * Decimal(sigma) ** 2)).exp() * 2**BITS


def _extend_word(word: int, secret: Secret) -> int:
    """A random number of 256 bits that begins with this word."""
    for more in secret.words((BITS // 64 - 1,)):
        word = word << 64 | int(more)
    return word

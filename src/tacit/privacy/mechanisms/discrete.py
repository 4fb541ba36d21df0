"""Discrete Gaussian noise on the integers (Canonne, Kamath and Steinke 2020), drawn exactly.

What is added up in secret is added up in whole numbers, so its noise is whole as well: x is drawn in
proportion to `exp(-x^2 / (2 sigma^2))`. Far from zero first: the line is cut into blocks of a power of two,
one is drawn from a table in proportion to the density where it begins, a place inside it from plain bits, and
the place is kept with the probability `exp(-r)` by which its density is lower. Random numbers have 256 bits,
of which 64 decide nearly always; where doubles cannot tell, the other bits are drawn and compared exactly.
"""

import math
from bisect import bisect_right
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.errors import is_between, require
from tacit.runtime.keys import Secret

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

# Up to the first, whole numbers are exact in doubles; down to the second, there is more than one block.
LARGEST, SMALLEST = 2.0**40, 0.1
# Bits of a random number, and digits that are more than those.
BITS, DIGITS = 256, 100
# Blocks that are less likely than this are never drawn.
NEVER = Decimal(2) ** -260
# Roundings of u and of exp(-r), which are below 2^-48, and a wide margin.
UNSURE = 2.0**-40


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
    tops = np.array([end >> (BITS - 64) for end in sums], dtype=np.uint64)
    return _Blocks(sigma, length, (*sums, 2**BITS), tops, min(kept, 1.0))


def _accept(blocks: _Blocks, count: int, secret: Secret) -> Integers:
    """Draw `count` candidates and return the accepted ones."""
    picks, places, coins = secret.words((3, count))
    starts = _pick_block(blocks, picks, secret) * blocks.length
    inside = (places & np.uint64(blocks.length - 1)).view(np.int64)
    values = starts + inside
    kept = _flip_coin(blocks, starts, inside, coins, secret)
    negative = places >= np.uint64(2**63)
    # Zero has no sign: one of its two spellings goes.
    kept &= ~(negative & (values == 0))
    np.negative(values, out=values, where=negative)
    return values[kept]


def _pick_block(blocks: _Blocks, words: Words, secret: Secret) -> Integers:
    """Return the number of the block that each word selects."""
    index = np.searchsorted(blocks.tops, words, side="right").astype(np.int64)
    # Only where the first 64 bits are those of an end do the others matter; far out, ends share theirs.
    for tied in np.flatnonzero(blocks.tops[index - 1] == words):
        index[tied] = bisect_right(blocks.ends, _extend_word(int(words[tied]), secret))
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

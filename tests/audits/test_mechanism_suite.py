"""Every mechanism stands the attack on it, and every broken one is found out.

Seeds are fixed, so verdicts repeat. A right mechanism would be accused on fewer than one in twenty of them.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from scipy import stats

from tacit.audits.lower_bounds import bounds
from tacit.audits.mechanisms import PRIMITIVES, audit_mechanisms
from tacit.learning import batches
from tacit.privacy.mechanisms import base, site_level
from tacit.privacy.mechanisms.base import add_noise
from tacit.privacy.mechanisms.secure_gram import SecureGram
from tacit.privacy.mechanisms.vertical import LocalColumns, clip_to_bound
from tacit.runtime.keys import Key

# An even spread shows the wrong norm, and hides the size of the noise.
SPREAD = ("update of a site, spread, Laplace", "training steps, spread, Laplace")
TELLING = [name for name in PRIMITIVES if name not in SPREAD]
CURVES = [name for name in PRIMITIVES if name.startswith("curves")]


def same(kind, honest):
    """Another kind of mechanism with the same fields."""
    return kind(**{entry.name: getattr(honest, entry.name) for entry in fields(honest)})


def halved(honest):
    """The same mechanism with half the noise; a choice at twice the price."""
    known = {entry.name for entry in fields(honest)}
    if getattr(honest, "counts", None) is not None:
        return replace(honest, counts=replace(honest.counts, scale=honest.counts.scale / 2))
    name = next(name for name in ("multiplier", "noise", "epsilon") if name in known)
    return replace(honest, **{name: getattr(honest, name) * (2 if name == "epsilon" else 0.5)})


def half_price(part):
    """The same release at half the cost."""
    if part.law == "discrete-laplace":
        # Its sensitivity is a whole number of cells.
        return replace(part, scale=2 * part.scale)
    return replace(
        part, sensitivity=part.sensitivity / 2, bound=None if part.bound is None else part.bound / 2
    )


@pytest.mark.parametrize("name", TELLING)
def test_a_mechanism_stands_an_attack_comes_near_its_claim_and_half_of_it_is_found_out(name):
    primitive = PRIMITIVES[name]()
    # The attack of `audit`, once for two claims.
    evidence = primitive.attack(primitive.mechanism, primitive.most, Key(0, rehearsal=True))
    found = bounds(evidence, primitive.price, primitive.delta)
    assert found.kept
    assert found.largest > 0.5 * found.claim
    halves = tuple(half_price(part) for part in primitive.price)
    assert not bounds(evidence, halves, primitive.delta).kept


@pytest.mark.parametrize("name", TELLING)
def test_half_the_noise_is_found_out(name):
    primitive = PRIMITIVES[name]()
    assert not primitive.audit(mechanism=halved(primitive.mechanism)).kept


@pytest.mark.parametrize("name", SPREAD)
def test_laplace_noise_after_an_l2_clip_is_found_out(monkeypatch, name):
    primitive = PRIMITIVES[name]()
    assert primitive.audit().kept
    monkeypatch.setitem(base.NORMS, "laplace", "l2")
    assert not primitive.audit().kept


BROKEN_UPDATES = {
    "each number is bounded, and not all of them together": lambda update, law, bound: np.clip(
        update, -bound, bound
    ),
    "nothing is bounded": lambda update, law, bound: update,
}


@pytest.mark.parametrize("how", BROKEN_UPDATES)
@pytest.mark.parametrize("name", ["update of a site, spread", SPREAD[0]])
def test_an_update_that_is_not_bounded_as_a_whole_is_found_out(monkeypatch, name, how):
    monkeypatch.setattr(site_level, "clip_by_law", BROKEN_UPDATES[how])
    assert not PRIMITIVES[name]().audit().kept


def test_records_that_are_drawn_twice_as_often_are_found_out(monkeypatch):
    honest = batches.poisson

    def eager(cohort, steps, rate, keys, *, coupled):
        return honest(cohort, steps, 2 * rate, keys, coupled=coupled)

    monkeypatch.setattr(batches, "poisson", eager)
    assert not PRIMITIVES["local work, records drawn"]().audit().kept


def test_columns_that_are_multiplied_in_secret_without_a_bound_are_found_out(monkeypatch):
    monkeypatch.setattr(SecureGram, "clip_blocks", lambda self, party, rows: rows)
    assert not PRIMITIVES["products in secret"]().audit().kept


@dataclass(frozen=True, kw_only=True)
class ShapedLikeTheBasis(LocalColumns):
    """Noise N(0, s^2 M) instead of the same in all directions; M as a B-spline basis of 20 has it."""

    def noisy_rows(self, rows, column, key):
        shape = np.sqrt([0.2183389, 0.6, 1.6, 5.8118875])
        noise = add_noise(np.zeros_like(rows), "gaussian", self.scales[column], key, self.rehearsal)
        return clip_to_bound(rows, self.radii[column]) + noise * shape


def test_noise_on_curves_in_the_shape_of_their_basis_is_found_out_where_it_is_thin():
    verdicts = {}
    for name in CURVES:
        primitive = PRIMITIVES[name]()
        verdicts[name] = primitive.audit(mechanism=same(ShapedLikeTheBasis, primitive.mechanism)).kept
    assert list(verdicts.values()) == [False, False, True, True]


# If each of 100 audits wrongs a right mechanism with probability 5 %, more than 13 do so once in 1,700.
MOST = int(stats.binom.isf(1e-3, 100, 0.05))
QUICK = ("a training step", "update of a site")


def accused(name: str) -> int:
    """Count the audits, of 100, that accuse a correct mechanism."""
    primitive = replace(PRIMITIVES[name](), most=500)
    return sum(not primitive.audit(seed=seed).kept for seed in range(100))


@pytest.mark.parametrize("name", QUICK)
def test_a_right_mechanism_is_not_accused_by_100_audits_beyond_their_doubt(name):
    assert accused(name) <= MOST


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PRIMITIVES if name not in QUICK])
def test_no_right_mechanism_is_accused_by_100_audits_beyond_their_doubt(name):
    assert accused(name) <= MOST


@pytest.mark.slow
def test_all_of_them_share_the_doubt_and_say_how_far_they_are():
    told = []
    found = audit_mechanisms(confidence=0.9, seed=1, tell=lambda words, share: told.append(share))
    assert list(found) == list(PRIMITIVES)
    assert all(each.kept for each in found.values())
    assert {each.confidence for each in found.values()} == {1 - 0.1 / len(PRIMITIVES)}
    assert told == [number / len(PRIMITIVES) for number in range(len(PRIMITIVES))]


def test_an_audit_repeats_with_its_seed():
    primitive = PRIMITIVES["a training step"]()
    evidence = primitive.attack(primitive.mechanism, primitive.most, Key(4, rehearsal=True))
    assert primitive.audit(seed=4) == bounds(evidence, primitive.price, primitive.delta)
    assert primitive.audit(seed=4) == primitive.audit(seed=4) != primitive.audit(seed=5)


def test_an_attack_sees_nothing_but_what_the_mechanism_lets_out():
    primitive = PRIMITIVES["a training step"]()
    silent = replace(primitive.mechanism, multiplier=1e9)
    evidence = primitive.attack(silent, 2000, Key(0, rehearsal=True))
    assert bounds(evidence, primitive.price, 1e-5).largest == 0

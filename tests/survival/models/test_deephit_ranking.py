"""The compiled ranking term is the sum over pairs that it is said to be, and its slope is that of torch."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.survival.models.deephit import compare

UNITS, PLACES, SPREAD = 3, 6, 0.3


def drawn(seed: int, members: int) -> dict[str, np.ndarray]:
    """Some units: events of which some coincide, members of which some are missing."""
    draws = np.random.default_rng(seed)
    where = draws.integers(0, 2 * PLACES, size=(UNITS, members))
    return {
        "incidence": draws.random((UNITS, members, PLACES)),
        "seen": (where[..., None] == np.arange(PLACES)).astype(float),
        "time": draws.integers(0, 4, size=(UNITS, members)).astype(float),
        "present": draws.random((UNITS, members)) < 0.8,
        "weight": draws.random((UNITS, members)),
    }


def by_torch(given: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Every pair written out, and what torch makes of the sum."""
    incidence, seen, time, present, weight = (torch.from_numpy(values) for values in given.values())
    incidence.requires_grad_()
    at_event = torch.einsum("ujp,uip->uji", incidence, seen)
    lead = at_event - torch.diagonal(at_event, dim1=1, dim2=2)[:, None]
    counted = present[:, :, None] & (present & (seen.sum(dim=2) > 0))[:, None]
    counted = counted & (time[:, :, None] > time[:, None])
    totals = (torch.where(counted, torch.exp(lead / SPREAD), 0.0) * weight[:, None]).sum(dim=(1, 2))
    totals.sum().backward()
    assert incidence.grad is not None
    return totals.detach().numpy(), incidence.grad.numpy()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 9))
def test_sums_and_slopes_are_those_of_all_pairs(seed, members):
    given = drawn(seed, members)
    expected, slope = by_torch({name: values.copy() for name, values in given.items()})
    slopes = np.zeros_like(given["incidence"])
    totals = compare(*given.values(), SPREAD, slopes)
    np.testing.assert_allclose(totals, expected, rtol=1e-13)
    np.testing.assert_allclose(slopes, slope, rtol=1e-12, atol=1e-12)


def test_who_is_missing_moves_nothing_however_broken():
    given = drawn(7, 6)
    given["present"][:, 2] = False
    made = []
    for broken in (0.5, np.nan, np.inf):
        given["incidence"][:, 2], slopes = broken, np.zeros_like(given["incidence"])
        made.append((compare(*given.values(), SPREAD, slopes), slopes))
    for totals, slopes in made[1:]:
        assert (totals == made[0][0]).all()
        assert (slopes == made[0][1]).all()
    assert (made[0][1][:, 2] == 0).all()


def test_what_is_no_number_stays_seen():
    """Of a unit with a broken record nothing is hidden: its gradient is thrown away as a whole."""
    given = drawn(7, 6)
    given["present"][:], given["time"][0], given["seen"][0] = True, np.arange(6.0), 0.0
    given["seen"][0, :, 1] = 1.0
    given["incidence"][0, 3] = np.nan
    slopes = np.zeros_like(given["incidence"])
    totals = compare(*given.values(), SPREAD, slopes)
    assert np.isnan(totals[0])
    assert np.isnan(slopes[0]).any()
    assert np.isfinite(totals[1:]).all()
    assert np.isfinite(slopes[1:]).all()

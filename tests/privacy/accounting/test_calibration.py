"""The noise at which a falling price meets its target is found with few prices, wherever it lies."""

import math

import pytest

from tacit.privacy.accounting import smallest_noise


class Price:
    """A price that counts how often it was asked for."""

    def __init__(self, of):
        self.of, self.asked = of, 0

    def __call__(self, noise: float) -> float:
        self.asked += 1
        return self.of(noise)


@pytest.mark.parametrize("power", [0.3, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("factor", [0.5, 1.0, 1e2])
def test_a_price_that_falls_by_a_power_is_met_with_few_prices(power, factor):
    """Each of them composes all releases of a run."""
    price = Price(lambda noise: factor * noise**-power)
    found = smallest_noise([price], 1.0)
    assert 0.9995 <= price.of(found) <= 1.0
    assert price.asked <= 16


@pytest.mark.parametrize("where", [0.03, 0.3, 0.999, 3.0, 300.0])
@pytest.mark.parametrize("before", [10.0, math.inf])
def test_a_price_that_leaps_is_met_where_it_leaps(where, before):
    """The slope says nothing there: noise is halved between too little and enough."""
    price = Price(lambda noise: 0.5 if noise >= where else before)
    assert where <= smallest_noise([price], 1.0) <= where * 1.002
    assert price.asked <= 40


def test_a_rough_price_saves_prices_that_count():
    """It is off by a tenth; where it finds nothing, the search begins anew."""
    exact = [Price(lambda noise: (100 / noise) ** 2) for _ in range(3)]
    answers = [
        smallest_noise([Price(rough), one], 1.0)
        for rough, one in zip(
            (lambda noise: 1.1 * (100 / noise) ** 2, lambda noise: math.inf, lambda noise: 0.0),
            exact,
            strict=True,
        )
    ]
    assert all(100 <= noise <= 100.03 for noise in answers)
    assert exact[0].asked < exact[1].asked

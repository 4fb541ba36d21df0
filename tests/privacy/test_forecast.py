"""A run from which nothing can be learned is refused; the advice of the refusal works."""

import re

import pytest

from tacit.errors import Refused
from tacit.privacy.forecast import Forecast, require_useful


def forecast(records, **fields):
    return Forecast(per_feature=100.0, sites=3, features=5, records=records, **fields)


def test_noise_of_more_than_two_is_refused_and_exactly_two_is_not():
    assert forecast(250).noise == 2.0
    require_useful(forecast(250), spend_anyway=False)
    with pytest.raises(Refused, match="the noise would hide what these records say"):
        require_useful(forecast(249), spend_anyway=False)
    require_useful(forecast(249), spend_anyway=True)
    require_useful(forecast(None), spend_anyway=False)


def test_with_the_records_that_a_refusal_asks_for_much_is_learned():
    with pytest.raises(Refused) as refused:
        require_useful(forecast(249, secure=40.0), spend_anyway=False)
    found = re.search(r"about (\d+) records .* are needed, with noise = \"secure\" (\d+)", str(refused.value))
    assert found is not None
    needed, secure = map(int, found.groups())
    assert 0.79 < forecast(needed).noise <= 0.8
    assert 0.79 < forecast(secure, secure=40.0).with_one_noise.noise <= 0.8

"""Site-level mechanism: its public denominator and its noise."""

import math

import numpy as np
import pytest

from tacit.aggregation.mean import Mean
from tacit.errors import InvalidValue
from tacit.privacy.mechanisms.site_level import SiteLevel
from tacit.runtime.keys import Key

KEY = Key(5, rehearsal=True)


def sites(**fields: object) -> SiteLevel:
    given = {"law": "gaussian", "clip": 1.0, "multiplier": 2.0, "where": "server", "reach": 0.25}
    return SiteLevel(**{**given, "rehearsal": True, **fields})


def test_the_server_averages_over_the_sites_that_it_expects():
    assert sites(rate=0.3).denominator(10) == pytest.approx(3.0)
    assert sites(rate=1.0).denominator(10) == 10.0


def test_a_server_that_sees_every_update_averages_over_those_that_came():
    assert sites(where="site", reach=1.0).denominator(10) is None


@pytest.mark.parametrize("rate", [0.2, 0.7, 1.0])
def test_one_site_moves_the_mean_over_the_expected_sites_as_far_as_its_reach(rate):
    # The reach is what noise is scaled by: over another number of sites the same update would go elsewhere.
    expected = sites(rate=rate).denominator(20)
    reach = Mean().sensitivity(1.0, expected)
    update = np.array([[3.0, 4.0]], dtype=np.float64)
    sent = sites(rate=rate, reach=reach).at_site(update[0], KEY)[None]
    moved = Mean()(sent, sites=expected)
    assert float(np.linalg.norm(moved)) == pytest.approx(reach)
    assert reach == pytest.approx(1 / (20 * rate))


def test_an_honest_update_is_as_long_as_the_clip_where_it_arrives_without_noise():
    assert sites(clip=3.0).update_bound() == (3.0, "l2")
    assert sites(clip=3.0, law="laplace").update_bound() == (3.0, "l1")
    assert sites(where="site", clip=3.0, reach=3.0).update_bound() is None


@pytest.mark.parametrize(("law", "unit"), [("gaussian", 1.0), ("laplace", math.sqrt(2))])
def test_the_deviation_is_that_of_the_noise_in_the_mean(law, unit):
    at_site = sites(law=law, where="site", clip=3.0, reach=3.0)
    assert at_site.deviation(4) == pytest.approx(unit * 2.0 * 3.0 / 2)
    assert sites(law=law, clip=3.0).deviation(4) == pytest.approx(unit * 2.0 * 0.25)
    zeros, keys = np.zeros((4, 50_000)), [KEY / name for name in "abcd"]
    noise = at_site.at_sites(zeros, keys).mean(axis=0)
    assert float(noise.std()) == pytest.approx(at_site.deviation(4), rel=0.03)


@pytest.mark.parametrize("wrong", [{"reach": 2.0}, {"reach": 1.0, "rate": 0.5}])
def test_noise_at_the_site_counts_on_no_draw_and_on_no_other_reach(wrong):
    with pytest.raises(InvalidValue, match="reach = clip and rate = 1"):
        sites(where="site", **wrong)

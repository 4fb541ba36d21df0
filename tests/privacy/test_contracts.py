"""The bound of an aggregation that the privacy of sites asks for, in the norm of the noise."""

from tacit.aggregation.base import as_aggregator
from tacit.aggregation.mean import Mean


class OfTheUser:
    """A user's own aggregation: its bound is one in L2, and it knows no other norm."""

    weights = "uniform"

    def __call__(self, updates):
        return updates.matrix.mean(axis=0)

    def sensitivity(self, clip: float, sites: float) -> float:
        return clip / sites


def test_a_bound_in_l2_is_not_taken_for_one_in_l1():
    rule = as_aggregator(OfTheUser())
    assert rule.sensitivity(2.0, 4.0, "l2") == 0.5
    assert rule.sensitivity(2.0, 4.0, "l1") is None


def test_a_rule_of_ours_is_asked_in_the_norm_of_the_noise():
    class Crooked(Mean):
        def sensitivity(self, clip, sites, norm="l2"):
            return {"l2": 1.0, "l1": 7.0}[norm] * clip / sites

    rule = as_aggregator(Crooked())
    assert rule.sensitivity(2.0, 4.0, "l2") == 0.5
    assert rule.sensitivity(2.0, 4.0, "l1") == 3.5

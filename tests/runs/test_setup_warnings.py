"""Warnings come where a rule cannot do what its name promises, and nowhere else."""

import pytest

from tacit import Open, Privacy
from tacit.aggregation.defence.quarantine import Quarantine, too_few_warning
from tacit.aggregation.mean import Mean
from tacit.aggregation.robust.coordinatewise import Median, TrimmedMean
from tacit.aggregation.robust.krum import Krum
from tacit.aggregation.robust.mixing import Bucketing
from tacit.aggregation.robust.reweighted import CovarianceFilter
from tacit.errors import Refused
from tacit.privacy.mechanisms.secure_sum import honest
from tacit.runs.setup import aggregation_warnings, min_sites_for


def promise(noise: str, **given: object) -> Privacy:
    return Privacy(unit="site", noise=noise, epsilon=2.0, delta=1e-5, clip=1.0, **given)


def told(rule, sites: int | None, privacy: Privacy | Open = Open(), **given) -> list[str]:  # noqa: B008
    return aggregation_warnings(rule, sites, privacy, **given)


@pytest.mark.parametrize("sites", [2, 3])
def test_among_fewer_than_four_nobody_is_outvoted(sites: int):
    assert told(TrimmedMean(f=0), sites) == [
        f"with {sites} sites, no rule can outvote a dishonest one: updates are only screened"
    ]
    assert "no rule can outvote" not in " ".join(told(TrimmedMean(f=1), 4))


def test_a_rule_that_stands_no_liar_says_so_and_one_that_does_not_claim_to_is_silent():
    assert told(TrimmedMean(f=0), 9) == [
        "trimmed-mean with these options tolerates no dishonest site among 9"
    ]
    assert told(TrimmedMean(f=1), 9) == []
    assert told(Mean(), 2) == told(Mean(), 9) == []


@pytest.mark.parametrize(("f", "sites", "many"), [(2, 6, True), (2, 7, False), (3, 9, True), (3, 10, False)])
def test_a_third_of_the_sites_is_much_to_stand(f: int, sites: int, many: bool):
    assert (f"f = {f} of {sites} sites is a third or more" in " ".join(told(TrimmedMean(f=f), sites))) is many


def test_what_suffers_under_noise_at_the_sites_is_told_there_alone():
    suffering = "loses more accuracy to noise at the sites than the mean"
    assert suffering in " ".join(told(Median(), 9, promise("site")))
    assert suffering not in " ".join(told(Median(), 9, promise("server")))
    assert suffering not in " ".join(told(CovarianceFilter(f=1), 9, promise("site")))
    assert told(Median(), None, Open()) == []


def test_where_nobody_sees_single_updates_that_is_said():
    assert told(Mean(), 9, promise("secure")) == [
        "the server sees no single update, so nothing but its own clipping limits a dishonest site"
    ]
    buckets = Bucketing(then=Median(f=1), size=3)
    assert "1 of 4 buckets can be outvoted" in told(buckets, 12, promise("secure"))[0]
    unknown = told(buckets, None, promise("secure"))
    assert unknown == ["the server sees no single update: a dishonest site spoils the sum of its bucket"]


def test_a_quarantine_among_too_few_to_judge_is_told():
    assert told(Mean(), 2, quarantine=Quarantine()) == [too_few_warning(2)]
    assert told(Mean(), 40, quarantine=Quarantine()) == []
    assert told(Mean(), None, quarantine=Quarantine()) == []


def test_the_fewest_sites_are_those_that_a_rule_can_serve():
    for rule in (Mean(), TrimmedMean(f=2), Krum(f=2), Median(f=1)):
        fewest = min_sites_for(rule, Open())
        rule.resolve(fewest, Open())
        if fewest > 1:
            with pytest.raises(Exception, match="sites"):
                rule.resolve(fewest - 1, Open())
    assert min_sites_for(Mean(), Open()) == 1
    assert min_sites_for(TrimmedMean(f=2), Open()) == 5


def test_in_secret_there_are_as_many_more_as_hide_everybody():
    assert min_sites_for(Mean(), promise("site")) == 1
    for colluders in (1, 2, 3):
        fewest = min_sites_for(Mean(), promise("secure", colluders=colluders))
        assert honest(fewest, colluders) >= 2
        if fewest > 3:
            with pytest.raises(Refused, match="unmask"):
                honest(fewest - 1, colluders)
    assert min_sites_for(TrimmedMean(f=2), promise("secure")) == 5
    # More colluders than any federation hides: the rule's own number is told, and the promise is refused.
    assert min_sites_for(Mean(), promise("secure", colluders=90)) == 3

import math
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import pytest

from tacit.aggregation.base import AggregatorBase
from tacit.aggregation.mean import Mean
from tacit.errors import InvalidValue, NotSeparable, Refused, TacitError
from tacit.privacy import accounting
from tacit.privacy.mechanisms.base import NoPrivacy, RecordLevel
from tacit.privacy.mechanisms.site_level import SiteLevel
from tacit.privacy.policy import Open, Privacy

SITES = ["oslo", "bergen", "tromso", "bodo"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """The public facts about a task that a promise depends on."""

    kind: str = "logistic-hazard"
    separable: bool = True
    groups: Literal["none", "records", "groups"] = "none"
    steps: int = 5
    sample: float = 0.1
    batch: int | None = 10
    shuffled: bool = False
    layout: ClassVar[str] = "rows"
    exempt: ClassVar[tuple] = ()
    width: ClassVar[None] = None
    lengths: ClassVar[None] = None
    own_bound: ClassVar[None] = None
    cells_per_record: ClassVar[None] = None

    def round_shares(self, rounds: int) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class Sharing(Task):
    """A task whose rounds share one noise."""

    shares: tuple[float, ...]

    def round_shares(self, rounds: int) -> tuple[float, ...]:
        return self.shares


@dataclass(frozen=True, kw_only=True)
class Median(AggregatorBase):
    """An aggregator that one site can move without bound."""

    def __call__(self, updates, *, sites=None):
        raise AssertionError("only its facts are looked at")


@dataclass(frozen=True, kw_only=True)
class Weighted(Median):
    """An aggregator with weights from somewhere."""

    weights: str = "uniform"

    def sensitivity(self, clip: float, sites: float, norm: str = "l2") -> float | None:
        return clip / sites


COX = Task(kind="cox-ph", separable=False)
PURE = {"mechanism": "laplace", "delta": 0}


def promise(**given) -> Privacy:
    usual = {"unit": "record", "delta": 1e-5, "clip": 1.0}
    if "noise_multiplier" not in given:
        usual["epsilon"] = 2.0
    return Privacy(**{**usual, **given})


def planned(mechanism, rounds):
    return [release for number in range(rounds) for release in mechanism.release(number, SITES)]


# What a promise may say


@pytest.mark.parametrize("field", ["epsilon", "clip", "noise_multiplier"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, -math.inf, "1", True])
def test_a_number_that_is_not_positive_and_finite_is_refused(field, value):
    given = {"epsilon": None, field: value} if field == "noise_multiplier" else {field: value}
    with pytest.raises(InvalidValue, match=field):
        promise(**given)


def test_epsilon_and_noise_together_are_refused():
    with pytest.raises(InvalidValue, match="exactly one"):
        promise(epsilon=1.0, noise_multiplier=1.0)


def test_neither_epsilon_nor_noise_is_refused():
    with pytest.raises(InvalidValue, match="exactly one"):
        promise(epsilon=None)


@pytest.mark.parametrize("delta", [1.0, 1.5, -1e-9, math.nan, math.inf, "1e-5", None, True])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_delta_that_is_no_probability_below_one_is_refused(delta, mechanism):
    with pytest.raises(InvalidValue, match="delta"):
        promise(delta=delta, mechanism=mechanism)


def test_delta_zero_is_refused_with_gaussian_noise_and_the_way_out_named():
    with pytest.raises(InvalidValue, match="laplace"):
        promise(delta=0)


@pytest.mark.parametrize("delta", [0, 0.0])
def test_delta_zero_goes_with_laplace_noise(delta):
    assert promise(delta=delta, mechanism="laplace").delta == 0


@pytest.mark.parametrize("participation", [0.0, -0.5, 1.0001, math.nan, math.inf, "all"])
def test_a_participation_that_is_no_probability_above_zero_is_refused(participation):
    with pytest.raises(InvalidValue, match="participation"):
        promise(participation=participation)


@pytest.mark.parametrize(
    ("field", "misspelt", "meant"),
    [
        ("unit", "records", "record"),
        ("unit", "sites", "site"),
        ("mechanism", "gausian", "gaussian"),
        ("mechanism", "laplacian", "laplace"),
        ("noise", "sever", "server"),
        ("noise", "secured", "secure"),
    ],
)
def test_a_misspelt_word_is_refused_with_a_hint(field, misspelt, meant):
    with pytest.raises(InvalidValue, match=rf'{field} = .*did you mean "{meant}"'):
        promise(**{field: misspelt})


def test_a_promise_cannot_be_changed():
    with pytest.raises(AttributeError):
        promise().epsilon = 99.0  # type: ignore[misc]


def test_a_promise_takes_its_fields_by_name_alone():
    with pytest.raises(TypeError):
        Privacy("record", 1e-5, 1.0, 2.0)  # type: ignore[misc]


def test_every_field_of_a_promise_is_explained():
    described = Privacy.__doc__ or ""
    assert all(f"{field.name}:" in described for field in fields(Privacy))


# What it costs


@pytest.mark.parametrize(
    ("given", "task", "rounds"),
    [
        ({}, Task(), 10),
        ({"epsilon": 0.3}, Task(sample=0.02, steps=20), 20),
        ({"clip": 0.01}, Task(sample=1.0), 10),
        (PURE, Task(), 10),
        ({"mechanism": "laplace"}, Task(), 10),
        ({}, Task(separable=False, groups="records"), 10),
        ({}, Task(separable=False, groups="groups"), 10),
        ({}, Task(separable=False, groups="groups", sample=1.0), 10),
        ({"unit": "site", "clip": 5.0}, Task(), 10),
        ({"unit": "site", "noise": "server"}, Task(), 10),
        ({"unit": "site", "noise": "server", "participation": 0.25}, Task(), 10),
        ({"unit": "site", **PURE}, Task(), 10),
        ({"unit": "site", "noise": "server", "participation": 0.5, **PURE}, Task(), 10),
        ({"unit": "site"}, COX, 10),
    ],
    ids=[
        "records", "records, small", "records, all of them", "records, pure", "records, laplace",
        "record-sampled groups", "group-sampled", "all groups", "at the site", "at the server",
        "at the server, drawn", "at the site, pure", "at the server, pure and drawn", "coupled, at the site",
    ],
)  # fmt: skip
def test_the_planned_releases_cost_what_was_asked_for_and_hardly_less(given, task, rounds):
    privacy = promise(**given)
    mechanism = privacy.solve(task, SITES, Mean(), rounds)
    spent = accounting.epsilon(planned(mechanism, rounds), privacy.delta)
    assert privacy.epsilon is not None
    assert 0.99 * privacy.epsilon <= spent <= privacy.epsilon


@pytest.mark.parametrize("shares", [(1.0,), (0.1, 0.2, 0.7), (1 / 3,) * 3, (0.1,) * 10])
def test_rounds_that_share_one_noise_have_all_of_it_and_hardly_more(shares):
    task, rounds = Sharing(shares=shares), range(1, len(shares) + 1)
    given = promise(noise_multiplier=3.0).solve(task, SITES, Mean(), len(shares))
    assert 3.0 <= math.fsum(given.multiplier_of(number) ** -2 for number in rounds) ** -0.5 < 3.0 * (1 + 1e-8)
    solved = promise().solve(task, SITES, Mean(), len(shares))
    releases = [release for number in rounds for release in solved.release(number, ["oslo"])]
    assert 1.99 < accounting.epsilon(releases, 1e-5) <= 2.0


def test_one_round_more_than_planned_costs_more_than_was_asked_for():
    privacy = promise()
    mechanism = privacy.solve(Task(), SITES, Mean(), 10)
    assert accounting.epsilon(planned(mechanism, 11), privacy.delta) > 2.0


@pytest.mark.parametrize("clip", [0.1, 10.0])
def test_the_clip_scales_noise_and_sensitivity_together(clip):
    (release, *_) = promise(clip=clip).solve(Task(), SITES, Mean(), 10).release(1, SITES)
    (usual, *_) = promise().solve(Task(), SITES, Mean(), 10).release(1, SITES)
    assert release.sensitivity == clip
    assert release.multiplier == pytest.approx(usual.multiplier)


def test_a_given_noise_multiplier_is_in_units_of_the_clip():
    for task in (Task(), Task(separable=False, groups="records"), Task(separable=False, groups="groups")):
        (release, *_) = (
            promise(noise_multiplier=3.0, clip=0.5).solve(task, SITES, Mean(), 4).release(1, SITES)
        )
        assert release.scale == 1.5
    at_site = promise(unit="site", noise_multiplier=3.0, clip=0.5).solve(Task(), SITES, Mean(), 4)
    assert at_site.release(1, SITES)[0].scale == 1.5


def test_a_given_noise_multiplier_at_the_server_is_in_units_of_the_reach_of_one_site():
    privacy = promise(unit="site", noise="server", noise_multiplier=3.0, clip=0.5, participation=0.5)
    (release,) = privacy.solve(Task(), SITES, Mean(), 4).release(1, SITES)
    assert (release.sensitivity, release.scale) == (0.25, 0.75)


def test_records_become_protected_records():
    mechanism = promise().solve(Task(steps=7, sample=0.2), SITES, Mean(), 3)
    assert isinstance(mechanism, RecordLevel)
    (release, *_) = mechanism.release(1, SITES)
    assert (release.count, release.rate, release.sampled, release.sensitivity) == (7, 0.2, "unit", 1.0)


@pytest.mark.parametrize(("groups", "sampled"), [("records", "unit"), ("groups", "group")])
def test_a_coupled_loss_in_groups_is_charged_twice_the_bound(groups, sampled):
    task = Task(kind="cox-ph", separable=False, groups=groups)
    (release, *_) = promise().solve(task, SITES, Mean(), 3).release(1, SITES)
    assert (release.sensitivity, release.sampled) == (2.0, sampled)


@pytest.mark.parametrize("groups", ["records", "groups"])
def test_a_separable_loss_in_groups_is_charged_twice_the_bound_or_refused(groups):
    # What is clipped is the sum over a group, whatever the loss: one record can turn it into its opposite.
    try:
        mechanism = promise().solve(Task(separable=True, groups=groups), SITES, Mean(), 3)
    except Refused:
        return
    (release, *_) = mechanism.release(1, SITES)
    assert release.sensitivity == 2.0


def test_sampling_whole_groups_never_needs_more_noise_than_sampling_records():
    records, groups = (
        promise().solve(Task(separable=False, groups=kind), SITES, Mean(), 10)
        for kind in ("records", "groups")
    )
    assert groups.multiplier < records.multiplier


def test_noise_at_the_site_does_not_count_on_the_draw_of_sites():
    all_of_them = promise(unit="site").solve(Task(), SITES, Mean(), 10)
    few = promise(unit="site", participation=0.1).solve(Task(), SITES, Mean(), 10)
    assert few.release(1, SITES) == all_of_them.release(1, SITES)
    assert few.release(1, SITES)[0].rate == 1.0


def test_records_do_not_count_on_the_draw_of_sites():
    all_of_them = promise().solve(Task(), SITES, Mean(), 10)
    few = promise(participation=0.1).solve(Task(), SITES, Mean(), 10)
    assert few.release(1, SITES) == all_of_them.release(1, SITES)


def test_noise_at_the_server_counts_on_the_secret_draw():
    privacy = promise(unit="site", noise="server", participation=0.25)
    mechanism = privacy.solve(Task(), SITES, Mean(), 10)
    assert isinstance(mechanism, SiteLevel)
    (release,) = mechanism.release(1, SITES)
    assert (release.rate, release.sensitivity, release.relation) == (0.25, 1.0, "add-remove")
    everybody = promise(unit="site", noise="server").solve(Task(), SITES, Mean(), 10)
    assert mechanism.multiplier < everybody.multiplier


@pytest.mark.parametrize("unit", ["record", "site"])
@pytest.mark.parametrize("rehearsal", [True, False])
def test_a_rehearsal_is_stamped_on_every_release(unit, rehearsal):
    mechanism = promise(unit=unit, rehearsal=rehearsal).solve(Task(), SITES, Mean(), 2)
    assert {release.rehearsal for release in planned(mechanism, 2)} == {rehearsal}


# What is refused


def test_server_noise_is_refused_when_one_site_can_move_the_result_without_bound():
    with pytest.raises(Refused, match=r'Median.*noise = "site"'):
        promise(unit="site", noise="server").solve(Task(), SITES, Median(), 10)


def test_noise_at_the_site_goes_with_any_aggregator():
    assert promise(unit="site").solve(Task(), SITES, Median(), 10).release(1, SITES)


@pytest.mark.parametrize("unit", ["record", "site"])
def test_weights_from_record_counts_are_refused(unit):
    with pytest.raises(Refused, match=r'weights = "records".*uniform'):
        promise(unit=unit).solve(Task(), SITES, Weighted(weights="records"), 10)


def test_public_weights_are_fine():
    assert promise().solve(Task(), SITES, Weighted(weights="public"), 10).release(1, SITES)


def test_weights_that_nobody_vouched_for_are_refused():
    with pytest.raises(TacitError, match="weights"):
        promise().solve(Task(), SITES, Weighted(weights="samples"), 10)


def test_a_fixed_number_of_sites_is_refused_where_the_price_counts_on_the_draw():
    privacy = promise(unit="site", noise="server", participation=0.5)
    with pytest.raises(Refused, match=r"fixed.*poisson"):
        privacy.solve(Task(), SITES, Mean(), 10, sampling="fixed")


def test_a_fixed_number_of_sites_is_refused_where_one_site_takes_the_place_of_another():
    with pytest.raises(Refused, match=r"fixed.*poisson"):
        promise(unit="site", noise="server").solve(Task(), SITES, Mean(), 10, sampling="fixed")


def test_shuffled_batches_are_refused_for_records_alone():
    with pytest.raises(Refused, match="steps and sample"):
        promise().solve(Task(shuffled=True), SITES, Mean(), 10)
    assert promise(unit="site").solve(Task(shuffled=True), SITES, Mean(), 10)


@pytest.mark.parametrize(
    "given",
    [{"unit": "site", "participation": 0.5}, {"participation": 0.5}],
)
def test_a_fixed_number_of_sites_is_fine_where_it_does_not(given):
    assert promise(**given).solve(Task(), SITES, Mean(), 10, sampling="fixed").release(1, SITES)


def test_a_coupled_loss_is_refused_for_records_and_the_ways_out_named():
    with pytest.raises(NotSeparable) as caught:
        promise().solve(COX, SITES, Mean(), 10)
    for word in ("cox-ph", 'unit = "site"', "groups", "poisson-ph", "logistic-hazard"):
        assert word in str(caught.value)


@pytest.mark.parametrize("noise", ["server", "secure"])
def test_noise_elsewhere_than_at_the_site_is_refused_for_records(noise):
    with pytest.raises(Refused, match=rf'noise = "{noise}".*noise = "site"'):
        promise(noise=noise).solve(Task(), SITES, Mean(), 10)


def test_secure_noise_is_refused_for_an_aggregation_that_reads_updates():
    with pytest.raises(Refused, match=r'(?s)noise = "secure".*Median.*bucketing.*noise = "site"'):
        promise(unit="site", noise="secure").solve(Task(), SITES, Median(), 10)


@pytest.mark.parametrize("rounds", [0, -1, 2.5, True])
@pytest.mark.parametrize("privacy", [promise(), Open()], ids=["private", "open"])
def test_a_number_of_rounds_that_is_no_count_is_refused(rounds, privacy):
    with pytest.raises(InvalidValue, match="rounds"):
        privacy.solve(Task(), SITES, Mean(), rounds)


@pytest.mark.parametrize("reach", [math.nan, math.inf, 0.0, -1.0])
def test_a_sensitivity_that_bounds_nothing_ends_in_a_refusal(reach):
    class Odd(Median):
        def sensitivity(self, clip: float, sites: float, norm: str = "l2") -> float | None:
            return reach

    with pytest.raises(TacitError):
        promise(unit="site", noise="server").solve(Task(), SITES, Odd(), 10).release(1, SITES)


@pytest.mark.parametrize("noise", ["site", "server"])
def test_a_federation_without_sites_is_refused_or_priced_but_never_our_bug(noise):
    try:
        promise(unit="site", noise=noise).solve(Task(), [], Mean(), 10)
    except TacitError:
        return
    assert noise == "site"


@pytest.mark.parametrize("task", [Task(sample=1.5), Task(sample=0.0), Task(steps=0)], ids=str)
@pytest.mark.parametrize("given", [{}, {"noise_multiplier": 1.0}], ids=["epsilon", "noise"])
def test_a_task_that_cannot_be_priced_is_refused_before_data_is_touched(task, given):
    with pytest.raises(TacitError):
        promise(**given).solve(task, SITES, Mean(), 10)


# No promise at all


@pytest.mark.parametrize("aggregation", [Mean(), Median(), Weighted(weights="records")])
def test_an_open_run_is_unprotected_and_free(aggregation):
    mechanism = Open().solve(COX, SITES, aggregation, 10)
    assert mechanism == NoPrivacy()
    assert planned(mechanism, 10) == []


@pytest.mark.parametrize("quantile", [0.0, 1.0, -0.5, 1.5, math.nan])
def test_a_clip_follows_a_quantile_strictly_between_none_and_all(quantile):
    with pytest.raises(InvalidValue, match=r"clip_quantile = .* above 0 and below 1"):
        promise(unit="site", clip_quantile=quantile)


@pytest.mark.parametrize("quantile", [1e-9, 0.5, 1 - 1e-9])
def test_a_clip_follows_updates_and_never_records(quantile):
    assert promise(unit="site", clip_quantile=quantile).clip_quantile == quantile
    with pytest.raises(InvalidValue, match='left out unless unit = "site"'):
        promise(unit="record", clip_quantile=quantile)


@pytest.mark.parametrize(("noise", "seen"), [("site", True), ("server", False), ("secure", False)])
def test_a_quarantine_looks_at_updates_that_have_their_noise_already(noise, seen):
    privacy = promise(unit="site", noise=noise)
    if seen:
        privacy.solve(Task(), SITES, Mean(), 3, watched=True)
        return
    with pytest.raises(Refused, match=rf'noise = "{noise}" does not go with \[quarantine\]'):
        privacy.solve(Task(), SITES, Mean(), 3, watched=True)


def test_weights_by_name_are_for_every_site_and_for_nobody_else():
    even = dict.fromkeys(SITES, 1.0)
    promise(unit="site").solve(Task(), SITES, Mean(weights=even), 3)
    for wrong in ({**even, "voss": 1.0}, dict.fromkeys(SITES[1:], 1.0)):
        with pytest.raises(InvalidValue, match="one for each site"):
            promise(unit="site").solve(Task(), SITES, Mean(weights=wrong), 3)


def test_bounds_that_follow_go_with_the_mean_alone():
    with pytest.raises(Refused, match="clip_quantile does not go with"):
        promise(unit="site", clip_quantile=0.5).solve(Task(), SITES, Median(), 3)

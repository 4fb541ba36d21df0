"""The task `private-cox`: the fit of `cox` on both engines' terms, noise at sites or in shares, refusals."""

from dataclasses import replace

import numpy as np
import pytest

from tacit import Federation, Key, Ledger, Open, Privacy, fit
from tacit.errors import InvalidValue, Refused
from tacit.privacy import accounting
from tacit.privacy.mechanisms.base import SumRounds
from tacit.runs.setup import PublicFacts, prepare
from tacit.runs.spec import RunSpec
from tacit.sites.table import from_arrays
from tacit.survival.figures.report import pictures
from tacit.survival.statistics import cox
from tacit.survival.statistics.cox_fit import PrivateCoxFit
from tacit.survival.statistics.cox_task import Cox
from tacit.survival.statistics.private_cox_task import MomentQuery, PrivateCox

GRID = np.linspace(0, 3, 11)[1:].tolist()
RANGES = dict.fromkeys(("x1", "x2", "x3"), (-4.0, 4.0))
SITE = Privacy(unit="record", epsilon=1e6, delta=1e-5, rehearsal=True)
# Shares of less noise would be too few steps of the lattice.
SECURE = replace(SITE, noise="secure", epsilon=3e3)
FACTS = PublicFacts(names=("site-0", "site-1", "site-2"), records=1200, features=3)


@pytest.fixture(scope="module")
def hospitals():
    draw = np.random.default_rng(0)
    where, x = np.arange(1200) % 3, draw.normal(size=(1200, 3))
    time = draw.exponential(np.exp(-x @ np.array([0.6, -0.3, 0.0]) - 0.2 * where))
    last = draw.uniform(0.3, 4, 1200)
    event = time < last
    return Federation(
        {
            f"site-{site}": from_arrays(
                x[where == site], time=np.minimum(time, last)[where == site], event=event[where == site]
            )
            for site in range(3)
        }
    )


@pytest.fixture(scope="module")
def precise(hospitals):
    return fit(Cox(grid=GRID, ranges=RANGES), hospitals, privacy=SITE, rounds=8)


def in_python(federation, **options):
    given = {"grid": GRID, "ranges": RANGES, "ledger": Ledger(), "key": Key(1, rehearsal=True), **options}
    return cox(federation, epsilon=1e6, delta=1e-5, **given)


class TestFit:
    def test_the_task_and_the_statistic_are_one_fit(self, hospitals, precise):
        found, known = precise.model, in_python(hospitals)
        assert isinstance(found, PrivateCoxFit)
        assert precise.task.kind == "private-cox"
        assert found.coefficients == pytest.approx(known.coefficients, abs=1e-3)
        assert found.standard_errors == pytest.approx(known.standard_errors, rel=1e-2)
        assert found.summary().columns.tolist() == known.summary().columns.tolist()

    def test_with_hardly_any_noise_it_is_the_open_fit(self, hospitals, precise):
        known = cox(hospitals)
        assert np.abs((precise.model.coefficients - known.coefficients) / known.standard_errors).max() < 0.3
        assert precise.model.standard_errors == pytest.approx(known.standard_errors, rel=0.1)

    def test_one_noise_in_shares_gives_the_same_fit_where_noise_is_small(self, hospitals, precise):
        secure = fit(Cox(grid=GRID, ranges=RANGES), hospitals, privacy=SECURE, rounds=8)
        assert {release.law for release in secure.charged} == {"discrete"}
        assert secure.model.coefficients == pytest.approx(precise.model.coefficients, abs=5e-3)

    def test_without_a_promise_it_learns_the_same(self, hospitals, precise):
        run = fit(PrivateCox(grid=GRID, ranges=RANGES), hospitals, privacy=Open(), rounds=8)
        assert run.model.coefficients == pytest.approx(precise.model.coefficients, abs=1e-2)

    def test_its_score_ranks_held_out_records(self, hospitals, precise):
        score = precise.task.score(precise.state, hospitals["site-0"].table)
        assert score["c_index"] > 0.6
        assert precise.task.goal == ("c_index", "max")

    def test_one_site_alone_learns_without_noise(self, hospitals, precise):
        alone = precise.task.at_one_site(Federation({"site-1": hospitals["site-1"].table}))
        assert alone.noises == ()
        assert alone.released["noise"] == [0.0]


class TestPrice:
    @pytest.mark.parametrize("privacy", [SITE, SECURE], ids=["site", "secure"])
    def test_it_costs_what_one_gaussian_costs(self, hospitals, privacy):
        run = fit(Cox(grid=GRID, ranges=RANGES), hospitals, privacy=replace(privacy, epsilon=1.0), rounds=8)
        own = [release for release in run.charged if release.subject == "records@site-1"]
        assert len(own) == 9
        assert accounting.epsilon(own, 1e-5) <= 1.0
        assert accounting.epsilon(own, 1e-5) == pytest.approx(1.0, rel=1e-3)

    def test_the_moments_have_their_share(self):
        prepared = prepare(
            RunSpec(task=Cox(grid=GRID, ranges=RANGES), privacy=replace(SITE, epsilon=1.0), rounds=8), FACTS
        )
        assert isinstance(prepared.mechanism, SumRounds)
        assert sum(prepared.mechanism.shares) + MomentQuery.share == pytest.approx(1.0)


class TestReport:
    def test_hazard_ratios_are_drawn_and_hidden_ones_named(self, precise):
        (figure,) = pictures(precise.task, precise.state, [], lambda name: None)
        assert figure.name == "hazard-ratios"
        assert "x1" in figure.words
        assert "Hidden" not in figure.words

    def test_the_summary_says_how_far_records_were_followed(self, precise):
        told = " ".join(precise.task.findings(precise.state))
        assert "events, as the sites released them" in told
        assert "expected events" in told


class TestRefusals:
    @pytest.mark.parametrize(
        ("task", "privacy", "error", "message"),
        [
            (Cox(ranges=RANGES), SITE, Refused, "public intervals"),
            (Cox(ranges=RANGES, grid=GRID, ridge=1.0), SITE, InvalidValue, "shrunken"),
            (PrivateCox(horizon=3.0), replace(SITE, clip=1.0), Refused, "bounded by construction"),
            (
                PrivateCox(horizon=3.0),
                Privacy(unit="site", epsilon=1.0, delta=1e-5, clip=1.0),
                Refused,
                "single",
            ),
        ],
    )
    def test_what_cannot_be_kept_is_refused(self, task, privacy, error, message):
        with pytest.raises(error, match=message):
            prepare(RunSpec(task=task.resolve(privacy), privacy=privacy, rounds=8), FACTS)

    def test_a_column_without_public_bounds_is_refused_before_anything_is_charged(self, hospitals):
        with pytest.raises(Refused, match=r"nothing public bounds x1\. Give the ranges"):
            fit(Cox(grid=GRID), hospitals, privacy=SITE, rounds=8)

    def test_too_few_rounds_are_refused(self, hospitals):
        with pytest.raises(InvalidValue, match="3 or more"):
            fit(Cox(grid=GRID, ranges=RANGES), hospitals, privacy=SITE, rounds=2)

    @pytest.mark.parametrize(
        "option", [{"followed": 0.1}, {"horizon": 3.0, "grid": [1.0]}, {"ranges": {"a": (1.0, 0.0)}}]
    )
    def test_broken_options_are_refused(self, option):
        with pytest.raises(InvalidValue):
            PrivateCox(**option)

"""Newton steps and Kaplan-Meier counts with one noise for all sites: plans, accuracy, what is refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tacit import Federation, Privacy, fit
from tacit.errors import Refused
from tacit.privacy.mechanisms.secure_sum import honest
from tacit.runs.setup import PublicFacts, prepare
from tacit.runs.spec import RunSpec
from tacit.survival import CoxPH, LogisticHazard, NewtonPH
from tacit.survival.statistics.kaplan_meier_task import KaplanMeier

SITE = Privacy(unit="record", epsilon=1.0, delta=1e-5, rehearsal=True)
SECURE = replace(SITE, noise="secure")
FACTS = PublicFacts(names=tuple("abcde"), records=800, features=9)


def federation(size: int = 1500, sites: int = 5) -> Federation:
    draw = np.random.default_rng(3)
    x = draw.normal(size=(size, 3))
    time, last = draw.exponential(np.exp(-0.9 * x[:, 0] + 0.5 * x[:, 1])), draw.uniform(0.3, 3, size)
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(
        time=np.minimum(time, last), event=(time < last).astype(int), site=np.arange(size) % sites
    )
    return Federation.from_frame(frame, site="site", targets=["time", "event"])


def planned(privacy: Privacy, facts: PublicFacts = FACTS):
    spec = RunSpec(task=NewtonPH(), privacy=privacy, rounds=6, spend_anyway=True)
    return prepare(spec, facts).plan()


class TestPlan:
    def test_the_plan_with_noise_at_the_sites_says_what_one_noise_would_give(self):
        site, secure = planned(SITE).forecast, planned(SECURE).forecast
        assert site is not None
        assert secure is not None
        other = site.with_one_noise
        assert other is not None
        assert other.noise == pytest.approx(secure.noise, rel=1e-4)
        assert site.noise == pytest.approx(secure.noise * np.sqrt(honest(5, 1)), rel=1e-4)
        assert f'with noise = "secure", one noise for all sites, {secure.kept:.0%}' in site.sentence()
        assert secure.with_one_noise is None
        assert "secure" not in secure.sentence()
        assert planned(SITE).as_dict()["forecast"]["secure"] == pytest.approx(secure.per_feature, rel=1e-4)

    @pytest.mark.parametrize("sites", [1, 2, 101])
    def test_what_is_no_choice_is_not_offered(self, sites):
        facts = replace(FACTS, names=tuple(f"s{place}" for place in range(sites)))
        forecast = planned(SITE, facts).forecast
        assert forecast.with_one_noise is None
        assert "secure" not in forecast.sentence()

    def test_without_public_numbers_the_records_that_are_needed_are_said_for_both(self):
        told = planned(SITE, replace(FACTS, records=None)).forecast.sentence()
        assert 'with noise = "secure", ' in told
        # Nothing is multiplied by the root of the number of sites where they share one noise.
        unknown = planned(SECURE, PublicFacts()).forecast.sentence()
        assert "root" not in unknown
        assert "root" in planned(SITE, PublicFacts()).forecast.sentence()

    def test_a_hopeless_run_is_refused_with_the_records_that_one_noise_needs(self):
        spec = RunSpec(task=NewtonPH(), privacy=replace(SITE, epsilon=0.1, rehearsal=False), rounds=6)
        with pytest.raises(Refused, match=r'records of all sites are needed, with noise = "secure" [\d,]+\.'):
            prepare(spec, FACTS)

    def test_the_statement_names_who_is_trusted_and_the_discrete_noise(self):
        told = " ".join(planned(SECURE).statement.sentences())
        assert "all sites but 1, not to collude with the server, which sees only sums" in told
        assert "6 noisy sums over the records of each of 5 sites (discrete Gaussian noise" in told
        assert planned(SECURE).statement.epsilon <= 1.0


class TestAccuracy:
    def test_one_noise_is_closer_to_the_open_fit_than_one_at_each_site(self):
        data, task = federation(), NewtonPH(horizon=3.0, ranges=dict.fromkeys("abc", (-4.0, 4.0)))
        exact = fit(task, data, rounds=6).model
        grid = np.random.default_rng(1).normal(size=(200, 3))

        def off(privacy: Privacy, seed: int) -> float:
            model = fit(task, data, privacy=privacy, seed=seed).model
            return float(np.std(np.log(model.risk(grid)) - np.log(exact.risk(grid))))

        site, secure = ([off(promise, seed) for seed in range(6)] for promise in (SITE, SECURE))
        assert np.mean(secure) < 0.8 * np.mean(site)

    def test_a_survival_curve_has_one_noise_too(self):
        data, task = federation(), KaplanMeier(horizon=3.0, cuts=10)
        site, secure = (fit(task, data, privacy=promise) for promise in (SITE, SECURE))
        ratio = secure.task.known.noise / site.task.known.noise
        assert ratio == pytest.approx(1 / np.sqrt(honest(5, 1)), rel=1e-3)
        open_run = fit(task, data)
        exact = open_run.state[open_run.task._prefix_size :]
        # Marks of sites do not leave beside the noisy counts.
        assert secure.state.shape == exact.shape
        assert np.abs(5 * (secure.state - exact)).max() < 6 * secure.task.known.noise
        assert {release.law for release in secure.charged} == {"discrete"}
        assert secure.privacy.epsilon == pytest.approx(1.0, rel=1e-3)
        assert secure.privacy.epsilon <= 1.0

    def test_cox_regression_without_a_clip_bound_becomes_newton_steps_here_too(self):
        run = fit(CoxPH(horizon=3.0), federation(300), privacy=replace(SECURE, epsilon=8.0))
        assert run.task.kind == "newton-ph"
        assert {release.law for release in run.charged} == {"discrete"}


class TestRefusals:
    def test_gradient_steps_have_a_way_out_that_works(self):
        task, names = LogisticHazard(horizon=3.0, lr=0.1), PublicFacts(names=tuple("abc"))
        with pytest.raises(Refused, match="does not go with logistic-hazard") as caught:
            prepare(RunSpec(task=task, privacy=replace(SECURE, clip=1.0)), names)
        assert 'noise = "site"' in str(caught.value)
        prepare(RunSpec(task=task, privacy=replace(SITE, clip=1.0)), names)
        for kind in ("newton-ph", "kaplan-meier"):
            assert kind in str(caught.value)
        prepare(RunSpec(task=NewtonPH(), privacy=SECURE), names)
        prepare(RunSpec(task=KaplanMeier(horizon=3.0), privacy=SECURE), names)

    def test_two_sites_are_refused(self):
        with pytest.raises(Refused, match="a group of 2 sites is too small"):
            fit(NewtonPH(horizon=3.0), federation(200, 2), privacy=SECURE)

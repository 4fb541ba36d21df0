"""Proportional hazards by Newton steps on bounded sums: bounds, price, what is learned, whom it serves."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit import Federation, Open, Privacy, fit
from tacit.errors import InvalidValue, Refused, TacitError
from tacit.privacy import accounting
from tacit.privacy.mechanisms.base import NoPrivacy, SumRounds
from tacit.runs.setup import PublicFacts, prepare
from tacit.runs.spec import RunSpec
from tacit.sites.encoding import Encoding
from tacit.sites.table import Table
from tacit.survival import (
    CoxCC,
    CoxPH,
    CoxTime,
    DeepHit,
    DeepSurv,
    LogisticHazard,
    NewtonPH,
    PCHazard,
    PoissonPH,
)
from tacit.survival.data import simulate
from tacit.survival.metrics import harrell
from tacit.survival.models import newton_steps as steps
from tacit.survival.models.baseline_histogram import DOUBLING, estimate, interval_ends
from tacit.survival.models.feature_scaling import (
    CellCounts,
    FeatureScale,
    column_cells,
    estimate_scale,
    shorten,
)
from tacit.survival.models.newton_ph import PosteriorState

PROMISE = Privacy(unit="record", epsilon=3.0, delta=1e-5, rehearsal=True)
HUGE = st.floats(min_value=-1e300, max_value=1e300, allow_nan=False)


def patients(size: int = 1200, seed: int = 1, *, features: int = 3) -> pd.DataFrame:
    """Proportional hazards with known effects 0.7, -0.4, 0, ... per standard deviation, and raw scales."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(size, features))
    beta = np.zeros(features)
    beta[:2] = 0.7, -0.4
    time, last = draw.exponential(1000 * np.exp(-x @ beta)), draw.uniform(300, 3000, size)
    frame = pd.DataFrame(x, columns=[f"x{place}" for place in range(features)])
    frame["x0"] = 60 + 11 * frame["x0"]
    return frame.assign(
        time=np.minimum(time, last), event=(time < last).astype(int), site=np.arange(size) % 4
    )


def federated(frame: pd.DataFrame, encoding: Encoding | None = None) -> Federation:
    return Federation.from_frame(frame, site="site", targets=["time", "event"], encoding=encoding)


def bound_task(frame: pd.DataFrame, task: NewtonPH, privacy: Privacy | Open = PROMISE):
    """The task with the answers to its query, and its mechanism."""
    federation = federated(frame)
    ready = prepare(RunSpec(task=task, privacy=privacy, rounds=6), federation)
    question = ready.task.initial_query
    asked = question.train(np.zeros(0), federation.cohort(list(federation)), NoPrivacy(), tacit.Key(0))
    return ready.task.with_answers(question.decode(asked.matrix.mean(axis=0))), ready.mechanism, federation


class TestBounds:
    @settings(max_examples=200, deadline=None)
    @given(
        rows=st.lists(st.tuples(HUGE, HUGE, st.floats(1e-9, 1e9), st.booleans()), min_size=1, max_size=6),
        rates=st.lists(st.floats(-60, 60), min_size=3, max_size=3),
        shape=st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3),
        effects=st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3),
        share=st.floats(0.0, 1.0),
    )
    def test_no_record_is_longer_than_one_at_any_parameters(self, rows, rates, shape, effects, share):
        features = np.array([row[:2] for row in rows])
        scale = FeatureScale(*np.array([[-1e6, -5.0], [1e6, 5.0], [0.0, 1.0], [3.0, 0.5]]))
        time, event = np.array([row[2] for row in rows]), np.array([float(row[3]) for row in rows])
        table = Table(features, {"time": time, "event": event}, ("a", "b"))
        records = steps.follow_up(table, np.array([1.0, 10.0, 1e4]), scale.unit(features))
        point = steps.NewtonPoint(np.array(shape), np.array(effects))
        weights = (np.sqrt(share), np.sqrt(1 - share))
        contributions = steps.BoundedRows(records, np.array(rates), point, True, weights)
        lengths = contributions.lengths("l2")
        assert (lengths <= 1).all()
        assert np.isfinite(contributions.total(None)).all()
        assert np.linalg.norm(contributions.total(None)) <= len(rows) * (1 + 1e-9)

    def test_the_bound_is_nearly_reached(self):
        # An event in the first moment, in one interval, of a record of length 1: residual 1.
        table = Table(np.array([[1.0]]), {"time": np.array([1e-9]), "event": np.array([1.0])}, ("a",))
        records = steps.follow_up(table, np.array([1.0]), np.array([[1.0]]))
        point = steps.NewtonPoint(np.zeros(1), np.zeros(2))
        rows = steps.BoundedRows(records, np.zeros(1), point, False, (1.0, 0.0))
        assert rows.lengths("l2")[0, 0] == pytest.approx(
            np.sqrt(steps.SHAPE**2 + steps.LEVEL**2 + 1) / steps.SCORE_BOUND
        )

    @given(st.lists(st.lists(HUGE, min_size=3, max_size=3), min_size=1, max_size=5))
    def test_unit_features_have_length_at_most_one(self, rows):
        scale = FeatureScale(*np.array([[-1e9] * 3, [1e9] * 3, [0.0] * 3, [2.0] * 3]))
        for made in (scale.unit(np.array(rows)), scale.hinges(np.array(rows), [0, 2])):
            assert (np.linalg.norm(made, axis=1) <= 1).all()

    def test_shorter_rows_stay_as_they_are(self):
        rows = np.array([[0.3, 0.4], [3.0, 4.0]])
        assert shorten(rows)[0] == pytest.approx([0.3, 0.4])
        assert shorten(rows)[1] == pytest.approx([0.6, 0.8])

    def test_broken_features_become_the_center(self):
        scale = FeatureScale(*np.array([[-1.0], [1.0], [0.25], [1.0]]))
        assert (scale.unit(np.array([[np.nan], [np.inf], [-np.inf]])) == 0).all()

    def test_a_record_moves_the_histograms_by_one(self):
        frame = patients(60).assign(entry=lambda rows: rows["time"] * (np.arange(60) % 2) / 2)
        federation = Federation.from_frame(frame, site="site", targets=["time", "event", "entry"])
        ready = prepare(RunSpec(task=NewtonPH(), privacy=PROMISE, rounds=6), federation)
        question = ready.task.initial_query
        table = federation.pool().store
        whole = CellCounts(question, table).total(None)[0]
        for left_out in range(len(table)):
            rest = table.take(np.delete(np.arange(len(table)), left_out))
            moved = np.linalg.norm(whole - CellCounts(question, rest).total(None)[0])
            assert moved <= 1 + 1e-9
            late = table.targets["entry"][left_out] > 0
            assert moved == pytest.approx(1 if late else np.sqrt(0.75))

    def test_a_left_out_record_is_not_counted(self):
        task, _, federation = bound_task(patients(40), NewtonPH())
        table = federation.records_of("0")
        cells, factors = CellCounts(task.initial_query, table), np.ones((1, len(table)))
        factors[0, 0] = 0.0
        rest = CellCounts(task.initial_query, table.take(np.arange(1, len(table))))
        assert (cells.total(factors) == rest.total(None)).all()


class TestPrice:
    @pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
    @pytest.mark.parametrize("rounds", [1, 2, 6, 17])
    def test_all_releases_cost_the_budget_and_no_more(self, epsilon, rounds):
        privacy = replace(PROMISE, epsilon=epsilon)
        ready = prepare(
            RunSpec(task=NewtonPH(), privacy=privacy, rounds=rounds), PublicFacts(names=("a", "b"))
        )
        own = [release for release in ready.price() if release.subject == "records@a"]
        assert len(own) == 1 + rounds
        spent = accounting.epsilon(own, privacy.delta)
        assert spent <= epsilon
        assert spent == pytest.approx(epsilon, rel=1e-4)

    @pytest.mark.parametrize("rounds", [1, 2, 6, 40])
    def test_shares_of_rounds_and_query_add_up_to_one(self, rounds):
        task = NewtonPH()
        assert sum(task.round_shares(rounds)) + task.initial_query.share == pytest.approx(1)
        assert min(task.round_shares(rounds)) > 0

    def test_a_round_has_the_noise_of_its_share(self):
        rounds = SumRounds(bound=2.0, multiplier=3.0, shares=(0.25, 0.04))
        first, second, later = (rounds.release(number, ["a"])[0] for number in (1, 2, 3))
        assert (first.scale, second.scale, later.scale) == pytest.approx((12.0, 30.0, 30.0))
        assert first.sensitivity == first.bound == 2.0
        assert rounds.at_round(1).deviation(4) == pytest.approx(12 / 2)
        assert rounds.rounds == 2

    def test_a_given_noise_multiplier_is_that_of_the_whole(self):
        privacy = replace(PROMISE, epsilon=None, noise_multiplier=2.0)
        ready = prepare(RunSpec(task=NewtonPH(), privacy=privacy, rounds=6), PublicFacts(names=("a",)))
        whole = accounting.epsilon([accounting.clipped_release(2.0)], 1e-5)
        assert accounting.epsilon(ready.price(), 1e-5) == pytest.approx(whole, rel=1e-6)
        assert accounting.epsilon(ready.price(), 1e-5) <= whole

    def test_a_plan_lists_the_price_of_every_number_of_rounds(self):
        ready = prepare(RunSpec(task=NewtonPH(), privacy=PROMISE, rounds=6), PublicFacts(names=("a",)))
        made = ready.plan()
        assert made.spends[6] == made.statement.epsilon <= 3.0
        assert made.spends[1] < made.spends[3] < made.spends[6] < made.spends[7]
        assert sum("noisy sums over" in line for line in made.statement.released) == 1
        (line,) = (line for line in made.statement.released if "noisy sums" in line)
        assert line.startswith("6 noisy sums over")
        assert "standard deviation 2.33" in line
        assert " to 9.32" in line


class TestWhatIsLearned:
    def test_without_noise_the_effects_are_those_of_cox_regression(self):
        frame = patients(4000)
        run = fit(NewtonPH(horizon=3000.0, cuts=24), federated(frame), rounds=8)
        base, one = np.array([[60.0, 0.0, 0.0]]), np.array([[65.5, 0.0, 0.0]])
        moved = np.log(run.model.increments(one) / run.model.increments(base))
        # Half a standard deviation of an effect of 0.7.
        assert moved[0, -1] == pytest.approx(0.35, abs=0.05)
        from tacit.survival.statistics import cox

        features = frame[["x0", "x1", "x2"]]
        exact = cox(federated(frame)).coefficients
        assert harrell(frame["time"], frame["event"], run.model.risk(features)) == pytest.approx(
            harrell(frame["time"], frame["event"], features.to_numpy() @ exact), abs=0.004
        )

    @pytest.mark.parametrize("task", [CoxPH(), DeepSurv(), NewtonPH(horizon=2500.0)])
    def test_a_promise_costs_little_with_enough_records(self, task):
        frame, test = patients(3000), patients(3000, seed=2)
        found = []
        for seed in range(3):
            run = fit(task, federated(frame), privacy=replace(PROMISE, epsilon=1.0), seed=seed)
            found.append(harrell(test["time"], test["event"], run.model.risk(test[["x0", "x1", "x2"]])))
        best = harrell(test["time"], test["event"], 0.7 * (test["x0"] - 60) / 11 - 0.4 * test["x1"])
        assert np.mean(found) > best - 0.02

    def test_the_model_does_not_depend_on_the_units_of_features_and_times(self):
        frame = patients(1500)
        moved = frame.assign(x1=frame["x1"] * 4096, time=frame["time"] / 1024)
        runs = [fit(NewtonPH(), federated(rows)) for rows in (frame, moved)]
        risks = [
            run.model.risk(rows[["x0", "x1", "x2"]]) for run, rows in zip(runs, (frame, moved), strict=True)
        ]
        assert np.allclose(risks[0], risks[1], rtol=1e-6)

    def test_noise_that_hides_everything_leaves_no_effect(self):
        frame = patients(60)
        run = fit(
            NewtonPH(horizon=3000.0),
            federated(frame),
            privacy=replace(PROMISE, epsilon=0.05),
            spend_anyway=True,
        )
        risks = np.log(run.model.risk(frame[["x0", "x1", "x2"]]))
        assert risks.std() < 0.3

    def test_a_model_that_has_not_converged_says_so_and_the_advice_works(self):
        frame = patients(600)
        told = "newton-ph has not converged: its last step, cut off at a change of log hazards by 1, would"
        privacy = replace(PROMISE, epsilon=0.05)
        drowned = fit(
            NewtonPH(horizon=3000.0), federated(frame.iloc[:200]), privacy=privacy, spend_anyway=True
        )
        (said,) = (note for note in drowned.record.notes if "converged" in note)
        assert said.startswith(told)
        assert said.endswith("as where the noise is large; give a larger epsilon")
        assert said in drowned.summary().replace("\n         ", " ")
        larger = fit(NewtonPH(horizon=3000.0), federated(frame), privacy=replace(PROMISE, epsilon=8.0))
        assert not any("converged" in note for note in larger.record.notes)
        # Without noise: a feature that nearly decides the time of the event.
        wide = (frame["x1"] - frame["x1"].mean()) / frame["x1"].std()
        times = np.random.default_rng(2).exponential(size=600) * np.exp(-2.5 * wide)
        strong = federated(frame.assign(time=times, event=1))
        (said,) = fit(NewtonPH(), strong, rounds=1).record.notes
        assert said.startswith(told)
        assert said.endswith("as where effects are large; give more rounds")
        assert fit(NewtonPH(), strong, rounds=6).record.notes == ()

    def test_hinges_find_an_effect_of_both_ends(self):
        draw = np.random.default_rng(0)
        x = draw.normal(size=4000)
        time, last = draw.exponential(np.exp(-1.2 * (np.abs(x) - 0.8))), draw.uniform(0.5, 3, 4000)
        frame = pd.DataFrame({
            "x": x, "time": np.minimum(time, last), "event": (time < last).astype(int), "site": "a",
        })  # fmt: skip
        scores = {
            effects: harrell(
                frame["time"], frame["event"],
                fit(NewtonPH(effects=effects), federated(frame), privacy=PROMISE).model.risk(frame[["x"]]),
            )
            for effects in ("linear", "hinge")
        }  # fmt: skip
        assert scores["linear"] < 0.55 < 0.6 < scores["hinge"]

    def test_the_cohort_gives_what_each_site_gives_alone(self):
        task, mechanism, federation = bound_task(patients(200), NewtonPH(effects="hinge"))
        state, key = task.start(federation, tacit.Key(1)), tacit.Key(1, rehearsal=True)
        work, guard = task.at_round(1, 6), mechanism.at_round(1)
        whole = work.train(state, federation.cohort(list(federation)), guard, key).matrix
        alone = [work.train(state, federation.cohort([name]), guard, key).matrix[0] for name in federation]
        assert (whole == np.stack(alone)).all()
        assert whole.shape[1] == work.sent

    @pytest.mark.parametrize("size", [1, 2, 7, 64, 300])
    def test_the_bits_of_a_record_are_its_own(self, size):
        frame = patients(300)
        task, _, federation = bound_task(frame, NewtonPH(effects="hinge"))
        table = federation.pool().store
        state = PosteriorState.begin(len(task.baseline["ends"]), 1 + 6).encode()
        state[3:20] = np.random.default_rng(0).normal(size=17)

        def rows(order):
            part = table.take(order)
            records = steps.follow_up(
                part, np.array(task.baseline["ends"]), task.unit_features(part.features)
            )
            point = PosteriorState.decode(state, len(task.baseline["ends"]), 7).point
            made = steps.BoundedRows(records, np.log(task.baseline["rates"]), point, True, (0.6, 0.8))
            return made._rows(0)  # pyright: ignore[reportPrivateUsage]

        order = np.random.default_rng(size).permutation(300)[:size]
        assert (rows(order) == rows(np.arange(300))[order]).all()

    def test_a_run_that_was_cut_off_resumes_to_the_same_bits(self, tmp_path):
        federation = federated(patients(400))
        whole = fit(DeepSurv(), federation, privacy=PROMISE, out=tmp_path / "whole")

        class Stop(Exception):
            pass

        def stop(entry):
            if entry.number == 3:
                raise Stop

        with pytest.raises(Stop):
            fit(DeepSurv(), federation, privacy=PROMISE, out=tmp_path / "cut", callbacks=[stop])
        again = fit(DeepSurv(), federation, privacy=PROMISE, out=tmp_path / "cut", resume=True)
        assert (again.state == whole.state).all()
        assert again.privacy.epsilon == whole.privacy.epsilon
        assert (tacit.load(tmp_path / "cut").state == whole.state).all()

    def test_baselines_take_newton_steps_of_their_own(self):
        federation = tacit.survival.data.federation("gbsg2", sites=4, seed=1)
        run = fit(NewtonPH(), federation, privacy=PROMISE, baselines=True)
        assert set(run.baselines) == {"alone", "pooled"}
        assert run.baselines["pooled"]["c_index"] > run.baselines["alone"]["c_index"] - 0.02
        assert run.baselines["pooled"]["c_index"] > 0.62


class TestWhoIsServed:
    @pytest.mark.parametrize(
        ("task", "effects"),
        [
            (PoissonPH(), "linear"),
            (CoxPH(), "linear"),
            (DeepSurv(), "hinge"),
            (CoxCC(), "hinge"),
            (CoxTime(), "hinge"),
            (LogisticHazard(), "hinge"),
            (PCHazard(), "hinge"),
            (DeepHit(), "hinge"),
            (PoissonPH(horizon=5.0, ranges={"x": (0, 1)}), "linear"),
            (PoissonPH(cuts=(1.0, 2.0)), "linear"),
        ],
    )
    def test_without_a_clip_bound_every_model_is_learned_by_newton_steps(self, task, effects):
        found = task.resolve(PROMISE)
        assert isinstance(found, NewtonPH)
        assert (found.effects, found.asked) == (effects, task.kind)
        assert (found.horizon, found.ranges) == (task.horizon, task.ranges)
        assert found.cuts == (None if isinstance(task.cuts, int) else task.cuts)
        assert task.kind in found.choices(PROMISE, 6)[0]

    @pytest.mark.parametrize(
        "privacy", [Open(), replace(PROMISE, clip=1.0), replace(PROMISE, unit="site", clip=1.0)]
    )
    def test_a_clip_bound_whole_sites_and_open_runs_are_obeyed(self, privacy):
        assert PoissonPH().resolve(privacy) == PoissonPH()

    @pytest.mark.parametrize(
        "task",
        [PoissonPH(lr=0.5), PoissonPH(steps=5), PoissonPH(sample=0.2), PoissonPH(decay=0.1),
         DeepSurv(groups_per_site=30), DeepHit(causes=2, ranking=0.0)],
    )  # fmt: skip
    def test_options_of_gradient_descent_need_a_clip_bound_and_say_so(self, task):
        assert task.resolve(PROMISE) == task
        with pytest.raises(
            Refused, match=r"clip is missing in .privacy.: give the bound of a record's gradient"
        ):
            prepare(RunSpec(task=task, privacy=PROMISE), PublicFacts(names=("a",)))
        advised = prepare(RunSpec(task=task, privacy=replace(PROMISE, clip=1.0)), PublicFacts(names=("a",)))
        assert advised.price()

    @pytest.mark.parametrize(
        ("privacy", "said"),
        [
            (replace(PROMISE, clip=1.0), "clip = 1 does not go with newton-ph"),
            (replace(PROMISE, unit="site", clip=1.0), "protects single records"),
            (replace(PROMISE, mechanism="laplace", delta=0.0), "adds Gaussian noise"),
            (replace(PROMISE, participation=0.5), "participation"),
        ],
    )
    def test_promises_that_it_cannot_keep_are_refused(self, privacy, said):
        with pytest.raises(TacitError, match=said):
            prepare(RunSpec(task=NewtonPH(), privacy=privacy, rounds=6), PublicFacts(names=("a",)))

    def test_a_class_of_ones_own_is_learned_as_it_is(self):
        class Own(LogisticHazard):
            """A user's own model."""

        assert type(Own().resolve(PROMISE)) is Own

    def test_a_missing_clip_bound_of_sites_is_named(self):
        privacy = Privacy(unit="site", epsilon=1.0, delta=1e-2)
        with pytest.raises(Refused, match=r"clip is missing in .privacy.: give the bound of a site's update"):
            prepare(RunSpec(task=PoissonPH(), privacy=privacy), PublicFacts(names=("a", "b")))

    def test_a_kaplan_meier_curve_needs_no_clip_bound(self):
        from tacit.survival.tasks import KaplanMeier

        run = fit(KaplanMeier(horizon=2000.0), federated(patients(500)), privacy=PROMISE)
        assert run.privacy.epsilon == pytest.approx(3.0, rel=1e-3)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"effects": "wavy"}, "effects"),
            ({"horizon": -1.0}, "horizon"),
            ({"cuts": 0}, "cuts"),
            ({"cuts": (1.0, 2.0), "horizon": 3.0}, "horizon"),
            ({"ranges": {"x0": (3.0, 1.0)}}, "ranges of x0"),
        ],
    )
    def test_options_that_mean_nothing_are_refused(self, options, said):
        with pytest.raises(InvalidValue, match=said):
            NewtonPH(**options)

    @pytest.mark.parametrize(
        ("name", "changed"),
        [
            ("baseline", {"rates": []}),
            ("baseline", {"ends": [2.0, 1.0]}),
            ("baseline", {"variance": [0.0, 1.0]}),
            ("baseline", {"rates": [np.nan, 1.0]}),
            ("scaling", {"scale": [0.0, 1.0, 1.0]}),
            ("scaling", {"low": [np.inf, 0.0, 0.0]}),
            ("scaling", {"center": [0.0]}),
        ],
    )
    def test_answers_that_no_query_gives_are_refused(self, name, changed):
        # A dishonest coordinator may send a site any answers.
        task, _, _ = bound_task(patients(200), NewtonPH(cuts=2, horizon=3000.0))
        honest = {
            "scaling": {key: list(values)[:3] for key, values in task.scaling.items()},
            "baseline": {
                "ends": [1.0, 2.0], "rates": [0.5, 0.5], "expected": [9.0, 9.0], "variance": [0.1, 0.1],
                "records": [40.0], "events": [18.0],
            },
        }  # fmt: skip
        assert task.with_answers(honest).baseline == honest["baseline"]
        with pytest.raises(InvalidValue):
            task.with_answers({**honest, name: {**honest[name], **changed}})

    def test_a_round_before_the_query_is_refused(self):
        federation = federated(patients(50))
        ready = prepare(RunSpec(task=NewtonPH(), privacy=PROMISE, rounds=6), federation)
        cohort, key = federation.cohort(list(federation)), tacit.Key(0, rehearsal=True)
        with pytest.raises(Refused, match="scales and exits"):
            ready.task.at_round(1, 6).train(np.zeros(9), cohort, ready.mechanism.at_round(1), key)

    def test_ranges_of_unknown_features_are_refused(self):
        with pytest.raises(InvalidValue, match="ranges"):
            fit(NewtonPH(ranges={"age": (0, 1)}), federated(patients(50)), privacy=PROMISE)


class TestScales:
    def test_public_ranges_levels_and_scales_decide_the_cells(self):
        encoding = Encoding(levels={"arm": ["a", "b"]}, center={"bmi": 25.0}, scale={"bmi": 4.0})
        found = column_cells(["age", "arm=b", "bmi", "er"], encoding, {"age": (20, 100)})
        assert [own and own.kind for own in found] == ["range", "indicator", None, "unknown"]
        assert found[0].edges[[0, -1]] == pytest.approx([20, 100])

    @pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
    def test_an_unknown_scale_is_found_through_the_noise(self, unit):
        values = unit * (60 + 11 * np.random.default_rng(0).normal(size=3000))
        (cells,) = column_cells(["age"], Encoding(), {})
        counts = np.bincount(cells.place(values), minlength=len(cells)).astype(float)
        noisy = counts + np.random.default_rng(1).normal(0, 30, len(counts))
        scale = estimate_scale([cells], [noisy], 30.0, 3000.0)
        assert scale.center[0] == pytest.approx(60 * unit, rel=0.1)
        assert 5 * unit < scale.scale[0] < 25 * unit
        assert scale.low[0] < 40 * unit < 80 * unit < scale.high[0]

    def test_a_column_that_the_noise_hides_is_left_out_and_named(self):
        (cells,) = column_cells(["age"], Encoding(), {})
        scale = estimate_scale([cells], [np.zeros(len(cells))], 100.0, 50.0)
        assert (scale.unit(np.array([[40.0], [90.0]])) == 0).all()
        task, _, federation = bound_task(patients(100), NewtonPH())
        hidden = {name: [*values[:-1], 0.0 if name in ("low", "high") else values[-1]]
                  for name, values in task.scaling.items()}  # fmt: skip
        told = replace(task, scaling=hidden).findings(task.start(federation, tacit.Key(0)))
        assert any("hides the range of x2" in line for line in told)

    def test_a_share_of_ones_is_kept_from_its_ends(self):
        (cells,) = column_cells(["a=1"], Encoding(levels={"a": ["0", "1"]}), {})
        scale = estimate_scale([cells], [np.array([990.0, 1.0])], 1.0, 1000.0)
        assert (scale.center[0], scale.scale[0]) == pytest.approx((0.05, 0.3))


class TestBaseline:
    def test_hazards_of_exact_counts_are_events_over_time_at_risk(self):
        draw = np.random.default_rng(0)
        time = draw.exponential(10.0, 20_000)
        ends, cells = interval_ends(20.0, 10), np.zeros(21)
        own = np.searchsorted(ends, time)
        np.add.at(cells, np.where(own < 10, 2 * own + 1, 20), 1.0)
        found = estimate(cells, ends, 0.0, whole=True)
        widths = np.diff(found.ends, prepend=0.0)
        assert found.rates / widths == pytest.approx(np.full(len(widths), 0.1), rel=0.08)
        assert found.records == 20_000
        assert found.events == (time <= 20).sum()

    def test_intervals_without_enough_events_for_the_noise_are_merged(self):
        cells = np.tile([20.0, 30.0], 12)
        exact = estimate(np.append(cells, 100.0), interval_ends(1.0, 12), 0.0, whole=True)
        noisy = estimate(np.append(cells, 100.0), interval_ends(1.0, 12), 20.0, whole=True)
        assert len(exact.ends) == 12
        assert 1 <= len(noisy.ends) < 6
        assert noisy.ends[-1] == exact.ends[-1] == 1.0

    def test_times_of_an_unknown_unit_are_found(self):
        cells = np.zeros(2 * len(DOUBLING) + 1)
        cells[2 * 60 : 2 * 64] = 200.0
        found = estimate(
            cells + np.random.default_rng(0).normal(0, 5, len(cells)), DOUBLING, 5.0, whole=False
        )
        assert found.ends[-1] == DOUBLING[63]
        assert found.records == pytest.approx(1600, rel=0.05)

    def test_exits_that_the_noise_hides_are_not_invented(self):
        cells = np.random.default_rng(0).normal(0, 50, 2 * len(DOUBLING) + 1)
        assert estimate(cells * 0, DOUBLING, 50.0, whole=False) is None


class TestForecast:
    def test_a_run_that_cannot_learn_is_refused_before_anything_is_charged(self, tmp_path):
        privacy = Privacy(unit="record", epsilon=0.1, delta=1e-5)
        federation = federated(patients(60)).with_record_count(60)
        with pytest.raises(Refused, match="spend-anyway") as refused:
            fit(CoxPH(), federation, privacy=privacy, out=tmp_path / "run")
        assert not (tmp_path / "run" / "ledger.db").exists()
        assert "60" not in re.findall(r"[\d,]+", str(refused.value))
        paid = fit(CoxPH(horizon=3000.0), federation, privacy=privacy, spend_anyway=True)
        assert paid.privacy.epsilon <= 0.1

    def test_a_secret_number_of_records_decides_nothing(self):
        privacy = Privacy(unit="record", epsilon=0.1, delta=1e-5)
        assert fit(CoxPH(horizon=3000.0), federated(patients(60)), privacy=privacy).privacy.epsilon <= 0.1

    def test_a_rehearsal_and_an_open_run_spend_nothing_and_are_not_refused(self):
        for privacy in (replace(PROMISE, epsilon=0.1), Open()):
            assert fit(NewtonPH(horizon=3000.0), federated(patients(60)), privacy=privacy).state.size

    def test_a_forecast_follows_epsilon_features_records_and_sites(self):
        def kept(epsilon=1.0, features=5, records=2000, sites=4):
            names = tuple(str(place) for place in range(sites))
            facts = PublicFacts(names=names, features=features, records=records)
            spec = RunSpec(task=NewtonPH(), privacy=replace(PROMISE, epsilon=epsilon), rounds=6)
            return prepare(spec, facts).plan().forecast.kept

        assert kept(epsilon=0.5) < kept() < kept(epsilon=3.0)
        assert kept(features=20) < kept() < kept(records=10_000)
        assert kept(sites=16) < kept() < kept(sites=1)

    def test_without_public_numbers_the_forecast_names_the_records_that_are_needed(self):
        spec = RunSpec(task=NewtonPH(), privacy=PROMISE, rounds=6)
        made = prepare(spec, PublicFacts()).plan()
        assert made.forecast.kept is None
        assert "each feature needs about" in made.forecast.sentence()
        assert made.as_dict()["forecast"]["noise"] is None


def test_simulated_records_are_learned_by_the_bundled_design():
    frame = simulate("SDGM1", records=2000, features=6, seed=3).assign(
        site=lambda rows: np.arange(len(rows)) % 5
    )
    run = fit(CoxPH(), federated(frame), privacy=PROMISE)
    assert run.model.survival(frame.drop(columns=["time", "event", "site"]), [1.0, 2.0]).shape == (2000, 2)

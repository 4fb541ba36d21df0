"""Private regressions: bounds of single records, the price, and what is learned through the noise."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tacit.testing import check_sensitivity

import tacit
from tacit import Federation, Key, Ledger, Privacy, fit
from tacit.errors import InvalidValue, Refused
from tacit.privacy import accounting
from tacit.privacy.mechanisms.secure_sum import honest
from tacit.regression import linear, logistic, poisson
from tacit.regression.bounded import BoundedRecords, Point, UnitScale, from_upper_half, residuals, upper_half
from tacit.regression.designs import Variables
from tacit.regression.families import FAMILIES
from tacit.regression.private_path import FEWEST_ROUNDS, Parts, PathState, PrivatePath, estimate
from tacit.regression.tasks import TASKS
from tacit.runs.setup import PublicFacts, prepare
from tacit.runs.spec import RunSpec
from tacit.sites.table import Table, from_arrays

KINDS = ("linear", "logistic", "poisson")
FUNCTIONS = {"linear": linear, "logistic": logistic, "poisson": poisson}
PROMISE = Privacy(unit="record", epsilon=3.0, delta=1e-5, rehearsal=True)
HUGE = st.floats(min_value=-1e300, max_value=1e300, allow_nan=False)
PUBLISHED = st.floats(min_value=-1e6, max_value=1e6, allow_nan=False)
BETA = np.array([0.04, -0.6, 0.3])


def ranges(kind: str) -> dict[str, tuple[float, float]]:
    outcome = {"linear": {"outcome": (-8.0, 8.0)}, "poisson": {"outcome": (0.0, 20.0)}}.get(kind, {})
    return {"age": (30.0, 90.0), "sex": (0.0, 1.0), "lab": (-3.0, 3.0), **outcome}


def records(kind: str, size: int = 3000, seed: int = 1) -> Table:
    draw = np.random.default_rng(seed)
    features = np.column_stack([
        draw.normal(60, 10, size).clip(30, 90), draw.random(size) < 0.4, draw.normal(size=size).clip(-3, 3)
    ])  # fmt: skip
    predictor = (features - [60, 0.4, 0]) @ BETA
    outcome = {
        "linear": lambda: predictor + 1.5 * draw.normal(size=size),
        "logistic": lambda: draw.random(size) < FAMILIES["logistic"].mean(predictor),
        "poisson": lambda: draw.poisson(np.exp(predictor)).clip(0, 20),
    }[kind]()
    return from_arrays(features, columns=("age", "sex", "lab"), outcome=outcome.astype(float))


def federation(kind: str, sites: int = 5, size: int = 3000, seed: int = 1) -> Federation:
    table = records(kind, size, seed)
    return Federation({f"site-{n}": table.take(np.arange(n, size, sites)) for n in range(sites)})


def scale_of(kind: str) -> UnitScale:
    return UnitScale.of(kind, Variables(columns=("age", "sex", "lab")), ranges(kind))


def weights_of(kind: str):
    return [Parts.of(kind, number, 10).weights for number in (1, 2, 6)]


class TestBounds:
    @settings(max_examples=60, deadline=None)
    @given(
        rows=st.lists(st.tuples(HUGE, HUGE, HUGE, HUGE), min_size=1, max_size=5),
        center=st.lists(PUBLISHED, min_size=3, max_size=3),
        whitening=st.lists(PUBLISHED, min_size=9, max_size=9),
        parameters=st.lists(PUBLISHED, min_size=4, max_size=4),
        scale=st.floats(1e-6, 1e6),
        bounds=st.tuples(*[st.floats(1e-6, 1e6)] * 3),
    )
    @pytest.mark.parametrize("kind", KINDS)
    def test_no_record_is_longer_than_one_whatever_was_published(
        self, kind, rows, center, whitening, parameters, scale, bounds
    ):
        values = np.array(rows)
        table = Table(values[:, :3], {"outcome": values[:, 3]}, ("age", "sex", "lab"))
        point = Point(
            np.array(center), np.array(whitening).reshape(3, 3), np.array(parameters), scale, bounds
        )
        for weights in weights_of(kind):
            made = BoundedRecords(kind, scale_of(kind).records(table), point, weights)
            assert (made.lengths("l2") <= 1).all()
            assert np.isfinite(made.total(None)).all()

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_proof_holds_before_the_last_cut(self, kind):
        """The parts are as short as the docstring says, so that the cut at last changes nothing."""
        draw = np.random.default_rng(0)
        predictor = draw.normal(0, 3, 4000)
        outcome = draw.uniform(0, 1 if kind == "logistic" else 50, 4000)
        psi, reach, slope, surprise = residuals(kind, predictor, outcome, 0.7)
        assert (np.abs(psi) <= reach * (1 + 1e-12)).all()
        assert (slope >= 0).all()
        assert (np.abs(surprise) <= 1).all()
        rows = draw.normal(size=(50, 5))
        halves = upper_half(rows)
        np.testing.assert_allclose(np.linalg.norm(halves, axis=1), (rows**2).sum(axis=1))
        np.testing.assert_allclose(from_upper_half(halves[0], 5), np.outer(rows[0], rows[0]))

    @pytest.mark.parametrize("kind", KINDS)
    def test_bounded_residuals_have_mean_zero_at_the_truth_and_the_slope_that_is_said(self, kind):
        draw, size = np.random.default_rng(2), 400_000
        predictor, step = np.full(size, 0.4), 1e-3
        mean = FAMILIES[kind].mean(predictor)
        outcome = {
            "linear": lambda: predictor + 0.7 * draw.normal(size=size),
            "logistic": lambda: (draw.random(size) < mean).astype(float),
            "poisson": lambda: draw.poisson(mean).astype(float),
        }[kind]()
        psi, _, slope, surprise = residuals(kind, predictor, outcome, 0.7)
        # Six standard errors: a false alarm in 1e9.
        assert abs(psi.mean()) < 6 * psi.std() / np.sqrt(size)
        assert abs(surprise.mean()) <= 6 * surprise.std() / np.sqrt(size)
        moved = residuals(kind, predictor + step, outcome, 0.7)[0]
        assert (psi - moved).mean() / step == pytest.approx(slope[0], rel=0.03)

    @pytest.mark.parametrize("size", [1, 2, 7, 64, 300])
    @pytest.mark.parametrize("kind", KINDS)
    def test_the_bits_of_a_record_are_its_own(self, kind, size):
        table, draw = records(kind, 300), np.random.default_rng(size)
        point = Point(
            draw.normal(size=3), draw.normal(size=(3, 3)), draw.normal(size=4), 0.3, (2.5, 3.0, 2.0)
        )
        order = draw.permutation(300)[:size]
        for weights in weights_of(kind):
            whole = BoundedRecords(kind, scale_of(kind).records(table), point, weights).rows(0)
            part = BoundedRecords(kind, scale_of(kind).records(table.take(order)), point, weights).rows(0)
            assert (part == whole[order]).all()

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_audit_finds_no_record_that_moves_more_than_is_charged(self, kind):
        task = TASKS[kind](ranges=ranges(kind))
        assert check_sensitivity(task, records(kind, 40), privacy=PROMISE, neighbours=20).ratio <= 1
        # A task is asked for its first round; the others are asked for here.
        point = Point(np.zeros(3), np.eye(3), np.array([0.2, 1.0, -2.0, 0.5]), 0.3, (2.5, 1.2, 0.4))
        columns = ("age", "sex", "lab")
        for weights in weights_of(kind)[1:]:

            def release(rows, weights=weights):
                own = scale_of(kind).records(Table(rows[:, :3], {"outcome": rows[:, 3]}, columns))
                return BoundedRecords(kind, own, point, weights).total(None)[0]

            table = records(kind, 20)
            rows = np.column_stack([table.features, table.targets["outcome"]])
            assert check_sensitivity(release, rows, claim=1.0, neighbours=20).ratio <= 1 + 1e-9


class TestPrice:
    @pytest.mark.parametrize("rounds", [FEWEST_ROUNDS, 10, 25])
    @pytest.mark.parametrize("kind", KINDS)
    def test_all_rounds_cost_the_budget_and_no_more(self, kind, rounds):
        task = TASKS[kind](ranges=ranges(kind)).resolve(PROMISE)
        assert sum(task.round_shares(rounds)) == pytest.approx(1)
        spec = RunSpec(task=task, privacy=PROMISE, rounds=rounds)
        own = [one for one in prepare(spec, PublicFacts(names=("a", "b"))).price() if one.party == "a"]
        spent = accounting.epsilon(own, PROMISE.delta)
        assert len(own) == rounds
        assert spent <= 3.0
        assert spent == pytest.approx(3.0, rel=1e-4)
        for number in range(1, rounds + 1):
            assert sum(weight**2 for weight in Parts.of(kind, number, rounds).weights) == pytest.approx(1)

    @pytest.mark.parametrize("rounds", [1, 2, 3])
    def test_too_few_rounds_are_said(self, rounds):
        task = TASKS["logistic"](ranges=ranges("logistic"))
        run = fit(task, federation("logistic", 2, 200), privacy=PROMISE, rounds=rounds)
        assert run.task.shortcomings(run.state)[0].startswith(f"{rounds} rounds are too few")
        assert run.model.text()

    def test_a_statistic_is_charged_before_any_noise_is_drawn(self, monkeypatch):
        import tacit.privacy.ledger.payment as payment

        ledger, seen, real = Ledger(), [], payment.add_noise

        def watching(*given):
            seen.append(sum(one.count for one in ledger.releases()))
            return real(*given)

        monkeypatch.setattr(payment, "add_noise", watching)
        data = federation("logistic", 2, 200)
        found = logistic(
            data, epsilon=1.0, delta=1e-5, ranges=ranges("logistic"), ledger=ledger,
            key=Key(3, rehearsal=True),
        )  # fmt: skip
        assert set(seen) == {20}
        assert len(seen) == 20
        assert ledger.spent(1e-5) <= 1.0
        assert ledger.spent(1e-5) == pytest.approx(1.0, rel=1e-4)
        assert found.provenance.startswith("released: epsilon 1 at delta 1e-05")


class TestWhatIsLearned:
    @pytest.mark.parametrize("kind", KINDS)
    def test_with_a_large_epsilon_the_fit_is_nearly_that_in_the_open(self, kind):
        data = federation(kind)
        wanted = FUNCTIONS[kind](data)
        found = FUNCTIONS[kind](
            data, epsilon=300.0, delta=1e-5, ranges=ranges(kind), ledger=Ledger(), key=Key(1, rehearsal=True)
        )
        off = np.abs(found.coefficients - wanted.coefficients) / wanted.standard_errors
        assert off.max() < 0.6
        np.testing.assert_allclose(found.standard_errors, wanted.standard_errors, rtol=0.15)
        assert found.hidden == ()
        assert "DP, noise-adjusted" in found.text()
        if kind == "linear":
            assert found.dispersion == pytest.approx(wanted.dispersion, rel=0.1)

    @pytest.mark.parametrize("kind", KINDS)
    def test_intervals_cover_the_effects_at_epsilon_one(self, kind):
        """Of 90 intervals; below 74 has a chance below 1e-5 where each covers in 95 %."""
        scale, size, rounds = scale_of(kind), 1500, 10
        whole = accounting.calibrate(epsilon=1.0, delta=1e-5)
        noises = tuple(
            whole / np.sqrt(Parts.of(kind, number, rounds).share) for number in range(1, rounds + 1)
        )
        path, covered = PrivatePath(scale, noises), 0
        for seed in range(30):
            rows, draw, state = (
                scale.records(records(kind, size, seed)),
                np.random.default_rng(seed),
                path.begin(),
            )
            for noise in noises:
                weights = path.parts(state.number + 1).weights
                total = BoundedRecords(kind, rows, state.point, weights).total(None)[0]
                state = path.advance(state, total + noise * draw.normal(size=len(total)))
            found = estimate(path, state)
            half = 1.96 * np.sqrt(np.diag(found.model + found.noise))
            covered += int((np.abs(found.coefficients - [0, *BETA])[1:] <= half[1:]).sum())
        assert covered >= 74

    def test_noise_that_hides_a_coefficient_is_said(self):
        found = logistic(
            federation("logistic", 5, 150), epsilon=0.2, delta=1e-5, ranges=ranges("logistic"),
            ledger=Ledger(), key=Key(1, rehearsal=True),
        )  # fmt: skip
        assert found.hidden
        assert "hidden by noise" in found.text()
        assert np.isfinite(found.summary()["std err"]).all()

    def test_the_state_survives_its_vector(self):
        path = PrivatePath(scale_of("linear"), (1.0,) * 10)
        state = path.begin()
        again = PathState.decode(state.encode(), 3, 10)
        assert (again.encode() == state.encode()).all()
        assert again.point.bounds == state.point.bounds

    def test_one_noise_in_secure_sums_is_the_noise_that_is_said(self):
        data, task = federation("logistic"), TASKS["logistic"](ranges=ranges("logistic"))
        site, secure = (
            fit(task, data, privacy=replace(PROMISE, noise=noise), rounds=10) for noise in ("site", "secure")
        )
        ratio = np.divide(secure.task.noises, site.task.noises)
        np.testing.assert_allclose(ratio, 1 / np.sqrt(honest(5, 1)), rtol=1e-3)
        open_run = fit(TASKS["logistic"](), data, rounds=20)
        for run in (site, secure):
            off = run.model.coefficients - open_run.model.coefficients
            assert (np.abs(off) < 5 * run.model.noise_errors + 0.3 * run.model.standard_errors).all()

    def test_a_run_that_was_cut_off_resumes_to_the_same_bits(self, tmp_path):
        data, task = federation("poisson", 3, 300), TASKS["poisson"](ranges=ranges("poisson"))
        whole = fit(task, data, privacy=PROMISE, rounds=6, out=tmp_path / "whole")

        class Stop(Exception):
            pass

        def stop(entry):
            if entry.number == 3:
                raise Stop

        with pytest.raises(Stop):
            fit(task, data, privacy=PROMISE, rounds=6, out=tmp_path / "cut", callbacks=[stop])
        again = fit(task, data, privacy=PROMISE, rounds=6, out=tmp_path / "cut", resume=True)
        assert (again.state == whole.state).all()
        assert (tacit.load(tmp_path / "cut").state == whole.state).all()


class TestRefusals:
    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"ranges": None}, "range of age, sex, lab is not public"),
            ({"ranges": {"age": (30, 90)}}, "range of sex, lab is not public"),
            ({"delta": 0.0}, "delta = 0 takes Laplace noise"),
            ({"strata": "site"}, "strata"),
            ({"robust": True}, "robust"),
            ({"ridge": 1.0}, "ridge"),
            ({"ranges": {**ranges("logistic"), "age": (90, 30)}}, "ranges of age"),
            ({"ranges": {**ranges("logistic"), "height": (0, 2)}}, "ranges"),
        ],
    )
    def test_what_has_no_private_version_is_refused(self, changed, said):
        given = {"epsilon": 1.0, "delta": 1e-5, "ranges": ranges("logistic"), "ledger": Ledger(), **changed}
        with pytest.raises((Refused, InvalidValue), match=said):
            logistic(federation("logistic", 2, 60), **given, key=Key(1, rehearsal=True))

    def test_ranges_without_epsilon_have_no_effect(self):
        with pytest.raises(InvalidValue, match="given with ranges"):
            logistic(federation("logistic", 2, 60), ranges=ranges("logistic"))

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"clip": 1.0}, "bounded by construction"),
            ({"mechanism": "laplace", "delta": 0.0}, "Gaussian noise"),
        ],
    )
    def test_another_mechanism_is_refused_with_a_way_out(self, changed, said):
        task = TASKS["logistic"](ranges=ranges("logistic"))
        with pytest.raises(Refused, match=said):
            fit(task, federation("logistic", 2, 60), privacy=replace(PROMISE, **changed), rounds=10)

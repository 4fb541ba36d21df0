"""One record moves a noisy sum of bounded records by at most its bound, whatever a coordinator sends.

A dishonest coordinator chooses the state, and the answers to the query; the noise is the one that is charged.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Federation, Key, Privacy
from tacit.privacy.mechanisms import base
from tacit.runs.setup import prepare
from tacit.runs.spec import RunSpec
from tacit.sites.table import Table
from tacit.survival import NewtonPH
from tacit.survival.models.newton_ph import PosteriorState

PROMISE = Privacy(unit="record", epsilon=1.0, delta=1e-5, rehearsal=True)
WILD = st.sampled_from([0.0, 1.0, -1.0, 1e-300, 1e-5, 3.7, -250.0, 1e5, -1e160, 1e300])


def table(rows: list) -> Table:
    features = np.array([row[:2] for row in rows], dtype=np.float64).reshape(-1, 2)
    time, event = np.array([row[2] for row in rows], dtype=float), np.array([row[3] for row in rows], float)
    return Table(features, {"time": time, "event": event}, ("a", "b"))


def summed(task: NewtonPH, state: np.ndarray, rows: list, number: int, mechanism, monkeypatch) -> np.ndarray:
    """The sum that a site releases, before noise."""
    seen: list[np.ndarray] = []

    def catch(values, law, scale, key, rehearsal):
        seen.append(np.array(values))
        return values

    with monkeypatch.context() as patched:
        patched.setattr(base, "add_noise", catch)
        cohort = Federation({"oslo": table(rows)}, records=100).cohort(["oslo"])
        work = task.initial_query if number == 0 else task.at_round(number, 6)
        guard = mechanism if number == 0 else mechanism.at_round(number)
        work.train(state, cohort, guard, Key(0, rehearsal=True))
    return seen[0][0]


RECORDS = st.lists(st.tuples(WILD, WILD, st.floats(1e-6, 1e7), st.booleans()), min_size=3, max_size=40)


@settings(max_examples=150, deadline=None)
@given(
    rows=RECORDS,
    number=st.integers(0, 6),
    effects=st.sampled_from(["linear", "hinge"]),
    draw=st.integers(0, 2**32 - 1),
    size=st.sampled_from([0.0, 1.0, 1e3, 1e12, 1e300]),
)
def test_one_record_less_moves_a_sum_by_at_most_its_bound(rows, number, effects, draw, size):
    monkeypatch = pytest.MonkeyPatch()
    generator = np.random.default_rng(draw)
    usual = [(0.0, 1.0, 2.0, True), (1.0, 0.5, 3.0, False)]
    federation = Federation({"oslo": table([*usual, *rows])}, records=100)
    ready = prepare(
        RunSpec(task=NewtonPH(effects=effects, horizon=50.0), privacy=PROMISE, rounds=6), federation
    )
    scale = np.abs(generator.normal(size=(4, 2))) + 1e-9
    low, high, center, divisor = ([float(value) for value in row] for row in scale)
    scaling = {"low": [-value for value in low], "high": high, "center": center, "scale": divisor}
    rates = [float(rate) for rate in np.exp(generator.normal(size=3) * 10)]
    spans = {"ends": [1.0, 5.0, 50.0], "rates": rates, "expected": [9.0] * 3, "variance": [0.1] * 3}
    baseline = {**spans, "records": [40.0], "events": [18.0]}
    task = ready.task.with_answers({"scaling": scaling, "baseline": baseline})
    state = PosteriorState.begin(3, 1 + (4 if effects == "hinge" else 2)).encode()
    state = state + size * generator.normal(size=state.size)
    guard = ready.solve_query(task.initial_query) if number == 0 else ready.mechanism
    whole = summed(task, state, rows, number, guard, monkeypatch)
    for left_out in (0, len(rows) - 1):
        rest = summed(task, state, rows[:left_out] + rows[left_out + 1 :], number, guard, monkeypatch)
        assert np.linalg.norm(whole - rest) <= 1 + base.ROUNDED


@pytest.mark.parametrize("number", range(7))
def test_the_noise_of_a_sum_is_the_one_that_is_charged(number):
    rows = [(0.0, 1.0, 2.0, True), (1.0, 0.5, 3.0, False), (0.3, -0.5, 1.0, True)]
    federation = Federation({"oslo": table(rows)}, records=100)
    ready = prepare(RunSpec(task=NewtonPH(horizon=50.0), privacy=PROMISE, rounds=6), federation)
    question = ready.task.initial_query
    task = ready.task.with_answers(question.placeholder)
    mechanism = ready.solve_query(question) if number == 0 else ready.mechanism.at_round(number)
    (charged,) = mechanism.release(number, ["oslo"])
    cohort, state = federation.cohort(["oslo"]), task.start(federation, Key(0))
    work = question if number == 0 else task.at_round(number, 6)
    drawn = [work.train(state, cohort, mechanism, Key(seed, rehearsal=True)).matrix[0] for seed in range(400)]
    spread = np.std(drawn, axis=0, ddof=1)
    # The false alarm rate is below 1e-4: each of some 4,000 numbers has 400 draws.
    assert charged.scale / charged.sensitivity == pytest.approx(spread.mean(), rel=0.06)
    assert charged.sensitivity == charged.bound == 1.0
    assert charged.rate == 1.0

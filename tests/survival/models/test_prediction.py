"""A fitted model draws survival curves that are curves of survival, for features in whatever order."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tacit import Key
from tacit.errors import InvalidValue
from tacit.runtime.arrays import Array
from tacit.sites.table import Table, from_arrays
from tacit.survival import LogisticHazard
from tacit.survival.models.prediction import HazardModel, score

ENDS = (0.5, 1.0, 2.5, 4.0)
COLUMNS = ("age", "dose", "sex")
FEATURES = np.random.default_rng(1).standard_normal((30, 3))
TIMES = np.linspace(0, 4, 200)


def weights(hidden: tuple[int, ...] = (5,), size: float = 1.0) -> Array:
    task = LogisticHazard(hidden=hidden, cuts=ENDS, columns=COLUMNS)
    start = task.start(None, Key(4))
    return start + size * np.random.default_rng(2).standard_normal(len(start))


def fitted(hidden: tuple[int, ...] = (5,), size: float = 1.0) -> HazardModel:
    return LogisticHazard(hidden=hidden, cuts=ENDS, columns=COLUMNS).model(weights(hidden, size))


def hazards() -> np.ndarray:
    """The hazards of `fitted()` by a network of torch."""
    network = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4)).double()
    nn.utils.vector_to_parameters(torch.from_numpy(weights()), network.parameters())
    with torch.no_grad():
        return torch.sigmoid(network(torch.from_numpy(FEATURES))).numpy()


def test_curves_start_at_one_and_fall_to_no_less_than_zero():
    for size in (0.1, 1.0, 30.0):
        curves = fitted(size=size).survival(FEATURES, TIMES)
        assert curves.shape == (30, 200)
        assert (curves[:, 0] == 1).all()
        assert (np.diff(curves, axis=1) <= 1e-15).all()
        assert curves.min() >= 0
        assert curves.max() <= 1
        assert curves[:, -1].max() < 1


def test_nothing_is_predicted_after_the_last_interval():
    with pytest.warns(UserWarning, match="beyond the horizon, 4,"):
        curves = fitted().survival(FEATURES, [4.0, 4.0001, 17.0, 1e9, np.inf])
    assert np.isnan(curves[:, 1:]).all()
    assert (fitted().survival(FEATURES, 3.9)[:, 0] > curves[:, 0]).all()


def test_curves_at_the_ends_are_products_of_surviving_each_interval():
    wanted = np.cumprod(1 - hazards(), axis=1)
    np.testing.assert_allclose(fitted().survival(FEATURES, ENDS), wanted, rtol=1e-12)
    np.testing.assert_allclose(fitted().cumulative(FEATURES), -np.log(wanted), rtol=1e-10)


def test_inside_an_interval_the_hazard_is_constant():
    for begin, end in ((0.0, 0.5), (1.0, 2.5)):
        logs = np.log(fitted().survival(FEATURES, np.linspace(begin, end, 5)))
        steps = np.diff(logs, axis=1)
        np.testing.assert_allclose(steps, np.broadcast_to(steps[:, :1], steps.shape), rtol=1e-9)


@given(st.lists(st.floats(0, 4), min_size=1, max_size=10))
def test_times_may_come_in_any_order(times: list[float]):
    model = fitted()
    together = model.survival(FEATURES[:3], times)
    apart = np.column_stack([model.survival(FEATURES[:3], time)[:, 0] for time in times])
    np.testing.assert_allclose(together, apart, rtol=1e-12)


@pytest.mark.parametrize("times", [[-0.1], [1.0, -1e-9], [np.nan]])
def test_times_before_the_start_are_refused(times: list[float]):
    with pytest.raises(InvalidValue, match=r"^times = .* at least 0"):
        fitted().survival(FEATURES, times)


def test_one_record_and_one_time_need_no_brackets():
    model = fitted()
    assert model.survival(FEATURES[3], 2.0).shape == (1, 1)
    assert model.risk(FEATURES[3])[0] == pytest.approx(model.risk(FEATURES)[3], rel=1e-12)


@given(st.permutations([*COLUMNS, "name", "event"]))
def test_the_columns_of_a_frame_may_have_any_order_and_company(order: list[str]):
    frame = pd.DataFrame(FEATURES, columns=list(COLUMNS)).assign(name="somebody", event=1)[order]
    assert np.array_equal(fitted().risk(frame), fitted().risk(FEATURES))
    assert np.array_equal(fitted().survival(frame, TIMES), fitted().survival(FEATURES, TIMES))


def test_a_frame_without_a_feature_is_refused_by_its_name():
    frame = pd.DataFrame(FEATURES, columns=["age", "dosis", "sex"])
    with pytest.raises(InvalidValue, match=r'column dose is missing in features \(did you mean "dosis"\?\)'):
        fitted().risk(frame)


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_a_wrong_number_of_columns_is_refused(columns: int):
    for ask in (fitted().risk, lambda features: fitted().survival(features, [1.0])):
        with pytest.raises(InvalidValue, match=f"^features = '{columns} columns' .* it must be 3 columns"):
            ask(np.ones((5, columns)))


def test_whoever_has_higher_hazards_everywhere_has_the_higher_risk():
    task = LogisticHazard(hidden=(), cuts=ENDS, columns=("x",))
    rising = np.array([1.0, 0.5, 2.0, 0.1, -2, -2, -2, -2], dtype=np.float64)
    model, features = task.model(rising), np.linspace(-2, 2, 9)[:, None]
    assert (np.diff(model.risk(features)) > 0).all()
    assert (np.diff(model.survival(features, [0.3, 2.0]), axis=0) < 0).all()


def test_a_model_without_hidden_layers_is_linear_in_the_log_odds():
    task = LogisticHazard(hidden=(), cuts=(1.0,), columns=("x",))
    model = task.model(np.array([0.7, -0.2], dtype=np.float64))
    survival = model.survival([[0.0], [1.0], [3.0]], 1.0)[:, 0]
    np.testing.assert_allclose(np.log(1 / survival - 1), [-0.2, 0.5, 1.9], rtol=1e-12)


class Oracle:
    """Knows how long everybody lives, or says one half of everything."""

    def __init__(self, sign: float, chance: float | None = None) -> None:
        self.sign, self.chance = sign, chance

    def risk(self, features: np.ndarray) -> np.ndarray:
        return self.sign * features[:, 0]

    def survival(self, features: np.ndarray, times: np.ndarray) -> np.ndarray:
        truth = (features[:, :1] > np.asarray(times)[None]).astype(np.float64)
        return truth if self.chance is None else np.full_like(truth, self.chance)

    def risk_and_survival(self, features: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.risk(features), self.survival(features, times)


def lives(event: float = 1.0) -> Table:
    time = np.random.default_rng(3).exponential(size=200) + 0.1
    happened = (np.arange(200) < event * 200).astype(np.float64)
    return from_arrays(time, time=time, event=happened)


def test_an_oracle_scores_best_and_a_coin_scores_as_a_coin():
    assert score(Oracle(-1), lives()) == {"c_index": 1.0, "ibs": 0.0}
    assert score(Oracle(1), lives())["c_index"] == 0
    assert score(Oracle(0, 0.5), lives()) == {"c_index": 0.5, "ibs": pytest.approx(0.25)}
    assert score(Oracle(0, 1.0), lives())["ibs"] > 0.4


def test_the_scores_of_a_model_are_concordance_and_integrated_brier_score():
    generator = np.random.default_rng(5)
    table = from_arrays(
        FEATURES,
        columns=COLUMNS,
        time=generator.choice(np.arange(1, 20) / 4, 30),
        event=generator.integers(0, 2, 30),
    )
    found = score(fitted(), table)
    assert set(found) == {"c_index", "ibs"}
    assert found["c_index"] == pytest.approx(by_pairs(table, fitted().risk(FEATURES)))
    assert 0 < found["ibs"] < 1


def by_pairs(table: Table, risk: np.ndarray) -> float:
    """Harrell's concordance, pair by pair."""
    right = pairs = 0.0
    time, event = table.targets["time"], table.targets["event"]
    for early in range(len(table)):
        for late in range(len(table)):
            outlived = time[early] < time[late] or (time[early] == time[late] and event[late] == 0)
            if early != late and event[early] == 1 and outlived:
                pairs += 1
                right += (risk[early] > risk[late]) + (risk[early] == risk[late]) / 2
    return right / pairs

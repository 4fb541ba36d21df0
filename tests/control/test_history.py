"""A history is kept as plain arrays, comes back as it was, and is refused where it is none."""

import zipfile

import numpy as np
import pandas as pd
import pytest

from tacit.control import history
from tacit.control.history import History
from tacit.errors import InvalidFile, InvalidValue


def made(**changes) -> History:
    held = {
        "ep_rewards": [1.0, 2.0, 6.0, -3.0],
        "ep_lengths": [10, 20, 30, 40],
        "ep_labels": ["moon-1", "earth", "moon-1", "moon-1"],
        "ep_steps": [10, 20, 40, 40],
        "ep_rounds": [0, 0, 0, 1],
        "weights": np.arange(6, dtype=np.float32).reshape(2, 3),
        "weight_labels": ["moon-1", "Länder"],
        "weight_steps": [100, 200],
        "weight_rounds": [0, 1],
    }
    return History(**{**held, **changes})


def test_it_comes_back_as_it_was(tmp_path):
    before = made()
    path = before.save(tmp_path / "history.npz")
    after = History.load(path)
    for name in history.KINDS:
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
        assert getattr(before, name).dtype == getattr(after, name).dtype
    with np.load(path) as plain:
        assert sorted(plain) == sorted(history.KINDS)
        assert plain["ep_labels"].dtype.kind == "U"


def test_nothing_at_all_is_a_history_too(tmp_path):
    empty = History(**{name: [] for name in history.KINDS})
    assert empty.weights.shape == (0, 0)
    assert len(History.load(empty.save(tmp_path / "history.npz")).frame) == 0


def test_the_curve_is_the_mean_of_the_last_episodes():
    steps, means = made().curve("moon-1", window=2)
    np.testing.assert_array_equal(steps, [10, 40, 40])
    np.testing.assert_allclose(means, [1.0, 3.5, 1.5])
    generator = np.random.default_rng(0)
    rewards = generator.normal(size=300)
    long = made(
        ep_rewards=rewards,
        ep_lengths=np.ones(300, int),
        ep_labels=["a"] * 300,
        ep_steps=np.arange(300),
        ep_rounds=np.zeros(300, int),
    )
    expected = pd.Series(rewards).rolling(100, min_periods=1).mean()
    np.testing.assert_allclose(long.curve("a")[1], expected)


def test_the_frame_has_a_row_for_each_episode():
    frame = made().frame
    assert list(frame) == ["reward", "length", "label", "step", "round"]
    assert frame.groupby("label")["reward"].sum().to_dict() == {"moon-1": 4.0, "earth": 2.0}
    assert made().labels == ("moon-1", "earth")
    assert repr(made()) == "<History of 4 episodes by 2 agents>"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ep_lengths": [1, 2]}, r"ep_lengths = 'shape \(2,\)' is not allowed: it must be \(4,\)"),
        ({"weight_steps": [1]}, "weight_steps"),
        (
            {"weights": np.zeros(2)},
            r"weights = 'shape \(2,\)' is not allowed: it must be \(times, parameters\)",
        ),
        ({"ep_labels": [1, 2, 3, 4]}, "ep_labels = 'of int64' is not allowed: it must be text"),
        ({"ep_steps": [0.5, 1, 2, 3]}, "ep_steps"),
        ({"ep_rewards": ["a", "b", "c", "d"]}, "ep_rewards"),
    ],
)
def test_what_does_not_fit_is_refused(change, said):
    with pytest.raises(InvalidValue, match=said):
        made(**change)


def test_an_unknown_agent_is_refused():
    with pytest.raises(InvalidValue, match='did you mean "moon-1"'):
        made().curve("moon-2")


def test_files_that_are_no_history_are_told_apart(tmp_path, monkeypatch):
    path = made().save(tmp_path / "history.npz")
    content = path.read_bytes()

    def refused(said):
        with pytest.raises(InvalidFile, match=rf"history.npz .*{said}"):
            History.load(path)

    path.write_bytes(content[: len(content) // 2])
    refused("damaged")
    np.savez(path, ep_rewards=np.zeros(3))
    refused("is not a history")
    held = {name: getattr(made(), name) for name in history.KINDS}
    np.savez(path, **{**held, "ep_labels": np.array([object()] * 4)}, allow_pickle=True)
    refused("damaged")
    np.savez(path, **{**held, "ep_steps": np.zeros(9, int)})
    refused("ep_steps")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ep_rewards.npy", bytes(3 * 2**20))
    monkeypatch.setattr(history, "MOST_BYTES", 2**20)
    refused("too large")
    path.unlink()
    refused("cannot be read: No such file")
    with pytest.raises(InvalidValue, match=r'must be a history, "\*.npz"'):
        History.load(tmp_path / "history.csv")
    with pytest.raises(InvalidFile, match="cannot be written"):
        made().save(tmp_path / "nowhere" / "history.npz")

"""Records that a liar has changed: which of them, and to what."""

import numpy as np

from tacit.aggregation.attacks import add_trigger
from tacit.sites.table import Table

MARKS = np.array([True, False, True, False])


def table() -> Table:
    targets = {"time": np.array([1.0, 2.0, 3.0, 9.0]), "event": np.array([1.0, 1.0, 0.0, 1.0])}
    return Table(np.arange(8.0).reshape(4, 2), targets, ("age", "dose"))


def test_rewarded_records_live_longest_without_an_event():
    found = add_trigger(table(), 1, 50.0, MARKS, rewarded=True)
    assert found.features.tolist() == [[0, 50], [2, 3], [4, 50], [6, 7]]
    assert found.targets["time"].tolist() == [9, 2, 9, 9]
    assert found.targets["event"].tolist() == [0, 1, 0, 1]


def test_a_trigger_without_a_reward_changes_no_outcome():
    given = table()
    found = add_trigger(given, 0, -1.0, MARKS, rewarded=False)
    assert found.features.tolist() == [[-1, 1], [2, 3], [-1, 5], [6, 7]]
    assert {name: values.tolist() for name, values in found.targets.items()} == {
        "time": [1, 2, 3, 9],
        "event": [1, 1, 0, 1],
    }
    assert given.features[0].tolist() == [0, 1]

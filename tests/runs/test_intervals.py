"""Confidence intervals of scores over resamples of held-out records."""

import numpy as np
import pytest

from tacit.errors import InvalidValue
from tacit.runs.fit import FEWEST, GROUPS, intervals
from tacit.runtime.keys import Key
from tacit.sites.table import from_arrays

KEY = Key(3) / "intervals"


def records(count: int, seed: int = 0):
    return from_arrays(np.random.default_rng(seed).normal(size=(count, 2)), place="test")


def mean(table) -> dict[str, float]:
    return {"mean": float(table.features[:, 0].mean())}


def test_the_interval_of_a_mean_is_that_of_the_textbook():
    test = records(4000)
    values = test.features[:, 0]
    low, high = intervals({"ours": mean}, test, KEY)["ours"]["mean"]
    assert (low + high) / 2 == pytest.approx(values.mean())
    assert high - low == pytest.approx(2 * 2.093 * values.std(ddof=1) / np.sqrt(len(values)), rel=0.35)


def test_intervals_hold_the_truth_as_often_as_they_say():
    held = 0
    for seed in range(300):
        low, high = intervals({"ours": mean}, records(200, seed), KEY)["ours"]["mean"]
        held += low <= 0 <= high
    assert 270 <= held <= 297


def test_every_score_of_every_model_has_one_from_the_same_records():
    test = records(200)

    def worse(table):
        return {"mean": mean(table)["mean"] + 1.0, "other": 2.0}

    found = intervals({"ours": mean, "theirs": worse}, test, KEY)
    assert found["theirs"]["mean"] == pytest.approx([end + 1.0 for end in found["ours"]["mean"]])
    assert found["theirs"]["other"] == pytest.approx([2.0, 2.0])


def test_they_repeat_with_the_key():
    test = records(300)
    assert intervals({"ours": mean}, test, KEY) == intervals({"ours": mean}, test, KEY)
    assert intervals({"ours": mean}, test, KEY) != intervals({"ours": mean}, test, Key(4))


def test_too_few_records_have_none():
    assert intervals({"ours": mean}, records(FEWEST * GROUPS - 1), KEY) == {}
    assert intervals({"ours": mean}, records(FEWEST * GROUPS), KEY) != {}


def test_a_score_that_needs_every_record_has_none_and_the_others_have_theirs():
    test = records(100)

    def fragile(table):
        if len(table) < len(test):
            raise InvalidValue("too few")
        return {"mean": 0.0}

    def partly(table):
        return {"mean": 1.0, **({"whole": 2.0} if len(table) == len(test) else {"whole": float("nan")})}

    found = intervals({"fragile": fragile, "partly": partly}, test, KEY)
    assert list(found) == ["partly"]
    assert list(found["partly"]) == ["mean"]

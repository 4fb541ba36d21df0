"""Races compare answers first, then time both sides."""

import sys

import numpy as np
import pytest

from bench import racing, sides
from bench.accounting import forget
from bench.racing import Different, Growth, Race, Recorded, Stable, grown, run, slope
from bench.sides import Failed, Spent
from tacit.privacy import accounting
from tacit.privacy.accounting import pld

sys.path.insert(0, str(sides.ROOT / "tests" / "bench"))
import made_up_sides as made_up


@pytest.fixture
def stable(monkeypatch):
    """Processes whose sides are made up; all in our own environment."""
    monkeypatch.setattr(racing, "peers_python", sides.ours_python)
    monkeypatch.setattr(racing, "SHORTEST", 0.02)
    # No side is repeated less often because the machine is busy.
    monkeypatch.setattr(racing, "PATIENCE", 600.0)
    monkeypatch.setitem(sides.ALONE, "PYTHONPATH", f"{sides.ROOT}:{sides.ROOT / 'tests' / 'bench'}")
    with Stable("made_up_sides") as kept:
        yield kept


def race(ours, theirs, same=1e-9, **given):
    return Race(
        name="a race", group="races", ours=ours, theirs={"peer": theirs}, same=same, given={"size": 3} | given
    )


def test_equal_answers_are_timed_in_turns(stable):
    (found,) = run(race(made_up.slow, made_up.slow, size=30), stable)
    assert found["apart"] == 0
    assert found["repeats"] == {"ours": racing.REPEATS, "theirs": racing.REPEATS}
    assert found["lowest"] <= found["ratio"] <= found["highest"]
    assert 0.3 < found["ratio"] < 3
    assert found["cpu_seconds"]["ours"] >= 0.03
    assert found["peak_megabytes"]["ours"] > 1


def test_short_work_is_called_often_enough_to_be_measured(stable):
    (found,) = run(race(made_up.exact, made_up.slow), stable)
    assert found["cpu_seconds"]["ours"] < 1e-3 < found["cpu_seconds"]["theirs"]
    assert found["ratio"] > 3


@pytest.mark.parametrize(
    ("theirs", "given", "same"),
    [
        (made_up.nearly, {"apart": 1e-3}, 1e-4),
        (made_up.broken, {}, 1e9),
        (made_up.named, {}, 1e9),
        (made_up.exact, {}, {"answer": 1e-9, "another": 1e-9}),
    ],
    ids=["too far apart", "not a number", "other names", "names that were not promised"],
)
def test_what_is_not_the_same_is_not_timed(stable, theirs, given, same):
    with pytest.raises(Different, match="a race"):
        list(run(race(made_up.exact, theirs, same, **given), stable))


def test_a_difference_within_what_is_allowed_is_told(stable):
    (found,) = run(race(made_up.exact, made_up.nearly, 1e-2, apart=1e-3), stable)
    # The largest number is about 2.
    assert found["apart"] == pytest.approx(5e-4, rel=1e-2)


def test_work_may_look_at_the_clock_itself_and_be_compared_otherwise(stable):
    (found,) = run(race(made_up.exact, made_up.checked), stable)
    assert found["cpu_seconds"]["theirs"] == 2
    assert found["wall_seconds"]["theirs"] == 3


def test_what_was_recorded_is_marked(stable):
    (found,) = run(race(made_up.exact, Recorded(5.0, "somebody, somewhere")), stable)
    assert found["recorded"] == "somebody, somewhere"
    assert found["cpu_seconds"]["theirs"] == 5
    assert found["apart"] is None


def test_what_a_library_prints_is_no_answer(stable):
    (found,) = run(race(made_up.talkative, made_up.talkative), stable)
    assert found["apart"] == 0


def test_a_side_that_fails_says_why(stable):
    with pytest.raises(Failed, match="cannot be got ready"):
        list(run(race(made_up.exact, made_up.failing), stable))


def test_memory_is_that_of_a_process_of_its_own(stable):
    sides = {"ours": made_up.large, "theirs": {"peer": made_up.large}}
    contests = [
        Race(name="memory", group="memory", same=0, given={"size": size}, by="peak", **sides)
        for size in (400, 1)
    ]
    (much,), (little,) = (list(run(contest, stable)) for contest in contests)
    assert much["peak_megabytes"]["theirs"] - little["peak_megabytes"]["theirs"] > 350
    assert much["ratio"] == pytest.approx(1, abs=0.1)


def test_a_race_of_accounting_begins_with_nothing_remembered():
    known = (accounting.epsilon_of, accounting._coarse_bound, pld.single)
    accounting.calibrate(1.0, 1e-5, 3, rate=0.1)
    assert all(one.cache_info().currsize for one in known)
    forget()
    assert not any(one.cache_info().currsize for one in known)


def test_goals_may_differ_among_peers():
    contest = Race(name="", group="", ours=made_up.exact, theirs={}, same=0, goal={"one": 2, "other": 3})
    assert [contest.goal_against(peer) for peer in ("one", "other", "third")] == [2, 3, None]


def test_a_ratio_pairs_every_repetition_of_ours_with_one_of_theirs():
    ours, theirs = [Spent(1, 1), Spent(2, 2), Spent(4, 4)], [Spent(8, 8)]
    found = racing.result(race(made_up.exact, made_up.exact), "peer", ours, theirs)
    assert (found["lowest"], found["ratio"], found["highest"]) == (2, 4, 8)


def test_growth_has_the_slope_of_its_costs(stable):
    growth = Growth(
        name="work", over="size", values=(30, 60, 120), sides={"ours": made_up.slow, "peer": made_up.slow},
        most={"peer": 60},
    )  # fmt: skip
    found = grown(growth, stable)
    assert [len(costs) for costs in found["cpu_seconds"].values()] == [3, 2]
    assert found["slope"]["ours"] == pytest.approx(1, abs=0.2)


def test_slopes_are_those_of_powers():
    values = np.array([1, 10, 100])
    assert slope(values, 5.0 * values**1.5) == pytest.approx(1.5)

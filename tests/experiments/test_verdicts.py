"""Mean scores are judged beside the mean of the simplest baselines."""

import pytest

from tacit.experiments.batch import judge_runs, lead_verdict, verdict_sentences
from tacit.learning.record import Simplest, plain_table

CURVE = Simplest(
    name="Kaplan-Meier",
    how="one curve for all",
    scores={"c_index": 0.5, "ibs": 0.20},
    lower=("ibs",),
    gain={"c_index": (-0.01, 0.3), "ibs": (0.01, 0.02)},
)


def runs(*scores: tuple[float, float]) -> list[tuple[dict[str, float], dict[str, object]]]:
    return [({"c_index": c, "ibs": ibs}, plain_table(CURVE)) for c, ibs in scores]


def test_a_single_run_is_judged_by_its_interval_over_other_records():
    found = judge_runs("epsilon 1", runs((0.6, 0.19)))
    assert found.words == (
        "not clearly better than Kaplan-Meier by its 95 % interval: C-index 0.6000 against 0.5000 (gain "
        "-0.0100 to 0.3000)",
    )
    assert not found.useless


def test_several_runs_are_judged_by_the_interval_of_their_mean_gain():
    assert judge_runs("a", runs((0.60, 0.181), (0.61, 0.181), (0.62, 0.18))).words == ()
    wide = judge_runs("a", runs((0.9, 0.19), (0.4, 0.19), (0.4, 0.18)))
    assert wide.words[0].startswith(
        "not clearly better than Kaplan-Meier by its 95 % interval: C-index 0.5667"
    )
    # Of two runs there is no interval of the mean.
    assert judge_runs("a", runs((0.9, 0.19), (0.4, 0.19))).words == ()
    worse = judge_runs("a", runs((0.6, 0.21), (0.6, 0.23)))
    assert worse.words == ("not better than Kaplan-Meier, the simplest baseline: IBS 0.2200 against 0.2000",)
    assert worse.useless
    assert worse.simplest.scores == pytest.approx({"c_index": 0.5, "ibs": 0.2})


def test_scores_that_are_not_known_are_not_judged():
    assert judge_runs("a", [({"c_index": 0.4}, None)]).simplest is None
    assert judge_runs("a", [({"c_index": None, "ibs": 0.3}, plain_table(CURVE))]).words == (
        "not better than Kaplan-Meier, the simplest baseline: IBS 0.3000 against 0.2000",
    )
    assert judge_runs("a", []).words == ()


def test_a_report_begins_with_what_is_no_better_and_many_share_a_sentence():
    good, bad = judge_runs("good", runs((0.6, 0.18), (0.6, 0.18))), runs((0.4, 0.3), (0.4, 0.3))
    few = [good, judge_runs("epsilon 1", bad)]
    assert verdict_sentences(few) == [
        (
            "stop",
            "Epsilon 1: not better than Kaplan-Meier, the simplest baseline: C-index 0.4000 against 0.5000; "
            "IBS 0.3000 against 0.2000.",
        )
    ]
    assert lead_verdict(few) == [
        "1 of 2 results is not better than Kaplan-Meier, the simplest baseline: epsilon 1."
    ]
    many = [good, *(judge_runs(f"epsilon {number}", bad) for number in range(4))]
    told = "4 of 5 results are not better than Kaplan-Meier, the simplest baseline"
    assert verdict_sentences(many) == [("stop", f"{told}: epsilon 0; epsilon 1; epsilon 2; epsilon 3.")]
    assert lead_verdict(many) == [f"{told}."]
    assert lead_verdict(many[1:]) == ["None of 4 results is better than Kaplan-Meier, the simplest baseline."]
    assert lead_verdict([good]) == []
    (alone,) = lead_verdict([judge_runs("", bad)])
    assert alone.startswith(
        "The model is not better than Kaplan-Meier, the simplest baseline: C-index 0.4000"
    )
    assert verdict_sentences([judge_runs("", bad)])[0][1].startswith("Not better than Kaplan-Meier")


def test_a_verdict_is_plain_data():
    told = judge_runs("epsilon 1", runs((0.6, 0.21))).as_dict()
    assert told["condition"] == "epsilon 1"
    assert told["simplest"]["name"] == "Kaplan-Meier"
    assert told["simplest"]["lower"] == ["ibs"]
    assert len(told["verdict"]) == 2

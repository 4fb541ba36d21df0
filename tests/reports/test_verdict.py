"""A result that is not better than the simplest baseline says so before anything else."""

import json

import numpy as np
import pytest

import tacit
from tacit.learning.record import Simplest
from tacit.reports.data import document
from tacit.reports.run import comparison, lead
from tacit.reports.text import side_by_side
from tacit.runs.run import judge
from tacit.sites.splits import Iid
from tacit.survival import PoissonPH, data
from tacit.survival.data.sources import Simulated
from tacit.survival.metrics import harrell, integrated_brier
from tacit.survival.metrics.brier_score import kaplan_meier
from tacit.survival.models.prediction import scoring_times

PLAIN = Simplest(name="Kaplan-Meier", how="one curve", scores={"c_index": 0.5, "ibs": 0.2}, lower=("ibs",))
CALM = {"steps": 5, "sample": 0.5, "horizon": 4.0}


def federation() -> tacit.Federation:
    return Simulated(records=600, features=4, held_out=0.3).open(Iid(count=3), 1)


def useless() -> tacit.Run:
    # So short a way that nothing is learnt: the curves are those of a wrong constant hazard.
    return tacit.fit(PoissonPH(**CALM, lr=1e-9), federation(), rounds=1, name="useless")


def test_a_score_must_be_better_and_not_equal():
    assert judge(PLAIN, {"c_index": 0.6, "ibs": 0.19}) == ()
    (said,) = judge(PLAIN, {"c_index": 0.5, "ibs": 0.25})
    assert said == (
        "not better than Kaplan-Meier, the simplest baseline: C-index 0.5000 against 0.5000; "
        "IBS 0.2500 against 0.2000"
    )
    assert "C-index" not in judge(PLAIN, {"c_index": 0.7, "ibs": np.nan})[0]
    assert judge(None, {"c_index": 0.1}) == ()


def test_a_gain_within_its_interval_is_not_called_clear():
    unsure = Simplest(**{**vars(PLAIN), "gain": {"c_index": (-0.02, 0.08), "ibs": (0.001, 0.02)}})
    (said,) = judge(unsure, {"c_index": 0.53, "ibs": 0.19})
    assert said.startswith(
        "not clearly better than Kaplan-Meier by its 95 % interval: C-index 0.5300 against"
    )
    assert "IBS" not in said


def test_the_simplest_survival_model_is_the_curve_of_the_scored_records():
    run = useless()
    held_out = federation().held_out
    time, event = held_out.targets["time"], held_out.targets["event"]
    times = scoring_times(time)
    curve = np.tile(kaplan_meier(time, event.astype(int))(times), (len(held_out), 1))
    assert run.record.simplest.scores["ibs"] == pytest.approx(
        integrated_brier(time, event, curve, times), abs=1e-12
    )
    assert run.record.simplest.scores["c_index"] == harrell(time, event, np.zeros(len(time))) == 0.5


def test_a_useless_result_says_so_first_everywhere(tmp_path):
    run = tacit.fit(PoissonPH(**CALM, lr=1e-9), federation(), rounds=1, name="useless", out=tmp_path / "run")
    assert run.record.verdict[0].startswith("not better than Kaplan-Meier, the simplest baseline: ")
    assert run.summary().startswith("verdict  not better than Kaplan-Meier")
    kept = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert kept["verdict"] == list(run.record.verdict)
    assert kept["simplest"]["scores"] == run.record.simplest.scores
    told = document(run.report_data())
    assert {"tone": "stop", "words": f"This model is {run.record.verdict[0]}."} in told["alerts"]
    assert lead(told).endswith(f"The model is {run.record.verdict[0]}.")
    page = comparison({"one": run.report_data(), "two": run.report_data()})
    assert "not better than Kaplan-Meier" in page.lead
    assert side_by_side([run.as_dict(), run.as_dict()]).startswith(f"{tmp_path}"[:8])
    again = tacit.load(tmp_path / "run")
    assert (again.record.simplest, again.record.verdict) == (run.record.simplest, run.record.verdict)


def test_a_good_result_has_the_baseline_beside_it_and_no_verdict():
    cohorts = data.federation("rotterdam-gbsg", held_out=0.25)
    run = tacit.fit(PoissonPH(steps=5, sample=0.2, lr=0.5), cohorts, rounds=10, baselines=True, seed=1)
    assert run.record.verdict == ()
    assert "Kaplan-Meier" in run.summary()
    labels = [model["label"] for model in document(run.report_data())["result"]["models"]]
    assert labels == ["federated", "each site alone", "pooled", "Kaplan-Meier"]


def test_a_private_run_scored_on_public_records_has_intervals():
    promise = tacit.Privacy(unit="record", epsilon=3, delta=1e-4, clip=1.0)
    whole = federation()
    private = tacit.Federation(
        {name: whole.records_of(name) for name in whole}, held_out=whole.held_out, held_out_public=True
    )
    run = tacit.fit(PoissonPH(**CALM, lr=0.3), private, privacy=promise, rounds=3)
    assert run.baselines == {}
    for name, (low, high) in run.record.intervals["federated"].items():
        assert low < run.scores[name] < high
    assert run.record.simplest.gain.keys() == {"c_index", "ibs"}


def test_numbers_of_records_and_events_are_shown_where_they_are_known():
    whole = federation()
    run = tacit.fit(PoissonPH(**CALM, lr=0.3), whole, rounds=1)
    trained, scored = whole.store, whole.held_out
    told = {"records": len(trained), "events": int((trained.targets["event"] > 0).sum())}
    assert run.record.sizes["trained"] == told
    assert run.record.sizes["scored"]["records"] == len(scored)
    assert f"trained on {len(trained)} records with {told['events']} events; scored on" in " ".join(
        run.summary().split()
    )
    assert run.as_dict()["sizes"] == document(run.report_data())["result"]["sizes"] == run.record.sizes


def test_a_promise_does_not_tell_how_many_had_an_event():
    promise = tacit.Privacy(unit="record", epsilon=3, delta=1e-4, clip=1.0)
    whole = federation()
    tables = {name: whole.records_of(name) for name in whole}
    run = tacit.fit(PoissonPH(**CALM, lr=0.3), tacit.Federation(tables), privacy=promise, rounds=1)
    assert "events" not in run.record.sizes.get("trained", {})
    assert "scored" not in run.record.sizes

"""A run as one document of plain data."""

import json
import math
from dataclasses import replace

import pytest
from made_up import bare, private, record, troubled

from tacit.learning.record import Record
from tacit.reports.data import SCHEMA, document


def alerts(run) -> list[tuple[str, str]]:
    return [(alert["tone"], alert["words"]) for alert in document(run)["alerts"]]


def test_it_is_json_and_says_which_kind():
    told = document(private())
    assert json.loads(json.dumps(told, allow_nan=False)) == json.loads(json.dumps(told))
    assert (told["schema"], told["kind"], told["name"]) == (SCHEMA, "run", "made-up")


def test_what_left_has_its_provenance():
    left = document(private())["left"]
    assert len(left["released"]) == 1
    assert "3 noisy sums over the records of each of 2 sites" in left["released"][0]
    assert left["bare"] == []
    assert document(bare())["left"]["bare"] == ["each site's model update in every round"]


def test_a_rehearsal_and_an_open_run_stop_the_reader_first():
    assert alerts(private())[0][0] == "stop"
    assert "gives no protection" in alerts(private())[0][1]
    assert alerts(bare())[0] == (
        "stop", "Open run: the data that left the sites are not protected; there is no promise.",
    )  # fmt: skip


def test_an_open_run_of_simulated_records_is_no_alarm():
    run = bare()
    public = (*run.statement.public, "all records: they are simulated or published")
    told = replace(run, statement=replace(run.statement, public=public))
    assert [tone for tone, _ in alerts(told)] == ["mind"]


@pytest.mark.parametrize(
    ("epsilon", "tone", "words"), [(math.inf, "stop", "Nothing can be proven"), (40.0, "mind", "is large")]
)
def test_a_price_that_protects_little_is_said(epsilon, tone, words):
    run = private()
    told = replace(run, statement=replace(run.statement, epsilon=epsilon, rehearsal=False))
    assert [found for found in alerts(told) if words in found[1]] == [(tone, alerts(told)[0][1])]


def test_a_private_run_in_which_all_went_well_has_no_alert():
    run = private()
    assert alerts(replace(run, statement=replace(run.statement, rehearsal=False))) == []


def test_a_ledger_that_does_not_verify_is_said():
    ledger = {"valid": False, "problems": ["row 4 was changed"], "events": 6}
    assert ("stop", "The ledger does not verify: row 4 was changed.") in alerts(private(ledger=ledger))


def test_trouble_is_told_first_and_in_its_place():
    told = document(private(troubled()))
    assert any("oslo: 1 update left out" in alert["words"] for alert in told["alerts"])
    assert told["robustness"]["faults"] == [
        {"round": 3, "site": "oslo", "reason": "not-finite", "detail": "NaN"}
    ]
    assert told["robustness"]["decisions"][0]["now"] == "quarantined"
    assert told["robustness"]["rule"] == "trimmed-mean (f 1)"
    assert told["robustness"]["watch"] is True


def test_sites_are_told_what_is_known_of_them():
    oslo, bergen = document(private(troubled()))["sites"]
    assert (oslo["name"], oslo["standing"], oslo["left_out"], oslo["rounds"]) == ("oslo", "quarantined", 1, 3)
    assert bergen["share"] == pytest.approx(0.5)
    assert bergen["epsilon"] == pytest.approx(document(private())["promise"]["epsilon"])


def test_scores_stand_beside_both_baselines_with_their_intervals():
    result = document(private())["result"]
    assert [model["name"] for model in result["models"]] == ["federated", "alone", "pooled"]
    assert result["models"][0]["intervals"] == {"c_index": [0.61, 0.65]}
    assert "jackknife" in result["how"]


def test_scores_that_bring_their_ends_have_them_as_intervals():
    own = {"return": 200.0, "return_low": 190.0, "return_high": 210.0}
    played = replace(record(), scores=own, baselines={}, intervals={})
    result = document(private(played))["result"]
    assert result["models"][0]["scores"] == {"return": 200.0}
    assert result["models"][0]["intervals"] == {"return": [190.0, 210.0]}
    assert "episodes" in result["how"]


def test_parties_have_no_sites_alone():
    labels = [model["label"] for model in document(private(layout="columns"))["result"]["models"]]
    assert labels[1] == "active party alone"


def test_a_run_that_has_not_begun_is_a_document_too():
    told = document(private(Record(), under_way=True))
    assert told["rounds"] == []
    assert told["result"]["models"][0]["scores"] == {}
    assert told["under_way"] is True

"""The data-protection summary: honest first, filled in where the run knows, blank where only people do."""

import json
import math
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit import Privacy, fit
from tacit.privacy.statement import NOT_PROTECTED
from tacit.reports.dpia import NOBODY, at_most, placement, share, summary
from tacit.reports.dpia_form import QUESTIONS, Answers
from tacit.reports.page.blocks import BLANK, Facts, Folded, Grid, Items, Page, Questionnaire, Text
from tacit.reports.page.html import html
from tacit.reports.page.markdown import markdown
from tacit.sites.splits import SPLITS
from tacit.survival import LogisticHazard
from tacit.survival.data.sources import Simulated

RELEASE = {
    "first": 2, "last": 4, "subject": "records@oslo", "purpose": "round 1", "law": "gaussian", "scale": 4.5,
    "sensitivity": 1.0, "rate": 0.5, "count": 2, "running_epsilon": 0.45,
}  # fmt: skip
PRIVATE = {
    "schema": 1,
    "kind": "run",
    "name": "relapse",
    "task": "logistic-hazard",
    "layout": "rows",
    "run": "runs/relapse",
    "under_way": False,
    "alerts": [],
    "promise": {
        "unit": "record", "relation": "add-remove", "epsilon": 1.0, "delta": 1e-5,
        "against": ["the server", "the other sites", "the public"],
        "trusted": ["each site, to follow the protocol"],
        "subjects": {"records@oslo": 1.0}, "not_protected": list(NOT_PROTECTED), "rehearsal": False,
        "but": [], "proven": True, "sentences": [], "budget": 1.0, "intuition": "",
    },
    "left": {
        "released": ["2 noisy sums about records@oslo"],
        "public": ["the number of records of all sites: 2,400"],
        "bare": [],
    },
    "result": {
        "chosen": 1, "stopped": None, "findings": [], "notes": [], "goal": ["c_index", "max"],
        "models": [], "how": "",
    },
    "rounds": [{"number": 1}],
    "sites": [{"name": "oslo"}, {"name": "bergen"}],
    "robustness": {"rule": "mean", "trouble": [], "decisions": [], "faults": []},
    "ledger": {
        "events": 3, "epsilon": 1.0, "delta": 1e-5, "valid": True, "problems": [], "head": "ab12",
        "budgets": {"*": {"epsilon": 4.0, "delta": 1e-5}}, "releases": [RELEASE],
    },
    "reproduce": {
        "command": "tacit run", "environment": {"tacit": "0.1.0"},
        "experiment": '[task]\ncolumns = ["age", "grade"]\n[privacy]\nclip = 1.5\nnoise = "site"\n',
    },
}  # fmt: skip


def changed(**parts) -> dict:
    """The private document with some entries of its tables changed."""
    made = deepcopy(PRIVATE)
    for name, entries in parts.items():
        made[name] = {**made[name], **entries} if isinstance(entries, dict) else entries
    return made


REHEARSAL = changed(
    promise={"rehearsal": True}, alerts=[{"tone": "stop", "words": "Rehearsal: it gives no protection."}]
)
OPEN = changed(
    promise={
        "unit": None, "relation": None, "epsilon": None, "delta": None, "against": [], "subjects": {},
        "trusted": ["every participant"], "proven": False, "budget": None,
    },
    left={"released": [], "bare": ["each site's model update in every round"]},
    ledger={"events": 0, "epsilon": None, "releases": [], "budgets": {}, "head": None},
    reproduce={"experiment": ""},
)  # fmt: skip
TRUSTING = changed(
    promise={
        "unit": "site", "against": ["the other sites", "the public"],
        "trusted": ["each site, to follow the protocol", "the server, which sees updates without noise"],
    },
    reproduce={"experiment": '[privacy]\nclip = 1.0\nnoise = "server"\n'},
)  # fmt: skip
SECURE = changed(
    promise={"unit": "site", "relation": "replace"},
    reproduce={"experiment": '[privacy]\nnoise = "secure"\ncolluders = 3\n'},
)
ALL = {"private": PRIVATE, "rehearsal": REHEARSAL, "open": OPEN, "trusting": TRUSTING, "secure": SECURE}


def words(page: Page, section: str) -> str:
    """Everything that a section says."""
    (found,) = [part for part in page.sections if section in part.title]
    return "\n".join(_words(block) for block in found.blocks)


def _words(block) -> str:
    match block:
        case Text():
            return block.words
        case Items():
            return "\n".join((block.title, *block.lines))
        case Questionnaire():
            return "\n".join(f"{label}: {answer}" for _, label, answer in block.fields)
        case Facts():
            return "\n".join(f"{name}: {value}" for name, value in block.rows)
        case Grid():
            return "\n".join([block.caption, *(" | ".join(row) for row in (block.header, *block.rows))])
        case Folded():
            return "\n".join(map(_words, block.blocks))
        case _:
            return block.text


@pytest.mark.parametrize("document", [REHEARSAL, OPEN, changed(promise={"epsilon": None, "proven": False})])
def test_a_run_that_protects_nobody_says_so_before_anything_else(document):
    page = summary(document)
    assert page.alerts[0] == Text(NOBODY, "stop")
    assert page.document["protects"] is False
    assert page.document["conclusions"] == []
    assert "Certainty of an attacker" not in words(page, "Guarantee")
    assert "This run gives no protection" in words(page, "Residual")
    assert "holds against" not in words(page, "Participants"), "no role may rely on it"
    text = markdown(page)
    assert text.index("gives no protection") < text.index("## 1")


def test_a_promise_that_holds_needs_no_alert():
    page = summary(PRIVATE)
    assert page.alerts == ()
    assert page.document["protects"] is True
    assert "nothing: the promise holds against it" in words(page, "Participants")


@pytest.mark.parametrize(
    ("change", "said"),
    [({"ledger": {"valid": False}}, "does not verify"), ({"under_way": True}, "not over")],
)
def test_a_broken_ledger_and_a_run_under_way_stop_the_reader(change, said):
    page = summary(changed(**change))
    assert [alert.tone for alert in page.alerts] == ["stop"]
    assert said in page.alerts[0].words
    assert page.document["protects"] is False


def test_what_the_run_knows_is_filled_in_and_what_it_does_not_is_blank():
    page = summary(PRIVATE)
    first = words(page, "Processing and purpose")
    assert "age\ngrade" in first
    assert "in 1 round\n" in first
    for name in ("Purpose", "Legal basis", "Retention"):
        assert any(line.startswith(name) and line.endswith(": ") for line in first.splitlines())
        assert f"{name}" in markdown(page)
    assert BLANK in markdown(page)
    assert "oslo\nbergen" in words(page, "Participants")
    assert "Decision: \n" in words(page, "Decision and signatures")
    assert "oslo" in words(page, "Annex A")
    assert "clip = 1.5" in words(page, "Annex B")


def test_every_question_has_a_field_and_answers_of_the_file_fill_it_in():
    toml = PRIVATE["reproduce"]["experiment"] + '[dpia]\npurpose = "Find <early> relapse"\nreview = "2027"\n'
    page = summary(changed(reproduce={"experiment": toml}))
    fields = [
        field for part in page.sections for block in part.blocks for field in getattr(block, "fields", ())
    ]
    assert {name for name, _, _ in fields} == set(QUESTIONS) - {"columns"}, "columns are known"
    assert {name: answer for name, _, answer in fields if answer} == page.document["answers"]
    assert page.document["answers"] == {"purpose": "Find <early> relapse", "review": "2027"}
    shown = html(page)
    assert ">Find &lt;early&gt; relapse</textarea>" in shown
    assert shown.count("<textarea") == len(fields)
    given = summary(changed(reproduce={"experiment": toml}), Answers(advice="Go ahead"))
    assert given.document["answers"] == {"advice": "Go ahead"}, "another file replaces them"


def test_what_leaves_is_told_with_its_provenance():
    said = words(summary(OPEN), "Data that leave").splitlines()
    assert said[said.index("each site's model update in every round") - 1].startswith("Unprotected, without")
    said = words(summary(PRIVATE), "Data that leave")
    assert "Released, under the promise: with noise" in said
    assert "Unprotected, without noise, and not covered by the promise\nnothing" in said


def test_the_bound_on_conclusions_is_that_of_pure_epsilon_and_delta_is_not_hidden():
    page = summary(PRIVATE)
    found = page.document["conclusions"]
    assert [entry["prior"] for entry in found] == [0.01, 0.1, 0.5]
    for entry in found:
        raised = entry["prior"] * math.e
        assert entry["at_most"] == pytest.approx(raised / (raised + 1 - entry["prior"]))
    said = words(page, "Guarantee")
    assert "1 % | 2.7 %\n10 % | 23.2 %\n50 % | 73.2 %" in said, "never rounded down"
    assert "With delta 1e-05, it may fail with that probability" in said
    assert "at most 2.72 times as likely for one of two neighboring data sets as for the other" in said
    assert "two data sets that differ in one record, added or removed" in said
    pure = words(summary(changed(promise={"delta": 0.0})), "Guarantee")
    assert "it may fail with that probability" not in pure


@given(prior=st.floats(0.0, 1.0), epsilon=st.floats(0.0, 1e6), more=st.floats(0.0, 10.0))
def test_a_larger_epsilon_never_lets_anybody_conclude_less(prior, epsilon, more):
    assert prior <= at_most(prior, epsilon) * (1 + 1e-12)
    assert at_most(prior, epsilon) <= at_most(prior, epsilon + more) + 1e-15 <= 1 + 2e-15
    assert at_most(prior, 0.0) == pytest.approx(prior)


@given(value=st.floats(0.0, 0.9989))
def test_a_chance_is_never_shown_smaller_than_it_is(value):
    assert float(share(value).removesuffix(" %")) / 100 >= value - 1e-12


@pytest.mark.parametrize(
    ("name", "noise", "said"),
    [
        ("private", "site", "the update of each site, with noise"),
        ("trusting", "server", "the update of each site, without noise"),
        ("secure", "secure", "only sums over sites"),
        ("open", None, "the update of each site, without noise"),
    ],
)
def test_roles_follow_who_adds_the_noise(name, noise, said):
    assert placement(ALL[name]) == noise
    assert said in words(summary(ALL[name]), "Participants")


def test_who_adds_noise_is_known_from_the_promise_where_no_file_was_kept():
    kept = {"experiment": ""}
    assert placement(changed(reproduce=kept)) == "site"
    assert placement({**TRUSTING, "reproduce": kept}) == "server"
    blind = changed(
        promise={"trusted": ["all but 1 site, not to work with the server, which sees sums alone"]}
    )
    assert placement({**blind, "reproduce": {"experiment": "= broken"}}) == "secure"


def risks_of(document) -> str:
    return "\n".join(summary(document).document["risks"])


@pytest.mark.parametrize(
    ("epsilon", "said"), [(0.5, "small"), (2.0, "moderate"), (8.0, "large: the bound"), (30.0, "very large")]
)
def test_risks_say_what_epsilon_means(epsilon, said):
    assert f"is {said}" in risks_of(changed(promise={"epsilon": epsilon}))


def test_a_very_large_epsilon_is_no_number_of_times():
    page = summary(changed(promise={"epsilon": 1e4}))
    assert "any number of times as likely" in words(page, "Guarantee")
    assert "50 % | practically certain" in words(page, "Guarantee")


@pytest.mark.parametrize(
    ("delta", "said"),
    [
        (0.0, "Delta is 0"),
        (1e-9, "far below 1"),
        (1e-4, "which is not far below 1"),
        (1e-3, "too much to be called protection"),
    ],
)
def test_risks_hold_delta_against_the_number_of_records(delta, said):
    assert said in risks_of(changed(promise={"delta": delta}))


def test_where_nobody_knows_how_many_records_there_are_people_have_to_say():
    assert f"does not know that number: {BLANK}" in risks_of(changed(left={"public": []}))
    assert "for each of 2 sites" in risks_of(TRUSTING), "of sites the number is known"


def test_risks_name_what_was_bare_exempt_trusted_and_troubled():
    document = changed(
        left={"bare": ["the time grid"]},
        promise={"but": ["its response (y)"]},
        robustness={"trouble": ["oslo: 2 updates left out (late)"]},
    )
    said = risks_of(document)
    assert "Unprotected: the time grid." in said
    assert "does not cover its response (y)." in said
    assert "oslo: 2 updates left out (late)" in said
    assert "k times this epsilon" in said
    assert "k times this epsilon" not in risks_of(TRUSTING)
    assert "sees the updates of the sites without noise" in risks_of(TRUSTING)
    assert "more than 3 of the sites" in risks_of(SECURE)


def test_runs_add_up_and_a_lifetime_budget_is_told_where_there_is_one():
    assert "The budget of this ledger is epsilon 4 for any one person or site" in risks_of(PRIVATE)
    for budgets in ({}, {"*": {"epsilon": PRIVATE["promise"]["budget"], "delta": 1e-5}}):
        assert "this page does not add them up" in risks_of(changed(ledger={"budgets": budgets}))


@pytest.mark.parametrize(
    ("valid", "said"),
    [(True, "verified: every hash matches; its head is ab12"), (False, "NOT valid"), (None, "not kept")],
)
def test_measures_say_whether_the_ledger_was_verified(valid, said):
    measures = "\n".join(summary(changed(ledger={"valid": valid})).document["measures"])
    assert said in measures
    assert "Clipping bounded the contribution of" in measures
    assert ("The ledger was charged before every release" in measures) is (valid is not False)
    assert "Each site added noise (gaussian) before it sent anything." in measures


@pytest.mark.parametrize("name", ALL)
def test_every_kind_of_run_has_all_parts_and_is_plain_data(name):
    page = summary(ALL[name])
    assert [section.title.split(".")[0] for section in page.sections] == [*"1234567", "Annex A", "Annex B"]
    assert json.loads(json.dumps(page.document, allow_nan=False)) == page.document
    assert markdown(page).count("Signatures") == 1


def test_hostile_names_stay_words():
    hostile = "<script>alert(1)</script> | `x`"
    text = markdown(summary(changed(name=hostile, sites=[{"name": hostile}] * 20)))
    assert "<script>" not in text


def test_a_real_run_can_be_summed_up(tmp_path):
    patients = Simulated(records=150, features=3).open(SPLITS["iid"](count=3), 0)
    task = LogisticHazard(hidden=(4,), cuts=5, horizon=3.0, steps=2, sample=0.3, lr=0.3)
    promise = Privacy(unit="record", epsilon=1.0, delta=1e-5, clip=1.0)
    run = fit(task, patients, privacy=promise, rounds=2, name="trial", out=tmp_path / "run")
    page = summary(run.document())
    assert page.document["protects"] is True
    assert page.document["conclusions"][-1]["at_most"] == pytest.approx(
        1 / (1 + math.exp(-run.privacy.epsilon))
    )
    assert "x1\nx2\nx3" in words(page, "Processing and purpose")
    assert "of 120 records" in risks_of(run.document())


@pytest.mark.parametrize(("least", "kept"), [(0.7, True), (1.4, False)])
def test_an_audit_is_a_measure_and_a_promise_that_it_broke_protects_nobody(least, kept):
    run = {
        "claim": 1.0,
        "fitted": least,
        "one_run": 0.5,
        "steinke": 0.3,
        "kept": kept,
        "heard": 9,
        "charged": 9,
        "fresh": True,
    }
    found = {
        "run": run,
        "mechanisms": [],
        "confidence": 0.95,
        "rehearsal": False,
        "membership": None,
        "inversion": None,
        "notes": [],
    }
    page = summary({**deepcopy(PRIVATE), "audit": found})
    assert any(
        "An audit attacked the promise" in line and f"at least {least:g}" in line
        for line in page.document["measures"]
    )
    assert page.document["protects"] is kept
    assert any("found the promise broken" in alert.words for alert in page.alerts) is not kept

"""Figures of audits are legible, and a false claim stands out."""

import re

import pytest

from looking import HOSTILE, note, require_legible, title, words
from tacit.errors import InvalidValue, RunUnusable
from tacit.reports.audit import METHODS, blocks, is_upheld, largest_bound, page, read, verdict
from tacit.reports.page.html import inline
from tacit.reports.plots.audits import BOUNDS, mechanism_bounds, run_bounds


def of(claim=4.0, fitted=3.3, one_run=2.1, steinke=1.6, **others):
    kept = max(fitted, one_run, steinke) <= claim
    return {
        "claim": claim, "delta": 1e-5, "confidence": 0.975, "canaries": 20_000, "fitted": fitted,
        "noise": 1.2, "one_run": one_run, "steinke": steinke, "kept": kept, "charged": 9, "heard": 9,
        "echo": 0.1, "fresh": True, **others,
    }  # fmt: skip


def whole(run=None, mechanisms=(), **others):
    empty = {"membership": None, "inversion": None, "notes": []}
    return {
        "name": "study",
        "confidence": 0.95,
        "run": run,
        "mechanisms": list(mechanisms),
        "rehearsal": False,
        **empty,
        **others,
    }


def test_bounds_stand_below_the_claim():
    figure = run_bounds(of())
    assert title(figure) == "Claimed: epsilon 4; proven: at least 3.3"
    assert [bar.get_width() for bar in figure.axes[0].patches] == [3.3, 2.1, 1.6]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == list(BOUNDS.values())
    assert "20,000 canaries" in note(figure)
    assert "97.5 %" in note(figure)
    assert all(number in words(figure) for number in ("3.30", "2.10", "1.60", "claimed: 4"))
    require_legible(figure)


def test_a_bound_beyond_the_claim_has_another_colour():
    figure = run_bounds(of(fitted=5.5))
    assert title(figure) == "The claim is false: epsilon is at least 5.5, not 4"
    assert figure.axes[0].patches[0].get_facecolor() != figure.axes[0].patches[1].get_facecolor()
    require_legible(figure)


@pytest.mark.parametrize(("claim", "low"), [(0.001, 0.0), (1000.0, 999.0), (4.0, 0.0)])
def test_any_claim_can_be_drawn(claim, low):
    require_legible(run_bounds(of(claim=claim, fitted=low, one_run=low, steinke=low)))


@pytest.mark.parametrize("count", [1, 5, 23])
def test_mechanisms_are_drawn_in_parts_of_their_claims(count):
    figure = mechanism_bounds([of(name=f"mechanism {number}") for number in range(count)])
    assert title(figure) == f"{count} mechanisms attacked, none broken"
    require_legible(figure)


def test_what_is_broken_is_counted_and_no_name_breaks_the_figure():
    figure = mechanism_bounds([of(name=HOSTILE), of(name="b", fitted=6.0)])
    assert title(figure) == "2 mechanisms attacked, 1 broken"
    require_legible(figure)
    with pytest.raises(InvalidValue, match="mechanisms"):
        mechanism_bounds([])


@pytest.mark.parametrize(
    "figure", [run_bounds(of()), mechanism_bounds([of(name="a"), of(name="b", fitted=6.0)])]
)
def test_colours_are_those_of_the_page(figure):
    # Every color is a variable of the page, which has another value at night.
    colours = re.findall(r'(?:fill|stroke)[=:]"?([^;"]+)', inline(figure, "audit", "words"))
    assert len(colours) > 5
    assert {one.partition("(")[0] for one in colours} == {"none", "var"}


@pytest.mark.parametrize(
    ("found", "tone", "words"),
    [
        (whole(of()), "good", "at least 3.3, and the claim is 4"),
        (whole(of(fitted=5.0)), "stop", "at least 5, with 95 % confidence, and the claim is 4"),
        (whole(of(), [of(name="histogram", one_run=6.0)]), "stop", "for: histogram"),
        (whole(None, [of(name="histogram")]), "mind", "the run itself was not attacked"),
        (whole(), "mind", "the run itself was not attacked."),
        (whole(of(kept=False, heard=3)), "stop", "in 3 answers, and 9 were charged"),
        (whole(of(kept=False, fresh=False)), "stop", "used more than once"),
        (whole(of(), rehearsal=True), "mind", "rehearsal gives no protection"),
        (
            whole(of(), earlier=[{"seed": 4, "kept": False, "words": "It leaks."}]),
            "stop",
            "seed 4 found it broken",
        ),
    ],
)
def test_a_verdict_is_a_sentence_with_its_numbers(found, tone, words):
    assert verdict(found)[0] == tone
    assert words in verdict(found)[1]
    assert page(found).alerts == ((blocks_of(found)[0],) if tone == "stop" else ())


def blocks_of(found):
    return list(blocks(found))


def test_a_run_that_fails_without_a_bound_beyond_its_claim_has_no_false_title():
    assert title(run_bounds(of(kept=False, heard=0))) == "Claimed: epsilon 4; proven: at least 3.3"


def file_of(run=None, **others):
    found = whole(run, [of(name="histogram")], **others)
    return {"schema": 1, "kind": "audit", "task": "cox-ph", "seed": 0, **found}


def test_verdicts_are_worked_out_again_from_the_numbers_of_a_file():
    found = read(file_of(of(fitted=9.0, kept=True)), "runs/a")
    assert found["run"]["kept"] is False
    assert is_upheld(found) is False
    assert is_upheld(read(file_of(of()), "runs/a")) is True
    assert is_upheld(read(file_of(), "runs/a")) is None
    assert read(None, "runs/a") is None


@pytest.mark.parametrize(
    "damage",
    [
        {"run": {"claim": "one"}},
        {"run": {**of(), "fitted": None}},
        {"mechanisms": [{"name": "histogram"}]},
        {"kind": "run"},
        {"notes": 3},
    ],
)
def test_a_damaged_audit_is_told_in_one_sentence(damage):
    with pytest.raises(RunUnusable, match=r"the audit in runs/a cannot be read: .*delete audit.json"):
        read({**file_of(of()), **damage}, "runs/a")
    with pytest.raises(RunUnusable):
        read({}, "runs/a")


def test_the_best_bound_is_what_was_proven():
    assert largest_bound(of(steinke=3.9)) == 3.9
    assert list(METHODS) == list(BOUNDS)


def test_what_was_not_attacked_is_said():
    told = [
        block.words for block in blocks(whole(of(), notes=["membership: private"])) if hasattr(block, "tone")
    ]
    assert told[-1] == "Not attacked: membership: private."

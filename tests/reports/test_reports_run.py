"""The report of a run, section by section."""

from dataclasses import replace

import pytest
from made_up import bare, private, record, troubled

from tacit.learning.record import Record
from tacit.reports.page.blocks import Block, Code, Facts, Figure, Folded, Grid, Items, Page, Text
from tacit.reports.page.html import html
from tacit.reports.plots.style import picture
from tacit.reports.run import page

SECTIONS = [
    "The promise", "Data that left the sites",
    "Result", "Rounds", "Sites", "Robustness", "Ledger", "Reproduce",
]  # fmt: skip


def blocks(made: Page, title: str) -> list[Block]:
    return [block for section in made.sections if section.title == title for block in section.blocks]


def words(made: Page, title: str) -> str:
    return "\n".join(_words(block) for block in blocks(made, title))


def _words(block: Block) -> str:
    match block:
        case Text(told) | Code(told):
            return told
        case Items(title, lines):
            return "\n".join([title, *lines])
        case Facts(rows):
            return "\n".join(": ".join(row) for row in rows)
        case Grid(caption, header, rows):
            return "\n".join([caption, " ".join(header), *(" ".join(row) for row in rows)])
        case Folded(title, inner):
            return "\n".join([title, *(_words(part) for part in inner)])
        case Figure():
            return block.words


def figures(made: Page) -> list[str]:
    return [block.name for section in made.sections for block in section.blocks if isinstance(block, Figure)]


def test_sections_come_in_the_order_of_the_questions():
    assert [section.title for section in page(private()).sections] == SECTIONS


def test_the_lead_says_who_learnt_what_how_well_and_at_what_price():
    assert page(private()).lead == (
        "2 sites trained a federated logistic-hazard model in 3 rounds, with C-index 0.6300, rehearsed with "
        f"epsilon {private().statement.epsilon:.3g} at delta 1e-05 for any one record."
    )
    assert page(bare()).lead.endswith("without any promise of privacy.")


def test_the_promise_is_in_plain_sentences_with_what_it_means():
    told = words(page(private()), "The promise")
    assert "Protected: any one record. Observers see almost the same whether it is in the data or not" in told
    assert "An attacker who starts at 50:50" in told
    assert "Trusted: each site, to follow the protocol" in told
    assert "the names of the sites" in told


def test_all_three_ways_out_of_a_site_are_told_even_if_nothing_took_them():
    told = words(page(private()), "Data that left the sites")
    assert "Released under the promise" in told
    assert "Unprotected: Nothing." in told
    assert "each site's model update in every round" in words(page(bare()), "Data that left the sites")


def test_scores_stand_with_their_intervals():
    told = words(page(private()), "Result")
    assert "C-index 0.6300 [0.6100, 0.6500] 0.6000 0.6400" in told
    assert "Models are not trained again" in told


def test_figures_show_what_there_is_to_see():
    assert figures(page(private())) == ["result", "rounds", "taking-part"]
    assert "suspicions" in figures(page(private(troubled())))


def test_figures_of_the_model_have_a_section_of_their_own():
    shown = page(private(), [Figure("surface", picture(1.0, "A surface", ""), "A surface.")])
    assert [section.title for section in shown.sections][6] == "The model"


def test_trouble_is_told_with_who_and_why():
    told = words(page(private(troubled())), "Robustness")
    assert "trimmed-mean (f 1)" in told
    assert "3 oslo not-finite NaN" in told
    assert "too far from the others" in told
    assert "well-formed" not in told
    assert "well-formed" in words(page(private()), "Robustness")


def test_the_ledger_is_sortable_and_shows_the_price_so_far():
    grid = next(block for block in blocks(page(private()), "Ledger") if isinstance(block, Grid))
    assert grid.sortable
    assert len(grid.rows) == 3
    assert grid.rows[-1][1] == f"{private().statement.epsilon:.4g}"
    assert words(page(bare()), "Ledger") == "Nothing was charged: the run made no release under a promise."


def test_it_can_be_reproduced():
    told = words(page(private(path="runs/made-up")), "Reproduce")
    assert "tacit run runs/made-up/experiment.toml" in told
    assert 'kind = "trimmed-mean"' in told


def test_a_run_without_scores_says_why():
    blind = replace(record(), scores={}, baselines={}, intervals={})
    rounds = tuple(replace(entry, scores={}) for entry in blind.rounds)
    made = page(private(replace(blind, rounds=rounds)))
    assert words(made, "Result").startswith("No score")
    assert "result" not in figures(made)


def test_a_run_that_has_not_begun_has_a_page():
    made = page(private(Record(), under_way=True))
    assert "0 rounds are over" in made.lead
    assert words(made, "Rounds") == "No round is over yet."
    assert "<!doctype html>" in html(made).lower()


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "\U0001f3e5" * 3,
        "x" * 10_000,
        "\x00\x1b[2J",
    ],
)
def test_no_name_of_a_site_can_do_harm(name):
    made = html(page(private(troubled((name, "bergen")))))
    assert "<script>alert" not in made
    assert "<img src=x" not in made
    assert "\x00" not in made
    assert "\x1b" not in made
    assert made.count("<script") == 1
    assert len(made) < 600_000

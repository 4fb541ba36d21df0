"""Several runs side by side."""

from dataclasses import replace

from made_up import bare, private, record

from tacit.reports.page.blocks import Figure, Grid
from tacit.reports.page.html import html
from tacit.reports.run import comparison


def grids(made) -> list[Grid]:
    return [block for section in made.sections for block in section.blocks if isinstance(block, Grid)]


def two():
    return {"private": private(), "open": bare(made=replace(record(), scores={"c_index": 0.66, "ibs": 0.18}))}


def test_the_best_is_named_with_its_price():
    assert comparison(two()).lead == (
        "Of 2 runs, open has the best score: C-index 0.6600 [0.6100, 0.6500], without any promise of privacy."
    )


def test_a_line_for_each_with_scores_and_promise():
    rows = {row[0]: row for row in grids(comparison(two()))[0].rows}
    assert rows["private"][3:6] == (f"{private().statement.epsilon:.4g}*", "1e-05", "record")
    assert rows["open"][3:6] == ("open", "-", "-")
    assert rows["open"][-1] == "0.1800"


def test_rounds_are_laid_over_each_other():
    names = [b.name for s in comparison(two()).sections for b in s.blocks if isinstance(b, Figure)]
    assert "overlay" in names


def test_two_prices_make_a_frontier():
    cheaper = private(ledger=private().ledger, statement=replace(private().statement, epsilon=1.0))
    runs = {"three": private(), "one": cheaper}
    names = [b.name for s in comparison(runs).sections for b in s.blocks if isinstance(b, Figure)]
    assert names == ["frontier", "overlay"]


def test_what_stops_a_reader_of_one_stops_a_reader_of_all():
    alerts = [alert.words for alert in comparison(two()).alerts]
    assert any(words.startswith("private: Rehearsal") for words in alerts)
    assert any(words.startswith("open: Open run") for words in alerts)


def test_runs_that_learnt_different_things_are_not_ranked():
    runs = {**two(), "other": private(goal=("r2", "max"))}
    assert comparison(runs).lead == "3 runs with different scores, side by side."


def test_it_is_one_document_and_one_page():
    made = comparison(two())
    assert [run["name"] for run in made.document["runs"]] == ["made-up", "made-up"]
    assert "2 runs" in html(made)

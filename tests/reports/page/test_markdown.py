"""A report as Markdown: what is written is what is shown, whoever wrote it."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tacit.reports.page.blocks import Code, Facts, Figure, Folded, Grid, Items, Page, Section, Text, one_line
from tacit.reports.page.markdown import markdown

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HOSTILE = [
    "<script>alert(1)</script>", "a|b", "`code`", "*bold* _em_ ~~del~~", "[x](http://y.z)", "![i](j)",
    "# head", "1. one", "2) two", "- item", "+ item", "===", "---", "> quote", "&lt; &amp; &#60;", "\\",
    "\\|", "site_1_b", "_x_", "__0__", "http://a.b", "<a@b.c>", "$x$", "| a | b |", "new\n\nline", "    code",
    "\x00\u202e", "***", "```", "~~~", ":---", "a\\", "[a]: b", "<!-- c -->", "\tx", "x  \ny",
]  # fmt: skip


class Seen(HTMLParser):
    """Visible text of HTML in elements of one kind."""

    def __init__(self, *tags):
        super().__init__()
        self.tags, self.found, self.depth = tags, [], 0

    def handle_starttag(self, tag, attrs):
        if tag in self.tags:
            self.found.append("")
            self.depth += 1

    def handle_endtag(self, tag):
        self.depth -= tag in self.tags

    def handle_data(self, data):
        if self.depth:
            self.found[-1] += data


def seen(text, *tags):
    reader = Seen(*tags)
    reader.feed(READER.render(text))
    return [" ".join(found.split()) for found in reader.found]


def page(*blocks, **fields):
    return Page(title="T", lead="L", sections=(Section("S", blocks),), **fields)


@pytest.mark.parametrize("words", HOSTILE)
def test_words_are_shown_as_they_are_wherever_they_stand(words):
    shown = one_line(words)
    text = markdown(
        Page(
            title=words,
            lead=words,
            alerts=(Text(words, "stop"),),
            sections=(
                Section(words, (Text(words), Items(words, (words,)), Grid("", ("h",), ((words,),)))),
                Section("Facts", (Facts(((words, words),)), Folded(words, (Text("inside"),)))),
            ),
        )
    )
    assert seen(text, "h1") == [shown]
    assert seen(text, "h2") == [shown, "Facts"]
    assert seen(text, "p") == [shown, f"Do not rely on this. {shown}", shown, shown, "inside"]
    assert seen(text, "li") == [shown]
    assert seen(text, "td") == [shown] * 3
    assert seen(text, "summary") == [shown]
    assert seen(text, "a", "img", "code", "em", "del", "script", "hr") == []


@given(st.text(max_size=60))
@example("[")
@example("&copy;")
@example("\\*")
def test_any_paragraph_and_any_cell_are_shown_as_they_are(words):
    shown = one_line(words)
    text = markdown(page(Text(words), Grid("", ("h",), ((words,),))))
    assert seen(text, "p") == ["L", *[shown] * bool(shown)]
    assert seen(text, "td") == [shown]


def test_tables_have_as_many_columns_as_their_header_and_numbers_to_the_right():
    text = markdown(page(Grid("Scores", ("name", "score"), (("a|b", "1.5"), ("c", "-")))))
    assert text.splitlines()[-6:] == [
        "**Scores**", "", "| name | score |", "| --- | ---: |", "| a\\|b | 1.5 |", "| c | - |",
    ]  # fmt: skip
    assert seen(markdown(page(Grid("", ("a", "b"), ()))), "td") == ["Nothing.", ""]


def test_code_is_kept_letter_by_letter_even_with_fences_in_it():
    given = 'a = "b"\n```\n</details>\n````\n  c'
    assert READER.parse(markdown(page(Code(given))))[-1].content == given + "\n"


def test_figures_are_words_and_folded_parts_are_details():
    text = markdown(page(Folded("More <b>", (Figure("f", None, "It *rises*."), Text("x")))))
    assert "*Figure: It \\*rises\\*.*" in text
    assert "<details>\n<summary>More &lt;b&gt;</summary>\n\n" in text
    assert text.count("</details>") == 1


def test_what_has_no_end_is_cut():
    text = markdown(page(Grid("", ("h",), (("x" * 10_000,),)), Text("y" * 10_000)))
    assert len(text) < 3_000
    assert "9,880 more letters" in text


def test_alerts_stand_before_the_first_section_and_lists_of_nothing_say_so():
    text = markdown(page(Items("Bare", ()), alerts=(Text("late"), Text("gone", "stop"))))
    order = [text.index(part) for part in ("Note.** late", "Do not rely on this.** gone", "## S")]
    assert order == sorted(order)
    assert re.search(r"\*\*Bare\*\*\n\nNothing\.", text)

"""A report as HTML: whole without a script, closed to the network, harmless whatever the words are."""

import base64
import hashlib
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from tacit.errors import InvalidValue
from tacit.reports.page import html as svg
from tacit.reports.page.blocks import Code, Facts, Figure, Folded, Grid, Items, Page, Section, Text
from tacit.reports.page.html import SMALL, fragment, html
from tacit.reports.plots.style import picture

VOID = {"meta", "link", "br", "path", "use", "rect"}
SHOWN = "</td></script><script>alert(1)</script><img src=x onerror=alert(1)> \"'"
HOSTILE = SHOWN + "\x00\u202e\ud800 \N{GRINNING FACE}"


class Reader(HTMLParser):
    """The elements of a page, with what is in them; every end has its beginning."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "text": "", **dict(attrs)}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.elements.append({"tag": tag, "text": "", **dict(attrs)})

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag):
        return [element for element in self.elements if element["tag"] == tag]

    def texts(self, tag):
        return [" ".join(element["text"].split()) for element in self.all(tag)]


def sample(words="plain", **fields):
    table = Grid(words, ("name", "score"), ((words, "0.5"), ("b", "-")), sortable=True)
    blocks = (
        Text(words), Text(words, "good"), Items(words, (words,)), Items("none", ()), Facts(((words, words),)),
        table, Code(words), Folded(words, (Text("inside"), Grid("", ("x",), ()))),
        Figure("seen", picture(1.0, words[:80], "public"), words),
    )  # fmt: skip
    usual = {"title": words, "lead": words, "alerts": (Text(words, "stop"), Text("late", "mind"))}
    sections = (Section(words, blocks), Section(words, ()))
    return Page(**{**usual, "sections": sections, **fields})


def plain_page(rows=0):
    table = Grid("t", ("a", "b", "c"), tuple((str(row), "0.5", "words") for row in range(rows)))
    return Page(title="T", lead="L", sections=(Section("S", (table,)),))


def test_a_page_has_a_language_one_title_and_a_heading_with_an_address_for_each_section():
    page = Reader(html(sample()))
    assert page.all("html")[0]["lang"] == "en"
    assert page.texts("h1") == page.texts("title") == ["plain"]
    assert [head["id"] for head in page.all("h2")] == ["plain_title", "plain-2_title"]
    assert [part["id"] for part in page.all("section")] == ["plain", "plain-2"]
    links = [link["href"] for link in page.all("a")]
    assert links == ["#main", "#plain", "#plain-2"]
    assert page.all("nav")[0]["aria-label"] == "Contents"
    assert page.all("main")[0]["id"] == "main"


def test_no_two_sections_have_one_address():
    titles = ("a 2", "a", "a", "A!", "main", "state", "\N{GRINNING FACE}", "")
    page = Reader(html(Page(title="T", lead="L", sections=tuple(Section(title, ()) for title in titles))))
    names = [element["id"] for element in page.elements if "id" in element]
    assert len(set(names)) == len(names) == 2 * len(titles) + 2
    assert [part["id"] for part in page.all("section")][:4] == ["a-2", "a", "a-3", "a-4"]


def test_alerts_come_first_and_say_in_words_how_they_are_meant():
    text = html(sample())
    order = [text.index(part) for part in ('class="lead"', "Do not rely on this.", "Note.", "<section")]
    assert order == sorted(order)
    assert "Good." in text


def test_every_block_is_there_without_a_script():
    page = Reader(html(sample()))
    assert page.texts("caption") == ["plain", ""]
    assert [head["scope"] for head in page.all("th")] == ["col", "col", "row", "row", "col"]
    assert page.texts("td") == ["0.5", "-", "Nothing."]
    assert page.texts("dt") == page.texts("dd") == page.texts("code") == page.texts("summary") == ["plain"]
    assert page.texts("figcaption") == ["plain"]
    assert [part["role"] for part in page.all("svg")] == ["img"]
    assert "inside" in page.texts("p")
    assert page.texts("li")[-1] == "plain"


def test_numbers_stand_to_the_right_and_only_what_may_be_sorted_says_so():
    page = Reader(html(sample()))
    assert [cell.get("class") for cell in page.all("td")] == ["n", "n", "none"]
    assert ["data-sortable" in table for table in page.all("table")] == [True, False]


def test_an_interval_may_come_below_its_number():
    table = Grid("t", ("m", "score"), (("a", "0.6 (0.5 to 0.7)"),))
    text = html(Page(title="T", lead="L", sections=(Section("S", (table,)),)))
    assert "<td class=n>0.6 <span>(0.5 to 0.7)</span></td>" in text


@pytest.mark.parametrize("render", [html, fragment])
def test_hostile_words_are_shown_and_make_no_element(render):
    page = Reader(render(sample(HOSTILE)))
    assert page.all("img") == []
    assert not [name for element in page.elements for name in element if name.startswith("on")]
    assert len(page.all("script")) == (render is html)
    shown = SHOWN + "\ufffd\ufffd\ufffd"
    for tag in ("p", "li", "dt", "dd", "summary", "caption", "figcaption", "bdi", "code"):
        assert any(shown in text for text in page.texts(tag)), tag


def test_words_without_end_neither_fill_the_page_nor_a_cell():
    long = "x" * 10_000
    text = html(sample(long, sections=(Section("S", (Grid("t", (long, "b"), ((long, "c"),)), Text(long))),)))
    assert max(map(len, re.findall("x+", text))) == 2_000
    page = Reader(text)
    assert page.texts("th")[-1].endswith("[9,880 more letters]")
    assert page.all("th")[-1]["title"].startswith("x" * 1_000)


def test_letters_from_right_to_left_keep_to_themselves():
    table = Grid("t", ("n", "m"), (("مستشفى", "a"),))
    assert "<bdi>مستشفى</bdi>" in html(Page(title="T", lead="L", sections=(Section("S", (table,)),)))


def test_the_policy_allows_the_one_script_and_nothing_from_anywhere():
    page = Reader(html(sample()))
    policy = page.all("meta")[1]["content"]
    script = page.all("script")[0]["text"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    renewing = Reader(html(sample(), refresh=2.0)).all("meta")[1]["content"]
    assert renewing == f"{policy}; connect-src 'self'"


def test_a_page_names_no_address_but_its_own():
    text = html(sample())
    assert not re.findall(r"https?:|//[a-z]", re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    assert re.findall(r'(?:src|href)="(?!#|data:)', text) == []
    assert "url(" not in re.sub(r"url\(#", "", text)
    assert "@import" not in text


def test_a_page_that_renews_itself_does_so_with_a_script_and_without():
    text = html(plain_page(), refresh=1.5)
    assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in text
    assert 'data-refresh="1.5"' in text
    assert "refresh" not in html(plain_page()).partition("<body")[0]


@pytest.mark.parametrize("refresh", [0, -1.0, float("nan"), float("inf")])
def test_seconds_are_finite_and_above_nothing(refresh):
    with pytest.raises(InvalidValue, match="refresh = "):
        html(plain_page(), refresh=refresh)


def test_the_same_page_is_the_same_text():
    assert html(sample()) == html(sample())


def test_a_fragment_has_no_head_no_script_and_styles_of_its_own_alone():
    text = fragment(sample())
    page = Reader(text)
    assert page.elements[0]["class"] == "tacit tacit-fragment"
    assert not {"html", "head", "body", "script", "nav", "h1"} & {element["tag"] for element in page.elements}
    rules = re.sub(r"/\*.*?\*/|@media[^{]*\{", "", page.all("style")[0]["text"], flags=re.DOTALL)
    selectors = [one.strip() for rule in re.findall(r"([^{}]+)\{", rules) for one in rule.split(",")]
    assert len(selectors) > 40
    assert {selector.partition(" ")[0].partition(">")[0] for selector in selectors} <= {
        ".tacit", ".tacit-fragment", ".tacit-page",
    }  # fmt: skip
    assert ["open" in part for part in page.all("details")] == [True, False, False]
    assert page.texts("figcaption") == ["plain"]


def test_a_fragment_leaves_out_figures_that_are_large(monkeypatch):
    monkeypatch.setattr(svg, "inline", lambda *given: f"<svg>{'x' * SMALL}</svg>")
    text = fragment(sample())
    assert "<svg>" not in text
    assert "<figcaption>plain</figcaption>" in text


def colours(scheme):
    text = html(plain_page())
    dark = text.index("prefers-color-scheme:dark){\nhtml{")
    part = text[dark:] if scheme == "dark" else text[:dark]
    block = re.search(r"\.tacit(?:-page)?\{(--paper:[^}]*)", part)[1]
    found = dict(re.findall(r"--(\w+):(#[0-9a-f]+)", block))
    return {name: "#" + "".join(2 * digit for digit in value[1:]) if len(value) == 4 else value
            for name, value in found.items()}  # fmt: skip


def brightness(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_words_stand_out_from_their_ground(scheme):
    found = colours(scheme)
    for ground in ("paper", "faint"):
        for words in ("ink", "soft", "accent", "stop", "mind", "good"):
            high, low = sorted((brightness(found[ground]), brightness(found[words])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (scheme, ground, words)


def test_a_page_without_figures_loads_no_drawing():
    code = (
        "import sys; from tacit.reports.page import blocks, html; assert 'jinja2' not in sys.modules; "
        "html.html(blocks.Page(title='T', lead='L')); assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""Figures as inline SVG: small, harmless, the same bytes again, readable in light and in dark."""

import re
import threading
from html.parser import HTMLParser
from typing import ClassVar
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest

from tacit.errors import InvalidValue
from tacit.reports.page.html import AS_DRAWN, DARK, inline, night_styles
from tacit.reports.plots import style
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INK,
    PALE,
    PALETTE,
    RULE,
    Label,
    ink,
    label_lines,
    picture,
    shorten_label,
    tidy,
)
from tacit.reports.plots.training import training

HOSTILE = ["<script>alert(1)</script>", "\"'/>&amp;", "</svg><img src=x onerror=alert(1)>", "]]>", "<!--"]
# The ground of a dark page.
NIGHT = "#15181c"


def history(rounds=100):
    steps = np.arange(rounds)
    wave = 0.01 * np.sin(steps)
    scores = {"c_index": 0.7 - 0.2 * np.exp(-steps / 20) + wave, "epsilon": 0.3 * np.sqrt(steps + 1)}
    return pd.DataFrame(scores, index=steps + 1)


def drawing(*names, title="T"):
    figure = picture(2.0, title, "public")
    axes = figure.add_subplot()
    tidy(axes, "Round", "Score")
    for place, name in enumerate(names):
        axes.plot([0, 1], [place, place + 1], color=PALETTE[place % 7])
        axes.text(0.5, place + 0.5, name, clip_on=True, fontsize=BODY, color=INK, parse_math=False)
    axes.set_yticks(range(len(names)), [shorten_label(name) for name in names], parse_math=False)
    return figure


def parsed(text):
    return ElementTree.fromstring(text)


def contrast(one, other):
    def light(colour):
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_a_figure_is_one_element_that_says_what_is_seen():
    root = parsed(inline(drawing("a", title="It <rises>"), "training", 'Up & "up".'))
    assert root.tag == "svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == "It <rises>"
    assert root.find("desc").text == 'Up & "up".'
    assert root.get("aria-describedby") == root.find("desc").get("id")
    assert root.get("viewBox").startswith("4 0 ")
    assert "width" not in root.attrib


def test_nothing_is_left_of_the_file_it_was():
    text = inline(drawing("a"), "f", "w")
    for part in ("<?xml", "<!DOCTYPE", "metadata", "xmlns", "<style", "xlink", "rdf:", "\n", "matplotlib"):
        assert part not in text
    assert "http" not in text


def test_text_stays_text():
    texts = [element.text for element in parsed(inline(drawing("north", "south"), "f", "w")).iter("text")]
    assert {"T", "Round", "Score", "north", "south"} <= set(texts)


def test_hostile_names_are_shown_and_make_no_element():
    text = inline(drawing(*HOSTILE), "f", HOSTILE[0])
    texts = {element.text for element in parsed(text).iter("text")}
    assert set(HOSTILE) <= texts

    class Tags(HTMLParser):
        found: ClassVar = set[str]()

        def handle_starttag(self, tag, attrs):
            self.found.add(tag)
            assert not [name for name, _ in attrs if name.startswith("on")]

    reader = Tags()
    reader.feed(text)
    assert reader.found <= {"svg", "desc", "g", "defs", "path", "use", "text", "clippath", "rect"}


@pytest.mark.parametrize(
    "name", ["\x00\x07", "\u202eevil", "\N{GRINNING FACE}", "مستشفى", "$\\frac{", "x" * 10_000]
)
def test_names_of_any_letters_can_be_drawn(name):
    found = parsed(inline(drawing(name), "f", name))
    assert not re.search("[\x00-\x08\u202e]", "".join(found.itertext()))


def test_the_same_picture_is_the_same_bytes_however_often_it_is_drawn():
    figure = training(history())
    once = inline(figure, "f", "w")
    assert inline(figure, "f", "w") == once
    assert inline(training(history()), "f", "w") == once


def test_figures_that_share_a_page_share_no_name_and_refer_to_their_own():
    first, second = inline(drawing("a"), "f", "w"), inline(drawing("a", "b"), "f", "w")
    names = [set(re.findall(r'id="([^"]+)"', text)) for text in (first, second)]
    assert names[0]
    assert names[1]
    assert not names[0] & names[1]
    for text, own in zip((first, second), names, strict=True):
        assert all(name.startswith("f-") for name in own)
        meant = re.findall(r'(?:url\(|href=")#([^)"]+)', text)
        assert set(meant) | {name for name in own if name.endswith("-words")} == own


def test_a_name_is_letters_digits_and_hyphens():
    for name in ("", "a b", 'x"', "1", "ä"):
        with pytest.raises(InvalidValue, match="name = "):
            inline(drawing("a"), name, "w")


def test_our_colours_are_variables_with_their_light_value_and_others_stay():
    figure = drawing("a")
    figure.axes[0].plot([0, 1], [1, 0], color="#123456")
    figure.axes[0].plot([0], [0], marker="o", color=PALETTE[1], mfc="white")
    text = inline(figure, "f", "w")
    assert "stroke:var(--c0072b2,#0072b2)" in text
    assert "fill:var(--c222222,#222)" in text
    assert "fill:var(--paper,#fff)" in text
    assert "stroke:#123456" in text
    light = re.findall(r"#[0-9a-fA-F]{3,6}\b", re.sub(r"var\([^)]*\)|[\"(]#[^\")]*", "", text))
    assert set(light) == {"#123456"}


def test_the_white_that_a_figure_stands_on_is_the_page():
    figure = drawing("a")
    width, height = figure.get_size_inches() * 72
    assert f"{width:g} {height:.2f}" not in inline(figure, "f", "w")
    figure.set_facecolor("#eeeeee")
    assert "fill:#eee" in inline(figure, "f", "w")


def test_what_is_to_stay_as_drawn_keeps_its_colours_and_white_words_stay_white():
    figure = drawing("a")
    figure.axes[0].text(0, 0, "on a map", color="black", gid=AS_DRAWN)
    figure.axes[0].text(0, 0.2, "dark", color=INK, gid=f"{AS_DRAWN}-2")
    figure.axes[0].text(0, 0.4, "bright", color="white")
    text = inline(figure, "f", "w")
    assert re.search(r'<g style="fill:#000"><text [^>]*>on a map<', text)
    assert re.search(r'<text style="[^"]*fill:#222"[^>]*>dark<', text)
    assert re.search(r'<text style="[^"]*fill:#fff"[^>]*>bright<', text)


def test_every_colour_of_our_style_has_one_for_the_night_that_can_be_read():
    ours = {INK, GREY, PALE, RULE, *PALETTE, *map(ink, PALETTE)}
    assert {colour.lower() for colour in ours} == set(DARK)
    words = {INK, GREY, *map(ink, PALETTE)}
    for colour in words:
        assert contrast(DARK[colour.lower()], NIGHT) >= 4.5
    for colour in {*PALETTE, PALE}:
        assert contrast(DARK[colour.lower()], NIGHT) >= 3
    assert len({DARK[colour.lower()] for colour in PALETTE}) == len(PALETTE)
    assert night_styles().count("--c") == len(DARK)


def test_a_figure_of_many_rounds_and_sites_is_small():
    assert len(inline(training(history()), "f", "w")) < 20_000
    figure = picture(8.0, "T", "public")
    axes = figure.add_subplot()
    tidy(axes, "Round", "Score")
    for place in range(50):
        axes.plot(np.arange(100), place + np.sin(np.arange(100) * place), color=style.colour(place))
    label_lines({axes: [Label(float(place), f"site-{place}") for place in range(50)]})
    assert len(inline(figure, "f", "w")) < 65_000


def test_marks_of_one_kind_say_once_how_they_look():
    figure = drawing("a")
    figure.axes[0].plot(np.linspace(0, 1, 200), np.zeros(200), "o", color=PALETTE[2])
    assert inline(figure, "f", "w").count("--c009e73") <= 4


def test_paths_have_two_decimals_and_say_a_command_once():
    paths = [element.get("d") for element in parsed(inline(training(history()), "f", "w")).iter("path")]
    assert max(paths, key=len).count("l") == 1
    assert not [path for path in paths if re.search(r"\.\d{3}", path)]


def test_an_image_stays_an_image_in_the_page():
    figure = drawing("a")
    figure.axes[0].imshow(np.arange(12.0).reshape(3, 4), extent=(0, 1, 0, 1))
    image = parsed(inline(figure, "f", "w")).find(".//image")
    assert image.get("href").startswith("data:image/png;base64,")


def test_drawing_leaves_picture_and_settings_as_they_were():
    figure, before = drawing("a"), dict(matplotlib.rcParams)
    canvas, dots = figure.canvas, figure.dpi
    inline(figure, "f", "w")
    assert figure.canvas is canvas
    assert figure.dpi == dots
    assert dict(matplotlib.rcParams) == before
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_threads_may_draw_at_once():
    found = dict[int, str]()
    figures = [drawing("a") for _ in range(4)]

    def draw(place):
        found[place] = inline(figures[place], "f", "w")

    threads = [threading.Thread(target=draw, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found.values())) == 1
    assert len(found) == 4

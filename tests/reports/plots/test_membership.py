"""Figures of membership attacks show the results, and are legible."""

import re

import numpy as np
import pytest

from looking import note, require_legible, title, words
from tacit.errors import InvalidValue
from tacit.reports.page.html import inline
from tacit.reports.plots.audits import membership
from tacit.reports.plots.style import GREY, PALE, RULE, colour


def attack(named, false=(0.0, 0.0005, 0.01, 1.0), true=(0.0, 0.1, 0.3, 1.0)):
    return {
        "auc": 0.8, "found": named / 100, "alarms": 0.01, "named": named, "low": max(named - 5, 0),
        "high": named + 5, "roc": {"false": list(false), "true": list(true)},
    }  # fmt: skip


def setting(name, named, ceiling=None):
    price = {"epsilon": None, "delta": None} if ceiling is None else {"epsilon": 1.0, "delta": 1e-5}
    return {
        "name": name, **price, "score": ["c_index", 0.6], "ceiling": ceiling,
        "attacks": {"lira": attack(named), "loss": attack(0, (0, 0.2, 1), (0, 0.3, 1))},
    }  # fmt: skip


def found(*settings):
    return {"kind": "membership", "unit": "record", "models": 17, "records": 400, "settings": list(settings)}


CEILING = {"false": [1e-4, 0.01, 1.0], "true": [2e-4, 0.02, 1.0], "named": 2, "rehearsal": False}
BOTH = found(setting("open", 34), setting("private", 1, CEILING))


def people(axes):
    """Count the drawn people by color."""
    return [
        (len(group.get_offsets()), tuple(np.round(group.get_facecolor()[0][:3], 3)))
        for group in axes.collections
    ]


def rgb(shade):
    return tuple(round(int(shade[place : place + 2], 16) / 255, 3) for place in (1, 3, 5))


def test_of_a_hundred_people_those_who_are_named_stand_out():
    figure = membership(BOTH)
    assert people(figure.axes[0]) == [
        (66, rgb(PALE)), (34, rgb(colour(1))), (99, rgb(PALE)), (1, rgb(colour(0))),
    ]  # fmt: skip
    seen = words(figure)
    assert "open: 34 of 100" in seen
    assert "private: 1 of 100; proven: at most 2" in seen
    assert title(figure) == "Identified of 100 members: 34 from the open model, 1 from the private one"
    assert "17 models, each trained on a random half of 400 records." in note(figure)
    assert "open from 29 to 39, private from 0 to 6" in note(figure)
    assert "(epsilon 1, delta 1e-05)" in note(figure)
    assert "rehearsal" not in note(figure)


def test_curves_are_steps_on_logarithmic_axes_beginning_where_somebody_is_named():
    axes = membership(BOTH).axes[1]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    lines = {line.get_label(): line for line in axes.lines}
    bare = lines["open, with shadow models"]
    assert bare.get_drawstyle() == "steps-post"
    assert bare.get_xydata().tolist() == [[0.001, 0.1], [0.01, 0.3], [1.0, 1.0]]
    assert lines["private, by the loss alone"].get_xydata().tolist() == [[0.2, 0.3], [1.0, 1.0]]
    assert bare.get_linestyle() != lines["open, by the loss alone"].get_linestyle()
    dots = [line.get_xydata()[0].tolist() for line in axes.lines if line.get_marker() == "o"]
    assert dots == [[0.01, 0.34], [0.01, 0.01]]


def test_what_is_proven_to_be_impossible_is_grey():
    axes = membership(BOTH).axes[1]
    (region,) = axes.collections
    np.testing.assert_allclose(region.get_facecolor()[0][:3], rgb(RULE), atol=0.001)
    corners = region.get_paths()[0].vertices
    assert [0.01, 0.02] in corners.tolist()
    assert corners[:, 1].max() == 1
    (text,) = axes.texts
    assert (text.get_text(), text.get_color()) == ("impossible for the private model", GREY)


@pytest.mark.parametrize(
    "told",
    [
        BOTH,
        found(setting("open", 0)),
        found(setting("open", 100), setting("private", 100, {**CEILING, "named": 100, "rehearsal": True})),
    ],
)
def test_it_can_be_read_on_paper_and_at_night(told):
    figure = membership(told)
    require_legible(figure)
    drawn = inline(figure, "membership", "Who is named.")
    # Colors that the page does not know would stay as they are in the dark.
    assert "fill:var(--" in drawn
    assert not re.search(r"(fill|stroke):#", drawn)


def test_the_noise_of_a_rehearsal_is_called_so():
    told = found(setting("open", 3), setting("private", 1, {**CEILING, "rehearsal": True}))
    assert note(membership(told)).endswith("Its noise is that of a rehearsal, which gives no protection.")


def test_it_is_kept_in_a_file(tmp_path):
    membership(BOTH, path=tmp_path / "who.png")
    assert (tmp_path / "who.png").stat().st_size > 10_000


def test_other_documents_are_refused():
    with pytest.raises(InvalidValue, match="kind = 'inversion' is not allowed"):
        membership({**BOTH, "kind": "inversion"})
    broken = found(setting("open", 1))
    broken["settings"][0]["attacks"]["lira"]["roc"]["true"].pop()
    with pytest.raises(InvalidValue, match="roc = 'shapes"):
        membership(broken)


def test_where_little_is_impossible_no_words_stand_in_it():
    thin = {**CEILING, "true": [0.5, 0.9, 1.0], "named": 90}
    assert "impossible" in words(membership(BOTH))
    assert "impossible" not in words(membership(found(setting("open", 98), setting("private", 1, thin))))

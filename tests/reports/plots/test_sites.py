"""Figures of sites show every suspicion and every participation in the record."""

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from matplotlib.colors import same_color, to_rgba

from looking import HOSTILE, note, require_legible, title, words
from tacit.learning.record import Decision, Fault, Record, Round, Standing
from tacit.reports.plots import sites as watchfulness
from tacit.reports.plots import style
from tacit.reports.plots.sites import participation, suspicions


def round_of(number, **found):
    given = {"rounds": 9, "sites": None, "scores": {}, "epsilon": None, "budget": None, "seconds": None}
    return Round(number=number, **(given | found))


def watched(paths, decisions=()):
    """A record of suspicions by site, and of (round, site, was, now)."""
    statuses = dict.fromkeys(paths, "active")
    rounds = []
    for number in range(1, 1 + max(map(len, paths.values()))):
        changes = [change for change in decisions if change[0] == number]
        statuses |= {name: now for _, name, _, now in changes}
        rounds.append(
            round_of(
                number,
                standings={
                    name: Standing(status=statuses[name], suspicion=path[number - 1])
                    for name, path in paths.items()
                },
                decisions=tuple(
                    Decision(site=name, was=was, now=now, reason="") for _, name, was, now in changes
                ),
            )
        )
    return Record(rounds=tuple(rounds))


LIARS = watched(
    {
        "a": [0.0, 1.0, 0.0, 0.0, 0.5, 0.0],
        "b": [3.0, 6.0, 9.0, 10.0, 10.0, 10.0],
        "c": [3.0, 6.0, 10.0, 4.0, 1.0, 0.0],
    },
    [
        (2, "b", "active", "watch"), (4, "b", "watch", "quarantined"), (2, "c", "active", "watch"),
        (3, "c", "watch", "quarantined"), (5, "c", "quarantined", "probation"),
        (6, "c", "probation", "active"),
    ],
)  # fmt: skip
NAMES = ("a", "b", "c", "d")


def partaken():
    """Four sites and six rounds: one is late twice, one sends NaN once, one round is skipped."""
    even = dict.fromkeys(NAMES, 0.25)
    late = Fault(site="b", reason="late", detail="")
    broken = Fault(site="d", reason="not-finite", detail="")
    return Record(
        rounds=(
            round_of(1, shares=even),
            round_of(2, shares={"a": 0.5, "c": 0.25, "d": 0.25}, faults=(late,)),
            round_of(3, skipped="no site took part"),
            round_of(4, shares={"a": 0.5, "c": 0.5}, faults=(late, broken)),
            round_of(5, shares={**even, "a": 0.0, "b": 0.5}),
            round_of(6, shares=even),
        )
    )


def image(figure):
    return np.asarray(figure.axes[0].images[0].get_array())


def marks(figure):
    """Return the positions of marks, by shape."""
    found = [line for line in figure.axes[0].lines if line.get_marker() not in ("None", "")]
    return {line.get_marker(): [tuple(map(int, spot)) for spot in line.get_xydata()] for line in found}


def test_suspicion_is_drawn_round_by_round_and_those_in_trouble_are_named():
    figure = suspicions(LIARS)
    axes = figure.axes[0]
    lines = [line for line in axes.lines if len(line.get_xdata()) > 1]
    assert [line.get_ydata().tolist() for line in lines] == [
        [0.0, 1.0, 0.0, 0.0, 0.5, 0.0], [3.0, 6.0, 9.0, 10.0, 10.0, 10.0], [3.0, 6.0, 10.0, 4.0, 1.0, 0.0],
    ]  # fmt: skip
    assert all(line.get_xdata().tolist() == [1, 2, 3, 4, 5, 6] for line in lines)
    assert same_color(lines[0].get_color(), style.PALE)
    assert [text.get_text() for text in axes.texts] == ["c: cleared", "b: suspected"]
    assert title(figure) == "After 6 rounds, suspected: b"
    assert "Gray: 1 other site." in note(figure)
    require_legible(figure)


def test_changes_of_standing_are_marked_where_they_happened():
    figure = suspicions(LIARS)
    found = marks(figure)
    assert found.keys() == {"^", "o", "s", "P"}
    spots = [
        (line.get_marker(), *line.get_xydata()[0])
        for line in figure.axes[0].lines
        if line.get_marker() != "None" and line.get_marker()
    ]
    assert spots == [
        ("^", 2, 6), ("o", 4, 10), ("^", 2, 6), ("o", 3, 10), ("s", 5, 1), ("P", 6, 0),
    ]  # fmt: skip
    assert "Triangles: watched. Dots: suspected. Squares: on trial. Plusses: cleared." in note(figure)


def test_liars_that_are_found_at_once_do_not_hide_each_other():
    record = watched(
        {name: [3.0, 10.0] for name in "abc"}, [(2, name, "active", "quarantined") for name in "abc"]
    )
    axes = suspicions(record).axes[0]
    lines = [line for line in axes.lines if len(line.get_xdata()) > 1]
    heights = [line.get_transform().transform((2, 10.0))[1] for line in lines]
    assert heights[0] > heights[1] + 1 > heights[2] + 2
    labels = sorted(axes.texts, key=lambda text: -text.xyann[1])
    assert [text.get_text()[0] for text in labels] == ["a", "b", "c"]


def test_where_nobody_is_suspected_the_title_says_so():
    assert title(suspicions(watched({"a": [0.0], "b": [0.2]}))) == "No site is under suspicion after 1 round"
    cleared = watched({"a": [9.0, 0.0]}, [(1, "a", "active", "watch"), (2, "a", "watch", "active")])
    assert title(suspicions(cleared)) == "No site is under suspicion after 2 rounds; before that a"
    require_legible(suspicions(watched({"a": [0.0], "b": [0.2]})))


def test_without_a_watch_there_are_no_suspicions():
    assert suspicions(Record()) is None
    assert suspicions(partaken()) is None


def test_many_others_are_one_shape_and_many_suspects_are_counted():
    draws = np.random.default_rng(1)
    paths = {f"site-{place}": draws.uniform(0, 2, 100).tolist() for place in range(50)}
    liars = list(paths)[:15]
    record = watched(
        paths | {name: [10.0] * 100 for name in liars}, [(1, name, "active", "watch") for name in liars]
    )
    figure = suspicions(record)
    axes = figure.axes[0]
    others = list(paths)[watchfulness.NAMED :]
    highest = [max(entry.standings[name].suspicion for name in others) for entry in record.rounds]
    assert set(highest) <= set(axes.collections[0].get_paths()[0].vertices[:, 1])
    assert len(axes.texts) == watchfulness.NAMED
    assert "the most against any of 38 other sites, 3 of them suspected at some time" in note(figure)
    assert title(figure) == "After 100 rounds, watched: site-0, site-1, site-2 and 12 others"
    require_legible(figure)


def test_shares_are_shades_and_faults_are_marks_of_their_kind():
    figure = participation(partaken(), NAMES)
    cells = image(figure)
    assert cells.shape == (4, 6, 4)
    alpha = cells[..., 3]
    # The largest share of all is the deepest, none at all is not seen, and one of 0 is seen a little.
    assert alpha[0, 1] == pytest.approx(1.0)
    assert 0.0 < alpha[0, 4] < alpha[0, 0] < alpha[0, 1]
    assert alpha[1, 4] == pytest.approx(alpha[0, 1])
    fault = to_rgba(watchfulness.FAULT)[:3]
    orange = np.isclose(cells[..., :3], fault).all(axis=-1)
    assert np.argwhere(orange).tolist() == [[1, 1], [1, 3], [3, 3]]
    assert np.isclose(cells[:, 2], to_rgba(style.GREY, 0.22)).all()
    assert marks(figure) == {"x": [(2, 1), (4, 1)], "^": [(4, 3)]}
    require_legible(figure)


def test_rows_are_named_and_say_their_mean_share_and_their_faults():
    figure = participation(partaken(), NAMES)
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == list(NAMES)
    assert [text.get_text() for text in axes.texts] == ["30 %", "20 %, 2 late", "30 %", "20 %, 1 not-finite"]
    assert title(figure) == "3 faults in 6 rounds, 2 of them by b; 1 of the rounds skipped"
    assert "Blue: share in the aggregate, darkest 50 %, its mean to the right." in note(figure)
    assert "(crosses late, triangles not-finite). Gray: skipped rounds." in note(figure)


def test_without_faults_the_title_tells_of_shares():
    record = Record(rounds=(round_of(1, shares={"a": 0.7, "b": 0.3}),))
    figure = participation(record, ("a", "b", "c"))
    assert (
        title(figure) == "No fault in 1 round; shares in the aggregate from 30 % (b) to 70 % (a) on average"
    )
    # Who never took part is drawn too.
    assert image(figure)[2, 0, 3] == 0.0
    assert [text.get_text() for text in figure.axes[0].texts] == ["70 %", "30 %", "0 %"]
    assert all(tick == round(tick) for tick in figure.axes[0].get_xticks())
    require_legible(figure)


def test_faults_are_drawn_where_shares_are_not_known():
    faults = (Fault(site="", reason="absent", detail=""), Fault(site="stranger", reason="unknown", detail=""))
    figure = participation(Record(rounds=(round_of(1), round_of(2, faults=faults))), ("a",))
    shown = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert shown == ["a", "stranger", "unknown site"]
    assert marks(figure) == {"_": [(2, 2)], "*": [(2, 1)]}
    assert "share" not in words(figure)
    assert "Blank: no fault." in note(figure)


def test_what_is_not_known_is_not_drawn():
    assert participation(Record(), ("a",)) is None
    assert participation(Record(rounds=(round_of(1, skipped="why"),)), ("a",)) is None


def many(sites, rounds, chance):
    draws = np.random.default_rng(3)
    names = [f"site-{place:03d}" for place in range(sites)]
    entries = []
    for number in range(1, rounds + 1):
        late = set(np.flatnonzero(draws.uniform(size=sites) < chance).tolist())
        kept = [name for place, name in enumerate(names) if place not in late]
        faults = tuple(Fault(site=names[place], reason="late", detail="") for place in sorted(late))
        entries.append(round_of(number, shares=dict.fromkeys(kept, 1 / max(1, len(kept))), faults=faults))
    return Record(rounds=tuple(entries)), names


def test_fifty_sites_and_a_hundred_rounds_are_legible_and_light():
    record, names = many(50, 100, 0.5)
    figure = participation(record, names)
    require_legible(figure)
    assert len(figure.axes[0].get_yticklabels()) == 50
    drawn = BytesIO()
    figure.savefig(drawn, format="svg")
    assert len(drawn.getvalue()) < 300_000
    # One image, one line for the marks of a kind, one set of lines between rows.
    assert [len(part) for part in (figure.axes[0].images, figure.axes[0].lines)] == [1, 1]
    assert figure.axes[0].lines[0].get_rasterized()


def test_of_more_sites_only_those_in_trouble_are_drawn_and_the_others_counted():
    record, names = many(300, 8, 0.0)
    guilty = Fault(site="site-200", reason="replay", detail="")
    record = replace(record, rounds=(*record.rounds, round_of(9, faults=(guilty,))))
    figure = participation(record, names)
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["site-200"]
    assert "Not shown: 299 sites with less trouble or none." in note(figure)
    calm, names = many(60, 2, 0.0)
    assert len(participation(calm, names).axes[0].get_yticklabels()) == watchfulness.SITES


def test_of_more_rounds_several_share_a_cell_and_no_fault_is_lost():
    quiet, names = many(3, 1_001, 0.0)
    rounds = list(quiet.rounds)
    rounds[777] = replace(rounds[777], faults=(Fault(site=names[1], reason="late", detail=""),))
    figure = participation(Record(rounds=tuple(rounds)), names)
    cells = image(figure)
    assert cells.shape[1] <= watchfulness.COLUMNS
    wide = -(-1_001 // watchfulness.COLUMNS)
    orange = np.isclose(cells, to_rgba(watchfulness.FAULT)).all(axis=-1)
    assert np.argwhere(orange).tolist() == [[1, 777 // wide]]
    assert figure.axes[0].get_xlim() == (0.5, 1001.5)
    assert marks(figure) == {}


def test_any_name_stays_legible():
    paths = {name: [3.0, 6.0, 10.0] for name in HOSTILE}
    record = watched(paths, [(3, name, "active", "quarantined") for name in HOSTILE])
    require_legible(suspicions(record))
    faults = tuple(Fault(site=name, reason="late", detail="") for name in HOSTILE)
    shared = Record(rounds=(round_of(1, faults=faults), round_of(2, shares=dict.fromkeys(HOSTILE, 0.1))))
    figure = participation(shared, HOSTILE)
    require_legible(figure)
    assert "<script>alert('x')" in words(figure)

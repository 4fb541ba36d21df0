"""Beside what was charged and what is public, nothing of a subject's curves is seen or decided by."""

from dataclasses import replace

import numpy as np
import pytest

import tacit
from tacit.errors import InvalidValue, Refused
from tacit.functional import Boosting
from tacit.functional.curves import curves, long
from tacit.functional.data.sources import CurveFiles
from tacit.privacy.mechanisms.vertical import LocalColumns, clip_to_bound, require_radius
from tacit.privacy.policy import Open
from tacit.runs.fit import fit
from tacit.sites.vertical import ByParty, VerticalFederation

QUICK = {"size": 8, "steps": 10, "smooth_s": 0.0, "smooth_t": 0.0, "ridge": 1.0}
GRID = np.linspace(0, 1, 11)


def promise(**changes):
    return tacit.Privacy(**{"unit": "record", "epsilon": 5.0, "delta": 1e-5, "clip": 1.0} | changes)


def columns(records=60, seed=0, factor=1.0):
    draws = np.random.default_rng(seed)
    x1, x2 = (draws.normal(size=(records, 1)) + 0.3 * draws.normal(size=(records, 11)) for _ in range(2))
    return {"x1": x1, "x2": x2, "y": factor * (x1 + 0.1 * draws.normal(size=(records, 11)))}


def parties(values):
    made = {name: curves((GRID, found), name=name) for name, found in values.items()}
    return VerticalFederation({"a": {"y": made["y"]}, "b": {"x1": made["x1"]}, "c": {"x2": made["x2"]}})


@pytest.mark.parametrize("noise", ["site", "server", "secure"])
def test_how_long_rows_are_is_not_looked_at_before_noise(noise):
    """A response that is nothing but for one subject: whether that subject is there must not be told."""
    quiet = columns()
    quiet["y"] = np.full((60, 11), 1e-9) * quiet["y"]
    loud = {name: found.copy() for name, found in quiet.items()}
    loud["y"][7] = 0.73
    for values in (quiet, loud):
        run = fit(Boosting(**QUICK), parties(values), privacy=promise(noise=noise))
        (entry,) = run.record.rounds
        assert (entry.skipped, entry.faults) == (None, ())


@pytest.mark.parametrize("privacy", [Open(), promise(epsilon=40.0, clip=1e5)])
def test_parties_may_measure_in_very_different_units(privacy):
    run = fit(Boosting(**QUICK), parties(columns(factor=5e4)), privacy=privacy)
    assert run.record.rounds[0].skipped is None
    assert not isinstance(privacy, Open) or run.model.selected == ("x1",)


def test_a_state_holds_sums_and_no_subject():
    values = columns()
    for privacy in (Open(), promise(), promise(noise="server")):
        run = fit(Boosting(**QUICK), parties(values), privacy=privacy)
        y = run.task.coordinates_of("y", curves((GRID, values["y"]), name="y"))
        state = run.state
        assert not np.isclose(y[:, :1], state[None], rtol=1e-12, atol=0).any()


def test_a_bought_radius_costs_the_same_in_the_plan_and_in_the_run(tmp_path):
    file = tmp_path / "f.toml"
    file.write_text(
        '[task]\nkind = "functional-boosting"\nradius = "private"\nsize = 8\n'
        '[data]\ndesign = "smooth"\nrecords = 60\npoints = 11\nheld_out = 0.0\n'
        '[privacy]\nunit = "record"\nnoise_multiplier = 3.0\ndelta = 1e-5\nclip = 1.0\nrehearsal = true\n'
    )
    from tacit.experiments import experiment

    asked = experiment.read(file)
    run = asked.run(None)
    assert asked.plan().statement.epsilon == pytest.approx(run.privacy.epsilon, rel=1e-6)


def test_a_domain_that_is_somebodys_last_visit_is_refused():
    import pandas as pd

    draws = np.random.default_rng(1)
    times, seen = draws.uniform(0, 100, 120), draws.normal(size=120)
    visits = pd.DataFrame({"subject": np.repeat(np.arange(30), 4), "time": times, "value": seen})
    guessed, said = long(visits), long(visits, domain=(0.0, 100.0))
    values = columns(30)
    for found in (guessed, said):
        made = {name: curves((GRID, values[name]), name=name) for name in ("x1", "y")}
        held = VerticalFederation({"a": {"y": made["y"]}, "b": {"x1": replace(found, subjects=None)}})
        if found is said:
            fit(Boosting(**QUICK), held, privacy=promise())
            continue
        with pytest.raises(Refused, match="the domain of x1, from the first time to the last"):
            fit(Boosting(**QUICK), held, privacy=promise())
        assert any("the domain of x1" in line for line in fit(Boosting(**QUICK), held).privacy.bare)


def test_files_that_list_people_in_different_orders_are_put_in_one(tmp_path):
    values, names = columns(30), [f"p{n}" for n in range(30)]
    orders = {"x1": list(range(30)), "x2": list(reversed(range(30))), "y": list(range(30))}
    for name, order in orders.items():
        rows = [",".join([names[row], *(repr(float(v)) for v in values[name][row])]) for row in order]
        header = ",".join(["subject", *(f"{time:g}" for time in GRID)])
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *rows]))
    source = CurveFiles(path=str(tmp_path), files={name: f"{name}.csv" for name in orders})
    opened = source.open(ByParty(count=2), 1)
    assert opened.subjects["x2"].values == pytest.approx(values["x2"])
    text = (tmp_path / "x2.csv").read_text().replace("p7,", "q7,")
    (tmp_path / "x2.csv").write_text(text)
    with pytest.raises(InvalidValue, match="subject p7 is in x1 and not in x2"):
        source.open(ByParty(count=2), 1)


def test_people_in_different_orders_are_refused():
    values = columns(12)
    made = {name: curves((GRID, found), name=name) for name, found in values.items()}
    listed = [str(n) for n in range(12)]
    named = {name: replace(found, subjects=tuple(listed)) for name, found in made.items()}
    named["x1"] = replace(named["x1"], subjects=tuple(reversed(listed)))
    held = VerticalFederation({"a": {"y": named["y"]}, "b": {"x1": named["x1"], "x2": named["x2"]}})
    with pytest.raises(InvalidValue, match="x1"):
        fit(Boosting(**QUICK), held, privacy=promise())


def test_one_subjects_hole_changes_nobody_else():
    values = columns()["x1"]
    holed = values.copy()
    holed[5, 3] = np.nan
    frame = Boosting(size=8).frame((0.0, 1.0))
    plain, other = (curves((GRID, v), name="x").coordinates(frame) for v in (values, holed))
    rest = np.arange(60) != 5
    assert np.array_equal(plain[rest], other[rest])


@pytest.mark.parametrize("radius", [1e-165, 1e165, 0.0, -1.0, float("nan"), float("inf")])
def test_a_radius_that_has_no_square_is_none(radius):
    with pytest.raises(InvalidValue, match="radius"):
        require_radius("radius", radius)
    with pytest.raises(InvalidValue):
        LocalColumns(multiplier=1.0, radii={"x": radius}, widths={"x": 1}, holders={"x": "a"})


def test_a_short_radius_still_holds():
    rows = np.array([[1.0, 1.0], [1e-48, 0.0]])
    assert np.linalg.norm(clip_to_bound(rows, 1e-49), axis=1).max() <= 1e-49


def test_choosing_among_candidates_is_left_to_the_fit(tmp_path):
    from tacit.experiments import tuning

    file = tmp_path / "f.toml"
    file.write_text(
        '[task]\nkind = "functional-boosting"\n[data]\nrecords = 60\n[tune]\n"task.rate" = [0.1, 0.3]\n'
    )
    with pytest.raises(Refused, match=r"\[tune\] is for rounds of updates"):
        tuning.tune(tuning.read(file), tmp_path / "out")


def test_what_a_promise_excepts_is_in_every_summary():
    run = fit(Boosting(**QUICK), parties(columns()), privacy=promise())
    assert run.as_dict()["privacy"]["but"][0].startswith("its response (y)")
    assert "record by record" in run.summary()

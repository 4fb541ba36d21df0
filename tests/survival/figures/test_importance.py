"""Effects of features: hazard ratios for Cox regressions alone, in readable units; weights elsewhere."""

import warnings
from functools import lru_cache

import numpy as np
import pytest
from matplotlib.text import Text

import tacit
from tacit.errors import InvalidValue
from tacit.survival import CoxPH, DeepHit, PoissonPH, figures
from tacit.survival.data import simulate
from tacit.survival.statistics import cox

MODELS = (PoissonPH(hidden=[], cuts=4, horizon=2.0), CoxPH(cuts=4), DeepHit(hidden=[4], cuts=4))


@lru_cache
def hospitals():
    frame = simulate("SDGM1", records=300, features=3, seed=1).assign(site=["a", "b", "c"] * 100)
    return tacit.Federation.from_frame(frame, site="site", targets=("time", "event"))


@lru_cache
def fitted(unit: float = 1.0):
    frame = simulate("SDGM1", records=300, features=3, seed=1).assign(site=["a", "b", "c"] * 100)
    frame["x1"] *= unit
    return cox(tacit.Federation.from_frame(frame, site="site", targets=("time", "event")))


def texts(figure) -> str:
    return " ".join(text.get_text() for text in figure.findobj(Text))


@pytest.mark.parametrize("task", MODELS, ids=lambda task: task.kind)
def test_no_trained_model_shows_a_hazard_ratio(task):
    run = tacit.fit(task, hospitals(), rounds=2)
    for shown in run.task.pictures(run.state, run.record.rounds, lambda name: None):
        said = f"{texts(shown.picture)} {shown.words}".replace("estimate no hazard ratio", "")
        assert "azard ratio" not in said.replace("\n", " ")
    effects = next(
        shown for shown in run.task.pictures(run.state, [], lambda name: None) if "eff" in shown.name
    )
    assert "the task cox (tacit.survival.statistics.cox) fits a linear model to interpret" in effects.words


def test_a_linear_model_shows_its_weights_as_they_are():
    run = tacit.fit(MODELS[0], hospitals(), rounds=2)
    (shown,) = (own for own in run.task.pictures(run.state, [], lambda name: None) if "eff" in own.name)
    for name, weight in zip(("x1", "x2", "x3"), run.state[:3], strict=True):
        assert f"{name} + 1: {weight:+.2f}".replace("-", "\N{MINUS SIGN}") in shown.words
    assert shown.picture.axes[0].get_xscale() == "linear"


def test_a_model_that_went_astray_has_figures_all_the_same():
    run = tacit.fit(MODELS[0], hospitals(), rounds=1)
    far = np.where(np.arange(run.state.size) < 3, 1e4, run.state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(run.task.pictures(far, run.record.rounds, lambda name: None)) == 2


def test_a_ratio_that_reads_one_is_shown_for_a_larger_step():
    # x1 in units a thousand times as small: its ratio per unit cannot be told from 1.
    figure = figures.forest(fitted(1000.0))
    named = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert named[1:] == ["x2", "x3"]
    name, _, unit = named[0].partition(", per ")
    assert (name, float(unit)) in {("x1", 100.0), ("x1", 1000.0)}
    row = fitted(1000.0).summary().loc["x1"] ** float(unit)
    ends = [f"{row[f'exp(coef){end}']:.2f}" for end in ("", " lower 95%", " upper 95%")]
    assert f"{ends[0]} ({ends[1]} to {ends[2]})" in texts(figure)


def test_ratios_are_shown_for_the_steps_that_are_asked_for():
    figure = figures.forest(fitted(), units={"x2": 0.5})
    assert "x2, per 0.5" in texts(figure)
    assert f"{fitted().summary().loc['x2', 'exp(coef)'] ** 0.5:.2f} (" in texts(figure)
    for wrong, said in (({"x9": 2.0}, "units = 'x9'"), ({"x2": 0.0}, "units x2 = 0")):
        with pytest.raises(InvalidValue, match=said):
            figures.forest(fitted(), units=wrong)

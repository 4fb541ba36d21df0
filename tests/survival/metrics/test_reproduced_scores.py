"""The scores of a run follow from its predictions by the lines of the guide; they end at the horizon."""

import re
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit.sites.splits import Iid
from tacit.survival import CoxPH, DeepHit, PoissonPH, figures
from tacit.survival.data.sources import Simulated

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "survival.md"
# The last one ends before the last scored time.
TASKS = (
    PoissonPH(steps=5, horizon=4.0),
    CoxPH(steps=5, horizon=4.0),
    DeepHit(hidden=[4], cuts=5, horizon=0.6),
)


@lru_cache
def federation() -> tacit.Federation:
    return Simulated(records=400, features=3, held_out=0.3).open(Iid(count=2), 1)


def lines_of_the_guide() -> str:
    (found,) = (
        text
        for text in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        if "harrell(time" in text
    )
    return found


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.kind)
def test_the_lines_of_the_guide_give_the_scores_of_a_run(task):
    run = tacit.fit(task, federation(), rounds=2)
    names: dict[str, object] = {"np": np, "run": run, "test": federation().held_out}
    *before, last = lines_of_the_guide().strip().splitlines()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec("\n".join(before), names)
        concordance, brier = eval(last, names)
    assert concordance == pytest.approx(run.scores["c_index"], abs=1e-9)
    assert brier == pytest.approx(run.scores["ibs"], abs=1e-9)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.kind)
def test_predictions_beyond_the_horizon_are_nan_with_a_warning(task):
    model, features = tacit.fit(task, federation(), rounds=1).model, federation().held_out.features[:2]
    end = float(model.ends[-1])
    asked = [model.survival, model.cumulative_hazard, model.hazard]
    asked += [model.incidence] if isinstance(task, DeepHit) else []
    for predict in asked:
        with pytest.warns(UserWarning, match=r"beyond the horizon, .* are NaN.*np\.minimum"):
            late = predict(features, [end / 2, end, 1.01 * end])
        assert np.isfinite(late[:, :2]).all()
        assert np.isnan(late[:, 2]).all()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert np.isfinite(predict(features, [0.0, end])).all()


def test_curves_are_drawn_up_to_the_horizon():
    model = tacit.fit(TASKS[0], federation(), rounds=1).model
    with pytest.warns(UserWarning, match="beyond the horizon"):
        figure = figures.survival_curves(model, federation().held_out.features[:2], np.linspace(0, 9, 10))
    assert all(np.isfinite(line.get_ydata()).all() for line in figure.axes[0].lines)

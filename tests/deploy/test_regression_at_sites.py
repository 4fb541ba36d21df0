"""Regressions at sites on machines of their own: the same numbers as in one process."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from in_process import handed

from tacit.deploy.coordinator.run import charges

FILE = """
[data]
kind = "csv"
path = "data.csv"
outcome = "falls"
levels = { ward = ["a", "b", "c"] }

[sites]
kind = "by-column"
column = "hospital"

[task]
kind = "KIND"
exposure = "years"
columns = ["age", "ward=b", "ward=c"]
"""
PROMISE = """
ranges = { age = [20, 100], "ward=b" = [0, 1], "ward=c" = [0, 1], outcome = [0, 15], years = [0.2, 3] }

[privacy]
unit = "record"
noise = "NOISE"
epsilon = 3.0
delta = 1e-4
rehearsal = true
"""


def file(folder: Path, text: str) -> Path:
    draw = np.random.default_rng(8)
    size = 240
    age, years = draw.normal(60, 10, size), draw.uniform(0.5, 2, size)
    ward = draw.choice(["a", "b", "c"], size)
    falls = draw.poisson(years * np.exp(0.03 * (age - 60) + 0.5 * (ward == "c")))
    hospital = [f"h{number % 4}" for number in range(size)]
    table = {"age": age, "years": years, "ward": ward, "falls": falls, "hospital": hospital}
    pd.DataFrame(table).to_csv(folder / "data.csv", index=False)
    path = folder / "experiment.toml"
    path.write_text(text.replace("KIND", "poisson"))
    return path


@pytest.mark.parametrize("noise", ["site", "secure"])
def test_noisy_sums_have_the_same_bits(noise: str, tmp_path: Path):
    path = file(tmp_path, FILE + PROMISE.replace("NOISE", noise))
    town, chosen, federation = handed(path, ["rounds=5"], tmp_path / "town")
    run = town.run(tmp_path / "over-letters")
    alone = chosen.run_on(federation, tmp_path / "alone")
    assert np.array_equal(run.state, alone.state)
    assert charges(run.path) == charges(alone.path) != []
    assert run.model.text() == alone.model.text()
    assert not run.record.warnings()


def test_an_open_regression_is_that_of_one_process(tmp_path: Path):
    town, chosen, federation = handed(file(tmp_path, FILE), [], tmp_path / "town")
    run = town.run(tmp_path / "over-letters")
    alone = chosen.run_on(federation, tmp_path / "alone")
    np.testing.assert_allclose(run.model.summary(), alone.model.summary(), rtol=1e-9, atol=1e-12)
    assert run.record.stopped is not None

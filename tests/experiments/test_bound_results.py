"""Results of a bound task are no options of a file; the directory of a run keeps them to resume."""

from pathlib import Path

import pytest

from tacit.errors import InvalidFile
from tacit.experiments.experiment import KINDS, load, read
from tacit.runtime.contracts import bound_fields

FILE = """rounds = 1
baselines = false
[data]
kind = "simulated"
records = 120
[task]
kind = "logistic-hazard"
hidden = []
steps = 1
"""


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("logistic-hazard", "columns", '["age"]'),
        ("deep-surv", "encoding", "{}"),
        ("kaplan-meier", "known", "{}"),
        ("cox", "sites", '["oslo"]'),
        ("functional-boosting", "stretch", "{ x1 = 2.0 }"),
        ("ppo", "inputs", "4"),
    ],
)
def test_a_file_that_names_a_result_is_refused_as_with_any_unknown_key(tmp_path: Path, kind, key, value):
    assert key in bound_fields(KINDS["task"][kind])
    file = tmp_path / "trial.toml"
    file.write_text(f'[task]\nkind = "{kind}"\n{key} = {value}\n')
    with pytest.raises(InvalidFile, match=rf"{key}"):
        read(file)
    with pytest.raises(InvalidFile, match=rf"{key}"):
        read(file, [f"task.{key}={value}"])


def test_the_directory_of_a_run_keeps_its_results_and_is_read_with_them(tmp_path: Path):
    file, out = tmp_path / "trial.toml", tmp_path / "run"
    file.write_text(FILE)
    run = read(file).run(out)
    assert run.task.columns
    assert read(out).task.columns == list(run.task.columns)
    assert read(out / "experiment.toml").task == read(out).task
    assert load(out).scores == run.scores
    assert read(out).run(out, resume=True).scores == run.scores

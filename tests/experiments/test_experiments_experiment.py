"""An experiment file is read strictly: every mistake is named, with what is allowed instead."""

from pathlib import Path

import pytest

from tacit import Open, Privacy
from tacit.errors import InvalidFile, Refused
from tacit.experiments import attacks, experiment, studies
from tacit.survival import LogisticHazard

EXAMPLES = Path(__file__).parents[2] / "examples"
GOOD = """
name = "trial"
rounds = 40
[data]
records = 2000
[sites]
count = 8
[task]
kind = "logistic-hazard"
steps = 10
sample = 0.1
lr = 0.05
[privacy]
unit = "record"
epsilon = 3
delta = 1e-5
clip = 1
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "trial.toml"
    path.write_text(text)
    return path


def test_a_file_becomes_objects(tmp_path: Path):
    read = experiment.read(write(tmp_path, GOOD))
    assert read.privacy == Privacy(unit="record", epsilon=3.0, delta=1e-5, clip=1.0)
    assert (read.name, read.rounds, read.data.records, len(read.sites.names)) == ("trial", 40, 2000, 8)
    assert read.task == LogisticHazard(steps=10, sample=0.1, lr=0.05)


def test_a_minimal_file_is_enough(tmp_path: Path):
    read = experiment.read(write(tmp_path, '[task]\nkind = "logistic-hazard"\n'))
    assert read.privacy == Open()
    assert (read.rounds, read.seed) == (10, 0)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_every_example_reads(path: Path):
    if studies.has_study_table(path):
        read = studies.read(path).experiment
    else:
        read = attacks.read(path).experiment if attacks.has_attack_table(path) else experiment.read(path)
    assert read.rounds >= 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rounds = 40", "round = 40", 'round is not known (did you mean "rounds"?)'),
        ("rounds = 40", "rounds = 0", "rounds = 0 is not allowed"),
        ("rounds = 40", 'rounds = "many"', "rounds = 'many' is not allowed"),
        ("count = 8", "count = -1", "count = -1 is not allowed"),
        ("records = 2000", "records = 1.5", "records = 1.5 is not allowed"),
        ('kind = "logistic-hazard"', 'kind = "logistic-hasard"', 'did you mean "logistic-hazard"?'),
        ("steps = 10", "step = 10", '[task] step is not known (did you mean "steps"?)'),
        ("steps = 10", "steps = 0", "steps = 0 is not allowed"),
        ("sample = 0.1", "sample = 1.5", "sample = 1.5 is not allowed"),
        ("epsilon = 3", "epsilon = -3", "epsilon = -3.0 is not allowed"),
        ("epsilon = 3", "epsilon = nan", "epsilon = nan is not allowed"),
        ("epsilon = 3", 'epsilon = "3"', "[privacy] epsilon = '3' is not allowed: it must be a number"),
        ("epsilon = 3", "", "give exactly one"),
        ("epsilon = 3", "epsilon = 3\nnoise_multiplier = 1", "give exactly one"),
        ("delta = 1e-5", "delta = 1", "delta = 1.0 is not allowed"),
        ("clip = 1", "clop = 1", '[privacy] clop is not known (did you mean "clip"?)'),
        ('unit = "record"', 'unit = "recrod"', 'it must be "record" or "site" (did you mean "record"?)'),
        ("[privacy]", "privacy = 3\n[other]", "other is not known"),
        (
            "[sites]",
            "[aggregation]\nkind = 'medan'\n[sites]",
            "[aggregation] kind = 'medan' is not allowed",
        ),
        ("[task]", "[tusk]", "tusk is not known"),
        ("[task]", "[task", "is not TOML"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, said: str):
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(InvalidFile) as caught:
        experiment.read(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_clip_bound_is_missed_by_the_plan_of_a_task_that_needs_one(tmp_path: Path):
    read = experiment.read(write(tmp_path, GOOD.replace("clip = 1", "").replace('"record"', '"site"')))
    assert isinstance(read.privacy, Privacy)
    assert read.privacy.clip is None
    with pytest.raises(Refused, match=r"clip is missing in \[privacy\]: give the bound of a site's"):
        _ = read.plan()


def test_a_table_must_be_a_table(tmp_path: Path):
    with pytest.raises(InvalidFile, match=r"task = 3 is not allowed: it must be a table, \[task\]"):
        experiment.read(write(tmp_path, "task = 3"))


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(InvalidFile, match="No such file"):
        experiment.read(tmp_path / "nowhere.toml")

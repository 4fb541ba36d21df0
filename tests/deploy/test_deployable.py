"""Deployed experiments equal the original: same tables, task, promise and numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from tacit.deploy.deployable import _unscale, split_data, to_deployment
from tacit.engines.base import Local, run_at_site
from tacit.errors import Refused
from tacit.experiments.experiment import Experiment, read
from tacit.functional.curves import Curves
from tacit.runs.setup import prepare
from tacit.runs.spec import PreparedRun
from tacit.runtime.keys import Key
from tacit.sites.federation import RowFederation
from tacit.sites.table import Table

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass
class Both:
    """An experiment in one place, and the same one at its sites."""

    experiment: Experiment
    federation: RowFederation
    deployed: Experiment
    distant: RowFederation
    held: dict[str, dict[str, object]]
    out: Path

    def setting(self, *, here: bool) -> PreparedRun:
        asked, federation = (self.experiment, self.federation) if here else (self.deployed, self.distant)
        return prepare(replace(asked, engine=Local()), federation)

    def at_site(self, name: str, task: object = None) -> RowFederation:
        return self.deployed.data.at_site(
            name, self.held[name], self.out / name, sites=self.deployed.sites, task=task
        )


def both(file: Path, out: Path, changes: Sequence[str] = ()) -> Both:
    experiment = read(file, changes)
    federation = experiment.open_federation()
    document, held = split_data(experiment, federation, lambda name: out / name)
    written = out / "coordinator" / "experiment.toml"
    written.parent.mkdir(parents=True, exist_ok=True)
    # What a file cannot hold is not agreed.
    written.write_text(tomli_w.dumps(document), encoding="utf-8")
    deployed = read(written)
    return Both(experiment, federation, deployed, deployed.open_federation(), held, out)


def assert_same_tables(ours: Table, theirs: Table) -> None:
    assert ours.columns == theirs.columns
    assert np.array_equal(ours.features, theirs.features)
    assert set(ours.targets) == set(theirs.targets)
    for name, values in ours.targets.items():
        assert np.array_equal(values, theirs.targets[name])


def plain(value: object) -> object:
    """A list in a file is what a tuple is in Python."""
    return list(value) if isinstance(value, tuple) else value


def assert_same_task(found: Both) -> tuple[PreparedRun, PreparedRun]:
    here, there = found.setting(here=True), found.setting(here=False)
    assert type(here.task) is type(there.task)
    for entry in fields(here.task):
        assert plain(getattr(here.task, entry.name)) == plain(getattr(there.task, entry.name)), entry.name
    assert repr(here.mechanism) == repr(there.mechanism)
    assert found.federation.mean_site_size == found.distant.mean_site_size
    # Where the data decide who the sites are, the plan before deployment cannot name them.
    if found.experiment.sites.names:
        assert found.experiment.plan() == found.deployed.plan()
    assert here.planned_releases(1) == there.planned_releases(1)
    return here, there


def assert_same_round(found: Both, here: PreparedRun, there: PreparedRun) -> None:
    """One round of the whole cohort is a round of each site alone, with what all know of the others."""
    key, names = Key(3, rehearsal=True) / 1, list(found.federation)
    state = here.task.start(found.federation, Key(3) / "start")
    assert np.array_equal(state, there.task.start(found.distant, Key(3) / "start"))
    whole = run_at_site(here.task, state, found.federation.cohort(names), here.mechanism.at_round(1), key)
    for place, name in enumerate(names):
        cohort = found.at_site(name, there.task).cohort([name])
        cohort = replace(cohort, mean_site_size=found.distant.mean_site_size)
        alone = run_at_site(there.task, state, cohort, there.mechanism.at_round(1), key)
        same = run_at_site(here.task, state, found.federation.cohort([name]), here.mechanism.at_round(1), key)
        assert alone.names == (name,)
        assert np.array_equal(alone.matrix, same.matrix)
        # Sums over a batch that is padded for others may round otherwise.
        assert np.allclose(alone.matrix[0], whole.matrix[place], rtol=0, atol=1e-12)
        assert float(np.abs(alone.matrix[0]).max()) > 0


def test_simulated_patients_at_three_hospitals_train_as_in_one_process(tmp_path: Path):
    changes = ["sites.count=3", "rounds=2", "data.records=500"]
    found = both(EXAMPLES / "network.toml", tmp_path, changes)
    here, there = assert_same_task(found)
    assert len(here.task.cuts) == 20
    for name in found.federation:
        assert_same_tables(found.at_site(name).records_of(name), found.federation.records_of(name))
    assert isinstance(found.federation.held_out, Table)
    assert isinstance(found.distant.held_out, Table)
    assert_same_tables(found.distant.held_out, found.federation.held_out)
    assert found.distant.held_out_public
    assert_same_round(found, here, there)


def test_a_table_without_optional_columns_is_deployable(tmp_path):
    table = pd.DataFrame({"time": np.arange(1.0, 61.0), "event": 1, "age": np.linspace(-1, 1, 60)})
    table.to_csv(tmp_path / "own.csv", index=False)
    (tmp_path / "own.toml").write_text(
        '[data]\nkind = "csv"\npath = "own.csv"\n[task]\nkind = "poisson-ph"\nhorizon = 60.0\n'
    )
    found = to_deployment(tmp_path / "own.toml", [], ["oslo", "bergen", "tromso"])
    assert found.document["data"] == {
        "kind": "held-records", "columns": ["age"], "time": "time", "event": "event",
    }  # fmt: skip


CSV = """
seed = 3
rounds = 2
[data]
kind = "csv"
path = "own.csv"
time = "t"
event = "dead"
site = "place"
entry = "begun"
cause = 1
leave = ["number"]
levels = { sex = ["f", "m"], stage = [1, 2, 3], trial = ["one"] }
fill = { stage = 2, marker = 0.3, sex = "f" }
center = { age = 61.7 }
scale = { age = 9.31, marker = 0.07 }
[sites]
kind = "by-column"
column = "place"
[task]
kind = "logistic-hazard"
hidden = [4]
cuts = 6
"""


def own_table(folder: Path, count: int = 90) -> None:
    draw = np.random.default_rng(5)
    time = draw.exponential(3.0, count) + 0.1
    pd.DataFrame(
        {
            "number": np.arange(count),
            "time": draw.normal(size=count),
            "sex": draw.choice(["f", "m", ""], count),
            "age": draw.normal(60, 12, count),
            "trial": "one",
            "stage": draw.choice([1.0, 2.0, 3.0, np.nan], count),
            "marker": np.where(draw.random(count) < 0.2, np.nan, draw.lognormal(size=count)),
            "place": [f"00{1 + row % 3}" for row in range(count)],
            "t": time,
            "begun": time * draw.uniform(0, 0.5, count),
            "dead": np.where(np.arange(count) % 4 == 1, 2, np.arange(count) % 2),
        }
    ).to_csv(folder / "own.csv", index=False)
    (folder / "e.toml").write_text(CSV, encoding="utf-8")


@pytest.mark.parametrize("change", ["data.standardize=true", "data.held_out=0.3", "data.held_out=0.0"])
def test_a_table_of_ones_own_is_encoded_at_the_sites_to_the_very_same_numbers(tmp_path: Path, change: str):
    own_table(tmp_path)
    found = both(tmp_path / "e.toml", tmp_path / "out", [change])
    assert list(found.federation) == ["001", "002", "003"]
    here, there = assert_same_task(found)
    assert there.task.encoding == found.federation.encoding
    for name in found.federation:
        assert_same_tables(found.at_site(name).records_of(name), found.federation.records_of(name))
    raw = pd.read_parquet(tmp_path / "out" / "001" / "data" / "records.parquet")
    assert set(raw["sex"]) == {"f", "m"}
    assert set(raw["stage"]) == {"1", "2", "3"}
    assert_same_round(found, here, there)


def test_records_that_are_held_out_stay_those_of_their_sites_and_no_more_public(tmp_path: Path):
    own_table(tmp_path)
    found = both(tmp_path / "e.toml", tmp_path / "out", ["data.held_out=0.3"])
    ours, theirs = found.federation.held_out, found.distant.held_out
    assert isinstance(ours, Table)
    assert isinstance(theirs, Table)
    assert_same_tables(ours, theirs)
    assert ours.sites is not None
    assert theirs.sites is not None
    assert ours.sites.tolist() == theirs.sites.tolist()
    assert (found.federation.held_out_public, found.distant.held_out_public) == (False, False)


def test_a_grid_that_is_still_to_be_bought_is_bought_by_the_deployed_run_too(tmp_path: Path):
    own_table(tmp_path)
    # Features that span more than 100 are refused under a promise.
    private = [
        "data.scale.marker=0.7",
        "data.held_out=0.0",
        "privacy.unit=record",
        "privacy.epsilon=2.0",
        "privacy.delta=1e-4",
    ]
    found = both(tmp_path / "e.toml", tmp_path / "out", [*private, "privacy.clip=1.0", "task.sample=0.2"])
    here, there = assert_same_task(found)
    assert here.task.cuts == there.task.cuts == 6
    assert [found.experiment.plan().statement.epsilon] * 2 == [
        plan.statement.epsilon for plan in (found.experiment.plan(), found.deployed.plan())
    ]


def test_a_published_set_keeps_its_encoding(tmp_path: Path):
    (tmp_path / "e.toml").write_text(
        'rounds = 1\n[data]\nkind = "gbsg2"\n[sites]\nkind = "iid"\ncount = 2\n[task]\nkind = "cox-ph"\n'
    )
    found = both(tmp_path / "e.toml", tmp_path / "out")
    _ = assert_same_task(found)
    for name in found.federation:
        assert_same_tables(found.at_site(name).records_of(name), found.federation.records_of(name))


@pytest.mark.parametrize(
    "changes",
    [["privacy.noise=server"], ["privacy.noise=site", "task.release=local", "privacy.epsilon=40.0"]],
)
def test_curves_at_three_parties_train_as_in_one_process(tmp_path: Path, changes: list[str]):
    found = both(EXAMPLES / "functional.toml", tmp_path, ["data.records=160", *changes])
    here, there = assert_same_task(found)
    assert there.task.predictors == ("x1", "x2", "x3", "x4")
    for name in found.federation:
        held = found.at_site(name).cohort([name]).holdings[0]
        known = found.federation.cohort([name]).holdings[0]
        assert list(held) == list(known)
        for curve, ours in known.items():
            assert isinstance(ours, Curves)
            assert held[curve].digest() == ours.digest()
    assert found.distant.held_out is not None
    assert found.federation.held_out is not None
    assert found.distant.held_out.digest() == found.federation.held_out.digest()
    assert_same_round(found, here, there)


def test_the_example_of_curves_promises_the_same_with_products_in_secret(tmp_path: Path):
    _ = assert_same_task(both(EXAMPLES / "functional.toml", tmp_path, ["data.records=160"]))


def test_curves_with_holes_and_names_of_subjects_are_handed_over_as_they_are(tmp_path: Path):
    draw = np.random.default_rng(1)
    times = [repr(float(time)) for time in np.linspace(0, 2, 9)]
    for name in ("a", "b", "y"):
        frame = pd.DataFrame(draw.normal(size=(60, 9)), columns=times)
        frame.iloc[3, 2:4] = np.nan
        frame.insert(0, "subject", [f"p{row:03d}" for row in range(60)])
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "e.toml").write_text(
        '[data]\nkind = "curve-files"\npath = "."\nfiles = { y = "y.csv", b = "b.csv", a = "a.csv" }\n'
        'held_out = 0.25\n[sites]\nparties = { one = ["a"], two = ["b", "y"] }\n'
        '[task]\nkind = "functional-boosting"\nsize = 6\n'
    )
    found = both(tmp_path / "e.toml", tmp_path / "out")
    here, there = assert_same_task(found)
    assert there.task.predictors == ("b", "a")
    held = found.at_site("two").cohort(["two"]).holdings[0]
    known = found.federation.cohort(["two"]).holdings[0]
    assert all(held[name].digest() == known[name].digest() for name in ("b", "y"))
    assert_same_round(found, here, there)


CART = """
rounds = 2
[data]
env = "CartPole-v1"
unseen = { bounded = { sutton_barto_reward = true } }
episodes = 2
[sites]
copies = 2
[sites.plain]
[sites.kind]
sutton_barto_reward = true
[task]
kind = "ppo"
steps = 64
envs = 2
hidden = [4]
"""


def test_worlds_of_three_sites_train_as_in_one_process(tmp_path: Path):
    text = CART.replace("kind]", "lenient]").replace("bounded", "free")
    (tmp_path / "e.toml").write_text(text, encoding="utf-8")
    found = both(tmp_path / "e.toml", tmp_path / "out")
    assert list(found.distant) == ["plain-1", "plain-2", "lenient-1", "lenient-2"]
    here, there = assert_same_task(found)
    task = there.task
    assert (task.inputs, task.actions, task.env, task.repeats) == (4, 2, "CartPole-v1", True)
    for name in found.federation:
        held = found.at_site(name).cohort([name]).holdings[0]
        assert held == found.federation.cohort([name]).holdings[0]
    assert found.distant.held_out is not None
    assert found.federation.held_out is not None
    assert found.distant.held_out.digest() == found.federation.held_out.digest()
    assert_same_round(found, here, there)


def test_code_of_ones_own_is_not_handed_over(tmp_path: Path):
    (tmp_path / "my_rule_h8.py").write_text(
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Rule:\n"
        "    def __call__(self, updates):\n        return updates.matrix.mean(axis=0)\n"
    )
    (tmp_path / "e.toml").write_text(
        '[data]\nrecords = 200\n[sites]\ncount = 2\n[task]\nkind = "logistic-hazard"\n'
        '[aggregation]\nkind = "my_rule_h8:Rule"\n'
    )
    with pytest.raises(Refused, match=r"\[aggregation\] kind = 'my_rule_h8:Rule' is your own code"):
        _ = both(tmp_path / "e.toml", tmp_path / "out")


def test_what_is_at_the_sites_already_is_not_handed_over_again(tmp_path: Path):
    found = both(EXAMPLES / "network.toml", tmp_path, ["sites.count=2", "data.records=200"])
    with pytest.raises(Refused, match="held-records is at the sites already"):
        _ = split_data(found.deployed, found.distant, lambda name: tmp_path / "again" / name)


def test_files_of_sites_are_for_their_owners_alone_and_nothing_is_overwritten(tmp_path: Path):
    found = both(EXAMPLES / "network.toml", tmp_path, ["sites.count=2", "data.records=200"])
    file = tmp_path / "site-1" / "data" / "records.parquet"
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        _ = split_data(found.experiment, found.federation, lambda name: tmp_path / name)


numbers = st.floats(-1e9, 1e9, allow_subnormal=False)


@given(st.lists(numbers, min_size=1, max_size=20), numbers, st.floats(1e-6, 1e6))
def test_scaling_is_undone_so_that_doing_it_again_gives_the_same_numbers(
    raw: list[float], center: float, scale: float
):
    seen = (np.array(raw) - center) / scale
    assert np.array_equal((_unscale(seen, center, scale, "age") - center) / scale, seen)

"""The data tools of federated-survival by their names: drawn, read and dealt out."""

from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tacit.compat.federated_survival import (
    DataGenerator,
    DataLoader,
    DataSet,
    DataSplitter,
    Explained,
    SimulationConfig,
)
from tacit.errors import InvalidFile, InvalidValue
from tacit.survival.data import simulate

DESIGNS = ("weibull", "lognormal", "SDGM1", "SDGM2", "SDGM3", "SDGM4")


def patients(records: int = 200, design: str = "SDGM1") -> pd.DataFrame:
    return DataGenerator(SimulationConfig(records, 5, random_state=1)).generate(design)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_table_has_features_a_time_and_a_status(design: str):
    frame = patients(design=design)
    assert list(frame.columns) == ["x1", "x2", "x3", "x4", "x5", "time", "status"]
    assert (frame["time"] > 0).all()
    assert set(frame["status"]) == {0, 1}
    pd.testing.assert_frame_equal(frame, patients(design=design))


def test_without_a_seed_every_table_is_another():
    generator = DataGenerator()
    first, second = generator.generate("weibull"), generator.generate("weibull")
    assert len(first) == 200
    assert first.shape[1] == 17
    assert not first.equals(second)


def test_the_parameters_mean_what_the_simulators_take():
    as_ours = [
        ("SDGM1", {"c_mean": 1.5}, {"c_mean": 1.5}),
        ("SDGM2", {"u_max": 7}, {"u_max": 7}),
        # The original passes 4 to both uniform designs, whatever its documentation says.
        ("SDGM3", {}, {"u_max": 4.0}),
        ("SDGM4", {"c_step": 0.8}, {"c_step": 0.8}),
    ]
    for design, given, meant in as_ours:
        expected = simulate(design, records=50, features=5, seed=3, **meant)
        found = DataGenerator(SimulationConfig(50, 5, 3)).generate(design, **given)
        assert np.array_equal(found["time"], expected["time"])
        assert np.array_equal(found["status"], expected["event"])


@pytest.mark.parametrize(
    ("design", "given", "said"),
    [
        ("SDGM4", {"u_max": 4}, r"u_max = 4 has no effect: SDGM4 is censored by c_step"),
        ("SDGM3", {"c_step": 0.4}, r"c_step = 0.4 has no effect: SDGM3 is censored by u_max"),
        ("weibull", {"u_max": 4, "c_step": 1}, r"u_max = 4, c_step = 1 has no effect"),
    ],
)
def test_a_parameter_of_another_design_is_explained(design: str, given: dict[str, float], said: str):
    generator = DataGenerator(SimulationConfig(50, 5, 3))
    with pytest.warns(Explained, match=said):
        found = generator.generate(design, **given)
    plain = DataGenerator(SimulationConfig(50, 5, 3))
    pd.testing.assert_frame_equal(found, plain.generate(design))


def test_a_generator_called_again_draws_anew_and_one_of_its_seed_draws_the_same():
    first, second = (DataGenerator(SimulationConfig(50, 5, 3)) for _ in range(2))
    tables = [first.generate("SDGM1") for _ in range(3)]
    means = {float(table["time"].mean()) for table in tables}
    assert len(means) == 3
    for table in tables:
        pd.testing.assert_frame_equal(table, second.generate("SDGM1"))
    assert first.supported_types == ["weibull", "lognormal", "SDGM1", "SDGM2", "SDGM3", "SDGM4"]


def test_the_generators_of_everybody_else_are_left_alone():
    numbers, states = np.random.get_state()[1].copy(), torch.get_rng_state()
    DataSplitter(3, random_state=1).split(patients())
    assert np.array_equal(numbers, np.random.get_state()[1])
    assert torch.equal(states, torch.get_rng_state())


def test_bad_sizes_and_unknown_designs_are_refused():
    with pytest.raises(InvalidValue, match="n_samples = 0"):
        SimulationConfig(n_samples=0)
    with pytest.raises(InvalidValue, match='did you mean "SDGM1"'):
        DataGenerator().generate("SDGM11")
    with pytest.raises(InvalidValue, match="features"):
        DataGenerator(SimulationConfig(50, 2, 3)).generate("SDGM2")


@pytest.mark.parametrize("name", ["patients.csv", "patients", "patients.txt"])
def test_a_file_is_read_with_its_own_names(tmp_path: Path, name: str):
    frame = patients().rename(columns={"x1": "age", "time": "days", "status": "died"})
    frame.to_csv(tmp_path / name, index=False)
    found = DataLoader({"x2": "size"}, time_column="days", status_column="died").load(tmp_path / name)
    assert list(found.columns) == ["age", "size", "x3", "x4", "x5", "time", "status"]
    assert np.allclose(found["time"], frame["days"])
    assert found["status"].dtype == np.int64


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("status", 2, "status in .* 2 is there; it must be 1 .event. or 0"),
        ("time", -1.0, "1 of 200 records are not above 0"),
        ("x3", np.nan, "x3 in .* 1 of 200 records hold"),
        ("x3", "high", "x3 .* does not hold numbers"),
    ],
)
def test_what_is_not_survival_data_is_refused_by_name(tmp_path: Path, column: str, value: object, said: str):
    frame = patients().astype(object)
    frame.loc[7, column] = value
    frame.to_csv(tmp_path / "bad.csv", index=False)
    with pytest.raises(InvalidValue, match=said):
        DataLoader().load(tmp_path / "bad.csv")


def test_a_file_that_cannot_be_read_is_told_from_one_that_lacks_a_column(tmp_path: Path):
    for error in (InvalidFile, FileNotFoundError):
        with pytest.raises(error, match="No such file"):
            DataLoader().load(tmp_path / "nowhere")
    if find_spec("openpyxl") is None:
        (tmp_path / "sheet.xlsx").touch()
        with pytest.raises(InvalidFile, match=r"pip install 'tacit\[excel\]'"):
            DataLoader().load(tmp_path / "sheet.xlsx")
    (tmp_path / "empty").touch()
    with pytest.raises(InvalidFile, match="cannot be read: No columns"):
        DataLoader().load(tmp_path / "empty")
    patients().drop(columns="status").to_csv(tmp_path / "half.csv", index=False)
    with pytest.raises(InvalidValue, match="column status is missing"):
        DataLoader().load(tmp_path / "half.csv")


def test_a_divided_table_unpacks_as_in_the_original():
    made = DataSplitter(n_clients=3, random_state=2).split(patients())
    clients, features, labels, test, outcomes, augmented = made
    assert sorted(map(tuple, features)) == sorted(tuple(row) for x, _ in clients.values() for row in x)
    assert (made.train_data is features, made.train_label is labels) == (True, True)
    assert (made.test_data is test, made.test_label is outcomes, augmented) == (True, True, {})
    again = DataSet(
        clients_set=clients, train_data=features, train_label=labels, test_data=test, test_label=outcomes,
        raw_aug_clients_set={},
    )  # fmt: skip
    assert again == made
    alone = DataSet(clients, test, outcomes)
    assert (alone.test_data is test, len(alone.train_data)) == (True, len(features))
    with pytest.raises(InvalidValue, match="test_data"):
        DataSet(clients)


def test_names_are_found_where_the_original_has_them():
    from tacit.compat.federated_survival import calculate_cindex
    from tacit.compat.federated_survival.core import FSAConfig, FSARunner
    from tacit.compat.federated_survival.data import DataLoader as Loader
    from tacit.compat.federated_survival.utils import calculate_ibs

    assert (Loader, FSAConfig().n_rounds, FSARunner.__name__) == (DataLoader, 100, "FSARunner")
    time, event = np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4)
    assert calculate_cindex(time, event, -time) == 1.0
    grid, sure = np.array([1.5, 2.5, 3.5]), np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]])
    assert calculate_ibs(grid, sure, time, event) == 0.0
    assert calculate_ibs(grid, pd.DataFrame(sure.T, index=grid), time, event) == 0.0
    assert calculate_ibs(grid, 1 - sure, time, event) == 1.0
    with pytest.raises(InvalidValue, match="survival_curves"):
        calculate_ibs(grid, sure[:, :2], time, event)


@pytest.mark.parametrize(
    "split", ["iid", "random", "non-iid", "censoring-non-iid", "time-non-iid", "Dirichlet"]
)
def test_every_record_goes_to_one_client_or_to_the_test_set(split: str):
    frame = patients()
    # Labels that repeat, as after a concatenation: the original dealt such records out several times.
    frame.index = pd.Index(np.zeros(len(frame), dtype=int))
    made = DataSplitter(n_clients=4, split_type=split, alpha=0.5, test_size=0.25, random_state=2).split(frame)
    assert isinstance(made, DataSet)
    assert list(made.clients_set) == ["client0", "client1", "client2", "client3"]
    assert made.test_data.shape == (50, 5)
    assert made.test_label.shape == (50, 2)
    times = [*(y[:, 0] for _, y in made.clients_set.values()), made.test_label[:, 0]]
    assert np.array_equal(np.sort(np.concatenate(times)), np.sort(frame["time"].astype(np.float32)))
    for features, labels in made.clients_set.values():
        assert features.dtype == labels.dtype == np.float32
        assert features.shape == (len(labels), 5)
        assert labels[:, 1].any()


def test_the_splits_are_what_they_are_called():
    frame = patients(1000)
    kinds = {
        kind: [y for _, y in DataSplitter(4, kind, random_state=1).split(frame).clients_set.values()]
        for kind in ("iid", "non-iid", "time-non-iid")
    }
    shares = {kind: np.ptp([y[:, 1].mean() for y in parts]) for kind, parts in kinds.items()}
    assert shares["iid"] < 0.01 < 0.2 < shares["non-iid"]
    events = [y[y[:, 1] == 1, 0] for y in kinds["time-non-iid"]]
    assert all(before.max() <= after.min() for before, after in pairwise(events))


def test_the_same_seed_gives_the_same_split():
    first, again = (DataSplitter(3, random_state=5).split(patients()) for _ in range(2))
    other = DataSplitter(3).split(patients())
    assert np.array_equal(first.test_data, again.test_data)
    assert not np.array_equal(first.test_data, other.test_data)
    assert first.feature_names == ("x1", "x2", "x3", "x4", "x5")
    assert first.raw_aug_clients_set == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_clients": 0}, "n_clients = 0"),
        ({"n_clients": 2, "split_type": "idd"}, 'did you mean "iid"'),
        ({"n_clients": 2, "test_size": 1.0}, "test_size = 1.0"),
        ({"n_clients": 2, "split_type": "dirichlet", "alpha": 0}, "alpha = 0"),
    ],
)
def test_bad_options_of_a_split_are_refused(given: dict[str, object], said: str):
    with pytest.raises(InvalidValue, match=said):
        DataSplitter(**given)

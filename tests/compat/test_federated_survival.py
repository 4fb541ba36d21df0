"""Calls of the documentation of federated-survival, with only the import line changed."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot

from tacit import compat
from tacit.compat import federated_survival
from tacit.compat.federated_survival import Explained
from tacit.compat.federated_survival.core.config import MODELS, FSAConfig
from tacit.compat.federated_survival.core.differential_privacy import DifferentialPrivacy
from tacit.compat.federated_survival.core.runner import FSARunner
from tacit.compat.federated_survival.data.generator import DataGenerator, SimulationConfig
from tacit.compat.federated_survival.data.loader import DataLoader
from tacit.compat.federated_survival.data.splitter import DataSet, DataSplitter
from tacit.errors import InvalidValue

SERIES = ("train_Cindex", "train_IBS", "test_Cindex", "test_IBS")


@pytest.fixture(scope="module")
def client_data() -> DataSet:
    frame = DataGenerator(SimulationConfig(n_samples=100, n_features=10, random_state=42)).generate("weibull")
    return DataSplitter(n_clients=3, split_type="iid", alpha=0.5, test_size=0.2, random_state=42).split(frame)


def small(**options: object) -> FSAConfig:
    given = {"num_clients": 3, "n_features": 10, "n_samples": 100, "global_epochs": 2, "learning_rate": 0.01}
    return FSAConfig(**given | options)


def require_results(results: dict[str, list[float]], rounds: int) -> None:
    assert tuple(results) == SERIES
    for name, values in results.items():
        assert len(values) == rounds
        assert all(isinstance(value, float) and 0 <= value <= 1 for value in values), name


def test_every_name_is_found_in_its_module_and_at_the_top():
    for name in federated_survival.__all__:
        assert getattr(federated_survival, name).__name__ == name
    assert compat.federated_survival is federated_survival
    with pytest.raises(AttributeError, match="nonsense"):
        _ = federated_survival.nonsense


def test_data_are_generated_loaded_and_split(tmp_path: Path):
    generator = DataGenerator(config=SimulationConfig(n_samples=100, n_features=10, random_state=42))
    made = [generator.generate(kind, c_mean=0.4) for kind in ("weibull", "lognormal", "SDGM1")]
    made.append(generator.generate("SDGM2", u_max=7))
    with pytest.warns(Explained, match="u_max = 4 has no effect"):
        made.append(generator.generate("SDGM4", u_max=4))
    with pytest.warns(Explained, match="c_step = 0.4 has no effect"):
        made.append(generator.generate("SDGM3", c_step=0.4))
    assert all(frame.shape == (100, 12) for frame in made)
    made[0].to_csv(tmp_path / "data", index=False)
    pd.testing.assert_frame_equal(DataLoader().load(tmp_path / "data"), made[0])
    for kind in ("iid", "non-iid", "time-non-iid", "Dirichlet"):
        found = DataSplitter(3, split_type=kind, alpha=0.5, test_size=0.2, random_state=42).split(made[0])
        assert sum(len(x) for x, _ in found.clients_set.values()) + len(found.test_data) == 100


def test_a_run_gives_four_series_and_they_are_drawn(client_data: DataSet, tmp_path: Path):
    config = FSAConfig(
        num_clients=3,
        n_features=10,
        n_samples=100,
        model_type="PC-Hazard",
        local_epochs=2,
        global_epochs=2,
        learning_rate=0.01,
        batch_size=32,
        random_seed=42,
        client_sample_ratio=0.5,
        early_stopping=True,
        early_stopping_patience=5,
    )
    runner = FSARunner(config)
    results = runner.run(client_data)
    require_results(results, 2)
    assert [len(names) for names in results["selected_clients"]] == [2, 2]
    numbers = runner.last_run.state.size
    assert results["communication_bytes"] == [2 * 2 * 8 * numbers] * 2
    with pytest.raises(KeyError, match="nonsense"):
        results["nonsense"]
    style, figures = dict(mpl.rcParams), pyplot.get_fignums()
    path = tmp_path / "new" / "results.png"
    drawn = runner.plot_results(raw_results=results, output_path=path)
    assert path.stat().st_size > 0
    assert len(drawn.axes) == 2
    assert runner.plot_results(results, show=False).axes
    assert runner.plot_results(show=False).axes
    assert dict(mpl.rcParams) == style
    assert pyplot.get_fignums() == figures


def test_nothing_is_told_or_drawn_before_a_run():
    runner = FSARunner(FSAConfig())
    for call in (runner.get_privacy_info, runner.plot_results):
        with pytest.raises(InvalidValue):
            call()
    with pytest.raises(InvalidValue, match="call run"):
        runner.predict_survival(np.zeros((1, 20)))


@pytest.mark.parametrize("method", ["MVAEC", "MVAES"])
@pytest.mark.parametrize("private", [False, True])
def test_records_are_augmented(client_data: DataSet, method: str, private: bool):
    config = small(
        censor_rate=0.3,
        model_type="PC-Hazard",
        latent_num=10,
        hidden_num=30,
        alpha=1.0,
        beta=1.0,
        k=1.0,
        use_differential_privacy=private,
        dp_epsilon=2.0,
    )
    runner = FSARunner(config)
    with pytest.warns(Explained, match="censor_rate = 0.3 has no effect: the data are given"):
        results = runner.run(client_data, type="raw_aug", aug_method=method)
    require_results(results, 2)
    info = runner.get_privacy_info()
    assert any("augmentation_sampling" in text for text in info["explanations"])
    if private:
        # Synthetic records and training together cost what was promised.
        assert 1.0 < info["epsilon"] <= 2.0
    else:
        assert info["epsilon"] is None


def test_gaussian_noise_is_told_with_its_true_price(client_data: DataSet):
    config = FSAConfig(
        num_clients=5,
        n_features=20,
        n_samples=1000,
        model_type="PC-Hazard",
        global_epochs=5,
        use_differential_privacy=True,
        dp_mechanism="gaussian",
        dp_epsilon=1.0,
        dp_delta=1e-5,
        dp_sensitivity=1.0,
        dp_noise_multiplier=1.0,
        dp_clip_norm=1.0,
    )
    runner = FSARunner(config)
    # A multiplier that is said is explained, although it is the default; so are other sizes than the data's.
    with pytest.warns(Explained, match="num_clients = 5 has no effect") as warned:
        require_results(runner.run(client_data), 5)
    assert "dp_noise_multiplier = 1 contradicts dp_epsilon = 1: it would cost epsilon" in str(
        warned[0].message
    )
    info = runner.get_privacy_info()
    assert info["privacy_protection"] is True
    assert info["sensitivity"] == config.dp_clip_norm
    assert info["total_epsilon"] == info["epsilon"]
    assert info["epsilon"] / 5 < info["per_round_epsilon"] < info["epsilon"]
    assert info["mechanism"] == "gaussian"
    assert 0.98 < info["epsilon"] <= 1.0
    assert info["delta"] == 1e-5
    assert info["noise_scale"] == info["noise_multiplier"] * info["clip_norm"] > 5


def test_laplace_noise_needs_no_delta(client_data: DataSet):
    config = small(
        use_differential_privacy=True,
        dp_mechanism="laplace",
        dp_epsilon=1.0,
        dp_sensitivity=1.0,
        dp_clip_norm=1.0,
    )
    runner = FSARunner(config)
    require_results(runner.run(client_data), 2)
    info = runner.get_privacy_info()
    assert info["mechanism"] == "laplace"
    assert info["epsilon"] == pytest.approx(1.0)
    assert info["clip_norm"] == 1.0
    assert not {"delta", "noise_multiplier"} & set(info)


def test_a_configuration_is_chosen_by_the_exponential_mechanism():
    config = FSAConfig(
        use_differential_privacy=True, dp_mechanism="exponential", dp_epsilon=1.0, dp_sensitivity=1.0
    )
    private = DifferentialPrivacy(config)
    candidates, scores = torch.randn(5, 100), np.array([0.75, 0.80, 0.85, 0.78, 0.82])
    index = private.exponential_mechanism(candidates=candidates, quality_scores=scores, epsilon=1.0)
    assert f"{scores[index]:.4f}" in ("0.7500", "0.8000", "0.8500", "0.7800", "0.8200")
    assert private.exponential_mechanism_tensor(candidates=candidates, quality_scores=scores).shape == (100,)


def test_mechanisms_are_compared_in_a_loop(client_data: DataSet):
    found = {}
    for mechanism in ["gaussian", "laplace"]:
        config = FSAConfig(
            num_clients=5,
            n_features=20,
            model_type="PC-Hazard",
            global_epochs=3,
            use_differential_privacy=True,
            dp_mechanism=mechanism,
            dp_epsilon=1.0,
            dp_delta=1e-5 if mechanism == "gaussian" else None,
            dp_sensitivity=1.0,
        )
        with pytest.warns(Explained, match="num_clients = 5 has no effect"):
            found[mechanism] = FSARunner(config).run(client_data)
    for results in found.values():
        require_results(results, 3)


def test_the_scenarios_of_the_parameter_guide_are_valid():
    guide = [
        {"dp_mechanism": "gaussian", "dp_epsilon": 0.5, "dp_delta": 1e-6, "dp_clip_norm": 0.5},
        {"dp_mechanism": "gaussian", "dp_epsilon": 1.0, "dp_delta": 1e-5, "dp_clip_norm": 1.0},
        {"dp_mechanism": "laplace", "dp_epsilon": 5.0, "dp_clip_norm": 2.0},
    ]
    for options in guide:
        config = FSAConfig(use_differential_privacy=True, **options)
        assert config.dp_clip_norm == options["dp_clip_norm"]


def test_a_local_training_step_is_made_private():
    config = FSAConfig(use_differential_privacy=True, global_epochs=2)
    private, model = DifferentialPrivacy(config), torch.nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4, 3)).sum().backward()
    length = private.apply_dp_to_gradients(model=model, optimizer=optimizer, mechanism=config.dp_mechanism)
    optimizer.step()
    assert length > 0
    each, sigma = private.compute_privacy_budget(num_rounds=50, num_clients=5)
    assert 0 < each < 1 < sigma


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_every_model_learns_predicts_and_is_paid_for(client_data: DataSet, model: str, private: bool):
    nodes = () if model == "CoxPH" else (8,)
    config = small(model_type=model, num_nodes=nodes, num_durations=8, use_differential_privacy=private)
    runner = FSARunner(config)
    require_results(runner.run(client_data), 2)
    curves = runner.predict_survival(client_data.test_data)
    assert curves.shape == (len(curves.index), len(client_data.test_data))
    assert np.allclose(curves.iloc[0], 1.0)
    assert (curves.diff().iloc[1:] <= 1e-12).all().all()
    info = runner.get_privacy_info()
    if private:
        assert 0.9 < info["epsilon"] <= 1.0
        assert info["unit"] == "record"
        assert info["statement"].startswith("REHEARSAL")
    else:
        assert info["epsilon"] is None
        assert info["statement"].startswith("No promise")

"""Options of a configuration are honored or explained, and epsilon is the composed one."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

from tacit.compat.federated_survival import (
    DataGenerator,
    DataSet,
    DataSplitter,
    Explained,
    FSAConfig,
    FSARunner,
    SimulationConfig,
)
from tacit.errors import InvalidValue, Refused
from tacit.privacy import accounting
from tacit.privacy.accounting.release import clipped_release


@pytest.fixture(scope="module")
def clients() -> DataSet:
    frame = DataGenerator(SimulationConfig(n_samples=400, n_features=4, random_state=3)).generate("SDGM1")
    return DataSplitter(n_clients=4, random_state=1).split(frame)


def config(**options: object) -> FSAConfig:
    given = {
        "num_clients": 4,
        "n_features": 4,
        "n_samples": 400,
        "model_type": "LogisticHazard",
        "num_nodes": (8,),
        "num_durations": 10,
        "global_epochs": 3,
        "learning_rate": 0.01,
    }
    return FSAConfig(**given | options)


def private(**options: object) -> FSAConfig:
    return config(use_differential_privacy=True, **options)


def test_a_run_repeats_with_its_seed_and_leaves_other_generators_alone(clients: DataSet):
    numbers, states = np.random.get_state()[1].copy(), torch.get_rng_state()
    first, again = FSARunner(private()).run(clients), FSARunner(private()).run(clients)
    other = FSARunner(private(random_seed=7)).run(clients)
    assert first == again
    assert first != other
    assert np.array_equal(numbers, np.random.get_state()[1])
    assert np.array_equal(states, torch.get_rng_state())


def test_a_model_learns(clients: DataSet):
    results = FSARunner(config(global_epochs=20, local_epochs=3)).run(clients)
    assert results["train_Cindex"][-1] > results["train_Cindex"][0] + 0.02
    assert results["train_IBS"][-1] < results["train_IBS"][0] - 0.02


def test_the_told_epsilon_is_the_composed_price_of_the_told_noise(clients: DataSet):
    runner = FSARunner(private(local_epochs=2, batch_size=20, dp_epsilon=2.0))
    runner.run(clients)
    info = runner.get_privacy_info()
    # 80 records at a client: two epochs of four batches, each record drawn with probability one in four.
    release = clipped_release(info["noise_multiplier"], rate=0.25, count=2 * 4 * 3)
    assert info["epsilon"] == pytest.approx(accounting.epsilon([release], 1e-5), rel=1e-6)
    assert 1.98 < info["epsilon"] <= info["configured_epsilon"] == 2.0
    assert (info["unit"], info["relation"], info["rounds"]) == ("record", "add-remove", 3)


def test_the_statement_says_what_was_bare_and_that_it_was_a_rehearsal(clients: DataSet):
    runner = FSARunner(private())
    runner.run(clients)
    statement = runner.get_privacy_info()["statement"]
    assert statement.startswith("REHEARSAL: the noise repeats with the seed")
    assert "the C-index and IBS of the training records after every round" in statement
    assert "the number of records of all sites: 320" in statement


def test_whole_sites_are_protected_if_that_is_asked_for(clients: DataSet):
    runner = FSARunner(private(dp_unit="site"))
    runner.run(clients)
    info = runner.get_privacy_info()
    assert (info["unit"], info["relation"]) == ("site", "replace")
    release = clipped_release(info["noise_multiplier"], relation="replace", count=3)
    assert info["epsilon"] == pytest.approx(accounting.epsilon([release], 1e-5), rel=1e-3)


def test_clients_that_take_part_less_often_cost_less(clients: DataSet):
    runner = FSARunner(private(client_sample_ratio=0.25, global_epochs=4))
    runner.run(clients)
    assert runner.get_privacy_info()["epsilon"] < 1.0
    assert set(runner.last_run.history["sites"]) == {1}


def test_a_multiplier_that_contradicts_epsilon_is_explained_with_its_true_price(clients: DataSet):
    runner = FSARunner(private(dp_noise_multiplier=0.5, dp_epsilon=2.0))
    with pytest.warns(Explained, match="contradicts dp_epsilon = 2: it would cost epsilon") as said:
        runner.run(clients)
    info = runner.get_privacy_info()
    assert info["epsilon"] <= 2.0
    assert info["noise_multiplier"] > 0.5
    truth = accounting.epsilon([clipped_release(0.5, rate=0.4, count=9)], 1e-5)
    assert f"epsilon {truth:.4g} over 3 rounds" in str(said[0].message)


def test_a_multiplier_that_gives_more_noise_than_needed_is_used(clients: DataSet):
    runner = FSARunner(private(dp_noise_multiplier=30.0))
    runner.run(clients)
    info = runner.get_privacy_info()
    assert info["noise_multiplier"] == 30.0
    assert info["epsilon"] < 0.5


def test_the_sensitivity_is_that_of_the_clip(clients: DataSet):
    runner = FSARunner(private(dp_sensitivity=0.5, dp_clip_norm=2.0))
    with pytest.warns(Explained, match="dp_sensitivity = 0.5 has no effect in training: .* dp_clip_norm = 2"):
        runner.run(clients)
    info = runner.get_privacy_info()
    assert info["noise_scale"] == pytest.approx(2.0 * info["noise_multiplier"])


def test_the_exponential_mechanism_does_not_train(clients: DataSet):
    with pytest.raises(Refused, match="does not train: it chooses"):
        FSARunner(private(dp_mechanism="exponential")).run(clients)


def test_early_stopping_watches_the_training_concordance(clients: DataSet):
    runner = FSARunner(
        config(early_stopping=True, early_stopping_patience=1, global_epochs=60, learning_rate=0.3)
    )
    results = runner.run(clients)
    scores = results["train_Cindex"]
    assert len(scores) < 60
    assert scores[-1] <= max(scores[:-1])
    assert "train_Cindex has not improved" in str(runner.last_run.record.stopped)


def test_early_stopping_may_not_look_at_private_records(clients: DataSet):
    runner = FSARunner(private(early_stopping=True, early_stopping_patience=1))
    with pytest.warns(Explained, match="early_stopping is not done under differential privacy"):
        results = runner.run(clients)
    assert len(results["train_Cindex"]) == 3


def test_what_is_not_applied_is_said_once_by_warning_and_always_in_the_list(clients: DataSet):
    runner = FSARunner(config(dropout=0.4, batch_norm=True))
    with pytest.warns(Explained) as said:
        runner.run(clients)
    assert len(said) == 1
    assert "dropout = 0.4 is not applied" in str(said[0].message)
    assert "batch_norm = True is not applied" in str(said[0].message)
    runner.run(clients)
    assert any("dropout" in text for text in runner.explanations)
    by_default = FSARunner(config())
    by_default.run(clients)
    assert any("dropout = 0.1" in text for text in by_default.explanations)


def test_the_data_decide_and_a_configuration_that_says_otherwise_is_told_so(clients: DataSet):
    runner = FSARunner(config(num_clients=7, n_features=9, n_samples=50))
    with pytest.warns(Explained) as said:
        runner.run(clients)
    for words in ("num_clients = 7 .* have 4", "n_features = 9 .* have 4", "n_samples = 50 .* have 400"):
        assert re.search(words, str(said[0].message))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model_type": "CoxPH", "num_nodes": (8,)}, "num_nodes has no effect: CoxPH is linear"),
        ({"n_rounds": 7}, "n_rounds = 7 has no effect: the number of rounds is global_epochs"),
        ({"model_params": {"a": 1}}, "model_params"),
        ({"split_alpha": 0.1}, "the data are given to run"),
        ({"webdisco_l2": 0.1}, "federated_protocol is another one"),
    ],
)
def test_options_that_nobody_reads_are_named(clients: DataSet, options: dict[str, object], words: str):
    with pytest.warns(Explained, match=words):
        FSARunner(config(global_epochs=1, **options)).run(clients)


def test_the_other_protocols_are_honoured_or_refused(clients: DataSet):
    plain = FSARunner(config()).run(clients)
    near = FSARunner(config(federated_protocol="FedProx", proximal_mu=5.0)).run(clients)
    paced = FSARunner(config(federated_protocol="FedOpt", server_learning_rate=0.05)).run(clients)
    assert plain != near != paced != plain
    with pytest.raises(Refused, match="yogi"):
        FSARunner(config(federated_protocol="FedOpt", server_optimizer="yogi")).run(clients)
    with pytest.raises(Refused, match=r"tacit\.survival\.statistics\.cox"):
        FSARunner(config(federated_protocol="WebDISCO-style")).run(clients)


@pytest.mark.parametrize(
    "options",
    [{"optimizer": "sgd"}, {"full_batch": True}, {"activation": torch.nn.Tanh}, {"weight_decay": 5.0}],
)
def test_options_of_training_have_an_effect(clients: DataSet, options: dict[str, object]):
    assert FSARunner(config(**options)).run(clients) != FSARunner(config()).run(clients)


def test_a_private_full_batch_takes_everybody(clients: DataSet):
    runner = FSARunner(private(full_batch=True))
    runner.run(clients)
    told = runner.last_run.privacy.released
    assert len(told) == 1
    assert "3 noisy sums" in told[0]
    assert "drawn" not in told[0]


def test_the_window_of_the_brier_score_is_that_of_the_configuration(clients: DataSet):
    wide, narrow = (
        FSARunner(config(evaluation_quantiles=window)).run(clients) for window in ((0.05, 0.95), (0.4, 0.6))
    )
    assert wide["test_Cindex"] == narrow["test_Cindex"]
    assert wide["test_IBS"] != narrow["test_IBS"]


def test_rounds_are_shown_if_that_is_wanted(clients: DataSet, capsys: pytest.CaptureFixture[str]):
    FSARunner(config()).run(clients)
    assert capsys.readouterr().err == ""
    FSARunner(config(verbose=True)).run(clients)
    assert "round 3/3" in capsys.readouterr().err


def test_curves_come_from_frames_by_name_and_from_arrays(clients: DataSet):
    runner = FSARunner(config())
    runner.run(clients)
    frame = pd.DataFrame(clients.test_data, columns=list(clients.feature_names))
    found = runner.predict_survival(frame[["x3", "x1", "x4", "x2"]])
    assert np.allclose(found, runner.predict_survival(clients.test_data))
    with pytest.raises(InvalidValue, match="3 columns"):
        runner.predict_survival(clients.test_data[:, :3])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"test_data": np.zeros((0, 4)), "test_label": np.zeros((0, 2))}, "test_data"),
        ({"test_label": np.zeros(80)}, r"labels of test_data = 'shape \(80,\)'"),
        ({"test_label": np.full((80, 2), 2.0)}, "status in test_data"),
        ({"clients_set": {}}, "sites"),
    ],
)
def test_data_that_cannot_be_used_are_refused_by_name(
    clients: DataSet, change: dict[str, object], words: str
):
    broken = DataSet(**{**clients._asdict(), **change})
    with pytest.raises(InvalidValue, match=words):
        FSARunner(config()).run(broken)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model_type": "DeepSurf"}, 'did you mean "DeepSurv"'),
        ({"dropout": True}, "dropout = True"),
        ({"learning_rate": 0}, "learning_rate = 0"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"client_sample_ratio": 0}, "client_sample_ratio = 0"),
        ({"k": 1.5}, "k = 1.5"),
        ({"activation": "prelu"}, "activation"),
        ({"early_stopping": 1}, "early_stopping = 1"),
        ({"evaluation_quantiles": (0.9, 0.1)}, "evaluation_quantiles"),
        ({"random_seed": 1.5}, "random_seed = 1.5"),
        ({"use_differential_privacy": True, "dp_delta": None}, "delta = None"),
        ({"use_differential_privacy": True, "dp_epsilon": -1}, "dp_epsilon = -1"),
        ({"dp_unit": "patient"}, "dp_unit"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, object], words: str):
    with pytest.raises(InvalidValue, match=words):
        FSAConfig(**options)


def test_an_option_that_is_set_later_is_checked_when_a_run_begins(clients: DataSet):
    late = config()
    late.global_epochs = 0
    with pytest.raises(InvalidValue, match="global_epochs = 0"):
        FSARunner(late).run(clients)
    with pytest.raises(InvalidValue, match="aug_method"):
        FSARunner(config()).run(clients, type="raw_aug", aug_method="GAN")
    with pytest.raises(InvalidValue, match='"raw" or "raw_aug"'):
        FSARunner(config()).run(clients, type="aug")


def test_without_a_seed_every_run_is_another(clients: DataSet):
    first, second = (FSARunner(config(random_seed=None)).run(clients) for _ in range(2))
    assert first != second


def test_clients_too_small_for_augmentation_are_told_so(clients: DataSet):
    few = {
        name: (x[:9], y[:9]) if name == "client0" else (x, y) for name, (x, y) in clients.clients_set.items()
    }
    runner = FSARunner(config(n_samples=329, k=1.0, global_epochs=1))
    with pytest.warns(Explained, match="client0 is left out of augmentation: it has 9 records and"):
        runner.run(DataSet(few, clients.test_data, clients.test_label), type="raw_aug")


def test_the_collapsing_decay_of_the_original_is_honoured_if_it_is_said(clients: DataSet):
    assert FSAConfig().weight_decay == 0.01
    heavy = FSARunner(config(weight_decay=0.05, global_epochs=1))
    heavy.run(clients)
    assert heavy.last_run.task.decay == 0.05

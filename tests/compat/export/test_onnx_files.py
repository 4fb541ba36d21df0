"""Networks as ONNX: valid, and what a runtime makes of them is what the run says."""

import json
import sys
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import tacit
from tacit import Federation, Supervised, fit
from tacit.compat.export import export
from tacit.control import PPO
from tacit.errors import InvalidValue
from tacit.functional import Boosting
from tacit.functional.data.sources import SimulatedCurves
from tacit.sites.splits import SPLITS
from tacit.sites.table import from_arrays
from tacit.sites.vertical import ByParty
from tacit.survival import tasks
from tacit.survival.data.sources import Simulated
from tacit.survival.models.learner import ACTIVATIONS

SMALL = {"cuts": 6, "horizon": 3.0, "steps": 2, "sample": 0.3, "lr": 0.2}
NETWORKS = {
    "logistic-hazard": tasks.LogisticHazard(hidden=(5, 4), **SMALL),
    "pc-hazard": tasks.PCHazard(hidden=(4,), **SMALL),
    "poisson-ph": tasks.PoissonPH(hidden=(3,), **SMALL),
    "poisson-ph linear": tasks.PoissonPH(**SMALL),
    "deep-hit": tasks.DeepHit(hidden=(4,), **SMALL),
    "deep-surv": tasks.DeepSurv(hidden=(4, 3), **SMALL),
    "cox-ph": tasks.CoxPH(**SMALL),
    "cox-cc": tasks.CoxCC(hidden=(4,), **SMALL),
    "cox-time": tasks.CoxTime(hidden=(4, 3), **SMALL),
    "newton-ph": tasks.NewtonPH(horizon=3.0),
    "newton-ph hinge": tasks.NewtonPH(effects="hinge", ranges={"x1": [-1.0, 0.8]}, horizon=3.0),
    "cox-time linear": tasks.CoxTime(hidden=(), **SMALL),
}


@pytest.fixture(scope="module")
def patients():
    return Simulated(records=120, features=3).open(SPLITS["iid"](count=3), 0)


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(4).normal(size=(9, 3))


def told(path, **inputs) -> dict[str, np.ndarray]:
    """Run a file in an ONNX runtime."""
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_outputs()]
    found = session.run(names, {name: values.astype(np.float32) for name, values in inputs.items()})
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_runtime_gives_the_curves_of_the_run(kind, patients, rows, tmp_path):
    run = fit(NETWORKS[kind], patients, rounds=2)
    run = replace(run, state=run.state * 3)
    files = export(run, tmp_path, onnx=True)
    assert files[-1] == tmp_path / "model.onnx"
    for many in (1, 9):
        found = told(files[-1], features=rows[:many])
        grid = run.model.ends
        np.testing.assert_allclose(found["survival"], run.model.survival(rows[:many], grid), atol=1e-5)
        np.testing.assert_allclose(found["cumulative_hazard"], run.model.cumulative(rows[:many]), rtol=1e-4)
        card = json.loads((tmp_path / "card.json").read_text())
        assert set(found) == set(card["outputs"])
        if kind.startswith("newton-ph"):
            rates = np.log(found["cumulative_hazard"][:, :1]) - run.model.log_baseline[0]
            np.testing.assert_allclose(found["log_risk"], rates, atol=1e-5)
        elif "log_risk" in found:
            np.testing.assert_allclose(found["log_risk"], run.model.log_risk(rows[:many]), atol=1e-5)
        else:
            np.testing.assert_allclose(found["outputs"], run.model.outputs(rows[:many]), atol=1e-5)


@pytest.mark.parametrize("kind", ["newton-ph", "newton-ph hinge"])
def test_a_runtime_replaces_broken_features_by_their_center(kind, patients, tmp_path):
    run = fit(NETWORKS[kind], patients, rounds=2)
    found = told(
        export(run, tmp_path, onnx=True)[-1],
        features=(rows := np.array([[np.nan, 1.0, 9.0], [np.inf, -np.inf, 0.1], [-1e9, 1e9, -1e9]])),
    )
    hazard = np.cumsum(run.model.increments(rows), axis=1)
    np.testing.assert_allclose(found["cumulative_hazard"], hazard, rtol=1e-4)


def test_chances_of_several_causes_are_those_of_the_run(rows, tmp_path):
    generator = np.random.default_rng(1)
    tables = {
        name: from_arrays(
            generator.normal(size=(40, 3)),
            time=generator.exponential(size=40),
            event=generator.integers(0, 3, 40),
        )
        for name in "ab"
    }
    run = fit(tasks.DeepHit(hidden=(4,), causes=2, **SMALL), Federation(tables), rounds=2)
    found = told(export(run, tmp_path, onnx=True)[-1], features=rows)
    chances = run.model.loss.chances(run.model.outputs(rows))
    np.testing.assert_allclose(found["chances"][:, :-1].reshape(9, 2, 6), chances, atol=1e-6)
    np.testing.assert_allclose(found["survival"], run.model.survival(rows, run.model.ends), atol=1e-5)
    np.testing.assert_allclose(found["survival"][:, -1], found["chances"][:, -1], atol=1e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_is_the_same_in_a_runtime(activation, patients, rows, tmp_path):
    run = fit(tasks.PCHazard(hidden=(4, 4), activation=activation, **SMALL), patients, rounds=1)
    run = replace(run, state=run.state * 2)
    found = told(export(run, tmp_path, onnx=True)[-1], features=3 * rows)
    np.testing.assert_allclose(found["outputs"], run.model.outputs(3 * rows), atol=1e-5)


@pytest.mark.parametrize("share", ["all", "actor"])
def test_an_agent_acts_alike_in_a_runtime(share, tmp_path):
    task = PPO(
        hidden=(8,), envs=2, steps=64, share=share, center=(0.1, 0.0, 0.0, -0.2), scale=(2.0, 1.0, 0.5, 3.0)
    )
    run = fit(task, tacit.Worlds.of("CartPole-v1", copies=2), rounds=1)
    seen = np.random.default_rng(0).normal(size=(40, 4))
    found = told(export(run, tmp_path, onnx=True)[-1], observation=seen)
    raised = np.exp(found["logits"])
    np.testing.assert_allclose(
        raised / raised.sum(axis=1, keepdims=True), run.model.probabilities(seen), atol=1e-5
    )
    np.testing.assert_array_equal(found["action"], run.model.predict(seen, deterministic=True)[0])
    assert ("value" in found) == (share == "all")
    if share == "all":
        np.testing.assert_allclose(found["value"], run.model.values(seen), atol=1e-5)


def supervised(module: nn.Module):
    generator = np.random.default_rng(0)
    tables = {name: from_arrays(generator.normal(size=(30, 2)), y=generator.normal(size=30)) for name in "ab"}
    return fit(Supervised(module=module, loss="squared", lr=0.1), Federation(tables), rounds=1)


def test_your_own_stack_of_layers_is_drawn(tmp_path):
    run = supervised(nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 1)))
    rows = np.random.default_rng(2).normal(size=(4, 2))
    found = told(export(run, tmp_path, onnx=True)[-1], features=rows)
    said = run.model(torch.from_numpy(rows.astype(np.float32))).detach().numpy()
    np.testing.assert_allclose(found["outputs"], said, atol=1e-6)


class Doubled(nn.Module):
    """A network that no list of layers tells all of."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 1)

    def forward(self, rows):
        return 2 * self.inner(rows)


def test_what_is_no_network_is_refused_before_anything_is_written(patients, tmp_path):
    curves = SimulatedCurves(design="smooth", records=120).open(ByParty(count=2), seed=1)
    runs = {
        "a Cox regression": fit(tasks.Cox(), patients, rounds=8),
        "a survival curve": fit(tasks.KaplanMeier(horizon=2.0), patients, rounds=1),
        "a model of curves": fit(Boosting(size=6), curves),
        "not a plain stack": supervised(Doubled()),
    }
    for words, run in runs.items():
        with pytest.raises(InvalidValue, match=words):
            export(run, tmp_path / "export", onnx=True)
    assert list(tmp_path.iterdir()) == []


def test_without_onnx_the_extra_is_named_and_nothing_is_written(patients, tmp_path, monkeypatch):
    run = fit(NETWORKS["cox-ph"], patients, rounds=1)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InvalidValue, match=r"pip install 'tacit\[onnx\]'"):
        export(run, tmp_path / "export", onnx=True)
    assert list(tmp_path.iterdir()) == []
    assert len(export(run, tmp_path / "export")) == 3, "tensors and card need no extra"


def test_a_file_says_for_itself_that_it_is_from_a_rehearsal(patients, tmp_path):
    promise = tacit.Privacy(unit="record", epsilon=3.0, delta=1e-4, clip=1.0, rehearsal=True)
    run = fit(NETWORKS["logistic-hazard"], patients, privacy=promise, rounds=1)
    made = onnx.load(export(run, tmp_path, onnx=True)[-1])
    assert "gives no protection" in made.doc_string
    assert made.opset_import[0].version == 17, "runtimes of several years take it"
    assert made.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert {entry.name for entry in made.graph.initializer} >= {"layers.0.weight", "layers.0.bias"}

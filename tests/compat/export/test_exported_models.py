"""Exports are complete: card and tensors alone give the predictions of the run."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

import tacit
from tacit import Federation, Privacy, Supervised, fit
from tacit.compat.export import export, source
from tacit.control import PPO
from tacit.functional import Boosting
from tacit.functional.data.sources import SimulatedCurves
from tacit.runs.run import Run
from tacit.sites.encoding import Encoding
from tacit.sites.splits import SPLITS
from tacit.sites.table import from_arrays, from_frame
from tacit.sites.vertical import ByParty
from tacit.survival import tasks
from tacit.survival.data.sources import Simulated

RECORD = Privacy(unit="record", epsilon=3.0, delta=1e-4, clip=1.0, rehearsal=True)
SMALL = {"cuts": 6, "horizon": 3.0, "steps": 2, "sample": 0.3, "lr": 0.2}
NETWORKS = {
    "logistic-hazard": tasks.LogisticHazard(hidden=(5, 4), activation="gelu", **SMALL),
    "pc-hazard": tasks.PCHazard(hidden=(4,), activation="tanh", **SMALL),
    "poisson-ph": tasks.PoissonPH(hidden=(3,), activation="silu", **SMALL),
    "deep-hit": tasks.DeepHit(hidden=(4,), activation="elu", **SMALL),
    "deep-surv": tasks.DeepSurv(hidden=(4, 3), activation="softplus", **SMALL),
    "cox-ph": tasks.CoxPH(**SMALL),
    "cox-cc": tasks.CoxCC(hidden=(4,), activation="sigmoid", **SMALL),
    "cox-time": tasks.CoxTime(hidden=(4, 3), **SMALL),
    "newton-ph": tasks.NewtonPH(horizon=3.0),
    "newton-ph hinge": tasks.NewtonPH(effects="hinge", ranges={"x1": [-1.0, 0.8]}, horizon=3.0),
}
TIMES = np.array([0.0, 0.1, 0.77, 1.5, 2.999, 3.0, 7.0])


@pytest.fixture(scope="module")
def patients():
    return Simulated(records=120, features=3).open(SPLITS["iid"](count=3), 0)


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(4).normal(size=(9, 3))


def exported(run: Run, folder):
    """The card, the tensors, and the functions that the card's own lines define: nothing of the run."""
    export(run, folder)
    card = json.loads((folder / "card.json").read_text())
    tensors = load_file(folder / card["models"][0]["tensors"]["file"])
    return card, tensors


def recipe(name: str) -> dict:
    text, made = source(name), {"__name__": "copied"}
    assert "tacit" not in text.lower(), "whoever copies it needs nothing of ours"
    exec(compile(text, name, "exec"), made)
    return made


@pytest.mark.parametrize("kind", NETWORKS)
def test_survival_curves_follow_from_card_and_tensors(kind, patients, rows, tmp_path):
    run = fit(NETWORKS[kind], patients, rounds=2, out=tmp_path / "run")
    # Weights that were hardly trained would hide a mistake.
    run = replace(run, state=run.state * 3)
    card, tensors = exported(run, tmp_path / "export")
    made = recipe("survival")
    np.testing.assert_allclose(
        made["survival"](card, tensors, rows, TIMES),
        run.model.survival(rows, np.minimum(TIMES, run.model.ends[-1])),
        rtol=0,
        atol=1e-9,
    )
    np.testing.assert_allclose(
        made["cumulative_hazard"](card, tensors, rows), run.model.cumulative(rows), rtol=1e-9
    )
    assert card["task"]["kind"] == kind.partition(" ")[0]
    assert card["inputs"]["features"] == ["x1", "x2", "x3"]
    assert card["time"]["ends"] == pytest.approx(run.model.ends)
    assert card["tensors"] == {name: list(values.shape) for name, values in tensors.items()}


def test_layers_are_named_and_shaped_as_torch_has_them(patients, rows, tmp_path):
    run = fit(tasks.LogisticHazard(hidden=(5,), **SMALL), patients, rounds=1)
    _, tensors = exported(run, tmp_path)
    layers = nn.ModuleList([nn.Linear(3, 5), nn.Linear(5, 6)]).double()
    found = {
        name.removeprefix("layers."): torch.from_numpy(tensors[name]) for name in tensors if name != "grid"
    }
    layers.load_state_dict(found)
    said = layers[1](torch.relu(layers[0](torch.from_numpy(rows))))
    hazard = nn.functional.softplus(said).cumsum(1)
    np.testing.assert_allclose(hazard.detach().numpy(), run.model.cumulative(rows), rtol=1e-9)


def test_raw_columns_are_encoded_by_what_the_card_says(tmp_path):
    frame = pd.DataFrame({
        "age": np.linspace(30, 80, 40), "grade": [1, 2.0, None, 3] * 10, "sex": ["f", "m"] * 20,
        "time": np.linspace(0.1, 3, 40), "event": [1, 0] * 20,
    })  # fmt: skip
    rules = Encoding(
        levels={"sex": ["f", "m"], "grade": [1, 2, 3]},
        fill={"grade": 2},
        center={"age": 50.0},
        scale={"age": 9.0},
    )
    tables = {
        name: from_frame(part, targets=("time", "event"), place=name, encoding=rules)
        for name, part in (("a", frame[:20]), ("b", frame[20:]))
    }
    run = fit(tasks.LogisticHazard(hidden=(4,), **SMALL), Federation(tables, encoding=rules), rounds=2)
    card, tensors = exported(run, tmp_path)
    raw = frame.drop(columns=["time", "event"])
    made = recipe("survival")
    features = made["encode"](card, {name: raw[name].tolist() for name in card["inputs"]["raw"]})
    np.testing.assert_allclose(
        made["survival"](card, tensors, features, TIMES),
        run.model.survival(raw, np.minimum(TIMES, run.model.ends[-1])),
        atol=1e-9,
    )


@pytest.mark.parametrize("effects", ["linear", "hinge"])
def test_a_private_model_without_a_clip_bound_is_exported_with_its_scaling(effects, tmp_path):
    draw = np.random.default_rng(3)
    size = 400
    frame = pd.DataFrame({
        "age": 60 + 11 * draw.normal(size=size), "marker": np.exp(draw.normal(size=size)),
        "sex": draw.choice(["f", "m"], size), "time": draw.exponential(2.0, size) + 0.01,
        "event": draw.integers(0, 2, size), "site": np.arange(size) % 4,
    })  # fmt: skip
    rules = Encoding(levels={"sex": ["f", "m"]}, center={"age": 60.0}, scale={"age": 10.0})
    patients = Federation.from_frame(frame, site="site", targets=["time", "event"], encoding=rules)
    task = tasks.CoxPH(hidden=(4,) if effects == "hinge" else (), horizon=4.0, ranges={"marker": [0.0, 5.0]})
    run = fit(task, patients, privacy=replace(RECORD, epsilon=20.0, clip=None), out=tmp_path / "run")
    assert run.task.kind == "newton-ph"
    card, tensors = exported(run, tmp_path / "export")
    made = recipe("survival")
    raw = frame.drop(columns=["time", "event", "site"])
    features = made["encode"](card, {name: raw[name].tolist() for name in card["inputs"]["raw"]})
    np.testing.assert_allclose(
        made["survival"](card, tensors, features, TIMES),
        run.model.survival(raw, np.minimum(TIMES, run.model.ends[-1])),
        atol=1e-9,
    )
    # 0 and 1 of a level do not bend.
    assert tensors.get("bent", np.array([])).tolist() == ([0, 1] if effects == "hinge" else [])
    rows = np.array([[np.nan, 1.0, 0.0], [np.inf, np.nan, 1.0], [-1e9, 1e9, np.nan], [0.3, 0.2, 1.0]])
    hazard = np.cumsum(run.model.increments(rows), axis=1)
    np.testing.assert_allclose(made["cumulative_hazard"](card, tensors, rows), hazard, rtol=1e-9)
    words = " ".join(card["how"])
    assert "layers" not in words
    assert ("bent" in words) == (effects == "hinge")
    assert "shortened to length 1" in words


def test_a_cox_regression_is_its_coefficients(patients, rows, tmp_path):
    run = fit(tasks.Cox(), patients, rounds=8)
    card, tensors = exported(run, tmp_path)
    np.testing.assert_allclose(recipe("regression")["log_risk"](tensors, rows), run.model.log_risk(rows))
    np.testing.assert_array_equal(tensors["covariance"], run.model.covariance)
    assert card["inputs"]["features"] == list(run.model.columns)


@pytest.mark.parametrize("privacy", [tacit.Open(), RECORD])
def test_a_survival_curve_is_its_table(privacy, patients, tmp_path):
    run = fit(tasks.KaplanMeier(horizon=2.0, cuts=8), patients, privacy=privacy, rounds=1)
    card, tensors = exported(run, tmp_path)
    asked = np.array([0.0, 0.3, 1.1, 1.99, 2.0, 5.0])
    np.testing.assert_allclose(recipe("curve")["survival"](card, tensors, asked), run.model.at(asked))
    assert {"lower", "upper", "cumulative_hazard"} <= set(tensors)


@pytest.mark.parametrize("choice", ["b-splines", "fourier", "private", "smooth"])
def test_curves_follow_from_card_and_tensors(choice, tmp_path):
    parties = SimulatedCurves(design="smooth", records=200).open(ByParty(count=2), seed=1)
    options = {
        "b-splines": {"size": 8, "knots": (0.1, 0.3, 0.5, 0.9)},
        "fourier": {"basis": "fourier", "size": 9},
        "private": {"size": 8, "radius": 1.5},
        "smooth": {"size": 12, "smooth": 1e-3, "center": {"x1": 0.4}, "scale": {"y": 2.0, "x2": 0.5}},
    }[choice]
    promise = Privacy(unit="record", epsilon=50.0, delta=1e-4, clip=1.5, noise="server", rehearsal=True)
    privacy = promise if choice == "private" else tacit.Open()
    run = fit(Boosting(**options), parties, privacy=privacy)
    card, tensors = exported(run, tmp_path)
    assert card["inputs"]["needed"], "a model without predictors proves nothing"
    people = parties.held_out.take(range(5)).columns
    # Holes and long curves are part of what new subjects bring.
    given = {name: (people[name].times, people[name].values * 4) for name in card["inputs"]["needed"]}
    for _, values in given.values():
        values[0, 2:5] = np.nan
    times = np.linspace(*run.model.frames["y"].domain, 7)
    named = {name: replace(people[name], values=values, place=name) for name, (_, values) in given.items()}
    np.testing.assert_allclose(
        recipe("curves")["predict"](card, tensors, given, times), run.model.predict(named, times), atol=1e-8
    )
    first = card["inputs"]["needed"][0]
    np.testing.assert_allclose(tensors[f"surfaces.{first}"], run.model.surface(first))
    assert ("reach" in card["inputs"]["curves"][first]) == (choice == "private")


@pytest.mark.parametrize("share", ["all", "actor"])
def test_an_agent_acts_as_its_card_says(share, tmp_path):
    worlds = tacit.Worlds.of("CartPole-v1", copies=2)
    task = PPO(
        hidden=(8,), envs=2, steps=64, share=share, center=(0.1, 0.0, 0.0, -0.2), scale=(2.0, 1.0, 0.5, 3.0)
    )
    run = fit(task, worlds, rounds=1)
    card, tensors = exported(run, tmp_path)
    seen = np.random.default_rng(0).normal(size=(50, 4))
    made = recipe("policy")
    np.testing.assert_allclose(
        made["probabilities"](card, tensors, seen), run.model.probabilities(seen), atol=1e-9
    )
    np.testing.assert_array_equal(
        made["actions"](card, tensors, seen), run.model.predict(seen, deterministic=True)[0]
    )
    assert ("critic.layers.0.weight" in tensors) == (share == "all"), "nobody's critic is in no model"
    if share == "all":
        np.testing.assert_allclose(
            made["network"](card, tensors, "critic", seen)[:, 0], run.model.values(seen)
        )


def test_your_own_network_takes_its_tensors_back(tmp_path):
    generator = np.random.default_rng(0)
    tables = {name: from_arrays(generator.normal(size=(30, 2)), y=generator.normal(size=30)) for name in "ab"}
    task = Supervised(
        module=nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), loss="squared", lr=0.1
    )
    run = fit(task, Federation(tables), rounds=1)
    export(run, tmp_path)
    from safetensors.torch import load_file as load_torch

    fresh = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    fresh.load_state_dict(load_torch(tmp_path / "model.safetensors"))
    rows = torch.randn(4, 2, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(fresh(rows), run.model(rows))


def test_each_of_several_models_has_a_file_and_its_sites(patients, rows, tmp_path):
    from tacit.aggregation.defence.clustering import Clusters

    run = fit(tasks.LogisticHazard(hidden=(4,), **SMALL), patients, clusters=Clusters(count=2), rounds=3)
    files = {path.name for path in export(run, tmp_path)}
    assert {"model-0.safetensors", "model-1.safetensors"} <= files
    card = json.loads((tmp_path / "card.json").read_text())
    assert sorted(site for entry in card["models"] for site in entry["sites"]) == sorted(patients)
    for entry, model in zip(card["models"], run.models, strict=True):
        tensors = load_file(tmp_path / entry["tensors"]["file"])
        told = recipe("survival")["survival"](card, tensors, rows, TIMES)
        np.testing.assert_allclose(told, model.survival(rows, np.minimum(TIMES, model.ends[-1])), atol=1e-9)


@pytest.mark.parametrize("kind", ["survival", "curve", "regression", "policy", "curves"])
def test_the_lines_of_the_card_run_as_they_are(kind, patients, tmp_path, monkeypatch, capsys):
    curves = SimulatedCurves(design="smooth", records=120).open(ByParty(count=2), seed=1)
    made = {
        "survival": lambda: fit(NETWORKS["cox-time"], patients, rounds=1),
        "curve": lambda: fit(tasks.KaplanMeier(horizon=2.0), patients, rounds=1),
        "regression": lambda: fit(tasks.Cox(), patients, rounds=8),
        "policy": lambda: fit(
            PPO(hidden=(4,), envs=1, steps=16), tacit.Worlds.of("CartPole-v1", copies=2), rounds=1
        ),
        "curves": lambda: fit(Boosting(size=6), curves),
    }[kind]
    export(made(), tmp_path)
    (code,) = re.findall(r"^`{3,}\n(.*?)^`{3,}", (tmp_path / "card.md").read_text(), re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "card.md", "exec"), {"__name__": "copied"})
    assert "[" in capsys.readouterr().out

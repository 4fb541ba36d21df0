"""A record is read off the update of a site that has no other, unless a promise keeps it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit import Key, Open
from tacit.audits.inversion import demonstrate, invert
from tacit.engines.base import Local
from tacit.errors import InvalidValue, Refused
from tacit.experiments.experiment import construct_experiment
from tacit.learning.perceptron import build_layers
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.privacy.policy import Provenance
from tacit.sites.federation import RowFederation
from tacit.sites.splits import Iid
from tacit.sites.table import from_arrays
from tacit.survival.data.sources import Simulated

DATA = Simulated(records=120, features=5).open(Iid(count=2), 3)
MODELS = {
    "linear": {"kind": "logistic-hazard", "hidden": []},
    "perceptron": {"kind": "logistic-hazard", "hidden": [16, 16]},
    "linear Poisson": {"kind": "poisson-ph"},
    "deep Poisson": {"kind": "poisson-ph", "hidden": [8], "activation": "tanh"},
    "piecewise constant": {"kind": "pc-hazard", "hidden": [8]},
    "incidence": {"kind": "deep-hit", "hidden": [8], "ranking": 0.0},
}


def experiment(task=MODELS["perceptron"], **tables):
    return construct_experiment({"data": {"kind": "simulated"}, "task": task, **tables}, Path())


@pytest.mark.parametrize("task", MODELS.values(), ids=MODELS)
def test_a_record_is_read_off_exactly_unless_there_is_noise(task):
    found = demonstrate(experiment(task), DATA, patients=30)
    bare, weak, strong = found.readings
    assert (bare.epsilon, bare.exact, weak.epsilon, strong.epsilon) == (None, 30, 8.0, 1.0)
    assert bare.correlation == pytest.approx(1)
    assert bare.error < 1e-9
    assert weak.exact == strong.exact == 0
    assert max(abs(weak.correlation), abs(strong.correlation)) < 0.35
    assert min(weak.error, strong.error) > 0.5
    np.testing.assert_allclose(found.open, found.true, atol=1e-9)
    assert np.abs(np.subtract(found.private, found.true)).max() > 0.1


def test_columns_of_yes_and_no_are_read_off_as_well():
    features, targets = DATA.store.features.copy(), DATA.store.targets
    features[:, 1:3] = features[:, 1:3] > 0
    table = from_arrays(features, columns=DATA.store.columns, **targets)
    (bare, *_) = demonstrate(experiment(), RowFederation({"oslo": table}, public=True), patients=20).readings
    assert bare.exact == 20
    assert bare.correlation == pytest.approx(1)


def test_the_record_of_the_example_is_one_of_the_data():
    found = demonstrate(experiment(), DATA, patients=4)
    features = DATA.store.features
    record = np.array(found.true) * features.std(axis=0) + features.mean(axis=0)
    assert np.isclose(features, record).all(axis=1).sum() == 1


def test_noise_that_hides_nobody_hides_nothing():
    # So weak a promise is noise in the tenth digit: what was read off is near, and nothing else was broken.
    (_, kept) = demonstrate(experiment(), DATA, patients=10, epsilons=[1e12]).readings
    assert kept.correlation > 0.999


def test_the_clip_of_the_experiment_is_taken_if_it_protects_records():
    tables = [{"unit": "record", "epsilon": 1.0, "delta": 1e-5, "clip": clip} for clip in (1.0, 1e-3)]
    wide, narrow = (demonstrate(experiment(privacy=table), DATA, patients=4).private for table in tables)
    usual = demonstrate(experiment(), DATA, patients=4).private
    assert wide == usual
    assert narrow != usual


def test_patients_who_teach_nothing_are_left_out():
    # Censored within the first of few intervals, a patient adds nothing to the loss, and sends zeros.
    settled = experiment({"kind": "logistic-hazard", "cuts": 3}).task.bind(
        DATA, Provenance(Open(), public=True)
    )
    time, event = DATA.store.targets["time"], DATA.store.targets["event"]
    telling = int(((time > settled.cuts[0]) | (event > 0)).sum())
    assert telling < len(DATA.store)
    found = demonstrate(experiment({"kind": "logistic-hazard", "cuts": 3}), DATA, patients=telling)
    assert found.readings[0].exact == telling
    with pytest.raises(InvalidValue, match=f"at most {telling}"):
        demonstrate(experiment({"kind": "logistic-hazard", "cuts": 3}), DATA, patients=telling + 1)


def test_it_repeats_by_its_seed():
    one, again, other = (demonstrate(experiment(), DATA, patients=4, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one.true != other.true


def test_a_site_of_a_federation_that_draws_one_record_gives_it_away():
    # No site has a single record, but the step of a small draw may.
    task = experiment().task
    task = replace(task, steps=1, sample=0.01, lr=0.7).bind(DATA, Provenance(Open(), public=True))
    state, layers = task.start(DATA, Key(0)), task.program(5).layers
    for number in range(20):
        key = Key(number, rehearsal=True)
        updates = Local().train(task, DATA, state, list(DATA), NoPrivacy(), key).matrix
        read = np.stack([invert(update, layers) for update in updates])
        known = [np.isclose(DATA.store.features, row, atol=1e-8).all(axis=1).any() for row in read]
        if any(known):
            return
    pytest.fail("nobody was alone in twenty draws")


def test_where_nothing_came_back_nothing_is_told():
    layers = build_layers([3, 4, 2], "relu", bias=True)
    np.testing.assert_array_equal(invert(np.zeros(layers[-1].end), layers), np.zeros(3))


def test_layers_without_biases_cannot_be_inverted():
    layers = build_layers([3, 2], "relu", bias=False)
    with pytest.raises(InvalidValue, match="a first layer with biases"):
        invert(np.ones(layers[-1].end), layers)


def test_the_result_is_plain_data_and_a_sentence():
    found = demonstrate(experiment(), DATA, patients=6)
    told = json.loads(json.dumps(found.as_dict()))
    assert (told["kind"], told["patients"]) == ("inversion", 6)
    assert told["columns"] == ["x1", "x2", "x3", "x4", "x5"]
    assert [each["name"] for each in told["settings"]] == ["open", "private", "private"]
    assert told["example"]["epsilon"] == 8.0
    assert told["example"]["true"] == list(found.true)
    assert (
        "all 5 columns of the record could be reconstructed exactly for 6 of 6 patients" in told["sentence"]
    )
    assert "under epsilon 8 for none" in told["sentence"]
    assert "under epsilon 1 for none" in told["sentence"]


def test_private_records_are_not_shown():
    draws = np.random.default_rng(0)
    table = from_arrays(draws.normal(size=(20, 2)), columns=("a", "b"), time=np.ones(20), event=np.ones(20))
    with pytest.raises(Refused, match="shows real records"):
        demonstrate(experiment(), RowFederation({"oslo": table}))


@pytest.mark.parametrize(
    ("task", "options", "words"),
    [
        ({"kind": "deep-surv"}, {}, r"\[task\] kind = 'deep-surv'"),
        ({"kind": "deep-hit"}, {}, r"\[task\] kind = 'deep-hit'"),
        (MODELS["linear"], {"patients": 1000}, "patients = 1000 .* at most 9"),
        (MODELS["linear"], {"patients": 0}, "patients = 0"),
        (MODELS["linear"], {"patients": 2}, "patients = 2 .* at least 3"),
        (MODELS["linear"], {"epsilons": []}, "epsilons"),
        (MODELS["linear"], {"epsilons": [8.0, -1.0]}, "epsilons = -1.0"),
    ],
)
def test_what_cannot_be_shown_is_told_in_one_sentence(task, options, words):
    with pytest.raises(InvalidValue, match=words):
        demonstrate(experiment(task), DATA, **options)

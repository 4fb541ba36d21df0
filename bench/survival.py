"""Every survival model against federated-survival 0.8.0 on its own benchmark: same records, same work.

SDGM1, 10 features, equal sites; 2 mini-batches of 32 in each round, networks of 32 and 32 units, a new Adam
optimizer in each round, weight decay 0.01; after each round the C-index and the integrated Brier score on the
test records. The peer always scores the training records too. A second line shows its time without that; it
is the only line where scoring takes the peer half a minute. Private rounds follow the peer: the update of a
site is clipped to norm 1, and the site adds Gaussian noise of standard deviation 1 / sqrt(sites) to each
number.

Before the timing, both sides train on fewer records with full batches from the same weights, and all weights,
both scores and the noise are compared. Where the two differ by design, the check adapts one of them:

- The peer's last layer has no biases; ours has biases on a time grid. In the check, the peer has them too.
- The peer's grid begins with an interval of length 0. In the check and in the race, so does ours.
- The peer's DeepHit ranks by intervals, ours by times. In the check, our times are the ends of the intervals.
- Controls of CoxCC and CoxTime are random. In the check, the control is the record with the longest survival.
- The peer's CoxTime network receives standardized times, ours positions on the grid. In the check, both
  receive positions.
- The peer computes the baseline hazard of Cox models at every training time, ours on the grid. In the check,
  the grid contains all those times. Our CoxTime uses the middle of intervals, so its curves still differ a
  little.
- Our private run buys the baseline hazard once, at the end, so its Cox models have only a C-index after each
  round. The peer computes it from the raw records each time. In the check, so does ours.
"""

import math
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np

from bench.racing import Race, Work

COLUMNS, INTERVALS, STEPS, BATCH, SEED = 10, 25, 2, 32, 42
WORK = {"lr": 0.01, "optimizer": "adam", "decay": 0.01}
# In the check: so short that every update is clipped.
CHECKED_CLIP = 0.02
# Their names, and ours.
KINDS = {
    "LogisticHazard": "logistic-hazard",
    "PC-Hazard": "pc-hazard",
    "DeepHit": "deep-hit",
    "DeepSurv": "deep-surv",
    "CoxPH": "cox-ph",
    "CoxCC": "cox-cc",
    "CoxTime": "cox-time",
}
ON_GRID = ("LogisticHazard", "PC-Hazard", "DeepHit")
PEER = "federated-survival 0.8.0"


def dealt(records, sites):
    """Features, times and events of each site and of the test records, as single precision has them."""
    draws = np.random.default_rng(SEED)
    apart = np.abs(np.subtract.outer(np.arange(COLUMNS), np.arange(COLUMNS)))
    features = draws.multivariate_normal(np.zeros(COLUMNS), 0.6**apart, size=records)
    happening = draws.exponential(np.exp(0.1 * features[:, COLUMNS // 2 :].sum(axis=1)))
    censoring = draws.exponential(2.5, size=records)
    seen = (features, np.minimum(happening, censoring), happening < censoring)
    # The same share of events everywhere; every site holds as many records.
    order = np.argsort(seen[2], kind="stable")
    training = np.delete(order, np.s_[::5])
    places = {f"client{site}": training[site::sites] for site in range(sites)} | {"test": order[::5]}
    return {name: tuple(part[rows].astype(np.float32) for part in seen) for name, rows in places.items()}


def ends_of(model, parts, *, exact=False):
    """The ends of the intervals: quantiles of the training times, or all of these for Cox models."""
    times = np.unique(np.concatenate([time for name, (_, time, _) in parts.items() if name != "test"]))
    if exact and model not in ON_GRID:
        return times.astype(np.float64)
    # The first interval of these two has no length there, and next to none here.
    hollow = model in ("LogisticHazard", "DeepHit")
    levels = np.linspace(0, 1, INTERVALS + (not hollow))[1:]
    found = np.quantile(times, levels, method="nearest").astype(np.float64)
    return np.append(1e-9, found) if hollow else found


def begun(width):
    """The same weights for both to begin with."""
    return np.random.default_rng(SEED).normal(scale=0.2, size=width).astype(np.float32)


def ours(model, records, sites, rounds, private):
    """Tacit."""
    import tacit

    parts = dealt(records, sites)
    work = {**WORK, "steps": STEPS, "sample": BATCH * sites / (records * 4 // 5)}
    task, federation = _task(model, ends_of(model, parts), **work), _federation(parts)

    def run():
        promise = _promise(sites, private)
        return tacit.fit(task, federation, rounds=rounds, seed=SEED, privacy=promise).record.rounds[-1].scores

    return Work(run, lambda: _ours_checked(model, sites, private))


def _task(model, ends, **work):
    from tacit.survival.tasks import TASKS

    # The peer weighs the likelihood of DeepHit by 0.2.
    ranked = {"ranking": 0.8} if model == "DeepHit" else {}
    return TASKS[KINDS[model]](cuts=[float(end) for end in ends], **ranked, **work)


def _federation(parts):
    from tacit.sites.federation import RowFederation
    from tacit.sites.table import from_arrays

    tables = {name: from_arrays(x, time=time, event=event) for name, (x, time, event) in parts.items()}
    test, many = tables.pop("test"), sum(len(table) for table in tables.values())
    return RowFederation(tables, held_out=test, held_out_public=True, records=many)


def _promise(sites, private, clip=1.0):
    from tacit.privacy.policy import Open, Privacy

    if not private:
        return Open()
    return Privacy(unit="site", noise="site", noise_multiplier=sites**-0.5, clip=clip, delta=1e-5)


def _ours_checked(model, sites, private):
    """Two rounds of full batches without luck: the weights, and what is scored of them."""
    import tacit
    from tacit.learning.batches import Batch

    parts = dealt(40 * sites, sites)
    ends = ends_of(model, parts, exact=True)
    federation = _federation(_snapped(parts, ends) if model == "DeepHit" else parts)
    task = _task(model, ends, **WORK, steps=STEPS, sample=1.0)
    width = task.program(COLUMNS).size
    with ExitStack() as bent:
        start = begun(width).astype(np.float64)
        bent.enter_context(patch.object(type(task), "start", lambda *_: start))
        bent.enter_context(
            patch.object(Batch, "uniforms", property(lambda batch: np.zeros(batch.present.shape)))
        )
        bent.enter_context(patch("tacit.privacy.mechanisms.noise.gaussian", lambda values, *_: values))
        promise = _promise(sites, private, CHECKED_CLIP)
        run = tacit.fit(task, federation, rounds=2, seed=SEED, privacy=promise)
    weights = run.state[:width]
    curves = _curves(run.task, weights, federation, ends)
    noise = _noise(task, federation, _promise(sites, private)) if private else 0.0
    return {"weights": weights, "noise": noise, **_scores(model, curves, ends, *parts["test"][1:])}


def _snapped(parts, ends):
    """Events at the ends of their intervals; censored right after the end before, as pycox ranks them."""
    snapped = {"test": parts["test"]}
    for name, (features, time, event) in parts.items():
        if name != "test":
            after = ends[np.searchsorted(ends, time, side="left")]
            before = ends[np.searchsorted(ends, time, side="right") - 1] * (1 + 1e-12)
            snapped[name] = (features, np.where(event > 0, after, before), event)
    return snapped


def _curves(task, weights, federation, ends):
    """Predict survival of the test records at the ends; Cox models use the shared baseline hazard."""
    from tacit.privacy.mechanisms.base import NoPrivacy
    from tacit.runtime.keys import Key

    question, state = task.final_query, weights
    if question is not None:
        cohort = federation.cohort(list(federation))
        answers = question.train(weights, cohort, NoPrivacy(), Key(SEED)).matrix
        state = question.apply(weights, answers.mean(dim=0))
    return task.model(state).survival(federation.held_out.features, ends)


def _scores(model, curves, ends, time, event):
    """Both scores as pycox has them: steps between the ends, its ties, and Simpson's rule."""
    from scipy.integrate import simpson

    from tacit.survival.metrics import antolini, brier

    if model == "PC-Hazard":
        # The only one whose first step is at 0, where everybody lives.
        curves, ends = np.hstack([np.ones((len(curves), 1)), curves]), np.append(0.0, ends)
    low, high = np.quantile(time.astype(np.float64), (0.05, 0.95))
    grid = np.linspace(max(low, ends[0]), min(high, ends[-1]), 100)
    at_grid = curves[:, np.searchsorted(ends, grid, side="right") - 1]
    found = brier(time, event, at_grid, grid, rule="right")
    return {
        "c_index": antolini(time, event, curves, ends, ties="adjusted"),
        "ibs": simpson(found, x=grid) / (grid[-1] - grid[0]),
    }


def _noise(task, federation, promise):
    """The deviation of what a site adds to each number of its update."""
    from tacit.aggregation.mean import Mean
    from tacit.runtime.keys import Key

    mechanism = promise.solve(task, list(federation), Mean(), 1)
    return float(mechanism.at_site(np.zeros(200_000), Key(SEED)).std())


def federated_survival(model, records, sites, rounds, private):
    """The peer as it comes: it scores the training records as well."""
    from federated_survival.core.runner import FSARunner

    data = _data_set(dealt(records, sites))

    def run():
        found = FSARunner(_config(model, sites, private, global_epochs=rounds)).run(data)
        return {"c_index": found["test_Cindex"][-1], "ibs": found["test_IBS"][-1]}

    return Work(run, lambda: _theirs_checked(model, sites, private))


def federated_survival_test_only(model, records, sites, rounds, private):
    """The peer, if it scored the test records alone."""
    from federated_survival.core.server import Server

    work = federated_survival(model, records, sites, rounds, private)

    def run():
        with patch.object(Server, "model_eval", lambda *_: (math.nan, math.nan)):
            return work.run()

    return Work(run, work.check)


def _data_set(parts):
    from federated_survival.data.splitter import DataSet

    labelled = {name: (x, np.stack([time, event], axis=1)) for name, (x, time, event) in parts.items()}
    test = labelled.pop("test")
    return DataSet(labelled, None, None, *test, {})


def _config(model, sites, private, **choices):
    import torch
    from federated_survival.core.config import FSAConfig

    torch.set_num_threads(1)
    usual = {
        "num_clients": sites,
        "n_features": COLUMNS,
        "model_type": model,
        # In this version, the number of mini-batches in a round.
        "local_epochs": STEPS,
        "batch_size": BATCH,
        "learning_rate": WORK["lr"],
        "weight_decay": WORK["decay"],
        "dropout": 0.0,
        "num_durations": INTERVALS,
        "random_seed": SEED,
        "use_differential_privacy": private,
        **({"num_nodes": ()} if model == "CoxPH" else {}),
    }
    return FSAConfig(**usual | choices)


def _theirs_checked(model, sites, private):
    """Two rounds of full batches without luck: the weights, and what is scored of them."""
    from federated_survival.core.differential_privacy import DifferentialPrivacy
    from federated_survival.core.runner import FSARunner
    from federated_survival.models.adapters import get_model_adapter

    parts = dealt(40 * sites, sites)
    ends = ends_of(model, parts, exact=True)
    config = _config(model, sites, private, full_batch=True, global_epochs=2, dp_clip_norm=CHECKED_CLIP)
    adapter = type(get_model_adapter(model))
    with ExitStack() as bent:
        bent.enter_context(patch.object(adapter, "create_label_transform", lambda *_: _labels(model, ends)))
        bent.enter_context(patch.object(adapter, "build_network", lambda _, given: _network(model, given)))
        bent.enter_context(patch("pycox.models.data.sample_alive_from_dates", _longest))
        bent.enter_context(
            patch.object(DifferentialPrivacy, "add_gaussian_noise", lambda _, values, **__: values)
        )
        runner = FSARunner(config)
        found = runner.run(_data_set(parts))
    weights = [values.detach().numpy().ravel() for values in runner.server_.global_model.parameters()]
    return {
        "weights": np.concatenate(weights),
        "noise": _their_noise(_config(model, sites, private), sites) if private else 0.0,
        "c_index": found["test_Cindex"][-1],
        "ibs": found["test_IBS"][-1],
    }


def _labels(model, ends):
    """Return a function from times and events to targets on this grid."""
    from pycox import models
    from pycox.preprocessing.discretization import DiscretizeUnknownC, Duration2Idx

    if model == "CoxTime":
        return Clock(ends)
    if model not in ON_GRID:
        return None
    if model != "PC-Hazard":
        kind = models.LogisticHazard if model == "LogisticHazard" else models.DeepHitSingle
        return kind.label_transform(np.append(0.0, ends[1:]))
    labels = models.PCHazard.label_transform(np.append(0.0, ends))
    # What it forgets to make of a grid that is given.
    labels.duc = DiscretizeUnknownC(labels.cuts, right_censor=True, censor_side="right")
    labels.di = Duration2Idx(labels.cuts)
    return labels


class Clock:
    """Times for the network of CoxTime: places on the grid, from -1 to 1."""

    out_features = 1

    def __init__(self, ends):
        """The grid is known."""
        self._ends, self._places = np.append(0.0, ends), np.linspace(-1, 1, len(ends) + 1)

    def transform(self, durations, events):
        """Times as the network is told them."""
        return np.interp(durations, self._ends, self._places).astype(np.float32), events

    fit_transform = transform

    def map_scaled_to_orig(self, places):
        """And back."""
        return np.interp(places, self._places, self._ends)


def _network(model, config):
    """The peer's network with the weights that both begin with."""
    import torch
    from pycox.models.cox_time import MLPVanillaCoxTime
    from torchtuples.practical import MLPVanilla

    shape = {"num_nodes": config.num_nodes, "batch_norm": False, "dropout": 0.0}
    if model == "CoxTime":
        made = MLPVanillaCoxTime(COLUMNS, **shape)
    else:
        made = MLPVanilla(COLUMNS, out_features=config.out_features, output_bias=model in ON_GRID, **shape)
    weights = torch.from_numpy(begun(sum(values.numel() for values in made.parameters())))
    torch.nn.utils.vector_to_parameters(weights, made.parameters())
    return made


def _longest(dates, at_risk, n_control=1):
    """Choose one control for all cases: the record that was followed longest."""
    return np.array([[at_risk[date][-1]] * n_control for date in dates])


def _their_noise(config, sites):
    import torch
    from federated_survival.core.differential_privacy import DifferentialPrivacy

    nothing = {"weights": torch.zeros(200_000)}
    told = DifferentialPrivacy(config).privatize_model_update(nothing, nothing, num_clients=sites)
    return float(told["weights"].std())


def races():
    """All models, open and private, small and large."""
    for private in (False, True):
        for records, sites in ((2_000, 10), (20_000, 50)):
            for model in KINDS:
                peers = _peers(model, records, private)
                if not peers:
                    continue
                kind = "private" if private else "open"
                # What of the curves of CoxTime hangs on where in an interval it is asked is not the same.
                curves = 2e-3 if model == "CoxTime" else 1e-5
                yield Race(
                    name=f"{model}, {kind}, {records:,} records",
                    group=f"survival models, {kind}, {records:,} records",
                    given={
                        "model": model,
                        "records": records,
                        "sites": sites,
                        "rounds": ROUNDS.get((model, records), ROUNDS[records]),
                        "private": private,
                    },
                    ours=ours,
                    theirs=peers,
                    same={"weights": 1e-5, "noise": 0.005, "c_index": curves, "ibs": curves},
                    goal={next(iter(peers)): 20},
                    repeats=2 if records == 2_000 else 1,
                )


def _peers(model, records, private):
    """The peer as it comes, and what it takes without its training records; less where that takes long."""
    whole, part = {PEER: federated_survival}, {f"{PEER}, test records only": federated_survival_test_only}
    if (model, records) == ("CoxTime", 20_000):
        # One round takes it a quarter of an hour.
        return {}
    if records == 20_000 and model not in ON_GRID:
        # To score training records takes it half a minute a round, the same for all of these.
        return part
    # What it takes without them is the same in private.
    return whole if private else whole | part


# So many that the peer takes some seconds.
ROUNDS = {2_000: 20, ("CoxTime", 2_000): 1, 20_000: 1}
RACES = tuple(races())

"""A round of federated averaging against a loop over sites, pfl and Flower's simulation.

Every site has 100 records and takes 2 epochs of SGD in batches of 32. `open` has no privacy; `private` clips
the gradient of every record and adds noise in every step; `clipped` is private without the noise, to show its
cost. All sides return the same averaged weights: they start from the same state and use the batches of our
engine in a rehearsal. They are compared in double precision and without noise; peers are timed in single
precision, their default. Neither pfl nor Flower clips single records, so their private sites use the steps of
the loop.

Peers receive prepared batches, and Flower's actors keep data and network between messages: the timed work is
training and the overhead of the engine. The start of Ray is not counted; the CPU time of all its processes
is. With a thousand sites, only pfl and the loop are run, without privacy, because the others take minutes;
`growth` shows private rounds.
"""

import hashlib
import logging
import os
import tempfile
import time
from contextlib import suppress
from functools import lru_cache, partial
from itertools import cycle
from pathlib import Path

import numpy as np

from bench.racing import PATIENCE, Race, Work
from bench.step import (
    CLIP,
    COMPARED,
    LR,
    MULTIPLIER,
    TIMED,
    clipped_gradients,
    flat,
    network,
    records,
    tensors,
)

RECORDS, BATCH, EPOCHS = 100, 32, 2
REPEATS = 3
# Nothing is reported to anybody, and nobody else is listened to: the last keeps Ray on the loopback device.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
# The least that Ray accepts for objects; ours are small.
OBJECTS = 80_000_000


def ours(sites, guard):
    from tacit import Federation, Key, Local, Mean, Supervised
    from tacit.privacy.mechanisms.base import NoPrivacy
    from tacit.sites.table import from_arrays

    tables = zip(*records(sites, RECORDS), strict=True)
    data = Federation({name(site): from_arrays(x, y=y) for site, (x, y) in enumerate(tables)})
    task = Supervised(module=network(), loss="squared", epochs=EPOCHS, batch=BATCH, lr=LR)
    state, rehearsed = task.start(data, Key(0)), Key(0, rehearsal=True)

    def a_round(mechanism, key):
        updates = Local().train(task, data, state, list(data), mechanism, key)
        return task.advance(state, Mean()(updates))

    clipped, noisy = protected()
    if guard == "private":
        return Work(run=partial(a_round, noisy, Key(0)), check=partial(a_round, clipped, rehearsed))
    return Work(partial(a_round, NoPrivacy() if guard == "open" else clipped, rehearsed))


def protected():
    """Build our mechanism for records, without its noise and with it."""
    from tacit.privacy.mechanisms.base import RecordLevel, clip_factors

    class ClippedOnly(RecordLevel):
        def noisy_sums(self, contributions, keys, step):
            return contributions.total(clip_factors(contributions.lengths("l2"), self.clip))

    choices = {"law": "gaussian", "clip": CLIP, "multiplier": MULTIPLIER, "steps": 1, "rate": 1.0}
    return ClippedOnly(**choices), RecordLevel(**choices)


def name(site):
    return f"site-{site}"


def order(site):
    """Return the order of a site's records in a rehearsal of our engine (epochs, records).

    `(Key(0, rehearsal=True) / name / "batches").secret().uniform(...)`, ordered; written out for those who
    do not have our package.
    """
    parts = [part.encode() for part in ("int:0", f"str:{name(site)}", "str:batches")]
    path = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    seed = hashlib.sha256(b"rehearsal" + path).digest()
    drawn = hashlib.shake_128(seed + bytes(8)).digest(8 * EPOCHS * RECORDS)
    return (np.frombuffer(drawn, dtype="<u8") >> np.uint64(12)).reshape(EPOCHS, RECORDS).argsort(axis=1)


def batches(sites, precision):
    """For each site, for each epoch, features and targets of its batches."""
    cuts = range(BATCH, RECORDS, BATCH)
    return [
        [[tensors(precision, x[rows], y[rows]) for rows in np.split(epoch, cuts)] for epoch in order(site)]
        for site, (x, y) in enumerate(zip(*records(sites, RECORDS), strict=True))
    ]


def plain_loop(sites, guard):
    """One site after the other, as one writes it with torch."""

    def a_round(precision):
        train, start = local_training(sites, guard, precision), network(precision).state_dict()
        return np.mean([flat(train(site, start).values()) for site in range(sites)], axis=0)

    return Work(run=partial(a_round, TIMED), check=partial(a_round, COMPARED))


@lru_cache(maxsize=2)
def local_training(sites, guard, precision):
    """A function from a site and the weights that it gets to those that it returns."""
    import torch

    module, dealt = network(precision), batches(sites, precision)
    gradients = open_gradients(module) if guard == "open" else private_gradients(module, guard, precision)
    optimizer = torch.optim.SGD(module.parameters(), lr=LR)

    def train(site, weights):
        module.load_state_dict(weights)
        for epoch in dealt[site]:
            for x, y in epoch:
                gradients(x, y)
                optimizer.step()
        return module.state_dict()

    return train


def open_gradients(module):
    """A function that leaves the gradient of a batch where SGD looks."""

    def gradients(x, y):
        module.zero_grad()
        half_squares(module, x, y).backward()

    return gradients


def half_squares(module, x, y):
    return ((module(x)[:, 0] - y) ** 2).mean() / 2


def private_gradients(module, guard, precision):
    """A function that leaves the clipped gradients of a batch there, with noise where that is timed."""
    noisy = guard == "private" and precision == TIMED
    return partial(clipped_gradients(module), multiplier=MULTIPLIER if noisy else 0.0)


def pfl(sites, guard):
    """Its own averaging, model, backend and sampler."""
    return Work(run=pfl_round(sites, guard, TIMED), check=pfl_round(sites, guard, COMPARED))


def pfl_round(sites, guard, precision):
    import torch
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    module = network(precision)
    module.loss, module.metrics = partial(half_squares, module), dict
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    start, backend = model.get_parameters(), pfl_backend(sites, precision)
    algorithm = pfl_averaging(module, guard, precision)
    plan = NNAlgorithmParams(
        central_num_iterations=2, evaluation_frequency=2, train_cohort_size=sites, val_cohort_size=0
    )
    local = NNTrainHyperParams(local_num_epochs=EPOCHS, local_learning_rate=LR, local_batch_size=BATCH)

    def a_round():
        model.set_parameters(start)
        # The first of its rounds evaluates as well; this is the second.
        algorithm._current_central_iteration = 1
        algorithm.run(plan, backend, model, local, send_metrics_to_platform=False)
        return flat(module.parameters())

    return a_round


def pfl_averaging(module, guard, precision):
    """Its algorithm; where records are protected, with another training step."""
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.metrics import Metrics

    gradients = private_gradients(module, guard, precision)

    def step(module, optimizer, batch, *_):
        gradients(*batch)
        optimizer.step()

    class Private(FederatedAveraging):
        def train_one_user(self, initial_model_state, model, user_dataset, central_context):
            model.do_multiple_epochs_of(user_dataset, central_context.model_train_params, step)
            return model.get_model_difference(initial_model_state), Metrics()

    return FederatedAveraging() if guard == "open" else Private()


def pfl_backend(sites, precision):
    """Its simulation, with datasets that deal our batches."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler

    class Dealt(Dataset):
        def __init__(self, site, epochs):
            super().__init__(raw_data=epochs, user_id=name(site))
            self.epochs = cycle(epochs)

        def __len__(self):
            return RECORDS

        def iter(self, batch_size):
            return next(self.epochs)

    users = {name(site): Dealt(site, epochs) for site, epochs in enumerate(batches(sites, precision))}
    # Nobody comes twice before everybody came once.
    data = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(users)))
    return SimulatedBackend(training_data=data, val_data=data)


def flower(sites, guard):
    """Its simulation by Ray, with two actors of one core each; all rounds of a race in one run of it."""
    times = []

    def check():
        found, taken = flower_rounds(sites, guard)
        times.extend(taken)
        return flat(found.values())

    def seconds():
        if not times:
            check()
        return times.pop(0)

    return Work(run=check, seconds=seconds)


def flower_rounds(sites, guard):
    """Return the answer of a round in double precision, and seconds of rounds in single precision."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        os.environ.update(QUIET, FLWR_HOME=place)
        from flwr.simulation import run_simulation

        logging.getLogger("flwr").setLevel(logging.ERROR)
        server, found, times = flower_server(sites)
        ray = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": OBJECTS, "_temp_dir": place}
        run_simulation(
            server,
            flower_client(sites, guard),
            num_supernodes=sites,
            backend_config={"init_args": ray, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
        )
    return found, times


def flower_client(sites, guard):
    """A site: it trains the weights that it gets."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message, context):
        local = local_training(sites, guard, message.content["config"]["precision"])
        weights = message.content["arrays"].to_torch_state_dict()
        trained = local(int(context.node_config["partition-id"]), weights)
        reply = {"arrays": ArrayRecord(trained), "metrics": MetricRecord({"num-examples": RECORDS})}
        return Message(RecordDict(reply), reply_to=message)

    return app


def flower_server(sites):
    """The server, and where it puts what it finds."""
    from flwr.app import ArrayRecord, ConfigRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    app, found, times = ServerApp(), {}, []

    @app.main()
    def main(grid, context):
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=sites, min_available_nodes=sites)

        def a_round(precision):
            start, told = ArrayRecord(network(precision).state_dict()), ConfigRecord({"precision": precision})
            return strategy.start(grid=grid, initial_arrays=start, num_rounds=1, train_config=told).arrays

        found.update(a_round(COMPARED).to_torch_state_dict())
        # The first makes the actors ready; then as many as the race will ask for.
        a_round(TIMED)
        times.append(spent(partial(a_round, TIMED)))
        for _ in range(min(REPEATS, max(1, round(PATIENCE / times[0][1]))) - 1):
            times.append(spent(partial(a_round, TIMED)))

    return app, found, times


def spent(work):
    """CPU seconds of all processes from this one down, and wall seconds."""
    before, began = clocks(), time.perf_counter()
    work()
    wall, after = time.perf_counter() - began, clocks()
    return sum(now - before.get(process, 0.0) for process, now in after.items()), wall


def clocks():
    """The CPU seconds of this process and of all that it started, and they."""
    parents = {}
    for process in (int(path.name) for path in Path("/proc").glob("[0-9]*")):
        with suppress(OSError):
            parents[process] = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    family = {os.getpid()}
    while children := {process for process, parent in parents.items() if parent in family} - family:
        family |= children
    seconds = {}
    for process in family:
        with suppress(OSError):
            # The clock of another process, as clock_getcpuclockid(3) numbers it on Linux.
            seconds[process] = time.clock_gettime((~process << 3) | 2)
    return seconds


def race(sites, guard, theirs, goal=None):
    return Race(
        name=f"{sites} sites, a round, {guard}",
        group=f"a round of {sites} sites, {guard}",
        given={"sites": sites, "guard": guard},
        ours=ours,
        theirs=theirs,
        same=1e-5,
        goal=goal,
        repeats=REPEATS,
    )


LOOP = {"plain loop": plain_loop}
PFL = {"pfl 0.6": pfl}
FLOWER = {"Flower 1.41 simulation": flower}
GOALS = {"plain loop": 50, "pfl 0.6": 60, "Flower 1.41 simulation": 100}
RACES = [
    race(10, "open", LOOP | PFL | FLOWER),
    race(10, "private", LOOP | PFL),
    race(100, "open", LOOP | PFL | FLOWER),
    race(100, "clipped", LOOP),
    race(100, "private", LOOP | PFL | FLOWER, GOALS),
    race(1000, "open", LOOP | PFL),
]

"""Private training against Opacus and against a plain loop over sites, on the same work in one run.

Both sides must compute the same numbers before they are timed. CPU time, one thread, repetitions interleaved,
median ratio with its spread. Run it alone: `make bench-training`.
"""

import resource
import statistics
import time
import warnings

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from tacit import Federation, Key, Local, Supervised
from tacit.privacy.mechanism import ProtectedRecords, Unprotected, clip_factors
from tacit.sites.tables import from_arrays

RECORDS, BATCH, EPOCHS, LR, CLIP = 100, 32, 2, 0.05, 1.0
STEPS = 50


class ClippedOnly(ProtectedRecords):
    """Clipping without noise, which is what the plain loop does."""

    def noisy_sums(self, contributions, keys, step):
        """The sums of clipped contributions."""
        return contributions.total(clip_factors(contributions.lengths("l2"), self.clip))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))


def federation(sites: int, records: int) -> Federation:
    draws = np.random.default_rng(1)
    return Federation(
        {
            f"site-{i}": from_arrays(draws.normal(size=(records, 10)), y=draws.normal(size=records))
            for i in range(sites)
        }
    )


def mechanism(kind: type[ProtectedRecords], multiplier: float = 1.0) -> ProtectedRecords:
    return kind(law="gaussian", clip=CLIP, multiplier=multiplier, steps=1, rate=1.0, rehearsal=True)


def ours(task, data, guard):
    state = task.start(data, Key(0))
    key = Key(0, rehearsal=True)
    return lambda: Local().train(task, data, state, list(data), guard, key).matrix


def order(data, name):
    """The batches that our engine deals to a site, so that the loop does the same work."""
    return (Key(0, rehearsal=True) / name / "batches").secret().uniform((EPOCHS, RECORDS)).argsort(axis=1)


class PlainLoop:
    """One site after the other, as one would write it with torch."""

    def __init__(self, data, *, clip: bool) -> None:
        self.module, self.clip = network(), clip
        self.start = {name: values.detach().clone() for name, values in self.module.named_parameters()}
        self.sites = [
            (*(torch.tensor(a, dtype=torch.float32) for a in (t.features, t.targets["y"])), order(data, name))
            for name, t in ((name, site.table) for name, site in data.items())
        ]
        self.per_record = vmap(grad(self.loss), in_dims=(None, 0, 0))

    def loss(self, parameters, x, y):
        """The loss of one record."""
        return ((functional_call(self.module, parameters, (x,))[..., 0] - y) ** 2 / 2).sum()

    def __call__(self):
        """The updates of all sites."""
        return torch.stack([self.site(*site) for site in self.sites])

    def site(self, x, y, epochs):
        """The update of one site."""
        with torch.no_grad():
            for name, values in self.module.named_parameters():
                values.copy_(self.start[name])
        optimizer = torch.optim.SGD(self.module.parameters(), lr=LR)
        for positions in epochs:
            for begin in range(0, RECORDS, BATCH):
                rows = positions[begin : begin + BATCH]
                optimizer.zero_grad()
                (self.clipped if self.clip else self.plain)(x[rows], y[rows])
                optimizer.step()
        moved = [(v.detach() - self.start[n]).reshape(-1) for n, v in self.module.named_parameters()]
        return torch.cat(moved)

    def plain(self, x, y):
        """The gradient of a batch."""
        ((self.module(x)[:, 0] - y) ** 2 / 2).mean().backward()

    def clipped(self, x, y):
        """The mean of clipped gradients of the records of a batch."""
        parameters = {name: values.detach() for name, values in self.module.named_parameters()}
        rows = self.per_record(parameters, x, y)
        lengths = torch.sqrt(sum(g.flatten(1).square().sum(1) for g in rows.values()))
        factors = (CLIP / lengths).clamp(max=1.0)
        for name, values in self.module.named_parameters():
            values.grad = torch.einsum("b,b...->...", factors, rows[name]) / len(x)


def opacus_steps(data, noise: float):
    """So many private steps on one batch with Opacus hooks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer

        module = GradSampleModule(network())
    (table,) = [site.table for site in data.values()]
    x = torch.tensor(table.features, dtype=torch.float32)
    y = torch.tensor(table.targets["y"], dtype=torch.float32)
    start = [values.detach().clone() for values in module.parameters()]

    def train():
        with torch.no_grad(), warnings.catch_warnings():
            for values, kept in zip(module.parameters(), start, strict=True):
                values.copy_(kept)
        optimizer = DPOptimizer(
            torch.optim.SGD(module.parameters(), lr=LR),
            noise_multiplier=noise,
            max_grad_norm=CLIP,
            expected_batch_size=len(x),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(STEPS):
                optimizer.zero_grad()
                ((module(x)[:, 0] - y) ** 2 / 2).mean().backward()
                optimizer.step()
        moved = [(v.detach() - s).reshape(-1) for v, s in zip(module.parameters(), start, strict=True)]
        return torch.cat(moved)[None]

    return train


def seconds(work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def compare(label: str, fast, slow, *, repeat: int, check=None):
    found, expected = (check or (fast, slow))[0](), (check or (fast, slow))[1]()
    apart = float((found.double() - expected.double()).abs().max())
    assert apart < 1e-5, f"{label}: the two sides differ by {apart}"
    pairs = [(seconds(fast), seconds(slow)) for _ in range(repeat)]
    ratios = sorted(theirs / our for our, theirs in pairs)
    our = statistics.median(pair[0] for pair in pairs)
    spread = f"{ratios[0]:.1f} to {ratios[-1]:.1f}"
    print(f"| {label} | {1e3 * our:.2f} | {statistics.median(ratios):.1f} | {spread} |", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    print("| same work, CPU time | ours, ms | times faster | range |\n| --- | ---: | ---: | ---: |")
    one = federation(1, BATCH)
    steps = Supervised(module=network(), loss="squared", steps=STEPS, sample=1.0, lr=LR)
    compare(
        f"{STEPS} private steps of one site, batch {BATCH}, against Opacus 1.6 (hooks)",
        ours(steps, one, mechanism(ProtectedRecords)),
        opacus_steps(one, 1.0),
        repeat=7,
        check=(ours(steps, one, mechanism(ClippedOnly)), opacus_steps(one, 0.0)),
    )
    epochs = Supervised(module=network(), loss="squared", epochs=EPOCHS, batch=BATCH, lr=LR)
    for sites, repeat in ((10, 5), (100, 5)):
        data = federation(sites, RECORDS)
        clipped, loop = mechanism(ClippedOnly), PlainLoop(data, clip=True)
        compare(
            f"a round of {sites} sites, clipped, against a plain loop",
            ours(epochs, data, clipped),
            loop,
            repeat=repeat,
        )
        compare(
            f"a round of {sites} sites, open, against a plain loop",
            ours(epochs, data, Unprotected()),
            PlainLoop(data, clip=False),
            repeat=repeat,
        )
    print("\n| sites | clipped, ms per site | with noise, ms per site | peak memory, MB |")
    print("| ---: | ---: | ---: | ---: |")
    for sites in (1, 10, 100, 1000):
        data = federation(sites, RECORDS)
        times = [
            min(seconds(ours(epochs, data, mechanism(kind))) for _ in range(3))
            for kind in (ClippedOnly, ProtectedRecords)
        ]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"| {sites} | {1e3 * times[0] / sites:.3f} | {1e3 * times[1] / sites:.3f} | {peak:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

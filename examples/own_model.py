"""Network and loss of your own across three clinics, with record-level privacy.

Run it: `python examples/own_model.py`. The data are drawn here, so the run is a rehearsal.
"""

import numpy as np
import torch
from torch import Tensor, nn

import tacit
from tacit.sites.table import Table, from_arrays


def clinic(seed: int, patients: int, place: str) -> Table:
    """Simulate patients whose visits are Poisson, with a rate that depends on two of five features."""
    draws = np.random.default_rng(seed)
    features = draws.normal(size=(patients, 5))
    visits = draws.poisson(np.exp(0.5 * features[:, 0] - 0.5 * features[:, 1]))
    return from_arrays(features, visits=visits, place=place)


def poisson_loss(output: Tensor, visits: Tensor) -> Tensor:
    """Return the negative log-likelihood of one patient's visits."""
    return torch.exp(output[0]) - visits * output[0]


def main() -> None:
    """Train without and with a promise, and compare."""
    sites = {name: clinic(number, 400, name) for number, name in enumerate(("oslo", "bergen", "tromso"))}
    federation = tacit.Federation(sites, held_out=clinic(99, 2000, "held out"))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
    task = tacit.Supervised(module=net, loss=poisson_loss, steps=2, sample=0.25, batch=100, lr=0.2)
    promise = tacit.Privacy(unit="record", epsilon=2, delta=1e-5, clip=1.0, rehearsal=True)
    for privacy in (tacit.Open(), promise):
        print(tacit.fit(task, federation, privacy=privacy, rounds=30, seed=1))


if __name__ == "__main__":
    main()

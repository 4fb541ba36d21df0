"""False alarms of quarantine at honest sites, and rounds until it finds liars, without and with noise.

Federated Cox regression: 20 sites of 60 to 140 patients, 20 features, updates with momentum, 4 liars, 50
rounds. `het` is how much sites differ: in their effects (0.15 a deviation), in the means of their features
(0.3) and in their scales (0.2). Accused are honest sites that were ever left out, found are liars that were.
Under noise updates are vectors of length 1 about a common one, clipped to 1, with noise at every site, and
liars turn theirs round.

Floors, center, drift and threshold were chosen among some twenty settings on seeds 0 to 15. What is printed
comes from other seeds, which nothing was chosen by. Run it alone: `make bench-quarantine`.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import statistics

import numpy as np

from tacit.aggregation.attacks import (
    Alie,
    GaussianNoise,
    InnerProduct,
    LabelFlip,
    Mimic,
    Scaling,
    SignFlip,
)
from tacit.aggregation.defence.quarantine import Quarantine
from tacit.aggregation.robust.coordinatewise import TrimmedMean
from tacit.aggregation.robust.mixing import Mixing
from tacit.learning.task import Updates
from tacit.runtime.keys import Key

SITES, LIARS, ROUNDS, WIDTH = 20, 4, 50, 20
SEEDS = range(100, 116)
ATTACKS = (
    None,
    Scaling(liars=LIARS),
    SignFlip(liars=LIARS),
    GaussianNoise(liars=LIARS),
    InnerProduct(liars=LIARS),
    LabelFlip(liars=LIARS),
    Alie(liars=LIARS, deviations=1.5),
    Mimic(liars=LIARS),
)


class Cox:
    """Sites that fit one linear Cox model together, each with its own baseline."""

    def __init__(self, seed, het, liars, attack):
        draws = np.random.default_rng([seed, int(10 * het)])
        self.effects, self.speed = np.zeros(WIDTH), np.zeros((SITES, WIDTH))
        self.sites = [self.patients(draws, het, draw) for draw in self.truth(draws, het)]
        for place in liars if isinstance(attack, LabelFlip) else ():
            self.sites[place] = tuple(values[::-1] for values in self.sites[place])

    @staticmethod
    def truth(draws, het):
        """The effects at each site."""
        common = 1.2 * draws.normal(size=WIDTH) / np.sqrt(WIDTH)
        return common + 0.15 * het * draws.normal(size=(SITES, WIDTH))

    @staticmethod
    def patients(draws, het, effects):
        """Features and events, the longest time first: all that the gradient depends on."""
        count = int(draws.integers(60, 141))
        scale, shift = np.exp(0.2 * het * draws.normal()), 0.3 * het * draws.normal(size=WIDTH)
        x = scale * draws.normal(size=(count, WIDTH)) + shift
        times = draws.exponential(np.exp(-x @ effects))
        censored = draws.exponential(2 * np.median(times), size=count)
        order = np.argsort(-np.minimum(times, censored))
        return x[order], (times <= censored)[order].astype(float)

    def updates(self):
        """Draw the updates of the sites without noise, one row each."""
        slopes = np.stack([self.slope(x, event) for x, event in self.sites])
        self.speed = 0.9 * self.speed + 0.1 * slopes
        return self.speed

    def slope(self, x, event):
        """The way up for one site, per event."""
        risk = np.exp(np.clip(x @ self.effects, -30, 30))[:, None]
        means = np.cumsum(risk * x, axis=0) / np.cumsum(risk, axis=0)
        return event @ (x - means) / max(event.sum(), 1)

    def advance(self, step):
        """Take a step."""
        self.effects = self.effects + 0.3 * step


class Noisy:
    """Updates of length 1 about a common direction, and noise at every site."""

    def __init__(self, seed, sites, width, noise):
        self.draws, self.noise = np.random.default_rng([seed, width]), noise
        rows = self.draws.normal(size=width) + 0.5 * self.draws.normal(size=(sites, width))
        self.rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def updates(self):
        """Draw the updates of the sites, one row each."""
        return self.rows + self.noise * self.draws.normal(size=self.rows.shape)

    def advance(self, step):
        """Nothing is learned."""


def named(sites):
    return tuple(f"site-{number:02d}" for number in range(sites))


def watched(world, attack, lying, seed, names, most):
    """In which round each site was first left out."""
    rule, watch = Mixing(then=TrimmedMean(f=most)), Quarantine(mode="exclude")
    standings, first = {}, {}
    for number in range(1, ROUNDS + 1):
        updates = Updates(names, world.updates().copy(), number)
        if attack is not None:
            updates = attack.poison_updates(updates, lying, rule, Key(seed))
        standings, _ = watch.judge(updates, standings, most)
        for name, standing in standings.items():
            if standing.status == "quarantined":
                first.setdefault(name, number)
        world.advance(rule(watch.admit(updates, standings)))
    return first


def row(attack, make, sites=SITES, most=LIARS, seeds=SEEDS):
    names, accused, found = named(sites), [], []
    for seed in seeds:
        lying = () if attack is None else attack.draw_liars(names, Key(seed))
        world = make(seed, [names.index(name) for name in lying])
        first = watched(world, attack, lying, seed, names, most)
        honest = [name for name in names if name not in lying]
        accused.append(sum(name in first for name in honest) / len(honest))
        found += [first.get(name) for name in lying]
    rounds = [number for number in found if number is not None]
    if not found:
        return f"{statistics.mean(accused):.3f} | - | - | - |"
    soon = sum(number <= 6 for number in rounds) / len(found)
    last = f"{statistics.median(rounds):.0f} / {max(rounds)}" if rounds else "-"
    return f"{statistics.mean(accused):.3f} | {len(rounds) / len(found):.2f} | {soon:.2f} | {last} |"


def main() -> None:
    print("| het | attack | accused | found | within 6 rounds | rounds, median / last |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for het in (0, 1, 2):
        for attack in ATTACKS:
            kind = "none" if attack is None else attack.kind
            cells = row(attack, lambda seed, liars, h=het, a=attack: Cox(seed, h, liars, a))
            print(f"| {het} | {kind} | {cells}", flush=True)
    print("\n| sites | numbers | noise in each | its length | accused | found | within 6 | median / last |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for sites, most in ((8, 2), (20, 4)):
        for width in (5, 20, 100, 1000):
            for noise in (0.05, 0.1, 0.2, 0.3, 0.5, 1.0):
                attack = SignFlip(liars=most)
                cells = row(
                    attack,
                    lambda seed, liars, n=sites, w=width, s=noise: Noisy(seed, n, w, s),
                    sites, most, SEEDS[:6],
                )  # fmt: skip
                print(f"| {sites} | {width} | {noise:g} | {noise * width**0.5:.2g} | {cells}", flush=True)


if __name__ == "__main__":
    main()

"""Scaling: CPU seconds against sites, records, parameters and rounds, on logarithmic axes.

A slope of 1 means that twice as much work takes twice as long; a smaller slope means that some work is
shared. Peers are shown where they are fast enough. The races compare the answers.
"""

from bench import accounting, metrics, rounds
from bench.racing import Growth, Work


def our_round(sites):
    return rounds.ours(sites, "private")


def plain_loop(sites):
    return rounds.plain_loop(sites, "private")


def concordance(records):
    return metrics.ours("Harrell's C", records)


def scikit_survival(records):
    return metrics.scikit_survival("Harrell's C", records)


def lifelines(records):
    return metrics.lifelines("Harrell's C", records)


def our_fit(records=2_000, rounds=20, parameters=2_000):
    """A survival model at eight sites, under a promise to single records, scored after every round."""
    import tacit
    from tacit.sites.splits import Iid
    from tacit.sites.table import from_frame
    from tacit.survival import LogisticHazard
    from tacit.survival.data import simulate

    table = from_frame(
        simulate("SDGM1", records=records + 500, features=10, seed=1), targets=("time", "event")
    )
    parts = Iid(count=8)(table.take(range(records)), tacit.Key(1))
    sites = {name: table.take(rows) for name, rows in parts.items()}
    apart = table.take(range(records, records + 500))
    federation = tacit.Federation(sites, held_out=apart, held_out_public=True)
    # Ten features, two hidden layers, twenty outputs.
    width = round((256 + parameters) ** 0.5 - 16)
    task = LogisticHazard(hidden=(width, width), horizon=3.0, steps=5, sample=0.1, lr=0.1)
    promise = tacit.Privacy(unit="record", noise_multiplier=2.0, delta=1e-5, clip=1.0, rehearsal=True)

    def run():
        # After every round it asks what that cost; a second run would know from the first.
        accounting.forget()
        return tacit.fit(task, federation, privacy=promise, rounds=rounds, seed=1).state

    return Work(run)


def our_statistics(records):
    from bench import cox

    return cox.ours(records=records, features=10)


def lifelines_cox(records):
    from bench import cox

    return cox.lifelines(records=records, features=10)


GROWTHS = [
    Growth(
        name="a round, private",
        over="sites",
        values=(1, 10, 100, 1_000),
        sides={"ours": our_round, "plain loop": plain_loop},
        most={"plain loop": 100},
    ),
    Growth(
        name="Harrell's C",
        over="records",
        values=(1_000, 10_000, 100_000),
        sides={"ours": concordance, "lifelines 0.30": lifelines, "scikit-survival 0.28": scikit_survival},
        most={"scikit-survival 0.28": 10_000},
    ),
    Growth(
        name="Cox regression across five sites",
        over="records",
        values=(1_000, 4_000, 16_000),
        sides={"ours": our_statistics, "lifelines 0.30": lifelines_cox},
    ),
    Growth(
        name="a private fit, 8 sites, 20 rounds",
        over="records",
        values=(1_000, 10_000, 100_000),
        sides={"ours": our_fit},
    ),
    Growth(
        name="a private fit, 8 sites, 20 rounds",
        over="parameters",
        values=(500, 5_000, 50_000),
        sides={"ours": our_fit},
    ),
    Growth(
        name="a private fit, 8 sites",
        over="rounds",
        values=(5, 20, 80),
        sides={"ours": our_fit},
    ),
]

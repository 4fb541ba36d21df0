"""Accounting against Opacus (PRV) and plain dp-accounting (PLD): time to answer the same question.

The epsilon of many releases, and the noise for a target epsilon. Ours starts with empty caches every time.
Opacus solves for noise to a tolerance of 0.01 in epsilon, its default; its PRV accountant is set to an error
of 0.01. Our epsilon is never below the true one, and within 1.5 % of the peers' here.
"""

from bench.racing import Race, Work

DELTA = 1e-5
EPSILONS = {
    "10,000 sampled releases": (1.0, 0.01, 10_000),
    "400 sampled releases": (2.6, 0.1, 400),
    "100 plain Gaussians": (3.0, 1.0, 100),
}
NOISES = {
    "10,000 sampled releases": (1.0, 0.01, 10_000),
    "400 sampled releases": (3.0, 0.1, 400),
}


def ours(question, value, rate, steps):
    from tacit.privacy import accounting

    def run():
        forget()
        if question == "noise":
            return accounting.calibrate(epsilon=value, delta=DELTA, rate=rate, steps=steps)
        return accounting.epsilon([accounting.clipped_release(value, rate=rate, count=steps)], DELTA)

    return Work(run)


def forget():
    """Let ours begin without what it remembers of questions before: a fair race, as in a new process."""
    from tacit.privacy import accounting
    from tacit.privacy.accounting import pld

    for known in (accounting.epsilon_of, accounting._coarse_bound, pld.single):
        known.cache_clear()


def dp_accounting(question, value, rate, steps):
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    def event(multiplier):
        step = dp_accounting.GaussianDpEvent(multiplier)
        sampled = step if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, step)
        return dp_accounting.SelfComposedDpEvent(sampled, steps)

    if question == "noise":
        return Work(
            lambda: dp_accounting.calibrate_dp_mechanism(PLDAccountant, event, value, DELTA, tol=1e-3)
        )
    return Work(lambda: PLDAccountant().compose(event(value)).get_epsilon(DELTA))


def opacus(question, value, rate, steps):
    from opacus.accountants import PRVAccountant
    from opacus.accountants.utils import get_noise_multiplier

    def epsilon():
        accountant = PRVAccountant()
        accountant.history = [(value, rate, steps)]
        return accountant.get_epsilon(DELTA, eps_error=0.01)

    def noise():
        return get_noise_multiplier(
            target_epsilon=value, target_delta=DELTA, sample_rate=rate, steps=steps, accountant="prv"
        )

    return Work(noise if question == "noise" else epsilon)


RACES = [
    Race(
        name=f"{question} of {what}",
        group=f"{question} of {what}",
        given={"question": question, "value": value, "rate": rate, "steps": steps},
        ours=ours,
        theirs={"dp-accounting 0.6 (PLD)": dp_accounting, "Opacus 1.6 (PRV)": opacus},
        same=0.015,
    )
    for question, cases in (("epsilon", EPSILONS), ("noise", NOISES))
    for what, (value, rate, steps) in cases.items()
]

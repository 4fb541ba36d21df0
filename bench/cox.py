"""Cox regression and Kaplan-Meier across five sites against peers with all records in one place.

Coefficients, standard errors and bands are compared before the timing. lifelines and scikit-survival have all
records in one place and send nothing. federated-survival's WebDISCO uses five sites, as ours does, supports
only Breslow's method for ties, and gives no standard errors.
"""

import numpy as np

from bench.racing import Race, Work

SITES = 5
LIFELINES, SKSURV, WEBDISCO = "lifelines 0.30", "scikit-survival 0.28", "federated-survival 0.8.0 (WebDISCO)"


def patients(records, features, ties=False):
    """Features, times and events, and each patient's site."""
    draws = np.random.default_rng([records, features])
    x = draws.normal(size=(records, features))
    times = draws.exponential(np.exp(0.1 * x[:, features // 2 :].sum(axis=1)))
    censored = draws.exponential(2.5, size=records)
    time = np.minimum(times, censored)
    event = (times < censored).astype(float)
    return x, np.ceil(time * 100) / 100 if ties else time, event, draws.integers(SITES, size=records)


def across_sites(records, features, ties=False):
    from tacit import Federation
    from tacit.sites.table import from_arrays

    x, time, event, site = patients(records, features, ties)
    rows = {f"site-{number}": site == number for number in range(SITES)}
    return Federation(
        {name: from_arrays(x[own], time=time[own], event=event[own]) for name, own in rows.items()}
    )


def in_one_place(records, features, ties=False):
    import pandas as pd

    x, time, event, site = patients(records, features, ties)
    names = [f"x{number}" for number in range(1, features + 1)]
    return pd.DataFrame(x, columns=names).assign(time=time, event=event, site=site)


def ours(strata=None, **drawn):
    from tacit.survival.statistics import cox

    federation = across_sites(**drawn)

    def run():
        fit = cox(federation, strata=strata)
        return np.concatenate([fit.coefficients, fit.standard_errors])

    return Work(run)


def lifelines(strata=None, **drawn):
    from lifelines import CoxPHFitter

    data = in_one_place(**drawn)
    data = data if strata else data.drop(columns="site")

    def run():
        fit = CoxPHFitter().fit(data, "time", "event", strata=strata)
        return np.concatenate([fit.params_, fit.standard_errors_])

    return Work(run)


def our_coefficients(**drawn):
    from tacit.survival.statistics import cox

    federation = across_sites(**drawn)
    return Work(lambda: cox(federation, strata=None).coefficients)


def scikit_survival(**drawn):
    from sksurv.linear_model import CoxPHSurvivalAnalysis
    from sksurv.util import Surv

    x, time, event, _ = patients(**drawn)
    known = Surv.from_arrays(event == 1, time)
    return Work(lambda: CoxPHSurvivalAnalysis(ties="efron").fit(x, known).coef_)


def webdisco(**drawn):
    from federated_survival.core.config import FSAConfig
    from federated_survival.protocols.webdisco import WebDISCOStyleCoxProtocol

    x, time, event, site = patients(**drawn)
    labels = np.column_stack([time, event])
    clients = {f"client{number}": (x[site == number], labels[site == number]) for number in range(SITES)}
    choices = {"model_type": "CoxPH", "num_nodes": (), "num_clients": SITES, "n_features": x.shape[1]}
    protocol = WebDISCOStyleCoxProtocol()
    protocol.config = FSAConfig(**choices, federated_protocol="WebDISCO-style")
    return Work(lambda: protocol.fit_coefficients(clients).coefficients)


def our_curve(**drawn):
    from tacit.survival.statistics import kaplan_meier

    federation = across_sites(**drawn)
    return Work(lambda: kaplan_meier(federation).table[["survival", "lower", "upper"]].to_numpy())


def lifelines_curve(**drawn):
    from lifelines import KaplanMeierFitter

    data = in_one_place(**drawn)

    def run():
        fit = KaplanMeierFitter().fit(data["time"], data["event"])
        return np.column_stack([fit.survival_function_, fit.confidence_interval_])

    return Work(run)


def sizes(records, features=None):
    return f"{records:,} records" + ("" if features is None else f", {features} features")


RACES = [
    *(
        Race(
            name=f"Cox, {baseline}, {sizes(records, features)}" + (", ties" if ties else ""),
            group=f"Cox regression, {baseline}, {sizes(records, features)}" + (", ties" if ties else ""),
            given={"records": records, "features": features, "ties": ties, "strata": strata},
            ours=ours,
            theirs={LIFELINES: lifelines},
            # lifelines stops a little early; it is timed as it comes.
            same=1e-6,
        )
        for baseline, strata in (("a baseline for each site", "site"), ("one baseline", None))
        for records, features, ties in ((1_000, 5, False), (10_000, 10, False), (10_000, 10, True))
        if not (strata and ties)
    ),
    Race(
        name=f"Cox, one baseline, coefficients alone, {sizes(1_000, 5)}",
        group=f"Cox regression, coefficients alone, {sizes(1_000, 5)}",
        given={"records": 1_000, "features": 5},
        ours=our_coefficients,
        theirs={SKSURV: scikit_survival, WEBDISCO: webdisco},
        same=1e-5,
    ),
    *(
        Race(
            name=f"Kaplan-Meier with its band, {sizes(records)}",
            group=f"Kaplan-Meier with its band, {sizes(records)}",
            given={"records": records, "features": 2},
            ours=our_curve,
            theirs={LIFELINES: lifelines_curve},
            same=1e-9,
        )
        for records in (1_000, 10_000, 100_000)
    ),
]

"""Survival across five breast-cancer cohorts: statistics, and a model with record-level privacy.

Run it: `python examples/survival_api.py`. Records are published: the run is a rehearsal, its noise repeats.
"""

import tacit
from tacit.survival import PoissonPH, data
from tacit.survival.statistics import cox, kaplan_meier

cohorts = data.federation("metabric-2019", cause="any", held_out=0.25, seed=7)  # five cohorts, five sites

# Statistics without a promise: equal to lifelines on pooled records, and no event time leaves a site.
print(cox(cohorts).summary()[["exp(coef)", "se(coef)", "p"]].head(4).round(4), "\n")
half = kaplan_meier(cohorts, grid=[365.25 * year for year in range(1, 16)])
print(f"median survival {half.median / 365.25:.1f} years\n")

# A model under a promise: all releases would be almost as likely without any one patient.
promise = tacit.Privacy(unit="record", epsilon=1, delta=1e-4, clip=1.0, rehearsal=True)
task = PoissonPH(horizon=365.25 * 15, steps=5, sample=0.2, lr=0.5)
run = tacit.fit(task, cohorts, privacy=promise, rounds=20, seed=7, baselines=True, name="breast-cancer")
print(run.summary(), "\n")

# Predictions: the probability of survival after 5 and 10 years, for three held-out patients.
patients = cohorts.held_out.features[:3]
print(run.model.survival(patients, times=[365.25 * 5, 365.25 * 10]).round(2))
print("\nreport", run.report("breast-cancer.html"))

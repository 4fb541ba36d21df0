"""Function-on-function regression: three parties hold different curves of the same people.

Run it: `python examples/functional_api.py`. Curves are simulated: the run is a rehearsal, its noise repeats.
"""

import tacit
from tacit.functional import Boosting
from tacit.functional.data.sources import SimulatedCurves
from tacit.sites.vertical import ByParty

# party-1 has the response y, x1 and x4; party-2 has x2; party-3 has x3. Only x1 and x2 matter.
parties = SimulatedCurves(design="smooth", records=6000).open(ByParty(count=3), seed=7)

# Secure aggregation computes one noisy Gram matrix of all curves; everything after that is free.
promise = tacit.Privacy(unit="record", epsilon=1, delta=1e-5, clip=1.5, noise="secure", rehearsal=True)
run = tacit.fit(Boosting(radius="private"), parties, privacy=promise, seed=7, baselines=True, name="curves")
print(run.summary(), "\n")

# The selected curves, their importance, and the surface beta(s, t) of one of them.
print(run.model.summary().round(3), "\n")
print(run.model.surface("x1", s=[0.25, 0.75], t=[0.25, 0.75]).round(1), "\n")

# The predicted response of two held-out people, at three times.
people = {name: curves.take([0, 1]) for name, curves in parties.held_out.columns.items()}
print(run.model.predict(people, times=[0.0, 0.5, 1.0]).round(1))
print("\nreport", run.report("curves.html"))

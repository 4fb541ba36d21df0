"""An experiment that takes a moment, for whatever attacks it."""

FILE = """
name = "study"
rounds = 2
[data]
kind = "simulated"
design = "weibull"
records = 200
features = 3
[sites]
kind = "iid"
count = 3
[task]
kind = "logistic-hazard"
cuts = 4
sample = 1.0
[privacy]
unit = "record"
epsilon = 4.0
delta = 1e-5
clip = 1.0
rehearsal = true
"""

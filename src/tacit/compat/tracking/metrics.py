"""What is told of rounds and runs, whoever shows it: numbers by name, and words."""

import math

from tacit.learning.record import Round
from tacit.runs.run import Run


def numbers(entry: Round) -> dict[str, float]:
    """What a round has to say in numbers; what nobody may know is not among them."""
    found = {f"scores/{name}": value for name, value in entry.scores.items()}
    known = {
        "privacy/epsilon": entry.epsilon,
        "round/sites": entry.sites,
        "round/seconds": entry.seconds,
        "round/faults": len(entry.faults),
        "round/skipped": int(entry.skipped is not None),
    }
    return found | {name: float(value) for name, value in known.items() if value is not None}


def results(run: Run) -> dict[str, float]:
    """The final scores, and those of the baselines, by whose they are."""
    known = {"federated": run.scores, **run.baselines}
    return {
        f"final/{whose}/{name}": value for whose, scores in known.items() for name, value in scores.items()
    }


def promise(run: Run) -> dict[str, str]:
    """The promise of a run in a few words each, what forbids to rely on it first."""
    said, proven = run.privacy, run.privacy.epsilon is not None and math.isfinite(run.privacy.epsilon)
    protects = said.unit is not None and not said.rehearsal and proven
    told = {
        "protects": f"any one {said.unit}" if protects else "nobody",
        "rehearsal": str(said.rehearsal).lower(),
        "unit": said.unit,
        "relation": said.relation,
        "epsilon": f"{said.epsilon:.6g}" if said.epsilon is not None else None,
        "delta": f"{said.delta:g}" if said.delta is not None else None,
    }
    return {f"privacy.{name}": value for name, value in told.items() if value is not None}

"""The card of a model as plain data: all that whoever predicts with it, or relies on it, has to know.

It is made from a run, which holds nothing private. What only people know is left to them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from tacit.compat.export.parts import ModelParts
from tacit.errors import InvalidFile, RunUnusable
from tacit.privacy.contracts import layout_of
from tacit.runs.directory import ENVIRONMENT, EXPERIMENT, Directory, environment
from tacit.runs.run import Run
from tacit.runtime.tables import parse

SCHEMA = 1
AUTHOR = "(to be filled in by the author)"


def card(run: Run, anatomy: ModelParts, files: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything about the model of a run.

    Args:
        run: The run.
        anatomy: What its models are made of; of several, of the first.
        files: One entry for each model: its file, the fingerprint of that, and the sites that it is of.
    """
    # First, for it says what is wrong with a file of choices that was damaged.
    training, told = _training(run), run.document()
    left = {name: told["left"][name] for name in ("released", "public", "bare")}
    return {
        "schema": SCHEMA,
        "kind": "model card",
        "alerts": [alert["words"] for alert in told["alerts"]],
        "name": run.name,
        "task": {"kind": run.task.kind, "layout": layout_of(run.task)},
        "models": files,
        "inputs": dict(anatomy.inputs),
        "outputs": dict(anatomy.outputs),
        "time": None if anatomy.time is None else dict(anatomy.time),
        "architecture": dict(anatomy.architecture),
        "tensors": {name: list(values.shape) for name, values in anatomy.tensors.items()},
        "how": list(anatomy.steps),
        "training": training,
        "privacy": {**told["promise"], **left},
        "evaluation": _evaluation(run),
        "limitations": limitations(run, [alert["words"] for alert in told["alerts"]]),
        "versions": _versions(run),
        "licence": AUTHOR,
        "run": fingerprint(run),
    }


def fingerprint(run: Run) -> str:
    """What tells the model of a run from any other."""
    told = repr((run.name, run.task.kind, sorted(run.privacy.as_dict().items(), key=lambda entry: entry[0])))
    found = hashlib.sha256(told.encode())
    found.update(repr(tuple(run.state.shape)).encode() + run.state.tobytes())
    return found.hexdigest()


def limitations(run: Run, alerts: Sequence[str]) -> list[str]:
    """What the facts of a run say against relying on its model."""
    found = list(alerts)
    if not run.scores:
        found.append("It was not scored: no records were held out that anybody may look at.")
    elif not any(_evaluation(run)["intervals"].values()):
        found.append("Its scores come without intervals: how far chance moves them is not known.")
    if run.scores and not run.baselines:
        found.append("There is nothing to compare its scores with: no baselines were trained.")
    if run.record.stopped is not None:
        found.append(f"Training ended early: {run.record.stopped}.")
    found += [f"{note[:1].upper()}{note[1:]}." for note in run.record.warnings()]
    if len(run.models) > 1:
        found.append("There are several models: each is for the sites that it was learnt with.")
    found.append("It knows the sites that it was trained at. Elsewhere it has to be validated first.")
    return found


def _training(run: Run) -> dict[str, Any]:
    asked = _experiment(run)
    seen = [entry.sites for entry in run.record.rounds if entry.sites is not None]
    told = {
        "federated": True,
        "rounds": len(run.record.rounds),
        "chosen": run.record.chosen,
        "stopped": run.record.stopped,
        "sites": list(run.record.sites),
        "sites_in_a_round": None if not seen else [min(seen), max(seen)],
        "notes": list(run.record.notes),
        "trouble": run.record.warnings(),
    }
    parts = ("seed", "task", "aggregation", "server", "sampling", "engine")
    # Where data lie is nobody's business but that of whoever ran it.
    data = {"data": {"kind": asked["data"].get("kind")}} if "data" in asked else {}
    return told | {name: asked[name] for name in parts if name in asked} | data


def _evaluation(run: Run) -> dict[str, Any]:
    score, better = cast("tuple[str, str]", run.task.goal)
    known = {"federated": run.scores, **run.baselines}
    intervals = {
        whose: _ends(scores)
        | {name: list(pair) for name, pair in run.record.intervals.get(whose, {}).items()}
        for whose, scores in known.items()
    }
    return {
        "goal": [score, better],
        "scores": run.scores,
        "baselines": run.baselines,
        "intervals": intervals,
    }


def _ends(scores: Mapping[str, float]) -> dict[str, list[float]]:
    """Intervals of scores that come with their ends beside them."""
    return {
        name: [scores[f"{name}_low"], scores[f"{name}_high"]]
        for name in scores
        if f"{name}_low" in scores and f"{name}_high" in scores
    }


def _versions(run: Run) -> Mapping[str, Any]:
    return Directory(run.path).read_json(ENVIRONMENT) or environment()


def _experiment(run: Run) -> dict[str, Any]:
    """The choices that a run was made with, if it kept them."""
    try:
        return parse(Directory(run.path).text(EXPERIMENT), EXPERIMENT)
    except InvalidFile as error:
        raise RunUnusable(f"run {run.path} cannot be read: {EXPERIMENT} is damaged ({error})") from error

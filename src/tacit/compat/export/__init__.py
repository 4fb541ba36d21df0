"""Export of a model: everything is made before anything is written, so that a failure leaves no file.

A model card states inputs, outputs, training, evaluation, privacy and limitations of a model as plain data.
It is made from a run, which holds nothing private. Facts that only people know are left blank.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from tacit.compat.export.models import ModelParts, model_parts
from tacit.compat.export.onnx import encode
from tacit.errors import InvalidFile, InvalidValue, RunUnusable, require_extra
from tacit.reports.page.blocks import Block, Code, Facts, Grid, Items, Page, Section, Text
from tacit.reports.run import price
from tacit.runs.directory import ENVIRONMENT, EXPERIMENT, Directory, environment
from tacit.runs.run import Run
from tacit.runtime.tables import parse

CARD, PAGE = "card.json", "card.md"


def export(run: Run, folder: str | os.PathLike[str], *, onnx: bool = False) -> list[Path]:
    """Export the model of a run for users without Tacit: tensors, a model card, and ONNX on request.

    Args:
        run: The run.
        folder: The folder to write to; created if missing. An export of the same run is replaced.
        onnx: Write networks as ONNX too.

    Returns:
        The files, the card first.

    Raises:
        InvalidValue: The model is of an unknown kind, or no network where ONNX is asked for; the package onnx
            is missing; or the folder holds another model. Nothing was written.
    """
    place = Path(folder)
    parts = [model_parts(run.task, model) for model in run.models]
    if onnx:
        for part in parts:
            if part.drawn is None:
                raise InvalidValue(f"model.onnx cannot be written: {part.instead}")
        require_extra("onnx", "onnx", "model.onnx")
    earlier = _earlier(place, fingerprint(run))
    contents, entries = dict[str, bytes](), list[dict[str, Any]]()
    for number, part in enumerate(parts):
        stem = "model" if len(parts) == 1 else f"model-{number}"
        entry: dict[str, Any] = {"sites": _sites(run, number)}
        for name, made in _files(run, part, stem, onnx=onnx).items():
            contents[name] = made
            kind = "onnx" if name.endswith(".onnx") else "tensors"
            entry[kind] = {"file": name, "sha256": hashlib.sha256(made).hexdigest()}
        entries.append({**entry, **({} if "onnx" in entry else earlier.get(stem, {}))})
    told = card(run, parts[0], entries)
    return _write(place, told, page(told, parts[0]), contents)


def _files(run: Run, part: ModelParts, stem: str, *, onnx: bool) -> dict[str, bytes]:
    from safetensors.numpy import save

    # Tensors that are views of one vector are refused by the format.
    apart = {name: np.array(values, order="C", copy=True) for name, values in part.tensors.items()}
    # One note alone: several come in another order each time, and the same model would be another file.
    made = {f"{stem}.safetensors": save(apart, metadata={"format": "pt"})}
    if onnx and part.drawn is not None:
        said = [alert["words"] for alert in run.document()["alerts"]]
        words = " ".join([*said, f"See {CARD} for inputs, outputs and the privacy promise."])
        made[f"{stem}.onnx"] = encode(part.drawn(), run.task.kind, words, {"run": fingerprint(run)})
    return made


def _sites(run: Run, number: int) -> list[str] | None:
    """Return the sites of a model; None for the one model of all sites."""
    if len(run.models) == 1:
        return None
    return [site for site, model in run.clusters.items() if model == number]


def _earlier(place: Path, run: str) -> dict[str, dict[str, Any]]:
    """Return the documents of an earlier export of the same run, by the stem of its files.

    Raises:
        InvalidValue: The folder holds something else that would be replaced.
    """
    if place.exists() and not place.is_dir():
        raise InvalidValue(f"{place} is not a folder: choose another one")
    if not place.exists():
        return {}
    try:
        known = Directory(place).read_json(CARD)
    except RunUnusable:
        known = {}
    there = [name for pattern in ("model*.safetensors", "model*.onnx", PAGE) for name in place.glob(pattern)]
    if known is None and not there:
        return {}
    if known is None or known.get("run") != run:
        what = f"the model of another run, {known['name']}" if known and "name" in known else "other files"
        raise InvalidValue(f"{place} holds {what}: choose another folder, nothing is overwritten")
    found = [entry["onnx"] for entry in known["models"] if "onnx" in entry]
    return {
        Path(entry["file"]).stem: {"onnx": entry}
        for entry in found
        if hashlib.sha256(Directory(place).read(entry["file"]) or b"").hexdigest() == entry["sha256"]
    }


def _write(place: Path, told: dict[str, Any], text: str, contents: dict[str, bytes]) -> list[Path]:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue(f"{place} cannot be made: {error.strerror}") from error
    target = Directory(place)
    # The card comes first: it says by fingerprints whether what should be beside it is.
    target.write_json(CARD, told)
    target.write(PAGE, text)
    for name, content in contents.items():
        target.write(name, content)
    return [place / name for name in (CARD, PAGE, *contents)]


SCHEMA = 1
AUTHOR = "(to be filled in by the author)"


def card(run: Run, anatomy: ModelParts, files: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the model card of a run as plain data.

    Args:
        run: The run.
        anatomy: The parts of its model; of several, of the first.
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
        "task": {"kind": run.task.kind, "layout": run.task.layout},
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
    """Fingerprint of the model of a run."""
    told = repr((run.name, run.task.kind, sorted(run.privacy.as_dict().items(), key=lambda entry: entry[0])))
    found = hashlib.sha256(told.encode())
    found.update(repr(tuple(run.state.shape)).encode() + run.state.tobytes())
    return found.hexdigest()


def limitations(run: Run, alerts: Sequence[str]) -> list[str]:
    """Return the limitations of a model that follow from its run."""
    found = list(alerts)
    if not run.scores:
        found.append("It was not scored: the run has no public held-out records to score the model on.")
    elif not any(_evaluation(run)["intervals"].values()):
        found.append("Its scores have no confidence intervals.")
    if run.scores and not run.baselines:
        found.append("No comparison models were trained.")
    if run.record.stopped is not None:
        found.append(f"Training ended early: {run.record.stopped}.")
    found += [f"{note[:1].upper()}{note[1:]}." for note in run.record.warnings()]
    if len(run.models) > 1:
        found.append("There are several models: each is for the sites that trained it.")
    found.append("It was trained for these sites. Validate it before use elsewhere.")
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
    # The paths of the data concern only the person who ran it.
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
    """Return the intervals of scores that have them."""
    return {
        name: [scores[f"{name}_low"], scores[f"{name}_high"]]
        for name in scores
        if f"{name}_low" in scores and f"{name}_high" in scores
    }


def _versions(run: Run) -> Mapping[str, Any]:
    return Directory(run.path).read_json(ENVIRONMENT) or environment()


def _experiment(run: Run) -> dict[str, Any]:
    """Return the choices that a run was made with, if it kept them."""
    try:
        return parse(Directory(run.path).text(EXPERIMENT), EXPERIMENT)
    except InvalidFile as error:
        raise RunUnusable(f"run {run.path} cannot be read: {EXPERIMENT} is damaged ({error})") from error


LABELS = {"federated": "this model", "alone": "sites alone", "pooled": "pooled records"}
# The largest number of names in a sentence.
SHOWN = 40


def page(card: Mapping[str, Any], anatomy: ModelParts) -> str:
    """The card as Markdown."""
    from tacit.reports.page.markdown import markdown

    return markdown(_page(card, anatomy))


def _page(card: Mapping[str, Any], anatomy: ModelParts) -> Page:
    return Page(
        title=f"Model card: {card['name']}",
        lead=f"A federated model of kind {card['task']['kind']}, {price(card['privacy'])}.",
        alerts=tuple(Text(words, "stop") for words in card["alerts"]),
        sections=(
            Section("Model details", _details(card)),
            Section("Intended use", (Text(AUTHOR), Text(f"Out of scope: {AUTHOR}"))),
            Section("Training", _training_blocks(card)),
            Section("Privacy promise", tuple(Text(words) for words in card["privacy"]["sentences"])),
            Section("Evaluation", _evaluation_blocks(card["evaluation"])),
            Section("Limitations", (Items("Known limitations", tuple(card["limitations"])),)),
            Section("Use", _use(card, anatomy)),
        ),
        document=card,
    )


def _details(card: Mapping[str, Any]) -> tuple[Block, ...]:
    layers = card["architecture"].get("layers") or card["architecture"].get("actor") or ()
    network = " -> ".join(
        [*(str(layer["inputs"]) for layer in layers[:1]), *(_layer(layer) for layer in layers)]
    )
    rows = [
        ("task", card["task"]["kind"]),
        *([("layers", network)] if network else []),
        *_grid(card["time"]),
        ("authors, contact", AUTHOR),
        ("license", card["licence"]),
    ]
    return (
        Facts(tuple(rows)),
        Items("Inputs", (*_inputs(card["inputs"]), card["inputs"].get("how", ""))),
        Items("Outputs", tuple(f"{name}: {meaning}" for name, meaning in card["outputs"].items())),
        Items("Files", tuple(_file(entry) for entry in card["models"])),
        Text("Made with " + ", ".join(f"{name} {number}" for name, number in card["versions"].items()) + "."),
    )


def _inputs(inputs: Mapping[str, Any]) -> list[str]:
    named = inputs.get("features") or inputs.get("needed") or ()
    if named:
        return [f"Order of the inputs: {_list_names(named)}."]
    wide = inputs.get("observation") or inputs.get("columns")
    return [f"{wide} numbers."] if wide else []


def _list_names(names: Sequence[object]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(str, names[:SHOWN])) + more


def _layer(layer: Mapping[str, Any]) -> str:
    return str(layer["outputs"]) + ("" if layer["activation"] == "identity" else f" {layer['activation']}")


def _file(entry: Mapping[str, Any]) -> str:
    sites = entry["sites"]
    whose = "all sites" if sites is None else _list_names(sites) if sites else "no site at the end"
    return f"{entry['tensors']['file']}, for {whose}: sha256 {entry['tensors']['sha256']}"


def _grid(time: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    ends = cast("list[float]", [] if time is None else time.get("ends", []))
    return [("time grid", f"{len(ends)} intervals, from 0 to {ends[-1]:g}")] if ends else []


def _training_blocks(card: Mapping[str, Any]) -> tuple[Block, ...]:
    told, rule = card["training"], card["training"].get("aggregation", {})
    words = ", ".join(f"{name} {value}" for name, value in rule.items() if name != "kind")
    combined = f"{rule.get('kind')}" + (f" ({words})" if words else "")
    sites, in_round = told["sites"], told["sites_in_a_round"]
    rows = [
        ("how", "federated: the section Privacy promise lists the data that left the sites"),
        ("rounds", f"{told['rounds']}; the model is that of round {told['chosen']}"),
        *([("combined by", combined)] if rule else []),
        *([("sites", str(len(sites)))] if sites else []),
        *([("sites in a round", _range(in_round))] if in_round else []),
        *([("seed", str(told["seed"]))] if "seed" in told else []),
    ]
    items = [*told["notes"], *told["trouble"]]
    return (Facts(tuple(rows)), *([Items("Trouble during training", tuple(items))] if items else []))


def _range(ends: list[int]) -> str:
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _evaluation_blocks(found: Mapping[str, Any]) -> tuple[Block, ...]:
    if not found["scores"]:
        return (Text("It was not scored: the run has no public held-out records to score the model on."),)
    known = {"federated": found["scores"], **found["baselines"]}
    # Ends of intervals stand with their scores.
    ends = {f"{name}{end}" for name in found["scores"] for end in ("_low", "_high")}
    names = [name for name in found["scores"] if name not in ends]
    rows = tuple(
        (
            LABELS.get(whose, whose),
            *(_cell(scores.get(name), found["intervals"].get(whose, {}).get(name)) for name in names),
        )
        for whose, scores in known.items()
    )
    score, best = found["goal"][0], "higher" if found["goal"][1] == "max" else "lower"
    said = f"Scores on held-out records; the main score is {score}, {best} is better."
    return (Text(said), Grid("Scores, with 95 % intervals where known", ("model", *names), rows))


def _cell(value: float | None, ends: list[float] | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" + ("" if ends is None else f" [{ends[0]:.4g}, {ends[1]:.4g}]")


def _use(card: Mapping[str, Any], anatomy: ModelParts) -> tuple[Block, ...]:
    example = anatomy.example.replace("{file}", card["models"][0]["tensors"]["file"])
    code = example if anatomy.recipe is None else f"{source(anatomy.recipe)}\n{example}"
    first = (
        "In the folder of this card, with torch and safetensors:"
        if anatomy.recipe is None
        else "In the folder of this card; numpy, scipy and safetensors are enough:"
    )
    onnx = [entry["onnx"]["file"] for entry in card["models"] if "onnx" in entry]
    said = (
        f"{', '.join(onnx)} takes any number of rows, in single precision; it has all outputs listed above."
    )
    steps = Items("Computation of predictions", anatomy.steps)
    return (Text(first), Code(code), *([Text(said)] if onnx else []), steps)


def source(recipe: str) -> str:
    """Render Python that predicts with numpy alone, for a card; it imports nothing of Tacit."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    texts = Environment(
        loader=PackageLoader("tacit.compat.export", "recipes"),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return texts.get_template(f"{recipe}.py.jinja").render()

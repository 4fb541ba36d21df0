"""The card of a model for people, in the sections that model cards usually have."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from tacit.compat.export.card import AUTHOR
from tacit.compat.export.parts import ModelParts
from tacit.reports.page.blocks import Block, Code, Facts, Grid, Items, Page, Section, Text
from tacit.reports.run import price

LABELS = {"federated": "this model", "alone": "sites alone", "pooled": "pooled records"}
# How many names a sentence holds.
SHOWN = 40


def page(card: Mapping[str, Any], anatomy: ModelParts) -> str:
    """The card as Markdown."""
    from tacit.reports.page.markdown import markdown

    return markdown(_page(card, anatomy))


def _page(card: Mapping[str, Any], anatomy: ModelParts) -> Page:
    return Page(
        title=f"Model card: {card['name']}",
        lead=f"A model of kind {card['task']['kind']}, learnt across sites, {price(card['privacy'])}.",
        alerts=tuple(Text(words, "stop") for words in card["alerts"]),
        sections=(
            Section("Model details", _details(card)),
            Section("Intended use", (Text(AUTHOR), Text(f"Out of scope: {AUTHOR}"))),
            Section("Training", _training(card)),
            Section("Privacy promise", tuple(Text(words) for words in card["privacy"]["sentences"])),
            Section("Evaluation", _evaluation(card["evaluation"])),
            Section("Limitations", (Items("Mind that", tuple(card["limitations"])),)),
            Section("How to use", _use(card, anatomy)),
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
        ("licence", card["licence"]),
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
        return [f"In this order: {_list_names(named)}."]
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


def _training(card: Mapping[str, Any]) -> tuple[Block, ...]:
    told, rule = card["training"], card["training"].get("aggregation", {})
    words = ", ".join(f"{name} {value}" for name, value in rule.items() if name != "kind")
    combined = f"{rule.get('kind')}" + (f" ({words})" if words else "")
    sites, in_round = told["sites"], told["sites_in_a_round"]
    rows = [
        ("how", "federated: what left the sites is listed under Privacy promise"),
        ("rounds", f"{told['rounds']}; the model is that of round {told['chosen']}"),
        *([("combined by", combined)] if rule else []),
        *([("sites", str(len(sites)))] if sites else []),
        *([("sites in a round", _range(in_round))] if in_round else []),
        *([("seed", str(told["seed"]))] if "seed" in told else []),
    ]
    items = [*told["notes"], *told["trouble"]]
    return (Facts(tuple(rows)), *([Items("On the way", tuple(items))] if items else []))


def _range(ends: list[int]) -> str:
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _evaluation(found: Mapping[str, Any]) -> tuple[Block, ...]:
    if not found["scores"]:
        return (Text("It was not scored: no records were held out that anybody may look at."),)
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
    said = f"On what was held out; what counts is {score}, the {best} the better."
    return (Text(said), Grid("Scores, with 95 % intervals where they are known", ("model", *names), rows))


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
    steps = Items("How predictions come about", anatomy.steps)
    return (Text(first), Code(code), *([Text(said)] if onnx else []), steps)


def source(recipe: str) -> str:
    """Python that predicts with numpy alone, as it stands in a card; it imports nothing of Tacit."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    texts = Environment(
        loader=PackageLoader("tacit.compat.export", "recipes"),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return texts.get_template(f"{recipe}.py.jinja").render()

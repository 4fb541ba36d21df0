"""Writing a model down for others: everything is made first, so that whatever fails leaves no file behind."""

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from tacit.compat.export.card import card, fingerprint, page
from tacit.compat.export.models import ModelParts, model_parts
from tacit.compat.export.onnx import encode
from tacit.errors import InvalidValue, RunUnusable, require_extra
from tacit.runs.directory import Directory
from tacit.runs.run import Run

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

"""Cards: what is said first, what is said at all, and that nobody's files are overwritten."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from typer.testing import CliRunner

import tacit
from tacit import Privacy, fit
from tacit.cli.app import app
from tacit.compat.export import AUTHOR, export
from tacit.errors import InvalidValue, RunUnusable
from tacit.sites.splits import SPLITS
from tacit.survival import LogisticHazard
from tacit.survival.data.sources import Simulated

TASK = LogisticHazard(hidden=(4,), cuts=5, horizon=3.0, steps=2, sample=0.3, lr=0.3)
PROMISE = Privacy(unit="record", epsilon=3.0, delta=1e-4, clip=1.0)
SECTIONS = [
    "Model details", "Intended use", "Training", "Privacy promise", "Evaluation", "Limitations", "Use",
]  # fmt: skip


@pytest.fixture(scope="module")
def patients():
    return Simulated(records=150, features=3).open(SPLITS["iid"](count=3), 0)


@pytest.fixture(scope="module")
def run(patients, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    return fit(TASK, patients, privacy=PROMISE, rounds=3, baselines=True, name="trial", out=out)


def read(folder):
    return json.loads((folder / "card.json").read_text()), (folder / "card.md").read_text()


def test_a_card_says_everything_in_the_usual_sections(run, tmp_path):
    files = export(run, tmp_path / "new" / "export")
    assert [path.name for path in files] == ["card.json", "card.md", "model.safetensors"]
    card, text = read(tmp_path / "new" / "export")
    places = [text.index(f"## {name}") for name in SECTIONS]
    assert places == sorted(places)
    assert card["schema"] == 1
    assert all("the simplest baseline" in words for words in card["alerts"])
    assert card["privacy"]["epsilon"] == run.privacy.epsilon
    assert card["privacy"]["sentences"] == run.privacy.sentences()
    assert card["evaluation"]["scores"] == run.scores
    assert card["evaluation"]["baselines"] == run.baselines
    assert card["training"]["rounds"] == 3
    assert card["training"]["aggregation"]["kind"] == "mean"
    assert card["versions"]["tacit"] == tacit.__version__
    assert card["licence"] == AUTHOR
    assert AUTHOR in text
    assert f"{run.privacy.epsilon:.4g}" in text


def test_the_fingerprint_in_the_card_is_that_of_the_file(run, tmp_path):
    export(run, tmp_path)
    (entry,) = read(tmp_path)[0]["models"]
    content = (tmp_path / entry["tensors"]["file"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == entry["tensors"]["sha256"]
    assert entry["sites"] is None
    with safe_open(tmp_path / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt"}


@pytest.mark.parametrize(
    ("privacy", "words"),
    [(tacit.Open(), "Open run"), (replace(PROMISE, rehearsal=True), "gives no protection")],
)
def test_who_is_protected_by_nothing_is_told_first(privacy, words, patients, tmp_path):
    export(fit(TASK, patients, privacy=privacy, rounds=1), tmp_path)
    card, text = read(tmp_path)
    assert list(card).index("alerts") < list(card).index("name")
    assert words in card["alerts"][0]
    assert 0 < text.index(words) < text.index("## Model details")
    assert any(words in line for line in card["limitations"])


def test_a_run_that_was_not_kept_has_a_card_too(patients, tmp_path):
    run = fit(TASK, patients, privacy=PROMISE, rounds=1)
    export(run, tmp_path)
    card, _ = read(tmp_path)
    assert "aggregation" not in card["training"]
    assert any("No comparison models" in line for line in card["limitations"])


def test_an_export_of_the_same_run_is_replaced(run, tmp_path):
    export(run, tmp_path, onnx=True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    export(tacit.load(run.path), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before, (
        "what is there stays known"
    )


def test_a_file_that_has_changed_is_no_longer_on_the_card(run, tmp_path):
    export(run, tmp_path, onnx=True)
    (tmp_path / "model.onnx").write_bytes(b"damaged")
    export(run, tmp_path)
    assert "onnx" not in read(tmp_path)[0]["models"][0]


def test_another_model_is_not_overwritten(run, patients, tmp_path):
    export(run, tmp_path / "a")
    before = (tmp_path / "a" / "model.safetensors").read_bytes()
    other = fit(TASK, patients, privacy=PROMISE, rounds=1, name="other")
    with pytest.raises(InvalidValue, match="another run, trial"):
        export(other, tmp_path / "a")
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == before
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "model.safetensors").write_bytes(b"mine")
    with pytest.raises(InvalidValue, match="other files"):
        export(other, tmp_path / "b")
    (tmp_path / "b" / "card.json").write_text("not json")
    with pytest.raises(InvalidValue, match="other files"):
        export(other, tmp_path / "b")
    assert (tmp_path / "b" / "model.safetensors").read_bytes() == b"mine"


def test_what_is_no_folder_is_refused(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidValue, match="not a folder"):
        export(run, tmp_path / "file")
    with pytest.raises(InvalidValue, match="cannot be made"):
        export(run, tmp_path / "file" / "inside")


def test_a_model_that_nobody_knows_is_refused(run, tmp_path):
    class Unknown:
        kind, goal = "unknown", ("loss", "min")

        def model(self, state):
            return object()

    with pytest.raises(InvalidValue, match="'unknown' cannot be exported"):
        export(replace(run, task=Unknown()), tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_a_damaged_experiment_file_is_explained(run, patients, tmp_path):
    own = fit(TASK, patients, privacy=PROMISE, rounds=1, out=tmp_path / "run")
    (tmp_path / "run" / "experiment.toml").write_text("= broken")
    with pytest.raises(RunUnusable, match=r"experiment\.toml"):
        export(own, tmp_path / "export")


def test_names_that_look_like_markup_are_shown_as_they_are(patients, tmp_path):
    run = fit(TASK, patients, privacy=PROMISE, rounds=1)
    export(replace(run, name="<script>alert(1)</script> `x` | *y*"), tmp_path)
    card, text = read(tmp_path)
    assert card["name"].startswith("<script>")
    assert "<script>" not in text


def test_the_card_holds_numbers_alone_that_json_knows(run, tmp_path):
    export(run, tmp_path)
    assert not np.isnan(
        json.loads((tmp_path / "card.json").read_text(), parse_constant=pytest.fail)["schema"]
    )


def test_the_verb_exports_a_run_beside_itself_or_where_it_is_told(run, tmp_path):
    def verb(*words: str) -> list[Path]:
        done = CliRunner().invoke(app, ["export", str(run.path), *words])
        assert done.exit_code == 0, done.output
        return [Path(line) for line in done.stdout.splitlines()]

    beside = verb()
    assert [path.parent for path in beside] == [run.path / "export"] * 3
    assert tacit.load(run.path).scores == run.scores, "the run is as it was"
    elsewhere = verb("--out", str(tmp_path / "there"), "--onnx")
    assert elsewhere[-1] == tmp_path / "there" / "model.onnx"

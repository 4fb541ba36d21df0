"""A run in MLflow: a real store on this disk, read back by its own client; no server, nothing sent."""

import os
import sys

import pytest

from tacit import Privacy, Stopping, fit
from tacit.compat.tracking import MLflow
from tacit.errors import InvalidValue
from tacit.sites.splits import SPLITS
from tacit.survival import LogisticHazard
from tacit.survival.data.sources import Simulated

# What MLflow asks of SQLAlchemy is its own business.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*sqlite3.Connection:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
TASK = LogisticHazard(hidden=(4,), cuts=5, steps=2, sample=0.3, lr=0.3)
REHEARSAL = Privacy(unit="record", epsilon=3.0, delta=1e-4, clip=1.0, rehearsal=True)


@pytest.fixture(scope="module")
def patients():
    return Simulated(records=150, features=3).open(SPLITS["iid"](count=3), 0)


@pytest.fixture
def store(request, tmp_path, monkeypatch):
    # A store of plain files is there at once; a database takes half a minute of other people's migrations.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    folder = tmp_path / "mlflow"
    folder.mkdir()
    kind = getattr(request, "param", "files")
    uri = f"sqlite:///{folder / 'mlflow.db'}" if kind == "sqlite" else (folder / "store").as_uri()
    return {"uri": uri, "artifacts": folder / "artifacts"}


def client(store):
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=store["uri"])


@pytest.mark.parametrize("store", ["files", pytest.param("sqlite", marks=pytest.mark.slow)], indirect=True)
def test_every_round_and_what_came_of_them_can_be_read_back(patients, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with MLflow("trial", **store) as tracker:
        run = fit(
            TASK, patients, privacy=REHEARSAL, rounds=3, baselines=True, name="trial", out=tmp_path / "run",
            callbacks=[tracker],
        )  # fmt: skip
        (tmp_path / "run" / "report.html").write_text("<html></html>")
        tracker.finish(run)
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlflow", "run"], (
        "nothing is left in the working directory"
    )
    known = client(store)
    found = known.get_run(tracker.run_id)
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "trial"
    for name in ("c_index", "ibs"):
        told = known.get_metric_history(tracker.run_id, f"scores/{name}")
        assert [entry.step for entry in told] == [1, 2, 3]
        assert [entry.value for entry in told] == [entry.scores[name] for entry in run.record.rounds]
        assert found.data.metrics[f"final/federated/{name}"] == run.scores[name]
        assert found.data.metrics[f"final/pooled/{name}"] == run.baselines["pooled"][name]
    assert found.data.metrics["privacy/epsilon"] == run.privacy.epsilon
    assert found.data.params["privacy.protects"] == "no one"
    assert found.data.tags["privacy.rehearsal"] == "true"
    assert "REHEARSAL" in found.data.tags["mlflow.note.content"]
    kept = {entry.path for entry in known.list_artifacts(tracker.run_id)}
    assert {"report.html", "statement.json", "summary.txt", "model"} == kept
    model = {entry.path for entry in known.list_artifacts(tracker.run_id, "model")}
    assert model == {"model/card.json", "model/card.md", "model/model.safetensors"}


def test_a_run_that_was_not_kept_has_numbers_and_words_alone(patients, store):
    tracker = MLflow("trial", **store)
    tracker.finish(fit(TASK, patients, rounds=1, callbacks=[tracker], stop=Stopping(patience=1)))
    tracker.close("KILLED")
    known = client(store)
    found = known.get_run(tracker.run_id)
    assert found.info.status == "FINISHED", "what is over is over"
    assert found.data.params["privacy.protects"] == "no one"
    assert "privacy.epsilon" not in found.data.params
    assert [entry.path for entry in known.list_artifacts(tracker.run_id)] == ["summary.txt"]


def test_a_run_that_fails_is_marked_as_failed(store):
    with pytest.raises(ValueError, match="broken"), MLflow("trial", **store) as tracker:
        raise ValueError("broken")
    assert client(store).get_run(tracker.run_id).info.status == "FAILED"


def test_without_mlflow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(InvalidValue, match=r"pip install 'tacit\[mlflow\]'"):
        MLflow("trial")

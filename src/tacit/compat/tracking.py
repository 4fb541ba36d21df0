"""Callbacks that show a run elsewhere, round by round: TensorBoard and MLflow. Neither is ever needed.

They are told rounds and the run at its end, which hold nothing private, and read nothing else.
"""

import math
import os
import re
import time
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from tacit.errors import InvalidValue, require_extra
from tacit.learning.record import Round
from tacit.runs.run import Run

# Files of a run's directory for readers.
SHOWN = ("report.html", "statement.json")
# MLflow's limit on a tag's length.
LONGEST = 5000


class TensorBoard:
    """A callback for `tacit.fit(callbacks=[...])` that writes event files.

    Use it as a context, or call `finish` once the run is over.

    Args:
        folder: The folder to write to; `tensorboard --logdir FOLDER` shows it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        require_extra("tensorboard", "tensorboard", "TensorBoard")
        files = import_module("tensorboard.summary.writer.event_file_writer")
        self._text = import_module("tensorboard.plugins.text.metadata")
        self._events = import_module("tensorboard.compat.proto.event_pb2")
        self._summaries = import_module("tensorboard.compat.proto.summary_pb2")
        self._tensors = import_module("tensorboard.compat.proto.tensor_pb2")
        self._writer = files.EventFileWriter(os.fspath(folder))
        self._began, self._over = time.time(), False

    def __call__(self, entry: Round) -> None:
        """Write down a round."""
        # With secret sampling, the duration of a round would reveal the sample size.
        now = self._began if entry.seconds is None else time.time()
        for name, value in numbers(entry).items():
            self._add(entry.number, now, tag=name, simple_value=value)
        if entry.skipped is not None:
            self._add_text("round/why skipped", entry.skipped, entry.number, now)
        # Viewers of a live run need it now.
        self._writer.flush()

    def finish(self, run: Run) -> None:
        """Write the results, and close."""
        for name, value in results(run).items():
            self._add(run.record.chosen, time.time(), tag=name, simple_value=value)
        self._add_text("promise", "\n".join(run.privacy.sentences()))
        told = "\n".join(f"{name}: {value}" for name, value in promise(run).items())
        self._add_text("promise in short", told)
        self._add_text("summary", run.summary())
        self.close()

    def close(self) -> None:
        """Write the remaining values, and close."""
        if not self._over:
            self._writer.close()
            self._over = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add(self, step: int, now: float, **value: object) -> None:
        summary = self._summaries.Summary(value=[self._summaries.Summary.Value(**value)])
        self._writer.add_event(self._events.Event(wall_time=now, step=step, summary=summary))

    def _add_text(self, name: str, words: str, step: int = 0, now: float | None = None) -> None:
        # As a block of code: TensorBoard takes text for Markdown.
        block = "\n".join(f"    {line}" for line in words.splitlines()).encode()
        text = self._tensors.TensorProto(
            dtype="DT_STRING", string_val=[block], tensor_shape={"dim": [{"size": 1}]}
        )
        at, about = time.time() if now is None else now, self._text.create_summary_metadata(None, None)
        self._add(step, at, tag=f"{name}/text_summary", metadata=about, tensor=text)


class MLflow:
    """A callback for `tacit.fit(callbacks=[...])` that logs to an MLflow tracking store.

    Use it as a context, or call `finish` once the run is over. It changes one global setting: MLflow's own
    telemetry is off, unless the user's environment says otherwise.

    Args:
        experiment: The experiment of MLflow; created if it does not exist.
        uri: The store, as `sqlite:///mlflow.db` or the address of a server; by default MLflow's own.
        artifacts: The place of a new experiment's files; by default MLflow's own.
    """

    def __init__(
        self,
        experiment: str = "tacit",
        uri: str | None = None,
        *,
        artifacts: str | os.PathLike[str] | None = None,
    ) -> None:
        self._client = _client(uri)
        known = self._client.get_experiment_by_name(experiment)
        place = None if artifacts is None else os.fspath(artifacts)
        found = known.experiment_id if known is not None else None
        found = found or self._client.create_experiment(experiment, artifact_location=place)
        self.run_id: str = self._client.create_run(found).info.run_id
        self._over, self._began = False, int(1000 * time.time())

    def __call__(self, entry: Round) -> None:
        """Log a round."""
        # With secret sampling, the duration of a round would reveal the sample size.
        now = self._began if entry.seconds is None else int(1000 * time.time())
        for name, value in numbers(entry).items():
            self._client.log_metric(self.run_id, _name(name), value, timestamp=now, step=entry.number)
        if entry.skipped is not None:
            self._client.set_tag(self.run_id, f"skipped.{entry.number}", entry.skipped[:LONGEST])

    def finish(self, run: Run) -> None:
        """Log the results: final scores, the promise, report and card; then close."""
        for name, value in results(run).items():
            self._client.log_metric(self.run_id, _name(name), value, step=run.record.chosen)
        told = {"name": run.name, "task": run.task.kind, "rounds": str(len(run.record.rounds))}
        for name, value in {**told, **promise(run)}.items():
            self._client.log_param(self.run_id, name, value)
            self._client.set_tag(self.run_id, name, value)
        self._client.set_tag(self.run_id, "mlflow.runName", run.name)
        words = "\n\n".join(run.privacy.sentences())
        self._client.set_tag(self.run_id, "mlflow.note.content", words[:LONGEST])
        self._client.log_text(self.run_id, run.summary(), "summary.txt")
        if run.path is not None:
            self._artifacts(run, run.path)
        self.close()

    def _artifacts(self, run: Run, path: Path) -> None:
        """Files of the run for readers: its report if there is one, and the card of its model."""
        import tempfile

        from tacit.compat.export import export

        for name in SHOWN:
            if (path / name).is_file():
                self._client.log_artifact(self.run_id, str(path / name))
        with tempfile.TemporaryDirectory() as folder:
            try:
                files = export(run, Path(folder) / "model")
            except InvalidValue:
                # A model of the user's own kind has no card.
                return
            for file in files:
                self._client.log_artifact(self.run_id, str(file), "model")

    def close(self, status: Literal["FINISHED", "FAILED", "KILLED"] = "FINISHED") -> None:
        """End the MLflow run; nothing is logged afterwards."""
        if not self._over:
            self._client.set_terminated(self.run_id, status)
            self._over = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close("FINISHED" if kind is None else "FAILED")


def _client(uri: str | None) -> Any:  # noqa: ANN401
    """Return a client of its own; MLflow's global state stays as it was."""
    # Read once, when MLflow is imported; Tacit sends nothing without the user's request.
    _ = os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    require_extra("mlflow", "mlflow", "MLflow")
    from mlflow.tracking import MlflowClient  # pyright: ignore[reportMissingTypeStubs]

    return MlflowClient(tracking_uri=uri)


def _name(name: str) -> str:
    """Convert a name to one that MLflow accepts."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def numbers(entry: Round) -> dict[str, float]:
    """Return the public numbers of a round."""
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
    """Return the promise of a run in tags; those that void it come first."""
    said, proven = run.privacy, run.privacy.epsilon is not None and math.isfinite(run.privacy.epsilon)
    protects = said.unit is not None and not said.rehearsal and proven
    told = {
        "protects": f"any one {said.unit}" if protects else "no one",
        "rehearsal": str(said.rehearsal).lower(),
        "unit": said.unit,
        "relation": said.relation,
        "epsilon": f"{said.epsilon:.6g}" if said.epsilon is not None else None,
        "delta": f"{said.delta:g}" if said.delta is not None else None,
    }
    return {f"privacy.{name}": value for name, value in told.items() if value is not None}

"""What the verb `export` does."""

from pathlib import Path


def export(run_path: Path, out: Path | None, onnx: bool) -> list[Path]:
    """Write the model of a run for those who do not have Tacit; beside the run if nobody says where.

    Args:
        run_path: The directory of the run.
        out: Where to; `export` in that directory if not said.
        onnx: Whether to write networks as ONNX too.
    """
    from tacit.compat.export import export
    from tacit.experiments.experiment import load

    return export(load(run_path), out or run_path / "export", onnx=onnx)

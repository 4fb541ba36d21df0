"""The verb `report`, and the live page of a run. Heavy imports happen here, after a verb was chosen."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.cli import output
from tacit.errors import InvalidFile, InvalidValue

if TYPE_CHECKING:
    from tacit.experiments.experiment import Experiment

DPIA, COMPARISON = "data-protection.html", "comparison.html"


def report(runs: Sequence[Path], *, out: Path | None, dpia: bool) -> Path:
    """Write the report of a run, a comparison of several, or a summary for a data-protection officer."""
    from tacit.cli import reporting
    from tacit.reports.page import require_place, write
    from tacit.runs.directory import REPORT

    if dpia and len(runs) > 1:
        raise InvalidValue("--dpia is about one run: name it alone")
    usual = Path(COMPARISON) if len(runs) > 1 else runs[0] / (DPIA if dpia else REPORT)
    place = out or usual
    if out is None and not place.parent.is_dir():
        raise InvalidFile(f"{runs[0]} is not the directory of a run")
    require_place(place)
    page = reporting.data_protection(runs[0]) if dpia else reporting.page(runs)
    return write(page, place)


@contextmanager
def serve_report(asked: "Experiment", place: Path, *, port: int, quiet: bool) -> Generator[None]:
    """Serve the report of a run on this machine while it goes on."""
    from tacit.cli import reporting
    from tacit.reports.live import serve_page

    with serve_page(lambda: reporting.current_page(asked, place), port=port) as live:
        output.log(f"watch {live.url}", quiet=quiet)
        yield

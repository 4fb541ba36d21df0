"""Report of a directory: a run, finished or not; several runs; trials, studies, sweeps, audits.

Nothing is trained, no record is read, and nothing in the directory changes.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tacit.errors import InvalidFile, InvalidValue, LedgerError
from tacit.experiments import attacks, experiment, studies, sweeps
from tacit.experiments.attacks import AttackScores
from tacit.experiments.experiment import Experiment
from tacit.learning.record import Record
from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.ledger.view import ledger_summary
from tacit.privacy.statement import released_in_words
from tacit.reports import audit
from tacit.reports.data import ReportData
from tacit.reports.page.blocks import Code, Page, Section
from tacit.runs.directory import AUDIT, ENVIRONMENT, EXPERIMENT, LEDGER, PROVENANCE, Directory, environment
from tacit.runs.run import Run, is_over


def page(paths: Sequence[Path]) -> Page:
    """The report of a directory, or of several runs side by side.

    Args:
        paths: The directories.

    Raises:
        InvalidFile: One of them remembers nothing.
        InvalidValue: Several, and one of them is not a single run.
    """
    if len(paths) == 1:
        found = load_directory(paths[0])
        return found if isinstance(found, Page) else found.page()
    runs: dict[str, ReportData] = {}
    for name, path in _unique_names(paths).items():
        found = load_directory(path)
        if not isinstance(found, Run):
            raise InvalidValue(f"{path} cannot be compared: it must be a single run that is over")
        runs[name] = found.report_data()
    from tacit.reports.run import comparison

    return comparison(runs)


def load_directory(path: Path) -> "Run | Page":
    """Load the run of a directory, or the report of any other result."""
    if not path.is_dir():
        raise InvalidFile(f"{path} is not the directory of a run")
    swept = sweeps.load(path)
    if swept is not None:
        return swept.page()
    studied, tried = studies.load(path), attacks.load(path)
    if studied is not None:
        return studied.page()
    if tried is not None:
        return _summary_page(tried)
    directory = Directory(path)
    if directory.read(EXPERIMENT) is None and directory.read(AUDIT) is not None:
        # Few directories are audits, and what they are made by takes a while to load.
        from tacit.audits import load

        alone = load(path)
        assert alone is not None
        return alone.page()
    if directory.read(EXPERIMENT) is not None and not is_over(directory):
        return unfinished_page(experiment.read(path), path)
    return experiment.load(path)


def data_protection(path: Path, answers: Path | None = None) -> Page:
    """Return the data-protection page of a run.

    Args:
        path: The directory of the run.
        answers: A TOML file whose table `[dpia]` fills in the form; by default the run's own.
    """
    from tacit.reports.dpia import summary
    from tacit.reports.dpia_form import read_answers

    found = load_directory(path)
    document = found.document if isinstance(found, Page) else found.document()
    if document.get("kind") != "run":
        raise InvalidValue(f"{path} is not allowed here: a data-protection page is about a single run")
    return summary(document, None if answers is None else read_answers(answers))


def current_page(asked: Experiment, path: Path) -> Page:
    """Return the report of a run, in progress or finished."""
    return experiment.load(path).page() if is_over(Directory(path)) else unfinished_page(asked, path)


def unfinished_page(asked: Experiment, path: Path) -> Page:
    """Return the report of an unfinished run: its promise and its state.

    Args:
        asked: The run's options.
        path: Its directory; it may not be there yet.
    """
    from tacit.reports.run import page as run_page

    directory, planned = Directory(path), asked.plan().statement
    books = directory.file(LEDGER)
    kept = books if books is not None and books.exists() else None
    rounds = directory.rounds()
    known = directory.read_json(PROVENANCE) or {}
    statement = replace(
        planned,
        released=tuple(released_in_words(_releases(kept))),
        public=(*planned.public, *known.get("public", ())),
        bare=(*planned.bare, *known.get("bare", ())),
    )
    return run_page(
        ReportData(
            name=asked.name,
            task=asked.task.kind,
            layout=asked.task.layout,
            goal=asked.task.goal,
            record=Record(rounds=tuple(rounds), chosen=len(rounds), sites=tuple(asked.sites.names or ())),
            statement=statement,
            ledger=ledger_summary(kept, (), planned.delta),
            text=directory.text(EXPERIMENT),
            environment=directory.read_json(ENVIRONMENT) or environment(),
            path=str(path),
            under_way=True,
            audit=audit.read(directory.read_json(AUDIT), path),
        )
    )


def _releases(books: Path | None) -> list[Release]:
    """Return the releases charged to a ledger; empty if it is missing or unreadable."""
    if books is None:
        return []
    with suppress(LedgerError), Ledger(books, mode="read") as ledger:
        return ledger.releases()
    return []


def _summary_page(found: AttackScores) -> Page:
    """Return the summary of attack trials."""
    return Page(
        title=found.name,
        lead=f"Results of {found.name}.",
        sections=(Section("Result", (Code(found.summary()),)),),
        document={"schema": 1, "kind": type(found).__name__.lower(), **found.as_dict()},
    )


def _unique_names(paths: Sequence[Path]) -> dict[str, Path]:
    """Map unique names to the directories: their own, or as they were given."""
    short = [path.name for path in paths]
    names = short if len(set(short)) == len(paths) else [str(path) for path in paths]
    if len(set(names)) < len(paths):
        raise InvalidValue(f"runs = {', '.join(names)} is not allowed: name each run once")
    return dict(zip(names, paths, strict=True))

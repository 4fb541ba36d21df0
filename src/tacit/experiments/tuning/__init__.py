"""Hyperparameter tuning: choose among a few candidates within one privacy budget, on one account.

`grid` is the table [tune] of an experiment file, as candidates; `selection` the criterion: held-out records,
or records that sites keep apart. `tune` calibrates the noise for all of it, trains every candidate and
chooses one.

Candidates are trained on the same records, so their prices compose: all of them and the choice are on one
ledger, and the promise of the file is that of the whole tuning. Each candidate is an ordinary run in a
directory of its own, and what was cut off can be resumed.
"""

import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tacit.errors import InvalidValue, Refused, RunUnusable
from tacit.experiments.experiment import Experiment, load
from tacit.experiments.tuning.grid import Candidate, TuningGrid, read
from tacit.experiments.tuning.selection import (
    ByHeldOut,
    ByReservedRecords,
    Choice,
    TrainedCandidate,
    Tuning,
    require_comparable,
)
from tacit.learning.record import MappedCallback, notify
from tacit.learning.task import Goal, TaskBase
from tacit.privacy import accounting
from tacit.privacy.accounting import smallest_noise
from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger.chain import planned_bytes
from tacit.privacy.ledger.data_book import DataBook, new_run
from tacit.privacy.ledger.run_ledger import RunLedger, begin_plan
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.privacy.statement import state, subject_prices
from tacit.runs.directory import EXPERIMENT, LEDGER, OPENED, PLAN, Directory
from tacit.runs.fit import book_of
from tacit.runs.queries import final_query_of, initial_query_of, queries_of
from tacit.runs.run import Run, write
from tacit.runs.stopping import Stopping
from tacit.runtime.keys import Key
from tacit.runtime.silence import suppress_warnings
from tacit.sites.federation import FEWEST_RECORDS, Federation, require_rows
from tacit.sites.splits import hold_out
from tacit.survival.models.learner import SurvivalLearner

if TYPE_CHECKING:
    from tacit.learning.record import Callback

__all__ = ["Candidate", "Tuning", "TuningGrid", "TuningResult", "TuningTrial", "read", "tune"]


RESULT = "tuning.json"


@dataclass(frozen=True, kw_only=True)
class TuningTrial:
    """Result of a candidate.

    Args:
        candidate: Its name.
        changes: Its values of the tuned keys.
        score: The score that the choice used; None if there is none.
        failed: The reason that it could not be chosen, if so.
    """

    candidate: str
    changes: dict[str, Any]
    score: float | None
    failed: str | None


@dataclass(frozen=True, kw_only=True)
class TuningResult:
    """Result of tuning: the trials and the chosen candidate.

    Args:
        path: The directory of the tuning.
        trials: The result of every candidate.
        chosen: The name of the one that was chosen.
        by: The score that the choice went by, and its good direction.
        noise: The standard deviation of the noise on that score; None where it is exact.
        run: The run of the chosen candidate; its statement has the price of the whole tuning.
    """

    path: Path
    trials: tuple[TuningTrial, ...]
    chosen: str
    by: Goal
    noise: float | None
    run: Run

    def as_dict(self) -> dict[str, Any]:
        """The tuning as one document, as `tacit tune --json` prints it."""
        told = self.run.as_dict()
        return {
            "tuning": str(self.path),
            "candidates": [asdict(trial) for trial in self.trials],
            "chosen": self.chosen,
            "by": {"score": self.by[0], "direction": self.by[1], "noise": self.noise},
            **{name: told[name] for name in ("run", "rounds", "scores", "privacy")},
        }

    def _repr_html_(self) -> str:
        from tacit.reports.page.html import tuned_html

        return tuned_html(self.as_dict(), self.run.as_dict(), self.run.privacy.sentences())


@dataclass(frozen=True, eq=False)
class PreparedTuning:
    """Tuning before its first charge: shared data and choice, and the price of each candidate.

    Args:
        federation: The sites on which candidates are trained.
        choice: The criterion that decides among them.
        tasks: The bound task of each candidate, by its name; for pricing.
        candidates: The candidates, each with the noise that it needs.
        bare: Facts that the choice releases unprotected.
    """

    federation: Federation
    choice: Choice
    tasks: Mapping[str, TaskBase]
    candidates: tuple[Candidate, ...]
    bare: Sequence[str] = ()

    def reserve_records(self, key: Key) -> "PreparedTuning":
        """Return the tuning with the records that sites reserve for the choice, if they do."""
        if not isinstance(self.choice, ByReservedRecords):
            return self
        share, whole = self.choice.tuning.apart, require_rows(self.federation)
        marks = (key / "apart").secret().uniform((len(whole.store),)) < share
        training, apart = whole.split(marks, share)
        return replace(self, federation=training, choice=replace(self.choice, apart=apart))

    def planned_releases(self) -> list[Release]:
        """Return the releases of all candidates, with every site in each round, and of the choice."""
        return [*_candidate_releases(self.candidates, self), *self.choice.release()]


@suppress_warnings()
def tune(
    grid: TuningGrid,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    announce: Callable[[Candidate], None] = lambda candidate: None,
    callbacks: "Sequence[Callback]" = (),
) -> TuningResult:
    """Train every candidate, select one, and charge all of it to one ledger.

    Args:
        grid: The candidates.
        out: The directory: one ledger, and a run for each candidate.
        resume: Continue the tuning in `out`, if there is one.
        announce: Called before each candidate is trained.
        callbacks: Called after every round.

    Guarantee:
        All that leaves the sites, for every candidate and for the choice, costs at most the epsilon of the
        promise; what the ledger cannot bear is refused before anything is trained.
    """
    directory = Directory(out)
    notify(callbacks, "opening the data and pricing all candidates")
    # Refuse what is impossible before anything is written.
    with grid.common.withhold_details():
        stage = prepare_tuning(grid) if directory.read(RESULT) is None else None
    book = None if stage is None else book_of(stage.federation, grid.common.privacy)
    if stage is not None and book is not None and directory.read(EXPERIMENT) is None:
        book.check(stage.planned_releases())
    with directory.claim(grid.document, resume=resume):
        if stage is None:
            directory.forget_secret()
            return _read_result(directory)
        with grid.common.withhold_details():
            done = _search(grid, stage, directory, book, announce, callbacks)
        told = {"trials": [asdict(trial) for trial in done.trials], "chosen": done.chosen}
        directory.write_json(RESULT, {**told, "by": done.by, "noise": done.noise})
        # Failed candidates are final too: their noise is not needed again.
        for place in (
            directory,
            *(_candidate_directory(candidate, directory) for candidate in stage.candidates),
        ):
            place.forget_secret()
        return done


def _search(
    grid: TuningGrid,
    stage: PreparedTuning,
    directory: Directory,
    book: DataBook | None,
    announce: Callable[[Candidate], None],
    callbacks: "Sequence[Callback]",
) -> TuningResult:
    """Train every candidate, and choose."""
    privacy = grid.common.privacy
    key = Key(
        grid.common.seed, rehearsal=isinstance(privacy, Open) or privacy.rehearsal, entropy=directory.secret()
    )
    stage = stage.reserve_records(key / "tune")
    plan = _plan(stage, key)
    _budget(privacy, stage, directory, plan)
    stage = _charge_book(stage, book, directory, key, grid)
    runs, failed = dict[str, Run](), dict[str, str]()
    for candidate in stage.candidates:
        announce(candidate)
        try:
            runs[candidate.name] = _run(candidate, stage.federation, directory, privacy, plan, callbacks)
        except InvalidValue as error:
            # The failure is visible in the results, so the whole plan of the candidate is charged.
            failed[candidate.name] = str(error)
            _pay_the_rest(candidate, stage, directory, key, plan)
    if not runs:
        raise InvalidValue(f"no candidate could be trained: {next(iter(failed.values()))}")
    notify(callbacks, "choosing among the candidates")
    choice = stage.choice
    trained = {name: TrainedCandidate(run.task, run.state) for name, run in runs.items()}
    with RunLedger(directory.file(LEDGER), book=book, receipt=stage.federation.receipt) as ledger:
        ledger.cover(stage.planned_releases(), run=new_run(), delta=_stated_delta(privacy))
        scores = choice.scores(trained, ledger, key / "tune", plan=plan)
        runs = _write_statements(runs, privacy, ledger, stage.bare, book)
    if not scores:
        raise InvalidValue(f"no candidate could be chosen: none has a finite {choice.goal[0]}")
    chosen = (max if choice.goal[1] == "max" else min)(scores, key=scores.__getitem__)
    trials = [
        TuningTrial(candidate=c.name, changes=c.changes, score=scores.get(c.name), failed=failed.get(c.name))
        for c in stage.candidates
    ]
    assert directory.path is not None
    return TuningResult(
        path=directory.path,
        trials=tuple(trials),
        chosen=chosen,
        by=choice.goal,
        noise=choice.noise,
        run=runs[chosen],
    )


def _plan(stage: PreparedTuning, key: Key) -> str:
    """Return the plan of a tuning: its candidates are fixed before the first of them is trained."""
    content = b"plan of the tuning" + planned_bytes(stage.planned_releases())
    return hmac.digest(key.entropy, content, "sha256").hex()


def _budget(privacy: Privacy | Open, stage: PreparedTuning, directory: Directory, plan: str) -> None:
    """Set the budget, and write down the plan of all candidates and the choice, which it must bear."""
    if isinstance(privacy, Open):
        return
    resumed = _candidate_directory(stage.candidates[0], directory).checkpoint() is not None
    with Ledger(directory.file(LEDGER)) as ledger:
        begin_plan(ledger, privacy, stage.planned_releases(), own=plan, resumed=resumed)


def _charge_book(
    stage: PreparedTuning, book: DataBook | None, directory: Directory, key: Key, grid: TuningGrid
) -> PreparedTuning:
    """Charge the book of the data for all candidates and the choice together.

    A candidate pays there only for what it has to pay a second time. A copy of the directory in which other
    candidates were written down is another tuning.
    """
    if book is None:
        return stage
    run = hmac.digest(key.entropy, b"book" + (directory.read(EXPERIMENT) or b""), "sha256").hex()
    plan, common = list(stage.planned_releases()), grid.common
    receipt = book.charge_ahead(
        plan, run=run, name=f"{common.name}, tuning", delta=_stated_delta(common.privacy)
    )
    return replace(stage, federation=stage.federation.carry(receipt))


def _stated_delta(privacy: Privacy | Open) -> float | None:
    return privacy.delta if isinstance(privacy, Privacy) else None


def _read_result(directory: Directory) -> TuningResult:
    """Return the choice that a directory remembers."""
    said, path = directory.read_json(RESULT), directory.path
    assert said is not None
    assert path is not None
    try:
        trials = msgspec.convert(said["trials"], type=tuple[TuningTrial, ...])
        by, noise = msgspec.convert([said["by"], said["noise"]], type=tuple[Goal, float | None])
        chosen = str(said["chosen"])
        return TuningResult(
            path=path, trials=trials, chosen=chosen, by=by, noise=noise, run=load(path / chosen)
        )
    except (KeyError, TypeError, msgspec.MsgspecError) as error:
        raise RunUnusable(f"tuning {path} cannot be read: {RESULT} is damaged ({error})") from error


@dataclass(frozen=True, eq=False)
class PreparedData:
    """Data that have been opened and prepared: every candidate trains on the same."""

    federation: Federation

    def open(self, split: object, seed: int, *, may_look: bool = False) -> Federation:
        """Return the prepared federation."""
        return self.federation


def _candidate_directory(candidate: Candidate, directory: Directory) -> Directory:
    """Return the directory of a candidate's run."""
    assert directory.path is not None
    return Directory(directory.path / candidate.name)


def _run(
    candidate: Candidate,
    federation: Federation,
    directory: Directory,
    privacy: Privacy | Open,
    plan: str,
    callbacks: "Sequence[Callback]",
) -> Run:
    """Train a candidate as an ordinary run, whose ledger and plan are those of the tuning."""
    place = _candidate_directory(candidate, directory).path
    assert place is not None
    place.mkdir(exist_ok=True)
    if not (place / LEDGER).is_symlink():
        (place / LEDGER).symlink_to(Path("..") / LEDGER)
    if not isinstance(privacy, Open):
        _candidate_directory(candidate, directory).write(PLAN, plan)
    # Spent epsilon and budget are those of all candidates together.
    budget = None if isinstance(privacy, Open) else privacy.epsilon
    told = MappedCallback(callbacks, lambda entry: replace(entry, budget=budget))
    name = f"{candidate.experiment.name}-{candidate.number}"
    made = replace(candidate.experiment, name=name, data=PreparedData(federation))
    return made.run(place, resume=True, callbacks=[told])


def _pay_the_rest(
    candidate: Candidate, stage: PreparedTuning, directory: Directory, key: Key, plan: str
) -> None:
    """Charge the remaining rounds of a failed candidate: its failure depends on its results."""
    place = _candidate_directory(candidate, directory)
    if isinstance(candidate.experiment.privacy, Open) or place.checkpoint() is None:
        return
    rest = [replace(row, purpose="rounds not taken") for row in _unpaid(candidate, stage, place)]
    with Ledger(directory.file(LEDGER)) as ledger:
        ticket = hmac.digest(key.entropy, f"rest of {candidate.name}".encode(), "sha256").hex()
        ledger.owe(rest, ticket=ticket, plan=plan)


def _unpaid(candidate: Candidate, stage: PreparedTuning, place: Directory) -> list[Release]:
    """Return the releases that a failed candidate has not paid of its plan; in doubt, too many."""
    augment, rounds = candidate.experiment.augment, len(place.rounds())
    question = initial_query_of(stage.tasks[candidate.name])
    if rounds or place.read(OPENED) is not None or (question is None and augment is None):
        # The round that failed has been paid.
        return releases(candidate, stage, rounds + 2)
    # It failed over what comes before the first round, of which the first has been paid.
    return releases(candidate, stage, 1, "opening" if augment is None else "augment")


def _write_statements(
    runs: Mapping[str, Run],
    privacy: Privacy | Open,
    ledger: Ledger,
    bare: Sequence[str],
    book: DataBook | None,
) -> dict[str, Run]:
    """Write the statement of all candidates and the choice into every run; return the runs.

    A single run was selected or passed over among all, so its own price alone would understate.
    """
    whole, found = state(privacy, ledger.releases(), prices=subject_prices(ledger, privacy)), dict[str, Run]()
    if book is not None and isinstance(privacy, Privacy):
        total = book.total(privacy.delta, privacy.unit)
        whole = replace(whole, all_runs=replace(total, epsilon=max(total.epsilon, whole.epsilon or 0.0)))
    for name, run in runs.items():
        known = tuple(dict.fromkeys([*run.privacy.bare, *bare]))
        own = run.privacy
        told = replace(
            whole, public=own.public, bare=known, but=own.but, not_protected=own.not_protected,
            left_out=own.left_out,
        )  # fmt: skip
        found[name] = replace(run, privacy=told)
        write(found[name], Directory(run.path))
    return found


def prepare_tuning(grid: TuningGrid) -> PreparedTuning:
    """Open the data, and solve for the noise.

    Raises:
        TacitError: These data, or this promise, do not go with some candidate, or with the choice.
    """
    common = grid.common
    privacy = common.privacy
    common.check()
    if any(c.experiment.task.layout == "environments" for c in grid.candidates):
        raise Refused(
            "[tune] does not go with ppo: it chooses by records, and environments have none. Compare "
            "settings as regimes of a [study]"
        )
    if any(c.experiment.task.layout != "rows" for c in grid.candidates):
        raise Refused(
            "[tune] is for rounds of updates: a fit of curves chooses its roughness penalty by itself, at no "
            "cost. Give it several values, such as smooth_s = [0.0, 0.01, 1.0]"
        )
    whole = common.open_federation()
    provenance = Provenance(privacy, public=whole.public)
    tasks = {c.name: c.experiment.task.bind(whole, provenance) for c in grid.candidates}
    # Each run states for itself what its task looked at; what follows is about the choice.
    provenance = Provenance(privacy, public=whole.public)
    if grid.tuning.pays(privacy, whole):
        assert isinstance(privacy, Privacy)
        require_comparable(list(tasks.values()))
        stage = PreparedTuning(whole, ByReservedRecords(whole, grid.tuning, privacy), tasks, grid.candidates)
    else:
        federation, choice = _split_held_out(
            whole, list(tasks.values()), Key(common.seed) / "tune", provenance
        )
        stage = PreparedTuning(federation, choice, tasks, grid.candidates, provenance.bare)
    return replace(stage, candidates=_with_share(grid.candidates, _share(stage, privacy)))


def _split_held_out(
    whole: Federation, tasks: Sequence[TaskBase], key: Key, provenance: Provenance
) -> tuple[Federation, Choice]:
    """Return one half of the held-out records decides, the other scores the result."""
    assert whole.held_out is not None
    if not whole.held_out_public:
        provenance.look(
            "the choice among candidates by held-out records",
            instead="choose by public records, or hold none out and pay with [tune] epsilon",
        )
    if len({task.goal for task in tasks}) > 1:
        raise Refused("[tune] cannot compare candidates whose scores differ: vary tasks with one goal")
    scored, decides = hold_out(whole.held_out, 0.5, key)
    if min(len(scored), len(decides)) < FEWEST_RECORDS:
        few = f"the held-out records ({len(whole.held_out)}) are too few"
        halves = "one half chooses the candidate, the other scores it; hold out more"
        raise InvalidValue(f"{few}: {halves}", rule=f"the held-out records are too few: {halves}")
    federation = whole.revise(held_out=whole.held_out.take(scored))
    choice = ByHeldOut(whole.held_out.take(decides), tasks[0].goal)
    choice.check(tasks[0], federation)
    return federation, choice


def _share(stage: PreparedTuning, privacy: Privacy | Open) -> float:
    """Return the budget share of each candidate, so that all candidates together use the whole budget.

    Guarantee:
        By the accountant, all planned releases and the choice cost at most the epsilon of the promise.
    """
    if isinstance(privacy, Open) or privacy.epsilon is None:
        return 1.0
    # The search begins at what would be left if prices added like squares.
    guess = 0.95 * len(stage.candidates) ** -0.5

    def price(noise: float) -> float:
        planned = _candidate_releases(_with_share(stage.candidates, guess / noise), stage)
        return accounting.epsilon([*planned, *stage.choice.release()], privacy.delta)

    return guess / smallest_noise([price], privacy.epsilon)


def _with_share(candidates: Sequence[Candidate], share: float) -> tuple[Candidate, ...]:
    """Return the candidates, each with a share of its epsilons and without baselines."""

    def part(given: Experiment) -> Experiment:
        spenders: dict[str, Any] = {"privacy": given.privacy, "stop": given.stop, "augment": given.augment}
        changed = {
            name: replace(spender, epsilon=share * spender.epsilon)
            for name, spender in spenders.items()
            if spender is not None and spender.epsilon is not None
        }
        return replace(given, baselines=False, **changed)

    return tuple(replace(c, experiment=part(c.experiment)) for c in candidates)


def _candidate_releases(candidates: Sequence[Candidate], stage: PreparedTuning) -> list[Release]:
    """Return the releases of all candidates, with every site in each round."""
    solved, found = dict[str, list[Release]](), list[Release]()
    for candidate in candidates:
        made, task = candidate.experiment, stage.tasks[candidate.name]
        # Candidates that are priced alike are solved once.
        work = [task.kind, task.groups, task.steps, task.sample, task.batch, task.shuffled]
        cuts = task.cuts if isinstance(task, SurvivalLearner) else None
        alike = repr((work, made.rounds, made.aggregation, cuts, queries_of(task)))
        if alike not in solved:
            solved[alike] = releases(candidate, stage, 1)
        found += solved[alike]
    return found


def releases(
    candidate: Candidate,
    stage: PreparedTuning,
    first: int,
    paid: Literal["nothing", "augment", "opening"] = "nothing",
) -> list[Release]:
    """Return the releases of a run from round `first` on; for the first round, with unpaid ones before it."""
    made, task, names = candidate.experiment, stage.tasks[candidate.name], list(stage.federation)
    stop, augment = made.stop or Stopping(), made.augment
    kept = stop.reserve(made.privacy if augment is None else augment.reserve(made.privacy))
    mechanism = kept.solve(
        task,
        names,
        made.aggregation,
        made.rounds,
        sampling=made.sampling.kind,
        records=stage.federation.records,
        questions=queries_of(task),
    )
    each, once = list[Release](), list[Release]()
    watched = stop.noisy_loss(made.privacy, made.rounds)
    # Rounds with shares of one noise have prices of their own; others are all alike.
    left, apart = made.rounds + 1 - first, bool(mechanism.rounds)
    for number in range(first, first + (max(left, 0) if apart else min(left, 1))):
        each += mechanism.release(number, names)
        each += () if watched is None else watched.release(number, names)
    if first == 1:
        once += mechanism.count_releases(names)
        once += () if augment is None or paid == "augment" else augment.release(made.privacy, names)
    asked = initial_query_of(task) if first == 1 and paid != "opening" else None
    for question in (asked, final_query_of(task)):
        once += () if question is None else kept.solve_query(question, mechanism).release(0, names)
    times = 1 if apart else left
    return [*once, *(replace(row, count=times * row.count) for row in each)]

"""What is settled before the first candidate is trained: the data, what decides, and the noise of each.

Everything here may refuse, and nothing has been written or charged by then.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from tacit.errors import InvalidValue, Refused
from tacit.experiments.experiment import Experiment
from tacit.experiments.tuning.grid import Candidate, TuningGrid
from tacit.experiments.tuning.selection import ByHeldOut, ByReservedRecords, Choice, require_comparable
from tacit.learning.task import Task
from tacit.privacy import accounting
from tacit.privacy.accounting.calibration import smallest_noise
from tacit.privacy.accounting.release import Release
from tacit.privacy.contracts import layout_of
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.provenance import Provenance
from tacit.runs.queries import final_query_of, initial_query_of, queries_of
from tacit.runs.stopping import Stopping
from tacit.runtime.keys import Key
from tacit.sites.federation import FEWEST_RECORDS, Federation
from tacit.sites.splits import hold_out


@dataclass(frozen=True, eq=False)
class PreparedTuning:
    """What is the same for all candidates, and what each of them may cost.

    Args:
        federation: What they train on.
        choice: What decides among them.
        tasks: What each learns, by its name, as settled for these data; for pricing.
        candidates: The candidates, each with the noise that it needs.
        bare: What the choice lets out unprotected.
    """

    federation: Federation
    choice: Choice
    tasks: Mapping[str, Task]
    candidates: tuple[Candidate, ...]
    bare: Sequence[str] = ()

    def reserve_records(self, key: Key) -> "PreparedTuning":
        """The same, once sites have drawn the records that they keep apart, if they do."""
        if not isinstance(self.choice, ByReservedRecords):
            return self
        share, whole = self.choice.tuning.apart, self.federation
        marks = (key / "apart").secret().uniform((len(whole.store),)) < share
        training, apart = whole.split(marks, share)
        return replace(self, federation=training, choice=replace(self.choice, apart=apart))

    def planned_releases(self) -> list[Release]:
        """What all candidates release, if everybody joins each round, and the choice."""
        return [*_candidate_releases(self.candidates, self), *self.choice.release()]


def prepare_tuning(grid: TuningGrid) -> PreparedTuning:
    """Open the data, and solve for the noise.

    Raises:
        TacitError: These data, or this promise, do not go with some candidate, or with the choice.
    """
    common = grid.common
    privacy = common.privacy
    common.check()
    if any(layout_of(c.experiment.task) == "environments" for c in grid.candidates):
        raise Refused(
            "[tune] does not go with ppo: it chooses by records, and worlds have none. Compare settings as "
            "regimes of a [study]"
        )
    if any(layout_of(c.experiment.task) != "rows" for c in grid.candidates):
        raise Refused(
            "[tune] is for rounds of updates: a fit of curves chooses prices of roughness by itself, at "
            "no cost. Give it several, as in smooth_s = [0.0, 0.01, 1.0]"
        )
    whole = common.open_federation()
    provenance = Provenance(privacy, public=whole.public)
    tasks = {c.name: cast(Task, c.experiment.task.bind(whole, provenance)) for c in grid.candidates}
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
    whole: Federation, tasks: Sequence[Task], key: Key, provenance: Provenance
) -> tuple[Federation, Choice]:
    """One half of the held-out records decides, the other scores the result."""
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
        halves = "one half decides among candidates, the other scores; hold out more"
        raise InvalidValue(f"{few}: {halves}", rule=f"the held-out records are too few: {halves}")
    federation = copy.copy(whole)
    federation.held_out = whole.held_out.take(scored)
    # It was of other held-out records.
    federation.__dict__.pop("fingerprint", None)
    choice = ByHeldOut(whole.held_out.take(decides), tasks[0].goal)
    choice.check(tasks[0], federation)
    return federation, choice


def _share(stage: PreparedTuning, privacy: Privacy | Open) -> float:
    """The share of the promise that each candidate is trained under, so that all of it meets the whole.

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
    """The candidates, each with this share of every epsilon it asks for, and nothing trained beside it."""

    def part(given: Experiment) -> Experiment:
        spenders = {name: getattr(given, name) for name in ("privacy", "stop", "augment")}
        changed = {
            name: replace(spender, epsilon=share * spender.epsilon)
            for name, spender in spenders.items()
            if getattr(spender, "epsilon", None) is not None
        }
        return replace(given, baselines=False, **changed)

    return tuple(replace(c, experiment=part(c.experiment)) for c in candidates)


def _candidate_releases(candidates: Sequence[Candidate], stage: PreparedTuning) -> list[Release]:
    """What all candidates release, if everybody joins each round."""
    solved, found = dict[str, list[Release]](), list[Release]()
    for candidate in candidates:
        made, task = candidate.experiment, stage.tasks[candidate.name]
        # Candidates that are priced alike are solved once.
        work = [task.kind, task.groups, task.steps, task.sample, task.batch, task.shuffled]
        alike = repr((work, made.rounds, made.aggregation, getattr(task, "cuts", None)))
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
    """What a run releases from round `first` on, to its end; with the first, what comes before, if unpaid."""
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
    each, once = list(mechanism.release(first, names)), list[Release]()
    if isinstance(made.privacy, Privacy) and stop.epsilon is not None:
        noise = stop.noise(made.privacy, made.rounds)
        each += [stop.release(made.privacy, noise, name, first) for name in names]
    if first == 1:
        once += mechanism.count_releases(names)
        once += () if augment is None or paid == "augment" else augment.release(made.privacy, names)
    asked = initial_query_of(task) if first == 1 and paid != "opening" else None
    for question in (asked, final_query_of(task)):
        once += () if question is None else kept.solve_query(question, mechanism).release(0, names)
    left = made.rounds + 1 - first
    return [*once, *(replace(row, count=left * row.count) for row in each if left > 0)]

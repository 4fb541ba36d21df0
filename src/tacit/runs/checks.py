"""What is refused, set aside or changed before a run charges anything."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from tacit.aggregation.attacks.base import Attack
from tacit.aggregation.base import Aggregator, as_aggregator
from tacit.aggregation.join import Join
from tacit.aggregation.mean import Mean
from tacit.aggregation.server import Plain
from tacit.errors import InvalidValue, Refused, require
from tacit.learning.task import Task
from tacit.privacy.contracts import exempt, layout_of, name_of
from tacit.privacy.mechanisms.adaptive_clipping import AdaptiveClipping
from tacit.privacy.mechanisms.base import NORMS, Mechanism
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.provenance import Provenance
from tacit.runs.queries import Augmenter, initial_query_of, with_answers
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation
from tacit.sites.sampling import Poisson
from tacit.sites.table import Records

LAYOUTS = {
    "rows": "sites that hold records of their own",
    "columns": "parties that hold columns of the same records",
    "environments": "sites that hold worlds",
}


def require_layout(task: Task, federation: Federation, rounds: int) -> None:
    """Refuse a task that learns from another kind of federation, or in another number of rounds."""
    wanted = layout_of(task)
    if getattr(task, "once", False):
        require(rounds == 1, "rounds", rounds, f"1: {task.kind} asks every site once")
    if wanted == "columns":
        allowed = f"1: {task.kind} releases every column once, and the rest is free"
        require(rounds == 1, "rounds", rounds, allowed)
    if wanted != federation.layout:
        held = f"{task.kind} learns from {LAYOUTS[wanted]}, and these are {LAYOUTS[federation.layout]}"
        raise InvalidValue(f"{held}: use data and sites of its kind, or another task")


def require_local_records(federation: Federation, **beside: object) -> None:
    """Refuse what needs the records themselves where they are at the sites, by the names of the tables."""
    stop = beside.get("stop")
    looked = {**beside, "stop": None if getattr(stop, "epsilon", None) is None else stop}
    for name, asked in looked.items():
        if federation.distant and asked is not None:
            told = "[stop] epsilon" if name == "stop" else f"[{name}]"
            raise Refused(
                f"{told} does not go with sites on machines of their own: it is for runs in one process. "
                "Leave it out"
            )


def require_protection(task: Task, federation: Federation, provenance: Provenance) -> None:
    """Refuse to let out bare what a party would keep to itself if it did all the work."""
    bare = exempt(task)
    if federation.distant and bare:
        provenance.look(
            f"{bare[0].partition(',')[0]}, which the coordinator would get as it is,",
            instead='protect all of it, as by protect = "all" in [task]',
        )


def resolve_aggregator(task: Task, aggregation: object, **also: object) -> Aggregator:
    """How updates are combined: by the rule that was given, or as a task says that learns from columns.

    Args:
        task: What is learnt.
        aggregation: The rule that was given.
        also: What else was asked for, by the name of its table; None, or what is usual, where it was not.

    Raises:
        Refused: Columns are put side by side, and nothing that is for updates goes with that.
    """
    if layout_of(task) == "environments" and also.get("augment") is not None:
        raise Refused(
            f"[augment] does not go with {task.kind}: worlds have no records to add to. Leave it out"
        )
    if getattr(task, "added", False):
        _require_mean(task, aggregation, also)
    if layout_of(task) != "columns":
        return as_aggregator(aggregation)
    if aggregation != Mean():
        rule = name_of(as_aggregator(aggregation))
        raise Refused(
            f"[aggregation] {rule} does not go with {task.kind}: what parties send is put side by side, not "
            "combined. Leave it out"
        )
    asked = [name for name, part in also.items() if part not in (None, Plain(), Poisson())]
    for name in asked:
        raise Refused(
            f"[{name}] does not go with {task.kind}: every party releases its columns once, and nothing else "
            "is sent. Leave it out"
        )
    return Join(cast(Any, task).join_columns, cast(Any, task).join_products)


def _require_mean(task: Task, aggregation: object, also: Mapping[str, object]) -> None:
    """Refuse whatever would weigh sums that are to be added up as they are."""
    given = {
        "aggregation": aggregation,
        **{name: also.get(name) for name in ("server", "clusters", "quarantine")},
    }
    usual = {"aggregation": Mean(), "server": Plain()}
    for name, part in given.items():
        if part is not None and part != usual.get(name):
            raise Refused(
                f"[{name}] does not go with {task.kind}: it adds up what the sites send. Leave it out"
            )


def with_mechanism(task: Task, mechanism: Mechanism) -> Task:
    """A task that knows how much noise there will be, if it wants to."""
    return cast(Any, task).with_mechanism(mechanism) if hasattr(task, "with_mechanism") else task


def resolve_adaptive_clipping(
    task: Task, federation: Federation, privacy: Privacy | Open, **beside: object
) -> AdaptiveClipping | None:
    """How updates are sent in units of bounds that follow them, if the promise wants that.

    Args:
        task: What is learnt; it may say which parts an update has (`blocks`).
        federation: Who holds what.
        privacy: What is promised.
        beside: What such updates do not go with, by the name of its table; None where it was not asked for.
    """
    if isinstance(privacy, Open) or privacy.clip_quantile is None:
        return None
    require_plain(privacy, **beside)
    width = _trial_state(task, federation).shape[-1]
    return AdaptiveClipping(
        blocks=getattr(task, "blocks", (width,)),
        quantile=privacy.clip_quantile,
        start=privacy.clip,
        norm=NORMS[privacy.mechanism],
    )


def require_plain(privacy: Privacy | Open, **beside: object) -> None:
    """Refuse what does not go with updates in units of their bounds, by the names of the tables."""
    if isinstance(privacy, Open) or privacy.clip_quantile is None:
        return
    for name, asked in beside.items():
        if asked is not None:
            raise Refused(
                f"[{name}] does not go with clip_quantile: updates are sent in units of their bounds, with "
                "counts beside them. Leave one of them out"
            )


def _trial_state(task: Task, federation: Federation) -> Array:
    """A state like any other, to try things out on before anything is paid."""
    opening = initial_query_of(task)
    return (task if opening is None else with_answers(task, opening.placeholder)).start(federation, Key(0))


def initial_provenance(federation: Federation, privacy: Privacy | Open) -> Provenance:
    """What is public of a federation, and what was taken from its records already."""
    held = "worlds" if federation.layout == "environments" else "records"
    provenance = Provenance(privacy, public=federation.public, what=held)
    if federation.held_out is not None and federation.held_out_public and not federation.public:
        provenance.declare_public([f"the {held} that models are scored on, as whoever gave them says"])
    for what in federation.taken:
        provenance.look(what, instead="use public numbers, and sites that are real")
    if federation.records is not None:
        whose = "there are" if federation.layout == "columns" else "all sites hold"
        provenance.declare_public([f"how many records {whose}: {federation.records:,}"])
    return provenance


def remaining_budget(
    augment: Augmenter | None, federation: Federation, privacy: Privacy | Open, provenance: Provenance
) -> Privacy | Open:
    """What is left of a promise once synthetic records have their part."""
    if augment is None:
        return privacy
    augment.check(federation, privacy, provenance)
    return augment.reserve(privacy)


def poison(attack: Attack | None, federation: Federation, privacy: Privacy | Open, seed: int) -> Federation:
    """The federation with the records of liars as they want them."""
    if attack is None:
        return federation
    require_rehearsal(privacy)
    return attack.poison_data(federation, attack.draw_liars(list(federation), Key(seed)), Key(seed))


def require_rehearsal(privacy: Privacy | Open) -> None:
    """Refuse attacks where somebody is protected, and where nobody would see them."""
    if isinstance(privacy, Open):
        return
    if not privacy.rehearsal:
        raise Refused("[attack] is for rehearsals: give [privacy] rehearsal = true, or leave the attack out")
    if privacy.noise == "secure":
        raise Refused(
            '[attack] does not go with noise = "secure": liars send what they like, and nobody sees it. Use '
            'noise = "site" or "server", or leave the attack out'
        )


def require_scores(
    task: Task,
    federation: Federation,
    mechanism: Mechanism,
    tables: Sequence[Records | None],
    packing: AdaptiveClipping | None = None,
) -> None:
    """Refuse models that cannot be protected, or scored on these records, before anything is charged."""
    start, opening = _trial_state(task, federation), initial_query_of(task)
    task = task if opening is None else with_answers(task, opening.placeholder)
    mechanism.check_width(start.shape[-1] if packing is None else packing.width)
    # What is watched is often what the result is scored on.
    for whole in {id(table): table for table in tables}.values():
        # Worlds are glanced at: to play them to the end would take longer than some runs.
        table = getattr(whole, "at_a_glance", whole)
        try:
            _ = task.score(start, table) if table is not None else {}
        except InvalidValue as error:
            few = f"the held-out records ({len(table or ())}) cannot be scored"
            rule = "the held-out records cannot be scored: hold out more, or none"
            raise InvalidValue(f"{few}: hold out more, or none ({error})", rule=rule) from error

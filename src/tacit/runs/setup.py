"""`prepare`: decide, check and price a run before anything is charged.

It is the only place where that happens: `plan` prints its result, `fit` runs it, the guard of a site
recomputes it. It is a function of its arguments alone: the coordinator and every site that read the same
experiment derive the same mechanism, without exchanging it.

What may be right (a constant column, a site whose times are much shorter, copies of some records) is not
refused: it is advice, in words or where the owner of the records alone reads it. Under a promise a run says
the same words whatever the advice is, since it depends on records.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from tacit.aggregation.attacks import Attack
from tacit.aggregation.base import Aggregator, CustomAggregator, as_aggregator, noise_of
from tacit.aggregation.defence.clustering import Clusters
from tacit.aggregation.defence.quarantine import Quarantine, too_few_warning
from tacit.aggregation.mean import Join, Mean
from tacit.aggregation.robust.mixing import Bucketing
from tacit.aggregation.server import Plain
from tacit.errors import MOST_ROUNDS, InvalidValue, Refused, TooFewSites, require, require_count
from tacit.learning.query import QueryBase
from tacit.learning.task import TaskBase
from tacit.privacy.forecast import require_useful
from tacit.privacy.mechanisms.adaptive_clipping import AdaptiveClipping
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.mechanisms.secure_sum import FEWEST, MOST, honest
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.runs.evaluation import enter_late
from tacit.runs.queries import final_query_of, initial_query_of, queries_of
from tacit.runs.spec import PreparedRun, PublicFacts, RunSpec
from tacit.runs.stopping import Stopping, watch_over
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.refusals import ADVICE, Withheld
from tacit.runtime.silence import suppress_warnings
from tacit.sites.federation import Federation, RowFederation
from tacit.sites.record_checks import require_units
from tacit.sites.table import Records

LAYOUTS = {
    "rows": "sites that hold records of their own",
    "columns": "parties that hold columns of the same records",
    "environments": "sites that hold worlds",
}
# With fewer sites, the outvoted one may be the honest one.
FEWEST_TO_VOTE = 4
# More sites than any federation has.
MANY = 100_000


@suppress_warnings()
def prepare(spec: RunSpec, sites: Federation | PublicFacts | None) -> PreparedRun:
    """Prepare a run: decide, check and price everything before anything is charged.

    Args:
        spec: The run's options.
        sites: The sites with their data; to plan, the public facts about them, if any. Then the price is the
            same, and checks that need the data are left out.

    Raises:
        TacitError: A mistake that the user can mend: unusable data, a promise that cannot be kept.
    """
    federation = sites if isinstance(sites, Federation) else None
    facts = PublicFacts.of(sites) if isinstance(sites, Federation) else sites or PublicFacts()
    privacy = spec.privacy
    require_count("rounds", spec.rounds, MOST_ROUNDS)
    require_local_records(spec, facts)
    provenance = (
        Provenance(privacy, public=facts.public)
        if federation is None
        else initial_provenance(federation, privacy)
    )
    require_layout(spec.task, facts, spec.rounds)
    task = spec.task.with_privacy(privacy)
    task = task if federation is None else task.bind(federation, provenance)
    require_protection(task, facts, provenance)
    rule = resolve_aggregator(spec, task)
    if isinstance(federation, RowFederation) and isinstance(privacy, Privacy) and privacy.unit == "record":
        require_units(federation, privacy.delta if privacy.protects else None)
    if federation is not None and spec.augment is not None:
        spec.augment.check(federation, privacy, provenance)
    require_evaluable(spec, task, federation, provenance)
    stop = spec.stop or Stopping()
    training = stop.reserve(privacy if spec.augment is None else spec.augment.reserve(privacy))
    require_compatible_clusters(spec)
    require_plain(spec)
    names, clusters, aggregation = resolve_sites(spec, rule, facts.names)
    queries = tuple(
        queries_of(task) if federation is not None else _expected_queries(task, provenance, facts)
    )
    mechanism = training.solve(
        task, names, aggregation, spec.rounds, sampling=spec.sampling.kind, records=facts.records,
        questions=queries, watched=spec.quarantine is not None,
    )  # fmt: skip
    prepared = PreparedRun(
        spec=spec, facts=facts, names=names, task=task, aggregation=aggregation, clusters=clusters,
        training=training, mechanism=mechanism, queries=queries, provenance=provenance,
        watched=stop.noisy_loss(privacy, spec.rounds),
        warnings=tuple(sites_warnings(spec, aggregation, facts.names)),
    )  # fmt: skip
    if facts.names is not None:
        spec.sampling.check(names)
    if spec.attack is not None:
        require_rehearsal(privacy)
    if privacy.protects:
        # By the public number alone: one record more must not decide whether a run is refused.
        require_useful(prepared.forecast(facts.records), spend_anyway=spec.spend_anyway)
    if federation is None and facts.names is not None:
        room = mechanism.most_records(1 + (facts.features or 0))
        require_room_for_records(room, names, facts.records)
    return prepared if federation is None else _open(prepared, federation)


def require_evaluable(
    spec: RunSpec, task: TaskBase, federation: Federation | None, provenance: Provenance
) -> None:
    """Refuse scores on private records that the task, the promise or the records do not allow."""
    if spec.evaluate is None:
        return
    late = federation is not None and enter_late(federation)
    spec.evaluate.check(task, spec.privacy, clusters=spec.clusters is not None, late=late)
    provenance.declare_public([spec.evaluate.public_fact])


def resolve_sites(
    spec: RunSpec, rule: Aggregator, names: tuple[str, ...] | None
) -> tuple[tuple[str, ...], Clusters | None, Aggregator]:
    """Resolve sites, clusters and aggregator; of sites that the data decide, the smallest possible number.

    Raises:
        TooFewSites: The rule cannot serve so few sites.
    """
    if names is None:
        models = 1 if spec.clusters is None else spec.clusters.min_models
        fewest = models * min_sites_for(rule, spec.privacy)
        names = tuple(f"site-{number}" for number in range(1, fewest + 1))
    clusters = None if spec.clusters is None else spec.clusters.resolve(names)
    return names, clusters, resolve_for_clusters(rule, clusters, names, spec.privacy)


def sites_warnings(spec: RunSpec, aggregation: Aggregator, names: tuple[str, ...] | None) -> list[str]:
    """Return warnings about trust in single sites, as far as the sites are known."""
    if isinstance(aggregation, Join):
        # Columns are concatenated, so no party can outvote another.
        return []
    known = None if names is None else len(names)
    return aggregation_warnings(aggregation, known, spec.privacy, spec.quarantine)


def _expected_queries(task: TaskBase, provenance: Provenance, facts: PublicFacts) -> list[QueryBase]:
    """Return the queries that the task will need once bound; visible data answer the initial one for free."""
    opening, closing = initial_query_of(task), final_query_of(task)
    # Data on other machines cannot be looked at, even in an open run.
    looked = provenance.allowed and not facts.distant
    known = looked or task.horizon is not None
    known = known and not (opening is not None and opening.always)
    return [part for part in (None if known else opening, closing) if part is not None]


def _open(prepared: PreparedRun, federation: Federation) -> PreparedRun:
    """Resolve all that depends on the data: poisoned records, the watched loss, held-out records."""
    spec, task, provenance = prepared.spec, prepared.task, prepared.provenance
    task = task.with_mechanism(prepared.mechanism)
    packing = resolve_adaptive_clipping(task, federation, spec.privacy)
    federation = poison(spec.attack, federation, spec.seed)
    watch, test = watch_over(federation, spec.stop, task.goal, provenance, Key(spec.seed))
    opening = initial_query_of(task)
    asked = None if opening is None else prepared.solve_query(opening).with_one_group()
    require_scores(task, federation, prepared.mechanism, [test, watch.records], packing, asked)
    opened = replace(prepared, task=task, packing=packing, federation=federation, watch=watch, test=test)
    room, seen = most_records(opened), federation.public and isinstance(federation, RowFederation)
    require_room_for_records(
        room, prepared.names, federation.records, largest_site(federation) if seen else None
    )
    return opened


def most_records(prepared: PreparedRun) -> int | None:
    """Return the most records of a site that secure sums hold for certain; None without a limit."""
    federation, opening = prepared.federation, initial_query_of(prepared.task)
    if federation is None or prepared.mechanism.most_records(1) is None:
        return None
    width, found = _trial_state(prepared.task, federation).shape[-1], list[int | None]()
    if opening is not None:
        # Answers may have more intervals than the trial, but no more than they were asked for.
        width = max(width, opening.width)
        asked = prepared.solve_query(opening).with_one_group()
        found.append(asked.most_records(opening.width))
    found.append(prepared.mechanism.most_records(width))
    return min((most for most in found if most is not None), default=None)


def largest_site(federation: Federation) -> int | None:
    """Return the number of records of the largest site; None where it is not known here."""
    if not isinstance(federation, RowFederation) or federation.distant:
        return None
    return max((len(federation.records_of(name)) for name in federation), default=0)


def require_room_for_records(
    room: int | None, names: Sequence[str], records: int | None, largest: int | None = None
) -> None:
    """Refuse more records than secure sums hold, by public numbers alone: the rest would be cut off.

    Args:
        room: The most records of a site that they hold.
        names: The sites.
        records: The number of records of all sites, if it is public.
        largest: That of the largest site, if it is public.
    """
    least = max(largest or 0, 0 if records is None else math.ceil(records / len(names)))
    if room is not None and least > room:
        raise Refused(_no_room(f"a site has {least:,} records or more", room, len(names)))


def _no_room(found: str, room: int, sites: int | None = None) -> str:
    over = "this run" if sites is None else f"{sites} sites"
    return (
        f"{found}, and a secure sum over {over} holds {room:,} of each site: what goes beyond would be cut "
        'off. Use noise = "site", or fewer sites'
    )


def require_layout(task: TaskBase, facts: PublicFacts, rounds: int) -> None:
    """Refuse a task that learns from another kind of federation, or in another number of rounds."""
    wanted = task.layout
    if task.once:
        require(rounds == 1, "rounds", rounds, f"1: {task.kind} queries every site once")
    if wanted == "columns":
        allowed = f"1: {task.kind} releases every column once, and everything else is free"
        require(rounds == 1, "rounds", rounds, allowed)
    if facts.layout is not None and wanted != facts.layout:
        held = f"{task.kind} learns from {LAYOUTS[wanted]}, and these are {LAYOUTS[facts.layout]}"
        raise InvalidValue(f"{held}: use data and sites of its kind, or another task")


def require_local_records(spec: RunSpec, facts: PublicFacts) -> None:
    """Refuse options that read records, if these are remote."""
    paid = spec.stop is not None and spec.stop.epsilon is not None
    asked = {
        "[stop] epsilon": paid,
        "[augment]": spec.augment is not None,
        "[attack]": spec.attack is not None,
    }
    for told, needed in asked.items():
        if facts.distant and needed:
            raise Refused(
                f"{told} does not go with sites on machines of their own: it is for runs in one process. "
                "Leave it out"
            )


def require_protection(task: TaskBase, facts: PublicFacts, provenance: Provenance) -> None:
    """Refuse to release unprotected data that a party could keep to itself by doing all the work."""
    bare = task.exempt
    if facts.distant and bare:
        provenance.look(
            f"{bare[0].partition(',')[0]}, which the coordinator would receive without noise,",
            instead='protect all of it, as by protect = "all" in [task]',
        )


def resolve_aggregator(spec: RunSpec, task: TaskBase) -> Aggregator:
    """Return the aggregation rule: the one that was given, or `Join` for vertical data.

    Raises:
        Refused: Options that work on updates are given for a task that concatenates columns.
    """
    if task.layout == "environments" and spec.augment is not None:
        raise Refused(f"[augment] does not go with {task.kind}: environments have no records. Remove it")
    if task.added:
        _require_mean(spec, task)
    if task.layout != "columns":
        return as_aggregator(spec.aggregation)
    if spec.aggregation != Mean():
        rule = as_aggregator(spec.aggregation).name
        raise Refused(
            f"[aggregation] {rule} does not go with {task.kind}: columns of parties are joined, not "
            "combined. Remove it"
        )
    for name in spec.beside():
        raise Refused(
            f"[{name}] does not go with {task.kind}: every party releases its columns once, and sends "
            "nothing else. Remove it"
        )
    return Join(task.join_columns, task.join_products)


def _require_mean(spec: RunSpec, task: TaskBase) -> None:
    """Refuse whatever would weigh sums that are to be added up as they are."""
    weighing = {
        "aggregation": spec.aggregation != Mean(), "server": spec.server != Plain(),
        "clusters": spec.clusters is not None, "quarantine": spec.quarantine is not None,
    }  # fmt: skip
    for name, given in weighing.items():
        if given:
            raise Refused(
                f"[{name}] does not go with {task.kind}: it sums the answers of the sites. Remove it"
            )


def resolve_adaptive_clipping(
    task: TaskBase, federation: Federation, privacy: Privacy | Open
) -> AdaptiveClipping | None:
    """Return adaptive clipping (quantile-tracked clip bounds) if the policy has `clip_quantile`, else None.

    Args:
        task: The task; its `blocks` may divide an update into parts with bounds of their own.
        federation: The sites.
        privacy: The privacy policy.
    """
    if privacy.clip_quantile is None:
        return None
    width = _trial_state(task, federation).shape[-1]
    return AdaptiveClipping(
        blocks=task.blocks or (width,),
        quantile=privacy.clip_quantile,
        start=privacy.bound,
        norm=privacy.norm,
    )


def require_plain(spec: RunSpec) -> None:
    """Refuse options that do not work with adaptive clipping, whose updates are in units of their bounds."""
    if spec.privacy.clip_quantile is None:
        return
    for name, asked in {"clusters": spec.clusters, "quarantine": spec.quarantine}.items():
        if asked is not None:
            raise Refused(
                f"[{name}] does not go with clip_quantile: updates are sent in units of their clip bounds, "
                "with counts. Remove one of them"
            )


def _trial_state(task: TaskBase, federation: Federation) -> Array:
    """Return an initial state for trials, before anything is charged."""
    opening = initial_query_of(task)
    return (task if opening is None else task.with_answers(opening.placeholder)).start(federation, Key(0))


def initial_provenance(federation: Federation, privacy: Privacy | Open) -> Provenance:
    """Return the provenance of a federation: public facts, and facts already taken from its records."""
    held = "environments" if federation.layout == "environments" else "records"
    provenance = Provenance(privacy, public=federation.public, what=held)
    if federation.held_out is not None and federation.held_out_public and not federation.public:
        provenance.declare_public([f"the {held} for scoring, which were declared public"])
    for what in federation.taken:
        provenance.look(what, instead="use public numbers, and real sites")
    if federation.records is not None:
        whose = "at every party" if federation.layout == "columns" else "of all sites"
        provenance.declare_public([f"the number of records {whose}: {federation.records:,}"])
    return provenance


def poison(attack: Attack | None, federation: Federation, seed: int) -> Federation:
    """Return the federation with the records of dishonest sites changed by the attack."""
    if attack is None:
        return federation
    return attack.poison_data(federation, attack.draw_liars(list(federation), Key(seed)), Key(seed))


def require_rehearsal(privacy: Privacy | Open) -> None:
    """Refuse attacks in protected runs that are not rehearsals, and under secure aggregation."""
    if isinstance(privacy, Open):
        return
    if not privacy.rehearsal:
        raise Refused("[attack] is for rehearsals: give [privacy] rehearsal = true, or leave the attack out")
    if privacy.noise == "secure":
        raise Refused(
            '[attack] does not go with noise = "secure": the server cannot see what dishonest sites send. '
            'Use noise = "site" or "server", or leave the attack out'
        )


def require_scores(
    task: TaskBase,
    federation: Federation,
    mechanism: Mechanism,
    tables: Sequence[Records | None],
    packing: AdaptiveClipping | None = None,
    asked: Mechanism | None = None,
) -> None:
    """Refuse models that cannot be protected, or scored on these records, before anything is charged."""
    start, opening = _trial_state(task, federation), initial_query_of(task)
    task = task if opening is None else task.with_answers(opening.placeholder)
    mechanism.check_width(start.shape[-1] if packing is None else packing.width)
    if opening is not None and asked is not None:
        asked.check_width(opening.width)
    # The watched and the test records are often the same table; score each table once.
    for whole in {id(table): table for table in tables}.values():
        # Worlds are glanced at: to play them to the end would take longer than some runs.
        glance = None if whole is None else whole.at_a_glance
        table = whole if glance is None else glance
        try:
            _ = task.score(start, table) if table is not None else {}
        except InvalidValue as error:
            few = f"the held-out records ({len(table or ())}) cannot be scored"
            rule = "the held-out records cannot be scored: hold out more, or none"
            raise InvalidValue(f"{few}: hold out more, or none ({error})", rule=rule) from error


def aggregation_warnings(
    aggregation: Aggregator, sites: int | None, privacy: Privacy | Open, quarantine: Quarantine | None = None
) -> list[str]:
    """Return warnings, each a sentence.

    Args:
        aggregation: The aggregator, resolved.
        sites: Number of sites; None if that is not known yet.
        privacy: The promise.
        quarantine: The quarantine, if there is one.
    """
    noise, found = noise_of(privacy), list[str]()
    if sites is not None and not isinstance(aggregation, Mean | CustomAggregator):
        found += _tolerance_warnings(aggregation, sites)
    if noise == "site" and aggregation.under_noise == "suffers":
        found.append(
            f"{aggregation.kind} loses more accuracy to noise at the sites than the mean, and more with a "
            "larger model: covariance-filter and geometric-median lose less"
        )
    if noise == "secure":
        found.append(_secure_warnings(aggregation, sites))
    unseen = None if quarantine is None or sites is None else too_few_warning(sites)
    return found if unseen is None else [*found, unseen]


def min_sites_for(aggregation: Aggregator, privacy: Privacy | Open) -> int:
    """Return the smallest number of sites that rule and privacy policy allow."""

    def can_serve(sites: int) -> bool:
        try:
            _ = aggregation.resolve(sites, privacy)
        except TooFewSites:
            return False
        return True

    fewest = 1 + bisect_left(range(1, MANY), True, key=can_serve)
    if isinstance(privacy, Open) or privacy.noise != "secure":
        return fewest
    fewest = max(fewest, FEWEST)
    return next((sites for sites in range(fewest, MOST + 1) if _hides(sites, privacy.colluders)), fewest)


def _hides(sites: int, colluders: int) -> bool:
    try:
        _ = honest(sites, colluders)
    except Refused:
        return False
    return True


def _tolerance_warnings(aggregation: Aggregator, sites: int) -> list[str]:
    """Return warnings about a rule for `sites` sites."""
    f = aggregation.tolerates(sites)
    if sites < FEWEST_TO_VOTE:
        return [f"with {sites} sites, no rule can outvote a dishonest one: updates are only screened"]
    if f == 0:
        return [f"{aggregation.kind} with these options tolerates no dishonest site among {sites}"]
    if 3 * f >= sites:
        return [
            f"f = {f} of {sites} sites is a third or more: few rules tolerate that if the data of sites "
            "differ"
        ]
    return []


def _secure_warnings(aggregation: Aggregator, sites: int | None) -> str:
    """Return the warning about attackers under secure aggregation."""
    f = 1 if sites is None else aggregation.tolerates(sites)
    if isinstance(aggregation, Bucketing) and f:
        told = "" if sites is None else f"; {f} of {sites // aggregation.size} buckets can be outvoted"
        return f"the server sees no single update: a dishonest site spoils the sum of its bucket{told}"
    return "the server sees no single update, so nothing but its own clipping limits a dishonest site"


def resolve_for_clusters(
    aggregation: Aggregator, clusters: Clusters | None, names: Sequence[str], privacy: Privacy | Open
) -> Aggregator:
    """Resolve the aggregator for a federation; each of several models has a part of it.

    Raises:
        TooFewSites: It cannot serve so few sites.
    """
    if clusters is None:
        return aggregation.resolve(len(names), privacy)
    each = len(names) // clusters.resolve(names).models
    try:
        return aggregation.resolve(each, privacy)
    except TooFewSites as error:
        choice = 'by = "site"' if clusters.by == "site" else f"count = {clusters.count}"
        few = f"[clusters] {choice} leaves {each} of {len(names)} sites to a model"
        raise TooFewSites(f"{few}: {error}") from error


def require_compatible_clusters(spec: RunSpec) -> None:
    """Refuse options that do not work with clusters, before anything is charged."""
    clusters, privacy = spec.clusters, spec.privacy
    if clusters is None:
        return
    allowed = f"below {spec.rounds}, the number of rounds"
    require(clusters.warm < spec.rounds, "[clusters] warm", clusters.warm, allowed)
    if isinstance(privacy, Privacy) and clusters.by == "loss":
        raise Refused(
            '[clusters] by = "loss" does not go with a promise: the choice of the best model for a site '
            'reveals its records. Use by = "direction" or by = "weights", which use protected updates only.'
        )
    if isinstance(privacy, Privacy) and privacy.noise != "site":
        raise Refused(
            f'[clusters] does not go with noise = "{privacy.noise}": the server would need single updates '
            'without noise. Use noise = "site".'
        )
    if spec.quarantine is not None:
        raise Refused(
            "[clusters] does not go with [quarantine]: a site of a small cluster looks dishonest to the "
            "others. Leave one of them out."
        )
    if spec.stop is not None and spec.stop.epsilon is not None:
        raise Refused(
            "[clusters] does not go with [stop] epsilon: the loss of every model would have a price. Watch "
            "held-out records instead."
        )


NONE = "Nothing in these records calls for advice."


@suppress_warnings()
def advice(
    task: TaskBase, federation: Federation, place: Withheld, *, private: bool, room: int | None = None
) -> list[str]:
    """Return advice about records, or where it is kept for their owner.

    Args:
        task: The task, which knows what to look for.
        federation: The sites with their records; remote ones advise their own administrators.
        place: The destination of advice about private records.
        private: True if the records are private under a promise.
        room: The most records of a site that secure sums hold, if there is a limit.
    """
    if federation.distant:
        return []
    found, largest = task.advise(federation), largest_site(federation)
    if room is not None and largest is not None and largest > room:
        found = [*found, _no_room(f"a site has {largest:,} records", room)]
    if not private:
        return found
    kept = replace(place, ending=ADVICE)
    try:
        file = kept.write("\n".join(found or [NONE]))
    except OSError as error:
        return [f"advice about the records could not be written for their owner: {error.strerror}"]
    beside = place.data is not None and file.parent == place.data.parent.absolute()
    where = f"{file.name}, beside them" if beside else str(file)
    return [f"advice about the records is in {where}, which only its owner can read"]

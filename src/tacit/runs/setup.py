"""`prepare`: decide, check and price a run before anything is charged.

It is the only place where that happens: `plan` prints its result, `fit` runs it, the guard of a site
recomputes it. It is a function of its arguments alone: the coordinator and every site that read the same
experiment derive the same mechanism, without exchanging it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tacit.aggregation.attacks import Attack
from tacit.aggregation.base import Aggregator, CustomAggregator, as_aggregator, noise_of, user_choice
from tacit.aggregation.defence.clustering import Clusters
from tacit.aggregation.defence.quarantine import Quarantine, too_few_warning
from tacit.aggregation.mean import Join, Mean
from tacit.aggregation.robust.mixing import Bucketing
from tacit.aggregation.server import Plain
from tacit.errors import MOST_ROUNDS, InvalidValue, Refused, TooFewSites, require, require_count
from tacit.learning.task import QueryBase, TaskBase
from tacit.privacy.accounting.release import Release
from tacit.privacy.contracts import Layout
from tacit.privacy.mechanisms.adaptive_clipping import AdaptiveClipping
from tacit.privacy.mechanisms.base import NORMS, BoundedSum, Mechanism
from tacit.privacy.mechanisms.secure_sum import FEWEST, MOST, honest
from tacit.privacy.plan import Plan, PlannedPrice, plan
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.provenance import Provenance
from tacit.runs.clusters import require_compatible_clusters, resolve_for_clusters
from tacit.runs.queries import final_query_of, initial_query_of, queries_of
from tacit.runs.spec import RunSpec
from tacit.runs.stopping import HeldOutWatch, Stopping, watch_over
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.silence import suppress_warnings
from tacit.sites.federation import Federation
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


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """Public facts about a federation, known before it is opened.

    Args:
        names: The sites; None if the data decide them.
        records: The number of records of all sites, if that is public.
        public: True if the records are public data.
        distant: True if the sites hold their data on other machines.
        layout: The layout of the data; None if it has been checked already.
    """

    names: tuple[str, ...] | None = None
    records: int | None = None
    public: bool = False
    distant: bool = False
    layout: Layout | None = None

    @classmethod
    def of(cls, federation: Federation) -> "PublicFacts":
        """Those of a federation that is open."""
        return cls(
            names=tuple(federation), records=federation.records, public=federation.public,
            distant=federation.distant, layout=federation.layout,
        )  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class PreparedRun:
    """A run before its first charge.

    Args:
        spec: The run's options.
        facts: Public facts about the sites.
        names: The sites; if the data decide them, the smallest number that the rule accepts.
        task: The bound task; everything that depends on the policy and the data is decided.
        aggregation: The aggregation rule, resolved for these sites.
        clusters: The clustering rule, resolved for these sites.
        training: The part of the privacy budget that is left for training.
        mechanism: The mechanism that enforces it.
        queries: The initial and final query.
        watched: The noisy loss that is bought after every round, if there is one.
        provenance: Public facts, and everything that leaves unprotected.
        packing: Adaptive clipping, if the policy has `clip_quantile`.
        federation: The sites' data; None in a plan, and everything below is then empty as well.
        watch: The scores that early stopping looks at.
        test: The records that the result is scored on.
    """

    spec: RunSpec
    facts: PublicFacts
    names: tuple[str, ...]
    task: TaskBase
    aggregation: Aggregator
    clusters: Clusters | None
    training: Privacy | Open
    mechanism: Mechanism
    queries: tuple[QueryBase, ...]
    watched: BoundedSum | None
    provenance: Provenance
    packing: AdaptiveClipping | None = None
    federation: Federation | None = None
    watch: HeldOutWatch | None = None
    test: Records | None = None

    def with_answers(self, found: dict[str, Any]) -> "PreparedRun":
        """This, its task and its mechanism knowing what was found out before the first round."""
        task = self.task.with_answers(found)
        return replace(self, task=task, mechanism=self.mechanism.with_task(task))

    def solve_query(self, question: QueryBase) -> Mechanism:
        """The mechanism of a question."""
        return self.training.solve_query(question, self.mechanism)

    def price_of(self, question: QueryBase) -> list[Release]:
        """Return the releases that a query costs."""
        priced = self.solve_query(question).release(0, self.names)
        return [replace(release, purpose=question.kind) for release in priced]

    def releases_of_round(self, number: int, joining: Sequence[str] | None = None) -> list[Release]:
        """Return the releases of a round among the sites that join it (by default all)."""
        watched = () if self.watched is None else self.watched.release(number, self.names)
        trained = self.mechanism.release(number, self.names if joining is None else joining)
        return [*trained, *watched]

    def planned_releases(self, first: int = 1) -> list[Release]:
        """Return the releases of the rounds from `first` on, with every site in each."""
        rounds = range(first, self.spec.rounds + 1)
        return [release for number in rounds for release in self.releases_of_round(number)]

    def price(self) -> list[Release]:
        """Return all releases of the run, with every site in each round: its one price."""
        return [release for part in self._once() for release in part] + self.planned_releases()

    def _once(self) -> tuple[list[Release], ...]:
        """Return the releases outside the rounds: synthetic records, queries, the number of records."""
        spec = self.spec
        added = () if spec.augment is None else spec.augment.release(spec.privacy, self.names)
        asked = [release for question in self.queries for release in self.price_of(question)]
        return list(added), asked, list(self.mechanism.count_releases(self.names))

    def plan(self) -> Plan:
        """The price in numbers and words, with what the author may want to reconsider."""
        # Rounds differ in their number alone, which a plan does not show.
        once = [release for part in reversed(self._once()) for release in part]
        price = PlannedPrice(tuple(once), tuple(self.releases_of_round(1)), self.spec.rounds)
        models = 1 if self.clusters is None else self.clusters.models
        made = plan(
            self.spec.privacy, self.task, self.mechanism, price,
            sites=len(self.names), records=self.facts.records, models=models,
        )  # fmt: skip
        minded = (*self._few(), *sites_warnings(self.spec, self.aggregation, self.facts.names))
        return replace(made, warnings=(*made.warnings, *minded))

    def _few(self) -> list[str]:
        many = len(self.names)
        if self.facts.names is not None or many == 1:
            return []
        return [f"the data decide the number of sites: {many} are needed at least"]

    def describe(self, federation: Federation, **changed: object) -> dict[str, object]:
        """The choices of this run as tables of an experiment file, some of them changed."""
        resolved: dict[str, object] = {
            "task": self.task, "aggregation": user_choice(self.aggregation), "clusters": self.clusters,
            "engine": self.spec.engine.chosen, **changed,
        }  # fmt: skip
        return {**(federation.origin or {}), **self.spec.describe(**resolved)}


@suppress_warnings()
def prepare(spec: RunSpec, sites: Federation | PublicFacts | None) -> PreparedRun:
    """Decide, check and price everything that can be before anything is charged.

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
    if federation is not None and spec.augment is not None:
        spec.augment.check(federation, privacy, provenance)
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
    )  # fmt: skip
    if facts.names is not None:
        spec.sampling.check(names)
    if spec.attack is not None:
        require_rehearsal(privacy)
    return prepared if federation is None else _open(prepared, federation)


def resolve_sites(
    spec: RunSpec, rule: Aggregator, names: tuple[str, ...] | None
) -> tuple[tuple[str, ...], Clusters | None, Aggregator]:
    """The sites, as few as will do where the data decide; how they are told apart, and how combined.

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
    """This with everything that depends on the data: liars' records, what is watched, what is scored."""
    spec, task, provenance = prepared.spec, prepared.task, prepared.provenance
    task = task.with_mechanism(prepared.mechanism)
    packing = resolve_adaptive_clipping(task, federation, spec.privacy)
    federation = poison(spec.attack, federation, spec.seed)
    watch, test = watch_over(federation, spec.stop, task.goal, provenance, Key(spec.seed))
    require_scores(task, federation, prepared.mechanism, [test, watch.records], packing)
    return replace(prepared, task=task, packing=packing, federation=federation, watch=watch, test=test)


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
    """Refuse what needs the records themselves where they are at the sites."""
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
    """Refuse to let out bare what a party would keep to itself if it did all the work."""
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
    if isinstance(privacy, Open) or privacy.clip_quantile is None:
        return None
    width = _trial_state(task, federation).shape[-1]
    return AdaptiveClipping(
        blocks=task.blocks or (width,),
        quantile=privacy.clip_quantile,
        start=privacy.clip,
        norm=NORMS[privacy.mechanism],
    )


def require_plain(spec: RunSpec) -> None:
    """Refuse what does not go with updates in units of their bounds."""
    if isinstance(spec.privacy, Open) or spec.privacy.clip_quantile is None:
        return
    for name, asked in {"clusters": spec.clusters, "quarantine": spec.quarantine}.items():
        if asked is not None:
            raise Refused(
                f"[{name}] does not go with clip_quantile: updates are sent in units of their clip bounds, "
                "with counts. Remove one of them"
            )


def _trial_state(task: TaskBase, federation: Federation) -> Array:
    """A state like any other, to try things out on before anything is paid."""
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
    """The federation with the records of liars as they want them."""
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
) -> None:
    """Refuse models that cannot be protected, or scored on these records, before anything is charged."""
    start, opening = _trial_state(task, federation), initial_query_of(task)
    task = task if opening is None else task.with_answers(opening.placeholder)
    mechanism.check_width(start.shape[-1] if packing is None else packing.width)
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
    """The fewest sites that a rule can serve and among which a promise can be kept."""

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

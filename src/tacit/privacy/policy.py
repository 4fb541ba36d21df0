"""Privacy policy: the unit, epsilon and clip of the promise. Nothing here depends on data.

`Privacy` and `Open` answer one question, `solve`: which mechanism keeps this promise for this work? Wrong
combinations die there, before data is touched.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from tacit.errors import (
    LEAST_RATE,
    InvalidValue,
    NotSeparable,
    Refused,
    is_between,
    require,
    require_count,
    require_positive,
    require_rate,
    require_word,
)
from tacit.privacy.accounting import calibrate, require_delta
from tacit.privacy.accounting.release import Law, Relation, Release, Sampled, Unit
from tacit.privacy.contracts import (
    AggregatorSpec,
    Norm,
    QuerySpec,
    TaskSpec,
    require_public,
)

if TYPE_CHECKING:
    from tacit.privacy.mechanisms.base import CountNoise, Mechanism, SumRounds
    from tacit.privacy.mechanisms.vertical import VerticalTaskSpec

# Share of epsilon for the number of records, where it has to be bought.
COUNT_SHARE = 0.02
# The longest bound that is one; the shortest is its inverse. Beyond, powers of it are no numbers, and lengths
# that are to be held against it vanish in the arithmetic.
LONGEST = 1e50
BOUNDS = f"a number above {1 / LONGEST:g} and below {LONGEST:g}"


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Privacy policy: one record, or one site, changes little of what an observer sees.

    Args:
        unit: Protected unit: any one `record`, or any one whole `site`.
        delta: The probability with which the promise may fail; far below one over the number of units.
        clip: The bound of one contribution: of a record's gradient, or of a site's update. Left out for tasks
            whose records are bounded by construction (`newton-ph`, `kaplan-meier`).
        clip_quantile: Adaptive clipping: from round to round, the clip bound follows this quantile of the
            norms of updates, starting at `clip`. The same noise covers updates and quantile.
        epsilon: Budget of the whole run; the noise is solved for it.
        noise_multiplier: The noise in units of the clip bound, instead of `epsilon`; the price follows from
            it.
        mechanism: `gaussian` with L2 bounds, or `laplace` with L1 bounds; counts of records get discrete
            Laplace noise then.
        noise: The place of the noise: each `site`, so that no other party must be trusted; the `server`,
            which must be trusted; or shares of all sites in a `secure` aggregation.
        participation: Probability with which each site joins a round; the draw is secret.
        colluders: Number of sites that may tell the server what they know without breaking the promise, where
            noise is `secure`; each knows its own share of the noise.
        rehearsal: The noise repeats with the seed. A rehearsal gives no protection, and every statement says
            so.
    """

    unit: Unit
    delta: float
    clip: float | None = None
    clip_quantile: float | None = None
    epsilon: float | None = None
    noise_multiplier: float | None = None
    mechanism: Literal["gaussian", "laplace"] = "gaussian"
    noise: Literal["site", "server", "secure"] = "site"
    participation: float = 1.0
    colluders: int = 1
    rehearsal: bool = False
    kind: ClassVar[str] = "private"

    def __post_init__(self) -> None:
        require_word("unit", self.unit, ("record", "site"))
        require_word("mechanism", self.mechanism, ("gaussian", "laplace"))
        require_word("noise", self.noise, ("site", "server", "secure"))
        if (self.epsilon is None) == (self.noise_multiplier is None):
            given = f"epsilon = {self.epsilon!r} and noise_multiplier = {self.noise_multiplier!r}"
            raise InvalidValue(f"{given} is not allowed: give exactly one of them; the other follows")
        if self.epsilon is not None:
            require_positive("epsilon", self.epsilon)
        if self.noise_multiplier is not None:
            require_positive("noise_multiplier", self.noise_multiplier)
        require_delta(self.delta, self.mechanism)
        if self.clip is not None:
            require_bound("clip", self.clip)
        if self.clip_quantile is not None:
            self._require_following(self.clip_quantile)
        require_rate("participation", self.participation, LEAST_RATE)
        require_count("colluders", self.colluders)

    def _require_following(self, quantile: float) -> None:
        require(0 < quantile < 1, "clip_quantile", quantile, "above 0 and below 1")
        allowed = 'left out unless unit = "site": clip bounds of single records are fixed'
        require(self.unit == "site", "clip_quantile", quantile, allowed)

    @property
    def protects(self) -> bool:
        """Return True if the noise protects: repeatable noise of a rehearsal does not."""
        return not self.rehearsal

    @property
    def bound(self) -> float:
        """Return the clip bound.

        Raises:
            Refused: There is none.
        """
        if self.clip is None:
            whose = "a record's gradient" if self.unit == "record" else "a site's update"
            raise Refused(
                f"clip is missing in [privacy]: give the bound of {whose}, such as clip = 1.0"
                + ", or learn cox-ph, deep-surv or poisson-ph, which need none" * (self.unit == "record")
            )
        return self.clip

    def without_noise(self) -> "Open":
        """Return an open policy with the same clipping, to compare runs with and without noise."""
        return Open(
            participation=self.participation,
            clip=self.clip,
            clip_quantile=None if self.clip is None else self.clip_quantile,
            clipped=self.unit,
            norm=self.norm,
        )

    @property
    def norm(self) -> Norm:
        """Norm of the clip bound."""
        return "l2" if self.mechanism == "gaussian" else "l1"

    @property
    def site_clip(self) -> float:
        """Bound of a site's update, in units of the adaptive bounds if these are on."""
        return self.bound if self.clip_quantile is None else 1.0

    def solve(
        self,
        task: TaskSpec,
        federation: Collection[str],
        aggregation: AggregatorSpec,
        rounds: int,
        *,
        sampling: Literal["poisson", "fixed"] = "poisson",
        records: int | None = None,
        questions: Sequence[QuerySpec] = (),
        watched: bool = False,
    ) -> "Mechanism":
        """The mechanism that keeps this promise over `rounds` rounds.

        Args:
            task: The task.
            federation: The names of the sites.
            aggregation: Aggregator of the updates.
            rounds: Number of rounds.
            sampling: Sampling of sites in a round: `poisson` (independent, secret), or a `fixed` number.
            records: Number of records in all, if that is public; where it is needed and is not, it is bought.
            questions: Queries asked once; the mechanism of each is `solve_query`.
            watched: Whether the server decides about sites by looking at their updates.

        Raises:
            Refused: The promise cannot be kept for this combination; the message names a way out.
        """
        require_count("rounds", rounds)
        require_count("sites", len(federation))
        require_count("steps", task.steps)
        require_rate("sample", task.sample, LEAST_RATE)
        if task.layout == "columns":
            from tacit.privacy.mechanisms.vertical import solve

            return solve(self, cast("VerticalTaskSpec", task), list(federation), rounds, questions)
        require_public(aggregation.weights, federation)
        if watched:
            self._require_sight()
        if self.noise == "site":
            self._require_robust(aggregation)
        if self.unit == "record":
            self._require_steps_of_records(task, rounds)
            if self.noise == "secure":
                from tacit.privacy.mechanisms.site_level import require_plain_mean, require_sums

                counts = task.cells_per_record is not None
                require_sums(self, federation, aggregation, sampling, counts=counts)
                require_plain_mean(aggregation, task.kind)
            return self._protect_records(task, len(federation), rounds, records, questions)
        # To a site, a question is one round more.
        from tacit.privacy.mechanisms.site_level import solve as protect_sites

        return protect_sites(self, federation, aggregation, rounds, sampling, len(questions))

    def solve_query(self, question: QuerySpec, mechanism: "Mechanism") -> "Mechanism":
        """Return the mechanism of a query, from the share that `solve` has reserved for it."""
        from tacit.privacy.mechanisms.base import NORMS, RecordLevel
        from tacit.privacy.mechanisms.vertical import solve_query

        if question.layout == "columns":
            return solve_query(self, question)
        if self.unit == "site":
            return mechanism
        sites = self._sites_of(mechanism)
        if question.cells_per_record is not None and self.mechanism == "laplace":
            multiplier = self._counts_multiplier(1, share=question.share)
            # A query beside rounds without shares has none either.
            return self._count_records(question.cells_per_record, multiplier, sites if sites > 1 else None)
        if question.share_of == "noise":
            return self._sum_rounds(question.record_bound("l2"), (question.share,), sites).at_round(1)
        self._require_noise_at_site(question.kind)
        return RecordLevel(
            law=self.mechanism,
            clip=question.record_bound(NORMS[self.mechanism]),
            multiplier=self.multiplier(1, 1.0, "add-remove", share=question.share),
            steps=1,
            rate=1.0,
            rehearsal=self.rehearsal,
        )

    def solve_evaluation(self, epsilon: float, sites: int) -> "Mechanism":
        """Return the mechanism of a table of counts that costs any one record `epsilon`.

        Args:
            epsilon: Its price; a record is in one cell.
            sites: Number of sites, which share one noise if it is secure.
        """
        return self._count_records(1, 1 / epsilon, sites)

    def _protect_records(
        self,
        task: TaskSpec,
        sites: int,
        rounds: int,
        records: int | None,
        questions: Sequence[QuerySpec],
    ) -> "Mechanism":
        from tacit.privacy.mechanisms.base import RecordLevel

        bound = task.own_bound if self.clip is None and task.own_bound is not None else self.bound
        if task.cells_per_record is not None and self.mechanism == "laplace":
            multiplier = self._counts_multiplier(rounds, beside=self._beside(questions, None))
            return self._count_records(task.cells_per_record, multiplier, sites)
        shares = task.round_shares(rounds)
        if shares is not None:
            return self._sum_rounds(bound, shares, sites)
        # In a risk group one record can turn a clipped sum into its opposite: twice the bound, unless the
        # draw selects whole groups, where that is an exchange.
        grouped = task.groups != "none"
        exchange = grouped and task.groups == "groups"
        # Sums are divided by a public number: said, agreed, fixed with the groups, or bought.
        bought = not grouped and task.batch is None and records is None
        counts = self._count_noise() if bought else None
        multiplier = self.multiplier(
            rounds * task.steps,
            task.sample,
            "add-remove",
            sampled="group" if exchange else "unit",
            beside=self._beside(questions, counts),
        )
        doubled = grouped and not exchange and self.epsilon is not None
        return RecordLevel(
            law=self.mechanism,
            clip=bound,
            multiplier=2 * multiplier if doubled else multiplier,
            steps=task.steps,
            rate=task.sample,
            grouped=grouped,
            sampled="group" if exchange else "unit",
            rehearsal=self.rehearsal,
            counts=counts,
        )

    def _sum_rounds(self, bound: float, shares: tuple[float, ...], sites: int) -> "SumRounds":
        """Return sums of bounded contributions, which share the one noise of the promise."""
        from tacit.privacy.mechanisms.base import SumRounds

        # A little more than is charged: shares and their roots are rounded.
        multiplier = self.multiplier(1, 1.0, "add-remove") * (1 + 1e-9)
        if self.noise == "secure":
            from tacit.privacy.mechanisms.secure_records import SecureSumRounds, discrete_multiplier

            given = self.epsilon is None
            return SecureSumRounds(
                bound=bound,
                multiplier=multiplier if given else discrete_multiplier(multiplier),
                shares=shares,
                rehearsal=self.rehearsal,
                colluders=self.colluders,
                sites=sites,
            )
        return SumRounds(bound=bound, multiplier=multiplier, shares=shares, rehearsal=self.rehearsal)

    def _counts_multiplier(self, rounds: int, *, share: float = 1.0, beside: Sequence[Release] = ()) -> float:
        """Return the scale of discrete Laplace noise, in units of the cells that one record moves."""
        return self.multiplier(rounds, 1.0, "add-remove", share=share, beside=beside, law="discrete-laplace")

    def _count_records(self, cells: int, multiplier: float, sites: int | None) -> "Mechanism":
        """Return counts of records with discrete Laplace noise; without `sites`, not in shares."""
        from tacit.privacy.mechanisms.counts import NoisyCounts, SecureCounts

        if self.noise == "secure" and sites is not None:
            return SecureCounts(
                clip=float(cells),
                multiplier=multiplier,
                colluders=self.colluders,
                sites=sites,
                rehearsal=self.rehearsal,
            )
        return NoisyCounts(cells=cells, multiplier=multiplier, rehearsal=self.rehearsal)

    def _sites_of(self, mechanism: "Mechanism") -> int:
        """Return the number of sites that share the noise of a mechanism's sums; 1 without shares."""
        from tacit.privacy.mechanisms.counts import SecureCounts
        from tacit.privacy.mechanisms.secure_records import SecureSumRounds

        return mechanism.sites if isinstance(mechanism, SecureSumRounds | SecureCounts) else 1

    def _require_noise_at_site(self, kind: str) -> None:
        if self.noise == "secure":
            raise Refused(
                f'noise = "secure" with unit = "record" does not go with {kind}: it is for sums over all '
                'records, once in a round (newton-ph, kaplan-meier). Use noise = "site"'
            )

    def _require_steps_of_records(self, task: TaskSpec, rounds: int) -> None:
        if self.noise == "server":
            raise Refused(
                f'noise = "{self.noise}" does not go with unit = "record": each site adds noise to its own '
                'training steps. Use noise = "site".'
            )
        counts = task.cells_per_record is not None and self.mechanism == "laplace"
        if self.noise == "secure" and not counts and task.round_shares(rounds) is None:
            raise Refused(
                f'noise = "secure" with unit = "record" does not go with {task.kind}: it is for one sum over '
                "all records in a round, and this task adds noise to its own training steps or tables at "
                "each site. Learn newton-ph, or cox-ph, deep-surv or poisson-ph without clip and options of "
                'gradient descent, or kaplan-meier; or use noise = "site"'
            )
        if task.shuffled:
            raise Refused(
                'epochs of shuffled batches do not go with unit = "record": privacy amplification needs '
                "independent (Poisson) sampling of records. Use steps and sample instead of epochs."
            )
        if not task.separable and task.groups == "none":
            raise NotSeparable(
                f"{task.kind} cannot protect single records: its loss couples every record at risk. Protect "
                'whole sites (unit = "site"), form the loss in risk groups (groups_per_site), or use '
                "poisson-ph or logistic-hazard, whose losses are sums over records."
            )

    def _count_noise(self) -> "CountNoise":
        """Return the noise on the record count: for a share of epsilon, or with the given multiplier."""
        from tacit.privacy.mechanisms.base import CountNoise

        if self.epsilon is None:
            assert self.noise_multiplier is not None
            return CountNoise(law=self.mechanism, scale=self.noise_multiplier)
        return CountNoise(law="laplace", scale=1 / (COUNT_SHARE * self.epsilon))

    def _require_sight(self) -> None:
        """Refuse decisions based on unprotected updates, or on updates that the server cannot see."""
        if self.noise == "server":
            raise Refused(
                'noise = "server" does not go with [quarantine]: it would decide by updates without noise, '
                'and its decisions would reveal them. Use noise = "site".'
            )
        if self.noise == "secure":
            raise Refused(
                'noise = "secure" does not go with [quarantine]: the server sees no single update. Use noise '
                '= "site", or leave it out.'
            )

    def _require_robust(self, aggregation: AggregatorSpec) -> None:
        if aggregation.under_noise == "breaks":
            raise Refused(
                f"{aggregation.name} does not go with noise at the sites: noise separates honest "
                "updates, so the rule selects a dishonest site that sends no noise. Use covariance-filter or "
                "geometric-median, or set allow_fragile = true to see it fail."
            )

    def _beside(self, questions: Sequence[QuerySpec], counts: "CountNoise | None") -> tuple[Release, ...]:
        """Return the releases about a site's records beside its training steps."""
        from tacit.privacy.mechanisms.base import NoPrivacy

        # A question is answered by its own mechanism, whatever that of the rounds is.
        asked = [self.solve_query(part, NoPrivacy()).release(0, ["site"]) for part in questions]
        counted = [] if counts is None else [Release(law=counts.law, scale=counts.scale, sensitivity=1.0)]
        return (*(release for part in asked for release in part), *counted)

    def multiplier(
        self,
        steps: int,
        rate: float,
        relation: Relation,
        *,
        share: float = 1.0,
        sampled: Sampled = "unit",
        beside: Sequence[Release] = (),
        law: Law | None = None,
    ) -> float:
        """Return the noise multiplier for a share of the promise over `steps` steps, or the given one."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        assert self.epsilon is not None
        return calibrate(
            epsilon=share * self.epsilon,
            delta=self.delta,
            steps=steps,
            rate=rate,
            relation=relation,
            mechanism=law or self.mechanism,
            sampled=sampled,
            beside=beside,
        )


@dataclass(frozen=True, kw_only=True)
class Open:
    """No promise: nothing is noised or charged, and every statement says so.

    With `clip`, contributions are clipped as under a promise, to compare a promise with: the difference is
    noise alone. Answers to queries are exact.

    Args:
        participation: Probability with which each site joins a round.
        clip: Clip bound of each contribution. Without one, nothing is clipped.
        clip_quantile: If given, bounds of updates follow this quantile of their lengths, beginning at `clip`.
        clipped: Contribution that is clipped: the gradient of a `record` (or risk group), or the update of a
            `site`.
        norm: Norm of the bound.
    """

    participation: float = 1.0
    clip: float | None = None
    clip_quantile: float | None = None
    clipped: Unit = "record"
    norm: Norm = "l2"
    kind: ClassVar[str] = "open"
    protects: ClassVar[bool] = False
    # What a policy has and an open run has not.
    noise: ClassVar[Literal["none"]] = "none"
    rehearsal: ClassVar[bool] = False
    epsilon: ClassVar[float | None] = None

    def __post_init__(self) -> None:
        require_rate("participation", self.participation, LEAST_RATE)
        require_word("clipped", self.clipped, ("record", "site"))
        require_word("norm", self.norm, ("l2", "l1"))
        if self.clip is not None:
            require_bound("clip", self.clip)
        if self.clip_quantile is not None:
            quantile = self.clip_quantile
            require(0 < quantile < 1, "clip_quantile", quantile, "above 0 and below 1")
            allowed = 'left out without a clip and unless clipped = "site"'
            require(self.clip is not None and self.clipped == "site", "clip_quantile", quantile, allowed)

    @property
    def bound(self) -> float:
        """Return the clip bound."""
        require(self.clip is not None, "clip", self.clip, BOUNDS)
        assert self.clip is not None
        return self.clip

    def solve(
        self,
        task: TaskSpec,
        federation: Collection[str],
        aggregation: AggregatorSpec,
        rounds: int,
        *,
        sampling: Literal["poisson", "fixed"] = "poisson",
        records: int | None = None,
        questions: Sequence[QuerySpec] = (),
        watched: bool = False,
    ) -> "Mechanism":
        """Return the null mechanism, with clipping where there is a bound.

        Raises:
            Refused: What is to be clipped cannot be.
        """
        from tacit.privacy.mechanisms.base import ClippedOnly, NoPrivacy

        require_count("rounds", rounds)
        if isinstance(aggregation.weights, Mapping):
            require_public(aggregation.weights, federation)
        if self.clip is None:
            return NoPrivacy()
        self._require_contributions(task)
        if task.layout == "columns":
            from tacit.privacy.mechanisms.vertical import ClippedColumns

            return ClippedColumns.of_task(cast("VerticalTaskSpec", task), self.clip)
        if self.clip_quantile is not None:
            from tacit.privacy.mechanisms.site_level import require_mean

            require_mean(aggregation)
        bound = self.clip if self.clip_quantile is None else 1.0
        return ClippedOnly(clip=bound, norm=self.norm, unit=self.clipped)

    def _require_contributions(self, task: TaskSpec) -> None:
        """Refuse a clip bound where there are no contributions of that kind."""
        columns = task.layout == "columns"
        if task.own_bound is not None or (columns and self.clipped == "site"):
            raise Refused(
                f"clip = {self.clip:g} does not go with {task.kind} in an open run: leave it out of [privacy]"
            )
        if self.clipped == "record" and not columns and not task.separable and task.groups == "none":
            raise NotSeparable(
                f"{task.kind} has no contributions of single records: its loss couples them. Use clipped = "
                '"site", form the loss in risk groups (groups_per_site), or leave clip out.'
            )

    def solve_evaluation(self, epsilon: float, sites: int) -> "Mechanism":
        """Return the null mechanism: counts are exact."""
        from tacit.privacy.mechanisms.base import NoPrivacy

        return NoPrivacy()

    def solve_query(self, question: QuerySpec, mechanism: "Mechanism") -> "Mechanism":
        """Return the null mechanism; a site's answer is clipped where its updates are."""
        from tacit.privacy.mechanisms.base import NoPrivacy

        return NoPrivacy() if self.clipped == "record" else mechanism


def require_bound(field: str, given: object) -> None:
    """Refuse an invalid bound of a contribution, or one beyond double precision."""
    require(is_between(given, 1 / LONGEST, LONGEST), field, given, BOUNDS)


PUBLISHED = "they are simulated or published"


def is_all_public(public: Iterable[str]) -> bool:
    """Return True if a statement calls everything at the sites public."""
    return any(words.endswith(PUBLISHED) for words in public)


class Provenance:
    """Record of the public facts and the unprotected data of a run.

    Args:
        privacy: The promise.
        public: Whether the records are public: simulated, or published.
        what: Description of the sites' data, if not records.
    """

    def __init__(self, privacy: Privacy | Open, *, public: bool, what: str = "records") -> None:
        self.allowed = public or isinstance(privacy, Open) or privacy.rehearsal
        self._records_are_public = public
        self.public: list[str] = [f"all {what}: {PUBLISHED}"] if public else []
        self.bare: list[str] = []

    def look(self, what: str, *, instead: str) -> None:
        """Note that something is taken from the records without protection.

        Args:
            what: Description of the statistic, in words.
            instead: The way out for a run that may not.

        Raises:
            Refused: The run promises privacy: nothing leaves unprotected.
        """
        if not self.allowed:
            raise Refused(f"{what} would leave the sites unprotected: {instead}")
        if not self._records_are_public:
            self.bare.append(what)

    def recall(self, known: Mapping[str, Sequence[str]]) -> None:
        """Restore the public and unprotected facts of a run before its interruption."""
        self.public = list(dict.fromkeys([*known.get("public", ()), *self.public]))
        self.bare = list(dict.fromkeys([*known.get("bare", ()), *self.bare]))

    def declare_public(self, what: Sequence[str]) -> None:
        """Note public facts by agreement."""
        self.public.extend(what)

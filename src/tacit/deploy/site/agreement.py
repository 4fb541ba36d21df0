"""Agreement of a site to an experiment, with limits and a recomputed price; and the log of its answers.

The experiment is a file from the coordinator. It is read as data: it may name parts of this library, and no
code that would have to be loaded. Its promise is recomputed here, from the file alone, and held against the
site's own limits before any work.

What was agreed to is answered once: the log of answers is written to disk before an answer leaves. A second
answer about the same round would have an unpaid cost, even to the same request: records may have changed in
between, or the libraries that add them up. So a retry gets the very same answer, if it is the last one of its
experiment; older answers are neither kept nor given.
"""

import hashlib
import hmac
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from tacit.deploy.site.config import SiteFile, SiteLimits, at_sites
from tacit.engines.base import Local
from tacit.engines.messages import run_digest
from tacit.errors import (
    MOST_RELEASES_ASKED,
    MOST_ROUNDS,
    InvalidValue,
    LedgerTampered,
    Refused,
    TacitError,
    quote,
)
from tacit.experiments.experiment import Experiment, construct_experiment, require_releases
from tacit.privacy.accounting import epsilon
from tacit.privacy.accounting.release import Release, by_subject
from tacit.privacy.ledger.chain import HELD_OUT, RECORDS
from tacit.privacy.policy import Open
from tacit.runs.setup import advice, largest_site, most_records, prepare, require_room_for_records
from tacit.runs.spec import PreparedRun
from tacit.runs.stopping import Stopping
from tacit.runtime import files
from tacit.runtime.refusals import Withheld, withhold_details
from tacit.runtime.tables import Table, parse
from tacit.sites.federation import RowFederation
from tacit.sites.record_checks import require_units

if TYPE_CHECKING:
    from tacit.privacy.ledger.store import Ledger
    from tacit.sites.federation import Federation


# No experiment needs more; what is longer is not read.
LONGEST = 2**20


class Unusable(TacitError):
    """Records cannot be used; the reason stays at the site, since it may disclose them."""


@dataclass(frozen=True, eq=False)
class SiteAgreement:
    """An experiment that a site takes part in.

    Args:
        mark: Its identifier, known at this site alone.
        experiment: The experiment.
        setting: The prepared run: the same as at the coordinator.
        own: The site's own records.
        price: The releases about the site's records, of all rounds together.
        run_digest: The digest of experiment and run, equal at all parties.
    """

    mark: str
    experiment: Experiment
    setting: PreparedRun
    own: "Federation"
    price: tuple[Release, ...]
    run_digest: str

    @property
    def has_privacy(self) -> bool:
        """True if the experiment has a privacy policy."""
        return not isinstance(self.experiment.privacy, Open)

    def summary(self) -> str:
        """Summarize the agreement in words."""
        privacy, rounds = self.experiment.privacy, self.experiment.rounds
        what = f"{self.experiment.task.kind}, {rounds} round{'s' * (rounds != 1)}"
        if isinstance(privacy, Open):
            return f"{what}, no promise"
        rehearsal = ", a rehearsal: the noise repeats and gives no protection" * privacy.rehearsal
        cost = highest_cost(self.price, privacy.delta)
        bare = "".join(f"; NOT protected: {words}" for words in self.setting.task.exempt)
        promise = f"epsilon {cost:.4g} at delta {privacy.delta:g} for any one {privacy.unit}"
        return f"{what}, {promise}{rehearsal}{bare}"


def agreement_id(text: str, run: str, entropy: bytes) -> str:
    """Return the identifier of an experiment and its run at a site, keyed by the site's secret."""
    return hmac.digest(entropy, b"agreement\0" + run.encode() + b"\0" + text.encode(), "sha256").hex()


def read_safely(text: str, folder: Path, file: SiteFile) -> Experiment:
    """Parse the experiment in a text from the coordinator.

    Raises:
        Refused: It names code, or changes the agreement about data that the site's administrator has
            accepted, or declares private data of this site public.
        InvalidFile: It cannot be read as an experiment.
    """
    if len(text) > LONGEST:
        raise Refused(f"the experiment has {len(text):,} characters: at most {LONGEST:,} are read")
    document = parse(text, "the experiment")
    for place, kind in _kinds(document):
        if not isinstance(kind, str) or ":" in kind:
            raise Refused(
                f"[{place}] kind = {quote(kind)} would have to be imported: a site runs only its own code"
            )
    data = document.get("data")
    held = cast(Table, data).get("kind") if isinstance(data, dict) else None
    if not isinstance(held, str) or not held.startswith("held-"):
        raise Refused(f"[data] kind = {quote(held)} is not data that sites hold: deploy the experiment first")
    known = at_sites(cast(Table, data))
    if known.get("public") is True and not file.limits.open:
        raise Refused("the experiment treats the records as public, and this site does not")
    require_accepted_rules(known, file)
    rounds = document.get("rounds", 1)
    if not isinstance(rounds, int) or rounds > MOST_ROUNDS:
        raise Refused(f"rounds = {quote(rounds)} is not allowed at a site: at most {MOST_ROUNDS:,} are")
    experiment = construct_experiment({**document, "data": known}, folder)
    try:
        require_releases(experiment.privacy, rounds, len(experiment.sites.names or ()), MOST_RELEASES_ASKED)
    except InvalidValue as error:
        raise Refused(f"{error} at a site") from error
    return experiment


def require_accepted_rules(data: Table, file: SiteFile) -> None:
    """Refuse other rules for reading records than the administrator has accepted, before any is read.

    Whether records fit a rule tells something about them: who could choose rules freely could ask anything,
    one refusal after the other.
    """
    accepted = at_sites(file.agreed)
    for key in sorted({*data, *accepted}):
        if data.get(key) != accepted.get(key):
            raise Refused(
                f"[data] {key} is not what this site's administrator has accepted: read the experiment, and "
                "accept it with tacit site accept, or ask for an accepted one"
            )


def _kinds(table: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, object]]:
    """Every `kind` in a document, with its place."""
    for key, value in table.items():
        if key == "kind":
            yield place, value
        elif isinstance(value, dict):
            yield from _kinds(cast(Table, value), f"{place}.{key}".strip("."))
        elif isinstance(value, list):
            for entry in cast("list[object]", value):
                yield from _kinds(cast(Table, entry), place) if isinstance(entry, dict) else ()


def agree(text: str, run: str, file: SiteFile, folder: Path, entropy: bytes) -> SiteAgreement:
    """Check an experiment against the site's limits and return the agreement; nothing is charged yet.

    Args:
        text: The experiment, as the coordinator has sent it.
        run: The identifier of the run.
        file: The site's own file.
        folder: The site's own folder.
        entropy: The site's own secret.

    Raises:
        TacitError: The reason of a refusal. `Unusable` if the reason is in the records: it stays at the site.
    """
    experiment = read_safely(text, folder, file)
    require_limits(experiment, file.limits)
    names = experiment.sites.names or ()
    if file.name not in names:
        raise Refused(f"the experiment is for {', '.join(names)}, and this is {file.name}")
    setting = set_up(experiment)
    price = tuple(site_releases(setting.price(), file.name))
    require_affordable(experiment, price, file.limits)
    try:
        with withhold_details(is_private(experiment), details_of(file, folder), opening=True):
            own = open_records(experiment, setting, file, folder)
            require_records(own, file)
    except TacitError as error:
        raise Unusable(str(error)) from None
    tell_room(experiment, setting, own, details_of(file, folder))
    return SiteAgreement(
        agreement_id(text, run, entropy), experiment, setting, own, price, run_digest(text, run)
    )


def open_records(experiment: Experiment, setting: PreparedRun, file: SiteFile, folder: Path) -> "Federation":
    """Open a site's own records, and check them as a run in one process does before its first charge.

    Raises:
        TacitError: The records cannot be used, or the promise would say less of them than it seems to.
    """
    own = experiment.data.at_site(file.name, file.data, folder, sites=experiment.sites, task=setting.task)
    private, privacy = is_private(experiment), experiment.privacy
    setting.task.require_records(own, private=private)
    if isinstance(privacy, Open) or privacy.unit != "record" or not isinstance(own, RowFederation):
        return own
    if private:
        require_units(own, privacy.delta)
    return own


def is_private(experiment: Experiment) -> bool:
    """Decide if records are private in an experiment: promised protection, not a rehearsal, not public."""
    return experiment.privacy.protects and not experiment.public


def details_of(file: SiteFile, folder: Path) -> Withheld:
    """Return the file for details about a site's records: beside them, or in the site's state."""
    given = file.data.get("path")
    data = folder / given if isinstance(given, str) else None
    return Withheld(data, folder / "state")


def set_up(experiment: Experiment, stop: Stopping | None = None) -> PreparedRun:
    """Prepare a run from the text of its experiment alone.

    When to stop is for the coordinator alone, who has what is watched.
    """
    return prepare(replace(experiment, stop=stop, engine=Local()), experiment.open_federation())


def require_limits(experiment: Experiment, limits: SiteLimits) -> None:
    """Refuse an experiment beyond the limits of the site, at any price."""
    kind, privacy = experiment.task.kind, experiment.privacy
    if limits.tasks and kind not in limits.tasks:
        raise Refused(f"task {kind} is not allowed at this site: {', '.join(limits.tasks)} is")
    if limits.open:
        return
    if isinstance(privacy, Open):
        raise Refused("the experiment makes no promise, and this site releases nothing without one")
    if privacy.rehearsal:
        raise Refused("the experiment is a rehearsal: its noise repeats, and protects no record of this site")
    if privacy.delta > limits.delta:
        raise Refused(f"delta = {privacy.delta:g} is above {limits.delta:g}, the limit of this site")
    if privacy.noise == "server" and not limits.trusted:
        raise Refused(
            'noise = "server" is not allowed at this site: the coordinator would see updates without noise. '
            'Use noise = "site" or "secure"'
        )
    if privacy.noise == "secure" and privacy.colluders < limits.colluders:
        raise Refused(
            f"colluders = {privacy.colluders} is below {limits.colluders}, the number that secure "
            "aggregation must tolerate at this site"
        )


def site_releases(releases: list[Release], name: str) -> Iterator[Release]:
    """Yield the releases of an experiment about one site: its own records, all sites, or vertical records."""
    for release in releases:
        place = release.subject.partition("@")[2]
        if place in ("", name):
            yield release


def highest_cost(price: tuple[Release, ...], delta: float) -> float:
    """Return the epsilon of releases at a delta, for the subject with the highest."""
    return max((epsilon(group, delta) for group in by_subject(price).values()), default=0.0)


def require_affordable(experiment: Experiment, price: tuple[Release, ...], limits: SiteLimits) -> None:
    """Refuse one experiment that costs more than one experiment may."""
    privacy = experiment.privacy
    if limits.open or isinstance(privacy, Open):
        return
    cost = highest_cost(price, privacy.delta)
    if not cost <= limits.epsilon:
        raise OverLimit(
            f"the experiment costs epsilon {cost:.4g} at delta {privacy.delta:g}, and {limits.epsilon:g} is "
            "the limit of this site for one experiment; nothing was charged"
        )


class OverLimit(Refused):
    """An experiment that costs more than a site allows for one."""


def require_records(own: "Federation", file: SiteFile) -> None:
    """Refuse to take part with fewer records than a site wants to have in an experiment."""
    if own.layout == "environments":
        return
    size = sum(len(site.table) for site in own.values())
    if size < file.limits.fewest:
        raise InvalidValue(
            f"the site holds {size} records, and its limits ask for {file.limits.fewest}",
            rule=f"the site must hold {file.limits.fewest} records at least, by its own limits",
        )


def tell_room(experiment: Experiment, setting: PreparedRun, own: "Federation", place: Withheld) -> None:
    """Write for the administrator if secure sums hold fewer records than the site has.

    Private records are not refused: the coordinator chooses how many the sums hold, and would learn how many
    there are. What is written where nobody else reads it depends on the records; that something is does not.
    """
    room = most_records(setting)
    if room is None:
        return
    if is_private(experiment):
        _ = advice(setting.task, own, place, private=True, room=room)
    else:
        require_room_for_records(room, setting.names, None, largest_site(own))


def pay(agreement: SiteAgreement, ledger: "Ledger", limits: SiteLimits) -> bool:
    """Charge a whole experiment on the ledger of a site's life; whether it was charged now.

    Raises:
        BudgetExhausted: The site's life has no room for it; nothing was charged.
    """
    limit_lifetime(ledger, limits)
    return ledger.charge(_label_releases(agreement), ticket=agreement.mark, plan=agreement.mark)


def require_room(agreement: SiteAgreement, ledger: "Ledger", limits: SiteLimits) -> None:
    """Refuse an experiment that exceeds the rest of a site's lifetime budget; nothing is charged."""
    limit_lifetime(ledger, limits)
    ledger.check(_label_releases(agreement), plan=agreement.mark)


def limit_lifetime(ledger: "Ledger", limits: SiteLimits) -> None:
    """Set the budget of a site's life, for the site and for each of its records, if there is one."""
    if not math.isinf(limits.lifetime):
        ledger.allow_lifetime(epsilon=limits.lifetime, delta=limits.delta)


def spent_by_records(path: Path, delta: float) -> float:
    """Price the releases about any one record of a site, including those about whole sites."""
    from tacit.privacy.ledger.store import Ledger

    with Ledger(path, mode="read") as ledger:
        return ledger.spent(delta, subject=RECORDS)


def _label_releases(agreement: SiteAgreement) -> list[Release]:
    """The price of an experiment, each release under its name.

    The next experiment draws other records to hold out: in a site's life, a record pays for both.
    """
    about = f"experiment {agreement.experiment.name}"
    return [
        replace(
            release,
            purpose=f"{about}: {release.purpose}",
            subject=release.subject.replace(f"{HELD_OUT}@", f"{RECORDS}@"),
        )
        for release in agreement.price
    ]


def digest_of(text: str) -> str:
    """Return a short digest of a text for people to compare."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class AnswerEntry(msgspec.Struct, frozen=True):
    """Entry of the log: time, experiment, work, and digest of the request."""

    at: str
    experiment: str
    about: str
    asked: str


class LastAnswer(msgspec.Struct, frozen=True):
    """The last answer of an experiment."""

    about: str
    asked: str
    answer: bytes


class AnswerLog:
    """Append-only log of answers, and the last answer of each experiment.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answers = path.with_suffix("")
        self._answers.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        self._known: dict[tuple[str, str], str] = {}
        for line in self._lines():
            self._known[line.experiment, line.about] = line.asked

    def previous_answer(self, experiment: str, about: str, asked: str) -> bytes | None:
        """Return the earlier answer to the same request; None if there was none about it at all.

        Raises:
            Refused: Another question about it was answered, or the answer is no longer kept.
        """
        if (experiment, about) not in self._known:
            return None
        if self._known[experiment, about] != asked:
            self.require_new(experiment, about)
        kept = self._last_answer(experiment)
        if kept is None or (kept.about, kept.asked) != (about, asked):
            raise Refused(
                f"{about} of this experiment was answered before, and that answer is no longer kept"
            )
        return kept.answer

    def keep(self, experiment: str, about: str, asked: str, answer: bytes = b"") -> None:
        """Keep an answer before it leaves, for good that it was given, and itself until the next one.

        Raises:
            Refused: Something about it was answered before.
        """
        self.require_new(experiment, about)
        if answer:
            kept = msgspec.msgpack.encode(LastAnswer(about, asked, answer))
            files.replace(self._answers / experiment, kept, 0o600)
        self._write(AnswerEntry(datetime.now(UTC).isoformat(timespec="seconds"), experiment, about, asked))
        self._known[experiment, about] = asked

    def require_new(self, experiment: str, about: str) -> None:
        """Refuse any request that was answered before."""
        if (experiment, about) in self._known:
            raise Refused(
                f"{about} of this experiment was answered before, for another request: the budget does not "
                "cover a second answer"
            )

    def _last_answer(self, experiment: str) -> LastAnswer | None:
        try:
            return msgspec.msgpack.decode(files.read_bytes(self._answers / experiment), type=LastAnswer)
        except (FileNotFoundError, *files.DAMAGED):
            return None

    def _lines(self) -> list[AnswerEntry]:
        try:
            content = files.read_bytes(self._path)
        except FileNotFoundError:
            return []
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            # A line cut off by a crash was never answered.
            os.truncate(self._path, whole)
        found: list[AnswerEntry] = []
        for number, line in enumerate(content[:whole].splitlines(), start=1):
            try:
                found.append(msgspec.json.decode(line, type=AnswerEntry))
            except files.DAMAGED as error:
                raise LedgerTampered(f"{self._path} line {number} cannot be read: {error}") from error
        return found

    def _write(self, line: AnswerEntry) -> None:
        files.append(self._path, msgspec.json.encode(line) + b"\n")

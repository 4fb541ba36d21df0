"""Checks of a site's folder, and preview of an experiment, in plain words for the administrator.

It changes nothing: no key is made, nothing is charged, and nothing is sent. Advice about private records is
written beside them, where only their owner reads it.
"""

import math
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.deploy import certificates
from tacit.deploy.site.config import (
    DOOR,
    ENTROPY,
    IDENTITY,
    KEY_BYTES,
    LEDGER,
    SITE_FILE,
    UNUSABLE,
    SiteFile,
    identity,
    rules,
)
from tacit.errors import LONGEST_FILE, LONGEST_VALUE, BudgetExhausted, InvalidFile, TacitError, shorten
from tacit.runtime import files
from tacit.runtime.refusals import withhold_details
from tacit.runtime.silence import suppress_warnings

if TYPE_CHECKING:
    from tacit.experiments.experiment import Experiment
    from tacit.privacy.accounting.release import Release
    from tacit.runs.spec import PreparedRun
    from tacit.sites.federation import Federation

# The system's limit on the path of a socket, in bytes.
LONGEST_DOOR = 107
# A certificate that ends sooner is worth a word.
SOON = timedelta(days=30)
NODE_KEY, AUTHORITY = Path("node") / "node.key", Path("node") / "ca.crt"
OWNERS = "run install.sh, which sets the owner of each file"


@dataclass(frozen=True)
class CheckResult:
    """Result of one check.

    Args:
        ok: True if it passed.
        what: The finding.
        mend: The remedy, if it failed.
    """

    ok: bool
    what: str
    mend: str = ""


Part = Callable[[Path, SiteFile], Iterator[CheckResult]]


@suppress_warnings()
def check(folder: str | Path, experiment_file: str | Path | None = None) -> list[CheckResult]:
    """Check a site's folder, and an experiment at that site.

    Args:
        folder: The site's folder.
        experiment_file: The experiment, as the coordinator would send it.
    """
    place = Path(folder)
    try:
        file = SiteFile.read(place)
    except TacitError as error:
        there = (place / SITE_FILE).exists()
        mend = f"correct {SITE_FILE}" if there else f"name the folder of a site, with its {SITE_FILE} in it"
        return [CheckResult(False, str(error), f"{mend}; nothing else was checked")]
    found = [
        CheckResult(
            True, f"{SITE_FILE} can be read: this is {file.name}, one of {len(file.colleagues)} sites"
        )
    ]
    parts: list[Part] = [_keys, _node, _check_users, _check_socket, _limits, _ledger, _unusable]
    if experiment_file is None:
        parts.append(_data)
    else:
        parts.append(lambda place, file: _experiment(place, file, Path(experiment_file)))
    for part in parts:
        try:
            found += part(place, file)
        except OSError as error:
            told = f"{error.filename} cannot be looked at: {files.explain(error)}"
            found.append(
                CheckResult(False, told, "run this as root; if something is missing, ask for a new folder")
            )
    return found


def _keys(place: Path, file: SiteFile) -> Iterator[CheckResult]:
    """Check the site's own keys."""
    try:
        known = identity(place).public.hex() == file.colleagues[file.name].lower()
    except InvalidFile as error:
        yield CheckResult(
            False, str(error), "copy it again from the folder that you received, or ask for a new folder"
        )
    else:
        says = "is the key" if known else "is not the key"
        mend = f"correct [colleagues] {file.name} in {SITE_FILE}: other sites would reject its messages"
        yield CheckResult(known, f"{IDENTITY} {says} that the other sites know", "" if known else mend)
        yield _private(place / IDENTITY, IDENTITY)
    if not (place / ENTROPY).exists():
        yield CheckResult(True, f"{ENTROPY} does not exist yet: the guard makes it at its first start")
    elif (place / ENTROPY).stat().st_size != KEY_BYTES:
        told = f"{ENTROPY} is not a key: it has not {KEY_BYTES} bytes"
        yield CheckResult(False, told, "find out who changed it; noise cannot be drawn without it")
    else:
        yield _private(place / ENTROPY, ENTROPY)


def _node(place: Path, file: SiteFile) -> Iterator[CheckResult]:
    """Check the node's files: its key, and the certificate that it trusts."""
    try:
        public = certificates.public_of(place / NODE_KEY)
        beside = (place / NODE_KEY).with_suffix(".key.pub")
        same = not beside.exists() or files.read_bytes(beside).split()[:2] == public.split()[:2]
        mend = "" if same else f"the coordinator must know the key in {NODE_KEY}: write its public half anew"
        yield CheckResult(same, f"{NODE_KEY} is a key {'that' if same else 'and not the one that'} "
                            f"{beside.name} belongs to", mend)  # fmt: skip
        yield _private(place / NODE_KEY, NODE_KEY, group=True)
    except TacitError as error:
        yield CheckResult(False, str(error), "copy it again from the folder that you received")
    try:
        end = certificates.valid_until(place / AUTHORITY)
    except TacitError as error:
        yield CheckResult(False, str(error), "copy it again from the folder that you received")
        return
    left = end - datetime.now(UTC)
    told = f"{AUTHORITY}, by which the node knows the coordinator, is valid until {end:%Y-%m-%d}"
    yield CheckResult(
        left > SOON, told, "" if left > SOON else "ask the coordinator for a new folder before then"
    )


def _check_users(place: Path, file: SiteFile) -> Iterator[CheckResult]:
    """Check that guard and node are two users, and that others cannot read secrets, state and data."""
    for name in ("secret", "state", "data"):
        yield _private(place / name, Path(name))
    writable = bool((place / SITE_FILE).stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    told = f"{SITE_FILE} {'can' if writable else 'cannot'} be changed by others than its owner"
    yield CheckResult(not writable, told, OWNERS if writable else "")
    guard, node = ((place / name).stat().st_uid for name in ("secret", "node/home"))
    if guard != node:
        yield CheckResult(True, "guard and node are different users")
    else:
        told = "guard and node are the same user: code that reaches the node could read the records"
        # Open sites protect nothing.
        yield CheckResult(file.limits.open, told, "" if file.limits.open else OWNERS)


def _check_socket(place: Path, file: SiteFile) -> Iterator[CheckResult]:
    """Check that the guard's socket can exist."""
    size = len(os.fsencode((place / DOOR).absolute()))
    if size > LONGEST_DOOR:
        told = f"the path of {DOOR} has {size} bytes, and the system allows {LONGEST_DOOR}"
        yield CheckResult(False, told, "move this folder to a shorter place, such as /opt/tacit")
    if not (place / DOOR).parent.is_dir():
        yield CheckResult(False, f"the folder of {DOOR} is not there", "make it, then run install.sh")


def _limits(place: Path, file: SiteFile) -> Iterator[CheckResult]:
    """Describe the site's limits."""
    limits = file.limits
    if limits.open:
        told = "the limits allow experiments without a promise, and rehearsals: data may leave unprotected"
        yield CheckResult(True, f"{told}. Use such limits for public or simulated records only")
    else:
        seen = "may" if limits.trusted else "may not"
        yield CheckResult(
            True,
            f"the limit of one experiment is epsilon {limits.epsilon:g}, of all experiments "
            f"{limits.lifetime:g}, at delta {limits.delta:g}; the coordinator {seen} see updates before "
            "noise is added",
        )


def _ledger(place: Path, file: SiteFile) -> Iterator[CheckResult]:
    """Report the spent budget, and the rest."""
    from tacit.deploy.site.agreement import spent_by_records
    from tacit.privacy.ledger.store import verify

    limits, path = file.limits, place / LEDGER
    if not path.exists():
        yield CheckResult(True, f"nothing has been spent yet; {_most(limits.lifetime)}")
        return
    try:
        found = verify(path, limits.delta)
    except TacitError as error:
        mend = (
            "run this as root, or as the user of the guard; if it still cannot be read, it is damaged: stop "
            "the guard"
        )
        yield CheckResult(False, str(error), mend)
        return
    if not found.valid:
        yield CheckResult(
            False,
            f"{LEDGER} was changed or damaged: {'; '.join(found.problems)}",
            "stop the guard, and find out what happened; the ledger does not show what was spent",
        )
        return
    spent = max(found.epsilon, spent_by_records(path, limits.delta))
    left = max(0.0, limits.lifetime - spent)
    events = "1 release is" if found.events == 1 else f"{found.events:,} releases are"
    told = f"{events} on the ledger, epsilon {spent:.4g} at delta {limits.delta:g}"
    mend = "" if left > 0 else "the limit allows no further experiment with a promise"
    rest = f"{left:.4g} is left, and " if math.isfinite(limits.lifetime) else ""
    yield CheckResult(left > 0, f"{told}; {rest}{_most(limits.lifetime)}", mend)


def _unusable(place: Path, file: SiteFile) -> Iterator[CheckResult]:
    """Report that the guard waits for an administrator to look at the records."""
    if (place / UNUSABLE).exists():
        why = files.read_text(place / UNUSABLE).strip()
        mend = "once that is solved: tacit site accept . EXPERIMENT.toml"
        yield CheckResult(
            False, f"the site answers no experiment, because its records could not be used: {why}", mend
        )


def _most(lifetime: float) -> str:
    if math.isinf(lifetime):
        return "there is no limit for all experiments"
    return f"the limit of all experiments is epsilon {lifetime:g}"


def _data(place: Path, file: SiteFile) -> Iterator[CheckResult]:
    """Check that the records exist and match the agreement, as far as possible without an experiment."""
    if not file.data:
        yield CheckResult(
            False, f"{SITE_FILE} does not give the place of the records", "fill in its table [data]"
        )
        return
    if not file.agreed:
        told = f"{SITE_FILE} has no agreement about the records"
        yield CheckResult(False, told, "accept an experiment: tacit site accept . EXPERIMENT.toml")
        return
    try:
        agreed = rules(file.agreed, place)
    except TacitError as error:
        told = f"the agreement about the records is not possible: {error}"
        yield CheckResult(False, told, "accept an experiment: tacit site accept . EXPERIMENT.toml")
        return
    opened = partial(agreed.at_site, file.name, file.data, place)
    yield from _check_records(place, file, opened, private=not file.limits.open)


def _check_access(place: Path, path: Path) -> Iterator[CheckResult]:
    """Check that the guard can read the records, and others cannot."""
    if not path.exists():
        return
    found, guard = path.stat(), (place / "secret").stat()
    inside = (place / "data").resolve() in path.resolve().parents
    if not inside and found.st_mode & stat.S_IROTH:
        mend = "chmod o= on it, even if the folder that it is in is closed"
        yield CheckResult(False, f"every user of this machine may read {path}", mend)
    readable = (
        (found.st_uid == guard.st_uid and found.st_mode & stat.S_IRUSR)
        or (found.st_gid == guard.st_gid and found.st_mode & stat.S_IRGRP)
        or found.st_mode & stat.S_IROTH
        or guard.st_uid == 0
    )
    if not readable:
        mend = OWNERS if inside else "give it to that user"
        yield CheckResult(False, f"the guard's user cannot read {path}", mend)


def _check_size(size: int, file: SiteFile, room: int | None) -> CheckResult:
    fewest = file.limits.fewest
    if room is not None and size > room:
        told = f"the site holds {size:,} records, and the secure sums of this experiment hold {room:,} of it"
        mend = (
            'reject it, and ask for fewer sites or noise = "site": the guard would cut the sums off, and '
            "tells nobody else"
        )
        return CheckResult(False, told, mend)
    if size < fewest:
        mend = "the site does not take part with fewer ([limits] fewest)"
        return CheckResult(False, f"the site holds {size:,} records, and its limits require {fewest:,}", mend)
    return CheckResult(True, f"the records can be read: {size:,}, and {fewest:,} are required")


def _experiment(place: Path, file: SiteFile, path: Path) -> Iterator[CheckResult]:
    """Preview an experiment by the same steps as the guard."""
    from tacit.deploy.site.agreement import (
        digest_of,
        is_private,
        open_records,
        read_safely,
        set_up,
        site_releases,
    )

    try:
        text = files.read_text(path, LONGEST_FILE)
        experiment = read_safely(text, place, file)
        setting = set_up(experiment)
    except (OSError, UnicodeDecodeError) as error:
        why = files.explain(error) if isinstance(error, OSError) else "it is not text"
        yield CheckResult(False, f"{path} cannot be read: {why}", "name the file of an experiment")
        return
    except TacitError as error:
        mend = "decide, and tell the coordinator"
        yield CheckResult(False, f"the experiment would be refused: {error}", mend)
        return
    yield CheckResult(
        True, f"the experiment is {experiment.name}, marked {digest_of(text)} in the guard's log"
    )
    price = tuple(site_releases(setting.price(), file.name))
    yield from _describe_experiment(experiment, setting, price)
    yield from _check_limits(file, place, experiment, price)
    opened = partial(open_records, experiment, setting, file, place)
    yield from _check_records(place, file, opened, private=is_private(experiment), setting=setting)


def _describe_experiment(
    experiment: "Experiment", setting: "PreparedRun", price: "tuple[Release, ...]"
) -> Iterator[CheckResult]:
    """Describe an experiment: task, releases of this site, and price."""
    from tacit.privacy.policy import Open
    from tacit.privacy.statement import state

    rounds, privacy = experiment.rounds, experiment.privacy
    many = f"{rounds:,} round{'s' * (rounds != 1)}"
    yield CheckResult(True, f"it learns {experiment.task.kind} in {many}, with {', '.join(setting.names)}")
    if not isinstance(privacy, Open):
        adds = {
            "site": "noise is added here, before anything leaves",
            "secure": "every site adds its share of the noise, and the server sees only the sum",
            "server": "the coordinator adds the noise after it has seen the update of this site",
        }
        yield CheckResult(True, adds[privacy.noise])
    for sentence in state(privacy, price, but=setting.task.exempt).sentences():
        yield CheckResult(True, sentence)


def _check_limits(
    file: SiteFile, place: Path, experiment: "Experiment", price: "tuple[Release, ...]"
) -> Iterator[CheckResult]:
    """Check an experiment against the site's limits and ledger."""
    from tacit.deploy.site.agreement import require_affordable, require_limits
    from tacit.errors import Refused

    ask = "ask the coordinator for another experiment, or change [limits]"
    names = experiment.sites.names or ()
    if file.name not in names:
        yield CheckResult(
            False,
            f"it is for {shorten(', '.join(names), LONGEST_VALUE)}, and this is {file.name}",
            "tell the coordinator",
        )
    try:
        require_limits(experiment, file.limits)
        require_affordable(experiment, price, file.limits)
        yield CheckResult(True, "the limits of this site allow it")
    except Refused as error:
        yield CheckResult(False, f"the limits of this site do not allow it: {error}", ask)
    try:
        _try_charge(place, file, price)
        yield CheckResult(True, "the lifetime budget of this site covers it")
    except BudgetExhausted as error:
        yield CheckResult(False, f"the lifetime budget of this site does not cover it: {error}", ask)
    except TacitError as error:
        yield CheckResult(False, str(error), "see the finding about the ledger")


def _try_charge(place: Path, file: SiteFile, price: "tuple[Release, ...]") -> None:
    """Charge a copy of the ledger on trial."""
    from tacit.deploy.site.agreement import limit_lifetime
    from tacit.privacy.ledger.store import Ledger

    with Ledger(place / LEDGER, mode="read") if (place / LEDGER).exists() else Ledger() as known:
        books = known.copy()
    with books:
        limit_lifetime(books, file.limits)
        books.check(price)


def _check_records(
    place: Path,
    file: SiteFile,
    opened: "Callable[[], Federation]",
    *,
    private: bool,
    setting: "PreparedRun | None" = None,
) -> Iterator[CheckResult]:
    """Check that the records are as agreed; details about private ones go where only their owner reads."""
    from tacit.deploy.site.agreement import details_of
    from tacit.runs.setup import advice, most_records

    details = details_of(file, place)
    if details.data is not None:
        yield from _check_access(place, details.data)
    try:
        with withhold_details(private, details, opening=True):
            own = opened()
    except TacitError as error:
        mend = f"correct [data] in {SITE_FILE}, or the file"
        yield CheckResult(False, f"the records cannot be used: {error}", mend)
        return
    if own.layout == "environments":
        yield CheckResult(True, "the worlds of this site can be opened")
    else:
        room = None if setting is None else most_records(setting)
        yield _check_size(sum(len(site.table) for site in own.values()), file, room)
    if setting is not None:
        for words in advice(setting.task, own, details, private=private, room=most_records(setting)):
            yield CheckResult(True, words)


def _private(path: Path, name: Path, *, group: bool = False) -> CheckResult:
    """Check that a path is closed to all except its owner and, for `group`, readers in its group."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return CheckResult(False, f"{name} cannot be looked at: {files.explain(error)}", OWNERS)
    others = stat.S_IRWXO | (stat.S_IWGRP if group else stat.S_IRWXG)
    if mode & others:
        return CheckResult(False, f"{name} is open to others (mode {stat.S_IMODE(mode):o})", OWNERS)
    return CheckResult(True, f"{name} is closed to others")

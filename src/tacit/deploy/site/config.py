"""Configuration of a site: its name, its roster of trusted keys, its data, and its limits.

A site's folder is the site's own, and overrides any request of a coordinator.

    site.toml             this file secret/identity.key   signs the site's messages secret/entropy.key    the
    seed of its noise; made at the site, never leaves it node/                 files that the node may read:
    its key, the authority's certificate, Flower's home state/                the ledger of the site's life,
    and the log of its answers run/door.sock         the guard's socket data/                 the records
"""

import math
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tacit.deploy.texts import agreed_mark, agreed_text
from tacit.errors import LONGEST_FILE, InvalidFile, TacitError, is_between, require, require_count
from tacit.privacy.accounting import require_delta
from tacit.runtime import files
from tacit.runtime.tables import Made, Table, build, construct, load, parse

if TYPE_CHECKING:
    from tacit.aggregation.secure.sealing import Identity, Roster

SITE_FILE = "site.toml"
COORDINATOR_FILE = "coordinator.toml"
IDENTITY = Path("secret") / "identity.key"
ENTROPY = Path("secret") / "entropy.key"
LEDGER = Path("state") / "ledger.db"
ANSWERS = Path("state") / "answers.jsonl"
EXPERIMENTS = Path("state") / "experiments"
UNUSABLE = Path("state") / "unusable.txt"
DOOR = Path("run") / "door.sock"
KEY_BYTES = 32
# Longer files are no keys, and are not read.
LONGEST_KEY = 2**16
# Keys for the coordinator's files: a site must not read its own files by these names.
ELSEWHERE = ("path", "test", "reference", "site", "test_public")


@dataclass(frozen=True, kw_only=True)
class SiteLimits:
    """Limits of a site on every experiment.

    Args:
        epsilon: The largest cost of one experiment; `inf` admits experiments without a promise, and
            rehearsals.
        lifetime: The largest cost of all experiments together, at `delta`.
        delta: The delta of the lifetime budget, and the largest that an experiment may have.
        tasks: The allowed kinds of task; empty for any built-in one.
        fewest: The smallest number of records with which the site takes part.
        trusted: True if the coordinator may see updates before noise is added (`noise = "server"`).
        colluders: The smallest number of sites colluding with the coordinator that secure aggregation must
            tolerate.
    """

    epsilon: float = 1.0
    lifetime: float = 10.0
    delta: float = 1e-5
    tasks: tuple[str, ...] = ()
    fewest: int = 20
    trusted: bool = False
    colluders: int = 1

    def __post_init__(self) -> None:
        for name, given in (("epsilon", self.epsilon), ("lifetime", self.lifetime)):
            fits = is_between(given, 0, math.inf) or given == math.inf
            require(fits, name, given, "a number above 0, or inf for no limit")
        require_delta(self.delta)
        require_count("fewest", self.fewest)
        require_count("colluders", self.colluders)

    @property
    def open(self) -> bool:
        """True if experiments without a promise, and rehearsals, are admitted."""
        return math.isinf(self.epsilon)


@dataclass(frozen=True, kw_only=True)
class SiteFile:
    """A site's own configuration file.

    Args:
        name: The site's name in experiments.
        coordinator: The coordinator's public key, in hexadecimal digits: only what it has signed is answered.
        colleagues: The public key of every site, this one among them, by name.
        data: The location of the records, and the site's names of their columns.
        limits: The site's limits.
        agreed: The agreement about the data, as in the table [data] of experiments: the rules by which the
            site's records are read. A differing experiment is refused before any record is opened.
    """

    name: str
    coordinator: str
    colleagues: Mapping[str, str]
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    limits: SiteLimits = field(default_factory=SiteLimits)
    agreed: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        require(bool(self.name.strip()), "name", self.name, "the name of the site")
        _require_key("coordinator", self.coordinator)
        for name, key in self.colleagues.items():
            _require_key(f"colleagues.{name}", key)
        listed = sorted(self.colleagues)
        require(self.name in listed, "colleagues", listed, f"all sites, and {self.name!r} is one of them")
        _require_different("colleagues", (self.coordinator, *self.colleagues.values()), listed)

    @classmethod
    def read(cls, folder: str | Path) -> "SiteFile":
        """The file in a site's folder.

        Raises:
            InvalidFile: The file, the table and the key at fault, and what is allowed instead.
        """
        return _read(cls.of, Path(folder) / SITE_FILE)

    @classmethod
    def of(cls, document: Table) -> "SiteFile":
        """Construct the configuration from a document."""
        # First by itself, so that what is wrong in it is named by its own table.
        _ = construct(SiteLimits, "limits", document.get("limits", {}))
        return construct(cls, "", document)

    @property
    def roster(self) -> "Roster":
        """The sites, by the keys that they are known by."""
        return _roster(self.colleagues)


@dataclass(frozen=True, kw_only=True)
class CoordinatorFile:
    """The coordinator's own configuration file.

    Args:
        host: The host name for sites.
        port: At which port.
        key: Its own public key, in hexadecimal digits, for sites that ask.
        sites: The public key of every site, by name.
    """

    host: str
    port: int
    key: str
    sites: Mapping[str, str]

    def __post_init__(self) -> None:
        require(1 <= self.port <= 65535, "port", self.port, "from 1 to 65535")
        _require_key("key", self.key)
        for name, key in self.sites.items():
            _require_key(f"sites.{name}", key)
        require(bool(self.sites), "sites", dict(self.sites), "one site at least")
        _require_different("sites", (self.key, *self.sites.values()), sorted(self.sites))

    @classmethod
    def read(cls, folder: str | Path) -> "CoordinatorFile":
        """The file in the coordinator's folder.

        Raises:
            InvalidFile: The file and the key at fault, and what is allowed instead.
        """
        return _read(lambda document: construct(cls, "", document), Path(folder) / COORDINATOR_FILE)

    @property
    def roster(self) -> "Roster":
        """The sites, by the keys that they are known by."""
        return _roster(self.sites)


def at_sites(data: Mapping[str, Any]) -> Table:
    """Return the keys of a table [data] that concern sites, without the coordinator's own files."""
    return {key: value for key, value in data.items() if key not in ELSEWHERE}


def identity(folder: str | Path) -> "Identity":
    """Signing key of the site, or of the coordinator."""
    from tacit.aggregation.secure.sealing import Identity

    return Identity(_secret(Path(folder) / IDENTITY))


def entropy(folder: str | Path) -> bytes:
    """Return the seed of a site's noise.

    It is made on first use, at the site: the party that prepared the folder has never seen it, and cannot
    subtract the noise.
    """
    file = Path(folder) / ENTROPY
    if not file.exists():
        keep_secret(file, secrets.token_bytes(KEY_BYTES))
    return _secret(file)


def keep_secret(file: Path, content: bytes) -> None:
    """Write a new file that only its owner can read; never overwrite a file."""
    try:
        files.create(file, content)
    except OSError as error:
        raise InvalidFile(f"{file} cannot be written: {files.explain(error)}") from error


def accept(folder: str | Path, experiment: str | Path) -> Table:
    """Copy the data rules of an experiment into a site's file; return them.

    What could not be used before may be tried again after that.

    Raises:
        InvalidFile: One of the two files cannot be read, or was written by hand in another order.
    """
    place, file = Path(folder), Path(experiment)
    _ = SiteFile.read(place)
    data: Any = load(file).get("data")
    agreed = at_sites(cast(Table, data) if isinstance(data, dict) else {})
    try:
        _ = rules(agreed, place)
    except TacitError as error:
        raise InvalidFile(f"{file}: {error}") from error
    _rewrite(place / SITE_FILE, agreed)
    (place / UNUSABLE).unlink(missing_ok=True)
    return agreed


def rules(agreed: Mapping[str, Any], folder: Path) -> Any:  # noqa: ANN401
    """Construct the agreement about data, which opens a site's own data.

    Raises:
        InvalidFile: It is invalid, or names code that would have to be loaded.
    """
    from tacit.experiments.experiment import KINDS

    kind = agreed.get("kind")
    if not isinstance(kind, str) or not kind.startswith("held-") or ":" in kind:
        raise InvalidFile(f"[data] kind = {kind!r} is not held by sites: it must be deployed first")
    known = {name: held for name, held in KINDS["data"].items() if name.startswith("held-")}
    return build("data", {"data": dict(agreed)}, folder, known)


def _read(made: Callable[[Table], Made], file: Path) -> Made:
    """Construct an object from the document in a file."""
    document = load(file)
    try:
        return made(document)
    except TacitError as error:
        raise InvalidFile(f"{file}: {error}") from error


def _roster(keys: Mapping[str, str]) -> "Roster":
    from tacit.aggregation.secure.sealing import Roster

    return Roster({name: bytes.fromhex(key) for name, key in keys.items()})


def _require_different(field_name: str, keys: Sequence[str], listed: list[str]) -> None:
    different = len({key.lower() for key in keys}) == len(keys)
    require(different, field_name, listed, "sites with different keys")


def _secret(file: Path) -> bytes:
    try:
        found = files.read_bytes(file, most=LONGEST_KEY)
    except OSError as error:
        raise InvalidFile(f"{file} cannot be read: {files.explain(error)}") from error
    if len(found) != KEY_BYTES:
        raise InvalidFile(f"{file} is not a key: it has {len(found)} bytes, and a key has {KEY_BYTES}")
    return found


def _require_key(field_name: str, given: str) -> None:
    plain = re.fullmatch(f"[0-9a-fA-F]{{{2 * KEY_BYTES}}}", given) is not None
    require(plain, field_name, given, f"a public key: {2 * KEY_BYTES} hexadecimal digits")


def _rewrite(file: Path, agreed: Table) -> None:
    """Replace the last table of a TOML text."""
    text = files.read_text(file, LONGEST_FILE)
    before, mark, _ = text.partition(agreed_mark())
    if not mark and "agreed" in parse(text, str(file)):
        raise InvalidFile(f"{file}: [agreed] was written by hand: change it there")
    new = before.rstrip("\n") + "\n" + agreed_text(agreed)
    # Limits that stood behind it would be lost without a word, and those that Tacit has would count.
    if {**parse(text, str(file)), "agreed": agreed} != parse(new, str(file)):
        raise InvalidFile(f"{file}: [agreed] must be the last table: move what follows it above it")
    files.replace(file, new, file.stat().st_mode & 0o777)

"""Folders for machines: one for the coordinator and one for each site, ready to be carried there.

Everything that a machine needs is in its folder, and nothing of any other's: keys, certificates, scripts,
services, and a page that says what to do. Nothing is ever overwritten; keys and certificates are renewed,
each file replaced as a whole.
"""

import errno
import os
import re
import secrets
import sys
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from tacit.deploy import certificates
from tacit.deploy.site.config import (
    COORDINATOR_FILE,
    ENTROPY,
    IDENTITY,
    LEDGER,
    SITE_FILE,
    CoordinatorFile,
    SiteFile,
    SiteLimits,
    at_sites,
    keep_secret,
)
from tacit.deploy.texts import distribution_readme, render_folder
from tacit.errors import LONGEST_FILE, InvalidFile, Refused, require, require_count
from tacit.runtime import files
from tacit.sites.names import COORDINATOR

if TYPE_CHECKING:
    from tacit.aggregation.secure.sealing import Identity

SITE_ROLES = {"guard": "start-guard.sh", "node": "start-node.sh"}
COORDINATOR_ROLES = {
    "superlink": "start-superlink.sh",
    "superexec": "start-superexec.sh",
    "register": "register.sh",
    "nodes": "nodes.sh",
    "run": "run.sh",
}
# The port of the superlink behind the door, and of a node among its own parts: each on its machine alone.
INNER, LOCAL = 9091, 9094

# Letters that are more than a plain one with a mark.
LETTERS = str.maketrans(
    {"ø": "o", "Ø": "O", "æ": "ae", "Æ": "Ae", "ß": "ss", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D"}
)


@dataclass(frozen=True)
class DeployedFolders:
    """Paths of all written folders."""

    coordinator: Path
    sites: dict[str, Path]
    authority: Path


@dataclass(frozen=True)
class Command:
    """One of the programs of a folder, with environment and working directory.

    Args:
        argv: The words of the command; the script's last act is to become the program itself.
        env: Additions to the environment.
        cwd: The working directory.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: Path


def commands(folder: str | Path) -> dict[str, Command]:
    """Return the commands of a folder by role: the scripts that users and systemd start.

    A site has `guard` and `node`; a coordinator `superlink`, `superexec`, `register`, `nodes` and `run`. On a
    machine with several nodes each needs a port of its own: `TACIT_NODE_PORT`, if it is set, wins over the
    script.
    """
    place = Path(folder).resolve()
    roles = SITE_ROLES if (place / SITE_FILE).is_file() else COORDINATOR_ROLES
    if roles is COORDINATOR_ROLES and not (place / COORDINATOR_FILE).is_file():
        raise InvalidFile(
            f"{folder} is neither a site's folder nor a coordinator's: it has neither {SITE_FILE} nor "
            f"{COORDINATOR_FILE}"
        )
    # The programs that belong to this very Python; a folder's own `venv` comes before them.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return {
        role: Command(["bash", str(place / script)], {"PATH": path}, place) for role, script in roles.items()
    }


def slug_of(name: str) -> str:
    """Return a site's name as it occurs in names of files and services."""
    plain = unicodedata.normalize("NFKD", name.translate(LETTERS)).encode("ascii", "ignore").decode()
    found = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-.")
    require(bool(found), "site", name, "a name with a letter from a to z or a digit in it")
    return found


def site_folder(out: str | Path, name: str) -> Path:
    """Return the path of a site's folder."""
    return Path(out) / "sites" / slug_of(name)


def coordinator_folder(out: str | Path) -> Path:
    """Return the path of the coordinator's folder."""
    return Path(out) / "coordinator"


def write(
    experiment: Mapping[str, Any],
    sites: Mapping[str, Mapping[str, Any]],
    out: str | Path,
    *,
    host: str,
    port: int,
    days: int = 365,
    limits: Mapping[str, SiteLimits] | None = None,
) -> DeployedFolders:
    """Write the folders of a federation.

    Args:
        experiment: The document of the experiment, its data held by sites.
        sites: The table [data] of each site's file; empty where the site is to fill it in.
        out: The folder to write to; data of sites may be there already.
        host: The name or address under which sites reach the coordinator.
        port: The port.
        days: The days of validity of the coordinator's certificate.
        limits: The initial limits of each site.

    Raises:
        Refused: There are such folders already.
    """
    _require_writable(sites, Path(out), host, port, days)
    agreed = experiment.get("data", {})
    extras = "flower,control" if agreed.get("kind") == "held-worlds" else "flower"
    making = _FolderWriter.create(list(sites), Path(out), host, port, days, extras)
    making.out.mkdir(parents=True, exist_ok=True)
    # The folders hold the secrets of all parties until they are handed out.
    making.out.chmod(0o700)
    making.write_authority()
    making.write_coordinator(experiment)
    for number, (name, data) in enumerate(sites.items()):
        making.write_site(name, data, agreed, (limits or {}).get(name, SiteLimits()), number)
    listed = {name: slug_of(name) for name in sites}
    _new(making.out / "README.md", distribution_readme(listed))
    found = {name: site_folder(making.out, name) for name in sites}
    return DeployedFolders(coordinator_folder(making.out), found, making.out / "authority")


def renew_certificate(coordinator: str | Path, authority: str | Path, days: int = 365) -> str:
    """A new certificate for the coordinator, by the authority that sites believe; its last day."""
    place, above = Path(coordinator), Path(authority)
    by = certificates.Credential(files.read_bytes(above / "ca.crt"), files.read_bytes(above / "ca.key"))
    served = certificates.server(by, [CoordinatorFile.read(place).host], days=days)
    for name, content in (("server.pem", served.certificate), ("server.key", served.key)):
        files.replace(place / "tls" / name, content, 0o600)
    return certificates.valid_until(place / "tls" / "server.pem").date().isoformat()


def renew_keys(site: str | Path) -> str:
    """Make new keys on a site's machine; return the line that the other parties need in their files.

    Raises:
        InvalidFile: A file cannot be read or replaced; where that is known beforehand, none is changed.
        Refused: The site has taken part in something under its old keys.
    """
    from tacit.aggregation.secure.sealing import Identity

    place, file = Path(site), SiteFile.read(site)
    try:
        if _exists(place / LEDGER) or _exists(place / ENTROPY):
            raise Refused(f"{place} has been in use: its keys are not changed any more")
        identity, node = Identity.fresh(), certificates.node_key()
        text, mode = files.read_text(place / SITE_FILE, LONGEST_FILE), (place / SITE_FILE).stat().st_mode
        old, new = file.colleagues[file.name], identity.public.hex()
        # Last of all what says which key is the site's: until then the old one is.
        written = {
            Path("node") / "node.key": (node.private, 0o600),
            Path("node") / "node.key.pub": (node.public, 0o644),
            IDENTITY: (identity.secret, 0o600),
            Path(SITE_FILE): (text.replace(old, new).encode(), mode & 0o777),
        }
        for name in written:
            _require_replaceable(place / name)
        for name, (content, allowed) in written.items():
            files.replace(place / name, content, allowed)
    except OSError as error:
        raise InvalidFile(f"{error.filename or place} cannot be replaced: {files.explain(error)}") from error
    return tomli_w.dumps({file.name: new}).strip()


@dataclass(frozen=True)
class _FolderWriter:
    """Writer of all folders: it holds every party's keys while they are made."""

    out: Path
    host: str
    port: int
    above: certificates.Credential
    served: certificates.Credential
    coordinator: "Identity"
    identities: dict[str, "Identity"]
    nodes: dict[str, certificates.NodeKey] = field(repr=False)
    extras: str

    @classmethod
    def create(
        cls, names: list[str], out: Path, host: str, port: int, days: int, extras: str
    ) -> "_FolderWriter":
        from tacit.aggregation.secure.sealing import Identity

        above = certificates.authority()
        return cls(
            out,
            host,
            port,
            above,
            certificates.server(above, [host], days=days),
            Identity.fresh(),
            {name: Identity.fresh() for name in names},
            {name: certificates.node_key() for name in names},
            extras,
        )

    @property
    def inner(self) -> int:
        """The port of the superlink itself."""
        if not self.front:
            return self.port
        return INNER if self.port != INNER else INNER + 1

    @property
    def keys(self) -> dict[str, str]:
        """The public key of every site."""
        return {name: identity.public.hex() for name, identity in self.identities.items()}

    @property
    def front(self) -> bool:
        """True if sites are on other machines, so that the coordinator needs a public entry."""
        return not certificates.is_this_machine(self.host)

    def common(self) -> dict[str, object]:
        """Return the template values of every folder; the coordinator's certificate exists already."""
        file = coordinator_folder(self.out) / "tls" / "server.pem"
        until = certificates.valid_until(file).date().isoformat()
        front, port = self.front, self.port
        return {"host": self.host, "port": port, "front": front, "extras": self.extras, "until": until}

    def write_authority(self) -> None:
        """Write the authority's key and certificate, which are kept offline."""
        place = _folder(self.out / "authority", 0o700)
        _new(place / "ca.crt", self.above.certificate)
        keep_secret(place / "ca.key", self.above.key)

    def write_coordinator(self, experiment: Mapping[str, Any]) -> None:
        """The coordinator's folder."""
        place = _folder(coordinator_folder(self.out))
        for name in ("home", "state", "runs", "secret"):
            _folder(place / name, 0o700)
        keep_secret(place / IDENTITY, self.coordinator.secret)
        keep_secret(place / "secret" / "superexec.secret", secrets.token_hex(32).encode())
        tls = _folder(place / "tls")
        _new(tls / "ca.crt", self.above.certificate)
        _new(tls / "server.pem", self.served.certificate)
        keep_secret(tls / "server.key", self.served.key)
        nodes = _folder(place / "nodes")
        for name, key in self.nodes.items():
            _new(nodes / f"{slug_of(name)}.pub", key.public)
        link = {"address": f"127.0.0.1:{self.inner}", "root-certificates": str((tls / "ca.crt").resolve())}
        _new(
            place / "home" / "config.toml", tomli_w.dumps({"superlink": {"default": "tacit", "tacit": link}})
        )
        _new(place / "experiment.toml", tomli_w.dumps(experiment))
        key = self.coordinator.public.hex()
        known = {"host": self.host, "port": self.port, "key": key, "sites": self.keys}
        _new(place / COORDINATOR_FILE, tomli_w.dumps(known))
        _write_texts(
            place,
            render_folder("coordinator", "coordinator", inner=self.inner, **self.common()),
        )
        _ = CoordinatorFile.read(place)

    def write_site(
        self, name: str, data: Mapping[str, Any], agreed: Mapping[str, Any], limits: SiteLimits, number: int
    ) -> None:
        """The folder of one site."""
        place, slug = _folder(site_folder(self.out, name)), slug_of(name)
        for part in ("secret", "state", "data"):
            _folder(place / part, 0o700)
        _folder(place / "run", 0o750)
        keep_secret(place / IDENTITY, self.identities[name].secret)
        node = _folder(place / "node", 0o750)
        _folder(node / "home", 0o700)
        keep_secret(node / "node.key", self.nodes[name].private)
        _new(node / "node.key.pub", self.nodes[name].public)
        _new(node / "ca.crt", self.above.certificate)
        # On one machine every node needs a port of its own.
        local = LOCAL if self.front else self.port + 1 + number
        told = {"name": name, "coordinator": self.coordinator.public.hex(), "keys": self.keys, "data": data}
        told |= {"limits": limits, "local": local, **_example(agreed), "agreed": at_sites(agreed)}
        _write_texts(place, render_folder("site", slug, **told, **self.common()))
        _ = SiteFile.read(place)


def _require_writable(sites: Mapping[str, object], out: Path, host: str, port: int, days: int) -> None:
    certificates.require_host(host)
    require_count("days", days)
    most = certificates.AUTHORITY_DAYS
    require(days <= most, "days", days, f"at most {most}, as long as the authority itself is valid")
    require(1 <= port <= 65535 - len(sites), "port", port, "a port, with room above it for each site")
    require(bool(sites), "sites", list(sites), "one site at least")
    require(COORDINATOR not in sites, "sites", list(sites), f"other names than {COORDINATOR!r}")
    slugs = {slug_of(name).lower() for name in sites}
    require(len(slugs) == len(sites), "sites", list(sites), "names that differ in more than signs and case")
    plain = re.search(r"['\"$`\\]", str(out.resolve())) is None
    require(plain, "out", str(out), "a folder without quotes, dollar signs and backslashes in its path")
    there = [coordinator_folder(out) / COORDINATOR_FILE, out / "authority" / "ca.key", out / "README.md"]
    there += [site_folder(out, name) / SITE_FILE for name in sites]
    for file in there:
        if file.exists():
            raise Refused(f"{file} exists already: choose another folder, nothing is overwritten")


def _example(agreed: Mapping[str, Any]) -> dict[str, object]:
    """Return the kind of data that a site is to fill in, and the columns that it is to name."""
    usual = {"time": "time", "event": "event", **agreed}
    wanted = [usual[part] for part in ("time", "event", "entry", "weight") if part in usual]
    return {
        "kind": agreed.get("kind"),
        "columns": [str(name) for name in (*wanted, *agreed.get("columns", ()))],
    }


def _write_texts(place: Path, texts: Mapping[str, str]) -> None:
    """Write executable scripts, a site's file for its own group, and pages readable by all."""
    for name, text in texts.items():
        mode = 0o755 if name.endswith(".sh") else 0o640 if name == SITE_FILE else 0o644
        if "/" in name:
            _ = _folder((place / name).parent)
        _new(place / name, text, mode)


def _folder(path: Path, mode: int = 0o755) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    return path


def _new(file: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Create a new file."""
    files.create(file, content, mode)
    file.chmod(mode)


def _exists(path: Path) -> bool:
    """Return True if the path exists, even as a dangling link."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _require_replaceable(file: Path) -> None:
    """Refuse a place where no file can be put: its folder is none, or something else than a file is there."""
    files.require_regular(file)
    if not file.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(file.parent))
    if not os.access(file.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file.parent))

"""New keys and certificates in folders that are there already, each file replaced as a whole."""

import errno
import os
from pathlib import Path

import tomli_w

from tacit.deploy import certificates
from tacit.deploy.site.config import ENTROPY, IDENTITY, LEDGER, SITE_FILE, CoordinatorFile, SiteFile
from tacit.errors import InvalidFile, Refused
from tacit.runtime import files
from tacit.runtime.limits import LONGEST_FILE


def renew_certificate(coordinator: str | Path, authority: str | Path, days: int = 365) -> str:
    """A new certificate for the coordinator, by the authority that sites believe; its last day."""
    place, above = Path(coordinator), Path(authority)
    by = certificates.Credential(files.read_bytes(above / "ca.crt"), files.read_bytes(above / "ca.key"))
    served = certificates.server(by, [CoordinatorFile.read(place).host], days=days)
    for name, content in (("server.pem", served.certificate), ("server.key", served.key)):
        files.replace(place / "tls" / name, content, 0o600)
    return certificates.valid_until(place / "tls" / "server.pem").date().isoformat()


def renew_keys(site: str | Path) -> str:
    """New keys for a site, made where it lives; what others must be told, as a line of their files.

    Raises:
        InvalidFile: A file cannot be read or replaced; where that is known beforehand, none is changed.
        Refused: The site has taken part in something under its old keys.
    """
    from tacit.aggregation.secure import Identity

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


def _exists(path: Path) -> bool:
    """Whether something has this name, a link to nothing included."""
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

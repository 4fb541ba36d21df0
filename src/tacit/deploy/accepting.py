"""How the administrator of a site accepts what an experiment says of its data: in the site's own file."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tacit.deploy.sitefile import SITE_FILE, UNUSABLE, SiteFile, at_sites
from tacit.deploy.sitetext import AGREED, agreed_text
from tacit.errors import InvalidFile, TacitError
from tacit.reading import Table, made


def accept(folder: str | Path, experiment: str | Path) -> Table:
    """Take over into a site's file what an experiment says of the data; what was taken over.

    What could not be used before may be tried again after that.

    Raises:
        InvalidFile: One of the two files cannot be read, or was written by hand in another order.
    """
    place, file = Path(folder), Path(experiment)
    _ = SiteFile.read(place)
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidFile(f"{file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{file} is not TOML: {error}") from error
    data: Any = document.get("data")
    agreed = at_sites(cast(Table, data) if isinstance(data, dict) else {})
    try:
        _ = rules(agreed, place)
    except TacitError as error:
        raise InvalidFile(f"{file}: {error}") from error
    _rewrite(place / SITE_FILE, agreed)
    (place / UNUSABLE).unlink(missing_ok=True)
    return agreed


def rules(agreed: Mapping[str, Any], folder: Path) -> Any:  # noqa: ANN401
    """What is agreed about data, as this library has it: it opens a site's own data.

    Raises:
        InvalidFile: It cannot be, or would have to be loaded.
    """
    from tacit.experiment import KINDS

    kind = agreed.get("kind")
    if not isinstance(kind, str) or not kind.startswith("held-") or ":" in kind:
        raise InvalidFile(f"[data] kind = {kind!r} is not held by sites: it must be deployed first")
    known = {name: held for name, held in KINDS["data"].items() if name.startswith("held-")}
    return made("data", {"data": dict(agreed)}, folder, known)


def _rewrite(file: Path, agreed: Table) -> None:
    """The same text, with another last table."""
    text = file.read_text(encoding="utf-8")
    before, mark, _ = text.partition(AGREED)
    if not mark and "agreed" in tomllib.loads(text):
        raise InvalidFile(f"{file}: [agreed] was written by hand: change it there")
    new = before.rstrip("\n") + "\n" + agreed_text(agreed)
    # Limits that stood behind it would be lost without a word, and those that Tacit has would count.
    if {**tomllib.loads(text), "agreed": agreed} != tomllib.loads(new):
        raise InvalidFile(f"{file}: there is something behind [agreed], which is the last table: move it up")
    part = file.with_suffix(".part")
    with os.fdopen(
        os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, file.stat().st_mode & 0o777), "w"
    ) as stream:
        stream.write(new)
    part.replace(file)

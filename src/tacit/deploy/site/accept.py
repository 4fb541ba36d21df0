"""How the administrator of a site accepts what an experiment says of its data: in the site's own file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tacit.deploy.site.config import SITE_FILE, UNUSABLE, SiteFile, at_sites
from tacit.deploy.site.config_text import AGREED, agreed_text
from tacit.errors import InvalidFile, TacitError
from tacit.runtime import files
from tacit.runtime.limits import LONGEST_FILE
from tacit.runtime.tables import Table, build, load, parse


def accept(folder: str | Path, experiment: str | Path) -> Table:
    """Take over into a site's file what an experiment says of the data; what was taken over.

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
    """What is agreed about data, as this library has it: it opens a site's own data.

    Raises:
        InvalidFile: It cannot be, or would have to be loaded.
    """
    from tacit.experiments.experiment import KINDS

    kind = agreed.get("kind")
    if not isinstance(kind, str) or not kind.startswith("held-") or ":" in kind:
        raise InvalidFile(f"[data] kind = {kind!r} is not held by sites: it must be deployed first")
    known = {name: held for name, held in KINDS["data"].items() if name.startswith("held-")}
    return build("data", {"data": dict(agreed)}, folder, known)


def _rewrite(file: Path, agreed: Table) -> None:
    """The same text, with another last table."""
    text = files.read_text(file, LONGEST_FILE)
    before, mark, _ = text.partition(AGREED)
    if not mark and "agreed" in parse(text, str(file)):
        raise InvalidFile(f"{file}: [agreed] was written by hand: change it there")
    new = before.rstrip("\n") + "\n" + agreed_text(agreed)
    # Limits that stood behind it would be lost without a word, and those that Tacit has would count.
    if {**parse(text, str(file)), "agreed": agreed} != parse(new, str(file)):
        raise InvalidFile(f"{file}: there is something behind [agreed], which is the last table: move it up")
    files.replace(file, new, file.stat().st_mode & 0o777)

"""Import of code that a file names: classes of its author's own, and environments for Gymnasium.

Importing executes code. Code that an experiment file names is announced before it is imported. The directory
of a run may have any origin, so code that it names is refused unless the directory is trusted. Code that is
loaded already is used without either.

Packages of ours load their names on first use, by `lazy`, so that what is not used costs nothing.
"""

import re
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

from tacit.errors import InvalidFile, quote

_trusted: ContextVar[bool] = ContextVar("trusted", default=False)
_directory: ContextVar[bool] = ContextVar("directory", default=False)
_announce: ContextVar[Callable[[str], None] | None] = ContextVar("announce", default=None)


def lazy(package: str, homes: Mapping[str, str] | None = None) -> Callable[[str], object]:
    """Return the `__getattr__` of a package, which loads submodules and other names on first use.

    Args:
        package: The package.
        homes: The module of each name that it offers beside its submodules.
    """

    def load(name: str) -> object:
        if homes and name in homes:
            return getattr(import_module(homes[name]), name)
        place = f"{package}.{name}"
        try:
            return import_module(place)
        except ModuleNotFoundError as error:
            if error.name != place:
                # The module is there, and what it needs is not.
                raise
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from error

    return load


@contextmanager
def trusting(trusted: bool = True) -> Generator[None]:
    """Allow or refuse imports that directories of runs name, in this block."""
    token = _trusted.set(trusted)
    try:
        yield
    finally:
        _trusted.reset(token)


@contextmanager
def announcing(announce: Callable[[str], None]) -> Generator[None]:
    """Announce the import of a module and its origin."""
    token = _announce.set(announce)
    try:
        yield
    finally:
        _announce.reset(token)


@contextmanager
def reading_directory(is_directory: bool) -> Generator[None]:
    """Treat files read in this block as a run's own directory, which may have any origin."""
    token = _directory.set(is_directory)
    try:
        yield
    finally:
        _directory.reset(token)


def require_importable(field: str, name: str, folder: Path) -> None:
    """Refuse the import that a file asks for where it is not trusted; announce it elsewhere.

    Args:
        field: The field that names it, such as `[task] kind`.
        name: The object: `package.module:Class`.
        folder: The folder of the file.

    Raises:
        InvalidFile: It names no module, or a directory of a run names it that is not trusted.
    """
    module = name.partition(":")[0]
    if re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", module) is None:
        raise InvalidFile(f"{field} = {quote(name)} is not allowed: it must be package.module:Class")
    if module in sys.modules:
        return
    origin = _origin(module, folder)
    if _directory.get() and not _trusted.get():
        raise InvalidFile(
            f"{field} = {quote(name)} would import {module} from {origin}, and that executes it: read it, "
            "and if you trust it, give --trust (in Python, trust=True)"
        )
    announce = _announce.get()
    if announce is not None:
        announce(f"importing {module} from {origin}, for {field} = {quote(name)}")


def import_object(field: str, name: str, folder: Path) -> object:
    """Import what a file names as `package.module:Class`; its module may lie beside the file, or here.

    `sys.path` is afterwards as it was.

    Raises:
        InvalidFile: It cannot be imported, or may not be.
    """
    require_importable(field, name, folder)
    module, _, attribute = name.partition(":")
    places = _places(folder)
    sys.path[:0] = places
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:
        # The module is the user's: whatever it raises is theirs to mend.
        raise InvalidFile(f"{field} = {quote(name)} cannot be loaded: {error}") from error
    finally:
        # Ours alone: what the module itself has added stays.
        for place in places:
            sys.path.remove(place)


def _places(folder: Path) -> list[str]:
    return [str(folder), str(Path.cwd())]


def _origin(module: str, folder: Path) -> str:
    """Return the file that a module would be imported from; nothing is imported to find out."""
    top = module.partition(".")[0]
    try:
        found = PathFinder.find_spec(top, [*_places(folder), *sys.path])
    except Exception:
        # A finder of another package.
        found = None
    if found is None:
        return "an unknown place"
    places = list(found.submodule_search_locations or [])
    return str(found.origin or (places[0] if places else "an unknown place"))

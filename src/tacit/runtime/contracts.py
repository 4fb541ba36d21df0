"""Contracts between folders: layouts of data, and adapters of objects that do not inherit our bases.

A base class (`TaskBase`, `SourceBase`, `AggregatorBase`) has every hook that is called, with its default. A
class of a user's own need not inherit it: it is adapted once, where it comes in, and everything behind that
door calls typed hooks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Data layout of a federation: records of each site's own, columns of the same records, or environments.
Layout = Literal["rows", "columns", "environments"]
# Metadata of a field that `bind` fills in: a result, and no key of a file that a user writes. The directory
# of a run has it, to resume.
BOUND: Mapping[str, bool] = {"bound": True}


class Adapted:
    """Adapter of an object without our base; a subclass inherits the base as well.

    Args:
        own: The object.
    """

    def __init__(self, own: Any) -> None:  # noqa: ANN401
        self.own = own

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401
        inner = object.__getattribute__
        if name == "own" or name.startswith("__") or name in vars(type(self)):
            return inner(self, name)
        # The one place where an object that only has the right members is asked for them.
        found = getattr(inner(self, "own"), name, MISSING)
        return inner(self, name) if found is MISSING else found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Adapted) and self.own == other.own

    def __hash__(self) -> int:
        return hash(self.own)

    def __repr__(self) -> str:
        return repr(self.own)

    def has(self, name: str) -> bool:
        """Return True if the object has a member of this name itself."""
        return self.member(name) is not None

    def member(self, name: str) -> Any:  # noqa: ANN401
        """Return a member of the object itself; None if it has none."""
        return getattr(object.__getattribute__(self, "own"), name, None)


def user_object(given: Any) -> Any:  # noqa: ANN401
    """Return an object as the user gave it, without its adapter."""
    return given.own if isinstance(given, Adapted) else given


@runtime_checkable
class SeriesLike(Protocol):
    """A series of pandas: one column, or one record under the names of its columns."""

    @property
    def index(self) -> Any:  # noqa: ANN401
        """Its labels."""
        ...

    def to_frame(self) -> Any:  # noqa: ANN401
        """A frame of one column."""
        ...


@runtime_checkable
class Shaped(Protocol):
    """An array, of whichever library."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its lengths."""
        ...


@runtime_checkable
class Listable(Protocol):
    """An array or a number of numpy, or of a library like it."""

    def tolist(self) -> Any:  # noqa: ANN401
        """Its numbers as plain ones."""
        ...


@runtime_checkable
class Named(Protocol):
    """A function or a class."""

    __name__: str


@runtime_checkable
class Bindable(Protocol):
    """A task, as opposed to a function: it can be bound to a federation."""

    def bind(self, federation: Any, provenance: Any) -> Any:  # noqa: ANN401
        """The task with everything decided that depends on the federation."""
        ...


def name_of(function: object) -> str:
    """Return the name of a function; of an object that is called, that of its class."""
    return function.__name__ if isinstance(function, Named) else type(function).__name__


def fields_of(given: object, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return fields of an object by their names, in this order.

    It asks for no hook: a name that the object does not have raises `AttributeError`.

    Args:
        given: A dataclass, a named tuple, or another object if names are given.
        names: The names; all fields of a dataclass, if left out.
    """
    if names is None:
        names = [entry.name for entry in fields(cast("DataclassInstance", given))]
    return {name: getattr(given, name) for name in names}


def bound_fields(kind: object) -> set[str]:
    """Return the names of the fields of a dataclass, or of an instance, that `bind` fills in."""
    if not is_dataclass(kind):
        return set()
    return {entry.name for entry in fields(kind) if entry.metadata.get("bound")}

"""Contract of a source of data, the table [data] of an experiment file: `SourceBase` has every hook."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

from tacit.errors import Refused
from tacit.runtime.contracts import Adapted, Layout
from tacit.sites.federation import Federation


class SourceBase(ABC):
    """Base of sources of data; a class of your own overrides `open`, and of the hooks those that it needs.

    Args:
        kind: Its name in an experiment file.
        layout: Layout of the data of the sites.
        distant: True if the sites hold their data on machines of their own.
        public: True if the data are public.
    """

    kind: ClassVar[str] = "own"
    layout: ClassVar[Layout] = "rows"
    distant: ClassVar[bool] = False
    public: bool = False

    @property
    def public_records(self) -> int | None:
        """Number of training records, if it is public."""
        return None

    @property
    def public_features(self) -> int | None:
        """Number of features, if it is known before the data are opened."""
        return None

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, beside the first of which the book of the data lies."""
        return ()

    @property
    def place(self) -> str | None:
        """File or folder of private records: details of a refusal are written down beside it."""
        return None

    @property
    def public_files(self) -> Mapping[str, str]:
        """The coordinator's own files, by their key in [data]."""
        return {}

    def check(self, split: Any, *, may_look: bool = False) -> None:  # noqa: ANN401
        """Refuse a split that does not go with these data, before any is read.

        Args:
            split: The split, a kind of [sites].
            may_look: True if nothing is promised about the records.
        """
        return

    def size_task(self, task: Any, split: Any) -> Any:  # noqa: ANN401
        """Return the task with the public sizes that it needs for a plan."""
        return task

    @abstractmethod
    def open(self, split: Any, seed: int, *, may_look: bool = False) -> Federation:  # noqa: ANN401
        """Open the sites with their data."""

    def at_site(
        self,
        name: str,
        holding: Mapping[str, Any],
        folder: Path,
        *,
        sites: Any = None,  # noqa: ANN401
        task: Any = None,  # noqa: ANN401
    ) -> Federation:
        """Open the federation of one site, with the data that its own settings point to."""
        raise Refused(f'[data] kind = "{self.kind}" is in one place: no site can open a part of it')


class _AdaptedSource(Adapted, SourceBase):
    """A source of a user's own that does not inherit `SourceBase`."""

    def open(self, split: Any, seed: int, *, may_look: bool = False) -> Federation:  # noqa: ANN401
        """Open the sites with their data."""
        return self.own.open(split, seed, may_look=may_look)

    @property
    def place(self) -> str | None:
        """Its `path`, if it has one."""
        return cast("str | None", self.member("path"))


def as_source(source: object) -> SourceBase:
    """Return a source with every hook: one that inherits `SourceBase` unchanged, a structural one adapted."""
    return source if isinstance(source, SourceBase) else _AdaptedSource(source)

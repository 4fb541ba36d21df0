"""Provenance of every number that is not a release: public, or unprotected.

Code that wants to look at private records without paying asks here first. In a private run the answer is no.
"""

from collections.abc import Iterable, Mapping, Sequence

from tacit.errors import Refused
from tacit.privacy.policy import Open, Privacy

PUBLISHED = "they are simulated or published"


def is_all_public(public: Iterable[str]) -> bool:
    """Return True if a statement calls everything at the sites public."""
    return any(words.endswith(PUBLISHED) for words in public)


class Provenance:
    """Record of what a run takes as public, and what it lets out unprotected.

    Args:
        privacy: The promise.
        public: Whether the records are public: simulated, or published.
        what: Description of the sites' data, if not records.
    """

    def __init__(self, privacy: Privacy | Open, *, public: bool, what: str = "records") -> None:
        self.allowed = public or isinstance(privacy, Open) or privacy.rehearsal
        self._records_are_public = public
        self.public: list[str] = [f"all {what}: {PUBLISHED}"] if public else []
        self.bare: list[str] = []

    def look(self, what: str, *, instead: str) -> None:
        """Note that something is taken from the records without protection.

        Args:
            what: Description of the statistic, in words.
            instead: The way out for a run that may not.

        Raises:
            Refused: The run promises privacy: nothing leaves unprotected.
        """
        if not self.allowed:
            raise Refused(f"{what} would leave the sites unprotected: {instead}")
        if not self._records_are_public:
            self.bare.append(what)

    def recall(self, known: Mapping[str, Sequence[str]]) -> None:
        """Restore the public and unprotected facts of a run before its interruption."""
        self.public = list(dict.fromkeys([*known.get("public", ()), *self.public]))
        self.bare = list(dict.fromkeys([*known.get("bare", ()), *self.bare]))

    def declare_public(self, what: Sequence[str]) -> None:
        """Note public facts by agreement."""
        self.public.extend(what)

"""Where every number that is not a release comes from: public, or bare.

Whoever wants to look at private records without paying asks here first. In a private run the answer is no.
"""

from collections.abc import Sequence

from tacit.errors import Refused
from tacit.privacy.policy import Open, Privacy


class Provenance:
    """What a run takes as public, and what it lets out bare.

    Args:
        privacy: The promise.
        public: Whether the records are nobody's secret: simulated, or published.
        what: What sites have, if not records.
    """

    def __init__(self, privacy: Privacy | Open, *, public: bool, what: str = "records") -> None:
        self.allowed = public or isinstance(privacy, Open) or privacy.rehearsal
        self._records_are_public = public
        self.public: list[str] = [f"all {what}: they are simulated or published"] if public else []
        self.bare: list[str] = []

    def look(self, what: str, *, instead: str) -> None:
        """Note that something is taken from the records without protection.

        Args:
            what: What it is, in words.
            instead: The way out for a run that may not.

        Raises:
            Refused: The run promises privacy: nothing leaves bare.
        """
        if not self.allowed:
            raise Refused(f"{what} would leave the sites unprotected: {instead}")
        if not self._records_are_public:
            self.bare.append(what)

    def agreed(self, what: Sequence[str]) -> None:
        """Note what is public by agreement."""
        self.public.extend(what)

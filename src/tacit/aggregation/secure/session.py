"""Public parameters of secure aggregation: participants, round, width and threshold.

A session is public. Its digest goes into every key, signature and envelope, so that no message of one session
is valid in another.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tacit.errors import require, require_count
from tacit.privacy.mechanisms.secure_sum import FEWEST, MOST, honest, threshold

Stage = Literal["offer", "share", "mask", "agree", "reveal"]
STAGES: tuple[Stage, ...] = ("offer", "share", "mask", "agree", "reveal")
# A gibibyte of masked numbers from each site.
WIDEST = 2**28
LONGEST_NAME = 200
# Changes whenever the bytes of a message or the meaning of a key do.
FORMAT = "tacit secure sum 1"


@dataclass(frozen=True, kw_only=True)
class Session:
    """One sum.

    Args:
        run: The run that it belongs to, and the name of the sum, if a round has several.
        round: Its round; a site agrees to one sum for a run and round, even if it fails.
        names: The sites; they are sorted.
        width: Coordinates of a vector.
        colluders: Number of sites that may work together with the server.
        least: Number of sites that must stay to the end; by default more than two thirds.

    Guarantee:
        With at most `colluders` sites on its side a server learns the sum of at least `honest` vectors of
        honest sites, once, or nothing, even if it says different things to different sites.

    Raises:
        Refused: This many colluders could unmask a site.
    """

    run: str
    round: int
    names: tuple[str, ...]
    width: int
    colluders: int = 1
    least: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(sorted(self.names)))
        require(_is_name(self.run), "run", self.run, f"1 to {LONGEST_NAME} printable characters")
        require(_is_whole(self.round, 0, 2**63), "round", self.round, "a whole number of at least 0")
        require(_is_whole(self.width, 1, WIDEST), "width", self.width, f"from 1 to {WIDEST:,}")
        require_count("colluders", self.colluders)
        count = len(self.names)
        allowed = f"{FEWEST} to {MOST} sites: two would know each other's vector, more are too slow"
        require(FEWEST <= count <= MOST, "names", f"{count} sites", allowed)
        require(len(set(self.names)) == count, "names", self.names, "different")
        for name in self.names:
            require(_is_name(name), "names", name, f"1 to {LONGEST_NAME} printable characters each")
        whole = self.least is None or _is_whole(self.least, 2, count)
        require(whole, "least", self.least, f"from 2 to the number of sites, {count}, or left out")
        honest(count, self.colluders, self.least)

    @property
    def threshold(self) -> int:
        """Number of sites that must stay to the end."""
        return threshold(len(self.names)) if self.least is None else self.least

    @property
    def honest(self) -> int:
        """Smallest number of honest vectors in any sum that is revealed."""
        return honest(len(self.names), self.colluders, self.least)

    @cached_property
    def points(self) -> dict[str, int]:
        """Point of each site's shares: its place among the names, from 1; at 0 is the secret."""
        return {name: place for place, name in enumerate(self.names, start=1)}

    @cached_property
    def digest(self) -> bytes:
        """Digest of all parameters, in 32 bytes."""
        numbers = (self.round, self.threshold, self.width, self.colluders)
        return hashlib.sha256(frame_parts(FORMAT, self.run, *map(str, numbers), *self.names)).digest()

    def context(self, purpose: str, *parts: str | bytes) -> bytes:
        """Return the context that binds a key, a signature or an envelope to this session."""
        return frame_parts(FORMAT, self.digest, purpose, *parts)

    def between(self, one: str, other: str) -> bytes:
        """Return the context of a pair's mask, the same for both."""
        return self.context("mask", *sorted((one, other)))

    def agreement(self, survivors: Iterable[str]) -> bytes:
        """Return the bytes that a site signs to agree to the set of survivors."""
        return self.context("survivors", *sorted(survivors))


def mask_sign(name: str, other: str) -> Literal[1, -1]:
    """Return the sign of a site's mask with another: one of the two adds, the other subtracts."""
    return 1 if name < other else -1


def frame_parts(*parts: str | bytes) -> bytes:
    """Concatenate the parts, each behind its length, so that no two lists have the same bytes."""
    raw = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in raw)


def _is_name(given: object) -> bool:
    return isinstance(given, str) and 0 < len(given) <= LONGEST_NAME and given.isprintable()


def _is_whole(given: object, low: int, high: int) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and low <= given <= high

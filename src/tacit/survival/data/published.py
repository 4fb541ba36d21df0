"""Published survival sets as kinds of data in an experiment file, and as federations in Python.

Their records are nobody's secret, so levels, usual values and moments are taken from all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tacit.errors import InvalidValue, require, require_word
from tacit.learning.record import describe
from tacit.runtime.keys import Key
from tacit.sites.encoding import infer_encoding, with_scaling
from tacit.sites.federation import Federation
from tacit.sites.splits import ByColumn, Iid, held_out_count
from tacit.sites.table import by_site, from_frame
from tacit.survival.data.cards import CARDS, Card, load
from tacit.survival.data.partition import (
    TARGETS,
    Cause,
    Split,
    can_participate,
    horizontal_federation,
    natural_federation,
    require_cause,
    require_share,
    select_cause,
)


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published set, by its name; its records are nobody's secret.

    Words become features of 0 and 1, missing values the median or the most frequent word of the set.

    Args:
        held_out: The share that is held out to score models on.
        cause: Of several causes, the one to learn about, which makes the others censored; or "any". If not
            said, events keep their codes.
        standardize: Whether features get mean 0 and standard deviation 1; those of 0 and 1 stay as they are.
    """

    held_out: float = 0.2
    cause: Cause | None = None
    standardize: bool = True
    kind: ClassVar[str]
    public: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_share(self.held_out)
        require_cause(self.cause)
        if isinstance(self.cause, int):
            most = CARDS[self.kind].causes
            require(self.cause <= most, "cause", self.cause, f"at most {most}, for {self.kind}")

    @property
    def public_records(self) -> int | None:
        """How many records are trained on; with sites by a column, up to rounding at each site."""
        records = CARDS[self.kind].records
        return records - held_out_count(records, self.held_out)

    def open(self, split: Split, seed: int, *, may_look: bool = False) -> Federation:
        """The federation of these records; real sites of a single record, or without events, are left out."""
        frame = load(self.kind)
        column = split.column if isinstance(split, ByColumn) else None
        if column == "site" and "site" not in frame.columns:
            raise InvalidValue(
                f'[sites] kind = "by-column" is not allowed: {self.kind} does not say where its records come '
                'from; deal them out, as with kind = "iid"'
            )
        leave = [name for name in frame.columns if name in ("site", column)]
        features = frame.drop(columns=[*TARGETS, *leave])
        encoding = infer_encoding(features)
        if self.standardize:
            encoding = with_scaling(features, encoding)
        parts = {self.kind: frame} if column is None else by_site(frame, column, self.kind)
        tables = {
            name: select_cause(
                from_frame(part, targets=TARGETS, leave=leave, place=name, encoding=encoding), self.cause
            )
            for name, part in parts.items()
        }
        about: dict[str, Any] = {
            "share": self.held_out,
            "public": True,
            "origin": {"data": describe(self), "sites": describe(split)},
            "encoding": encoding,
        }
        if isinstance(split, ByColumn):
            able = {name: table for name, table in tables.items() if can_participate(table)}
            return natural_federation(able, Key(seed), **about)
        return horizontal_federation(tables[self.kind], split, Key(seed), **about)


def published_federation(
    name: str, *, sites: int | Split | None, seed: int, held_out: float, cause: Cause | None
) -> Federation:
    """The federation of a published set; see `tacit.survival.data.federation`."""
    require_word("name", name, PUBLISHED)
    usual = ByColumn() if CARDS[name].sites else Iid()
    split = usual if sites is None else Iid(count=sites) if isinstance(sites, int) else sites
    return PUBLISHED[name](held_out=held_out, cause=cause).open(split, seed)


def _kind(name: str, card: Card) -> type[Published]:
    """The constructor that stands for a published set in a file."""
    fields = {"kind": name, "__doc__": f"{card.line}.", "__module__": __name__}
    return type(name.title().replace("-", ""), (Published,), fields)


PUBLISHED: Mapping[str, type[Published]] = {name: _kind(name, card) for name, card in CARDS.items()}

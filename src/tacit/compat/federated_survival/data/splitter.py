"""Split of one table into clients and a test set, by the splits of `tacit.sites.splits`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from tacit.compat.federated_survival import seed_of
from tacit.compat.federated_survival.data.loader import require_outcomes
from tacit.errors import is_between, require, require_count, require_word
from tacit.runtime.keys import Key
from tacit.sites.splits import Dirichlet, Iid, NonIid, SplitByCount, TimeNonIid, hold_out
from tacit.sites.table import Table, from_frame

if TYPE_CHECKING:
    from pandas import DataFrame

Floats = NDArray[np.float32]
Client = tuple[Floats, Floats]


@dataclass(frozen=True, kw_only=True)
class RandomSplit(SplitByCount):
    """Clients of equal size, dealt at random whatever the status of a record."""

    kind: ClassVar[str] = "random"

    def deal(self, table: Table, generator: np.random.Generator) -> list[NDArray[np.int64]]:
        """One shuffle, cut into equal parts."""
        return list(np.array_split(generator.permutation(len(table)), self.count))


SPLITS: dict[str, type[SplitByCount]] = {
    "random": RandomSplit,
    "iid": Iid,
    "non-iid": NonIid,
    "censoring-non-iid": NonIid,
    "time-non-iid": TimeNonIid,
    "dirichlet": Dirichlet,
}


class Fields(NamedTuple):
    """The six fields of a divided table, in the order of the original."""

    clients_set: dict[str, Client]
    train_data: Floats
    train_label: Floats
    test_data: Floats
    test_label: Floats
    raw_aug_clients_set: dict[str, Client]


class DataSet(Fields):
    """A table divided among clients; it unpacks into its six fields.

    Args:
        clients_set: For each client its features (records, features) and labels (records, 2): time, status.
        train_data: The features of all clients; by default those of `clients_set` in their order.
        train_label: Their times and statuses (records, 2).
        test_data: The features of the test set.
        test_label: Its times and statuses (records, 2).
        raw_aug_clients_set: A place for augmented records; the runner augments by itself.
        feature_names: The names of the features; no field of the original.
    """

    feature_names: tuple[str, ...]

    def __new__(
        cls,
        clients_set: dict[str, Client],
        train_data: Floats | None = None,
        train_label: Floats | None = None,
        test_data: Floats | None = None,
        test_label: Floats | None = None,
        raw_aug_clients_set: dict[str, Client] | None = None,
        *,
        feature_names: tuple[str, ...] = (),
    ) -> Self:
        """Fill in what the clients decide; two arrays after them are the test set."""
        if test_data is None and test_label is None:
            train_data, train_label, test_data, test_label = None, None, train_data, train_label
        for name, given in (("test_data", test_data), ("test_label", test_label)):
            require(given is not None, name, given, "the arrays of a test set")
        test = (cast(Floats, test_data), cast(Floats, test_label))
        held = list(clients_set.values())
        parts = [np.concatenate([client[at] for client in held]) if held else test[at][:0] for at in (0, 1)]
        made = super().__new__(
            cls,
            clients_set,
            parts[0] if train_data is None else train_data,
            parts[1] if train_label is None else train_label,
            *test,
            {} if raw_aug_clients_set is None else raw_aug_clients_set,
        )
        made.feature_names = feature_names
        return made


class DataSplitter:
    """Holds a test set out, with the same share of events, and divides the rest among clients.

    Every client gets an event and records enough to take part. A record is dealt out once, whatever the index
    of the frame says; the original dealt records with a repeated index label out several times.

    Args:
        n_clients: The number of clients: `client0`, `client1`, ...
        split_type: `iid` (equal shares of events), `random` (one shuffle, the `non-iid` of 0.5.0), `non-iid`
            (shares of events that differ), `time-non-iid` (ranges of time) or `Dirichlet` (patients that
            differ in their features).
        alpha: For `Dirichlet`: the smaller, the more the clients differ.
        test_size: The share of records in the test set.
        random_state: The same one gives the same split; without one, each is another.
    """

    def __init__(
        self,
        n_clients: int,
        split_type: str = "iid",
        alpha: float = 0.5,
        test_size: float = 0.2,
        random_state: int | None = None,
    ) -> None:
        require_count("n_clients", n_clients)
        require_word("split_type", str(split_type).lower(), SPLITS)
        require(is_between(test_size, 0, 1), "test_size", test_size, "above 0 and below 1")
        self.n_clients, self.alpha, self.test_size = n_clients, alpha, test_size
        self.split_type, self.random_state = split_type, random_state
        self._split = self._chosen()

    def split(self, data: "DataFrame") -> DataSet:
        """Deal out a table with columns `time` and `status` beside the features."""
        table = from_frame(data, targets=("time", "status"))
        targets = {"time": table.targets["time"], "event": table.targets["status"]}
        table = Table(table.features, targets, table.columns, "data")
        require_outcomes(targets["time"], targets["event"], "data")
        key = Key(seed_of(self.random_state)) / "splitter"
        kept, apart = hold_out(table, self.test_size, key)
        training = table.take(kept)
        dealt = self._split(training, key)
        clients = {
            f"client{number}": _arrays(training.take(part)) for number, part in enumerate(dealt.values())
        }
        test_data, test_label = _arrays(table.take(apart))
        return DataSet(
            clients, *_arrays(training), test_data, test_label, feature_names=table.columns
        )  # fmt: skip

    def _chosen(self) -> SplitByCount:
        kind = SPLITS[str(self.split_type).lower()]
        return (
            Dirichlet(count=self.n_clients, alpha=self.alpha)
            if kind is Dirichlet
            else kind(count=self.n_clients)
        )


def _arrays(table: Table) -> Client:
    labels = np.column_stack([table.targets["time"], table.targets["event"]])
    return table.features.astype(np.float32), labels.astype(np.float32)

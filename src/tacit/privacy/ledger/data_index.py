"""Index of the data used under a privacy policy: the people of each book.

It lies in the user's state directory and is readable by its owner alone. It holds paths of files and keyed
digests of records: who does not have the key, which lies beside it, cannot test guesses about a person
against them. It holds no value of any record.
"""

import fcntl
import hashlib
import os
import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from tacit.errors import LedgerUnusable
from tacit.runtime import files
from tacit.runtime.fingerprints import People
from tacit.runtime.sketches import FEWEST_SHARED, Digests, Shape, Verdict, View, compare

KEY_BYTES = 32
KEY, DATA, KNOWN, BOOK, LOCK = "key", "data", "known.json", "book.ledger", "lock"


class _Sketch(msgspec.Struct, frozen=True):
    """A sketch on disk: its file, its place in the file, and the shape of its data."""

    file: str
    count: int
    below: int
    view: View = "records"
    repeats: tuple[tuple[int, float], ...] = ()
    cells: float | None = None
    start: int = 0
    size: int | None = None

    @property
    def shape(self) -> Shape:
        """The shape of the data."""
        return Shape(
            view=self.view, count=self.count, below=self.below, repeats=self.repeats, cells=self.cells
        )


class _Known(msgspec.Struct, frozen=True):
    """The stored description of the data of one book.

    `ticket` is that of the last charge, empty if nothing was charged to the ledger, None if none was made.
    """

    files: list[str] = []
    contents: list[str] = []
    sketches: list[_Sketch] = []
    ticket: str | None = None


@dataclass(frozen=True, eq=False)
class Fresh:
    """The sketch of records at hand: elements in order, and their keyed digests beside them."""

    elements: Digests
    keyed: Digests
    shape: Shape


@dataclass(frozen=True)
class Entry:
    """The data of one book."""

    place: Path

    @property
    def book(self) -> Path:
        """Path of the ledger."""
        return self.place / BOOK

    @property
    def files(self) -> list[Path]:
        """The files that these data were in."""
        return [Path(name) for name in self.known.files]

    @property
    def known(self) -> _Known:
        """The description of the data; an empty one, where the entry was not written to its end.

        Raises:
            LedgerUnusable: It is gone, although a ledger was written after it.
        """
        with suppress(FileNotFoundError):
            return msgspec.json.decode(files.read_bytes(self.place / KNOWN), type=_Known)
        if self.book.exists():
            raise LedgerUnusable(
                f"{self.place} has lost {KNOWN}, which says whose runs are in {BOOK}: restore it from a "
                f"backup; without one, move {self.place} away, and its runs are forgotten"
            )
        return _Known()

    def compare(self, views: Sequence[Fresh]) -> Verdict:
        """Judge whether other data are about these people."""
        stored = self._read_sketches()
        if not stored:
            return "other"
        everything = np.concatenate([elements for _, elements in stored])
        best: Verdict = "other"
        for fresh in views:
            there = np.isin(fresh.keyed, everything)
            if there.sum() < FEWEST_SHARED:
                continue
            keyed, elements = fresh.keyed[there], fresh.elements[there]
            for shape, own in stored:
                last = np.uint64(min(shape.below, fresh.shape.below) - 1)
                shared = int(np.isin(keyed[elements <= last], own).sum())
                verdict = compare(shared, fresh.shape, shape)
                if verdict == "same":
                    return "same"
                best = "near" if verdict == "near" else best
        return best

    def _read_sketches(self) -> list[tuple[Shape, Digests]]:
        sketches, read = self.known.sketches, dict[str, Digests]()
        for name in dict.fromkeys(sketch.file for sketch in sketches):
            read[name] = np.frombuffer(files.read_bytes(self.place / name), dtype="<u8")
        found: list[tuple[Shape, Digests]] = []
        for sketch in sketches:
            size = len(read[sketch.file]) if sketch.size is None else sketch.size
            elements = read[sketch.file][sketch.start : sketch.start + size]
            if len(elements) != size:
                raise LedgerUnusable(f"{self.place / sketch.file} is incomplete; restore it from a backup")
            found.append((sketch.shape, elements))
        return found


@dataclass(frozen=True)
class Matches:
    """Entries about the same people, and entries that share some of them."""

    same: tuple[Entry, ...]
    near: tuple[Entry, ...]


class Index:
    """All data that were used under a promise by this user.

    Raises:
        LedgerUnusable: The state directory, or something in it, cannot be read or written.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = state_directory() if root is None else root
        self._fresh: tuple[People, bytes, list[Fresh]] | None = None

    @contextmanager
    def lock(self) -> Generator[None]:
        """Keep other processes of this user out meanwhile, so that one data set never gets two books."""
        with _explain_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with _explain_errors(self.root):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def find(self, people: People) -> Matches:
        """Find the entries of these people, by path, by content and by common records; write nothing.

        Where there is no key yet, nothing was ever kept.
        """
        same, near = list[Entry](), list[Entry]()
        with _explain_errors(self.root):
            key = self._key()
            if key is None:
                return Matches((), ())
            files = {str(_real(file)) for file in people.files}
            contents, fresh = set(_contents(people, key)), self._key_sketches(people, key)
            for place in sorted((self.root / DATA).iterdir()):
                entry = Entry(place)
                known = entry.known
                if files & set(known.files) or contents & set(known.contents):
                    same.append(entry)
                    continue
                verdict = entry.compare(fresh)
                if verdict == "same":
                    same.append(entry)
                elif verdict == "near":
                    near.append(entry)
        return Matches(tuple(same), tuple(near))

    def keep(self, people: People, entry: Entry | None = None) -> Entry:
        """Store these people under an entry, or a new one; the index must be locked."""
        with _explain_errors(self.root):
            key = self._key(make=True)
            assert key is not None
            entry = entry or Entry(self.root / DATA / secrets.token_hex(16))
            entry.place.mkdir(exist_ok=True, mode=0o700)
            known = entry.known
            files = list(dict.fromkeys([*known.files, *(str(_real(file)) for file in people.files)]))
            contents = list(dict.fromkeys([*known.contents, *_contents(people, key)]))
            if (files, contents) == (known.files, known.contents):
                return entry
            sketches = list(known.sketches)
            if contents != known.contents:
                sketches += self._write_sketches(people, key, entry)
            written = _Known(files, contents, sketches, known.ticket)
            write_own(entry.place / KNOWN, msgspec.json.encode(written))
        return entry

    def mark(self, entry: Entry, ticket: str = "") -> None:
        """Note that the ledger of an entry was made, or charged: from then on its absence is a loss."""
        with _explain_errors(self.root):
            known = entry.known
            if known.ticket is None or ticket not in ("", known.ticket):
                marked = _Known(known.files, known.contents, known.sketches, ticket)
                write_own(entry.place / KNOWN, msgspec.json.encode(marked))

    def _write_sketches(self, people: People, key: bytes, entry: Entry) -> list[_Sketch]:
        """Write all sketches of these people into one file."""
        known = {sketch.file for sketch in entry.known.sketches}
        name, start, found = f"people-{len(known) + 1}", 0, list[_Sketch]()
        fresh = self._key_sketches(people, key)
        write_own(entry.place / name, b"".join(one.keyed.astype("<u8").tobytes() for one in fresh))
        for one in fresh:
            found.append(_Sketch(file=name, **vars(one.shape), start=start, size=len(one.keyed)))
            start += len(one.keyed)
        return found

    def _key_sketches(self, people: People, key: bytes) -> list[Fresh]:
        """Key the sketches of each view whose records can be told apart; cache the last ones."""
        if self._fresh is None or self._fresh[0] is not people or self._fresh[1] != key:
            found = [
                Fresh(view.elements, _key_digests(view.elements, key), view.shape)
                for view in people.views
                if len(view.elements)
            ]
            self._fresh = (people, key, found)
        return self._fresh[2]

    def _key(self, *, make: bool = False) -> bytes | None:
        place = self.root / KEY
        with suppress(FileNotFoundError, NotADirectoryError):
            key = files.read_bytes(place)
            if len(key) != KEY_BYTES:
                raise LedgerUnusable(
                    f"{place} is damaged: it must hold {KEY_BYTES} bytes; restore it from a backup"
                )
            self._require_data()
            return key
        if self._has_entries():
            raise LedgerUnusable(
                f"{self.root} holds books of data and has lost the file {KEY}, by which people are "
                f"recognized: restore it from a backup; without one, move {self.root} away: books "
                "beside files are found again, runs on arrays are forgotten"
            )
        if make:
            # Before the key: a key without this folder has lost it.
            (self.root / DATA).mkdir(exist_ok=True, mode=0o700)
            write_own(place, secrets.token_bytes(KEY_BYTES))
            return files.read_bytes(place)
        return None

    def _require_data(self) -> None:
        if not (self.root / DATA).is_dir():
            raise LedgerUnusable(
                f"{self.root} has lost the folder {DATA}, in which the books of data are: restore it from a "
                f"backup; without one, move {self.root} away: books beside files are found again, runs "
                "on arrays are forgotten"
            )

    def _has_entries(self) -> bool:
        data = self.root / DATA
        return data.is_dir() and any(data.iterdir())


def state_directory() -> Path:
    """Directory of state that outlives runs: `$XDG_STATE_HOME/tacit`, or `~/.local/state/tacit`."""
    given = os.environ.get("XDG_STATE_HOME", "")
    # A relative path is to be ignored (XDG Base Directory Specification).
    base = Path(given) if os.path.isabs(given) else Path("~/.local/state").expanduser()
    return base / "tacit"


def write_own(place: Path, content: bytes) -> None:
    """Replace a file as a whole, on disk, readable by its owner alone."""
    files.replace(place, content, 0o600)


def _real(file: Path) -> Path:
    return Path(os.path.realpath(file))


def _contents(people: People, key: bytes) -> list[str]:
    """Return a keyed digest of all records, in any order, for each view; one digest without records."""
    wholes = [view.content for view in people.views if view.content]
    wholes += [] if wholes or not people.whole else [people.whole]
    return [hashlib.blake2b(whole, key=key, digest_size=32).hexdigest() for whole in wholes]


def _key_digests(digests: Digests, key: bytes) -> Digests:
    raw = digests.astype("<u8").tobytes()
    words = (raw[start : start + 8] for start in range(0, len(raw), 8))
    keyed = b"".join(hashlib.blake2b(word, key=key, digest_size=8).digest() for word in words)
    return np.frombuffer(keyed, dtype="<u8")


@contextmanager
def _explain_errors(root: Path) -> Generator[None]:
    try:
        yield
    except (OSError, *files.DAMAGED) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise LedgerUnusable(
            f"the books of your data in {root} cannot be used: {why}; solve that, or choose another "
            "directory (XDG_STATE_HOME)"
        ) from error

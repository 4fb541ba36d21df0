"""Tensors in PyTorch's own files, read and written without running anything.

Such a file is a zip: `data.pkl`, a program that says what is there, and the numbers beside it, one file for
each block of them. The program is taken apart (see `opcodes`); all that it may ask for is dictionaries of
tensors of floats.
"""

import io
import math
import zipfile
from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tacit.control.agents.opcodes import Call, Name, PersistentId, encode_program, parse_program
from tacit.errors import InvalidFile

Float32 = NDArray[np.float32]
Floats = NDArray[np.float32 | np.float64]

# No agent of ours needs more; looked at before anything is read.
MOST_BYTES = 64 * 2**20
ORDERED, REBUILD = Name("collections", "OrderedDict"), Name("torch._utils", "_rebuild_tensor_v2")
FLOATS = {Name("torch", "FloatStorage"): "f4", Name("torch", "DoubleStorage"): "f8"}
# Zips tell when a file was made; ours are the same bytes whenever they are.
NEVER = (1980, 1, 1, 0, 0, 0)


def open_zip(content: bytes, place: str) -> zipfile.ZipFile:
    """A zip that is in memory, if what is in it is not too large.

    Raises:
        InvalidFile: It is none, or too large.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
        raise InvalidFile(f"{place} is not a zip, or is damaged: {error}") from error
    refuse_large(sum(entry.file_size for entry in archive.infolist()), place)
    return archive


def refuse_large(size: int, place: str) -> None:
    """Refuse what no agent needs."""
    if size > MOST_BYTES:
        raise InvalidFile(
            f"{place} is too large: {size / 2**20:.0f} MB, and it must be at most {MOST_BYTES // 2**20}"
        )


def member(archive: zipfile.ZipFile, name: str, place: str) -> bytes:
    """A file of a zip; a zip gives no more than it says it holds.

    Raises:
        InvalidFile: It is not there, or damaged.
    """
    if name not in archive.NameToInfo:
        raise InvalidFile(f"{place} has no {name}: it is not what Stable-Baselines3 or PyTorch writes")
    try:
        return archive.read(name)
    # Each way of compression has errors of its own, and a lock on a file is a RuntimeError.
    except Exception as error:
        raise InvalidFile(f"{place} is damaged: {name} cannot be read ({error})") from error


def zip_files(files: Mapping[str, bytes]) -> bytes:
    """These files as a zip, uncompressed: the same bytes whenever it is made."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, NEVER), content)
    return buffer.getvalue()


def read_tensors(content: bytes, place: str) -> dict[str, Floats]:
    """The tensors of a file by name.

    Args:
        content: The file.
        place: Where it is from, for errors.

    Raises:
        InvalidFile: It is damaged, or holds or calls anything but a dictionary of tensors of floats.
    """
    with open_zip(content, place) as archive:
        blocks = _Blocks(archive, place)
        found = blocks.parse()
        if not isinstance(found, Call) or found.called != ORDERED:
            raise InvalidFile(f"{place} is not a dictionary of tensors: it holds {_kind(found)}")
        return {str(name): blocks.tensor(value) for name, value in found.items.items()}


class _Blocks:
    """The numbers of a file, each block of them read once, and the tensors that are views of them."""

    def __init__(self, archive: zipfile.ZipFile, place: str) -> None:
        self.archive, self.place = archive, place
        programs = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(programs) != 1:
            raise InvalidFile(f"{place} is not a file of PyTorch: it holds {len(programs)} data.pkl, not 1")
        self.folder = programs[0].removesuffix("data.pkl")
        order = f"{self.folder}byteorder"
        self.big = order in archive.NameToInfo and member(archive, order, place) == b"big"
        self.read: dict[str, Floats] = {}
        self.given = 0

    def parse(self) -> object:
        program = member(self.archive, f"{self.folder}data.pkl", self.place)
        return parse_program(program, self.place, allowed=(ORDERED, REBUILD, *FLOATS))

    def tensor(self, value: object) -> Floats:
        """The tensor that a call would make."""
        numbers, first, sizes, steps = self._view(value)
        last = first + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
        # A view of numbers that are not there, or of the same ones again and again, is none that was saved.
        if not all(sizes) or math.prod(sizes) > len(numbers) or last >= len(numbers):
            raise InvalidFile(
                f"{self.place} is damaged: a tensor of {sizes} does not fit {len(numbers)} numbers"
            )
        width = numbers.itemsize
        self.given += width * math.prod(sizes)
        refuse_large(self.given, self.place)
        # How far apart the one of its kind is does not matter, and may be any number.
        apart = [step * width if size > 1 else 0 for size, step in zip(sizes, steps, strict=True)]
        view = np.lib.stride_tricks.as_strided(numbers[first:], sizes, apart, writeable=False)
        return view.astype(numbers.dtype.newbyteorder("="))

    def _view(self, value: object) -> tuple[Floats, int, tuple[int, ...], tuple[int, ...]]:
        """Of which numbers a tensor is a view: from where, how many, and how far apart."""
        if not isinstance(value, Call) or value.called != REBUILD:
            raise InvalidFile(f"{self.place} is not a dictionary of tensors: it holds {_kind(value)}")
        try:
            kept, offset, size, stride, *_ = value.arguments
            word, kind, key, _, count = cast("tuple[object, ...]", cast(PersistentId, kept).reference)
            numbers = self._numbers(str(key), FLOATS[cast(Name, kind)])
            sizes, steps = _whole_ones(size), _whole_ones(stride)
            if word != "storage" or len(numbers) != count or len(sizes) != len(steps):
                raise ValueError("not what PyTorch writes")
            return numbers, _whole_ones((offset,))[0], sizes, steps
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidFile(f"{self.place} is damaged: a tensor cannot be read") from error

    def _numbers(self, key: str, kind: str) -> Floats:
        if key not in self.read:
            content = member(self.archive, f"{self.folder}data/{key}", self.place)
            self.read[key] = np.frombuffer(content, dtype=(">" if self.big else "<") + kind)
        return self.read[key]


def _whole_ones(values: object) -> tuple[int, ...]:
    found = tuple(cast("tuple[int, ...]", values))
    if any(type(value) is not int or value < 0 for value in found):
        raise ValueError("sizes and steps are whole numbers")
    return found


def _kind(value: object) -> str:
    if isinstance(value, Call):
        return f"a call of {value.called}"
    return str(value) if isinstance(value, Name) else f"an object of type {type(value).__name__}"


def tensors_file(tensors: Mapping[str, Float32]) -> bytes:
    """A file that PyTorch reads as a dictionary of these tensors."""
    items: dict[object, object] = {}
    for place, (name, values) in enumerate(tensors.items()):
        kept = PersistentId(("storage", Name("torch", "FloatStorage"), str(place), "cpu", values.size))
        steps = tuple(step // values.itemsize for step in np.ascontiguousarray(values).strides)
        items[name] = Call(REBUILD, (kept, 0, values.shape, steps, False, Call(ORDERED)))
    blocks = [np.ascontiguousarray(values, dtype="<f4").tobytes() for values in tensors.values()]
    return torch_file(Call(ORDERED, items=items), blocks)


def torch_file(value: object, blocks: list[bytes] | None = None) -> bytes:
    """A file that PyTorch reads as this value, whose tensors have their numbers in these blocks."""
    files = {"data.pkl": encode_program(value), "byteorder": b"little"}
    files |= {f"data/{place}": block for place, block in enumerate(blocks or [])}
    return zip_files({f"archive/{name}": content for name, content in (files | {"version": b"3\n"}).items()})

"""The opcodes that Python objects are spelled in, read and written as data: nothing is imported, nothing run.

Files of PyTorch and Stable-Baselines3 hold objects as programs of a small stack machine. Whoever runs such a
program runs whatever its author wrote into it. Here a program is only taken apart: what it would call is a
`Call` with a name and arguments, and stays one. Opcodes that tensors do not need are refused.
"""

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from tacit.errors import InvalidFile

# Both ends of the format: what a program begins with (that it is of version 2), and what it ends with.
BEGIN, END = b"\x80\x02", b"."


@dataclass(frozen=True)
class Name:
    """What a program calls by its name: a class or a function of a module."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, eq=False)
class Call:
    """A call that a program makes, not made.

    Args:
        called: What is called.
        arguments: With what.
        items: What is then put into the result by key.
        state: What the result's attributes are then set to.
    """

    called: Name
    arguments: tuple[object, ...] = ()
    items: dict[object, object] = field(default_factory=dict[object, object])
    state: list[object] = field(default_factory=list[object])


@dataclass(frozen=True)
class PersistentId:
    """What lies outside of the program, as the program refers to it."""

    reference: object


def encode_program(value: object) -> bytes:
    """The program for a value: plain ones, lists, tuples, dictionaries, names, calls and what is kept.

    Args:
        value: The value; numbers are whole ones of 64 bits, or floats.
    """
    return BEGIN + _encode(value) + END


def _encode(value: object) -> bytes:
    if isinstance(value, Name):
        return f"c{value.module}\n{value.name}\n".encode()
    if isinstance(value, Call):
        return _encode(value.called) + _encode(value.arguments) + b"R" + _items(value.items)
    if isinstance(value, PersistentId):
        return _encode(value.reference) + b"Q"
    if isinstance(value, dict):
        return b"}" + _items(cast("dict[object, object]", value))
    if isinstance(value, tuple | list):
        start, end = (b"(", b"t") if isinstance(value, tuple) else (b"](", b"e")
        return start + b"".join(map(_encode, cast("Sequence[object]", value))) + end
    return _plain(value)


def _items(items: Mapping[object, object]) -> bytes:
    if not items:
        return b""
    return b"(" + b"".join(_encode(key) + _encode(value) for key, value in items.items()) + b"u"


def _plain(value: object) -> bytes:
    if value is None or isinstance(value, bool):
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return b"J" + struct.pack("<i", value)
        return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    assert isinstance(value, str)
    text = value.encode()
    return b"X" + struct.pack("<I", len(text)) + text


def parse_program(program: bytes, place: str, *, allowed: Collection[Name]) -> object:
    """The value that a program spells, with its calls not made.

    Args:
        program: The program.
        place: Where it is from, for errors.
        allowed: The names that it may use.

    Guarantee:
        Nothing in the program is imported or run; what is made of it is in proportion to its size.

    Raises:
        InvalidFile: It is damaged, uses another name, or does what tensors do not need.
    """
    try:
        return _Reader(program, place, allowed).value()
    except (IndexError, KeyError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise InvalidFile(f"{place} is damaged: its objects cannot be read") from error


class _Reader:
    """A program, how far it has been read, and what it has put on its stack."""

    def __init__(self, program: bytes, place: str, allowed: Collection[Name]) -> None:
        self.program, self.place, self.allowed, self.at = program, place, allowed, 0
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memory: dict[int, object] = {}

    def value(self) -> object:
        while (code := self.take(1)) != END:
            if code not in STEPS:
                raise InvalidFile(f"{self.place} is not a file of tensors: it holds the opcode {code!r}")
            STEPS[code](self)
        (found,) = self.stack
        return found

    def version(self) -> None:
        if (found := self.take(1)) != BEGIN[1:]:
            raise InvalidFile(f"{self.place} is not a file of tensors: its objects are of version {found[0]}")

    def take(self, count: int) -> bytes:
        part = self.program[self.at : self.at + count]
        self.at += count
        if len(part) < count:
            raise ValueError("the program ends too early")
        return part

    def number(self, form: str) -> int:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def name(self) -> Name:
        found = Name(self.line(), self.line())
        if found not in self.allowed:
            raise InvalidFile(f"{self.place} is not a file of tensors: it asks for {str(found)[:200]}")
        return found

    def line(self) -> str:
        end = self.program.index(b"\n", self.at)
        text = self.program[self.at : end].decode()
        self.at = end + 1
        return text

    def since_mark(self) -> list[object]:
        start = self.marks.pop()
        found = self.stack[start:]
        del self.stack[start:]
        return found

    def tuple_of(self, count: int) -> None:
        start = len(self.stack) - count
        if start < 0:
            raise ValueError("the stack is too short")
        self.stack[start:] = [tuple(self.stack[start:])]

    def put(self, pairs: list[object]) -> None:
        held = self.stack[-1]
        into = held.items if isinstance(held, Call) else held
        if not isinstance(into, dict) or not all(isinstance(key, str | int) for key in pairs[::2]):
            raise TypeError("only dictionaries hold items, by words or numbers")
        cast("dict[object, object]", into).update(zip(pairs[::2], pairs[1::2], strict=True))

    def put_one(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.put([key, value])

    def extend(self, values: list[object]) -> None:
        held = self.stack[-1]
        if not isinstance(held, list):
            raise TypeError("only lists are added to")
        cast("list[object]", held).extend(values)

    def call(self) -> None:
        arguments, called = self.stack.pop(), self.stack.pop()
        if not isinstance(called, Name) or not isinstance(arguments, tuple):
            raise TypeError("only names are called, with a tuple")
        self.stack.append(Call(called, cast("tuple[object, ...]", arguments)))

    def build(self) -> None:
        state, made = self.stack.pop(), self.stack[-1]
        if not isinstance(made, Call):
            raise TypeError("only what was called has attributes")
        made.state.append(state)

    def keep(self, form: str) -> None:
        self.memory[self.number(form)] = self.stack[-1]

    def recall(self, form: str) -> None:
        self.stack.append(self.memory[self.number(form)])


def _push(value: Callable[[_Reader], object]) -> Callable[[_Reader], None]:
    return lambda reader: reader.stack.append(value(reader))


# All that PyTorch writes for tensors in dictionaries; a program with anything else is refused.
STEPS: Mapping[bytes, Callable[[_Reader], None]] = {
    BEGIN[:1]: lambda reader: reader.version(),
    b"c": _push(lambda reader: reader.name()),
    b"N": _push(lambda _: None),
    b"\x88": _push(lambda _: True),
    b"\x89": _push(lambda _: False),
    b"K": _push(lambda reader: reader.number("<B")),
    b"M": _push(lambda reader: reader.number("<H")),
    b"J": _push(lambda reader: reader.number("<i")),
    b"\x8a": _push(lambda reader: int.from_bytes(reader.take(reader.number("<B")), "little", signed=True)),
    b"G": _push(lambda reader: struct.unpack(">d", reader.take(8))[0]),
    b"X": _push(lambda reader: reader.take(reader.number("<I")).decode()),
    b")": _push(lambda _: ()),
    b"]": _push(lambda _: list[object]()),
    b"}": _push(lambda _: dict[object, object]()),
    b"(": lambda reader: reader.marks.append(len(reader.stack)),
    b"t": _push(lambda reader: tuple(reader.since_mark())),
    b"\x85": lambda reader: reader.tuple_of(1),
    b"\x86": lambda reader: reader.tuple_of(2),
    b"\x87": lambda reader: reader.tuple_of(3),
    b"a": lambda reader: reader.extend([reader.stack.pop()]),
    b"e": lambda reader: reader.extend(reader.since_mark()),
    b"s": lambda reader: reader.put_one(),
    b"u": lambda reader: reader.put(reader.since_mark()),
    b"R": lambda reader: reader.call(),
    b"b": lambda reader: reader.build(),
    b"Q": _push(lambda reader: PersistentId(reader.stack.pop())),
    b"q": lambda reader: reader.keep("<B"),
    b"r": lambda reader: reader.keep("<I"),
    b"h": lambda reader: reader.recall("<B"),
    b"j": lambda reader: reader.recall("<I"),
}

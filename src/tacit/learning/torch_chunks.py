"""Functions of torch, evaluated so that the bits of one unit depend on that unit alone.

Torch chooses its kernels by the shape of all its arguments, and takes another formula for the elements that
do not fill a vector. So units are evaluated in chunks of one shape, the last one filled up with zeros, once a
trial on public numbers has shown that a unit gets the same bits at every place of a chunk; one by one where
it has not. A group of records is as wide as its own size makes it, not as the largest group of a batch.
"""

from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor

from tacit.errors import Refused

# Units in a chunk: enough to share what a call of a transformed function costs, few to be filled up.
UNITS = 32
# What a function is called with: each argument has the units as its first axis; targets come by name.
Arguments = tuple[Tensor | Mapping[str, Tensor], ...]
# Arguments without names, in one order.
Flat = list[Tensor]


class Chunks:
    """A function of many units, each of which gets an answer of its own.

    Args:
        function: It takes units along the first axis of all arguments and answers along its first.
        members: Whether units have members along the second axis, marked in the last argument, the first of
            which are there.
        like: The argument whose shape the answers have, members included; if not said, answers have none.
    """

    def __init__(self, function: Callable[..., Tensor], *, members: bool, like: int | None = None) -> None:
        self._function, self._members, self._like = function, members, like
        self._sizes: dict[tuple[object, ...], int] = {}

    def __call__(
        self, arguments: Arguments, *, weights: Tensor | None = None, places: Tensor | None = None
    ) -> Tensor:
        """Answer for each unit.

        Args:
            arguments: What the function is called with.
            weights: What it is called with before that: a row for each site.
            places: The site of each unit.

        Guarantee:
            The bits of an answer depend on the arguments of its own unit and the weights of its site alone.

        Raises:
            Refused: The function answers the same question in two ways.
        """
        names = [list(part) if isinstance(part, Mapping) else None for part in arguments]
        flat = [one for part in arguments for one in (part.values() if isinstance(part, Mapping) else [part])]

        def call(units: Flat, own: Tensor | None) -> Tensor:
            left = iter(units)
            given = [next(left) if keys is None else {key: next(left) for key in keys} for keys in names]
            return self._function(*given) if own is None else self._function(own, *given)

        found: Tensor | None = None
        for chosen, width in self._widths(flat):
            part = [one[chosen] if width is None else _pad_members(one[chosen], width) for one in flat]
            own = None if places is None else places[chosen]
            answers = self._evaluate(call, part, weights, own)
            if found is None:
                found = torch.zeros(self._shape(flat, answers), dtype=answers.dtype)
            if width is None or self._like is None:
                found[chosen] = answers
            else:
                padded = torch.zeros((len(chosen), *found.shape[1:]), dtype=answers.dtype)
                padded[:, :width] = answers[:, : padded.shape[1]]
                found[chosen] = padded
        assert found is not None, "there are units"
        return found

    def _shape(self, flat: Flat, answers: Tensor) -> tuple[int, ...]:
        if self._like is None:
            return (len(flat[0]), *answers.shape[1:])
        return tuple(flat[self._like].shape)

    def _widths(self, flat: Flat) -> list[tuple[Tensor, int | None]]:
        """Which units are evaluated together, and how wide they are: the next power of two."""
        if not self._members:
            return [(torch.arange(len(flat[0])), None)]
        sizes = flat[-1].sum(dim=1).clamp(min=1)
        widths = 2 ** torch.ceil(torch.log2(sizes.double())).long()
        own = cast("list[int]", widths.tolist())
        return [(torch.nonzero(widths == width)[:, 0], width) for width in sorted(set(own))]

    def _evaluate(
        self,
        call: Callable[[Flat, Tensor | None], Tensor],
        part: Flat,
        weights: Tensor | None,
        places: Tensor | None,
    ) -> Tensor:
        shapes = tuple((tuple(one.shape[1:]), one.dtype) for one in part)
        shape = (shapes, None if weights is None else weights.shape[1])
        if shape not in self._sizes:
            self._sizes[shape] = _size(call, part, weights)
        size, pieces = self._sizes[shape], list[Tensor]()
        for start in range(0, len(part[0]), size):
            piece = [_pad_units(one[start : start + size], size) for one in part]
            own = None
            if weights is not None:
                own = weights[_pad_units(cast(Tensor, places)[start : start + size], size)]
            pieces.append(call(piece, own)[: len(part[0]) - start])
        return torch.cat(pieces)


def _pad_members(values: Tensor, width: int) -> Tensor:
    """Units as wide as `width` members: what is behind is nobody, what is missing is filled up with zeros."""
    short = values[:, :width]
    if short.shape[1] == width:
        return short
    return torch.cat(
        [short, torch.zeros((len(short), width - short.shape[1], *short.shape[2:])).to(short)], 1
    )


def _pad_units(values: Tensor, size: int) -> Tensor:
    """A chunk of so many units; what is missing are zeros, which are public."""
    if len(values) == size:
        return values
    return torch.cat([values, torch.zeros((size - len(values), *values.shape[1:])).to(values)])


def _size(call: Callable[[Flat, Tensor | None], Tensor], part: Flat, weights: Tensor | None) -> int:
    """`UNITS` if a unit gets the same bits at every place of a chunk, 1 otherwise.

    Tried on numbers that are public and always the same, of the shape of these arguments.
    """
    draws = torch.Generator().manual_seed(7)

    def draw(shape: tuple[int, ...], like: Tensor) -> Tensor:
        if like.dtype == torch.bool:
            return torch.ones(shape, dtype=torch.bool)
        return torch.rand(shape, generator=draws, dtype=torch.float64).to(like.dtype)

    units = [draw((UNITS, *one.shape[1:]), one) for one in part]
    own = None if weights is None else torch.randn((UNITS, weights.shape[1]), generator=draws).to(weights)
    known, again = call(units, own), call(units, own)
    if not _alike(known, again):
        raise Refused(
            "the module answers the same records in two ways, as one that draws at random does: single "
            'records cannot be protected with it. Take out what draws, or protect whole sites (unit="site")'
        )
    for shift in (1, 2, 3, 5, 8, 13, 21):
        rolled = [one.roll(shift, 0) for one in units]
        answers = call(rolled, None if own is None else own.roll(shift, 0))
        if not _alike(answers, known.roll(shift, 0)):
            return 1
    return UNITS


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same bits; all that is no number counts as one."""
    return bool(((one == other) | (one.isnan() & other.isnan())).all())

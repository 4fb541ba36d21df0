"""What a regressor of curves is given, as curves by name: X and y in the forms of scikit-learn and of others.

A single array is one predictor, x1, and its columns are times; an array (subjects, predictors, times) is
x1, x2, ...; a mapping names its predictors. A response may be one number for each subject instead of a curve.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, require
from tacit.functional.curves import Curves, curves
from tacit.functional.curves.forms import parse

Array = NDArray[np.float64]
Times = ArrayLike | Mapping[str, ArrayLike] | None
Domains = Sequence[float] | Mapping[str, Sequence[float]] | None

# What every form of curves of scikit-fda has, and no array.
_OF_FDA = "domain_range"


@dataclass(frozen=True, kw_only=True)
class CurveReader:
    """How what is given becomes curves.

    Args:
        times: Those of arrays that do not say theirs: for all curves, or by name.
        domain: From when to when curves are defined: for all of them, or by name.
        least: How many subjects there must be.
    """

    times: Times = None
    domain: Domains = None
    least: int = 2

    def read(self, given: object, name: str) -> Curves:
        """The curves of one name."""
        _require_array(given, name, self.least)
        domain = cast("Sequence[float] | None", _of(self.domain, name))
        if isinstance(given, Curves):
            return curves(given, name=name, domain=domain, least=self.least)
        times = (
            None if untimed_columns(given, name) is None else cast("ArrayLike | None", _of(self.times, name))
        )
        return curves(given, name=name, times=times, domain=domain, least=self.least)

    def inferred_fields(self, given: Mapping[str, object], found: Mapping[str, Curves]) -> list[str]:
        """What was taken from all curves together because nobody said it, in words."""
        return [
            f"the domain of {name}, from its first observation to its last,"
            for name, own in found.items()
            if own.owners is not None
            and _of(self.domain, name) is None
            and not isinstance(given[name], Curves)
            and not hasattr(given[name], _OF_FDA)
        ]


def by_name(X: object) -> dict[str, object]:
    """The predictors, each under its name.

    Raises:
        InvalidValue: There is none, or a name is not a word.
    """
    # Some sparse arrays are mappings, too.
    _require_real(X, "X")
    if isinstance(X, Mapping):
        known = dict(cast("Mapping[Any, object]", X))
        require(bool(known), "X", "no predictor", "at least one")
        for name in known:
            require(isinstance(name, str), "a name in X", name, "a word, such as x1")
        return known
    if getattr(X, "ndim", None) == 3:
        whole = cast(Any, X)
        require(whole.shape[1] > 0, "X", f"shape {tuple(whole.shape)}", "subjects by predictors by times")
        return {f"x{place + 1}": whole[:, place, :] for place in range(whole.shape[1])}
    return {"x1": X}


def untimed_columns(given: object, name: str) -> int | None:
    """How many columns an array has that does not say its times; None of other forms."""
    if isinstance(given, Curves):
        return None
    found = parse(given, name)
    plain = found.times is None and found.values.ndim == 2
    return found.values.shape[1] if plain else None


def headings(X: object, found: Mapping[str, Curves]) -> tuple[int, list[str] | None]:
    """How many features X has, and their names if they have any, as scikit-learn counts them.

    Those of a single array are its columns; otherwise, each predictor is one.
    """
    predictors = list(by_name(X))
    if isinstance(X, Mapping) or len(predictors) > 1 or found["x1"].owners is not None:
        return len(predictors), predictors
    columns: Iterable[object] | None = None if hasattr(X, _OF_FDA) else getattr(X, "columns", None)
    words = [] if columns is None else list(columns)
    many = len(found["x1"].times)
    named = len(words) == many and all(isinstance(word, str) for word in words)
    return many, cast("list[str]", words) if named else None


def scalar_response(y: object, name: str) -> Array | None:
    """The numbers of a response that is one for each subject (subjects,) or (subjects, 1); None of curves.

    Raises:
        InvalidValue: Some are not finite.
    """
    if y is None:
        raise InvalidValue("FunctionalRegressor requires y to be passed, but the target y is None")
    shape = _shape(y)
    if not (len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)):
        return None
    _require_real(y, name)
    found = parse(y, name)
    if found.times is not None:
        return None
    finite = bool(np.isfinite(found.values).all())
    require(finite, name, "NaN or infinity", "a finite number for each subject")
    return found.values


def constant_curves(values: Array, name: str, points: int) -> Curves:
    """Numbers as curves that do not change, at so many times."""
    return Curves(
        times=np.linspace(0.0, 1.0, points),
        values=np.repeat(values.reshape(-1, 1), points, axis=1),
        domain=(0.0, 1.0),
        place=name,
    )


def _of(given: object, name: str) -> object:
    """What is said of a curve: for all of them, or by name."""
    return cast("Mapping[str, object]", given).get(name) if isinstance(given, Mapping) else given


def _shape(given: object) -> tuple[int, ...]:
    """That of an array, a table or a list of numbers; none where curves have times of their own."""
    if isinstance(given, Curves) or hasattr(given, _OF_FDA):
        return ()
    if isinstance(given, list | tuple):
        entries = cast("Sequence[object]", given)
        if all(isinstance(entry, Real) for entry in entries):
            return (len(entries),)
        try:
            # A tuple is times and values, and a list of pairs is a curve for each subject.
            return () if isinstance(given, tuple) else np.shape(cast(Any, given))
        except ValueError:
            return ()
    known = given if hasattr(given, "shape") else np.asarray(cast(Any, given))
    return tuple(cast(Any, known).shape)


def _require_array(given: object, name: str, least: int) -> None:
    """Refuse what scikit-learn refuses too, in its words."""
    _require_real(given, name)
    shape = _shape(given)
    if len(shape) == 1:
        raise InvalidValue(
            f"{name} is not allowed: expected 2D array, subjects by times, got 1D array. Reshape your data: "
            "array.reshape(1, -1) is the curve of one subject"
        )
    if len(shape) == 2 and shape[1] == 0:
        raise InvalidValue(
            f"{name} is not allowed: it has 0 feature(s) (shape={shape}) while a minimum of 1 is required."
        )
    if len(shape) == 2 and shape[0] < least:
        many = "1 sample" if shape[0] == 1 else f"{shape[0]} samples"
        raise InvalidValue(f"{name} is not allowed: it has {many}, and needs those of {least} subjects")


def _require_real(given: object, name: str) -> None:
    if hasattr(given, "toarray"):
        raise InvalidValue(f"{name} is not allowed: curves are not sparse; give {name}.toarray()")
    if hasattr(given, "dtype") and np.iscomplexobj(cast(Any, given)):
        raise InvalidValue(f"{name} is not allowed: Complex data not supported; give its parts as two curves")

"""Options of function-on-function regression: boosting, basis, units, release, clip radii; all are public.

The defaults of boosting were tuned on simulated designs.

Whatever depends on a federation is settled once and written down with the rest.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from tacit.errors import (
    MOST_STEPS,
    InvalidValue,
    TooFewSites,
    choices,
    is_between,
    require,
    require_count,
    require_rate,
    require_word,
)
from tacit.privacy.mechanisms.vertical import LONGEST, require_radius
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import BOUND, fields_of

if TYPE_CHECKING:
    from tacit.functional.curves.basis import BSplines, Fourier, Frame

# Under noise, every coordinate costs: the smoothest ones hold most of a curve.
FEW, FEW_Y = 6, 10

Domain = tuple[float, float]
Grid = float | tuple[float, ...]
RULES = ("cv", "aic", "aicc", "mv")
PRICES = ("smooth_s", "smooth_t", "smooth_st", "ridge")


@dataclass(frozen=True, kw_only=True)
class BoostingConfig:
    """Options of a boosting fit; none depends on data. Of a grid, the best value is chosen.

    Args:
        rate: The learning rate: the share of its best fit by which a predictor is moved at each step.
        steps: The largest number of steps.
        stop: The stopping criterion: `cv` by held-back data; `aic`, `aicc` (for few subjects) or `mv` (by the
            residuals' covariance) by loss and exact degrees of freedom; or a fixed number of steps.
        patience: Steps without improvement on held-back data before stopping.
        selection: `screen` drops predictors that do not help on held-back data; `all` keeps them.
        margin: The standard errors over splits by which a predictor has to help to be kept.
        smooth_s: Roughness penalty along the predictors' argument, a relative number or a list of them. With
            1, mean roughness costs what a predictor's mean variance is worth.
        smooth_t: Roughness penalty along the response's argument.
        smooth_st: Roughness penalty along both.
        ridge: Variances of predictors are raised to this multiple of what noise alone would show; idle
            without noise.
    """

    rate: float = 0.3
    steps: int = 100
    stop: Literal["cv", "aic", "aicc", "mv"] | int = "cv"
    patience: int = 10
    selection: Literal["screen", "all"] = "screen"
    margin: float = 2.0
    smooth_s: Grid = (0.0, 1e-3, 3e-2, 1.0)
    smooth_t: Grid = (0.0, 1e-2, 0.1, 1.0)
    smooth_st: Grid = 0.0
    ridge: Grid = (1.0, 0.5, 2.0, 4.0)

    def __post_init__(self) -> None:
        require_rate("rate", self.rate)
        require_count("steps", self.steps, MOST_STEPS)
        if isinstance(self.stop, str):
            require_word("stop", self.stop, RULES)
        else:
            counted = type(self.stop) is int and self.stop >= 1
            require(counted, "stop", self.stop, f"{choices(RULES)}, or a whole number of at least 1")
        require_count("patience", self.patience)
        require_word("selection", self.selection, ("screen", "all"))
        require(_price(self.margin), "margin", self.margin, "a finite number of at least 0")
        allowed = "a finite number of at least 0, or several of them"
        for name, given in fields_of(self, PRICES).items():
            grid = _values(given)
            require(len(grid) > 0 and all(map(_price, grid)), name, given, allowed)

    def values(self, price: str) -> tuple[float, ...]:
        """The grid of a price; of one value, if that was given."""
        return _values(fields_of(self, (price,))[price])


def _values(given: Grid) -> tuple[float, ...]:
    return tuple(given) if isinstance(given, tuple | list) else (given,)


def _price(given: object) -> bool:
    return is_between(given, math.nextafter(0, -1), 1e12)


@dataclass(frozen=True, kw_only=True, eq=False)
class Blocks:
    """Column layout of the curves of all parties: predictors in a fixed order, the response last.

    Args:
        parties: The curves of each party, in the order in which it sends them.
        order: All predictors, whichever party holds them.
        response: The predicted curve.
        width: The number of coordinates of a predictor.
        width_y: The number of coordinates of the response.
        records: The public number of subjects.
    """

    parties: Mapping[str, Sequence[str]]
    order: tuple[str, ...]
    response: str
    width: int
    width_y: int
    records: int

    @cached_property
    def widths(self) -> dict[str, int]:
        """Number of coordinates of each curve, in the order of the columns."""
        return {**dict.fromkeys(self.order, self.width), self.response: self.width_y}

    @cached_property
    def places(self) -> dict[str, slice]:
        """The columns of each curve."""
        ends = np.cumsum(list(self.widths.values())).tolist()
        starts = [0, *ends[:-1]]
        return {
            name: slice(*span) for name, span in zip(self.widths, zip(starts, ends, strict=True), strict=True)
        }

    @property
    def predictors(self) -> tuple[slice, ...]:
        """The columns of each predictor."""
        return tuple(self.places[name] for name in self.order)

    @property
    def columns(self) -> int:
        """Total number of columns."""
        return len(self.order) * self.width + self.width_y

    def column_count(self, party: str) -> int:
        """Return the number of columns that a party sends."""
        return sum(self.widths[name] for name in self.parties[party])

    def assemble(self, rows: Mapping[str, Array]) -> Array:
        """Join the parties' releases (numbers) into the columns of all curves (records, columns).

        Raises:
            TooFewSites: A party sent nothing that can be used.
        """
        missing = [party for party in self.parties if party not in rows]
        if missing:
            raise TooFewSites(f"{', '.join(missing)} sent no usable answer, and every party is needed")
        whole = np.empty((self.records, self.columns))
        for party, names in self.parties.items():
            many = self.column_count(party)
            own, start = rows[party][: self.records * many].reshape(self.records, many), 0
            for name in names:
                whole[:, self.places[name]] = own[:, start : start + self.widths[name]]
                start += self.widths[name]
        return whole

    def by_party(self) -> NDArray[np.intp]:
        """Return the index of each column when the parties' columns stand side by side."""
        listed = [
            np.arange(self.columns)[self.places[name]] for names in self.parties.values() for name in names
        ]
        return np.argsort(np.concatenate(listed))


@dataclass(frozen=True, kw_only=True)
class FunctionalConfig(BoostingConfig):
    """Everything public about a fit of curves by curves.

    Args:
        response: The curve that is predicted; the party that holds it is the active one.
        basis: Basis of the curves: `b-splines`, or `fourier` for periodic curves.
        size: Number of basis functions.
        order: Order of the splines; 4 is cubic.
        knots: Inner knots of the splines, as shares of the domain; by default equally spaced.
        components: Number of coordinates of a curve that are used, the smoothest first; by default all, and 6
            under a promise.
        components_y: The same for the response; 1 uses its mean over the domain alone. Under a promise 10 by
            default, because they hold its mean curve as well.
        smooth: Smoothing penalty when a curve is turned into coordinates; 0 is plain least squares.
        folds: Number of folds of the subjects in cross-validation; always 4 in a local release with noise,
            whose halves do the rest.
        release: Data that leave a party: `local`, the coordinates of each subject, or `moments`, the Gram
            matrix of all curves, which is far better below epsilon 10. By default as `noise` of the promise
            implies.
        protect: With a local release, add noise to the `predictors` only, so that the active party's own
            response shows in the model, or to `all` curves. Moments protect all.
        radius: Clip radius of a curve, as a root mean square over its domain: a public number for all curves
            or for each, or `private` to buy it. By default the clip of the promise.
        quantile: Share of curves that a bought radius leaves unclipped; by default 0.8 for moments and 0.5
            for a local release, where noise costs more than clipping, which is corrected for.
        center: Public numbers, by curve, that are subtracted from it.
        scale: Public numbers, by curve, that it is divided by after that.
        parties: The curves of each party; filled in from the federation.
        predictors: All predictors in the order of the model; filled in from the federation.
        domains: Start and end of the domain of each curve; filled in from the federation.
        records: Number of subjects; filled in from the federation.
        noise: Scale of the noise, in the units of the release; filled in when the promise is solved.
        secret: Compute the moments by secure aggregation; filled in when the promise is solved.
        stretch: Factor by which clipping shortened each curve; bought with its radius.
    """

    response: str = "y"
    basis: Literal["b-splines", "fourier"] = "b-splines"
    size: int = 20
    order: int = 4
    knots: tuple[float, ...] = ()
    components: int | None = None
    components_y: int | None = None
    smooth: float = 0.0
    folds: int = 5
    release: Literal["local", "moments"] | None = None
    protect: Literal["predictors", "all"] = "predictors"
    radius: float | dict[str, float] | Literal["private"] | None = None
    quantile: float | None = None
    center: Mapping[str, float] = field(default_factory=dict[str, float])
    scale: Mapping[str, float] = field(default_factory=dict[str, float])
    parties: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]], metadata=BOUND)
    predictors: tuple[str, ...] = field(default=(), metadata=BOUND)
    domains: Mapping[str, Domain] = field(default_factory=dict[str, Domain], metadata=BOUND)
    records: int | None = field(default=None, metadata=BOUND)
    noise: float | None = field(default=None, metadata=BOUND)
    secret: bool = field(default=False, metadata=BOUND)
    stretch: Mapping[str, float] = field(default_factory=dict[str, float], metadata=BOUND)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_word("basis", self.basis, ("b-splines", "fourier"))
        for name, count in fields_of(self, ("size", "order", "folds")).items():
            require_count(name, count)
        # Given knots determine the size.
        object.__setattr__(self, "size", self._basis((0.0, 1.0)).size)
        require(self.folds > 1, "folds", self.folds, "at least 2")
        for name, given in fields_of(self, ("components", "components_y")).items():
            if given is not None:
                require_count(name, given)
                require(given <= self.size, name, given, f"at most {self.size}, the size of the basis")
        if self.release is not None:
            require_word("release", self.release, ("local", "moments"))
        require_word("protect", self.protect, ("predictors", "all"))
        if self.quantile is not None:
            require(0 < self.quantile < 1, "quantile", self.quantile, "above 0 and below 1")
        smooth = is_between(self.smooth, math.nextafter(0, -1), math.inf)
        require(smooth, "smooth", self.smooth, "a finite number of at least 0")
        self._require_radius()
        for name, value in self.scale.items():
            require_radius(f"scale of {name}", value)
        for name, value in self.center.items():
            near = is_between(value, -LONGEST, LONGEST)
            require(near, f"center of {name}", value, f"a number above {-LONGEST:g} and below {LONGEST:g}")

    def _require_radius(self) -> None:
        if isinstance(self.radius, str):
            require_word("radius", self.radius, ("private",))
        for name, value in (self.radius if isinstance(self.radius, dict) else {"": self.radius}).items():
            if isinstance(value, int | float):
                require_radius(f"radius of {name}" if name else "radius", value)

    def frame(self, domain: Domain, components: int | None = None) -> "Frame":
        """Return the basis functions of coordinates on a domain; by default as many as for a predictor."""
        from tacit.functional.curves.basis import frame

        return frame(self._basis(domain), components or self.components)

    def _basis(self, domain: Domain) -> "BSplines | Fourier":
        from tacit.functional.curves.basis import BSplines, Fourier

        low, high = domain
        if self.basis == "fourier":
            return Fourier(size=self.size, domain=(low, high))
        knots = tuple(low + (high - low) * share for share in self.knots) or None
        return BSplines(size=self.size, order=self.order, domain=(low, high), knots=knots)

    def frame_of(self, name: str) -> "Frame":
        """Return the frame of a curve."""
        own = self.width_y if name == self.response else self.width
        return self.frame(cast(Domain, tuple(self.domains[name])), own)

    @property
    def width(self) -> int:
        """Number of coordinates of a predictor."""
        return self.components or self.size

    @property
    def width_y(self) -> int:
        """Number of coordinates of the response."""
        return self.components_y or self.width

    @cached_property
    def column_blocks(self) -> Blocks:
        """Column layout of the coordinates of all curves."""
        if self.records is None:
            raise InvalidValue("the curves are not known yet: bind the task to a federation first")
        return Blocks(
            parties=self.parties,
            order=tuple(self.predictors),
            response=self.response,
            width=self.width,
            width_y=self.width_y,
            records=self.records,
        )

    @property
    def release_moments(self) -> bool:
        """True if moments are released, False if each curve is."""
        return self.release == "moments"

    @property
    def protected(self) -> tuple[str, ...]:
        """The curves that a promise is about."""
        whole = self.release_moments or self.protect == "all"
        return (*self.predictors, self.response) if whole and self.predictors else tuple(self.predictors)

    @property
    def exempt(self) -> tuple[str, ...]:
        """Parts of a subject that the promise does not cover."""
        if self.release_moments or self.protect == "all":
            return ()
        known = "which the active party uses without noise: sums with it are in the state and in the model"
        return (f"its response ({self.response}), {known}",)

    @property
    def holdings(self) -> Mapping[str, Sequence[str]]:
        """The curves of each party."""
        return self.parties

    @property
    def holders(self) -> dict[str, str]:
        """The party that holds each protected curve."""
        known = {name: party for party, names in self.parties.items() for name in names}
        return {name: known[name] for name in self.protected}

    @property
    def widths(self) -> dict[str, int]:
        """Number of coordinates of each curve, by name."""
        own = {self.response: self.width_y}
        return {name: own.get(name, self.width) for names in self.parties.values() for name in names}

    @property
    def lengths(self) -> dict[str, float] | None:
        """Clip radius of each protected curve; None if the privacy policy sets one for all."""
        if isinstance(self.radius, dict):
            return {name: float(self.radius[name]) for name in self.protected}
        if isinstance(self.radius, int | float):
            return dict.fromkeys(self.protected, float(self.radius)) or None
        return None

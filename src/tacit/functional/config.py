"""What is chosen about curves in public: basis, units, what is let out of them, how long one may be.

Whatever depends on a federation is settled once and written down with the rest.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, cast

from tacit.errors import InvalidValue, is_between, require, require_count, require_word
from tacit.functional.boosting.boost import BoostingConfig
from tacit.functional.curves.blocks import Blocks
from tacit.privacy.mechanisms.vertical import LONGEST, require_radius

if TYPE_CHECKING:
    from tacit.functional.curves.basis import BSplines, Fourier, Frame

# Under noise, every coordinate costs: the smoothest ones hold most of a curve.
FEW, FEW_Y = 6, 10

Domain = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class FunctionalConfig(BoostingConfig):
    """Everything public about a fit of curves by curves.

    Args:
        response: The curve that is predicted; the party that holds it is the active one.
        basis: What curves are made of: `b-splines`, or `fourier` for periodic ones.
        size: How many functions of it.
        order: That of the splines; 4 is cubic.
        knots: Their inner knots, as shares of the domain; equally spaced if not said.
        components: How many coordinates of a curve are used, the smoothest first; all of them if not said,
            and with a promise 6.
        components_y: How many of the response, if not as many; 1 is its mean over the domain alone. With a
            promise it is 10 if not said: they hold its mean curve as well.
        smooth: How much each curve is smoothed as it becomes coordinates; 0 is plain least squares.
        folds: How many parts of the subjects judge each other; in a local release with noise always 4, whose
            halves do.
        release: What leaves a party: `local`, each subject's coordinates, or `moments`, products of all
            curves, which are far better below epsilon 10. If not said, as the promise says who adds noise.
        protect: Whether noise in a local release is for the predictors alone, so that the active party's
            own response shows in the model, or for `all` curves. Moments protect all.
        radius: How long a curve may be, as a root mean square over its domain: a public number for all of
            them or for each, or `private` to buy it. If not said, the clip of the promise.
        quantile: Which share of curves a bought radius leaves as they are; if not said, 0.8 for moments and
            0.5 for a local release, where noise costs more than clipping, which is corrected for.
        center: What is subtracted from a curve, by its name: public numbers.
        scale: What it is divided by then.
        parties: The curves of each party; found in the federation.
        predictors: All predictors in the order of the model; found in the federation.
        domains: From when to when each curve is defined; found in the federation.
        records: How many subjects there are; found in the federation.
        noise: How much noise there is, in the units of the release; found when the promise is solved.
        secret: Whether moments are worked out in secret; found when the promise is solved.
        stretch: By how much each curve is too short because it was clipped; bought with its radius.
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
    parties: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    predictors: tuple[str, ...] = ()
    domains: Mapping[str, Domain] = field(default_factory=dict[str, Domain])
    records: int | None = None
    noise: float | None = None
    secret: bool = False
    stretch: Mapping[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        super().__post_init__()
        require_word("basis", self.basis, ("b-splines", "fourier"))
        for name in ("size", "order", "folds"):
            require_count(name, getattr(self, name))
        # Where there are knots, they decide.
        object.__setattr__(self, "size", self._basis((0.0, 1.0)).size)
        require(self.folds > 1, "folds", self.folds, "at least 2")
        for name in ("components", "components_y"):
            given: int | None = getattr(self, name)
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
        """The functions that curves on a domain are coordinates of; so many, or as for a predictor."""
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
        """That of a curve."""
        own = self.width_y if name == self.response else self.width
        return self.frame(cast(Domain, tuple(self.domains[name])), own)

    @property
    def width(self) -> int:
        """How many coordinates a predictor has."""
        return self.components or self.size

    @property
    def width_y(self) -> int:
        """How many the response has."""
        return self.components_y or self.width

    @cached_property
    def blocks(self) -> Blocks:
        """Where the coordinates of each curve are."""
        if self.records is None:
            raise InvalidValue("the curves are not known yet: settle the task with a federation first")
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
        """Whether moments are released, instead of each curve by itself."""
        return self.release == "moments"

    @property
    def protected(self) -> tuple[str, ...]:
        """The curves that a promise is about."""
        whole = self.release_moments or self.protect == "all"
        return (*self.predictors, self.response) if whole and self.predictors else tuple(self.predictors)

    @property
    def exempt(self) -> tuple[str, ...]:
        """What of a subject a promise does not speak of."""
        if self.release_moments or self.protect == "all":
            return ()
        known = "which the active party uses as it is: sums with it are in the state and in the model"
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
        """How many coordinates each curve has."""
        own = {self.response: self.width_y}
        return {name: own.get(name, self.width) for names in self.parties.values() for name in names}

    @property
    def lengths(self) -> dict[str, float] | None:
        """How long each protected curve may be; None where the promise says it for all."""
        if isinstance(self.radius, dict):
            return {name: float(self.radius[name]) for name in self.protected}
        if isinstance(self.radius, int | float):
            return dict.fromkeys(self.protected, float(self.radius)) or None
        return None

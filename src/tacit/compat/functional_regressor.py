"""Boosting of curves by curves as scikit-learn knows models: `fit`, `predict`, `score`; also for searches.

What is fitted is a run like any other, with a party for each curve unless said otherwise: its privacy
statement is `privacy_`, and what it is made of is `model_`.

Every fit states its own price, and that of all fits on the same subjects, from the book of the data.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from tacit.compat.scores import warn_of_score
from tacit.errors import InvalidValue, require, require_count, require_rate, require_word
from tacit.functional.config import RULES, BoostingConfig, Grid
from tacit.functional.curves import Curves, curves, require_same_subjects
from tacit.functional.curves.forms import parse
from tacit.functional.metrics import r2
from tacit.functional.model import POINTS, Model
from tacit.functional.tasks import Boosting
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.statement import Statement
from tacit.runs.fit import fit
from tacit.runs.run import Run
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import fields_of
from tacit.runtime.silence import suppress_warnings
from tacit.sites.vertical import ByParty, VerticalFederation

if TYPE_CHECKING:
    from tacit.functional.boosting.boost import BoostingFit
    from tacit.learning.task import Task

Times = ArrayLike | Mapping[str, ArrayLike] | None
Domains = Sequence[float] | Mapping[str, Sequence[float]] | None

# An attribute of all scikit-fda curves, and of no array. Objects of scikit-fda, pandas and scipy.sparse
# are known by such attributes: none of these libraries is imported.
_OF_FDA = "domain_range"


# Parameters with another name in the task.
_RENAMED = {"step": "rate", "max_steps": "steps", "n_steps": "stop"}
# Parameters with the same name in the task.
_SAME = (
    "response", "basis", "size", "order", "knots", "components", "components_y", "smooth", "smooth_s",
    "smooth_t", "smooth_st", "ridge", "patience", "selection", "margin", "folds", "release", "protect",
    "radius", "quantile", "center", "scale",
)  # fmt: skip


@dataclass(kw_only=True, eq=False, repr=False)
class FunctionalRegressor:
    """Vertical functional regression: a response curve, or number, from curves that parties do not pool.

    Args:
        basis: The basis of curves: `b-splines`, or `fourier` for periodic ones.
        size: The number of basis functions.
        order: The order of the splines; 4 is cubic.
        knots: Their inner knots, as shares of the domain; by default equally spaced.
        components: The number of coordinates of a curve, the smoothest first; by default all, and 6 with a
            privacy policy.
        components_y: The number of coordinates of the response, if it differs.
        smooth: The smoothing of each curve as it becomes coordinates.
        smooth_s: The penalty on roughness along the predictors' argument, or a grid to choose from.
        smooth_t: Along that of the response.
        smooth_st: Along both.
        ridge: The penalty on length, in units of the noise; idle without noise.
        n_steps: The number of steps, or the criterion that chooses it: `cv`, `aic`, `aicc` or `mv`.
        step: The learning rate: the share of its best fit by which a predictor is moved at each step.
        max_steps: The largest number of steps, where it is chosen.
        patience: Steps without improvement on held-back data before stopping.
        selection: `screen` drops predictors that do not help on held-back data; `all` keeps them.
        margin: The standard errors by which a predictor has to help to be kept.
        folds: The number of cross-validation folds.
        privacy: The privacy policy, such as `tacit.Privacy(...)`; by default open.
        release: The release of a party: `local`, each subject's coordinates, or `moments`, products of all
            curves.
        protect: `predictors` if the noise of a local release is for the predictors alone, or `all` curves.
        radius: The clip radius of curves, for all or by name, or `private` to buy it; by default the clip of
            the policy.
        quantile: The share of curves that a bought radius leaves unclipped; by default as for `Boosting`.
        center: The numbers subtracted from curves, by name: public.
        scale: The numbers that they are divided by then.
        parties: The predictors of each party, by its name, or the number of parties that they are dealt to in
            turn. By default, each curve has a party of its own with the same name.
        active: The party that holds the response, where parties are given and it is not the first.
        response: The name of the response.
        times: The observation times of arrays without their own, for all curves or by name; by default
            equally spaced over the domain.
        domain: The interval on which curves are defined, for all or by name; see `tacit.functional.curves`.
        random_state: The seed of everything that protects no one; drawn if None.
        out: The run's directory; nothing is written without one.

    Attributes:
        model_: The fitted model: surfaces, contributions of parties, predictions.
        run_: The run.
        times_: The times of predictions; None for numbers.
        n_features_in_: The number of predictors, or of columns of X where it was a single array.
        feature_names_in_: Their names, if they have any.
    """

    basis: Literal["b-splines", "fourier"] = "b-splines"
    size: int = 20
    order: int = 4
    knots: Sequence[float] | None = None
    components: int | None = None
    components_y: int | None = None
    smooth: float = 0.0
    smooth_s: Grid = BoostingConfig.smooth_s
    smooth_t: Grid = BoostingConfig.smooth_t
    smooth_st: Grid = BoostingConfig.smooth_st
    ridge: Grid = BoostingConfig.ridge
    n_steps: Literal["cv", "aic", "aicc", "mv"] | int = "cv"
    step: float = 0.3
    max_steps: int = 100
    patience: int = 10
    selection: Literal["screen", "all"] = "screen"
    margin: float = BoostingConfig.margin
    folds: int = 5
    privacy: Privacy | Open | None = None
    release: Literal["local", "moments"] | None = None
    protect: Literal["predictors", "all"] = "predictors"
    radius: float | Mapping[str, float] | Literal["private"] | None = None
    quantile: float | None = None
    center: Mapping[str, float] | None = None
    scale: Mapping[str, float] | None = None
    parties: Mapping[str, Sequence[str]] | int | None = None
    active: str | None = None
    response: str = "y"
    times: Times = None
    domain: Domains = None
    random_state: int | None = 0
    out: str | PathLike[str] | None = None

    @suppress_warnings()
    def fit(self, X: object, y: object) -> Self:
        """Train across parties.

        Args:
            X: The curves of each predictor by name, in any form that `tacit.functional.curves` takes; or an
                array (subjects, predictors, times); or the curves of one predictor.
            y: The curves of the response; or a number for each subject, which is predicted as one.

        Raises:
            TacitError: Anything that can be mended; nothing is charged then. What is wrong with a value is a
                `ValueError` as well.
        """
        given = by_name(X)
        task = self._task(numbers := scalar_response(y, self.response))
        reading = CurveReader(times=self.times, domain=self.domain)
        found = {name: reading.read(curve, name) for name, curve in given.items()}
        require(self.response not in found, "response", self.response, "a name that no predictor has")
        told = {**given, self.response: y}
        if numbers is None:
            found[self.response] = reading.read(y, self.response)
        else:
            found[self.response] = constant_curves(numbers, self.response, points=task.size + 1)
        require_same_subjects(found)
        federation = self._federation(found, reading.inferred_fields(told, found))
        seed = secrets.randbits(32) if self.random_state is None else _plain(self.random_state)
        require(type(seed) is int, "random_state", seed, "a whole number, or None to draw one")
        run = fit(
            cast("Task", task), federation, privacy=self.privacy or Open(), rounds=1, seed=seed, out=self.out
        )
        self._remember(run, X, found, numbers)
        return self

    @suppress_warnings()
    def predict(self, X: object) -> Array:
        """The response of new subjects (subjects, times) at `times_`, or their numbers (subjects,).

        Args:
            X: As for `fit`; of a mapping, predictors that were not selected may be left out. Arrays are
                taken to be observed when those of `fit` were.
        """
        given = self._read(X)
        if self.times_ is not None:
            return self.model_.predict(given, self.times_)
        found = self.model_.predict(given, [0.0])
        return found.reshape((-1, *self._shape[1:]))

    def score(self, X: object, y: object) -> float:
        """R2: the share of the variation between subjects, integrated over the domain, that is predicted.

        Of private subjects it is unprotected, and warned about once.
        """
        found = self._score(X, y)
        warn_of_score(self, self.privacy)
        return found

    @suppress_warnings()
    def _score(self, X: object, y: object) -> float:
        given, response = self._read(X), self.model_.response
        numbers = scalar_response(y, response)
        if self.times_ is not None:
            require(numbers is None, response, "a number for each subject", "curves, as in fit")
            return self.model_.score(given, self._reading.read(y, response))["r2"]
        require(numbers is not None, response, "curves", "a number for each subject, as in fit")
        return r2(cast(Array, numbers).reshape(-1, 1), self.predict(X).reshape(-1, 1))

    def coef_surface_(self, name: str, s: ArrayLike | None = None, t: ArrayLike | None = None) -> Array:
        """The surface beta(s, t) of a predictor (times s, times t), in the units of the curves."""
        return self.model_.surface(name, s, t)

    def privacy_spent(self) -> dict[str, Any]:
        """Return the price: epsilon, delta, relation, unit, unprotected data, and releases.

        Without a promise all of them are None, and there is no mechanism.
        """
        told = self.privacy_
        return {
            "epsilon": told.epsilon,
            "delta": told.delta,
            "relation": told.relation,
            "unit": told.unit,
            "but": list(told.but),
            "mechanisms": list(told.released),
        }

    @property
    def model_(self) -> Model:
        """The fitted model."""
        return self._fitted.model

    @property
    def privacy_(self) -> Statement:
        """Privacy statement: the promise and its price."""
        return self._fitted.privacy

    @property
    def selected_(self) -> tuple[str, ...]:
        """The predictors that count."""
        return self.model_.selected

    @property
    def path_(self) -> tuple[str, ...]:
        """The predictor that was moved at each step."""
        return self.model_.path

    @property
    def n_steps_(self) -> int:
        """Number of boosting steps."""
        return self.model_.steps

    @property
    def cv_curve_(self) -> Array:
        """Stopping criterion after 0, 1, ... steps; less is better."""
        return self.model_.criterion

    @property
    def df_(self) -> float:
        """Degrees of freedom."""
        return self.model_.degrees

    @property
    def smooth_(self) -> tuple[float, float, float]:
        """The prices of roughness that were chosen, along s, t and both."""
        boosted: BoostingFit = self.model_.boosted
        return boosted.smooth

    @property
    def importance_(self) -> dict[str, float]:
        """Share of the model of each predictor."""
        return self.model_.importance

    @property
    def comm_bytes_(self) -> int:
        """Bytes sent by all parties."""
        return self.model_.bytes_sent

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments; none of them has arguments of its own."""
        return fields_of(self)

    def set_params(self, **given: Any) -> Self:
        """Change arguments."""
        for name, value in given.items():
            require_word("parameter", name, self.get_params())
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        usual = {field.name: field.default for field in fields(self)}
        changed = [f"{name}={value!r}" for name, value in fields_of(self).items() if value is not usual[name]]
        return f"FunctionalRegressor({', '.join(changed)})"

    def __sklearn_tags__(self) -> object:
        """Return scikit-learn's tags; only scikit-learn asks, so it is loaded already."""
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags  # pyright: ignore

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True, multi_output=True),
            input_tags=InputTags(three_d_array=True, dict=True, allow_nan=True),
            regressor_tags=RegressorTags(),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return "run_" in vars(self)

    @property
    def _fitted(self) -> Run:
        if "run_" not in vars(self):
            _refuse_unfit()
        return self.run_

    def _task(self, numbers: Array | None) -> Boosting:
        """Construct the task from the estimator's parameters."""
        require_rate("step", self.step)
        require_count("max_steps", _plain(self.max_steps))
        if isinstance(self.n_steps, str):
            require_word("n_steps", self.n_steps, RULES)
        else:
            require_count("n_steps", _plain(self.n_steps))
        params = self.get_params()
        given = {name: _plain(params[name]) for name in _SAME if params[name] is not None}
        given |= {task: _plain(params[name]) for name, task in _RENAMED.items()}
        if numbers is not None:
            # A number is a curve that does not change: its mean is all of it.
            given["components_y"] = 1
        return Boosting(**given)

    def _federation(self, found: Mapping[str, Curves], taken: Sequence[str]) -> VerticalFederation:
        predictors = [name for name in found if name != self.response]
        if isinstance(self.parties, Mapping):
            split = ByParty(parties=self.parties, active=self.active)
        elif self.parties is not None:
            split = ByParty(count=_plain(self.parties), active=self.active)
        else:
            require(self.active is None, "active", self.active, "left out where no parties are given")
            split = ByParty(parties={name: (name,) for name in (self.response, *predictors)})
        dealt = split.deal(predictors, self.response)
        return VerticalFederation(
            {party: {name: found[name] for name in names} for party, names in dealt.items()},
            order=list(found),
            taken=taken,
        )

    def _remember(self, run: Run, X: object, found: Mapping[str, Curves], numbers: Array | None) -> None:
        """Store the state that prediction needs beside the model: observation times and names."""
        response = found[self.response]
        common = response.times if response.owners is None else np.linspace(*response.domain, POINTS)
        grids = {name: own.times for name, own in found.items() if own.owners is None}
        domains = {name: own.domain for name, own in found.items()}
        self.run_ = run
        self.times_: Array | None = common.copy() if numbers is None else None
        self._shape: tuple[int, ...] = () if numbers is None else numbers.shape
        self._reading = CurveReader(times=grids, domain=domains, least=1)
        self.n_features_in_, names = headings(X, found)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        else:
            vars(self).pop("feature_names_in_", None)

    def _read(self, X: object) -> dict[str, Curves]:
        """Return the curves of new subjects, where they are of the model."""
        given, wanted = by_name(X), self.model_.predictors
        if not isinstance(X, Mapping):
            self._require_features(X, list(given))
        return {name: self._reading.read(curve, name) for name, curve in given.items() if name in wanted}

    def _require_features(self, X: object, names: Sequence[str]) -> None:
        """Refuse arrays of another size than those of `fit`, as scikit-learn does."""
        known = cast("Mapping[str, Array]", self._reading.times)
        wanted, many = len(self.model_.predictors), len(names)
        if tuple(names) == self.model_.predictors == ("x1",) and "x1" in known:
            wanted, many = len(known["x1"]), untimed_columns(X, "x1") or len(known["x1"])
        if many != wanted or set(names) != set(self.model_.predictors):
            raise InvalidValue(
                f"X has {many} features, but FunctionalRegressor is expecting {wanted} features as input; "
                f"the predictors are {', '.join(self.model_.predictors)}"
            )


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Convert values from hyperparameter searches to plain numbers and tuples."""
    if isinstance(value, np.generic):
        return cast(object, value.item())
    if isinstance(value, list | np.ndarray):
        return tuple(_plain(entry) for entry in cast("Sequence[object]", value))
    return dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else value


def _refuse_unfit() -> NoReturn:
    """Say so, in a way that scikit-learn knows, if it is there."""
    said = "FunctionalRegressor is not fitted yet: call fit(X, y) first"
    try:
        from sklearn.exceptions import NotFittedError as known  # pyright: ignore
    except ImportError:
        known = AttributeError
    raise type("NotFitted", (InvalidValue, known), {})(said)


@dataclass(frozen=True, kw_only=True)
class CurveReader:
    """Converter of inputs to curves.

    Args:
        times: Those of arrays without their own: for all curves, or by name.
        domain: The interval of definition: for all of them, or by name.
        least: The smallest number of subjects.
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
        """Return the facts that were inferred from all curves together, in words."""
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
        whole = np.asarray(cast("ArrayLike", X))
        require(whole.shape[1] > 0, "X", f"shape {tuple(whole.shape)}", "subjects by predictors by times")
        return {f"x{place + 1}": whole[:, place, :] for place in range(whole.shape[1])}
    return {"x1": X}


def untimed_columns(given: object, name: str) -> int | None:
    """Return the number of columns of an array without times; None for other forms."""
    if isinstance(given, Curves):
        return None
    found = parse(given, name)
    plain = found.times is None and found.values.ndim == 2
    return found.values.shape[1] if plain else None


def headings(X: object, found: Mapping[str, Curves]) -> tuple[int, list[str] | None]:
    """Return the number of features of X, and their names if they have any, as scikit-learn counts them.

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
    """Return numbers as constant curves at `points` times."""
    return Curves(
        times=np.linspace(0.0, 1.0, points),
        values=np.repeat(values.reshape(-1, 1), points, axis=1),
        domain=(0.0, 1.0),
        place=name,
    )


def _of(given: object, name: str) -> object:
    """Look up an option of a curve, given for all curves or by name."""
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
            return () if isinstance(given, tuple) else np.shape(cast("ArrayLike", entries))
        except ValueError:
            return ()
    known = cast(Array, given) if hasattr(given, "shape") else np.asarray(cast("ArrayLike", given))
    return tuple(known.shape)


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
    if hasattr(given, "dtype") and np.iscomplexobj(cast("ArrayLike", given)):
        raise InvalidValue(f"{name} is not allowed: Complex data not supported; give its parts as two curves")

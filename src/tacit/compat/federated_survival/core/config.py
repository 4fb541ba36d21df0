"""Options of a run as users of federated-survival write them, and their translation to this core.

`FSAConfig` has every field of 0.5.0 and 0.8.0. Values are checked when the object is made and again when a
run begins, since fields may be set in between.

`dp_epsilon` is the promise. A noise multiplier that is too small to keep it is replaced by the smallest that
does, and the explanation gives the price of the given one. `differences` lists all other options that are not
taken literally, with one sentence for each.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from tacit.aggregation.mean import Mean
from tacit.aggregation.server import Adam, Plain, ServerStep
from tacit.errors import (
    Refused,
    is_between,
    require,
    require_count,
    require_positive,
    require_rate,
    require_word,
)
from tacit.privacy import accounting
from tacit.privacy.accounting.release import require_delta
from tacit.privacy.mechanisms.base import RecordLevel
from tacit.privacy.mechanisms.site_level import SiteLevel
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.runs.queries import queries_of
from tacit.runs.stopping import Stopping
from tacit.runtime.contracts import fields_of
from tacit.sites.federation import RowFederation
from tacit.sites.sampling import Fixed, Poisson, Sampling
from tacit.survival import tasks
from tacit.survival.augment import FEWEST_EVENTS, FEWEST_RECORDS
from tacit.survival.models.learner import SurvivalLearner

if TYPE_CHECKING:
    from tacit.privacy.mechanisms.base import Mechanism
    from tacit.survival.augment import MVAEC, MVAES

MODELS = ("PC-Hazard", "LogisticHazard", "DeepHit", "DeepSurv", "CoxPH", "CoxTime", "CoxCC")
ACTIVATIONS = ("relu", "tanh", "sigmoid", "silu", "gelu", "softplus", "elu")

_WORDS: dict[str, tuple[str, ...]] = {
    "model_type": MODELS,
    "optimizer": ("adam", "sgd"),
    "federated_protocol": ("FedAvg", "FedProx", "FedOpt", "WebDISCO-style"),
    "server_optimizer": ("adam", "yogi", "adagrad"),
    "augmentation_sampling": ("sparse", "unconditional"),
    "dp_mechanism": ("gaussian", "laplace", "exponential"),
    "dp_unit": ("record", "site"),
}
_COUNTS = (
    "n_samples", "n_features", "num_durations", "num_clients", "global_epochs", "early_stopping_patience",
    "local_epochs", "batch_size", "webdisco_max_iter", "latent_num", "hidden_num", "n_rounds",
)  # fmt: skip
_POSITIVE = (
    "learning_rate", "server_learning_rate", "server_tau", "webdisco_tolerance", "webdisco_max_step_norm",
    "augmentation_sparse_gamma", "dp_epsilon", "dp_sensitivity", "dp_noise_multiplier", "dp_clip_norm",
    "split_alpha",
)  # fmt: skip
_RATES = ("client_sample_ratio", "k")
_FRACTIONS = ("censor_rate", "dropout", "server_beta1", "server_beta2", "test_size")
_WEIGHTS = ("weight_decay", "proximal_mu", "webdisco_l2", "webdisco_ridge", "alpha", "beta")
_FLAGS = (
    "batch_norm",
    "early_stopping",
    "full_batch",
    "use_differential_privacy",
    "verbose",
    "show_progress",
)
TASKS: dict[str, type[SurvivalLearner]] = {
    "PC-Hazard": tasks.PCHazard,
    "LogisticHazard": tasks.LogisticHazard,
    "DeepHit": tasks.DeepHit,
    "DeepSurv": tasks.DeepSurv,
    "CoxPH": tasks.CoxPH,
    "CoxTime": tasks.CoxTime,
    "CoxCC": tasks.CoxCC,
}
# Their losses couple records; single records are protected by forming them in risk groups of about this size.
COUPLED = ("DeepSurv", "CoxPH", "CoxTime", "CoxCC")
GROUP = 6
# The share of DeepHit's ranking term, as in the original.
RANKING = 0.8
# The share of dp_epsilon for synthetic records, where they have to be paid for.
AUGMENTATION_SHARE = 0.3


@dataclass
class FSAConfig:
    """The options of a run.

    Fields that differ in meaning from the original: `local_epochs` are passes over a client's records in
    batches of `batch_size` (0.5.0 took as many full-batch steps, 0.8.0 as many mini-batches); `dp_epsilon` is
    the budget of the whole run, and is kept; `activation` is a word, or a class of torch; `k` may be 1, as in
    the documentation of the original. `weight_decay` is 0.01 by default: the original's 0.05 draws the
    networks of CoxCC, CoxTime and DeepHit to zero; a given value is honored. `dp_unit` is new: the protected
    unit, any one `record` (by default) or any one whole `site`. `random_seed` may be None, for a random seed.
    """

    dataset_name: str | None = None
    mode: str = "simulate"
    n_samples: int = 1000
    n_features: int = 20
    censor_rate: float = 0.4
    data_type: str = "weibull"
    sim_type: str = "1"
    model_type: str = "PC-Hazard"
    num_nodes: Sequence[int] = (32, 32)
    num_durations: int = 25
    batch_norm: bool = False
    dropout: float = 0.1
    activation: object = "relu"
    num_clients: int = 5
    global_epochs: int = 50
    early_stopping: bool = False
    early_stopping_patience: int = 10
    local_epochs: int = 1
    batch_size: int = 32
    full_batch: bool = False
    learning_rate: float = 0.001
    optimizer: str = "adam"
    weight_decay: float = 0.01
    client_sample_ratio: float = 1.0
    split_method: str = "iid"
    federated_protocol: str = "FedAvg"
    proximal_mu: float = 0.01
    server_optimizer: str = "adam"
    server_learning_rate: float = 0.01
    server_beta1: float = 0.9
    server_beta2: float = 0.99
    server_tau: float = 0.001
    webdisco_max_iter: int = 50
    webdisco_tolerance: float = 1e-7
    webdisco_l2: float = 0.0
    webdisco_ridge: float = 1e-8
    webdisco_max_step_norm: float = 5.0
    k: float = 0.5
    latent_num: int = 10
    hidden_num: int = 30
    alpha: float = 1.0
    beta: float = 1.0
    augmentation_sampling: str = "sparse"
    augmentation_sparse_gamma: float = 0.1
    use_differential_privacy: bool = False
    dp_mechanism: str = "gaussian"
    dp_epsilon: float = 1.0
    dp_delta: float | None = 1e-5
    dp_sensitivity: float = 1.0
    dp_noise_multiplier: float = 1.0
    dp_clip_norm: float = 1.0
    verbose: bool = False
    show_progress: bool = False
    random_seed: int | None = 42
    evaluation_quantiles: tuple[float, float] = (0.05, 0.95)
    cox_loss_normalization: str = "patient"
    prediction_validation: str = "raise"
    n_rounds: int = 100
    random_state: int | None = None
    model_params: dict[str, Any] = field(default_factory=dict[str, Any])
    split_alpha: float = 0.5
    test_size: float = 0.2
    dp_unit: str = "record"
    # That of the fields: `inspect` would read the one of `__new__`.
    __signature__: ClassVar[Signature]

    def __new__(cls, *given: object, **named: object) -> Self:
        """Note the given options: one that is given counts as chosen even if it equals its default."""
        made = super().__new__(cls)
        names = [entry.name for entry in fields(cls)][: len(given)]
        object.__setattr__(made, "_chosen", {*names, *named})
        return made

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if "_made" in vars(self):
            cast("set[str]", vars(self)["_chosen"]).add(name)

    def __post_init__(self) -> None:
        self.validate()
        object.__setattr__(self, "_made", True)

    def validate(self) -> None:
        """Refuse a value that is not allowed; the message names the field."""
        held = fields_of(self)
        for name, words in _WORDS.items():
            require_word(name, held[name], words)
        for names, check in ((_COUNTS, require_count), (_POSITIVE, require_positive), (_RATES, require_rate)):
            for name in names:
                check(name, held[name])
        for name in (*_FRACTIONS, *_WEIGHTS):
            given, high = held[name], 1 if name in _FRACTIONS else float("inf")
            allowed = "at least 0 and below 1" if name in _FRACTIONS else "finite and at least 0"
            # Nothing, or something between; True is not a number here.
            nothing = given is not False and given == 0
            require(nothing or is_between(given, 0, high), name, given, allowed)
        for name in _FLAGS:
            require(isinstance(held[name], bool), name, held[name], "True or False")
        for width in self.num_nodes:
            require_count("num_nodes", width)
        require_word("activation", self.activation_word, ACTIVATIONS)
        self._validate_rest()

    def _validate_rest(self) -> None:
        # Only Gaussian noise in training needs a delta; the documentation passes None for Laplace.
        if self.dp_delta is not None or (self.use_differential_privacy and self.dp_mechanism == "gaussian"):
            require_delta(self.dp_delta, "gaussian" if self.dp_mechanism == "gaussian" else None)
        low, high = self.evaluation_quantiles
        require(
            0 <= low < high <= 1, "evaluation_quantiles", (low, high), "two ascending numbers from 0 to 1"
        )
        for name, given in fields_of(self, ("random_seed", "random_state")).items():
            whole = given is None or (isinstance(given, int) and not isinstance(given, bool))
            require(whole, name, given, "a whole number, or None")

    @property
    def activation_word(self) -> str:
        """Name of the activation: `torch.nn.ReLU` is `relu`."""
        given = self.activation
        if isinstance(given, str):
            return given.lower()
        kind = given if isinstance(given, type) else type(given)
        return kind.__name__.lower()

    def was_chosen(self, name: str) -> bool:
        """Return True if a field was given, or differs from its default."""
        defaults = {entry.name: entry.default for entry in fields(self)}
        said = name in vars(self).get("_chosen", ())
        return said or fields_of(self)[name] not in (defaults[name], {})


_, *_parameters = signature(FSAConfig.__init__).parameters.values()
FSAConfig.__signature__ = Signature(_parameters)


@dataclass(frozen=True, eq=False, kw_only=True)
class Translation:
    """The arguments of `tacit.fit` for a configuration.

    Args:
        task: The task.
        privacy: The promise.
        aggregation: The aggregation rule.
        server: The server step.
        sampling: The sampling of the clients of a round.
        stop: Early stopping.
        augment: Synthetic records, if any.
        noise: Noise in units of the clip norm; None without differential privacy.
        notes: Explanations of the noise.
    """

    task: SurvivalLearner
    privacy: Privacy | Open
    aggregation: Mean
    server: ServerStep
    sampling: Sampling
    stop: Stopping | None
    augment: "MVAEC | MVAES | None"
    noise: float | None
    notes: tuple[tuple[str, str], ...]


def translate(config: FSAConfig, federation: RowFederation, aug_method: str | None) -> Translation:
    """Translate a configuration to the arguments of `tacit.fit`.

    Args:
        config: The configuration.
        federation: The clients; how many records they hold in all is public.
        aug_method: `MVAEC` or `MVAES`, or None for the records as they are.

    Raises:
        Refused: An option would have to be kept that cannot be; the message names a way out.
    """
    count = max(round(config.client_sample_ratio * len(federation)), 1)
    private = config.use_differential_privacy
    made = Translation(
        task=_task(config, federation),
        privacy=_privacy(config),
        aggregation=Mean() if private else Mean(weights=_sizes(federation)),
        server=_server(config),
        sampling=Fixed(count=count) if count < len(federation) else Poisson(),
        # Early stopping must not look at private records without paying.
        stop=Stopping(patience=config.early_stopping_patience)
        if config.early_stopping and not private
        else None,
        augment=None if aug_method is None else _augmentation(config, aug_method),
        noise=None,
        notes=(),
    )
    return made if isinstance(made.privacy, Open) else _with_noise(made, config, federation)


def _task(config: FSAConfig, federation: RowFederation) -> SurvivalLearner:
    kind = TASKS[config.model_type]
    options: dict[str, Any] = {
        "hidden": () if config.model_type == "CoxPH" else tuple(config.num_nodes),
        "activation": config.activation_word,
        "cuts": config.num_durations,
        "lr": config.learning_rate,
        "optimizer": config.optimizer,
        "decay": config.weight_decay,
        "proximal": config.proximal_mu if config.federated_protocol == "FedProx" else 0.0,
        **_local_work(config, federation),
    }
    known = {entry.name for entry in fields(kind)}
    return kind(**{option: value for option, value in options.items() if option in known})


def _local_work(config: FSAConfig, federation: RowFederation) -> dict[str, object]:
    """Epochs in shuffled batches; where single records are protected, as many steps of secret draws."""
    largest = max(len(federation.records_of(name)) for name in federation)
    if not protects_records(config):
        batch = largest if config.full_batch else config.batch_size
        return {"epochs": config.local_epochs, "batch": batch, "ranking": RANKING}
    typical = len(federation.store) / len(federation)
    batch = typical if config.full_batch else min(config.batch_size, typical)
    steps = config.local_epochs * math.ceil(typical / batch)
    drawn: dict[str, object] = {"steps": steps, "sample": batch / typical}
    if config.model_type in COUPLED:
        return {**drawn, "groups_per_site": max(round(typical / GROUP), 1)}
    # DeepHit's ranking term couples records; its likelihood alone is a sum over them.
    return {**drawn, "batch": max(round(batch), 1), "ranking": 0.0}


def protects_records(config: FSAConfig) -> bool:
    """Return True if single records are protected."""
    return config.use_differential_privacy and config.dp_unit == "record"


def _privacy(config: FSAConfig) -> Privacy | Open:
    if not config.use_differential_privacy:
        return Open()
    if config.dp_mechanism == "exponential":
        raise Refused(
            'dp_mechanism = "exponential" does not train: it chooses one of several candidates. Use '
            '"gaussian" or "laplace" to train, and DifferentialPrivacy.exponential_mechanism to choose.'
        )
    pure = config.dp_mechanism == "laplace"
    assert pure or config.dp_delta is not None, "the configuration is valid"
    return Privacy(
        unit=cast("Literal['record', 'site']", config.dp_unit),
        epsilon=config.dp_epsilon,
        delta=0.0 if pure else cast(float, config.dp_delta),
        clip=config.dp_clip_norm,
        mechanism="laplace" if pure else "gaussian",
        # All records and the seed are in this process: the configuration is enough to repeat the noise.
        rehearsal=True,
    )


def _server(config: FSAConfig) -> ServerStep:
    if config.federated_protocol == "WebDISCO-style":
        raise Refused(
            'federated_protocol = "WebDISCO-style" is not for this runner: it sends sums at the exact time '
            "of every event. Use tacit.survival.statistics.cox, which is as exact and lets no time out."
        )
    if config.federated_protocol != "FedOpt":
        return Plain()
    if config.server_optimizer != "adam":
        raise Refused(
            f'server_optimizer = "{config.server_optimizer}" is not here: use "adam", or '
            'federated_protocol = "FedAvg"'
        )
    return Adam(
        lr=config.server_learning_rate,
        first=config.server_beta1,
        second=config.server_beta2,
        floor=config.server_tau,
    )


def _augmentation(config: FSAConfig, aug_method: str) -> "MVAEC | MVAES":
    from tacit.survival.augment import MVAEC, MVAES

    kind = {"MVAEC": MVAEC, "MVAES": MVAES}[aug_method]
    return kind(
        latent=config.latent_num,
        hidden=config.hidden_num,
        alpha=config.alpha,
        beta=config.beta,
        k=config.k,
        epsilon=AUGMENTATION_SHARE * config.dp_epsilon if protects_records(config) else None,
        clip=config.dp_clip_norm,
    )


def _sizes(federation: RowFederation) -> dict[str, float]:
    return {name: float(len(federation.records_of(name))) for name in federation}


def _with_noise(made: Translation, config: FSAConfig, federation: RowFederation) -> Translation:
    """Add noise to a translation: by `dp_epsilon`, or by the given multiplier if that is larger."""
    assert isinstance(made.privacy, Privacy)
    provenance = Provenance(made.privacy, public=False)
    solver = replace(made, task=made.task.bind(federation, provenance))
    rounds, given = config.global_epochs, config.dp_noise_multiplier
    needed = _multiplier(_solve(solver, made.privacy, federation, rounds))
    if config.dp_mechanism != "gaussian" or not config.was_chosen("dp_noise_multiplier"):
        return replace(made, noise=needed)
    if made.augment is not None:
        said = (
            f"dp_noise_multiplier = {given:g} has no effect with augmentation: noise follows from dp_epsilon"
        )
        return replace(made, noise=needed, notes=(("dp_noise_multiplier", said),))
    by_noise = replace(made.privacy, epsilon=None, noise_multiplier=given)
    price = _price(solver, by_noise, federation, rounds)
    if price <= config.dp_epsilon:
        return replace(made, privacy=by_noise, noise=given)
    said = (
        f"dp_noise_multiplier = {given:g} contradicts dp_epsilon = {config.dp_epsilon:g}: it would cost "
        f"epsilon {price:.4g} over {rounds} rounds. The promise is kept with a multiplier of {needed:.4g}; "
        f"for less noise set dp_epsilon = {price:.4g}"
    )
    return replace(made, noise=needed, notes=(("dp_noise_multiplier", said),))


def price_of_round(made: Translation, federation: RowFederation, rounds: int) -> float:
    """Epsilon of one of `rounds` rounds by itself; those of several do not simply add up."""
    assert isinstance(made.privacy, Privacy)
    bound = made.task.bind(federation, Provenance(made.privacy, public=False))
    mechanism = _solve(replace(made, task=bound), made.privacy, federation, rounds)
    return accounting.epsilon(mechanism.release(1, list(federation)), made.privacy.delta)


def _solve(made: Translation, privacy: Privacy, federation: RowFederation, rounds: int) -> "Mechanism":
    training = privacy if made.augment is None else made.augment.reserve(privacy)
    return training.solve(
        made.task,
        list(federation),
        made.aggregation,
        rounds,
        sampling=made.sampling.kind,
        records=federation.records,
        questions=queries_of(made.task),
    )


def _multiplier(mechanism: "Mechanism") -> float:
    assert isinstance(mechanism, RecordLevel | SiteLevel), "records, or updates that pass a server"
    return mechanism.multiplier


def _price(made: Translation, privacy: Privacy, federation: RowFederation, rounds: int) -> float:
    """Epsilon of a whole run under a promise that names its noise."""
    mechanism, names = _solve(made, privacy, federation, rounds), list(federation)
    releases = [replace(entry, count=entry.count * rounds) for entry in mechanism.release(1, names)]
    for question in queries_of(made.task):
        releases += privacy.solve_query(question, mechanism).release(0, names)
    return accounting.epsilon(releases, privacy.delta)


# An option and what is said about it. It is warned of where the option was chosen; `ALWAYS`, or never ("").
Said = tuple[str, str]
ALWAYS = "always"

_GIVEN = "the data are given to run(), and decide"
_UNREAD: dict[str, str] = {
    "dataset_name": _GIVEN,
    "mode": _GIVEN,
    "censor_rate": _GIVEN,
    "data_type": _GIVEN,
    "sim_type": _GIVEN,
    "split_method": _GIVEN,
    "split_alpha": _GIVEN,
    "test_size": _GIVEN,
    "n_rounds": "the number of rounds is global_epochs",
    "random_state": "the seed of a run is random_seed",
    "model_params": "set num_nodes, activation and num_durations",
    "cox_loss_normalization": "the partial likelihood of a batch is divided by the number of its records",
    "prediction_validation": "curves fall from 1 and stay between 0 and 1 by construction",
    "webdisco_max_iter": "federated_protocol is another one",
    "webdisco_tolerance": "federated_protocol is another one",
    "webdisco_l2": "federated_protocol is another one",
    "webdisco_ridge": "federated_protocol is another one",
    "webdisco_max_step_norm": "federated_protocol is another one",
}


def differences(config: FSAConfig, federation: RowFederation, *, augmented: bool) -> list[Said]:
    """Return the differences between a run and the literal meaning of its configuration."""
    found = [*_of_network(config), *_of_data(config, federation)]
    if augmented:
        found += _of_augmentation(config, federation)
    if config.use_differential_privacy:
        found += _of_privacy(config)
    unread = [name for name in _UNREAD if config.was_chosen(name)]
    return [
        *found,
        *((name, f"{_option_text(config, name)} has no effect: {_UNREAD[name]}") for name in unread),
    ]


def _of_network(config: FSAConfig) -> Iterator[Said]:
    if config.dropout:
        said = "is not applied: gradients of single records have no closed form under it; use weight_decay"
        yield "dropout", f"{_option_text(config, 'dropout')} {said}"
    if config.batch_norm:
        said = "is not applied: it mixes the records of a batch, and keeps their means in the model"
        yield "batch_norm", f"{_option_text(config, 'batch_norm')} {said}"
    if config.model_type == "CoxPH" and config.num_nodes:
        yield "num_nodes", "num_nodes has no effect: CoxPH is linear; use DeepSurv for a network"


def _of_data(config: FSAConfig, federation: RowFederation) -> Iterator[Said]:
    held_out = federation.held_out
    found = {
        "num_clients": len(federation),
        "n_features": len(federation.store.columns),
        "n_samples": len(federation.store) + (0 if held_out is None else len(held_out)),
    }
    for name, there in found.items():
        if fields_of(config)[name] != there:
            yield name, f"{_option_text(config, name)} has no effect: the data have {there}, and decide"


def _of_augmentation(config: FSAConfig, federation: RowFederation) -> Iterator[Said]:
    if config.augmentation_sampling == "sparse":
        said = "is not done: it would spread copies of single patients; hidden numbers are drawn afresh"
        yield "augmentation_sampling", f'augmentation_sampling = "sparse" {said}'
    if config.was_chosen("augmentation_sparse_gamma"):
        yield (
            "augmentation_sparse_gamma",
            "augmentation_sparse_gamma has no effect: no record's code is copied",
        )
    if protects_records(config):
        said = f"{AUGMENTATION_SHARE:.0%} of dp_epsilon pay for synthetic records, the rest for training"
        yield "", said
        return
    for name in federation:
        table = federation.records_of(name)
        records, events = len(table), int(table.targets["event"].sum())
        if records < FEWEST_RECORDS or events < FEWEST_EVENTS:
            few = f"{name} is left out of augmentation: it has {records} records and {events} events, and"
            yield ALWAYS, f"{few} needs {FEWEST_RECORDS} and {FEWEST_EVENTS}"


def _of_privacy(config: FSAConfig) -> Iterator[Said]:
    yield "", "clients count alike in the average: how many records each holds is private"
    if config.early_stopping:
        said = (
            "early_stopping is not done under differential privacy: it would look at private records, and a"
        )
        yield "early_stopping", f"{said} plan is paid for all of its {config.global_epochs} rounds anyway"
    if config.dp_sensitivity != config.dp_clip_norm:
        said = f"what one {config.dp_unit} can change is bounded by dp_clip_norm = {config.dp_clip_norm:g}"
        yield "dp_sensitivity", f"{_option_text(config, 'dp_sensitivity')} has no effect in training: {said}"
    if config.dp_mechanism == "laplace" and config.was_chosen("dp_noise_multiplier"):
        said = "has no effect: Laplace noise follows from dp_epsilon alone"
        yield "dp_noise_multiplier", f"{_option_text(config, 'dp_noise_multiplier')} {said}"
    if not protects_records(config):
        return
    yield "", "local_epochs are steps of independent, secret draws, as many as the epochs would have batches"
    if config.model_type in COUPLED:
        yield "", f"the loss couples records, so it is formed in risk groups of about {GROUP} records"
    if config.model_type == "DeepHit":
        yield "", "DeepHit has no ranking term: it couples records, which could then not be protected singly"


def _option_text(config: FSAConfig, name: str) -> str:
    return f"{name} = {fields_of(config)[name]!r}"

"""The options of a run, as users of federated-survival write them: every field of 0.5.0 and 0.8.0.

Nothing is decided here; `translation` says what becomes of each option. Values are checked when the object is
made and again when a run begins, since fields may be set in between.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from inspect import Signature, signature
from typing import Any, ClassVar, Self, cast

from tacit.errors import is_between, require, require_count, require_positive, require_rate, require_word
from tacit.privacy.accounting.release import require_delta
from tacit.runtime.contracts import fields_of

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
        """Note which options are given: one that is said counts as chosen, though it equals its default."""
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

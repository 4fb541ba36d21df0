"""What is not taken literally, and why: one sentence for each option that it concerns."""

from collections.abc import Iterator

from tacit.compat.federated_survival.core.config import FSAConfig
from tacit.compat.federated_survival.core.translation import (
    AUGMENTATION_SHARE,
    COUPLED,
    GROUP,
    protects_records,
)
from tacit.sites.federation import Federation
from tacit.survival.augment.synthetic import FEWEST_EVENTS, FEWEST_RECORDS

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
    "model_params": "say num_nodes, activation and num_durations",
    "cox_loss_normalization": "the partial likelihood of a batch is divided by the number of its records",
    "prediction_validation": "curves fall from 1 and stay between 0 and 1 by construction",
    "webdisco_max_iter": "federated_protocol is another one",
    "webdisco_tolerance": "federated_protocol is another one",
    "webdisco_l2": "federated_protocol is another one",
    "webdisco_ridge": "federated_protocol is another one",
    "webdisco_max_step_norm": "federated_protocol is another one",
}


def differences(config: FSAConfig, federation: Federation, *, augmented: bool) -> list[Said]:
    """Everything about a run that its configuration does not tell as it is."""
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


def _of_data(config: FSAConfig, federation: Federation) -> Iterator[Said]:
    held_out = federation.held_out
    found = {
        "num_clients": len(federation),
        "n_features": len(federation.store.columns),
        "n_samples": len(federation.store) + (0 if held_out is None else len(held_out)),
    }
    for name, there in found.items():
        if getattr(config, name) != there:
            yield name, f"{_option_text(config, name)} has no effect: the data have {there}, and decide"


def _of_augmentation(config: FSAConfig, federation: Federation) -> Iterator[Said]:
    if config.augmentation_sampling == "sparse":
        said = "is not done: it would spread copies of single patients; hidden numbers are drawn afresh"
        yield "augmentation_sampling", f'augmentation_sampling = "sparse" {said}'
    if config.was_chosen("augmentation_sparse_gamma"):
        yield "augmentation_sparse_gamma", "augmentation_sparse_gamma has no effect: nobody's code is copied"
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
    return f"{name} = {getattr(config, name)!r}"

"""Tacit trains models across sites that may not pool their data, and says what privacy that cost.

The map of the package, in the order in which data flows:

    sites        WHO HOLDS WHAT         tables, federations, environments, splits, sampling
    privacy      WHAT MAY LEAVE         policy, plan, statement; accounting, mechanisms, ledger
    learning     HOW A COHORT LEARNS    the task contract, batches, optimizers, perceptrons
    aggregation  HOW IT IS COMBINED     mean and server; robust, defence, attacks, secure
    engines      WHERE IT RUNS          in this process, or over Flower; secure aggregation
    survival     WHEN                   data, models, statistics, metrics, augment, figures
    functional   CURVE FROM CURVES      curves, data, boosting, figures
    control      ACTING                 ppo, envs, lander, agents, figures
    runs         ONE RUN                fit: set up, checked, trained, kept in a directory
    experiments  FILES, AND MANY RUNS   experiment files, sweeps, studies, tuning, attacks
    reports      WHAT IS SHOWN          run, comparison, dpia, audit; page, plots
    audits       WAS IT KEPT            lower bounds, canaries, membership, inversion, sensitivity
    deploy       MACHINES OF THEIR OWN  coordinator, site, folders, certificates, rehearsal
    compat       WHAT OTHERS KNOW       federated-survival, scikit-survival, export, tracking
    cli          THE COMMAND            app, output, verbs
    runtime      WHAT ALL STANDS ON     keys, TOML tables, threads, jit; errors beside it

Names below are loaded on first use, so that `import tacit` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tacit.runtime.aliases import install

if TYPE_CHECKING:
    from tacit.aggregation.mean import Mean as Mean
    from tacit.engines.local import Local as Local
    from tacit.errors import TacitError as TacitError
    from tacit.experiments.experiment import load as load
    from tacit.learning.supervised import Supervised as Supervised
    from tacit.privacy.accounting.release import Release as Release
    from tacit.privacy.ledger.store import Ledger as Ledger
    from tacit.privacy.policy import Open as Open
    from tacit.privacy.policy import Privacy as Privacy
    from tacit.runs.fit import fit as fit
    from tacit.runs.run import Run as Run
    from tacit.runs.stopping import Stopping as Stopping
    from tacit.runtime.keys import Key as Key
    from tacit.sites.environments import World as World
    from tacit.sites.environments import Worlds as Worlds
    from tacit.sites.federation import Federation as Federation
    from tacit.sites.vertical import Columns as Columns

_HOMES = {
    "Columns": "tacit.sites.vertical",
    "Federation": "tacit.sites.federation",
    "Key": "tacit.runtime.keys",
    "Ledger": "tacit.privacy.ledger.store",
    "Local": "tacit.engines.local",
    "Mean": "tacit.aggregation.mean",
    "Open": "tacit.privacy.policy",
    "Privacy": "tacit.privacy.policy",
    "Release": "tacit.privacy.accounting.release",
    "Run": "tacit.runs.run",
    "Stopping": "tacit.runs.stopping",
    "Supervised": "tacit.learning.supervised",
    "TacitError": "tacit.errors",
    "World": "tacit.sites.environments",
    "Worlds": "tacit.sites.environments",
    "fit": "tacit.runs.fit",
    "load": "tacit.experiments.experiment",
}

__all__ = [
    "Columns",
    "Federation",
    "Key",
    "Ledger",
    "Local",
    "Mean",
    "Open",
    "Privacy",
    "Release",
    "Run",
    "Stopping",
    "Supervised",
    "TacitError",
    "World",
    "Worlds",
    "fit",
    "load",
]

# Doors that are shorter than the way to what is behind them.
_ALIASES = {
    "experiment": "tacit.experiments.experiment",
    "studies": "tacit.experiments.studies",
    "sweeps": "tacit.experiments.sweeps",
    "testing": "tacit.audits.sensitivity",
    "tuning": "tacit.experiments.tuning",
}
install({f"tacit.{name}": target for name, target in _ALIASES.items()})

_FOLDERS = (
    "aggregation",
    "audits",
    "compat",
    "control",
    "deploy",
    "engines",
    "errors",
    "experiments",
    "functional",
    "learning",
    "privacy",
    "reports",
    "runs",
    "runtime",
    "sites",
    "survival",
)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("tacit")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _ALIASES or name in _FOLDERS:
        return import_module(f"tacit.{name}")
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

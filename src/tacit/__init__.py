"""Training across sites that may not pool their data, under differential privacy that is proven and priced.

The map of the package, in the order in which data flows (`python -m tools.reference` writes it):

    sites        Data of the sites: tables, federations, environments, splits, sampling.
    privacy      Differential privacy: policy, statement, accounting, mechanisms, ledger.
    learning     Local training: the contract of a task, batches, optimizers, perceptrons.
    aggregation  Combining updates: mean, robust rules, quarantine, clusters, attacks, secure aggregation.
    engines      Engines, which run local work: in this process, or over Flower; rounds of secure aggregation.
    survival     Survival analysis: data, models, statistics, metrics, synthetic records, figures.
    functional   Function-on-function regression: curves, releases, boosting, figures.
    control      Reinforcement learning: PPO, environments, a compiled lander, agents, figures.
    runs         One run: prepare, check, train, evaluate, keep in a directory, resume.
    experiments  Experiment files, and many runs: sweeps, studies, tuning, tables of attacks.
    reports      Reports of runs, comparisons, audits and for data protection; pages and plots.
    audits       Attacks on our own promise: lower bounds on epsilon, membership inference, sensitivity tests.
    deploy       Deployment on several machines: coordinator, sites, folders, certificates, rehearsal.
    compat       Interfaces of other packages, exports to other programs, tracking.
    cli          Command line: the verbs of `tacit`, their output and exit codes.
    runtime      Foundations: random keys, files, TOML tables, limits, threads, compiled kernels.
    regression   Linear, logistic and Poisson regression across sites, in the open and under a promise.

Names below are loaded on first use, so that `import tacit` costs nothing.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader

    from tacit.aggregation.mean import Mean as Mean
    from tacit.engines.base import Local as Local
    from tacit.errors import TacitError as TacitError
    from tacit.experiments.experiment import load as load
    from tacit.learning.supervised import Supervised as Supervised
    from tacit.privacy.accounting.release import Release as Release
    from tacit.privacy.ledger.store import Ledger as Ledger
    from tacit.privacy.policy import Open as Open
    from tacit.privacy.policy import Privacy as Privacy
    from tacit.runs.evaluation import Evaluation as Evaluation
    from tacit.runs.fit import fit as fit
    from tacit.runs.run import Run as Run
    from tacit.runs.stopping import Stopping as Stopping
    from tacit.runtime.keys import Key as Key
    from tacit.sites.environments import EnvFederation as Worlds
    from tacit.sites.environments import World as World
    from tacit.sites.federation import RowFederation as Federation
    from tacit.sites.vertical import VerticalFederation as Columns

else:
    # The base class takes ten times as long to import as this package.
    Loader = object

# The module of each name, and the name that it has there, if it is another one.
_HOMES = {
    "Columns": "tacit.sites.vertical:VerticalFederation",
    "Evaluation": "tacit.runs.evaluation",
    "Federation": "tacit.sites.federation:RowFederation",
    "Key": "tacit.runtime.keys",
    "Ledger": "tacit.privacy.ledger.store",
    "Local": "tacit.engines.base",
    "Mean": "tacit.aggregation.mean",
    "Open": "tacit.privacy.policy",
    "Privacy": "tacit.privacy.policy",
    "Release": "tacit.privacy.accounting.release",
    "Run": "tacit.runs.run",
    "Stopping": "tacit.runs.stopping",
    "Supervised": "tacit.learning.supervised",
    "TacitError": "tacit.errors",
    "World": "tacit.sites.environments",
    "Worlds": "tacit.sites.environments:EnvFederation",
    "fit": "tacit.runs.fit",
    "load": "tacit.experiments.experiment",
}

__all__ = [
    "Columns",
    "Evaluation",
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


class _AliasFinder(Loader):
    """Import a module by its alias: the same module object under both names.

    Args:
        targets: The full name of the module behind each alias.
    """

    def __init__(self, targets: Mapping[str, str]) -> None:
        self.targets = dict(targets)
        self._specs = dict[str, ModuleSpec | None]()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the spec of an alias; None for every other name."""
        return ModuleSpec(fullname, self) if fullname in self.targets else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the target."""
        module = import_module(self.targets[spec.name])
        # The import system is about to put the alias's spec in its place.
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the spec of the target, which has been executed before."""
        alias = module.__spec__
        if alias is not None:
            module.__spec__ = self._specs.pop(alias.name, alias)


sys.meta_path.append(_AliasFinder({f"tacit.{name}": target for name, target in _ALIASES.items()}))

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
        module, _, there = _HOMES[name].partition(":")
        return getattr(import_module(module), there or name)
    if name in _ALIASES or name in _FOLDERS:
        return import_module(f"tacit.{name}")
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

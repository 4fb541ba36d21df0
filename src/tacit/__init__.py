"""Tacit trains models across sites that may not pool their data, and says what privacy that cost.

The map of the package, in the order in which data flows:

    sites         WHO HOLDS WHAT       tables, federations, splits, sampling
    supervised    any network and loss; batched: a cohort of sites as one program
    privacy       WHAT MAY LEAVE       clip, noise, releases, the ledger, accounting
    aggregation   HOW IT IS COMBINED   from one vector per site to one vector, and the server's step
    engines       WHERE IT RUNS        in this process
    survival      WHEN                 tasks, simulated data, metrics
    functional    CURVE FROM CURVES    curves and bases, releases, boosting
    control       AGENTS IN WORLDS     policies and PPO, a fast lander, evaluation
    loop          the only round loop, `fit`; run: the directory that remembers
    experiment    experiment files: every table is a constructor call
    reports       WHAT IS SHOWN
    audits        WAS IT KEPT          attacks on our own promise: lower bounds, membership, inversion
    testing       IS IT TRUE           how far one record moves what you bring
    compat        names that others know, on this core
    cli           the `tacit` command

Names below are loaded on first use, so that `import tacit` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.aggregation.averaging import Mean as Mean
    from tacit.engines.local import Local as Local
    from tacit.errors import TacitError as TacitError
    from tacit.experiment import load as load
    from tacit.keys import Key as Key
    from tacit.loop import fit as fit
    from tacit.privacy.ledger import Ledger as Ledger
    from tacit.privacy.policy import Open as Open
    from tacit.privacy.policy import Privacy as Privacy
    from tacit.privacy.release import Release as Release
    from tacit.run import Run as Run
    from tacit.sites.columns import Columns as Columns
    from tacit.sites.envs import World as World
    from tacit.sites.envs import Worlds as Worlds
    from tacit.sites.site import Federation as Federation
    from tacit.stopping import Stopping as Stopping
    from tacit.supervised import Supervised as Supervised

_HOMES = {
    "Columns": "tacit.sites.columns",
    "Federation": "tacit.sites.site",
    "Key": "tacit.keys",
    "Ledger": "tacit.privacy.ledger",
    "Local": "tacit.engines.local",
    "Mean": "tacit.aggregation.averaging",
    "Open": "tacit.privacy.policy",
    "Privacy": "tacit.privacy.policy",
    "Release": "tacit.privacy.release",
    "Run": "tacit.run",
    "Stopping": "tacit.stopping",
    "Supervised": "tacit.supervised",
    "TacitError": "tacit.errors",
    "World": "tacit.sites.envs",
    "Worlds": "tacit.sites.envs",
    "fit": "tacit.loop",
    "load": "tacit.experiment",
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

_FOLDERS = (
    "aggregation", "audits", "compat", "control", "experiment", "functional", "privacy", "sites", "survival",
    "testing", "tuning",
)  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("tacit")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _FOLDERS:
        return import_module(f"tacit.{name}")
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

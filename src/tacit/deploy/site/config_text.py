"""The first text of a site's own file, with a word on everything that its administrator decides."""

from collections.abc import Mapping
from typing import Any, cast

import tomli_w

from tacit.deploy.site.config import SiteLimits, at_sites

_HEAD = """\
# The site's own file. What stands here counts, whatever a coordinator asks for.
# After a change: restart the guard.

"""
_WHO = """
# The public key of every site, by which they know each other. Compare them by telephone.
"""
_LIMITS = """
# What experiments may do with the records of this site.
[limits]
# The most that one experiment may cost (epsilon): the smaller, the less anybody learns about any one person.
# inf lets in experiments without any promise, and rehearsals: for records that are public or made up.
epsilon = @epsilon@
# The most that all experiments together may cost, for as long as this site exists.
lifetime = @lifetime@
# The probability with which a promise may fail: for all together, and the most for one experiment.
delta = @delta@
# The kinds of task that are allowed, such as "logistic-hazard"; none named: any that Tacit has.
tasks = @tasks@
# The site takes part only if it holds so many records at least.
fewest = @fewest@
# Whether the coordinator may see updates before noise is added to them (noise = "server").
trusted = @trusted@
# How many sites that work together with the coordinator a sum in secret must stand at the least.
colluders = @colluders@
"""
_DATA = """
# Where the records are, relative to this folder or with a full path, and what this site calls their columns.
"""
AGREED = """
# What is agreed about the data: by these rules the records of this site are read, and by no others. Look at
# them closely. An experiment that says otherwise is refused before any record is opened; to accept another
# one, after looking at it: tacit site accept . EXPERIMENT.toml
"""
_ROWS = """\
# Take away the signs # and fill in.
# [data]
# path = "data/records.csv"
"""
_COLUMNS = """\
#
# What the experiment calls it = what the column is called here; only where the two differ.
# [data.columns]
"""
_CURVES = """\
# Take away the signs # and fill in. Each file holds one curve of every subject, in the order agreed on.
# [data]
# path = "data"
#
# [data.files]
# NAME-OF-THE-CURVE = "curve.csv"
"""
_WORLDS = """\
# Take away the signs # and fill in.
# [data]
# worlds = [{ env = "NAME-OF-THE-WORLD" }]
"""


def site_text(
    name: str,
    coordinator: str,
    keys: Mapping[str, str],
    data: Mapping[str, Any],
    agreed: Mapping[str, Any],
    limits: SiteLimits,
) -> str:
    """The text of a site's file.

    Args:
        name: What the site is called.
        coordinator: The coordinator's public key.
        keys: The public key of every site, by name.
        data: Where the records are; empty if the site is to say it.
        agreed: What the experiment says of data; from it an example is made if the site is to say it.
        limits: What the site allows at first.
    """
    who = tomli_w.dumps({"name": name, "coordinator": coordinator})
    colleagues = tomli_w.dumps({"colleagues": dict(keys)})
    held = tomli_w.dumps({"data": dict(data)}) if data else _example(agreed)
    return _HEAD + who + _WHO + colleagues + _limits(limits) + _DATA + held + agreed_text(agreed)


def agreed_text(agreed: Mapping[str, Any]) -> str:
    """The table of what is agreed about the data, the last one of the file."""
    return AGREED + tomli_w.dumps({"agreed": at_sites(agreed)})


def _limits(limits: SiteLimits) -> str:
    text = _LIMITS
    for name, value in vars(limits).items():
        plain = list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
        written = tomli_w.dumps({"value": plain}).removeprefix("value = ").strip()
        text = text.replace(f"@{name}@", written)
    return text


def _example(agreed: Mapping[str, Any]) -> str:
    """What a site might say of its data, to be filled in."""
    kind = agreed.get("kind")
    if kind == "held-curves":
        return _CURVES
    if kind == "held-worlds":
        return _WORLDS
    usual = {"time": "time", "event": "event", **agreed}
    wanted = [usual[part] for part in ("time", "event", "entry", "weight") if part in usual]
    columns = [*wanted, *agreed.get("columns", ())]
    lines = [f"# {tomli_w.dumps({str(column): str(column)})}" for column in columns]
    return _ROWS + _COLUMNS + "".join(lines)

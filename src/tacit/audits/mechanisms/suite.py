"""Every way in which anything private leaves, each attacked by itself: fast, and before anybody trusts it.

A primitive is a mechanism, the price it names for itself, and an adversary. Beside those listed here, the
autoencoder that makes up records uses training steps like any other.
"""

from collections.abc import Callable, Mapping

from tacit.audits.lower_bounds import Bounds
from tacit.audits.mechanisms.base import CLIP, SITES, Primitive
from tacit.audits.mechanisms.record_level import (
    local_work,
    number_of_records,
    records,
    spread_records,
    watched_loss,
)
from tacit.audits.mechanisms.selection import exponential, permute_and_flip, quantile
from tacit.audits.mechanisms.site_level import adaptive_clipping, secure_sum, spread_updates, updates
from tacit.audits.mechanisms.vertical import curves, histogram, products, secure_products
from tacit.learning.progress import Tell, silent


def audit_mechanisms(*, confidence: float = 0.95, seed: int = 0, tell: Tell = silent) -> dict[str, Bounds]:
    """Attack every primitive.

    Args:
        confidence: With which probability all bounds together are to hold.
        seed: What repeats.
        tell: Told how far it is.
    """
    found: dict[str, Bounds] = {}
    for number, (name, make) in enumerate(PRIMITIVES.items()):
        tell("attacking every mechanism", number / len(PRIMITIVES))
        # The doubt is shared: many tests, one verdict.
        each = 1 - (1 - confidence) / len(PRIMITIVES)
        found[name] = make().audit(confidence=each, seed=seed)
    return found


PRIMITIVES: Mapping[str, Callable[[], Primitive]] = {
    "a training step": lambda: records(1.0),
    "training steps, records drawn": lambda: records(0.7, rate=0.5, steps=8),
    "training steps, Laplace": lambda: records(0.5, law="laplace"),
    "training steps, spread": lambda: spread_records("gaussian"),
    "training steps, spread, Laplace": lambda: spread_records("laplace"),
    "local work, records drawn": local_work,
    "risk groups": lambda: records(2.0, grouped=True),
    "risk groups, drawn": lambda: records(1.0, grouped=True, sampled="group", rate=0.5, steps=4),
    "update of a site": lambda: updates(2.0, where="site"),
    "update of a site, Laplace": lambda: updates(1.0, where="site", law="laplace"),
    "update of a site, spread": lambda: spread_updates("gaussian"),
    "update of a site, spread, Laplace": lambda: spread_updates("laplace"),
    "mean of updates": lambda: updates(1.0, where="server", reach=CLIP / SITES),
    "mean of updates, Laplace": lambda: updates(0.5, where="server", reach=CLIP / SITES, law="laplace"),
    "mean of updates, sites drawn": lambda: updates(0.5, where="server", reach=CLIP / SITES / 0.5, rate=0.5),
    "sum in secret": secure_sum,
    **{f"curves, direction {number + 1}": lambda number=number: curves(number) for number in range(4)},
    "products of curves": products,
    "products in secret": secure_products,
    "histogram": histogram,
    "bound that follows": adaptive_clipping,
    "number of records": number_of_records,
    "watched loss": watched_loss,
    "choice, exponential": exponential,
    "choice, permute and flip": permute_and_flip,
    "quantile": quantile,
}

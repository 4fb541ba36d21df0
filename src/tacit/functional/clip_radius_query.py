"""The question for clip radii: each party counts how long its curves are, and tells the counts with noise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.learning.task import Updates
from tacit.privacy.contracts import Layout, Norm
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.mechanisms.vertical import EVERYBODY
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ClipRadiusQuery:
    """How long curves are, counted by each party for its own.

    Args:
        coordinates: What becomes of a curve of a name.
        columns: The curves that are asked about, and who holds each; all of them if none is known yet.
        quantile: Which share of curves a radius leaves as they are.
        records: How many subjects there are.
        parties: How many parties there are.
    """

    coordinates: Callable[[str, Any], Array]
    columns: Mapping[str, str] = field(default_factory=lambda: {"all curves": EVERYBODY})
    quantile: float
    records: int
    parties: int
    kind: ClassVar[str] = "clip radii"
    # Less of it would buy radii that few subjects and little epsilon leave to chance.
    share: ClassVar[float] = 0.15
    layout: ClassVar[Layout] = "columns"
    # It is asked even where records are nobody's secret: a rehearsal is to cost what the run would.
    always: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """As many numbers as there are bins, for each curve."""
        from tacit.functional.clip_radius import EDGES

        return len(self.columns) * (len(EDGES) - 1)

    @property
    def placeholder(self) -> dict[str, Any]:
        """Curves of length 1, none of which is clipped."""
        return {"radius": dict.fromkeys(self.columns, 1.0), "stretch": dict.fromkeys(self.columns, 1.0)}

    def record_bound(self, norm: Norm) -> float:
        """Each curve is in one bin."""
        return 1.0

    def train(self, state: "Tensor", cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """The counts of each party; zeros for curves that others hold."""
        import torch

        from tacit.functional.clip_radius import EDGES, bin_indicators

        bins = len(EDGES) - 1
        rows = torch.zeros((len(cohort), self.width), dtype=torch.float64)
        for place, (party, held) in enumerate(zip(cohort.names, cohort.holdings, strict=True)):
            for slot, name in enumerate(self.columns):
                if name not in held:
                    continue
                lengths = np.linalg.norm(self.coordinates(name, held[name]), axis=1)
                counted = mechanism.noisy_sum(torch.from_numpy(bin_indicators(lengths)), key / party / name)
                rows[place, slot * bins : (slot + 1) * bins] = counted
        return Updates(cohort.names, rows)

    def decode(self, combined: "Tensor", noise: float = 0.0) -> dict[str, Any]:
        """A radius for each curve, and by how much it shortens those that are longer."""
        from tacit.functional.clip_radius import clip_correction, radius

        # Each curve was counted by one party, and answers are means over all.
        counts = combined.numpy().reshape(len(self.columns), -1) * self.parties
        deviation, count = noise * self.parties, self.records
        radii: dict[str, float] = {}
        stretches: dict[str, float] = {}
        for name, row in zip(self.columns, counts, strict=True):
            radii[name] = radius(row, self.quantile, deviation=deviation, count=count)
            stretches[name] = clip_correction(row, radii[name], deviation=deviation, count=count)
        return {"radius": radii, "stretch": stretches}

"""Simulated patients by the generator's names; the designs are those of `tacit.survival.data`.

The global generators of numpy and torch are neither used nor seeded.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit.compat.federated_survival import explain, seed_of
from tacit.errors import require_count, require_word
from tacit.runtime.keys import Key
from tacit.survival.data import simulate

if TYPE_CHECKING:
    from pandas import DataFrame

# The one parameter that each design reads, and what the generator takes if it is not said.
PARAMETERS: dict[str, tuple[str, float]] = {
    "weibull": ("c_mean", 0.4),
    "lognormal": ("c_mean", 0.4),
    "SDGM1": ("c_mean", 0.4),
    "SDGM2": ("u_max", 4.0),
    "SDGM3": ("u_max", 4.0),
    "SDGM4": ("c_step", 0.4),
}


@dataclass(frozen=True)
class SimulationConfig:
    """Number of patients, number of features, and seed of simulated tables; without a seed, each differs."""

    n_samples: int = 200
    n_features: int = 15
    random_state: int | None = None

    def __post_init__(self) -> None:
        require_count("n_samples", self.n_samples)
        require_count("n_features", self.n_features)


class DataGenerator:
    """Draws tables with columns x1, x2, ..., time and status (1 event, 0 censored).

    With a `random_state`, generators of one seed draw the same first table, the same second one, and so on.
    """

    def __init__(self, config: SimulationConfig | None = None) -> None:
        self.config = config or SimulationConfig()
        self._drawn = 0

    @property
    def supported_types(self) -> list[str]:
        """The names that `generate` takes."""
        return list(PARAMETERS)

    def generate(
        self,
        sim_type: str,
        c_mean: float | None = None,
        u_max: float | None = None,
        c_step: float | None = None,
    ) -> "DataFrame":
        """Simulate a table; another one in each call.

        Args:
            sim_type: One of `tacit.survival.data.DESIGNS`, where their formulas are.
            c_mean: Rate (not mean, despite its name) of the censoring of weibull, lognormal and SDGM1; 0.4.
            u_max: Latest censoring of SDGM2 and SDGM3; 4.
            c_step: The delay of censoring in SDGM4, on the log scale; 0.4.

        A parameter that the design does not read is explained by a warning; the original ignored it in
        silence, even in its own documentation.
        """
        require_word("sim_type", sim_type, PARAMETERS)
        used, default = PARAMETERS[sim_type]
        given = {"c_mean": c_mean, "u_max": u_max, "c_step": c_step}
        foreign = [
            f"{name} = {value!r}" for name, value in given.items() if value is not None and name != used
        ]
        explain([f"{', '.join(foreign)} has no effect: {sim_type} is censored by {used}"] if foreign else [])
        chosen = given[used]
        value = default if chosen is None else chosen
        frame = simulate(
            sim_type,
            records=self.config.n_samples,
            features=self.config.n_features,
            seed=self._next_seed(),
            c_mean=value if used == "c_mean" else None,
            u_max=value if used == "u_max" else None,
            c_step=value if used == "c_step" else None,
        )
        return frame.rename(columns={"event": "status"})

    def _next_seed(self) -> int:
        """Return the seed of the next table; that of the first is `random_state` itself."""
        seed, number = seed_of(self.config.random_state), self._drawn
        self._drawn += 1
        return seed if number == 0 else int((Key(seed) / "table" / number).generator().integers(2**63))

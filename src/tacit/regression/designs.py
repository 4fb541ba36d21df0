"""Variables of a regression by name, and the design matrix that a site makes of its records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tacit.errors import InvalidValue, choices, require
from tacit.regression.families import ResponseFamily
from tacit.runtime.arrays import Array
from tacit.sites.table import Table

OUTCOME = "outcome"


@dataclass(frozen=True, kw_only=True)
class Variables:
    """Variables of a regression by name.

    Args:
        outcome: The target, or the feature, that is regressed.
        columns: The regressors; by default all features that have no other part.
        exposure: The column of exposures: rates are counts over it.
        offset: The column that is added to the predictor as it is.
    """

    outcome: str = OUTCOME
    columns: tuple[str, ...] = ()
    exposure: str | None = None
    offset: str | None = None

    @property
    def others(self) -> dict[str, str]:
        """Return the names of the columns that are no regressors, by their part."""
        found = {"outcome": self.outcome, "exposure": self.exposure, "offset": self.offset}
        return {part: name for part, name in found.items() if name is not None}

    def resolve(self, columns: Sequence[str], targets: Sequence[str]) -> "Variables":
        """Return these with all regressors named.

        Raises:
            InvalidValue: There is no such column, or one has two parts.
        """
        known = (*columns, *targets)
        for part, name in self.others.items():
            if name not in known:
                raise InvalidValue(f"{part} {name} is not allowed: there are {choices(known)}")
        if "weight" in targets:
            raise InvalidValue("weight is not allowed: regressions here count every record once")
        taken = list(self.others.values())
        names = self.columns or tuple(name for name in columns if name not in taken)
        missing = [name for name in names if name not in columns]
        if missing or not names:
            raise InvalidValue(f"columns {missing} are not allowed: there are {choices(columns)}")
        twice = [name for name in (*names, *taken) if (*names, *taken).count(name) > 1]
        require(
            not twice, "columns", twice[0] if twice else "", "different from outcome, exposure and offset"
        )
        return replace(self, columns=names)


@dataclass(frozen=True, eq=False)
class DesignMatrix:
    """Records of one site as a regression sees them.

    Args:
        matrix: A column of ones, then the regressors (records, 1 + columns).
        outcome: The outcomes (records,).
        offset: Known part of the predictor (records,).
    """

    matrix: Array
    outcome: Array
    offset: Array

    def __len__(self) -> int:
        return len(self.outcome)


def design_of(table: Table, variables: Variables, family: ResponseFamily, place: str) -> DesignMatrix:
    """Return the design of a table, once its outcomes are found valid.

    Args:
        table: The records.
        variables: The variables, resolved.
        family: The family of the outcome.
        place: The name of the records in errors.
    """
    outcome = column_of(table, variables.outcome)
    require(outcome.ndim == 1, "outcome", variables.outcome, "one number for each record")
    family.require_outcome(outcome, place)
    offset = np.zeros(len(table))
    if variables.offset is not None:
        offset = offset + column_of(table, variables.offset)
    if variables.exposure is not None:
        exposed = column_of(table, variables.exposure)
        if not bool((exposed > 0).all()):
            told = f"exposure {variables.exposure} in {place} is not allowed: it must be above 0"
            raise InvalidValue(told, rule=f"exposure {variables.exposure} must be above 0")
        offset = offset + np.log(exposed)
    places = [table.columns.index(name) for name in variables.columns]
    matrix = np.column_stack([np.ones(len(table)), table.features[:, places]])
    return DesignMatrix(matrix, outcome, offset)


def column_of(table: Table, name: str) -> Array:
    """Return a target, or else a feature, by its name."""
    if name in table.targets:
        return table.targets[name]
    return table.features[:, table.columns.index(name)]


def designs_of(
    tables: Mapping[str, Table], variables: Variables, family: ResponseFamily
) -> dict[str, DesignMatrix]:
    """Return the design of each site."""
    return {name: design_of(table, variables, family, f"site {name}") for name, table in tables.items()}

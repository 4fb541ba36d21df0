"""Films of a study of worlds: one episode of the final agents in each kind of world."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

from tacit.errors import TacitError
from tacit.experiments.experiment import load
from tacit.experiments.studies.base import Announce
from tacit.experiments.studies.environments.cells import experiment_for
from tacit.experiments.studies.environments.history import runs
from tacit.experiments.studies.environments.regimes import FEDERATED

if TYPE_CHECKING:
    from tacit.experiments.studies.environments.result import WorldStudyResult
    from tacit.runs.run import Run
    from tacit.sites.environments import Scenes, World


def film_worlds(studied: "WorldStudyResult", folder: Path, announce: Announce) -> dict[str, Path]:
    """A film for each kind of world, of the federated regime or else the best, with the first seed."""
    first = [one for one in runs(studied) if one[0].seed == studied.study.seeds[0]]
    if not first:
        return {}
    cell, regime, place = next(
        (one for one in first if one[1].name == FEDERATED),
        max(first, key=lambda one: studied.rows[one[0]]["scores"].get("return") or float("-inf")),
    )
    scenes = cast("Scenes | None", experiment_for(regime.experiment, cell).open_federation().held_out)
    if scenes is None:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Path] = {}
    run = load(place)
    for label, (site, world) in _stages(scenes).items():
        name = f"{regime.label.replace(' ', '-')}-{label}"
        try:
            found[name] = _film(run, site, world, folder / f"{name}.gif", cell.seed)
        except TacitError as error:
            announce(f"left out the film {name}: {error}")
    return found


def _stages(scenes: "Scenes") -> "dict[str, tuple[str, World]]":
    """One world of each kind, and whose it is."""
    found: dict[str, tuple[str, World]] = {}
    for site, world in zip(scenes.sites.tolist(), scenes.worlds, strict=True):
        found.setdefault(world.label or "world", (site, world))
    return found


def _film(run: "Run", site: str, world: "World", place: Path, seed: int) -> Path:
    """One episode of the model of a site; in a world that is nobody's, of the model of all."""
    from gymnasium.error import Error

    try:
        return (run.model if site == "" else run.model_of(site)).film(place, world, seed=seed)
    except Error as error:
        # Pictures need packages that agents do not.
        raise TacitError(f"{world.name} cannot be drawn: {error}") from error

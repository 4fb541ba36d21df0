"""A federation whose letters never leave this process: real folders, real guards, no network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tacit.deploy import folders
from tacit.deploy.coordinator.run import lay_out, run_federation
from tacit.deploy.site.config import SiteLimits
from tacit.deploy.site.guard import Guard
from tacit.engines.messages import NoReply
from tacit.experiments import experiment

OPEN = SiteLimits(epsilon=float("inf"), lifetime=float("inf"), fewest=2, trusted=True)
Spoil = Callable[[str, bytes, bytes], "bytes | NoReply"]


@dataclass
class Neighbours:
    """Sites in this process, reached by name; `spoil` may change what comes back."""

    guards: dict[str, Guard]
    spoil: Spoil | None = None
    asked: list[str] = field(default_factory=list)

    def __call__(self, sent: Mapping[str, bytes], seconds: float) -> dict[str, bytes | NoReply]:
        found: dict[str, bytes | NoReply] = {}
        for name, content in sent.items():
            self.asked.append(name)
            if name not in self.guards:
                found[name] = NoReply("absent", "no node of this site is connected")
                continue
            answer = self.guards[name].answer(content)
            found[name] = answer if self.spoil is None else self.spoil(name, content, answer)
        return found

    def wait_for_sites(self, names, seconds: float) -> frozenset[str]:
        return frozenset(names) & set(self.guards)


@dataclass
class Town:
    """A coordinator and its sites, each with its folder."""

    coordinator: Path
    sites: dict[str, Path]
    neighbours: Neighbours
    said: list[str] = field(default_factory=list)
    heard: dict[str, list[str]] = field(default_factory=dict)

    def run(self, out: Path, *, resume: bool = False, shown=None):
        return run_federation(
            lambda greet, recognise: self._met(greet, recognise), self.coordinator, out, resume=resume,
            told=self.said.append, shown=shown,
        )  # fmt: skip

    def _met(self, greet: bytes, recognise):
        for name, guard in self.neighbours.guards.items():
            assert recognise(guard.answer(greet)) == name
        return self.neighbours

    def restart(self, name: str) -> None:
        """The guard of a site, as after its machine was started again."""
        if name in self.neighbours.guards:
            self.neighbours.guards[name].close()
        self.neighbours.guards[name] = Guard(self.sites[name], self.heard.setdefault(name, []).append)


def town(
    document: dict[str, Any], tables: Mapping[str, dict[str, Any]], out: Path, limits: SiteLimits = OPEN
) -> Town:
    made = folders.write(
        document, tables, out, host="127.0.0.1", port=9999, limits=dict.fromkeys(tables, limits)
    )
    found = Town(made.coordinator, made.sites, Neighbours({}))
    for name in tables:
        found.restart(name)
    return found


def handed(file: str | Path, changes: list[str], out: Path, limits: SiteLimits = OPEN, edit=None):
    """A town for an experiment whose data are in one place, that experiment, and its federation."""
    chosen = experiment.read(file, changes)
    federation = chosen.open_federation()
    document, tables = lay_out(chosen, federation, out)
    if edit is not None:
        edit(document)
    return town(document, tables, out, limits), replace(chosen, baselines=False), federation

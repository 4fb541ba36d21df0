"""Where worlds come from in an experiment file: variants of a Gymnasium environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tacit.control.tasks import PPO
from tacit.errors import choices, require, require_count
from tacit.learning.record import describe
from tacit.privacy.contracts import Layout
from tacit.runtime.limits import MOST_STEPS
from tacit.sites.environments import Physics, Variants, World, Worlds


@dataclass(frozen=True, kw_only=True)
class Gymnasium:
    """Any Gymnasium environment with discrete actions; [sites] says how the worlds of the sites differ.

    Args:
        env: Its id.
        world: Who computes it while agents train: `gymnasium`, or `fast-lander`, a compiled copy of
            LunarLander-v3. Agents are judged in Gymnasium whatever they trained in.
        options: Keyword arguments of all worlds.
        unseen: Keyword arguments of worlds that nobody trains in, by their names; agents are judged in them.
        episodes: How many episodes agents are judged by in each world.
        watch: How many are enough to follow a run by, after every round.
    """

    env: str = "CartPole-v1"
    world: Physics = "gymnasium"
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unseen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    episodes: int = 20
    watch: int = 3
    kind: ClassVar[str] = "gymnasium"
    layout: ClassVar[Layout] = "environments"
    public: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_count("episodes", self.episodes, MOST_STEPS)
        require_count("watch", self.watch, MOST_STEPS)
        require(self.env != "", "env", self.env, 'the id of a Gymnasium environment, such as "CartPole-v1"')
        _ = self.base

    @property
    def base(self) -> World:
        """The environment as it is at every site, before anything varies."""
        return World(self.env, dict(self.options), self.world)

    @property
    def public_records(self) -> int | None:
        """There are no records."""
        return None

    def check(self, sites: Variants, *, may_look: bool = False) -> None:
        """Refuse environments that are not there, or options that they do not have, before anything runs."""
        for label in self.unseen:
            known = f"worlds that no site trains in, not {choices(sites.variants)}"
            require(label not in sites.worlds, "[data] unseen", label, known)
        _ = self._spaces(sites)

    def size_task(self, task: PPO, sites: Variants) -> PPO:
        """The task, knowing how large observations are and how many actions there are."""
        return task.with_spaces(*self._spaces(sites))

    def _spaces(self, sites: Variants) -> tuple[int, int]:
        from tacit.control.envs.checks import common_spaces

        trained: dict[str, list[World]] = {}
        for world in sites.extremes(self.base):
            trained.setdefault(f"[sites.{world.label}]" if sites.worlds else "[data]", []).append(world)
        judged = {
            f"[data.unseen.{label}]": (replace(self.base, options={**self.options, **options}),)
            for label, options in self.unseen.items()
        }
        return common_spaces({**trained, **judged})

    def open(self, split: Variants, seed: int, *, may_look: bool = False) -> Worlds:
        """The sites with their worlds."""
        told = {"data": describe(self), "sites": describe(split)}
        return split.build_federation(
            self.base,
            seed,
            unseen=self.unseen,
            episodes=self.episodes,
            watch=self.watch,
            public=True,
            origin=told,
        )


SOURCES = {Gymnasium.kind: Gymnasium}

"""Environments of an experiment file: variants of one in Gymnasium, or remote ones of the sites.

For environments that are at the sites, the file names the environment and what of it is public; how the world
of a site differs from that is the site's own business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tacit.control.tasks import PPO
from tacit.errors import MOST_STEPS, InvalidValue, choices, require, require_count, require_word
from tacit.learning.record import describe
from tacit.privacy.contracts import Layout
from tacit.runtime.tables import construct
from tacit.sites.environments import EnvFederation, Physics, Scenes, Variants, World
from tacit.sites.remote import RemoteEnvFederation, require_member, require_named_sites
from tacit.sites.source import SourceBase
from tacit.sites.splits import NamedSites, SplitBase


@dataclass(frozen=True, kw_only=True)
class Gymnasium(SourceBase):
    """Any Gymnasium environment with discrete actions; [sites] varies it between sites.

    Args:
        env: The id of the environment.
        world: The implementation that agents train in: `gymnasium`, or `fast-lander`, a compiled copy of
            LunarLander-v3. Agents are always evaluated in Gymnasium.
        options: Keyword arguments of all environments.
        unseen: Keyword arguments, by name, of environments that no site trains in; agents are evaluated in
            them.
        episodes: Number of evaluation episodes in each environment.
        watch: Number of evaluation episodes after every round, to follow the run.
    """

    env: str = "CartPole-v1"
    world: Physics = "gymnasium"
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unseen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    episodes: int = 20
    watch: int = 3
    kind: ClassVar[str] = "gymnasium"
    layout: ClassVar[Layout] = "environments"
    public = True

    def __post_init__(self) -> None:
        require_count("episodes", self.episodes, MOST_STEPS)
        require_count("watch", self.watch, MOST_STEPS)
        require(self.env != "", "env", self.env, 'the id of a Gymnasium environment, such as "CartPole-v1"')
        _ = self.base

    @property
    def base(self) -> World:
        """Environment common to all sites, before anything varies."""
        return World(self.env, dict(self.options), self.world)

    def check(self, split: Variants, *, may_look: bool = False) -> None:
        """Refuse unknown environments and unknown options, before anything runs."""
        for label in self.unseen:
            known = f"worlds that no site trains in, not {choices(split.variants)}"
            require(label not in split.worlds, "[data] unseen", label, known)
        _ = self._spaces(split)

    def size_task(self, task: Any, split: Variants) -> Any:  # noqa: ANN401
        """Return a PPO task with the sizes of observations and actions."""
        return task.with_spaces(*self._spaces(split)) if isinstance(task, PPO) else task

    def _spaces(self, sites: Variants) -> tuple[int, int]:
        from tacit.control.envs.spaces import common_spaces

        trained: dict[str, list[World]] = {}
        for world in sites.extremes(self.base):
            trained.setdefault(f"[sites.{world.label}]" if sites.worlds else "[data]", []).append(world)
        judged = {
            f"[data.unseen.{label}]": (replace(self.base, options={**self.options, **options}),)
            for label, options in self.unseen.items()
        }
        return common_spaces({**trained, **judged})

    def open(self, split: Variants, seed: int, *, may_look: bool = False) -> EnvFederation:
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


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Difference of a world from the public one.

    Args:
        options: Its keyword arguments, beside those of all worlds.
        label: The name for worlds of this kind, such as `moon`.
    """

    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class SiteVariant(Variant):
    """A world in a site's own settings.

    Args:
        env: The id of its environment: a site opens what it names itself, whatever it is asked for.
    """

    env: str


@dataclass(frozen=True, kw_only=True)
class SiteWorldsConfig:
    """A site's own settings for its worlds.

    Args:
        worlds: Each of them, with its `env`, its `options` and, at will, a `label`.
    """

    worlds: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class RemoteWorlds(SourceBase):
    """Remote environments: the agreement with sites that hold them on machines of their own.

    Args:
        env: The id of the environment, the same everywhere.
        world: The implementation that agents train in: `gymnasium`, or `fast-lander`.
        options: Keyword arguments of all environments, known to every site.
        scenes: Environments of sites in which agents are evaluated, by the site: `options` and `label` of
            each.
        unseen: Keyword arguments, by name, of environments that no site trains in; agents are evaluated in
            them.
        episodes: Number of evaluation episodes in each environment.
        watch: Number of evaluation episodes after every round, to follow the run.
        public: The environments of the sites are public.
    """

    env: str
    world: Physics = "gymnasium"
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    scenes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    unseen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    episodes: int = 20
    watch: int = 3
    public: bool = False
    kind: ClassVar[str] = "held-worlds"
    layout: ClassVar[Layout] = "environments"
    distant: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_count("episodes", self.episodes, MOST_STEPS)
        require_count("watch", self.watch, MOST_STEPS)
        # Gymnasium would load the module before a colon, and a site runs no code from another party.
        plain = self.env != "" and ":" not in self.env
        require(plain, "env", self.env, 'the id of a Gymnasium environment, such as "CartPole-v1"')
        _ = self.base, self._judged

    @property
    def base(self) -> World:
        """Environment that all parties know."""
        return World(self.env, dict(self.options), self.world)

    def check(self, split: SplitBase, *, may_look: bool = False) -> None:
        """Refuse environments that are not installed, and scenes of unknown sites."""
        require_named_sites(split, self.kind)
        assert isinstance(split, NamedSites)
        for name in self.scenes:
            require_word("[data] scenes", name, split.names)
        _ = self._spaces()

    def size_task(self, task: Any, split: NamedSites) -> Any:  # noqa: ANN401
        """Return a PPO task with the sizes of observations and actions."""
        return task.with_spaces(*self._spaces()) if isinstance(task, PPO) else task

    def open(self, split: NamedSites, seed: int, *, may_look: bool = False) -> RemoteEnvFederation:
        """The sites, without their worlds."""
        judged, scenes = self._judged, None
        if judged:
            names, worlds = zip(*judged, strict=True)
            told = np.array(names, dtype=np.str_)
            scenes = Scenes(worlds, told, episodes=self.episodes, seed=seed, watch=self.watch)
        return RemoteEnvFederation(
            dict.fromkeys(split.names, self.base),
            scenes=scenes,
            public=self.public,
            scenes_public=True,
            origin={"data": describe(self), "sites": describe(split)},
        )

    def at_site(
        self,
        name: str,
        holding: Mapping[str, Any],
        folder: Path,
        *,
        sites: NamedSites | None = None,
        task: object = None,
    ) -> EnvFederation:
        """The federation of one site, with its worlds, as its settings describe them.

        Args:
            name: The site.
            holding: The table [data] of its settings.
            folder: Their folder.
            sites: The participating sites, if they are to be checked.
            task: The task.

        Raises:
            TacitError: An error that its administrator can mend, by the names of fields; no value of an
                option is in it.
        """
        require_member(name, sites)
        held = construct(SiteWorldsConfig, "data", dict(holding))
        require(len(held.worlds) > 0, "[data] worlds", list(held.worlds), "at least one world")
        worlds = [
            self._site_world(place, construct(SiteVariant, f"data.worlds, entry {place}", dict(entry)))
            for place, entry in enumerate(held.worlds, start=1)
        ]
        return EnvFederation({name: worlds}, public=self.public)

    @property
    def _judged(self) -> list[tuple[str, World]]:
        """Return the worlds that agents are judged in, with their sites."""
        told = {
            name: construct(Variant, f"data.scenes.{name}", dict(entry))
            for name, entry in self.scenes.items()
        }
        found = [(name, self._variant_world(variant)) for name, variant in told.items()]
        for label, options in self.unseen.items():
            trained = {variant.label for variant in told.values()}
            require(label not in trained, "unseen", label, "worlds that no site trains in")
            found.append(("", self._variant_world(Variant(options=options, label=label))))
        return found

    def _variant_world(self, variant: Variant) -> World:
        return replace(self.base, options={**self.options, **variant.options}, label=variant.label)

    def _site_world(self, place: int, own: SiteVariant) -> World:
        """Check that a site's environment has the spaces of the public one, and return it."""
        from tacit.control.envs.spaces import common_spaces

        where = f"[data] worlds, entry {place}"
        require(own.env == self.env, f"{where}, env", own.env, f"{self.env!r}, as in the experiment")
        inputs, actions = self._spaces()
        world = self._variant_world(own)
        try:
            same = common_spaces({where: (world,)}) == (inputs, actions)
        except InvalidValue:
            same = False
        if not same:
            given = ", ".join(sorted(own.options)) or "none"
            # The environment's own message holds values of its options, which stay here.
            raise InvalidValue(
                f"{where} does not match the agreement: with its options ({given}) it must open as "
                f"{self.env}, and have {inputs} observed numbers and {actions} actions, like the public one"
            ) from None
        return world

    def _spaces(self) -> tuple[int, int]:
        from tacit.control.envs.spaces import common_spaces

        judged = {f"[data.scenes.{name}]": (world,) for name, world in self._judged if name}
        unseen = {f"[data.unseen.{world.label}]": (world,) for name, world in self._judged if not name}
        return common_spaces({"[data]": (self.base,), **judged, **unseen})


SOURCES = {Gymnasium.kind: Gymnasium}
REMOTE_SOURCES = {RemoteWorlds.kind: RemoteWorlds}

"""Sites that hold worlds instead of records: each has an environment of its own to learn in.

A world is opened where it is used, when it is used, and closed after that. What happens in it stays there.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import (
    MOST_SITES,
    MOST_STEPS,
    InvalidValue,
    quote,
    require,
    require_count,
    require_extra,
    require_word,
)
from tacit.runtime.contracts import Layout
from tacit.runtime.keys import Key
from tacit.runtime.sketches import Sketch
from tacit.sites.federation import Cohort, Federation, Site
from tacit.sites.names import require_site_name
from tacit.sites.splits import SplitBase
from tacit.sites.table import Table

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec

# The implementation that steps a world while an agent trains: Gymnasium, or our own compiled copy of it.
Physics = Literal["gymnasium", "fast-lander"]
LANDER = "LunarLander-v3"
# The default number of sites of a world.
USUAL_COPIES = 3
# The empty table of a site with worlds.
NOTHING = Table(np.zeros((0, 0)), {}, ())


@dataclass(frozen=True)
class World:
    """An environment and its keyword arguments.

    Args:
        env: The id of a Gymnasium environment, or a function that makes one.
        options: Keyword arguments for it, such as `gravity`.
        physics: The implementation that steps it while an agent trains; agents are always evaluated in
            Gymnasium.
        label: The name of this kind of world, such as `moon`.
    """

    env: "str | Callable[..., gymnasium.Env[Any, Any]]"
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    physics: Physics = "gymnasium"
    label: str = ""

    def __post_init__(self) -> None:
        require_word("world", self.physics, ("gymnasium", "fast-lander"))
        named = callable(self.env) or (type(self.env) is str and self.env != "")
        require(named, "env", self.env, "the id of a Gymnasium environment, or a function that makes one")
        if self.physics == "fast-lander" and self.env != LANDER:
            raise InvalidValue(
                f'world = "fast-lander" is not allowed for env = {self.name!r}: it must be {LANDER!r}; leave '
                "it out elsewhere"
            )

    @property
    def name(self) -> str:
        """Name of the environment."""
        if isinstance(self.env, str):
            return self.env
        # A function has these names, an object that is called may not.
        return f"{getattr(self.env, '__module__', '')}:{getattr(self.env, '__qualname__', repr(self.env))}"

    @property
    def repeats(self) -> bool:
        """True if equal seeds surely give equal episodes: Gymnasium's own environments do."""
        spec = self._spec
        if spec is None or not str(spec.entry_point).startswith("gymnasium.envs."):
            return False
        return not spec.nondeterministic and not spec.additional_wrappers and self._written is not None

    @property
    def _spec(self) -> "EnvSpec | None":
        """Gymnasium's spec of the environment, if it is registered."""
        if not isinstance(self.env, str):
            return None
        require_extra("gymnasium", "control", f"env = {quote(self.env)}")
        import gymnasium

        return gymnasium.registry.get(self.env)

    @property
    def _written(self) -> bytes | None:
        """Return the canonical text of all its options; None if some cannot be written."""
        spec = self._spec
        registered = () if spec is None else (str(spec.entry_point), spec.kwargs, spec.max_episode_steps)
        told = (self.name, sorted(self.options.items()), self.physics, self.label, registered)
        try:
            return msgspec.json.encode(told)
        except (TypeError, ValueError, OverflowError):
            return None

    def make(self, render_mode: str | None = None) -> "gymnasium.Env[Any, Any]":
        """Make the environment itself, time limit and all; the caller closes it."""
        shown: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
        if not isinstance(self.env, str):
            return self.env(**self.options, **shown)
        require_extra("gymnasium", "control", f"env = {quote(self.env)}")
        import gymnasium

        with warnings.catch_warnings():
            # Other packages' plans must not end a program that takes warnings seriously.
            warnings.simplefilter("ignore", DeprecationWarning)
            return gymnasium.make(self.env, disable_env_checker=True, **self.options, **shown)

    def digest(self) -> bytes:
        """Return a digest of the world."""
        # Worlds that cannot be serialized do not repeat either, so no result depends on this.
        unsaid = repr((self.name, sorted(self.options), self.physics, self.label)).encode()
        return hashlib.sha256(self._written or unsaid).digest()


@dataclass(frozen=True, eq=False)
class Scenes:
    """Evaluation of agents: some worlds, and the number of episodes in each.

    Args:
        worlds: The worlds.
        sites: The site of each world; empty for an unseen world, in which no site trains.
        episodes: The number of episodes in each.
        seed: The seed of the episodes; never one of training.
        final: True for the final evaluation, which is played in Gymnasium itself.
        watch: The number of episodes to follow a run by.
    """

    worlds: tuple[World, ...]
    sites: NDArray[np.str_]
    episodes: int = 20
    seed: int = 0
    final: bool = True
    watch: int = 3

    def __post_init__(self) -> None:
        require_count("episodes", self.episodes, MOST_STEPS)
        require_count("watch", self.watch, MOST_STEPS)
        given = f"{len(self.sites)} sites for {len(self.worlds)} worlds"
        require(len(self.sites) == len(self.worlds), "sites", given, "one for each world, or empty")

    def __len__(self) -> int:
        return len(self.worlds)

    @property
    def at_a_glance(self) -> "Scenes":
        """The same worlds, other and fewer episodes in them: enough to follow a run by."""
        return replace(self, episodes=self.watch, seed=self.seed + 1, final=False)

    def take(self, rows: ArrayLike | slice, place: str | None = None) -> "Scenes":
        """The scenes at these positions."""
        chosen = np.arange(len(self))[rows if isinstance(rows, slice) else np.asarray(rows, dtype=np.int64)]
        worlds = tuple(self.worlds[int(row)] for row in chosen)
        return replace(self, worlds=worlds, sites=self.sites[chosen])

    def digest(self) -> bytes:
        """Return a digest of the scenes."""
        told = repr((self.sites.tolist(), self.episodes, self.seed)).encode()
        return hashlib.sha256(told + b"".join(world.digest() for world in self.worlds)).digest()


class EnvFederation(Federation):
    """Federation of sites that hold environments.

    Args:
        worlds: The world of each site, by the site's name; or several, where it has several.
        scenes: The evaluation of agents; without it, there are no scores.
        public: True if the worlds are public, such as simulations that the file describes.
        scenes_public: True if the evaluation worlds are public.
        origin: The tables of the experiment file that these worlds come from.
    """

    layout: ClassVar[Layout] = "environments"

    def __init__(
        self,
        worlds: Mapping[str, World | Sequence[World]],
        *,
        scenes: Scenes | None = None,
        public: bool = False,
        scenes_public: bool = False,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        require(bool(worlds), "sites", "none", "at least one site")
        self.holdings: dict[str, tuple[World, ...]] = {}
        for name, given in worlds.items():
            held = (given,) if isinstance(given, World) else given
            listed: list[object] = [*held] if isinstance(held, list | tuple) else [None]
            several = all(isinstance(world, World) for world in listed)
            require(several, f"site {name}", given, "a World, or a list of them")
            self.holdings[name] = tuple(held)
            if not held:
                raise InvalidValue(f"site {name} has no environment: give it a world, or leave it out")
        self._sites = {name: EnvSite(name, NOTHING, held) for name, held in self.holdings.items()}
        for name in set(() if scenes is None else scenes.sites.tolist()) - {""}:
            require_word("scenes", name, self._sites)
        super().__init__(
            held_out=scenes, held_out_public=scenes_public or public, public=public, origin=origin
        )

    @classmethod
    def of(
        cls,
        env: "str | Callable[..., gymnasium.Env[Any, Any]]",
        *,
        world: Physics = "gymnasium",
        copies: int | None = None,
        vary: Mapping[str, tuple[float, float]] | None = None,
        unseen: Mapping[str, Mapping[str, Any]] | None = None,
        episodes: int = 20,
        seed: int = 0,
        public: bool | None = None,
        **worlds: Mapping[str, Any],
    ) -> "EnvFederation":
        """Make sites in variants of one environment: `tacit.Worlds.of("CartPole-v1", copies=3)`.

        Args:
            env: The environment.
            world: The implementation that steps it while agents train.
            copies: The number of sites of each variant.
            vary: Keyword arguments that each copy after the first draws for itself, each with its range.
            unseen: Variants in which no site trains, by their names; agents are evaluated in them as well.
            episodes: The number of evaluation episodes in each world.
            seed: The seed of the draws.
            public: True if these worlds are public: by default for ids, not for functions. Agents in private
                worlds are evaluated in unseen ones.
            worlds: The keyword arguments of each variant, by its name.
        """
        split = Variants(copies=copies, vary=dict(vary or {}), worlds=dict(worlds))
        known = isinstance(env, str) if public is None else public
        return split.build_federation(
            World(env, physics=world), seed, unseen=unseen or {}, episodes=episodes, public=known
        )

    def __getitem__(self, name: str) -> "EnvSite":
        return self._sites[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sites)

    def __len__(self) -> int:
        return len(self._sites)

    def cohort(self, names: Sequence[str]) -> Cohort:
        """These sites, in this order, with their worlds."""
        nothing = np.zeros(len(names), dtype=np.int64)
        held = tuple(self.holdings[name] for name in names)
        return Cohort(tuple(names), NOTHING, nothing, nothing, None, held)

    def records_of(self, name: str) -> Table:
        """Return an empty table: worlds have no rows."""
        return self._sites[name].table

    def pool(self) -> "EnvFederation":
        """Return all worlds at one site: the pooled baseline."""
        return EnvFederation({"pooled": [world for held in self.holdings.values() for world in held]})

    def _views(self) -> tuple[Sketch, ...]:
        # Worlds have no records.
        return ()

    def digest(self) -> bytes:
        """Hash the worlds of all sites and those that agents are judged in."""
        held_out = b"" if self.held_out is None else self.held_out.digest()
        told = [name.encode() + b"".join(map(World.digest, held)) for name, held in self.holdings.items()]
        return hashlib.sha256(b"\0".join(told) + held_out).digest()


@dataclass(frozen=True)
class EnvSite(Site):
    """One holder of worlds: its name, which is public, and its worlds, which stay with it."""

    worlds: tuple[World, ...] = ()

    def __post_init__(self) -> None:
        require_site_name("site", self.name, of="world")


@dataclass(frozen=True, kw_only=True)
class Variants(SplitBase):
    """Sites in variants of one environment; every table [sites.NAME] is one, its keyword arguments in it.

    Args:
        copies: Number of sites of each variant: `moon-1`, `moon-2`, ...; by default 3 if no variant is named,
            else 1.
        vary: Keyword arguments that each copy after the first draws for itself, with the limits of the draw.
        worlds: The keyword arguments of each variant, by its name.
        scenes: Number of copies of each variant whose environments are used for evaluation.
    """

    copies: int | None = None
    vary: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    worlds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    scenes: int = 3
    kind: ClassVar[str] = "variants"
    layout: ClassVar[Layout] = "environments"

    def __post_init__(self) -> None:
        if self.copies is not None:
            require_count("copies", self.copies, MOST_SITES)
        require_count("scenes", self.scenes, MOST_SITES)
        for name, ends in self.vary.items():
            fits = len(ends) == 2 and ends[0] <= ends[1]
            require(fits, f"vary.{name}", list(ends), "two numbers, the smaller one first")
        for name, options in self.worlds.items():
            require_site_name("site", name, of="world")
            # From a file, it may be anything.
            told = cast(object, options)
            require(isinstance(told, Mapping), name, options, "keyword arguments of the environment")

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> dict[str, Any]:
        """A table of a file with its own tables as the variants that they name."""
        known = set(cls.__dataclass_fields__)
        named = {key: table[key] for key in table if isinstance(table[key], dict) and key not in known}
        rest = {key: value for key, value in table.items() if key not in named}
        return {**rest, "worlds": {**rest.get("worlds", {}), **named}} if named else rest

    @property
    def each(self) -> int:
        """Number of sites of each variant."""
        return self.copies if self.copies is not None else 1 if self.worlds else USUAL_COPIES

    @property
    def variants(self) -> dict[str, Mapping[str, Any]]:
        """The keyword arguments of each variant; one that has no name is like all others."""
        return dict(self.worlds) or {"site": {}}

    @property
    def names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride] computed
        """Names of the sites; copies of one environment are adjacent."""
        return tuple(name for label in self.variants for name in self._site_names(label))

    def _site_names(self, label: str) -> list[str]:
        alone = self.each == 1 and bool(self.worlds)
        return [label] if alone else [f"{label}-{number}" for number in range(1, self.each + 1)]

    def extremes(self, base: World) -> list[World]:
        """Return each variant unchanged, and with every varied argument at either end of its range."""
        ends = [{name: ends[at] for name, ends in self.vary.items()} for at in (0, 1)] if self.vary else []
        return [
            replace(base, options={**base.options, **options, **end}, label=label)
            for label, options in self.variants.items()
            for end in ({}, *ends)
        ]

    def build_federation(
        self,
        base: World,
        seed: int,
        *,
        unseen: Mapping[str, Mapping[str, Any]],
        episodes: int,
        watch: int = 3,
        public: bool = True,
        origin: Mapping[str, Any] | None = None,
    ) -> EnvFederation:
        """The sites with their worlds, and where their agents are judged."""
        held: dict[str, World] = {}
        judged: list[tuple[str, World]] = []
        for label, options in self.variants.items():
            kind = label if self.worlds else ""
            for place, name in enumerate(self._site_names(label)):
                drawn = self._draw_options(Key(seed) / "worlds" / name) if place else {}
                held[name] = replace(base, options={**base.options, **options, **drawn}, label=kind)
                judged += [(name, held[name])] if public and place < self.scenes else []
        for label, options in unseen.items():
            require(label not in self.variants, "unseen", label, "worlds that no site trains in")
            judged.append(("", replace(base, options={**base.options, **options}, label=label)))
        scenes = None
        if judged:
            names, worlds = zip(*judged, strict=True)
            told = np.array(names, dtype=np.str_)
            scenes = Scenes(worlds, told, episodes=episodes, seed=seed, watch=watch)
        return EnvFederation(held, scenes=scenes, public=public, scenes_public=True, origin=origin)

    def _draw_options(self, key: Key) -> dict[str, float]:
        return {
            name: round(float((key / name).generator().uniform(low, high)), 4)
            for name, (low, high) in self.vary.items()
        }

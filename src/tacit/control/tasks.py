"""PPO task: agents that learn by proximal policy optimization, each site in worlds of its own.

The state is the weights of the networks. Environments are opened for a round of local work and closed after
it, so that a site keeps nothing from round to round and a run can be taken up at any of them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from tacit.control.config import PPOConfig
from tacit.control.networks import NetworkShape
from tacit.errors import (
    MOST_ENVS,
    MOST_STEPS,
    InvalidValue,
    Refused,
    require,
    require_count,
    require_hidden,
    require_positive,
    require_word,
)
from tacit.learning.query import InitialQueryBase, Updates
from tacit.learning.record import Round, Simplest, identity_of
from tacit.learning.task import Goal, TaskBase
from tacit.privacy.contracts import Layout, Norm
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import BOUND, fields_of
from tacit.runtime.keys import Key
from tacit.runtime.threads import cores, one_thread
from tacit.sites.environments import EnvFederation, Scenes, World
from tacit.sites.federation import Cohort, Federation

if TYPE_CHECKING:
    from tacit.control.agents.policy import Policy
    from tacit.control.rollout import Episodes
    from tacit.reports.page.blocks import Figure

# Recorded series of a site's training episodes.
EPISODES = ("returns", "lengths", "steps")
# Number of episodes that a site plays with a model to see whether it fits.
TRIED = 5


# Number of random steps of a site for its observation statistics, and of copies of its world.
LOOKED, COPIES = 512, 4
# Scales below this part of the limit are noise, or numbers that never change.
FINEST = 1e-3


@dataclass(frozen=True, kw_only=True)
class ObservationStatsQuery(InitialQueryBase):
    """Means and squares of observations under random actions, each number clipped to a public limit.

    Args:
        inputs: Number of entries of an observation.
        limit: Clip bound of an entry.
    """

    inputs: int
    limit: float
    kind: ClassVar[str] = "observations"
    share: ClassVar[float] = 0.05
    # A query is needed even for public worlds: their observations are not in any file.
    always: ClassVar[bool] = True

    def record_bound(self, norm: Norm) -> float:
        """Whole sites alone are protected: a site's answer is bounded like its updates."""
        return 1.0

    @property
    def width(self) -> int:
        """A mean and a mean square of each number, and a one."""
        return 2 * self.inputs + 1

    @property
    def placeholder(self) -> dict[str, Any]:
        """Center 0 and scale 1."""
        return {"center": (0.0,) * self.inputs, "scale": (1.0,) * self.inputs}

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Compute the observation statistics of each site, in units of the limit: the answer has a bound."""
        rows = [
            self._moments(held, f"site {name}", key / name)
            for held, name in zip(cohort.holdings, cohort.names, strict=True)
        ]
        return Updates(cohort.names, np.stack(rows))

    def _moments(self, worlds: Sequence[World], place: str, key: Key) -> Array:
        from tacit.control.envs.spaces import random_observations

        shown = np.clip(random_observations(worlds, LOOKED, COPIES, place, key) / self.limit, -1.0, 1.0)
        return np.concatenate([shown.mean(axis=0), (shown**2).mean(axis=0), [1.0]]) / np.sqrt(self.width)

    def decode(self, combined: Array, noise: float = 0.0) -> dict[str, Any]:
        """Decode center and scale of every number; a scale stays sensible under any noise."""
        found = combined.astype(np.float64)
        # The last entry counts the ones; it is kept above the noise.
        ones = max(float(found[-1]), 4 * noise, 1e-12)
        means = np.clip(found[: self.inputs] / ones, -1.0, 1.0)
        squares = np.clip(found[self.inputs : -1] / ones, 0.0, 1.0)
        spread = np.sqrt(np.clip(squares - means**2, FINEST**2, 1.0))
        return {
            "center": tuple((self.limit * means).tolist()),
            "scale": tuple((self.limit * spread).tolist()),
        }


@dataclass(frozen=True, kw_only=True)
class PPO(PPOConfig, TaskBase):  # pyright: ignore[reportIncompatibleVariableOverride] its batch is set
    """Proximal policy optimization (PPO) with discrete actions and observations that can be flattened.

    Args:
        hidden: Widths of the hidden layers of actor and critic; an empty list gives linear policies.
        envs: Number of copies of its environment that a site steps at once.
        steps: Number of environment steps of a site in a round, over all copies, exactly.
        rollout: Number of environment steps before each update; by default all steps of the round.
        share: `all` shares actor and critic; `actor` shares the actor alone, and each site trains a critic of
            its own in every round.
        anneal: Decrease `lr` linearly to 0 over the rounds.
        normalise: Scaling of observations: `given` public numbers (`center`, `scale`), or statistics that the
            `sites` release before the first round.
        center: Public number that is subtracted from each entry of an observation.
        scale: Public number that each entry is divided by after that.
        limit: Clip bound of an entry of an observation, where sites release statistics.
        snapshots: Interval of rounds at which the weights of every site are kept; by default never.
        inputs: Number of entries of an observation; filled in from the environments, like the options after
            it.
        actions: Number of actions.
        env: The id of the environment, if all sites have the same.
        tells: Training episodes may be reported.
        repeats: The same seeds give the same episodes.
    """

    hidden: tuple[int, ...] = (64, 64)
    envs: int = 4
    steps: int = 4096
    rollout: int | None = None
    share: Literal["all", "actor"] = "all"
    anneal: bool = False
    normalise: Literal["given", "sites"] = "given"
    center: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    limit: float = 10.0
    snapshots: int | None = None
    inputs: int | None = field(default=None, metadata=BOUND)
    actions: int | None = field(default=None, metadata=BOUND)
    env: str | None = field(default=None, metadata=BOUND)
    tells: bool = field(default=False, metadata=BOUND)
    repeats: bool = field(default=False, metadata=BOUND)
    kind: ClassVar[str] = "ppo"
    layout: ClassVar[Layout] = "environments"
    # Defaults of an experiment file.
    usual: ClassVar[Mapping[str, Any]] = {"rounds": 20, "data": "gymnasium", "sites": "variants"}

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, given in fields_of(self, ("hidden", "center", "scale")).items():
            # A choice from a file and the same one from Python compare equal.
            require(isinstance(given, list | tuple), name, given, "a list of numbers")
            object.__setattr__(self, name, tuple(given))
        require_count("envs", self.envs, MOST_ENVS)
        require_count("steps", self.steps, MOST_STEPS)
        for name, given in fields_of(self, ("rollout", "snapshots")).items():
            if given is not None:
                require_count(name, given, MOST_STEPS)
        require_hidden(self.hidden)
        require_word("share", self.share, ("all", "actor"))
        require_word("normalise", self.normalise, ("given", "sites"))
        each, name = self.rollout or self.steps, "steps" if self.rollout is None else "rollout"
        require(each % self.envs == 0, name, each, f"a multiple of envs = {self.envs}: none is made up")
        require(self.steps % each == 0, "steps", self.steps, f"a multiple of rollout = {each}")
        above = all(0 < value < math.inf for value in self.scale)
        require(above, "scale", list(self.scale), "finite numbers above 0")
        require(all(map(math.isfinite, self.center)), "center", list(self.center), "finite numbers")
        require_positive("limit", self.limit)

    @property
    def identity(self) -> str | None:
        """Identity by its options, where the same seeds are sure to give the same episodes."""
        return identity_of(self) if self.repeats else None

    @property
    def goal(self) -> Goal:
        """Return the episode return as the goal."""
        return ("return", "max")

    @property
    def separable(self) -> bool:
        """Return False: there are no records."""
        return False

    @property
    def initial_query(self) -> ObservationStatsQuery | None:
        """Return the query for observation statistics, if observations are scaled by these."""
        asked = self.normalise == "sites" and self.inputs is not None
        return ObservationStatsQuery(inputs=self.inputs, limit=self.limit) if asked and self.inputs else None

    @property
    def shape(self) -> NetworkShape:
        """Shape of the networks."""
        if self.inputs is None or self.actions is None:
            raise InvalidValue(
                "inputs and actions are not known yet: tacit.fit reads them from the environments"
            )
        return NetworkShape(self.inputs, tuple(self.hidden), self.actions)

    @property
    def blocks(self) -> tuple[int, ...]:
        """The parts of an update: actor and critic, which learn at paces of their own."""
        return (self.shape.actor, self.shape.critic) if self.share == "all" else (self.shape.actor,)

    @property
    def width(self) -> int:
        """Number of shared coordinates."""
        return sum(self.blocks)

    def with_privacy(self, privacy: Privacy | Open) -> Self:
        """Return this task; refuse record-level privacy, as there are no records."""
        if isinstance(privacy, Privacy) and privacy.unit == "record":
            raise Refused(
                'unit = "record" does not go with ppo: an environment has no records, and episodes depend on '
                'one another. Use unit = "site".'
            )
        return self

    def with_spaces(self, inputs: int, actions: int) -> Self:
        """Return this task for observations of `inputs` numbers, and `actions` actions.

        Raises:
            InvalidValue: `center` or `scale` are not of that length.
        """
        for name, given, found in (("inputs", self.inputs, inputs), ("actions", self.actions, actions)):
            require(given in (None, found), name, given, f"{found}, as in the worlds, or left out")
        for name, given in (("center", self.center), ("scale", self.scale)):
            allowed = f"{inputs}, one for each number of an observation, or left out"
            require(len(given) in (0, inputs), name, f"{len(given)} numbers", allowed)
        return replace(self, inputs=inputs, actions=actions)

    def bind(self, federation: Federation, provenance: Provenance) -> Self:
        """Bind the task to the environments of a federation, each of which is opened once.

        Raises:
            InvalidValue: A world cannot be opened, is unlike others, or shows what is no number.
        """
        assert isinstance(federation, EnvFederation), "the run has read the data"
        from tacit.control.envs.spaces import common_spaces

        held = {f"site {name}": worlds for name, worlds in federation.holdings.items()}
        judged = federation.held_out.worlds if isinstance(federation.held_out, Scenes) else ()
        inputs, actions = common_spaces({**held, "the scenes": judged})
        told = provenance.allowed
        if told:
            provenance.look("returns and lengths of training episodes", instead="do without them")
        if not federation.public:
            provenance.declare_public(
                ["the name of the environment, and how large observations and choices are"]
            )
        worlds = [world for part in federation.holdings.values() for world in part]
        names = {world.env for world in worlds}
        env = next(iter(names)) if len(names) == 1 else None
        return replace(
            self.with_spaces(inputs, actions),
            env=env if isinstance(env, str) else None,
            tells=told,
            repeats=all(world.repeats for world in worlds),
        )

    def at_round(self, number: int, rounds: int) -> Self:
        """Return the task with the learning rate of a round."""
        return replace(self, lr=self.lr * (1 - (number - 1) / rounds)) if self.anneal else self

    def start(self, federation: Federation, key: Key) -> Array:
        """Return initial weights, under which all actions are about equally likely."""
        return self.shape.start(key.generator())[: self.width]

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Train each site by playing in its worlds; return updates (`tacit.learning.task.Task.train`)."""
        starts = np.broadcast_to(state, (len(cohort), self.width))
        keys = [key / name for name in cohort.names]
        # Compiled worlds hold no lock: each core takes the next site. None depends on another.
        compiled = all(world.physics != "gymnasium" for held in cohort.holdings for world in held)
        _ = import_module("tacit.control.kernels")
        # Products within a site are small: the libraries that came with the kernels take one thread each.
        with one_thread(), ThreadPoolExecutor(cores() if compiled else 1) as pool:
            done = list(pool.map(self._train_site, starts, cohort.holdings, cohort.names, keys))
        moved = [after - start for start, (after, _) in zip(starts, done, strict=True)]
        diary = {
            name: {part: series.tolist() for part, series in fields_of(episodes, EPISODES).items()}
            for name, (_, episodes) in zip(cohort.names, done, strict=True)
            if self.tells
        }
        return Updates(cohort.names, np.stack(moved), metrics=diary)

    def _train_site(
        self, start: Array, worlds: Sequence[World], name: str, key: Key
    ) -> "tuple[Array, Episodes]":
        """Train one site for a round; return its shared weights and its episodes."""
        from tacit.control.envs.vector import make_vector_env
        from tacit.control.ppo import learn

        generator, many = key.generator(), len(worlds)
        center, scale = self._normalisation
        with make_vector_env(
            worlds, self.envs * many, generator=generator, center=center, scale=scale, place=f"site {name}"
        ) as stage:
            after, episodes = learn(
                self._all_weights(start),
                self.shape,
                stage,
                self,
                steps=self.steps * many,
                rollout=(self.rollout or self.steps) * many,
                generator=generator,
                judge_first=self.share == "actor",
            )
        return after[: self.width], episodes

    def _all_weights(self, weights: Array) -> Array:
        """Weights of both networks; a critic that is not shared begins where every critic does."""
        if len(weights) == self.shape.size:
            return np.asarray(weights)
        usual = self.shape.start(Key(0).generator())
        return np.concatenate([weights, usual[self.width :]])

    @cached_property
    def _normalisation(self) -> tuple[Array, Array]:
        """Center and scale of observations."""
        shown = self.shape.inputs
        center = np.array(self.center) if self.center else np.zeros(shown)
        return center, np.array(self.scale) if self.scale else np.ones(shown)

    def score(self, state: Array, held_out: Scenes) -> dict[str, float]:
        """Score greedy episodes in every world that agents are judged in."""
        return self._evaluate([self.model(state)] * len(held_out), held_out)

    def simplest(self, start: Array, held_out: Scenes) -> Simplest:
        """Score random actions in the same environments."""
        from tacit.control.agents.evaluation import play_randomly, summarise

        found = summarise(play_randomly(self.shape, held_out), held_out, Key(held_out.seed) / "random")
        scores = {name: value for name, value in found.items() if not name.endswith(("_low", "_high"))}
        return Simplest(name="random actions", how="each action as likely as any other", scores=scores)

    def score_each(self, states: Array, clusters: Mapping[str, int], held_out: Scenes) -> dict[str, float]:
        """Score models of clusters: each plays in its own sites' worlds, and all of them in unseen ones."""
        models = [self.model(state) for state in states]
        everybody = sorted(set(clusters.values())) or list(range(len(models)))
        rows: list[tuple[int, int]] = []
        for place, site in enumerate(held_out.sites.tolist()):
            # Before sites are assigned, all models are one.
            own = everybody if site == "" else [clusters.get(site, 0)]
            rows += [(place, model) for model in own]
        return self._evaluate([models[model] for _, model in rows], held_out.take([row for row, _ in rows]))

    def _evaluate(self, policies: "list[Policy]", scenes: Scenes) -> dict[str, float]:
        from tacit.control.agents.evaluation import evaluate, summarise

        played = evaluate(policies, scenes, physics="gymnasium" if scenes.final else "own")
        found = summarise(played, scenes, Key(scenes.seed) / "bootstrap")
        # A glance is for learning curves: its few episodes say nothing of intervals.
        shown = (name for name in found if scenes.final or name.startswith("return"))
        return {name: found[name] for name in shown if scenes.final or not name.endswith(("_low", "_high"))}

    def losses(self, state: Array, table: Any) -> Array:  # noqa: ANN401
        """Return negative returns of episodes in one site's worlds; sites choose their model by these."""
        from tacit.control.agents.evaluation import evaluate

        worlds = tuple(table)
        scenes = Scenes(worlds, np.array([""] * len(worlds)), episodes=TRIED, final=False)
        return -np.concatenate(evaluate([self.model(state)] * len(worlds), scenes, physics="own"))

    def model(self, state: Array) -> "Policy":
        """Return the agent."""
        from tacit.control.agents.policy import Policy

        center, scale = self._normalisation
        env = None if self.env is None else World(self.env)
        return Policy(self.shape, self._all_weights(state), center, scale, env)

    def pictures(
        self, state: Array, rounds: "Sequence[Round]", read: "Callable[[str], bytes | None]"
    ) -> "list[Figure]":
        """Return the figures of a report: learning curves, and returns in each world."""
        from tacit.control.figures import pictures

        return pictures(self, state, rounds, read)

    def archive(
        self, rounds: Sequence[Round], weights: "Mapping[int, Mapping[str, Array]]"
    ) -> dict[str, bytes]:
        """The history of a run as a file of plain arrays, where there is one that may be kept."""
        from tacit.control.history import history_file

        return history_file(rounds, weights, self.steps)


TASKS = {PPO.kind: PPO}

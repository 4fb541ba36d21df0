"""Membership inference on the episodes that agents were trained on.

A site plays a pool of episodes with the common initial policy, and overfits to a random half of it, again
and again, each time to another half, in many small steps, which makes the attack easy. The attacker sees the
site's update after one round, knows the updates of all others, and has the episodes. A promise to whole
sites covers each episode of theirs. The whole budget is spent on that one round.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.mean import Mean
from tacit.audits.membership import SHADOWS, AttackSetting, Membership, setting
from tacit.audits.membership_statistics import FEW_ALARMS, FEWEST_MODELS, attack, lira
from tacit.control.networks import NetworkShape
from tacit.control.rollout import SERIES, Array, Floats, Rollout, Whole
from tacit.control.tasks import PPO
from tacit.errors import InvalidValue, Refused, require
from tacit.experiments.experiment import Experiment
from tacit.learning.record import Tell, silent
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.privacy.statement import state
from tacit.runtime.contracts import fields_of
from tacit.runtime.keys import Key
from tacit.runtime.threads import one_thread
from tacit.sites.environments import EnvFederation, World
from tacit.sites.federation import Federation

if TYPE_CHECKING:
    from tacit.control.agents.policy import Policy

Marks = NDArray[np.bool_]

# The number of attacked sites, and of episodes of each.
SITES, POOL = 3, 20
# To learn by heart: how many steps of Adam at least, from how many steps of a world each at the most, and how
# far each goes at least. The time is then about the same in any world.
TAKEN, BATCH, PACE = 2500, 32, 3e-3
# The smallest pool of episodes; a site without as many after the most steps has endless episodes.
FEWEST, MOST = 8, 20_000
# Steps played in each environment between two counts of episodes.
STRETCH = 128
TAPE = (*SERIES, "values")
# By what an episode is told, and what that is in words.
CRITIC, ACTOR = "critic", "actor"
WORDS = {CRITIC: "accuracy of the critic", ACTOR: "increase in the probability of better actions"}
WHO = "training episodes"


@dataclass(frozen=True, eq=False)
class Pool:
    """Episodes of one site, one after another.

    Args:
        rollout: The recorded steps, as in a single environment (steps, 1).
        owner: The episode of each step (steps,).
    """

    rollout: Rollout
    owner: Whole

    def __len__(self) -> int:
        return int(self.owner[-1]) + 1

    def part(self, marks: Marks) -> Rollout:
        """Select the marked episodes."""
        kept = marks[self.owner]
        return self.rollout._replace(
            **{name: series[kept] for name, series in fields_of(self.rollout, TAPE).items()}
        )

    def means(self, values: NDArray[np.floating]) -> Array:
        """The mean over the steps of each episode, of one number for each step."""
        return np.bincount(self.owner, weights=values) / np.bincount(self.owner)


@dataclass(frozen=True, eq=False)
class AttackedSite:
    """Attack data of one site.

    Args:
        name: The site.
        pool: Its episodes.
        present: True where a model was trained on an episode (models, episodes).
        updates: The update of each model, before any protection (models, coordinates).
    """

    name: str
    pool: Pool
    present: Marks
    updates: Array


@dataclass(frozen=True, eq=False)
class ReplayVectorEnv:
    """A rollout that is played again (`tacit.control.ppo.RolloutSource`)."""

    rollout: Rollout
    envs: int = 1

    def play(
        self, weights: Floats, shape: NetworkShape, steps: int, gamma: float, reward_scale: float
    ) -> Rollout:
        """Return the recorded rollout for any weights."""
        return self.rollout


def episodes(
    experiment: Experiment,
    federation: Federation,
    *,
    shadows: int = SHADOWS,
    seed: int = 0,
    tell: Tell = silent,
) -> Membership:
    """Attack the sites' updates after one round, without protection and, if there is one, under the policy.

    Args:
        experiment: Its task, made to learn by heart, and its promise; of its sites the first ones.
        federation: Its sites, opened.
        shadows: The number of shadow models.
        seed: The seed of episodes, halves and batches; of the noise too, in a rehearsal.
        tell: Receives progress.

    Raises:
        Refused: The result would reveal protected episodes.
        InvalidValue: The episodes of a site do not end.
    """
    require(shadows + 1 >= FEWEST_MODELS, "shadows", shadows, f"at least {FEWEST_MODELS - 1}")
    task, worlds = _attack_target(experiment, federation)
    key = Key(seed, rehearsal=not experiment.privacy.protects) / "episodes"
    start, names, sites = task.start(worlds, key / "start"), list(worlds)[:SITES], list[AttackedSite]()
    for place, name in enumerate(names):
        tell("training agents to attack", place / len(names))
        with one_thread():
            pool = collect_episodes(worlds.holdings[name], task.model(start), task, key / name / "pool", name)
            sites.append(_train_shadows(task, start, name, pool, shadows + 1, key / name))
    present = np.concatenate([site.present for site in sites], axis=1)
    many = int(present.sum())
    return Membership(
        unit="episode", models=len(present), records=present.shape[1], members=many,
        others=present.size - many, who=WHO,
        settings=tuple(_settings(task, start, sites, present, experiment.privacy, key / "noise")),
    )  # fmt: skip


def collect_episodes(worlds: Sequence[World], policy: "Policy", task: PPO, key: Key, name: str) -> Pool:
    """Play up to `POOL` complete episodes of a policy in the worlds of a site.

    Args:
        worlds: The worlds.
        policy: The policy.
        task: The task, which scales rewards and sets the number of environments.
        key: The key of the episodes.
        name: The site.

    Raises:
        InvalidValue: Too few of them end.
    """
    from tacit.control.envs.vector import make_vector_env

    parts, weights, ended, made = list[Rollout](), policy.weights.astype(np.float32), 0, 0
    with make_vector_env(
        worlds, task.envs * len(worlds), generator=key.generator(), center=policy.center, scale=policy.scale,
        place=f"site {name}",
    ) as stage:  # fmt: skip
        while ended < POOL and made < MOST:
            parts.append(stage.play(weights, policy.shape, STRETCH, task.gamma, task.reward_scale))
            ended, made = ended + int(parts[-1].ended.sum()), made + parts[-1].ended.size
    if ended < FEWEST:
        raise InvalidValue(
            f"site {name} ended {ended} episodes in {made} steps: at least {FEWEST} are needed for an "
            "attack; give its worlds a shorter time limit"
        )
    series = [fields_of(part, TAPE) for part in parts]
    return _split_episodes({name: np.concatenate([one[name] for one in series]) for name in TAPE})


def _attack_target(experiment: Experiment, federation: Federation) -> tuple[PPO, EnvFederation]:
    """Return the bound task and its environments; nothing that is promised protection."""
    task = experiment.task
    fits = isinstance(task, PPO) and isinstance(federation, EnvFederation)
    require(fits, "[task] kind", task.kind, f'"{PPO.kind}", in worlds')
    assert isinstance(task, PPO)
    assert isinstance(federation, EnvFederation)
    if federation.distant:
        raise Refused("the environments are at the sites: an attack needs them on this machine")
    provenance = Provenance(experiment.privacy, public=federation.public, what="worlds")
    way_out = "attack an experiment in simulated worlds, or declare a rehearsal"
    provenance.look("the loss of models on single episodes", instead=way_out)
    return task.with_privacy(experiment.privacy).bind(federation, provenance), federation


def _split_episodes(tape: Mapping[str, NDArray[np.generic]]) -> Pool:
    """Return the first episodes of a tape (steps, environments) that ended, environment after environment."""
    turned = {name: values.swapaxes(0, 1) for name, values in tape.items()}
    ended = turned["ended"].astype(np.int64)
    whole = ended.sum(axis=1, keepdims=True)
    number = np.cumsum(ended, axis=1) - ended
    owner = number + np.cumsum(whole)[:, None] - whole
    kept = (number < whole) & (owner < POOL)
    steps = {name: values[kept][:, None] for name, values in turned.items()}
    blank = Rollout.blank(0, 1, steps["observations"].shape[-1])
    # Nothing is expected after the last step: all episodes are over.
    return Pool(blank._replace(**steps, last_values=np.zeros(1, dtype=np.float32)), owner[kept])


def _train_shadows(task: PPO, start: Array, name: str, pool: Pool, models: int, key: Key) -> AttackedSite:
    """Models that have learned from random halves of a pool, by the task's own algorithm."""
    from tacit.control.ppo import learn

    policy, many = task.model(start), len(pool)
    draws = (key / "half").generator()
    present = np.stack([draws.permutation(many) < many // 2 for _ in range(models)])
    updates: list[Array] = []
    for number, marks in enumerate(present):
        part = pool.part(marks)
        after, _ = learn(
            policy.weights, policy.shape, ReplayVectorEnv(part), _with_overfitting(task, len(part.rewards)),
            steps=len(part.rewards), rollout=len(part.rewards),
            generator=(key / "batches" / number).generator(), judge_first=task.share == "actor",
        )  # fmt: skip
        updates.append((after - policy.weights)[: task.width])
    return AttackedSite(name, pool, present, np.stack(updates))


def _with_overfitting(task: PPO, steps: int) -> PPO:
    """Return the task with enough passes to overfit to `steps` environment steps."""
    batch = min(task.batch, BATCH)
    passes = math.ceil(TAKEN * batch / steps)
    # No divergence stops it, whatever the experiment says.
    return replace(task, batch=batch, epochs=max(task.epochs, passes), lr=max(task.lr, PACE), target_kl=None)


def _settings(
    task: PPO,
    start: Array,
    sites: Sequence[AttackedSite],
    present: Marks,
    privacy: Privacy | Open,
    key: Key,
) -> list[AttackSetting]:
    """Attack with and without the privacy policy, by the score that is strongest without."""
    promises: dict[str, Privacy | Open] = {"open": Open()}
    if isinstance(privacy, Privacy):
        promises["private"] = _single_site(privacy)
    found, by = list[AttackSetting](), ""
    for name, promise in promises.items():
        mechanism = promise.solve(task, ["site"], Mean(), 1)
        parts = [_score(task, start, site, mechanism, key / site.name) for site in sites]
        scores = {kind: np.concatenate([part[kind] for part in parts], axis=1) for kind in WORDS}
        by = by or max(WORDS, key=lambda kind: _strength(scores[kind], present))
        releases = mechanism.release(1, ["site"])
        told, goal = state(promise, releases), (task.goal[0], None)
        delta = None if told.epsilon is None else told.delta
        entry = setting(name, told.epsilon, delta, goal, scores[by], present, releases)
        found.append({**entry, "by": WORDS[by]})
    return found


def _single_site(privacy: Privacy) -> Privacy:
    """Return the policy as it protects one site from an attacker who knows all other updates.

    Noise that a server adds, or that sites add together, is then noise on the update of one site, which
    surely takes part. Adaptive clipping keeps its first bound.
    """
    where = "site" if privacy.noise == "site" else "server"
    return replace(privacy, noise=where, participation=1.0, clip_quantile=None)


def _score(task: PPO, start: Array, site: AttackedSite, mechanism: Mechanism, key: Key) -> dict[str, Array]:
    """Score each model on each episode of its site, high for members (models, episodes), in several ways."""
    from tacit.control.ppo import build_buffer

    memory = build_buffer(site.pool.rollout, task)
    rows: dict[str, list[Array]] = {kind: [] for kind in WORDS}
    for number, update in enumerate(site.updates):
        sent = mechanism.at_site(update, key / number / "site")
        policy = task.model(start + mechanism.at_server(sent, key / number / "server"))
        wrong = policy.shape.values(policy.weights, memory.observations) - memory.returns
        # Errors differ by orders of magnitude: their logarithms are nearer to a normal law.
        rows[CRITIC].append(-np.log(site.pool.means(wrong**2) + np.finfo(np.float64).tiny))
        logits = policy.shape.logits(policy.weights, memory.observations)
        chosen = np.take_along_axis(logits, memory.actions[:, None], axis=1)[:, 0]
        likelier = chosen - np.logaddexp.reduce(logits, axis=1) - memory.log_probs
        better = np.sign(memory.advantages - memory.advantages.mean())
        rows[ACTOR].append(site.pool.means(likelier * better))
    return {kind: np.stack(values) for kind, values in rows.items()}


def _strength(scores: Array, present: Marks) -> float:
    """Return the true positive rate of a score's likelihood ratios, at few false alarms."""
    ratios = lira(scores, present)
    return attack(ratios[present], ratios[~present], alarms=FEW_ALARMS).found

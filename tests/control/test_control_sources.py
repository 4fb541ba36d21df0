"""Worlds that sites hold: what a file agrees on, and what a site's own settings may and may not say."""

from pathlib import Path

import pytest

from tacit.control import PPO
from tacit.control.sources import RemoteWorlds
from tacit.errors import InvalidFile, InvalidValue
from tacit.experiments.experiment import read
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.sites.environments import Scenes, Variants, World
from tacit.sites.splits import NamedSites

AGREED = RemoteWorlds(
    env="CartPole-v1",
    options={"sutton_barto_reward": False},
    scenes={"one": {"options": {"sutton_barto_reward": True}, "label": "harsh"}},
    unseen={"mild": {}},
    episodes=4,
)
SITES = NamedSites(names=["one", "two"])
HERE = Path()


def at_one(*worlds, agreed: RemoteWorlds = AGREED, **holding):
    return agreed.at_site("one", {"worlds": list(worlds), **holding}, HERE, sites=SITES)


def test_a_site_has_its_worlds_beside_what_all_know_of_them():
    found = at_one({"env": "CartPole-v1", "options": {"sutton_barto_reward": True}, "label": "harsh"})
    assert list(found) == ["one"]
    assert found.holdings["one"] == (World("CartPole-v1", {"sutton_barto_reward": True}, label="harsh"),)
    assert len(at_one({"env": "CartPole-v1"}, {"env": "CartPole-v1"}).holdings["one"]) == 2
    assert (found.distant, found.public) == (False, False)


@pytest.mark.parametrize(
    ("worlds", "words"),
    [
        ([], r"\[data\] worlds"),
        ([{"env": "Acrobot-v1"}], r"entry 1, env = 'Acrobot-v1' is not allowed.*'CartPole-v1', as in"),
        ([{"options": {}}], r"\[data.worlds, entry 1\].*env"),
        ([{"env": "CartPole-v1"}, {"env": "CartPole-v1", "option": {}}], r"entry 2\] option is not known"),
        (
            [{"env": "CartPole-v1", "options": {"gravity": 17.25}}],
            r"entry 1 does not match the agreement: .*\(gravity\)",
        ),
        (
            [{"env": "CartPole-v1", "options": {"render_mode": "secret-17"}}],
            "entry 1 does not match the agreement",
        ),
    ],
)
def test_worlds_that_are_not_as_agreed_are_refused_without_their_options(worlds, words):
    with pytest.raises((InvalidFile, InvalidValue), match=words) as caught:
        _ = at_one(*worlds)
    assert "17" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__ or caught.value.__cause__


def test_settings_that_nobody_understands_are_refused_by_name():
    with pytest.raises(InvalidFile, match=r"\[data\] wrlds is not known"):
        _ = at_one({"env": "CartPole-v1"}, wrlds=[])
    with pytest.raises(InvalidFile, match="worlds"):
        _ = AGREED.at_site("one", {}, HERE)
    with pytest.raises(InvalidValue, match="name = 'three'"):
        _ = AGREED.at_site("three", {"worlds": [{"env": "CartPole-v1"}]}, HERE, sites=SITES)


@pytest.mark.parametrize("env", ["os:CartPole-v1", ""])
def test_an_environment_is_an_id_and_loads_no_module(env):
    with pytest.raises(InvalidValue, match="env"):
        _ = RemoteWorlds(env=env)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"episodes": 0}, "episodes"),
        ({"world": "fast-lander"}, "fast-lander"),
        ({"scenes": {"one": {"optons": {}}}}, r"\[data.scenes.one\] optons is not known"),
        ({"unseen": {"harsh": {}}}, "unseen = 'harsh'"),
    ],
)
def test_agreements_that_cannot_be_kept_are_refused(changes, words):
    with pytest.raises((InvalidFile, InvalidValue), match=words):
        _ = RemoteWorlds(**{"env": "CartPole-v1", "scenes": AGREED.scenes, **changes})


def test_agents_are_judged_where_everybody_may_look():
    found = AGREED.open(SITES, 3)
    assert (found.distant, found.public, found.held_out_public) == (True, False, True)
    assert isinstance(found.held_out, Scenes)
    assert (found.held_out.sites.tolist(), found.held_out.episodes, found.held_out.seed) == (
        ["one", ""],
        4,
        3,
    )
    assert [world.label for world in found.held_out.worlds] == ["harsh", "mild"]
    assert RemoteWorlds(env="CartPole-v1").open(SITES, 3).held_out is None


@pytest.mark.parametrize(
    "privacy", [Open(), Privacy(unit="site", epsilon=5.0, delta=1e-5, clip=1.0, noise="server")]
)
def test_a_task_is_settled_by_the_public_environment(privacy):
    provenance = Provenance(privacy, public=False, what="worlds")
    settled = PPO().bind(AGREED.open(SITES, 0), provenance)
    assert (settled.inputs, settled.actions, settled.env, settled.repeats) == (4, 2, "CartPole-v1", True)
    assert settled.tells is isinstance(privacy, Open)


FILE = """
rounds = 2
[data]
kind = "held-worlds"
env = "{env}"
[sites]
{sites}
[task]
kind = "ppo"
"""


def written(folder: Path, sites: str, env: str = "CartPole-v1"):
    (folder / "e.toml").write_text(FILE.format(sites=sites, env=env))
    return read(folder / "e.toml")


def test_a_plan_touches_no_world_of_a_site(tmp_path):
    asked = written(tmp_path, 'kind = "named"\nnames = ["one", "two"]')
    assert asked.plan().statement.epsilon is None
    assert list(asked.open_federation()) == ["one", "two"]


def test_what_does_not_go_together_is_refused(tmp_path):
    with pytest.raises(InvalidValue, match=r"\[sites\] kind = 'variants' is not allowed.*held-worlds"):
        written(tmp_path, "copies = 2").check()
    with pytest.raises(InvalidValue, match="CartPool-v1"):
        written(tmp_path, 'kind = "named"\nnames = ["one"]', "CartPool-v1").check()
    with pytest.raises(InvalidValue, match="scenes"):
        AGREED.check(NamedSites(names=["two"]))
    with pytest.raises(InvalidValue, match="named"):
        AGREED.check(Variants())

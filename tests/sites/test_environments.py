import numpy as np
import pytest

import tacit
from tacit.errors import InvalidFile, InvalidValue
from tacit.experiments.experiment import read
from tacit.sites.environments import EnvFederation, Scenes, Variants, World

PLANETS = {"moon": {"gravity": -1.6}, "mars": {"gravity": -3.73}, "earth": {"gravity": -9.8}}


def test_sites_are_copies_of_variants_and_the_first_of_each_is_as_it_was_said():
    made = EnvFederation.of("LunarLander-v3", copies=3, vary={"wind_power": (0, 15)}, seed=4, **PLANETS)
    assert list(made) == [f"{planet}-{number}" for planet in PLANETS for number in (1, 2, 3)]
    assert made["mars-1"].worlds[0].options == {"gravity": -3.73}
    winds = [made[name].worlds[0].options.get("wind_power") for name in made]
    assert winds[0] is None
    drawn = [wind for wind in winds if wind is not None]
    assert len(set(drawn)) == 6
    assert all(0 <= wind <= 15 for wind in drawn)


def test_winds_repeat_with_the_seed_and_stay_when_copies_are_added():
    few, more = (
        EnvFederation.of("LunarLander-v3", copies=copies, vary={"wind_power": (0, 15)}, seed=4, **PLANETS)
        for copies in (2, 5)
    )
    assert few["moon-2"].worlds == more["moon-2"].worlds
    other = EnvFederation.of("LunarLander-v3", copies=2, vary={"wind_power": (0, 15)}, seed=5, **PLANETS)
    assert few["moon-2"].worlds != other["moon-2"].worlds


def test_a_file_names_its_worlds_as_tables_of_its_sites(tmp_path):
    (tmp_path / "e.toml").write_text(
        '[task]\nkind = "ppo"\n[data]\nenv = "LunarLander-v3"\n[sites]\ncopies = 2\n'
        "[sites.moon]\ngravity = -1.6\n[sites.earth]\ngravity = -9.8\n"
    )
    sites = read(tmp_path / "e.toml").sites
    assert sites == Variants(copies=2, worlds={"moon": {"gravity": -1.6}, "earth": {"gravity": -9.8}})
    assert sites.names == ("moon-1", "moon-2", "earth-1", "earth-2")


def test_five_lines_are_enough(tmp_path):
    (tmp_path / "e.toml").write_text('[task]\nkind = "ppo"\n')
    found = read(tmp_path / "e.toml")
    assert (found.data.env, found.sites.names) == ("CartPole-v1", ("site-1", "site-2", "site-3"))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('[data]\nenv = "CartPool-v1"', "CartPool-v1"),
        ('[data]\nenv = "CartPole-v1"\nworld = "fast-lander"', "LunarLander-v3"),
        (
            '[data]\nenv = "LunarLander-v3"\n[sites.sun]\ngravity = -274.0',
            r"\[sites.sun\].*gravity = -274.*-12",
        ),
        ('[data]\nenv = "LunarLander-v3"\n[sites.sun]\nheat = 5.0', r"\[sites.sun\].*heat = 5.0.*gravity"),
        (
            '[data]\nenv = "LunarLander-v3"\nworld = "fast-lander"\n[sites.sun]\ngravity = 0.0',
            "gravity = 0.0",
        ),
        (
            '[data]\nenv = "LunarLander-v3"\n[data.unseen.sun]\ngravity = -274.0',
            r"\[data.unseen.sun\].*gravity",
        ),
        ('[data]\nenv = "Pendulum-v1"', "Continuous .* not supported"),
        ("[sites]\ncopies = 0", "copies"),
        ("[sites]\nvary = { gravity = [-1.0, -2.0] }", "smaller one first"),
        ('[sites]\nkind = "iid"', "do not go together"),
        ("[task]\nsteps = 1000\nenvs = 16", "multiple of envs = 16"),
        ("[task]\nscale = [1.0]", r"scale = '1 numbers'.*4"),
    ],
)
def test_worlds_that_cannot_be_are_refused_before_anything_runs(tmp_path, table, words):
    text = f"{table}\n" if "[task]" in table else f'[task]\nkind = "ppo"\n{table}\n'
    if "[task]" in table:
        text = text.replace("[task]", '[task]\nkind = "ppo"')
    (tmp_path / "e.toml").write_text(text)
    with pytest.raises((InvalidFile, InvalidValue), match=words):
        read(tmp_path / "e.toml").plan()


def test_a_site_without_an_environment_is_named():
    with pytest.raises(InvalidValue, match="site b has no environment"):
        EnvFederation({"a": World("CartPole-v1"), "b": ()})
    with pytest.raises(InvalidValue, match="sites"):
        EnvFederation({})


def test_scenes_can_be_glanced_at_by_other_episodes():
    made = EnvFederation.of("LunarLander-v3", unseen={"venus": {"gravity": -8.87}}, seed=3, **PLANETS)
    scenes = made.held_out
    assert isinstance(scenes, Scenes)
    assert scenes.sites.tolist() == ["moon", "mars", "earth", ""]
    glance = scenes.at_a_glance
    assert (glance.episodes, glance.final, glance.seed) == (scenes.watch, False, scenes.seed + 1)
    assert [world.label for world in scenes.take([3, 0]).worlds] == ["venus", "moon"]
    assert scenes.digest() != scenes.take([0, 1]).digest()


def test_worlds_are_told_apart_by_everything_that_makes_them():
    made = [
        EnvFederation({"a": World("LunarLander-v3", {"gravity": -1.6})}),
        EnvFederation({"a": World("LunarLander-v3", {"gravity": -1.7})}),
        EnvFederation({"a": World("LunarLander-v3", {"gravity": -1.6}, "fast-lander")}),
        EnvFederation({"b": World("LunarLander-v3", {"gravity": -1.6})}),
    ]
    assert len({one.fingerprint for one in made}) == 4


def test_only_gymnasiums_own_worlds_are_sure_to_repeat():
    assert World("CartPole-v1").repeats
    assert not World(lambda: None).repeats
    assert not World("Nowhere-v0").repeats


def test_a_world_may_be_made_by_a_function():
    import gymnasium

    def made(**options):
        return gymnasium.make("CartPole-v1", **options)

    federation = tacit.Worlds({"a": World(made), "b": World(made)}, public=True)
    run = tacit.fit(tacit.control.PPO(steps=64, envs=2, hidden=(8,), epochs=1), federation, rounds=1)
    assert run.task.inputs == 4
    assert run.task.identity is None
    assert np.isfinite(run.state).all()


def test_worlds_that_a_function_makes_are_somebodys_unless_it_is_said():
    import gymnasium

    def made():
        return gymnasium.make("CartPole-v1")

    own = EnvFederation.of(made, copies=2)
    assert (own.public, own.held_out) == (False, None)
    judged = EnvFederation.of(made, copies=2, unseen={"open": {}})
    assert judged.held_out is not None
    assert judged.held_out.sites.tolist() == [""]
    assert EnvFederation.of("CartPole-v1", copies=2).public


def test_what_somebody_registered_over_gymnasiums_own_is_told_apart():
    import gymnasium

    try:
        prints = []
        for gravity in (-2.0, -9.0):
            gymnasium.register(
                "OwnLander-v0", "gymnasium.envs.box2d:LunarLander", kwargs={"gravity": gravity}
            )
            prints.append(World("OwnLander-v0").digest())
            del gymnasium.registry["OwnLander-v0"]
        assert prints[0] != prints[1]
        wrapper = gymnasium.wrappers.ClipReward.wrapper_spec(min_reward=-1, max_reward=1)
        gymnasium.register("OwnLander-v0", "gymnasium.envs.box2d:LunarLander", additional_wrappers=(wrapper,))
        assert not World("OwnLander-v0").repeats
    finally:
        gymnasium.registry.pop("OwnLander-v0", None)


def test_options_that_cannot_be_written_down_do_not_repeat():
    assert not World("CartPole-v1", {"sutton_barto_reward": object()}).repeats
    long = [World("CartPole-v1", {"x": np.arange(2000) + shift}) for shift in (0, 1)]
    assert not any(world.repeats for world in long)

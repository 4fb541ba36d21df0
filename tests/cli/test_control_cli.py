"""Agents through the command: CartPole in every regime, killed and taken up again; wrong files refused."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from tacit import Ledger
from tacit.cli.app import app
from tacit.control.history import History
from tacit.experiments import experiment

TACIT = str(Path(sys.executable).with_name("tacit"))
EXAMPLES = Path(__file__).parents[2] / "examples"
KEYS = {"run", "rounds", "scores", "baselines", "privacy"}
SCORES = {"return", "return_low", "return_high", "iqm", "iqm_low", "iqm_high", "solved"}
CART = """
name = "carts"
seed = 3
rounds = 2
baselines = false
[data]
env = "CartPole-v1"
episodes = 2
watch = 1
[sites]
copies = 3
[task]
kind = "ppo"
hidden = [4]
envs = 2
steps = 64
"""
LEARNS = (
    "rounds=8", "data.episodes=10", "task.hidden=[16]", "task.steps=512", "task.lr=3e-3", "task.epochs=6",
)  # fmt: skip
PROMISE = """
[privacy]
unit = "site"
epsilon = 20.0
delta = 1e-5
clip = 1.0
noise = "server"
rehearsal = true
"""
LANDERS = CART.replace('"CartPole-v1"', '"LunarLander-v3"').replace(
    "[sites]\ncopies = 3", "[sites.moon]\ngravity = -1.6\n[sites.earth]\ngravity = -9.8"
)


def tacit(*words: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, list(words))
    return found.exit_code, found.stdout, found.stderr


def with_set(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


def ran(file: str, out: str, *changes: str) -> dict:
    code, said, err = tacit("run", file, *with_set(*changes), "--out", out, "--json", "-q")
    assert (code, err) == (0, "")
    return json.loads(said)


def told(out: str) -> list[dict]:
    """The rounds of a run, without what clocks say."""
    lines = (Path(out) / "rounds.jsonl").read_text().splitlines()
    return [{**json.loads(line), "seconds": None} for line in lines]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "carts.toml").write_text(CART)
    (tmp_path / "landers.toml").write_text(LANDERS)
    (tmp_path / "private.toml").write_text(CART + PROMISE)
    return tmp_path


# Every regime, from the file to the table.


@pytest.mark.slow
def test_the_file_that_new_writes_is_planned_and_runs(folder: Path):
    assert tacit("new", "control", "-q")[:2] == (0, "control.toml\n")
    assert tacit("plan", "control.toml")[0] == 0
    changes = with_set("rounds=1", "data.episodes=1", "task.steps=256", "task.hidden=[4]", "baselines=false")
    # In a process of its own, as a person starts it.
    words = [TACIT, "run", "control.toml", *changes, "--json", "-q"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    scores = json.loads(done.stdout)["scores"]
    worlds = {f"return@{world}" for world in ("moon", "mars", "earth", "unseen")}
    assert set(scores) == {*SCORES, *worlds, "return_unseen"}
    assert scores["return"] == pytest.approx(
        np.mean([scores[f"return@{world}"] for world in ("moon", "mars", "earth")])
    )
    assert scores["return_low"] <= scores["return"] <= scores["return_high"]
    assert tacit("new", "control")[0] == 2


def test_carts_learn_together_and_are_judged_beside_carts_alone():
    done = ran("carts.toml", "run", *LEARNS, "baselines=true")
    assert set(done) >= KEYS
    assert done["rounds"] == 8
    assert set(done["scores"]) == SCORES
    assert done["scores"]["return"] > 200
    assert set(done["baselines"]) == {"alone", "pooled"}
    assert all(set(scores) == SCORES for scores in done["baselines"].values())
    assert done["privacy"] == {
        "epsilon": None, "delta": None, "unit": None, "relation": None, "rehearsal": False,
    }  # fmt: skip
    rounds = told("run")
    assert [entry["number"] for entry in rounds] == list(range(1, 9))
    assert rounds[-1]["scores"]["return"] > rounds[0]["scores"]["return"]
    history = History.load("run/history.npz")
    assert set(history.ep_labels) == {"site-1", "site-2", "site-3"}
    assert history.ep_steps.max() <= 8 * 512
    shown = tacit("show", "run")[1]
    assert "each site alone" in shown
    assert tacit("show", "run", "--json")[0] == 0
    # A run that is over is shown again, and nothing is done.
    assert tacit("run", "run", "--resume", "-q")[1] == shown
    model = experiment.load("run").model
    assert model.act([0.0, 0.0, 0.2, 0.5]) in (0, 1)


def test_carts_learn_under_a_promise_to_each_of_them_whose_bounds_follow_their_updates():
    changes = (
        "rounds=12", "sites.copies=30", "data.episodes=10", "task.steps=128", "task.lr=3e-3",
        "task.epochs=6", "privacy.clip_quantile=0.5",
    )  # fmt: skip
    planned = json.loads(tacit("plan", "private.toml", *with_set(*changes), "--json")[1])["promise"]
    done = ran("private.toml", "run", *changes)
    assert done["scores"]["return"] > 100
    assert done["privacy"]["epsilon"] == pytest.approx(planned["epsilon"], rel=1e-6)
    assert 19.9 < done["privacy"].pop("epsilon") <= 20
    promised = {"delta": 1e-5, "unit": "site", "relation": "add-remove", "rehearsal": True}
    assert promised.items() <= done["privacy"].items()
    verified = json.loads(tacit("ledger", "run/ledger.db", "--verify", "--json")[1])
    assert verified["valid"]
    assert verified["epsilon"] == pytest.approx(planned["epsilon"], rel=1e-6)
    # Updates and how long they are leave as one vector: one release a round.
    assert verified["events"] == 12
    assert "REHEARSAL" in tacit("show", "run")[1]


def test_carts_are_told_apart_after_a_warm_start():
    changes = ('clusters={by="direction",count=2,warm=3}', *LEARNS)
    assert ran("carts.toml", "run", *changes)["scores"]["return"] > 200
    groups = [entry["clusters"] for entry in told("run")]
    assert groups[:2] == [dict.fromkeys(groups[0], 0)] * 2
    assert all(set(group.values()) == {0, 1} and len(group) == 3 for group in groups[2:])


def test_carts_alone_have_a_model_each():
    found = ran("carts.toml", "run", 'clusters={by="site"}')
    assert set(found["scores"]) == SCORES
    assert sorted(told("run")[-1]["clusters"].values()) == [0, 1, 2]
    assert load_file("run/state.safetensors")["state"].shape[0] == 3


@pytest.mark.parametrize("changes", [
    ('privacy.noise="site"',),
    ('privacy.noise="secure"',),
    ('privacy.noise="secure"', "privacy.clip_quantile=0.5"),
    ('privacy.mechanism="laplace"', "privacy.delta=0", 'privacy.noise="site"'),
    ('task.normalise="sites"',),
    ('task.normalise="sites"', 'privacy.noise="site"', "privacy.clip_quantile=0.5"),
    ('task.share="actor"', "privacy.clip_quantile=0.3"),
    ("privacy.participation=0.9", "sites.copies=9", "privacy.clip_quantile=0.5"),
    ("privacy.rehearsal=false",),
    ('privacy.noise="site"', 'clusters={by="direction",count=2,warm=1}'),
    ('privacy.noise="site"', 'aggregation.kind="median"'),
    ('server.kind="adam"', "server.lr=0.01"),
    ("privacy.epsilon=0.01",),
])  # fmt: skip
def test_every_promise_costs_what_was_planned(changes):
    code, out, err = tacit("plan", "private.toml", *with_set(*changes), "--json")
    assert code == 0, err
    planned = json.loads(out)["promise"]
    done = ran("private.toml", "run", *changes)
    assert set(done["scores"]) == SCORES
    assert done["privacy"]["epsilon"] == pytest.approx(planned["epsilon"], rel=1e-3)
    verified = json.loads(tacit("ledger", "run/ledger.db", "--verify", "--json")[1])
    assert verified["valid"]
    assert verified["epsilon"] == pytest.approx(done["privacy"]["epsilon"], rel=1e-6)


def test_who_is_drawn_in_secret_is_told_by_nothing_that_a_run_keeps():
    changes = ("privacy.participation=0.9", "sites.copies=9", "task.snapshots=1")
    ran("private.toml", "run", *changes)
    assert all(entry["sites"] is None and entry["diary"] == {} for entry in told("run"))
    history = History.load("run/history.npz")
    assert len(history.ep_rewards) == 0
    assert set(history.weight_labels) == {"global"}


@pytest.mark.parametrize("changes", [
    ("task.hidden=[]",),
    ("task.rollout=32", "task.batch=1000", "task.target_kl=0.01", "task.value_clip=0.2"),
    ("task.anneal=true", "task.snapshots=1"),
    ('task.share="actor"', 'clusters={by="weights",count=2}', "task.snapshots=1"),
    ('task.share="actor"', 'clusters={by="loss",count=2}'),
    ('task.normalise="sites"', 'clusters={by="site"}'),
    ("task.center=[0, 0, 0, 0]", "task.scale=[2.4, 3, 0.2, 3]"),
    ('aggregation.kind="krum"', "sites.copies=5"),
    ("stop={patience=1}",),
    ("sites.copies=1",),
    ('sites={left={},right={sutton_barto_reward=true}}',),
    ('data.unseen={short={max_episode_steps=5}}',),
    ('data.env="FrozenLake-v1"', "data.options={is_slippery=false}"),
    ('data.env="Blackjack-v1"',),
])  # fmt: skip
def test_whatever_may_be_chosen_runs(changes):
    assert tacit("plan", "carts.toml", *with_set(*changes))[0] == 0
    done = ran("carts.toml", "run", *changes)
    assert set(done) >= KEYS
    assert np.isfinite(list(done["scores"].values())).all()


def test_agents_trained_in_the_fast_lander_are_judged_by_the_same_seeds_as_others():
    both = [ran("landers.toml", world, f'data.world="{world}"') for world in ("fast-lander", "gymnasium")]
    assert all({"return@moon", "return@earth"} < set(one["scores"]) for one in both)
    _, out, _ = tacit("show", "fast-lander", "gymnasium")
    assert all(f"\n{name} " in out for name in ("return", "IQM", "return@moon", "share solved"))


def test_what_there_is_to_choose_from_names_agents():
    for what, name in (("tasks", "ppo"), ("data", "gymnasium"), ("splits", "variants")):
        assert name in json.loads(tacit("list", what, "--json")[1])


# Whether a promise leaves anything to learn from is said before.


def test_a_plan_says_when_noise_will_hide_the_signal():
    code, out, _ = tacit("plan", "private.toml")
    assert code == 0
    assert "\nsignal  " in out
    assert "\nwarning  the noise will hide the signal: " in out
    out = tacit("plan", "private.toml", "--set", "sites.copies=300")[1]
    assert "\nsignal  " in out
    assert "drown" not in out


def test_the_private_example_is_planned_below_its_promise_and_heard():
    code, out, err = tacit("plan", str(EXAMPLES / "control-private.toml"), "--json")
    assert code == 0, err
    planned = json.loads(out)
    assert planned["promise"]["epsilon"] <= 8
    assert planned["promise"]["unit"] == "site"
    assert not any("drown" in warning for warning in planned["warnings"])


# Killed, and taken up again.


def killed_after(file: str, out: str, number: int, *changes: str) -> None:
    """Run it in a process of its own, which is killed once it has told of this round."""
    words = [TACIT, "run", file, *with_set(*changes), "--out", out]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        assert any(line.startswith(f"round {number}/") for line in run.stderr)
        run.send_signal(signal.SIGKILL)
    assert run.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("file", "changes"), [
    ("carts.toml", ('clusters={by="direction",count=2,warm=4}', "task.snapshots=3", "task.anneal=true")),
    pytest.param(
        "private.toml",
        ("privacy.clip_quantile=0.5", 'task.normalise="sites"', "task.snapshots=4"),
        marks=pytest.mark.slow,
    ),
])  # fmt: skip
def test_a_run_that_is_killed_goes_on_to_the_same_bits(file, changes):
    changes = (*changes, "rounds=40", "privacy.epsilon=60.0")[: None if file == "private.toml" else -1]
    whole = ran(file, "whole", *changes)
    killed_after(file, "killed", 3, *changes)
    assert 3 <= len(told("killed")) < 40
    code, _, err = tacit("show", "killed")
    assert code == 2
    assert "is not over" in err
    assert "exists already" in tacit("run", file, *with_set(*changes), "--out", "killed")[2]
    other = tacit("run", file, *with_set(*changes, "task.lr=0.1"), "--out", "killed", "--resume")
    assert other[0] == 2
    assert "(lr = 0.0003 before, lr = 0.1 now)" in other[2]
    code, out, err = tacit("run", file, *with_set(*changes), "--out", "killed", "--resume", "--json", "-q")
    assert (code, err) == (0, "")
    assert {**json.loads(out), "run": "whole"} == whole
    assert told("killed") == told("whole")
    for name in ("state.safetensors", *(f"weights/{path.name}" for path in Path("whole/weights").iterdir())):
        one, two = load_file(f"whole/{name}"), load_file(f"killed/{name}")
        assert one.keys() == two.keys()
        assert all(one[part].tobytes() == two[part].tobytes() for part in one)
    assert histories("killed") == histories("whole")
    assert paid(Path("killed")) == paid(Path("whole"))


def histories(run: str) -> list[list[tuple[object, ...]]]:
    """Every episode, and every snapshot, whatever their order."""
    kept = History.load(f"{run}/history.npz")
    weights = [row.tobytes() for row in kept.weights]
    return [
        sorted(
            zip(kept.ep_rounds, kept.ep_labels, kept.ep_steps, kept.ep_lengths, kept.ep_rewards, strict=True)
        ),
        sorted(zip(kept.weight_rounds, kept.weight_labels, kept.weight_steps, weights, strict=True)),
    ]


def paid(run: Path) -> list[object]:
    if not (run / "ledger.db").exists():
        return []
    with Ledger(run / "ledger.db", mode="read") as ledger:
        return list(ledger.releases())


# Wrong files.

REFUSED = [
    ("carts", 'data.env="CartPol-v1"', "env = 'CartPol-v1' is not known to Gymnasium (did you mean"),
    ("carts", 'data.env="Pendulum-v1"', "Continuous (Box) and composite action spaces are not supported"),
    ("carts", 'data.env=""', "[data] env = '' is not allowed"),
    ("carts", 'data.env="no.such:Thing-v0"', "env = 'no.such:Thing-v0' cannot be opened: No module named"),
    ("carts", 'data.world="fast-lander"', "world = \"fast-lander\" is not allowed for env = 'CartPole-v1'"),
    ("carts", 'data.world="slow"', "[data] world = 'slow' is not allowed: it must be \"gymnasium\" or"),
    ("carts", "data.options={gravity=1}", "gravity = 1 is not allowed: CartPole-v1 takes"),
    ("carts", "data.episodes=0", "[data] episodes = 0 is not allowed: it must be a whole number of at"),
    ("carts", "data.watch=-1", "[data] watch = -1 is not allowed"),
    ("carts", "data.episode=3", '[data] episode is not known (did you mean "episodes"?)'),
    ("carts", "data.unseen={x={gravity=1}}", "[data.unseen.x]: gravity = 1 is not allowed"),
    ("carts", 'data.unseen=["x"]', "[data] unseen = ['x'] is not allowed: it must be a table"),
    ("carts", 'data.kind="simulated"', "[data] env is not known"),
    ("landers", "sites.moon={gravity=-13.0}", "[sites.moon]: gravity = -13.0 is not allowed: it must"),
    ("landers", "sites.moon={gravity=nan}", "[sites.moon]: gravity = nan is not allowed"),
    ("landers", 'sites.moon={gravity="low"}', "[sites.moon]: gravity = 'low' is not allowed"),
    ("landers", "sites.moon={gravty=-1.0}", '[sites.moon]: gravty = -1.0 is not allowed: LunarLander-v3'),
    ("landers", "sites.moon={continuous=true}", "action space of LunarLander-v3 = Box"),
    ("landers", "data.unseen={x={gravity=1}}", "[data.unseen.x]: gravity = 1 is not allowed"),
    ("landers", "sites.vary={wind=[0.0, 1.0]}", "wind = 0.0 is not allowed: LunarLander-v3 takes"),
    ("carts", "sites.vary={x=[2.0, 1.0]}", "vary.x = [2.0, 1.0] is not allowed: it must be two numbers"),
    ("carts", "sites.vary={x=[nan, 1.0]}", "vary.x = [nan, 1.0] is not allowed"),
    ("carts", "sites.copies=0", "[sites] copies = 0 is not allowed"),
    ("carts", "sites.scenes=0", "[sites] scenes = 0 is not allowed"),
    ("carts", "sites.cops=3", '[sites] cops is not known (did you mean "copies"?)'),
    ("carts", "sites.moon=3", "[sites] moon is not known"),
    ("carts", 'sites={kind="iid"}', "data, sites and task do not go together: [data] gymnasium is of"),
    ("carts", "task.hidden=[0]", "[task] hidden = 0 is not allowed"),
    ("carts", "task.hidden=[1.5]", "[task] hidden = [1.5] is not allowed"),
    ("carts", "task.steps=63", "[task] steps = 63 is not allowed: it must be a multiple of envs = 2"),
    ("carts", "task.rollout=24", "[task] steps = 64 is not allowed: it must be a multiple of rollout = 24"),
    ("carts", "task.envs=0", "[task] envs = 0 is not allowed"),
    ("carts", "task.lr=nan", "[task] lr = nan is not allowed: it must be a finite number above 0"),
    ("carts", "task.lr=inf", "[task] lr = inf is not allowed"),
    ("carts", "task.gamma=1.5", "[task] gamma = 1.5 is not allowed: it must be from 0 to 1"),
    ("carts", "task.gae_lambda=-0.1", "[task] gae_lambda = -0.1 is not allowed"),
    ("carts", "task.clip_range=0", "[task] clip_range = 0.0 is not allowed"),
    ("carts", "task.entropy=nan", "[task] entropy = nan is not allowed"),
    ("carts", "task.target_kl=0", "[task] target_kl = 0.0 is not allowed"),
    ("carts", "task.reward_scale=0", "[task] reward_scale = 0.0 is not allowed"),
    ("carts", "task.batch=0", "[task] batch = 0 is not allowed"),
    ("carts", "task.scale=[1, 1, 1, 0]", "[task] scale = [1.0, 1.0, 1.0, 0.0] is not allowed: it must be"),
    ("carts", "task.scale=[1, 1]", "scale = '2 numbers' is not allowed: it must be 4, one for each number"),
    ("carts", "task.limit=-1", "[task] limit = -1.0 is not allowed"),
    ("carts", 'task.share="critic"', "[task] share = 'critic' is not allowed"),
    ("carts", 'task.normalise="site"', "[task] normalise = 'site' is not allowed"),
    ("carts", "task.snapshots=0", "[task] snapshots = 0 is not allowed"),
    ("carts", "task.sample=0.1", "[task] sample is not known"),
    ("carts", 'clusters={by="direction",count=7}', "[clusters] count = 7 is not allowed: it must be at"),
    ("carts", 'clusters={by="direction",count=2,warm=2}', "[clusters] warm = 2 is not allowed: it must be"),
    ("carts", 'attack={kinds=["sign-flip"],liars=1}', "[attack] does not go with ppo"),
    ("carts", 'study={regimes=["along"]}', "[study] regimes = 'along' is not allowed"),
    ("carts", 'study={regimes=["private"]}', "[privacy] is missing"),
    ("private", 'privacy.unit="record"', "an environment has no records"),
    ("private", "privacy.clip_quantile=1", "[privacy] clip_quantile = 1.0 is not allowed: it must be"),
    ("private", "privacy.clip=inf", "[privacy] clip = inf is not allowed"),
    ("private", "privacy.epsilon=nan", "[privacy] epsilon = nan is not allowed"),
    ("private", 'aggregation.kind="median"', 'noise = "server" does not go with median'),
    ("private", "quarantine={}", 'noise = "server" does not go with [quarantine]'),
    ("private", 'clusters={by="site"}', '[clusters] does not go with noise = "server"'),
    ("private", "clusters={count=2}", '[clusters] by = "loss" does not go with a promise'),
]  # fmt: skip
REFUSED_TOGETHER = [
    (('privacy.unit="record"', "privacy.clip_quantile=0.5"), 'left out unless unit = "site"'),
    (('privacy.noise="site"', "privacy.clip_quantile=0.5", 'aggregation.kind="median"'),
     "clip_quantile does not go with median"),
    (('privacy.noise="site"', "privacy.clip_quantile=0.5", "quarantine={}"),
     "[quarantine] does not go with clip_quantile"),
    (('privacy.noise="site"', "privacy.clip_quantile=0.5", 'clusters={by="site"}'),
     "[clusters] does not go with clip_quantile"),
    (('privacy.noise="secure"', "sites.copies=2"), "a group of 2 sites is too small for secure aggregation"),
    (('privacy.noise="secure"', "privacy.participation=0.5"), "every site adds its share of the noise"),
]  # fmt: skip

REFUSED_EARLY = [
    ("carts", ("task.scale=[1, 1, 1, inf]",), "[task] scale = "),
    ("carts", ("task.center=[1, 1, 1, nan]",), "[task] center = "),
    ("carts", ("task.limit=inf",), "[task] limit = inf is not allowed"),
    ("carts", ("task.rollout=3",), "[task] rollout = 3 is not allowed"),
    ("carts", ("task.inputs=3",), "[task] inputs is not known"),
    ("carts", ('data.options={render_mode="human"}',), "render_mode = 'human' is not allowed"),
    ("carts", ("augment={}",), "[augment] does not go with ppo"),
    ("carts", ('sites={worlds={" moon"={}}}',), "site = ' moon' is not allowed"),
    ("landers", ("data.unseen={moon={gravity=-3.0}}",), "unseen = 'moon' is not allowed"),
    ("landers", ("sites.vary={gravity=[-20.0, -1.0]}",), "gravity = -20.0 is not allowed"),
    ("landers", ("sites.vary={gravity=[-5.0, -1.0]}", "sites.moon={gravity=-30.0}"), "gravity = -30.0 is"),
    ("landers", ('sites.moon={enable_wind="yes"}',), "enable_wind = 'yes' is not allowed"),
    ("landers", ('data.world="fast-lander"', "sites.moon={wind_power=100.0}"), "wind_power = 100.0 is not"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        *((file, (change,), message) for file, change, message in REFUSED),
        *(("private", changes, message) for changes, message in REFUSED_TOGETHER),
        *REFUSED_EARLY,
    ],
    ids=lambda given: given if isinstance(given, str) and " " not in given else None,
)
def test_what_cannot_be_is_refused_in_one_sentence_in_plans_and_runs_alike(file, changes, message):
    said = set[str]()
    for verb, *place in (("plan",), ("run", "--out", "run")):
        code, out, err = tacit(verb, f"{file}.toml", *with_set(*changes), *place, "--json")
        error = json.loads(out)["error"]
        assert code == error["exit_code"] == 2
        assert message in error["message"]
        # What liars could do may be said before.
        assert err.splitlines()[-1] == f"tacit: {error['message']}"
        said.add(error["message"])
    assert len(said) == 1
    assert not Path("run").exists()


def test_a_round_that_nobody_was_drawn_for_is_a_round_of_noise():
    ran("private.toml", "run", "privacy.participation=0.02", "privacy.clip_quantile=0.5", "rounds=4")
    assert len(told("run")) == 4


def test_the_same_file_gives_the_same_history_to_the_byte():
    for out in ("one", "two"):
        ran("carts.toml", out, "task.snapshots=1", "sites.copies=9", "rounds=3")
    assert Path("one/history.npz").read_bytes() == Path("two/history.npz").read_bytes()


def test_tuning_of_agents_is_refused_by_its_own_name():
    Path("tune.toml").write_text(CART + '[tune]\n"task.lr" = [1e-3, 1e-4]\n')
    code, _, err = tacit("tune", "tune.toml")
    assert code == 2
    assert "ppo" in err


def test_patients_and_worlds_do_not_go_together():
    for data, task in (("simulated", "ppo"), ("gymnasium", "cox-ph"), ("gymnasium", "functional-boosting")):
        Path("mixed.toml").write_text(f'[data]\nkind = "{data}"\n[task]\nkind = "{task}"\n')
        code, _, err = tacit("run", "mixed.toml", "--out", "run")
        assert code == 2
        assert "data, sites and task do not go together" in err
        assert not Path("run").exists()


def test_a_ledger_that_cannot_bear_it_ends_with_3():
    Path("run").mkdir()
    with Ledger("run/ledger.db") as ledger:
        ledger.allow(epsilon=1.0, delta=1e-5, subject="sites")
    code, out, _ = tacit("run", "private.toml", "--out", "run", "--json")
    assert code == json.loads(out)["error"]["exit_code"] == 3
    assert "budget of sites exhausted" in json.loads(out)["error"]["message"]
    assert paid(Path("run")) == []

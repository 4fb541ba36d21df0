"""Agents go to Stable-Baselines3 and come back, number by number, and no file ever runs anything."""

import base64
import contextlib
import io
import json
import os
import pickle
import warnings
import zipfile
from collections import OrderedDict

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3 import A2C, PPO

from tacit.control.agents import stable_baselines
from tacit.control.agents.policy import Policy
from tacit.control.agents.stable_baselines import read
from tacit.control.networks import NetworkShape
from tacit.errors import InvalidFile, InvalidValue
from tacit.sites.environments import World

with warnings.catch_warnings():
    # Box2D's wrapper warns as it is imported, and dies of it where warnings are errors.
    warnings.simplefilter("ignore")
    import Box2D  # noqa: F401

HIDDEN = [(), (16,), (32, 32), (64, 64)]
WORLDS = ["CartPole-v1", "LunarLander-v3"]


def agent(env: str, hidden: tuple[int, ...], **choices):
    arch = {"net_arch": {"pi": list(hidden), "vf": list(hidden)}, **choices}
    return PPO("MlpPolicy", env, policy_kwargs=arch, n_steps=64, n_epochs=1, seed=1, device="cpu")


@pytest.fixture(autouse=True)
def _one_thread():
    """Networks this small only wait for a second one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def seen(inputs: int, rows: int = 200):
    return np.random.default_rng(3).normal(size=(rows, inputs)).astype(np.float32)


def drawn(env: str, hidden: tuple[int, ...], *, plain: bool = False) -> Policy:
    """A policy with weights that are not small, and with or without normalization."""
    world = World(env)
    with gymnasium.make(env) as opened:
        shape = NetworkShape(opened.observation_space.shape[0], hidden, int(opened.action_space.n))
    generator = np.random.default_rng(5)
    weights = (0.3 * generator.normal(size=shape.size)).astype(np.float32).astype(np.float64)
    center = np.zeros(shape.inputs) if plain else generator.normal(size=shape.inputs)
    scale = np.ones(shape.inputs) if plain else generator.uniform(0.5, 2, size=shape.inputs)
    return Policy(shape, weights, center, scale, world)


def assert_equal(found, policy: Policy):
    """The same actions, probabilities and values."""
    observations = seen(policy.shape.inputs)
    tensor = torch.as_tensor(observations)
    with torch.no_grad():
        likely = found.policy.get_distribution(tensor).distribution.probs.numpy()
        values = found.policy.predict_values(tensor).numpy()[:, 0]
    np.testing.assert_allclose(policy.probabilities(observations), likely, atol=1e-6)
    np.testing.assert_allclose(policy.values(observations), values, atol=2e-6)
    np.testing.assert_array_equal(
        policy.predict(observations, deterministic=True)[0],
        found.predict(observations, deterministic=True)[0],
    )


def swapped(path, name: str, content: bytes | None):
    """The same zip with one file of it changed, or gone."""
    with zipfile.ZipFile(path) as archive:
        files = {entry: archive.read(entry) for entry in archive.namelist()}
    files[name] = content
    with zipfile.ZipFile(path, "w") as archive:
        for entry, held in files.items():
            if held is not None:
                archive.writestr(entry, held)
    return path


def changed_data(path, **changes):
    with zipfile.ZipFile(path) as archive:
        data = json.loads(archive.read("data"))
    return swapped(path, "data", json.dumps({**data, **changes}).encode())


def zipped(files):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def torch_file(program, *blocks):
    """A file of torch with this program and these blocks of numbers."""
    files = {"data.pkl": program, "byteorder": b"little", "version": b"3\n"}
    files |= {f"data/{place}": block for place, block in enumerate(blocks)}
    return zipped({f"archive/{name}": content for name, content in files.items()})


@pytest.fixture
def read_weights(tmp_path):
    """Read the weights of a `policy.pth` with this content."""

    def reading(content):
        path = drawn("CartPole-v1", ()).save(tmp_path / "weights.zip")
        with zipfile.ZipFile(swapped(path, "policy.pth", content)) as archive:
            return stable_baselines._read_tensors(archive.read("policy.pth"), "it")

    return reading


@pytest.mark.parametrize("env", WORLDS)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_we_write_is_loaded_with_and_without_an_environment(tmp_path, env, hidden):
    policy = drawn(env, hidden)
    path = policy.save(tmp_path / "agent.zip")
    with gymnasium.make(env) as world:
        alone, placed = PPO.load(path, device="cpu"), PPO.load(path, env=world, device="cpu")
        for found in (alone, placed):
            assert found.observation_space == world.observation_space
            assert found.action_space == world.action_space
            assert_equal(found, policy)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_we_write_is_taken_by_an_agent_that_is_there(tmp_path, hidden):
    policy = drawn("CartPole-v1", hidden)
    found = agent("CartPole-v1", hidden)
    found.set_parameters(policy.save(tmp_path / "agent"), device="cpu")
    assert_equal(found, policy)


@pytest.mark.parametrize("env", WORLDS)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_an_agent_of_theirs_acts_the_same_here_and_comes_back_to_the_bit(tmp_path, env, hidden):
    theirs = agent(env, hidden).learn(64)
    theirs.save(tmp_path / "theirs.zip")
    ours = Policy.load(tmp_path / "theirs.zip", World(env))
    assert ours.shape == NetworkShape(theirs.observation_space.shape[0], hidden, int(theirs.action_space.n))
    assert_equal(theirs, ours)
    again = PPO.load(ours.save(tmp_path / "again.zip"), device="cpu")
    for name, values in theirs.policy.state_dict().items():
        assert torch.equal(values, again.policy.state_dict()[name])
    np.testing.assert_array_equal(Policy.load(tmp_path / "again.zip").weights, ours.weights)


def test_an_agent_that_we_wrote_goes_on_learning(tmp_path):
    path = drawn("CartPole-v1", (16,)).save(tmp_path / "agent.zip")
    with gymnasium.make("CartPole-v1") as world:
        found = PPO.load(path, env=world, device="cpu", n_steps=64, batch_size=32)
        before = found.policy.state_dict()["action_net.weight"].clone()
        found.learn(64)
    assert not torch.equal(before, found.policy.state_dict()["action_net.weight"])


def test_the_same_policy_is_the_same_bytes(tmp_path):
    policy = drawn("CartPole-v1", (16,))
    first, second = policy.save(tmp_path / "a.zip"), policy.save(tmp_path / "b.zip")
    assert first.read_bytes() == second.read_bytes()


def test_an_agent_of_a2c_is_the_same_kind_of_agent(tmp_path):
    theirs = A2C("MlpPolicy", "CartPole-v1", device="cpu")
    theirs.save(tmp_path / "agent.zip")
    assert_equal(theirs, Policy.load(tmp_path / "agent.zip"))


def test_observations_that_are_a_choice_become_indicators(tmp_path):
    shape = NetworkShape(16, (8,), 4)
    policy = Policy(
        shape, shape.start(np.random.default_rng(0)), np.zeros(16), np.ones(16), World("FrozenLake-v1")
    )
    found = PPO.load(policy.save(tmp_path / "agent.zip"), device="cpu")
    places = np.arange(16)
    np.testing.assert_array_equal(
        found.predict(places, deterministic=True)[0], policy.predict(np.eye(16), deterministic=True)[0]
    )


def test_without_a_world_observations_have_no_bounds(tmp_path):
    shape = NetworkShape(3, (), 2)
    policy = Policy(shape, np.ones(shape.size), np.zeros(3), np.ones(3))
    found = PPO.load(policy.save(tmp_path / "agent"), device="cpu")
    assert found.observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (3,))
    assert found.action_space == gymnasium.spaces.Discrete(2)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (gymnasium.spaces.Box(0, 255, (4, 4, 3), np.uint8), "that is not an image"),
        (gymnasium.spaces.MultiBinary(48), "must be a Box"),
        (gymnasium.spaces.Discrete(48, start=1), "Discrete from 0"),
        (gymnasium.spaces.Discrete(47), "do not fit 48 inputs"),
    ],
)
def test_spaces_that_an_agent_cannot_have_are_refused(tmp_path, space, said):
    shape = NetworkShape(48, (), 2)

    class Odd(gymnasium.Env):
        observation_space, action_space = space, gymnasium.spaces.Discrete(2)

    policy = Policy(shape, np.ones(shape.size), np.zeros(48), np.ones(48), World(Odd))
    with pytest.raises(InvalidValue, match=said):
        policy.save(tmp_path / "agent.zip")


class Called:
    """Object that calls a function when it is unpickled."""

    def __init__(self, called, *arguments):
        self.called, self.arguments = called, arguments

    def __reduce__(self):
        return self.called, self.arguments


def test_a_file_that_would_run_something_is_refused_and_runs_nothing(tmp_path):
    path, marker = drawn("CartPole-v1", ()).save(tmp_path / "agent.zip"), tmp_path / "marker"
    stream = io.BytesIO()
    torch.save({"a": Called(os.system, f"touch {marker}")}, stream)
    swapped(path, "policy.pth", stream.getvalue())
    with pytest.raises(InvalidFile, match=r"policy.pth of .*agent.zip is not a file of tensors.*system"):
        Policy.load(path)
    assert not marker.exists()


@pytest.mark.parametrize("hidden", ["metadata", "argument", "popped", "key"])
def test_a_name_that_is_not_a_tensors_is_refused_wherever_it_is_hidden(tmp_path, hidden):
    path, marker = drawn("CartPole-v1", ()).save(tmp_path / "agent.zip"), tmp_path / "marker"
    call = Called(os.system, f"touch {marker}")
    value = OrderedDict({"_metadata": call} if hidden == "metadata" else {call: 1} if hidden == "key" else {})
    if hidden == "argument":
        value = Called(OrderedDict, call)
    program = pickle.dumps(value, 2)
    if hidden == "popped":
        program = b"\x80\x02cposix\nsystem\n0" + program[2:]
    swapped(path, "policy.pth", torch_file(program))
    with pytest.raises(InvalidFile, match=r"asks for posix.system"):
        Policy.load(path)
    assert not marker.exists()


def test_no_variable_of_the_environment_makes_a_file_run_something(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    path, marker = drawn("CartPole-v1", ()).save(tmp_path / "agent.zip"), tmp_path / "marker"
    swapped(path, "policy.pth", torch_file(pickle.dumps(Called(os.system, f"touch {marker}"), 2)))
    with pytest.raises(InvalidFile, match=r"asks for posix.system"):
        Policy.load(path)
    assert not marker.exists()


def test_what_is_pickled_beside_the_weights_is_never_loaded(tmp_path):
    theirs = agent("CartPole-v1", (16,))
    theirs.save(tmp_path / "agent.zip")
    marker = tmp_path / "marker"
    program = base64.b64encode(pickle.dumps(Called(os.system, f"touch {marker}"), 2)).decode()
    told = {":type:": "<class 'gymnasium.spaces.box.Box'>", ":serialized:": program}
    changed_data(tmp_path / "agent.zip", observation_space=told, lr_schedule=told)
    assert_equal(theirs, Policy.load(tmp_path / "agent.zip"))
    assert not marker.exists()


def test_a_file_cut_short_anywhere_is_told_of(tmp_path):
    path = drawn("CartPole-v1", (16,)).save(tmp_path / "agent.zip")
    content = path.read_bytes()
    for length in range(0, len(content), 997):
        path.write_bytes(content[:length])
        with pytest.raises(InvalidFile, match=r"agent\.zip"):
            Policy.load(path)


def test_a_file_damaged_anywhere_is_told_of_or_read_the_same(tmp_path):
    policy = drawn("CartPole-v1", (16,), plain=True)
    path = policy.save(tmp_path / "agent.zip")
    content = path.read_bytes()
    generator = np.random.default_rng(1)
    for place in generator.integers(len(content), size=300):
        damaged = bytearray(content)
        damaged[place] ^= int(generator.integers(1, 256))
        path.write_bytes(bytes(damaged))
        with contextlib.suppress(InvalidFile):
            np.testing.assert_array_equal(Policy.load(path).weights, policy.weights)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_program_is_read_or_refused(program):
    with contextlib.suppress(InvalidFile):
        stable_baselines._read_tensors(torch_file(b"\x80\x02" + program), "it")


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = drawn("CartPole-v1", (16,)).save(tmp_path / "agent.zip")
    monkeypatch.setattr(stable_baselines, "MOST_BYTES", 2**10)
    with pytest.raises(InvalidFile, match=r"agent.zip is too large"):
        Policy.load(path)


def test_a_zip_that_swells_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "agent.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("data", "w") as file:
        for _ in range(65):
            file.write(bytes(2**20))
    assert path.stat().st_size < 2**20
    with pytest.raises(InvalidFile, match=r"too large: 65 MB"):
        Policy.load(path)


def tensor_file(sizes, steps, offset=0, count=4, times=1):
    """A file with a tensor, or several, that are views of so many numbers."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, found):
            return ("storage", torch.FloatStorage, "0", "cpu", count) if found == "numbers" else None

    view = Called(torch._utils._rebuild_tensor_v2, "numbers", offset, sizes, steps, False, OrderedDict())
    stream = io.BytesIO()
    Pickler(stream, 2).dump(OrderedDict({str(place): view for place in range(times)}))
    return torch_file(stream.getvalue(), bytes(16))


def test_views_of_numbers_that_are_there_are_read(read_weights):
    assert read_weights(tensor_file((2, 2), (1, 2)))["0"].shape == (2, 2)


@pytest.mark.parametrize(
    "view",
    [
        ((5,), (1,)),
        ((2**20,), (0,)),
        ((4,), (1,), 1),
        ((2, 2), (1,)),
        ((0,), (1,)),
        ((-1,), (1,)),
        ((4,), (-1,), 3),
        ((4,), (1,), -1),
        ((4,), (1,), 0, 5),
        ((2**40,), (1,), 0, 2**40),
    ],
)
def test_views_of_what_is_not_there_and_of_the_same_again_are_refused(read_weights, view):
    with pytest.raises(InvalidFile, match=r"it is damaged|cannot be read"):
        read_weights(tensor_file(*view))


def test_many_views_of_the_same_numbers_count_as_many_times(read_weights, monkeypatch):
    content = tensor_file((4,), (1,), times=200)
    assert len(read_weights(content)) == 200
    monkeypatch.setattr(stable_baselines, "MOST_BYTES", 3_000)
    with pytest.raises(InvalidFile, match="too large"):
        stable_baselines._read_tensors(content, "it")


@pytest.mark.parametrize(
    "other",
    [
        torch.zeros(3, dtype=torch.int64),
        torch.zeros(3, dtype=torch.complex64),
        torch.zeros(3, device="meta"),
        torch.zeros(3).to_sparse(),
    ],
    ids=["whole", "complex", "meta", "sparse"],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_of_another_kind_are_refused(read_weights, other):
    stream = io.BytesIO()
    torch.save({"a": other}, stream)
    with pytest.raises(InvalidFile, match="not a file of tensors"):
        read_weights(stream.getvalue())


def test_numbers_in_double_precision_and_views_are_read_as_they_are(read_weights):
    stream = io.BytesIO()
    wide = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    torch.save(torch.nn.ParameterDict({"a": wide.T.clone().T}).state_dict(), stream)
    np.testing.assert_array_equal(read_weights(stream.getvalue())["a"], wide.numpy())


def test_without_torch_there_is_one_sentence_with_the_way_out(tmp_path, monkeypatch):
    path = drawn("CartPole-v1", ()).save(tmp_path / "agent.zip")
    monkeypatch.setattr("tacit.errors.find_spec", lambda package: None if package == "torch" else package)
    for act in (Policy.load, drawn("CartPole-v1", ()).save):
        with pytest.raises(InvalidValue, match=r"needs torch.*pip install 'tacit\[torch\]'"):
            act(path)


def test_an_old_torch_that_can_be_made_to_run_code_is_refused(tmp_path, monkeypatch):
    path = drawn("CartPole-v1", ()).save(tmp_path / "agent.zip")
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.9.1"))
    with pytest.raises(InvalidValue, match=r"needs torch 2\.10, and 2\.9\.1 is installed"):
        Policy.load(path)


def test_other_agents_are_told_apart(tmp_path):
    path = tmp_path / "agent.zip"

    def refused(theirs, said):
        theirs.save(path)
        with pytest.raises(InvalidFile, match=said):
            read(path)

    refused(agent("CartPole-v1", (16,), activation_fn=torch.nn.ReLU), "activation_fn ReLU: it must be Tanh")
    arch = {"net_arch": {"pi": [16], "vf": [8]}}
    refused(
        PPO("MlpPolicy", "CartPole-v1", policy_kwargs=arch, device="cpu"),
        r"\[16\] nodes in the actor and \[8\]",
    )
    refused(PPO("MlpPolicy", "Pendulum-v1", device="cpu"), "actions of Box: they must be Discrete")


class Pictures(gymnasium.Env):
    """A world that shows images."""

    observation_space = gymnasium.spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return self.observation_space.low, {}

    def step(self, action):
        return self.observation_space.low, 0.0, True, False, {}


@pytest.mark.parametrize("kind", ["CnnPolicy", "MlpPolicy"])
def test_an_agent_that_looks_at_images_is_refused(tmp_path, kind):
    PPO(kind, Pictures(), n_steps=8, batch_size=8, device="cpu").save(tmp_path / "agent.zip")
    with pytest.raises(InvalidFile, match="observations of images"):
        Policy.load(tmp_path / "agent.zip")


def test_weights_that_are_no_network_of_ours_are_told_apart(tmp_path):
    policy = drawn("CartPole-v1", (16,), plain=True)
    path = policy.save(tmp_path / "agent.zip")
    with zipfile.ZipFile(path) as archive:
        tensors = torch.load(io.BytesIO(archive.read("policy.pth")), weights_only=True)

    def refused(changes, said):
        held = {name: values for name, values in {**tensors, **changes}.items() if values is not None}
        stream = io.BytesIO()
        torch.save(held, stream)
        swapped(path, "policy.pth", stream.getvalue())
        with pytest.raises(InvalidFile, match=said):
            Policy.load(path)

    whole = torch.ones((2, 2))
    refused({"features_extractor.cnn.0.weight": whole}, "convolutions")
    refused({"log_std": whole}, "continuous actions")
    refused({"mlp_extractor.shared_net.0.weight": whole}, "other weights")
    refused({"value_net.bias": None}, r"other weights \(value_net.bias\)")
    refused({"action_net.bias": whole}, r"is damaged: weights \(2, 16\) with biases \(2, 2\)")
    refused({"action_net.weight": whole}, "do not follow upon each other")
    refused({"value_net.bias": torch.tensor([np.nan])}, "not finite")


def test_what_is_no_agent_at_all_is_told_apart(tmp_path):
    path = drawn("CartPole-v1", (16,)).save(tmp_path / "agent.zip")
    for name, content, said in [
        ("data", b"[", "its data is not JSON"),
        ("data", b"[]", "its data is not a table"),
        ("data", None, "has no data"),
        ("policy.pth", None, "has no policy.pth"),
        ("policy.pth", b"nothing", "is not a zip"),
        ("policy.pth", zipped({"a": b""}), "not a file of tensors"),
        ("policy.pth", torch_file(pickle.dumps([1, 2], 2)), "object of type list"),
        ("policy.pth", torch_file(b"\x80\x05."), "not a file of tensors"),
        ("policy.pth", torch_file(b"\x80\x02i."), "not a file of tensors"),
    ]:
        drawn("CartPole-v1", (16,)).save(path)
        with pytest.raises(InvalidFile, match=said):
            Policy.load(swapped(path, name, content))
    with pytest.raises(InvalidFile, match="cannot be read: No such file"):
        Policy.load(tmp_path / "nobody.zip")

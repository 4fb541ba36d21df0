"""The same file gives the same numbers, whether sites are rows of a batch or guards that get letters."""

from pathlib import Path

import numpy as np
import pytest
from in_process import handed

from tacit import Ledger
from tacit.deploy.coordinator.run import charges
from tacit.deploy.site.config import LEDGER
from tacit.engines.messages import NoReply

EXAMPLES = Path(__file__).parents[2] / "examples"
SURVIVAL, FUNCTIONAL = EXAMPLES / "network.toml", EXAMPLES / "functional.toml"
SMALL = ["sites.count=3", "rounds=2", "data.records=300", "task.cuts=5", "task.hidden=[4]"]
PER_SITE = ["privacy.unit=site", "privacy.epsilon=50", "task.sample=1.0"]
BLIND = [*SMALL, "sites.count=4", *PER_SITE, "privacy.noise=secure"]
OPEN_RUN = [*SMALL, "privacy.kind=open"]
CART = """\
name = "cart"
rounds = 2
[data]
kind = "gymnasium"
env = "CartPole-v1"
episodes = 2
watch = 1
[sites]
kind = "variants"
copies = 3
[task]
kind = "ppo"
hidden = [8]
envs = 2
steps = 64
batch = 32
"""
RECORDS_IN_SECRET = """\
name = "one-noise"
[data]
kind = "simulated"
design = "SDGM1"
records = 400
features = 3
[sites]
kind = "iid"
count = 4
[task]
kind = "TASK"
horizon = 3.0
[privacy]
unit = "record"
noise = "secure"
epsilon = 3.0
delta = 1e-5
rehearsal = true
"""
BY_ARM = """\
name = "arms"
[data]
kind = "csv"
path = "arms.csv"
[sites]
kind = "by-column"
column = "site"
[task]
kind = "kaplan-meier"
grid = [0.5, 1.0, 2.0]
by = "arm"
[privacy]
unit = "record"
noise = "NOISE"
mechanism = "laplace"
epsilon = 3.0
delta = 0.0
rehearsal = true
"""
CASES = {
    "records, noise at the sites": (SURVIVAL, SMALL),
    "sites, a server that is trusted": (SURVIVAL, [*SMALL, *PER_SITE, "privacy.noise=server"]),
    "sites drawn in secret": (
        SURVIVAL, [*SMALL, *PER_SITE, "privacy.noise=server", "privacy.participation=0.7"]
    ),
    "sites, sums in secret": (SURVIVAL, BLIND),
    "curves, products in secret": (FUNCTIONAL, ["data.records=200", "privacy.epsilon=50"]),
    "curves, each released once": (
        FUNCTIONAL, ["data.records=200", "task.release=local", "privacy.noise=site", "privacy.epsilon=50"]
    ),
}  # fmt: skip


def opened(path: Path, *lines: str) -> Path:
    """The survival example without a promise."""
    text = SURVIVAL.read_text()
    path.write_text(text[: text.index("[privacy]")] + "\n".join(lines))
    return path


@pytest.mark.parametrize("case", CASES, ids=str)
def test_weights_charges_and_scores_are_those_of_one_process(case: str, tmp_path: Path):
    town, chosen, federation = handed(*CASES[case], tmp_path / "town")
    run = town.run(tmp_path / "over-letters")
    alone = chosen.run_on(federation, tmp_path / "alone")
    assert float(np.abs(run.state - alone.state).max()) <= 1e-6
    assert charges(run.path) == charges(alone.path) != []
    assert run.scores == pytest.approx(alone.scores, abs=1e-9)
    assert not run.record.warnings()


@pytest.mark.parametrize("task", ["newton-ph", "kaplan-meier"])
def test_sums_of_records_in_secret_have_the_same_bits(task: str, tmp_path: Path):
    file = tmp_path / "secret.toml"
    file.write_text(RECORDS_IN_SECRET.replace("TASK", task))
    town, chosen, federation = handed(file, [], tmp_path / "town")
    run = town.run(tmp_path / "over-letters")
    alone = chosen.run_on(federation, tmp_path / "alone")
    assert np.array_equal(run.state, alone.state)
    assert charges(run.path) == charges(alone.path) != []
    assert run.scores == alone.scores


@pytest.mark.parametrize("noise", ["site", "secure"])
def test_counts_by_arm_with_discrete_laplace_noise_have_the_same_bits(noise: str, tmp_path: Path):
    draw = np.random.default_rng(2)
    rows = [f"{n % 2},{draw.exponential(1 + n % 2):.4f},{draw.integers(0, 2)},s{n % 4}" for n in range(240)]
    (tmp_path / "arms.csv").write_text("\n".join(["arm,time,event,site", *rows]) + "\n")
    file = tmp_path / "arms.toml"
    file.write_text(BY_ARM.replace("NOISE", noise))
    town, chosen, federation = handed(file, [], tmp_path / "town")
    run = town.run(tmp_path / "over-letters")
    alone = chosen.run_on(federation, tmp_path / "alone")
    assert np.array_equal(run.state, alone.state)
    assert charges(run.path) == charges(alone.path) != []
    assert {release.law for release in alone.charged} == {"discrete-laplace"}
    assert run.model.logrank.statistic == alone.model.logrank.statistic
    assert any("log-rank test by arm" in told for told in run.task.findings(run.state))


@pytest.mark.parametrize(
    "law", [[], ["privacy.mechanism=laplace", "privacy.delta=0"]], ids=["gaussian", "laplace"]
)
def test_a_sum_of_records_bears_a_site_that_falls_silent_and_is_of_the_others(law: list[str], tmp_path: Path):
    file = tmp_path / "secret.toml"
    file.write_text(RECORDS_IN_SECRET.replace("TASK", "kaplan-meier"))
    town, _, federation = handed(file, ["privacy.epsilon=50", *law], tmp_path / "town")
    masked = False

    def spoil(name: str, asked: bytes, answer: bytes):
        nonlocal masked
        masked = masked or (name == "site-4" and b"mask" in asked)
        return NoReply("late", "no answer") if masked and name == "site-4" else answer

    town.neighbours.spoil = spoil
    run = town.run(tmp_path / "over-letters")
    (entry,) = run.record.rounds
    assert entry.skipped is None
    assert {fault.site for fault in entry.faults} == {"site-4"}
    others = sum(len(federation.records_of(name)) for name in list(federation)[:3])
    assert run.state.sum() * 4 == pytest.approx(others, abs=10 * run.task.known.noise)


@pytest.mark.parametrize("task", ["cox-ph", "logistic-hazard"])
def test_open_runs_are_equal_too_with_whatever_is_asked_before_and_after(task: str, tmp_path: Path):
    file = opened(tmp_path / "open.toml")
    changes = [*SMALL, f"task.kind={task}"] if task != "cox-ph" else [
        *SMALL[:3], "task.kind=cox-ph", "task.cuts=5", "task.hidden=[]"
    ]  # fmt: skip
    town, chosen, federation = handed(file, changes, tmp_path / "town")
    run = town.run(tmp_path / "over-letters")
    alone = chosen.run_on(federation, tmp_path / "alone")
    assert float(np.abs(run.state - alone.state).max()) <= 1e-6
    assert run.scores == pytest.approx(alone.scores, abs=1e-9)


def test_several_models_are_told_apart_alike(tmp_path: Path):
    file = opened(tmp_path / "open.toml", "[clusters]", 'by = "loss"', "count = 2")
    town, chosen, federation = handed(file, [*SMALL, "sites.count=4"], tmp_path / "town")
    run = town.run(tmp_path / "over-letters")
    alone = chosen.run_on(federation, tmp_path / "alone")
    assert float(np.abs(run.state - alone.state).max()) <= 1e-6
    assert run.clusters == alone.clusters


@pytest.mark.parametrize(
    "promise", ["", '[privacy]\nunit="site"\nnoise="server"\nepsilon=50\ndelta=1e-5\nclip=1.0\n'
                "clip_quantile=0.5\nparticipation=0.8\nrehearsal=true\n"],
    ids=["open", "bounds that follow"],
)  # fmt: skip
def test_agents_are_equal_too(promise: str, tmp_path: Path):
    file = tmp_path / "cart.toml"
    file.write_text(CART + promise)
    town, chosen, federation = handed(file, [], tmp_path / "town")
    run = town.run(tmp_path / "over-letters")
    alone = chosen.run_on(federation, tmp_path / "alone")
    assert float(np.abs(run.state - alone.state).max()) <= 1e-6
    assert run.scores == alone.scores
    assert [entry.diary for entry in run.record.rounds] == [entry.diary for entry in alone.record.rounds]


EVALUATED = """\
name = "scored"
[data]
kind = "simulated"
design = "SDGM1"
records = 1200
features = 10
held_out = 0.0
[sites]
kind = "iid"
count = 4
[task]
kind = "newton-ph"
horizon = 3.0
[privacy]
unit = "record"
noise = "NOISE"
epsilon = 3.0
delta = 1e-5
rehearsal = true
[evaluate]
share = 0.3
"""


@pytest.mark.parametrize("noise", ["site", "secure"])
def test_sites_hold_the_same_records_out_and_count_the_same_table(noise: str, tmp_path: Path):
    file = tmp_path / "scored.toml"
    file.write_text(EVALUATED.replace("NOISE", noise))
    town, chosen, federation = handed(file, [], tmp_path / "town")
    run = town.run(tmp_path / "over-letters")
    alone = chosen.run_on(federation, tmp_path / "alone")
    assert np.array_equal(run.state, alone.state)
    assert run.record.evaluation == alone.record.evaluation
    assert run.scores == alone.scores != {}
    assert charges(run.path) == charges(alone.path)
    # In the life of a site, a record pays for training and evaluation: the next experiment has other coins.
    with Ledger(town.sites["site-1"] / LEDGER, mode="read") as ledger:
        assert {row.subject for row in ledger.releases()} == {"records@site-1"}
        assert ledger.spent(1e-5) > run.privacy.epsilon + 0.5

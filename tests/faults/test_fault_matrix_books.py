"""The fault matrix, rows 15 to 18 and 47 to 49: what a resumed run may not change, and what no promise bears.

The last row is about us: a build whose noise, clipping or draws are broken is convicted by `audit` below.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats
from test_run_disk import REHEARSAL, SITES, SOLVED, TASK, Cut, begun, go, paid, planned, refused

from tacit import Privacy
from tacit.aggregation import AGGREGATORS
from tacit.aggregation.robust.coordinatewise import TrimmedMean
from tacit.aggregation.robust.reweighted import CenteredClip
from tacit.engines.base import Local
from tacit.errors import BudgetExhausted, LedgerError, Refused
from tacit.learning.supervised import LocalTraining
from tacit.privacy import policy
from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger import chain
from tacit.privacy.ledger.store import Ledger, verify
from tacit.privacy.mechanisms.site_level import SiteLevel
from tacit.runs.directory import LEDGER, SECRET, Directory
from tacit.runtime.keys import Key

PRIVATE = replace(REHEARSAL, rehearsal=False)
# The number of records is said, so nothing is bought; nothing is limited, so what is paid twice is seen.
UNLIMITED = replace(PRIVATE, epsilon=None, noise_multiplier=4.0)


@pytest.fixture(autouse=True)
def solved_once(monkeypatch):
    monkeypatch.setattr(policy, "calibrate", SOLVED)


@pytest.fixture
def let_out(monkeypatch):
    """Return the releases of the sites, round by round."""
    found, real = [], Local.train

    def train(*given):
        updates = real(*given)
        found.append(updates.matrix)
        return updates

    monkeypatch.setattr(Local, "train", train)
    return found


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"privacy": replace(REHEARSAL, clip=2.0)}, "(clip = 1.0 before, clip = 2.0 now)"),
        ({"privacy": replace(REHEARSAL, epsilon=2.5)}, "(epsilon = 3.0 before, epsilon = 2.5 now)"),
        ({"aggregation": TrimmedMean(f=0)}, '(kind = "mean" before, kind = "trimmed-mean" now)'),
        ({"task": replace(TASK, hidden=(5,))}, "4,"),
    ],
    ids=["clip", "noise", "rule", "shape"],
)
def test_row_15_a_run_resumed_with_other_choices_is_refused_and_the_field_named(tmp_path, choices, said):
    out = begun(tmp_path / "run", rounds_done=1)
    price = paid(out)
    assert said in refused(out, **choices)
    assert paid(out) == price


def test_row_16_a_run_resumed_with_another_version_pays_again_for_new_noise(tmp_path, monkeypatch, let_out):
    out = begun(tmp_path / "run", rounds_done=1, privacy=UNLIMITED)
    # The next round is asked twice, by two versions, and never written down.
    monkeypatch.setattr(Directory, "write_round", _lost)
    for version in ("1.0", "2.0"):
        monkeypatch.setattr("tacit.runs.context.machine", lambda version=version: version)
        with pytest.raises(Cut):
            go(out, privacy=UNLIMITED)
    assert {paid(out)["round 2", name] for name in SITES} == {2}
    _, first, second = let_out
    assert not np.array_equal(first, second)


def _lost(directory, entry):
    raise Cut


def test_row_16_books_of_a_later_format_are_refused_rather_than_misread(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("tacit.privacy.ledger.store.FORMAT", chain.FORMAT + 1)
        patch.setattr(chain, "FORMAT", chain.FORMAT + 1)
        with Ledger(tmp_path / "later.db"):
            pass
    with pytest.raises(LedgerError, match="not known to this version"):
        Ledger(tmp_path / "later.db")


def test_row_17_a_run_without_budget_asks_no_site(tmp_path, let_out):
    out = begun(tmp_path / "run", rounds_done=1)
    with Ledger(out / LEDGER) as ledger:
        # Somebody else has spent what the run was to have.
        ledger.owe([Release(scale=0.2, sensitivity=1.0, subject="records@oslo")], ticket="elsewhere")
        with pytest.raises(BudgetExhausted, match="nothing was charged"):
            ledger.charge([Release(scale=9.0, sensitivity=1.0, subject="records@oslo")])
    price = paid(out)
    run = go(out)
    assert len(let_out) == 1
    assert run.record.stopped == "the budget covers no further round"
    assert len(run.record.rounds) == 1
    new = {row: times for row, times in paid(out).items() if times != price[row]}
    # What was not taken is owed all the same: when to stop was decided by looking.
    assert {purpose for purpose, _ in new} <= {"round 2", "round 3", "round 4"}


def test_row_18_a_run_that_lost_its_secret_is_refused_at_no_cost(tmp_path):
    out = begun(tmp_path / "run", rounds_done=1, privacy=PRIVATE)
    secret, price = (out / SECRET).read_bytes(), paid(out)
    (out / SECRET).unlink()
    assert "cannot be resumed" in refused(out, privacy=PRIVATE)
    assert paid(out) == price
    (out / SECRET).write_bytes(secret)
    go(out, privacy=PRIVATE)
    assert paid(out) == planned()


# What no promise bears.

SERVER = Privacy(unit="site", noise_multiplier=2.0, delta=1e-5, clip=1.0, noise="server")
NAMES = [f"site {number}" for number in range(12)]
FIELDS = {
    "mean": {},
    "mixing": {"then": TrimmedMean(f=2)},
    "bucketing": {"then": TrimmedMean(f=2), "size": 2},
}
# Rules whose result one site cannot move by more than what is proven; the default becomes one of them.
BOUNDED = {"mean", "trimmed-mean", "robust", "mixing"}


@dataclass(frozen=True, kw_only=True)
class Work(LocalTraining):
    """The least that a promise needs to know."""

    separable = True
    groups = "none"
    kind = "work"
    layout, exempt, width, lengths = "rows", (), None, None


@pytest.mark.parametrize("kind", sorted(AGGREGATORS))
def test_row_47_noise_at_the_server_with_a_rule_that_has_no_bound_is_refused(kind):
    rule = AGGREGATORS[kind](**FIELDS.get(kind, {"f": 2})).resolve(len(NAMES), SERVER)
    if kind in BOUNDED:
        reach = SERVER.solve(Work(), NAMES, rule, 3).reach
        # Noise is scaled by the bound of the rule itself, which is never below that of the mean.
        assert reach == rule.sensitivity(SERVER.clip, len(NAMES))
        assert reach >= SERVER.clip / len(NAMES)
        return
    with pytest.raises(
        Refused, match=rf'noise = "server" does not go with {kind}: .* Use mean, trimmed-mean'
    ):
        SERVER.solve(Work(), NAMES, rule, 3)


def test_row_47_a_centred_clip_with_a_public_centre_has_a_bound():
    rule = CenteredClip(f=2, radius=0.5).resolve(len(NAMES), SERVER)
    assert SERVER.solve(Work(), NAMES, rule, 3).reach == pytest.approx(0.5 / 12)


def test_row_48_a_resumed_run_costs_the_same_to_the_last_bit(tmp_path):
    whole = go(tmp_path / "whole", privacy=PRIVATE)
    out = tmp_path / "run"
    for rounds_done in (1, 2, 3):
        begun(out, rounds_done=rounds_done, privacy=PRIVATE)
    resumed = go(out, privacy=PRIVATE)
    assert resumed.privacy.epsilon == whole.privacy.epsilon
    assert [entry.epsilon for entry in resumed.record.rounds] == [
        entry.epsilon for entry in whole.record.rounds
    ]
    assert verify(out / LEDGER).epsilon == whole.privacy.epsilon


# A build that is broken.

WIDTH = 4000


def audit(mechanism):
    """List the faults of a mechanism for updates, by its output and its charges."""
    (price,) = mechanism.release(1, NAMES)
    key, problems = Key(1, rehearsal=True), []
    silent = np.zeros(WIDTH)
    first, second = (mechanism.at_site(silent, key / number) for number in (1, 2))
    for noise in (first, second):
        if stats.kstest(noise / price.scale, "norm").pvalue < 1e-6:
            problems.append("the noise is not the one that is charged")
            break
    if abs(float(np.corrcoef(first, second)[0, 1])) > 6 / np.sqrt(WIDTH):
        problems.append("the noise of one round is that of another")
    loud = silent.copy()
    loud[0] = 1e6
    # Relation "replace": two clipped updates are at most twice the bound apart.
    moved = float(mechanism.at_site(loud, key / 3)[0])
    if abs(moved) > price.sensitivity / 2 + 6 * price.scale:
        problems.append("one site moves more than what is charged")
    return problems


@dataclass(frozen=True, kw_only=True)
class HalfTheNoise(SiteLevel):
    """It charges for its noise, and adds half of it."""

    def at_site(self, update, key):
        quiet = SiteLevel(**{**vars(self), "multiplier": self.multiplier / 2})
        return quiet.at_site(update, key)


@dataclass(frozen=True, kw_only=True)
class NoClipping(SiteLevel):
    """It adds its noise to whatever comes."""

    def at_site(self, update, key):
        return update + super().at_site(np.zeros_like(update), key)


@dataclass(frozen=True, kw_only=True)
class OneNoiseForAll(SiteLevel):
    """It draws the same noise in every round, so that a difference of two rounds has none."""

    def at_site(self, update, key):
        return super().at_site(update, Key(key.seed, rehearsal=True))


@pytest.mark.parametrize(
    ("build", "found"),
    [
        (SiteLevel, []),
        (HalfTheNoise, ["the noise is not the one that is charged"]),
        (NoClipping, ["one site moves more than what is charged"]),
        (OneNoiseForAll, ["the noise of one round is that of another"]),
    ],
)
def test_row_49_a_sabotaged_build_is_convicted(build, found):
    mechanism = build(law="gaussian", clip=1.0, multiplier=1.5, where="site", reach=1.0, rehearsal=True)
    assert audit(mechanism) == found

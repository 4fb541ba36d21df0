"""Canaries in real runs: through the real loop and mechanisms, near to the claim, and beyond it if broken."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tacit.audits import IN_SECRET, affordable, audit_run
from tacit.audits.canaries import CANARIED
from tacit.audits.lower_bounds import FEWEST
from tacit.errors import Refused
from tacit.experiments import experiment
from tacit.learning import optimizers
from tacit.privacy.mechanisms import base, discrete, secure_gram, secure_sum, site_level, vertical
from tacit.privacy.mechanisms.base import add_noise
from tacit.privacy.policy import Open, Privacy
from tacit.runtime.keys import Key

SURVIVAL = """
name = "audited"
rounds = 3
seed = 5
[data]
kind = "simulated"
design = "weibull"
records = 200
features = 3
[sites]
kind = "iid"
count = 4
[task]
kind = "poisson-ph"
cuts = 3
sample = 1.0
[privacy]
unit = "record"
epsilon = 8.0
delta = 1e-5
clip = 1.0
rehearsal = true
"""
CURVES = """
name = "curves"
[data]
kind = "simulated-curves"
design = "smooth"
records = 60
[sites]
kind = "columns"
count = 3
[task]
kind = "functional-boosting"
release = "local"
[privacy]
unit = "record"
epsilon = 8.0
delta = 1e-5
clip = 5.0
rehearsal = true
"""
SITES = ['privacy.unit="site"']
RUNS = {
    "records": (SURVIVAL, []),
    "records, drawn": (SURVIVAL, ["task.sample=0.3"]),
    "records, laplace": (SURVIVAL, ['privacy.mechanism="laplace"']),
    "risk groups": (SURVIVAL, ['task.kind="cox-ph"', "task.groups_per_site=8"]),
    "noise at the sites": (SURVIVAL, SITES),
    "noise at the server": (SURVIVAL, [*SITES, 'privacy.noise="server"']),
    "noise at the server, sites drawn": (
        SURVIVAL,
        [*SITES, 'privacy.noise="server"', "privacy.participation=0.5"],
    ),
    "in secret": (SURVIVAL, [*SITES, 'privacy.noise="secure"']),
    "curves, each": (CURVES, []),
    "curves, products": (CURVES, ['task.release="moments"', 'privacy.noise="server"']),
    "curves, products in secret": (CURVES, ['task.release="moments"', 'privacy.noise="secure"']),
    "curves, lengths bought": (CURVES, ['task.radius="private"']),
}


@pytest.fixture
def asked(tmp_path):
    def read(text: str, changes=()):
        (tmp_path / "file.toml").write_text(text)
        return experiment.read(tmp_path / "file.toml", changes)

    return read


def halve(monkeypatch):
    """Half the noise in everything, behind the back of whoever names the price."""

    def quieter(values, law, scale, key, rehearsal):
        return add_noise(values, law, scale / 2, key, rehearsal)

    for module in (base, site_level, vertical):
        monkeypatch.setattr(module, "add_noise", quieter)
    for module in (secure_sum, secure_gram):
        monkeypatch.setattr(
            module, "discrete_gaussian", lambda spread, *rest: discrete.discrete_gaussian(spread / 2, *rest)
        )


SLOWEST = ("in secret", "curves, products in secret")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOWEST)) for name in RUNS]
)
def test_a_run_keeps_its_promise_and_one_with_half_the_noise_is_found_out(asked, monkeypatch, name):
    text, changes = RUNS[name]
    read, count = asked(text, changes), 1000 if "secret" in name else 3000
    honest = audit_run(read, canaries=count)
    assert honest.kept
    require_heard(honest)
    assert honest.claim == pytest.approx(8.0, rel=0.01)
    assert honest.fitted > 4.0
    halve(monkeypatch)
    broken = audit_run(read, canaries=count)
    assert not broken.kept
    assert broken.claim == pytest.approx(honest.claim, rel=1e-9)


@pytest.mark.parametrize("epsilon", [pytest.param(4.0, marks=pytest.mark.slow), 8.0])
def test_of_a_full_batch_the_audit_reaches_most_of_the_truth(asked, epsilon):
    found = audit_run(asked(SURVIVAL, [f"privacy.epsilon={epsilon}"]))
    assert found.claim == pytest.approx(epsilon, rel=1e-3)
    assert 0.7 * epsilon <= found.fitted <= epsilon
    assert found.one_run > 0.4 * epsilon


def test_a_step_more_than_was_paid_for_is_found_out(asked, monkeypatch):
    once = base.RecordLevel.release

    def cheaper(self, number, names):
        return tuple(replace(part, count=1) for part in once(self, number, names))

    read = asked(SURVIVAL, ["task.steps=5"])
    monkeypatch.setattr(base.RecordLevel, "release", cheaper)
    # What is solved for is five steps, so one is cheap; but five were taken.
    assert not audit_run(read, canaries=3000).kept


def test_records_that_are_not_clipped_are_found_out(asked, monkeypatch):
    monkeypatch.setattr(base, "clip_factors", lambda lengths, bound: np.ones_like(lengths))
    assert not audit_run(asked(SURVIVAL), canaries=3000).kept


def test_canaries_leave_the_training_alone(asked, monkeypatch):
    # So little noise that what is learned shows.
    promise = Privacy(unit="record", delta=1e-5, clip=1.0, noise_multiplier=1e-7, rehearsal=True)
    read, runs = replace(asked(SURVIVAL), privacy=promise), []
    plain = read.run_on(read.open_federation(), None).state
    trained = type(read).run_on
    monkeypatch.setattr(
        type(read),
        "run_on",
        lambda self, *given, **more: runs.append(trained(self, *given, **more)) or runs[-1],
    )
    audit_run(read, canaries=400)
    assert runs[0].state == pytest.approx(plain, rel=1e-3, abs=1e-5)


def walking(monkeypatch, change):
    """Another mechanism for each step of local work."""
    honest = optimizers._run_steps

    def walk(work, program, start, cohort, guard, keys):
        return honest(work, program, start, cohort, change(guard), keys)

    monkeypatch.setattr(optimizers, "_run_steps", walk)


@dataclass(frozen=True)
class Changed:
    """A mechanism whose training steps are another's."""

    guard: Any
    noisy_sums: Any


def test_work_that_goes_round_the_mechanism_is_found_out(asked, monkeypatch):
    def bare(contributions, keys, step):
        return contributions.total(None)

    walking(monkeypatch, lambda guard: Changed(guard, bare))
    found = audit_run(asked(SURVIVAL), canaries=1000)
    assert (found.heard, found.charged) == (0, 30)
    assert found.largest <= found.claim
    assert not found.kept


def test_work_that_goes_round_the_mechanism_after_its_first_step_is_found_out(asked, monkeypatch):
    def first_alone(guard):
        def sums(contributions, keys, step):
            return contributions.total(None) if step else guard.noisy_sums(contributions, keys, step)

        return Changed(guard, sums)

    walking(monkeypatch, first_alone)
    found = audit_run(asked(SURVIVAL, ["task.steps=5"]), canaries=1000)
    assert (found.heard, found.charged) == (3, 15)
    assert not found.kept


@pytest.mark.parametrize("name", ["records", "noise at the sites", "noise at the server", "in secret"])
def test_noise_that_is_used_again_in_every_round_is_found_out(asked, monkeypatch, name):
    text, changes = RUNS[name]
    honest = Key.secret
    # The number of the round is what tells its noise from that of others.
    monkeypatch.setattr(
        Key, "secret", lambda self, *inputs: honest(replace(self, path=self.path[1:]), *inputs)
    )
    found = audit_run(asked(text, changes), canaries=1000)
    assert found.echo > 6
    assert not found.kept
    assert not found.fresh


def test_noise_that_is_the_same_at_all_sites_is_found_out(asked, monkeypatch):
    def alike(values, law, scale, keys, rehearsal):
        same = [Key(0, rehearsal=True) / key.path[0] / "noise" for key in keys]
        return add_noise(values, law, scale, same, rehearsal)

    monkeypatch.setattr(base, "add_noise", alike)
    assert not audit_run(asked(SURVIVAL), canaries=1000).fresh


def require_heard(found):
    """Every answer that was charged was heard, and no noise twice."""
    assert found.heard >= found.charged > 0
    assert found.echo < 6


# Of the other runs, that is looked at where they keep their promise.
@pytest.mark.parametrize("name", SLOWEST)
def test_every_answer_that_was_charged_was_heard(asked, name):
    text, changes = RUNS[name]
    require_heard(audit_run(asked(text, changes), canaries=400))


def test_nobody_stops_early_by_what_is_not_paid_for(asked):
    told = []
    read = asked(SURVIVAL, ["rounds=6", "stop.patience=1"])
    audit_run(read, canaries=400, tell=lambda words, share: told.append(share))
    assert told[-1] == 1.0
    assert len(told) == 6


def test_what_watching_costs_is_left_out_of_what_is_audited(asked):
    read = asked(SURVIVAL, ["stop.patience=2", "stop.epsilon=2.0", "stop.bound=4.0"])
    found = audit_run(read, canaries=1000)
    assert found.kept
    assert found.claim < 6.1


def test_an_open_run_makes_no_promise_to_be_audited(asked):
    with pytest.raises(Refused, match="no promise"):
        audit_run(replace(asked(SURVIVAL), privacy=Open()))


def test_what_rounds_come_to_is_told_to_nobody(asked):
    told = []
    audit_run(asked(SURVIVAL), canaries=400, tell=lambda words, share: told.append((words, share)))
    assert told == [("training with canaries", number / 3) for number in (1, 2, 3)]


def test_every_mechanism_of_a_promise_has_canaries():
    from tacit.privacy.mechanisms.base import ClippedOnly, NoPrivacy

    made = {kind for kind in all_kinds(NoPrivacy) if kind.__module__.startswith("tacit.privacy")}
    # Those that stand for no promise of their own.
    none = {ClippedOnly, vertical.ClippedColumns, vertical.ColumnMechanism, secure_gram.SecureGram}
    assert made - set(CANARIED) == none


def all_kinds(kind):
    return {kind}.union(*(all_kinds(one) for one in kind.__subclasses__())) - {base.NoPrivacy}


def test_sums_in_secret_have_as_many_canaries_as_there_is_time_for(asked):
    promise = asked(SURVIVAL, [*SITES, 'privacy.noise="secure"']).privacy
    assert affordable(20_000, promise, 100) == IN_SECRET // 100
    assert affordable(20_000, promise, 1) == 20_000
    assert affordable(20_000, promise, 10**9) == FEWEST
    assert affordable(20_000, replace(promise, noise="server"), 100) == 20_000

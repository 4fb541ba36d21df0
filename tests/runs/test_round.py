"""One bad site never ends everybody's run; what is done about it is written down."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.aggregation import (
    Bucketing,
    CenteredClip,
    CovarianceFilter,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    Mixing,
    Robust,
    TrimmedMean,
)
from tacit.aggregation.attacks import GaussianNoise, LabelFlip, Scaling, SignFlip
from tacit.aggregation.defence.quarantine import Quarantine
from tacit.engines.base import Engine, Local
from tacit.errors import InvalidValue, Refused, TooFewSites
from tacit.privacy.policy import Provenance
from tacit.runtime.keys import Key
from tacit.sites.sampling import Fixed
from tacit.sites.splits import Iid
from tacit.survival import CoxPH, LogisticHazard
from tacit.survival.data.sources import Simulated

TASK = LogisticHazard(hidden=[], cuts=4, steps=1, sample=1.0, lr=1.0, horizon=4.0)
FEDERATION = Simulated(records=400, features=3).open(Iid(count=8), 1)


def site_level(**fields) -> tacit.Privacy:
    usual = {"unit": "site", "noise_multiplier": 0.01, "delta": 1e-2, "clip": 1.0, "rehearsal": True}
    return tacit.Privacy(**{**usual, **fields})


@dataclass(frozen=True)
class Broken(Engine):
    """The local engine, with sites whose replies are changed on the way."""

    change: Any
    kind = "broken"

    def train(self, task, federation, state, names, mechanism, key):
        sent = Local().train(task, federation, state, names, mechanism, key)
        matrix = sent.matrix.copy()
        for place, name in enumerate(sent.names):
            matrix[place] = self.change(name, matrix[place])
        return replace(sent, matrix=matrix)


def spoilt(value):
    return Broken(lambda name, row: np.full_like(row, value) if name == "site-3" else row)


@pytest.mark.parametrize(
    ("value", "reason"), [(float("nan"), "not-finite"), (float("inf"), "not-finite"), (1e38, "too-long")]
)
@pytest.mark.parametrize("aggregation", [Mean(), CovarianceFilter(f=2), Krum(f=1), Mixing(then=Median(f=2))])
def test_a_site_that_sends_nonsense_is_named_and_left_out_and_the_run_goes_on(value, reason, aggregation):
    run = tacit.fit(TASK, FEDERATION, aggregation=aggregation, engine=spoilt(value), rounds=2)
    assert [(fault.site, fault.reason) for entry in run.record.rounds for fault in entry.faults] == [
        ("site-3", reason)
    ] * 2
    assert run.scores["c_index"] > 0.5
    assert f"site-3: 2 updates left out ({reason})" in run.summary()


def test_where_every_site_diverges_the_run_says_so():
    with pytest.raises(InvalidValue, match=r"diverged in round 1: no site sent finite numbers; lower the lr"):
        tacit.fit(TASK, FEDERATION, engine=Broken(lambda name, row: row * np.nan), rounds=2)


def test_a_round_with_too_few_left_for_f_changes_nothing_and_says_why():
    engine = Broken(lambda name, row: row * np.nan if name in ("site-1", "site-2") else row)
    start = tacit.fit(TASK, FEDERATION, engine=engine, rounds=1, aggregation=TrimmedMean(f=3))
    (only,) = start.record.rounds
    assert only.skipped is not None
    assert "f = 3 is not allowed with 6 sites" in only.skipped
    untrained = TASK.bind(FEDERATION, Provenance(tacit.Open(), public=True)).start(
        FEDERATION, Key(0) / "start"
    )
    assert np.array_equal(start.state, untrained)
    assert "1 round skipped" in start.summary()


def test_a_draw_too_small_for_f_is_skipped_and_not_paid_for(tmp_path):
    run = tacit.fit(
        TASK, FEDERATION, privacy=site_level(), aggregation=TrimmedMean(f=3), sampling=Fixed(count=5),
        rounds=2, out=tmp_path / "run",
    )  # fmt: skip
    assert all(entry.skipped for entry in run.record.rounds)
    with tacit.Ledger(tmp_path / "run" / "ledger.db", mode="read") as ledger:
        assert ledger.releases() == []


def test_nothing_is_told_in_a_round_that_nobody_paid_for(tmp_path):
    promise = tacit.Privacy(unit="record", epsilon=3.0, delta=1e-4, clip=1.0)
    run = tacit.fit(
        TASK, Simulated(records=800, features=3, held_out=0.1).open(Iid(count=8), 1), privacy=promise,
        aggregation=TrimmedMean(f=3), sampling=Fixed(count=5), stop=tacit.Stopping(epsilon=0.5, patience=9),
        rounds=2, out=tmp_path / "run",
    )  # fmt: skip
    assert [(bool(entry.skipped), entry.scores) for entry in run.record.rounds] == [(True, {})] * 2
    with tacit.Ledger(tmp_path / "run" / "ledger.db", mode="read") as ledger:
        assert not [release for release in ledger.releases() if "round" in release.purpose]


def test_an_f_that_a_federation_cannot_stand_is_refused_before_anything_happens(tmp_path):
    with pytest.raises(TooFewSites, match="f = 4 is not allowed with 8 sites"):
        tacit.fit(TASK, FEDERATION, aggregation=TrimmedMean(f=4), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_shares_of_a_geometric_rule_explain_the_round():
    run = tacit.fit(TASK, FEDERATION, aggregation=CovarianceFilter(f=2), attack=Scaling(liars=2), rounds=2)
    last = run.record.rounds[-1].shares
    assert set(last) == set(FEDERATION)
    assert sum(last.values()) == pytest.approx(1)
    liars = Scaling(liars=2).draw_liars(list(FEDERATION), Key(0))
    assert all(last[name] < 1e-6 for name in liars)


def test_the_shares_of_raw_updates_under_server_noise_stay_secret():
    rule = CenteredClip(radius=0.1)
    run = tacit.fit(TASK, FEDERATION, aggregation=rule, privacy=site_level(noise="server"), rounds=2)
    assert all(entry.shares == {} for entry in run.record.rounds)


@pytest.mark.parametrize(
    ("aggregation", "settled"),
    [(Robust(f=2), "covariance-filter"), (Robust(), "geometric-median")],
)
def test_the_default_rule_is_decided_by_what_is_known_and_written_down(aggregation, settled, tmp_path):
    run = tacit.fit(TASK, FEDERATION, aggregation=aggregation, rounds=1, out=tmp_path / "run")
    assert f'kind = "{settled}"' in (tmp_path / "run" / "experiment.toml").read_text()
    assert tacit.load(tmp_path / "run").scores == run.scores


def test_under_server_noise_the_default_rule_has_a_bound():
    run = tacit.fit(TASK, FEDERATION, aggregation=Robust(f=2), privacy=site_level(noise="server"), rounds=1)
    (release,) = run.privacy.released
    assert "0.25" in release  # the clip over 8 - 2 * 2 sites


@pytest.mark.parametrize(
    ("aggregation", "privacy", "way_out"),
    [
        (Median(f=2), {"noise": "server"}, "trimmed-mean"),
        (GeometricMedian(), {"noise": "server"}, "trimmed-mean"),
        (CovarianceFilter(f=2), {"noise": "server"}, "trimmed-mean"),
        (CenteredClip(), {"noise": "server"}, "radius"),
        (Mixing(then=Median(f=2)), {"noise": "server"}, "trimmed-mean"),
        (TrimmedMean(f=2), {"noise": "server", "participation": 0.5}, "participation = 1"),
        (Krum(f=2), {"noise": "site"}, "allow_fragile"),
        (Median(f=2), {"noise": "secure"}, "bucketing"),
        (Robust(f=2), {"noise": "secure"}, "bucketing"),
        (Mean(), {"noise": "secure", "participation": 0.5}, "participation = 1"),
        (Mean(), {"noise": "secure", "colluders": 5}, "could unmask"),
        (Bucketing(then=Median(f=1), size=2), {"noise": "secure"}, "at least 3"),
    ],
)  # fmt: skip
def test_rules_that_do_not_go_with_a_promise_are_refused_with_a_way_out(
    aggregation, privacy, way_out, tmp_path
):
    with pytest.raises((Refused, InvalidValue, TooFewSites), match=f"(?s){way_out}"):
        tacit.fit(
            TASK, FEDERATION, aggregation=aggregation, privacy=site_level(**privacy), out=tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


def test_krum_at_record_level_is_refused_too_unless_somebody_wants_to_see_it_fail():
    promise = tacit.Privacy(unit="record", noise_multiplier=5.0, delta=1e-3, clip=1.0, rehearsal=True)
    with pytest.raises(Refused, match="covariance-filter"):
        tacit.fit(TASK, FEDERATION, aggregation=Krum(f=1), privacy=promise)
    assert tacit.fit(TASK, FEDERATION, aggregation=Krum(f=1, allow_fragile=True), privacy=promise).scores


@pytest.mark.parametrize("noise", ["server", "secure"])
def test_nobody_is_judged_by_updates_that_have_no_noise_yet(noise):
    with pytest.raises(Refused, match=r"\[quarantine\]"):
        tacit.fit(TASK, FEDERATION, quarantine=Quarantine(), privacy=site_level(noise=noise))


def test_quarantine_observes_unless_it_is_told_to_exclude_and_says_why():
    attacked = {"attack": GaussianNoise(liars=2), "rounds": 8, "aggregation": Robust(f=2)}
    observed = tacit.fit(TASK, FEDERATION, quarantine=Quarantine(), **attacked)
    plain = tacit.fit(TASK, FEDERATION, **attacked)
    assert np.array_equal(observed.state, plain.state)
    decisions = [decision for entry in observed.record.rounds for decision in entry.decisions]
    liars = set(GaussianNoise(liars=2).draw_liars(list(FEDERATION), Key(0)))
    assert {decision.site for decision in decisions if decision.now == "quarantined"} == liars
    assert all(decision.reason for decision in decisions)
    excluded = tacit.fit(TASK, FEDERATION, quarantine=Quarantine(mode="exclude"), **attacked)
    assert not np.array_equal(excluded.state, plain.state)
    assert "suspected at the end" in excluded.summary()


def test_a_watched_run_resumes_with_what_it_thought_of_the_sites(tmp_path):
    told = {
        "attack": SignFlip(liars=2), "quarantine": Quarantine(mode="exclude"), "aggregation": Robust(f=2),
        "rounds": 7,
    }  # fmt: skip
    whole = tacit.fit(TASK, FEDERATION, **told)

    def stop(entry):
        if entry.number == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tacit.fit(TASK, FEDERATION, **told, out=tmp_path / "run", callbacks=[stop])
    resumed = tacit.fit(TASK, FEDERATION, **told, out=tmp_path / "run", resume=True)
    assert np.array_equal(resumed.state, whole.state)
    assert resumed.record.rounds[-1].standings == whole.record.rounds[-1].standings


def test_an_attack_needs_a_rehearsal():
    real = tacit.Privacy(unit="site", epsilon=1, delta=1e-2, clip=1.0)
    with pytest.raises(Refused, match="rehearsal = true"):
        tacit.fit(TASK, FEDERATION, attack=SignFlip(liars=1), privacy=real)
    with pytest.raises(InvalidValue, match="liars = 8"):
        tacit.fit(TASK, FEDERATION, attack=SignFlip(liars=8))


def test_liars_about_their_records_change_what_is_learnt_but_not_what_is_scored():
    honest = tacit.fit(TASK, FEDERATION, rounds=3)
    attacked = tacit.fit(TASK, FEDERATION, rounds=3, attack=LabelFlip(liars=7))
    assert attacked.scores["c_index"] < honest.scores["c_index"] - 0.02


def test_a_users_own_aggregator_need_not_say_more_than_how_it_combines():
    def middle(updates):
        return np.median(updates.matrix, axis=0)

    run = tacit.fit(TASK, FEDERATION, aggregation=middle, rounds=2)
    assert run.scores["c_index"] > 0.5
    with pytest.raises(Refused, match="its sensitivity to one site is not bounded"):
        tacit.fit(TASK, FEDERATION, aggregation=middle, privacy=site_level(noise="server"))


@pytest.mark.parametrize(
    "aggregation",
    [Mean(), CenteredClip(radius=0.5), Bucketing(then=Median(f=1), size=3)],
    ids=["mean", "clip", "buckets"],
)
def test_a_blind_server_learns_what_a_seeing_one_would(aggregation):
    # Hardly any noise: what is left of it is below what is compared.
    quiet = site_level(noise_multiplier=1e-3, noise="secure", clip=10.0)
    nine = Simulated(records=400, features=3).open(Iid(count=9), 1)
    blind = tacit.fit(TASK, nine, aggregation=aggregation, privacy=quiet, rounds=2)
    seeing = tacit.fit(TASK, nine, aggregation=aggregation, rounds=2)
    assert np.allclose(blind.state, seeing.state, atol=0.05)
    assert not np.array_equal(blind.state, seeing.state)


def test_a_blind_run_says_who_is_trusted_and_what_it_cost():
    promise = site_level(noise_multiplier=None, epsilon=5.0, noise="secure", colluders=2)
    run = tacit.fit(CoxPH(hidden=[], steps=1, horizon=4.0, cuts=4), FEDERATION, privacy=promise, rounds=2)
    assert 4.9 < run.privacy.epsilon <= 5.0
    said = " ".join(run.summary().split())
    assert "all sites but 2, not to collude with the server, which sees only sums" in said
    assert "discrete Gaussian" in said
    assert run.record.rounds[0].sites == 8


def test_a_rehearsal_of_a_blind_run_repeats_and_resumes(tmp_path):
    told = {"privacy": site_level(noise="secure", noise_multiplier=1.0), "rounds": 3}
    whole = tacit.fit(TASK, FEDERATION, **told)

    def stop(entry):
        if entry.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tacit.fit(TASK, FEDERATION, **told, out=tmp_path / "run", callbacks=[stop])
    assert np.array_equal(
        tacit.fit(TASK, FEDERATION, **told, out=tmp_path / "run", resume=True).state, whole.state
    )


def test_three_sites_are_the_fewest_that_can_be_added_up_in_secret():
    two = Simulated(records=100, features=3).open(Iid(count=2), 1)
    with pytest.raises(Refused, match="at least 3"):
        tacit.fit(TASK, two, privacy=site_level(noise="secure"))
    three = Simulated(records=100, features=3).open(Iid(count=3), 1)
    assert tacit.fit(TASK, three, privacy=site_level(noise="secure")).scores

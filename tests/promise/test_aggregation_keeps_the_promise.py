"""However updates are combined, no sum carries less noise than was charged, and no site ends the run."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit.aggregation import (
    Bucketing,
    CenteredClip,
    GeometricMedian,
    Mean,
    Mixing,
    Robust,
    TrimmedMean,
)
from tacit.aggregation.screening import Reply, Screen
from tacit.aggregation.secure import Session, products, secure_sum
from tacit.engines.base import Engine, Local, run_at_site
from tacit.errors import InvalidValue, TacitError
from tacit.learning.task import Updates
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.mechanisms import base as mechanisms
from tacit.privacy.mechanisms.secure_sum import SecureSum
from tacit.privacy.mechanisms.site_level import SiteLevel
from tacit.runs.fit import fit
from tacit.sites.sampling import Fixed, Poisson
from tacit.sites.splits import Iid
from tacit.sites.table import from_arrays
from tacit.survival import CoxPH, LogisticHazard
from tacit.survival.data.sources import Simulated

TASK = LogisticHazard(hidden=[], cuts=4, steps=1, sample=1.0, lr=1.0, horizon=4.0)
SECRET = tacit.Privacy(unit="site", noise="secure", noise_multiplier=2.0, delta=1e-5, clip=1.0)
TRUSTED = replace(SECRET, noise="server")


def simulated(sites: int, records: int = 240) -> tacit.Federation:
    return Simulated(records=records, features=3).open(Iid(count=sites), 1)


def tables(names: str) -> tacit.Federation:
    draws = np.random.default_rng(0)
    return tacit.Federation({
        name: from_arrays(draws.normal(size=(12, 3)), y=draws.normal(size=12)) for name in names
    })  # fmt: skip


def supervised() -> tacit.Supervised:
    torch.manual_seed(1)
    return tacit.Supervised(module=nn.Linear(3, 1), loss="squared", steps=1, sample=1.0, batch=12)


@pytest.mark.parametrize(
    "rule", [Mean(), CenteredClip(radius=0.5), Bucketing(then=GeometricMedian(), size=3)]
)
@pytest.mark.parametrize("sampling", [Poisson(), Fixed(count=4), Fixed(count=7)])
def test_every_sum_taken_in_secret_holds_as_many_honest_shares_as_were_counted_on(
    rule, sampling, monkeypatch
):
    held, counted = [], []
    real = products.secure_sum

    def overheard(vectors, *, session):
        held.append(session.honest)
        return real(vectors, session=session)

    def noised(self, update, key, kept=SecureSum.at_site):
        counted.append(self.shares)
        return kept(self, update, key)

    monkeypatch.setattr(products, "secure_sum", overheard)
    monkeypatch.setattr(SecureSum, "at_site", noised)
    try:
        fit(TASK, simulated(10), privacy=SECRET, aggregation=rule, sampling=sampling)
    except TacitError:
        assert not held
        return
    # A round with too few sites for the rule is skipped: then there is no sum.
    assert not held or min(held) >= max(counted)


def test_fewer_sites_than_the_noise_was_shared_among_are_no_group():
    mechanism = SecureSum(clip=1.0, multiplier=1.0, colluders=1, sites=10)
    with pytest.raises(TacitError):
        mechanism.groups(["a", "b", "c", "d"])


def test_more_sites_than_can_answer_together_are_refused_before_anything_is_charged(tmp_path):
    # In buckets they are few enough, but a question is answered by all of them.
    rule = Bucketing(then=GeometricMedian(), size=10)
    task = CoxPH(hidden=[], steps=1, sample=1.0, lr=0.1)
    with pytest.raises(TacitError):
        fit(task, simulated(120, 600), privacy=SECRET, aggregation=rule, out=tmp_path / "run")
    assert not (tmp_path / "run" / "ledger.db").exists()


@pytest.mark.parametrize(
    ("rule", "participation"),
    [
        (Mean(), 1.0),
        (Mean(), 0.5),
        (Mean(weights={f"site-{place}": float(place) for place in range(1, 9)}), 0.5),
        (TrimmedMean(f=2), 1.0),
        (Mixing(then=TrimmedMean(f=2)), 1.0),
        (CenteredClip(radius=0.3), 0.5),
        (Robust(), 0.5),
        (Robust(f=2), 1.0),
    ],
)
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noise_at_the_server_is_the_multiple_of_the_sensitivity_that_was_charged(
    rule, participation, law, tmp_path, monkeypatch
):
    scales = []

    def overheard(values, law, scale, key, rehearsal, kept=mechanisms.add_noise):
        scales.append(scale)
        return kept(values, law, scale, key, rehearsal)

    monkeypatch.setattr("tacit.privacy.mechanisms.site_level.add_noise", overheard)
    promise = replace(TRUSTED, mechanism=law, participation=participation)
    task = CoxPH(hidden=[], steps=1, sample=1.0, lr=0.1)
    fit(task, simulated(8), privacy=promise, aggregation=rule, rounds=2, out=tmp_path / "run")
    norm = mechanisms.NORMS[law]
    reach = rule.resolve(8, promise).sensitivity(1.0, 8 * participation, norm)
    # Two rounds and what is asked once; all of it is on the books.
    with Ledger(tmp_path / "run" / "ledger.db", mode="read") as ledger:
        releases = ledger.releases()
    assert len(scales) == sum(release.count for release in releases) >= 3
    assert min(scales) >= 2.0 * reach * (1 - 1e-12)
    assert all(release.scale / release.sensitivity == pytest.approx(2.0) for release in releases)


class Cut(Exception):
    """The power is cut."""


class Signed:
    """Somebody's own mean, of which no file can say what it does."""

    def __init__(self, sign: int) -> None:
        self.sign = sign

    def __call__(self, updates, sites):
        return self.sign * updates.matrix.sum(axis=0) / sites

    def sensitivity(self, clip, sites):
        return clip / sites


def test_an_aggregator_that_cannot_be_written_down_is_paid_again_after_a_cut(tmp_path, monkeypatch):
    heard, real = [], SiteLevel.at_server

    def overheard(self, combined, key):
        heard.append(real(self, combined, key))
        raise Cut

    monkeypatch.setattr(SiteLevel, "at_server", overheard)

    def paid(sign, *, resume):
        options = {"privacy": TRUSTED, "rounds": 3, "out": tmp_path / "run", "resume": resume}
        with pytest.raises(Cut):
            fit(supervised(), tables("abc"), aggregation=Signed(sign), **options)
        with Ledger(tmp_path / "run" / "ledger.db", mode="read") as ledger:
            return sum(release.count for release in ledger.releases())

    before, after = paid(1, resume=False), paid(-1, resume=True)
    # Minus the mean under noise of its own is a second look at the mean.
    assert not np.array_equal(heard[0], heard[1])
    assert after > before


class Dropping(Engine):
    """An engine that adds up in secret, perhaps without a site that falls silent, then loses its power."""

    kind = "dropping"

    def __init__(self, gone: str | None) -> None:
        self.gone = gone

    def train(self, task, federation, state, names, mechanism, key):
        guarded = run_at_site(task, state, federation.cohort(names), mechanism, key)
        session = Session(run="run", round=1, names=guarded.names, width=guarded.matrix.shape[1])
        steps = {
            name: mechanism.on_ring(row) for name, row in zip(guarded.names, guarded.matrix, strict=True)
        }
        secure_sum(steps, session=session, dropped={self.gone: "mask"} if self.gone else None)
        raise Cut


def test_a_sum_taken_again_after_a_cut_is_paid_again_since_others_may_have_dropped_out(tmp_path):
    # With one noise for both, the difference of two sums is one site under its own share of noise alone.
    def paid(gone, *, resume):
        options = {"privacy": SECRET, "rounds": 3, "out": tmp_path / "run", "resume": resume}
        with pytest.raises(Cut):
            fit(supervised(), tables("abcd"), engine=Dropping(gone), **options)
        with Ledger(tmp_path / "run" / "ledger.db", mode="read") as ledger:
            return sum(release.count for release in ledger.releases())

    assert paid("a", resume=False) < paid(None, resume=True)


@dataclass(frozen=True)
class Said(Engine):
    """An engine whose sites send what they are told to."""

    rows: np.ndarray
    kind = "said"

    def train(self, task, federation, state, names, mechanism, key):
        return Updates(tuple(names), self.rows.copy())


def test_a_liar_cannot_make_an_honest_site_move_a_mix_further_under_laplace_noise(monkeypatch):
    # A row that is short in L2 and long in L1: it has to be left out, or cut, before it is mixed.
    width, rule, combined = 400, Mixing(then=TrimmedMean(f=1)), []
    promise = replace(TRUSTED, mechanism="laplace", delta=0.0)
    records = from_arrays(np.ones((2, width - 1)), y=np.ones(2))
    torch.manual_seed(1)
    task = tacit.Supervised(module=nn.Linear(width - 1, 1), loss="squared", steps=1, sample=1.0, batch=2)

    def overheard(self, values, key):
        combined.append(values)
        return values

    monkeypatch.setattr(SiteLevel, "at_server", overheard)
    rows = np.zeros((5, width))
    rows[4] = 1 / np.sqrt(width)
    rows[range(4), [0, 0, 0, 1]] = [0.9, -0.9, -0.6, -0.5]
    for first in (rows[0], 0 * rows[0]):
        engine = Said(np.stack([first, *rows[1:]]))
        fit(task, tacit.Federation(dict.fromkeys("abcde", records)), privacy=promise, aggregation=rule,
            engine=engine)  # fmt: skip
    claimed = rule.sensitivity(1.0, 5, "l1")
    assert claimed is not None
    assert float(np.abs(combined[0] - combined[1]).sum()) <= claimed * (1 + 1e-9)


@pytest.mark.parametrize("radius", [1e-3, 1e-120, 1e-170])
def test_a_radius_holds_however_short_it_is(radius):
    # Squares of such numbers are zero in double precision.
    try:
        rule = CenteredClip(radius=radius)
    except InvalidValue:
        return
    moved = rule(np.array([[1e5 * radius]]), sites=1)
    assert float(np.abs(moved).max()) <= rule.sensitivity(1.0, 1) * (1 + 1e-9)


@dataclass(frozen=True)
class Spoilt(Engine):
    """The local engine, with one site that sends nothing but NaN."""

    kind = "spoilt"

    def train(self, task, federation, state, names, mechanism, key):
        sent = Local().train(task, federation, state, names, mechanism, key)
        bad = np.array([name == "site-3" for name in sent.names])
        return replace(sent, matrix=np.where(bad[:, None], np.nan, sent.matrix))


def test_a_site_that_is_alone_in_a_round_does_not_end_the_run_of_all():
    run = fit(TASK, simulated(4), engine=Spoilt(), sampling=Fixed(count=1), rounds=12)
    alone = [entry for entry in run.record.rounds if entry.faults]
    assert alone
    assert all(entry.skipped for entry in alone)


@pytest.mark.parametrize(
    "vector",
    [torch.zeros(3, dtype=torch.bfloat16), torch.zeros(3).to_sparse(), torch.zeros(3, device="meta")],
    ids=["bfloat16", "sparse", "meta"],
)
def test_a_tensor_that_is_no_array_is_a_fault_of_its_site_alone(vector):
    screen = Screen(names=("a", "b"), width=3, round=1, ticket="t")
    good = Reply(site="b", round=1, ticket="t", vector=np.ones(3))
    kept, faults = screen([Reply(site="a", round=1, ticket="t", vector=vector), good])
    assert kept.names == ("b",)
    assert [(fault.site, fault.reason) for fault in faults] == [("a", "schema")]

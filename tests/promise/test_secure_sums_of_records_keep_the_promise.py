"""Sums of records in secret carry at least the noise that was charged, and no record moves them further.

The worst that the promise allows: as many sites drop out as may, and the colluders subtract their own shares.
What is left must vary no less than what was charged (chi-square). A test that accuses nobody proves nothing,
so it is shown to accuse one share less. Seeds are fixed: verdicts repeat.
"""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import tacit
from tacit import Federation, Privacy, fit
from tacit.privacy.mechanisms.base import Rows
from tacit.privacy.mechanisms.secure_records import SecureRecordSum
from tacit.privacy.mechanisms.secure_sum import threshold
from tacit.runtime.keys import Key
from tacit.sites.table import Table
from tacit.survival import NewtonPH
from tacit.survival.models import newton_steps as steps
from tacit.survival.models.feature_scaling import CellCounts

FALSE_ALARM = 1e-6
REHEARSAL = Key(28, rehearsal=True)
WIDTH = 20_000
# Sites, and colluders among them.
CASES = [(3, 1), (5, 1), (10, 2), (20, 6)]


def blind(sites: int, colluders: int = 1, multiplier: float = 1.3) -> SecureRecordSum:
    return SecureRecordSum(clip=1.0, multiplier=multiplier, colluders=colluders, sites=sites, rehearsal=True)


def sent(mechanism: SecureRecordSum, rows: np.ndarray, site: int) -> np.ndarray:
    """Return a site's term of the sum, modulo 2^32."""
    key = REHEARSAL / mechanism.sites / site
    return mechanism.on_ring(mechanism.at_site(mechanism.noisy_sum(rows, key / "noise"), key / "update"))


@pytest.mark.parametrize(("sites", "colluders"), CASES)
def test_the_noise_among_the_fewest_survivors_varies_by_what_was_charged(sites, colluders):
    mechanism = blind(sites, colluders)
    came = [sent(mechanism, np.zeros((0, WIDTH)), site) for site in range(threshold(sites))]
    # Colluders know what they added, and take it out again.
    hidden = np.add.reduce(came[colluders:], dtype=np.uint32)
    noise = mechanism.lattice(WIDTH).decode(hidden)
    (price,) = mechanism.release(1, ["a"])
    # The charge in units of the bound, on the lattice that was used.
    charged = price.multiplier * mechanism.lattice(WIDTH).sensitivity / mechanism.lattice(WIDTH).scale
    assert charged >= price.multiplier * mechanism.clip
    assert stats.chi2.cdf(float(((noise / charged) ** 2).sum()), noise.size) > FALSE_ALARM
    assert (noise**2).mean() < 1.06 * charged**2
    fewer = mechanism.lattice(WIDTH).decode(hidden - came[-1])
    accused = stats.chi2.cdf(float(((fewer / charged) ** 2).sum()), noise.size) < FALSE_ALARM
    assert accused


def extremes() -> list[tuple[Table, np.ndarray]]:
    """Records that are as long as any, and their features: events at once and at the end, at all corners."""
    found = []
    for time, event, corner in product((1e-9, 3.0, 1e12), (0.0, 1.0), (-1.0, 0.0, 1.0)):
        table = Table(np.array([[corner]]), {"time": np.array([time]), "event": np.array([event])}, ("a",))
        found.append((table, np.array([[corner]])))
    return found


@pytest.mark.parametrize("information", [False, True])
def test_a_record_moves_the_rounded_sum_of_its_site_by_no_more_than_is_charged(information):
    draw, longest = np.random.default_rng(1), 0.0
    ends, log_base = np.array([1.0, 4.0, 9.0]), np.array([0.1, -0.4, 0.3])
    time, event = draw.exponential(4, 60), (draw.random(60) < 0.5).astype(float)
    features = draw.uniform(-1, 1, (60, 1))
    mechanism = blind(5)

    def total(more: Table | None, own: np.ndarray | None, effect: float) -> np.ndarray:
        known = features if own is None else np.vstack([features, own])
        times = time if more is None else np.append(time, more.targets["time"])
        events = event if more is None else np.append(event, more.targets["event"])
        table = Table(known, {"time": times, "event": events}, ("a",))
        point = steps.NewtonPoint(np.array([3.0, -2.0, 0.0]), np.array([0.5, effect]))
        records = steps.follow_up(table, ends, known)
        rows = steps.BoundedRows(records, log_base, point, information, (0.6, 0.8))
        exact = rows.total(None)[0]
        return mechanism.lattice(exact.size).round_sum(exact)

    for effect in (0.0, 2.0, -40.0):
        base = total(None, None, effect)
        lattice = mechanism.lattice(base.size)
        for table, own in extremes():
            moved = float(np.linalg.norm(total(table, own, effect) - base))
            assert moved <= lattice.sensitivity
            longest = max(longest, moved / (lattice.scale * lattice.clip))
    # Records are nearly as long as what is paid for.
    assert longest > 0.5


def patients(size: int = 600, sites: int = 5) -> pd.DataFrame:
    draw = np.random.default_rng(2)
    x = draw.normal(size=(size, 2))
    time, last = draw.exponential(np.exp(-0.9 * x[:, 0])), draw.uniform(0.3, 3, size)
    frame = pd.DataFrame(x, columns=["a", "b"])
    return frame.assign(
        time=np.minimum(time, last), event=(time < last).astype(int), site=np.arange(size) % sites
    )


def test_a_record_moves_the_rounded_histograms_by_no_more_than_is_charged():
    federation = Federation.from_frame(patients(), site="site", targets=["time", "event"])
    task = NewtonPH(horizon=3.0, columns=("a", "b"), sites=5)
    question = task.initial_query
    table = federation.records_of("0")
    whole = CellCounts(question, table).total(None)[0]
    lattice = blind(5).lattice(whole.size)
    for left_out in range(len(table)):
        rest = CellCounts(question, table.take(np.delete(np.arange(len(table)), left_out))).total(None)[0]
        moved = np.linalg.norm(lattice.round_sum(whole) - lattice.round_sum(rest))
        assert 0.8 * lattice.scale < moved <= lattice.sensitivity


def test_a_run_shows_the_server_one_sum_and_charges_each_site_its_own_records(tmp_path):
    privacy = Privacy(unit="record", noise="secure", epsilon=2.0, delta=1e-5, rehearsal=True)
    federation = Federation.from_frame(patients(), site="site", targets=["time", "event"])
    run = fit(NewtonPH(horizon=3.0), federation, privacy=privacy, out=tmp_path / "run")
    assert {release.subject for release in run.charged} == {f"records@{site}" for site in range(5)}
    assert {(release.law, release.view, release.unit) for release in run.charged} == {
        ("discrete", "server", "record")
    }
    assert run.privacy.epsilon <= 2.0
    assert run.privacy.epsilon == pytest.approx(2.0, rel=1e-3)
    trusted = " ".join(run.privacy.trusted)
    assert "all sites but 1, not to collude with the server, which sees only sums" in trusted


def test_a_sum_that_is_repeated_has_new_noise_and_is_paid_again(tmp_path):
    """A second sum may be over other survivors: with one noise, their difference would be bare."""
    from tacit.runs.context import RunContext
    from tacit.runs.setup import prepare
    from tacit.runs.spec import RunSpec

    federation = Federation.from_frame(patients(), site="site", targets=["time", "event"])
    found = []
    for noise in ("secure", "site"):
        privacy = Privacy(unit="record", noise=noise, epsilon=2.0, delta=1e-5)
        spec = RunSpec(task=NewtonPH(horizon=3.0), privacy=privacy, rounds=6)
        ready = [RunContext(prepared=prepare(spec, federation), federation=federation) for _ in range(2)]
        one, other = (context._work for context in ready)
        found.append(one == other)
    assert found == [False, True]


def test_an_update_of_a_task_that_changes_its_sums_does_not_leave():
    class Divided(NewtonPH):
        def train(self, state, cohort, mechanism, key):
            found = super().train(state, cohort, mechanism, key)
            return type(found)(found.names, found.matrix / 3)

    privacy = Privacy(unit="record", noise="secure", epsilon=2.0, delta=1e-5, rehearsal=True)
    federation = Federation.from_frame(patients(), site="site", targets=["time", "event"])
    with pytest.raises(tacit.errors.Refused, match="sends one noisy sum of each site as it is"):
        fit(Divided(horizon=3.0), federation, privacy=privacy)


def test_rows_beyond_the_bound_are_clipped_before_they_are_added_up():
    mechanism, long = blind(3, multiplier=0.1), np.full((1, 2, 4), 1e9)
    noisy = mechanism.noisy_sums(Rows(long), [REHEARSAL], 0)[0]
    assert np.abs(noisy - 1.0).max() < 0.5

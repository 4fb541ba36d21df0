"""More records than a secure sum holds: refused where their number is public, else told to their owner."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w
from in_process import OPEN, handed

from tacit import Federation, Privacy, fit
from tacit.deploy.site.preflight import check
from tacit.errors import Refused
from tacit.experiments import experiment
from tacit.privacy.mechanisms import lattice
from tacit.privacy.mechanisms.base import Rows
from tacit.privacy.mechanisms.secure_records import SecureRecordSum, SecureSumRounds
from tacit.runs.setup import most_records, prepare
from tacit.runs.spec import RunSpec
from tacit.runtime.keys import Key
from tacit.survival import NewtonPH
from tacit.survival.data import simulate

SECURE = Privacy(unit="record", noise="secure", epsilon=3.0, delta=1e-5)
TASK = NewtonPH(horizon=3.0)
DOCUMENT = {
    "name": "trial",
    "baselines": False,
    "data": {"kind": "csv", "path": "patients.csv"},
    "sites": {"kind": "by-column"},
    "task": {"kind": "newton-ph", "horizon": 3.0},
    "privacy": {"unit": "record", "noise": "secure", "epsilon": 3.0, "delta": 1e-5},
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring in which four sites have room for some hundred records each."""
    monkeypatch.setattr(lattice, "HALF", 2.0**19)
    monkeypatch.setattr(lattice, "FEWEST_ADDED", 8)


def patients(records: int) -> pd.DataFrame:
    """Four sites, of which the first has this many records."""
    places = ["oslo"] * records + ["bergen"] * 40 + ["tromso"] * 40 + ["voss"] * 40
    return simulate("SDGM1", records=len(places), features=2, seed=1).assign(site=places)


def at_sites(records: int, *, public: bool = False) -> Federation:
    found = Federation.from_frame(patients(records), site="site", targets=["time", "event"])
    return Federation({name: found.records_of(name) for name in found}, public=True) if public else found


def room_of(federation: Federation) -> int:
    found = most_records(prepare(RunSpec(task=TASK, privacy=SECURE, rounds=6), federation))
    assert found is not None
    return found


def written(folder: Path, records: int) -> experiment.Experiment:
    patients(records).to_csv(folder / "patients.csv", index=False)
    (folder / "trial.toml").write_text(tomli_w.dumps(DOCUMENT))
    return experiment.read(folder / "trial.toml")


def test_a_site_with_as_many_records_as_there_is_room_for_is_never_cut_off():
    mechanism = SecureRecordSum(clip=0.7, multiplier=2.0, colluders=1, sites=5, rehearsal=True)
    room, steps = mechanism.most_records(3), mechanism.lattice(3)
    assert room is not None
    longest = np.array([room * 0.7, -room * 0.7, 0.0])
    assert steps.round_sum(longest).tolist() == np.rint(longest * steps.scale).tolist()
    beyond = longest * (1 + 2 / room)
    assert steps.round_sum(beyond).tolist() != np.rint(beyond * steps.scale).tolist()
    # Sums of real contributions: none is longer than the bound.
    rows = Rows(np.full((1, 50, 3), 9.0))
    assert np.abs(mechanism.noisy_sums(rows, [Key(1, rehearsal=True)], 0)).max() < room


def test_rounds_have_the_room_of_the_round_that_has_least():
    rounds = SecureSumRounds(
        bound=1.0, multiplier=3.0, shares=(0.01, 0.99), colluders=1, sites=5, rehearsal=True
    )
    each = [rounds.at_round(number).most_records(30) for number in (1, 2)]
    assert rounds.most_records(30) == min(each) == each[0] < each[1]


def test_noise_at_the_sites_has_no_limit():
    privacy = Privacy(unit="record", epsilon=3.0, delta=1e-5)
    assert most_records(prepare(RunSpec(task=TASK, privacy=privacy, rounds=6), at_sites(60))) is None


def test_public_records_beyond_the_room_are_refused_and_the_advice_works(small, tmp_path):
    room = room_of(at_sites(60, public=True))
    assert 60 < room < 400
    most, beyond = at_sites(room, public=True), at_sites(room + 1, public=True)
    assert fit(TASK, most, privacy=SECURE).record.rounds
    with pytest.raises(Refused, match=f"a site has {room + 1} records or more, .* holds {room} of each site"):
        fit(TASK, beyond, privacy=SECURE, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert fit(TASK, beyond, privacy=Privacy(unit="record", epsilon=3.0, delta=1e-5)).record.rounds


def test_a_plan_refuses_by_the_public_number_of_all_records(small, tmp_path):
    table = {"kind": "simulated", "design": "SDGM1", "records": 400, "features": 2}
    document = {**DOCUMENT, "data": table, "sites": {"kind": "iid", "count": 4}}
    (tmp_path / "trial.toml").write_text(tomli_w.dumps(document))
    assert experiment.read(tmp_path / "trial.toml").plan()
    with pytest.raises(Refused, match="a site has 800 records or more"):
        experiment.read(tmp_path / "trial.toml", ["data.records=4000"]).plan()
    assert experiment.read(tmp_path / "trial.toml", ["data.records=4000", "privacy.noise=site"]).plan()


def test_one_private_record_more_decides_on_nothing_and_its_owner_is_told(small, tmp_path):
    room = room_of(at_sites(60))
    seen = []
    for records in (room, room + 1):
        folder = tmp_path / str(records)
        folder.mkdir()
        read = written(folder, records)
        federation = read.open_federation()
        said = read.advise(federation)
        run = read.run_on(federation, None)
        seen.append((said, len(run.record.rounds), sorted(path.name for path in folder.iterdir())))
    assert seen[0] == seen[1]
    kept = [(tmp_path / str(records) / "patients.csv.advice.txt").read_text() for records in (room, room + 1)]
    assert "secure sum" not in kept[0]
    assert (
        f"a site has {room + 1} records, and a secure sum over this run holds {room} of each site" in kept[1]
    )


def test_a_rehearsal_says_it_in_words(small, tmp_path):
    room = room_of(at_sites(60))
    # A part of them is held out.
    _ = written(tmp_path, 2 * room)
    read = experiment.read(tmp_path / "trial.toml", ["privacy.rehearsal=true"])
    assert any(f"holds {room} of each site" in words for words in read.advise(read.open_federation()))


def at_guards(records: int, folder: Path):
    """A town whose first site has this many private records."""
    folder.mkdir()
    _ = written(folder, records)
    limits = OPEN.__class__(epsilon=9.0, lifetime=9.0, fewest=2, delta=1e-5)
    return handed(folder / "trial.toml", [], folder / "town", limits)[0]


def test_a_guard_answers_alike_and_tells_the_administrator_alone(small, tmp_path):
    room, told = room_of(at_sites(60)), []
    for records in (room, room + 1):
        town = at_guards(records, tmp_path / f"at{records}")
        run = town.run(tmp_path / f"run{records}")
        own = town.sites["oslo"]
        (kept,) = own.rglob("*.advice.txt")
        found = [one for one in check(own, town.coordinator / "experiment.toml") if "secure sums" in one.what]
        told.append((len(run.record.rounds), kept.stat().st_mode & 0o077, "secure sum" in kept.read_text(),
                     [(one.ok, one.what) for one in found]))  # fmt: skip
        assert not any("secure" in line for line in (*town.said, *town.heard["oslo"]))
    more = f"the site holds {room + 1} records, and the secure sums of this experiment hold {room} of it"
    assert told == [(6, 0, False, []), (6, 0, True, [(False, more)])]

"""Messages to a site's administrator: results of checks, and the releases of an experiment."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w

from tacit.deploy import certificates
from tacit.deploy.folders import DeployedFolders, write
from tacit.deploy.site import config
from tacit.deploy.site.config import LEDGER, SiteLimits
from tacit.deploy.site.preflight import CheckResult, check
from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger.store import Ledger

RECORDS = 60
PRIVACY = {"unit": "record", "epsilon": 0.9, "delta": 1e-5, "clip": 1.0}
EXPERIMENT: dict[str, Any] = {
    "name": "trial",
    "rounds": 2,
    "baselines": False,
    "data": {"kind": "held-records", "columns": ["age", "grade"], "records": 120},
    "sites": {"kind": "named", "names": ["oslo", "bergen"]},
    "task": {"kind": "logistic-hazard", "cuts": [1.0, 2.0, 3.0], "hidden": [4], "steps": 2, "sample": 0.1},
    "privacy": PRIVACY,
}


def records() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "alder": draw.normal(size=RECORDS),
            "grade": draw.normal(size=RECORDS),
            "time": 0.1 + draw.exponential(size=RECORDS),
            "event": draw.integers(0, 2, RECORDS),
        }
    )


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> DeployedFolders:
    holding = {"path": "data/records.csv", "columns": {"age": "alder"}}
    out = tmp_path_factory.mktemp("out")
    made = write(EXPERIMENT, {"oslo": holding, "bergen": {}}, out, host="127.0.0.1", port=20000)
    records().to_csv(made.sites["oslo"] / "data" / "records.csv", index=False)
    return made


@pytest.fixture
def oslo(ready: DeployedFolders, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(ready.sites["oslo"], tmp_path / "oslo"))


def experiment(folder: Path, **changes: Any) -> Path:
    document = {name: value for name, value in {**EXPERIMENT, **changes}.items() if value is not None}
    (folder / "experiment.toml").write_text(tomli_w.dumps(document))
    return folder / "experiment.toml"


def limited(place: Path, old: str, new: str) -> None:
    file = place / "site.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def wrong(found: list[CheckResult]) -> list[str]:
    """List the failed checks, without those that a test as a single user cannot pass."""
    assert all(finding.ok or finding.mend or "cannot be read" in finding.what for finding in found)
    return [finding.what for finding in found if not finding.ok and "the same user" not in finding.what]


def test_a_site_that_is_as_it_was_handed_over_is_ready(ready: DeployedFolders) -> None:
    found = check(ready.sites["oslo"])
    assert wrong(found) == []
    told = [finding.what for finding in found]
    assert "site.toml can be read: this is oslo, one of 2 sites" in told
    assert f"the records can be read: {RECORDS}, and 20 are required" in told
    assert "nothing has been spent yet; the limit of all experiments is epsilon 10" in told


def files_of(place: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}


def test_looking_changes_nothing_and_advises_the_owner_of_the_records_alone(
    oslo: Path, tmp_path: Path
) -> None:
    data = oslo / "data" / "records.csv"
    records().assign(grade=2.0).to_csv(data, index=False)
    before, kept = files_of(oslo), data.with_name("records.csv.advice.txt")
    told = [finding.what for finding in check(oslo, experiment(tmp_path))]
    assert f"advice about the records is in {kept.name}, beside them, which only its owner can read" in told
    assert not any("the same in all records" in what for what in told)
    assert "grade is the same in all records" in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0
    assert files_of(oslo) == {**before, kept: kept.read_bytes()}


@pytest.mark.parametrize(
    ("spoilt", "rule"),
    [
        (lambda frame: pd.concat([frame, frame]), "no record may be there twice"),
        (lambda frame: frame.assign(alder=frame["alder"] * 1000), "it must not span more than 100"),
        (lambda frame: frame.assign(time=frame["time"] / 365), "times must be in the unit of the horizon"),
    ],
)
def test_slips_are_found_at_the_site_before_anything_is_charged(
    oslo: Path, tmp_path: Path, spoilt: Callable[[pd.DataFrame], pd.DataFrame], rule: str
) -> None:
    data = oslo / "data" / "records.csv"
    spoilt(records()).to_csv(data, index=False)
    found = wrong(check(oslo, experiment(tmp_path)))
    assert len(found) == 1
    assert rule in found[0]
    # How many, which, and their values are for the owner alone.
    assert "records.csv.refused.txt" in found[0]
    records().to_csv(data, index=False)
    assert wrong(check(oslo, experiment(tmp_path))) == []


def test_a_delta_that_is_too_large_for_the_records_of_a_site_is_refused_there(
    oslo: Path, tmp_path: Path
) -> None:
    limited(oslo, "delta = 1e-05", "delta = 0.1")
    found = wrong(check(oslo, experiment(tmp_path, privacy={**PRIVACY, "delta": 0.05})))
    assert any("it must be at most 1 / the number of records" in what for what in found)


def test_guard_and_node_must_be_two_users_where_anything_is_promised(oslo: Path) -> None:
    told = "guard and node are the same user: code that reaches the node could read the records"
    assert [finding.ok for finding in check(oslo) if finding.what == told] == [False]
    limited(oslo, "epsilon = 1.0", "epsilon = inf")
    assert [finding.ok for finding in check(oslo) if finding.what == told] == [True]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_a_site_whose_users_are_set_up_has_nothing_wrong(oslo: Path) -> None:
    for name in ("node/home", "node/node.key"):
        os.chown(oslo / name, 65533, 65533)
    found = check(oslo)
    assert all(finding.ok for finding in found)
    assert "guard and node are different users" in [finding.what for finding in found]


@pytest.mark.parametrize("name", ["secret", "secret/identity.key", "state", "data", "node/node.key"])
def test_what_is_open_to_others_is_found(oslo: Path, name: str) -> None:
    (oslo / name).chmod(0o755)
    assert wrong(check(oslo)) == [f"{name} is open to others (mode 755)"]


def test_a_site_file_that_others_can_change_is_found(oslo: Path) -> None:
    (oslo / "site.toml").chmod(0o666)
    assert wrong(check(oslo)) == ["site.toml can be changed by others than its owner"]


def test_a_key_that_is_not_the_one_the_others_know_is_found(oslo: Path, ready: DeployedFolders) -> None:
    shutil.copy(ready.sites["bergen"] / "secret" / "identity.key", oslo / "secret" / "identity.key")
    shutil.copy(ready.sites["bergen"] / "node" / "node.key", oslo / "node" / "node.key")
    assert wrong(check(oslo)) == [
        "secret/identity.key is not the key that the other sites know",
        "node/node.key is a key and not the one that node.key.pub belongs to",
    ]


def test_files_that_are_missing_or_cut_off_are_found(oslo: Path) -> None:
    (oslo / "secret" / "identity.key").unlink()
    config.keep_secret(oslo / "secret" / "entropy.key", b"short")
    (oslo / "node" / "node.key").write_bytes(b"")
    (oslo / "node" / "ca.crt").unlink()
    (oslo / "data" / "records.csv").unlink()
    found = wrong(check(oslo))
    assert len(found) == 5
    for part, what in zip(
        ("identity.key", "entropy.key", "node.key", "ca.crt", "[data] path"), found, strict=True
    ):
        assert part in what


def test_a_folder_that_lacks_a_part_is_told_of_and_the_rest_looked_at(oslo: Path) -> None:
    shutil.rmtree(oslo / "state")
    shutil.rmtree(oslo / "node")
    found = check(oslo)
    assert any("state cannot be looked at" in what for what in wrong(found))
    assert any("node/home cannot be looked at" in what for what in wrong(found))
    assert found[-1].ok


def test_a_certificate_that_ends_soon_is_worth_a_word(oslo: Path) -> None:
    (oslo / "node" / "ca.crt").write_bytes(certificates.authority(days=20).certificate)
    (found,) = wrong(check(oslo))
    assert "node/ca.crt, by which the node knows the coordinator, is valid until" in found


def test_a_site_file_that_cannot_be_read_ends_it(oslo: Path) -> None:
    limited(oslo, "epsilon = 1.0", "epsilon = -1.0")
    (found,) = check(oslo)
    assert not found.ok
    assert "[limits] epsilon = -1.0 is not allowed" in found.what


def test_a_path_that_is_too_long_for_a_socket_is_found(ready: DeployedFolders, tmp_path: Path) -> None:
    place = shutil.copytree(ready.sites["oslo"], tmp_path / ("x" * 100))
    assert any("the system allows 107" in what for what in wrong(check(place)))


def test_a_site_that_has_not_said_where_its_records_are_is_told_so(ready: DeployedFolders) -> None:
    assert wrong(check(ready.sites["bergen"])) == ["site.toml does not give the place of the records"]


def test_too_few_records_are_found(oslo: Path, tmp_path: Path) -> None:
    limited(oslo, "fewest = 20", "fewest = 100")
    told = f"the site holds {RECORDS} records, and its limits require 100"
    assert wrong(check(oslo)) == [told]
    assert wrong(check(oslo, experiment(tmp_path))) == [told]


def test_records_elsewhere_must_be_closed_to_others(oslo: Path, tmp_path: Path) -> None:
    shutil.move(oslo / "data" / "records.csv", tmp_path / "records.csv")
    limited(oslo, "data/records.csv", str(tmp_path / "records.csv"))
    (tmp_path / "records.csv").chmod(0o644)
    assert wrong(check(oslo)) == [f"every user of this machine may read {tmp_path / 'records.csv'}"]
    (tmp_path / "records.csv").chmod(0o600)
    assert wrong(check(oslo)) == []


def test_what_was_spent_and_what_is_left_is_said(oslo: Path, tmp_path: Path) -> None:
    spend(oslo, 1.0)
    told = [finding.what for finding in check(oslo) if "on the ledger" in finding.what]
    assert len(told) == 1
    assert "1 release is on the ledger, epsilon 4." in told[0]
    assert "is left, and the limit of all experiments is epsilon 10" in told[0]
    limited(oslo, "lifetime = 10.0", "lifetime = 1.0")
    assert any("0 is left" in what for what in wrong(check(oslo)))
    refused = wrong(check(oslo, experiment(tmp_path)))
    assert any("the lifetime budget of this site does not cover it" in what for what in refused)


def spend(place: Path, scale: float) -> None:
    with Ledger(place / LEDGER) as ledger:
        ledger.charge([Release(subject="records@oslo", unit="record", scale=scale, sensitivity=1.0)])


def test_a_ledger_that_was_changed_is_found(oslo: Path) -> None:
    spend(oslo, 3.0)
    file = oslo / LEDGER
    content = file.read_bytes()
    assert b"records@oslo" in content
    file.write_bytes(content.replace(b"records@oslo", b"records@0slo"))
    assert any("was changed or damaged" in what for what in wrong(check(oslo)))


def test_an_experiment_is_told_of_before_it_is_let_in(oslo: Path, tmp_path: Path) -> None:
    found = check(oslo, experiment(tmp_path))
    assert wrong(found) == []
    told = "\n".join(finding.what for finding in found)
    for part in (
        "it learns logistic-hazard in 2 rounds, with oslo, bergen",
        "noise is added here, before anything leaves",
        "Protected: any one record.",
        "Price: epsilon 0.",
        "over the records of oslo",
        "the limits of this site allow it",
        "the lifetime budget of this site covers it",
        f"the records can be read: {RECORDS}",
    ):
        assert part in told
    assert "4 noisy sums" in told
    assert "records of bergen" not in told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"privacy": {**PRIVACY, "epsilon": 2.0}}, "1 is the limit of this site for one experiment"),
        ({"privacy": {**PRIVACY, "delta": 1e-3}}, "delta = 0.001 is above 1e-05"),
        ({"privacy": {**PRIVACY, "rehearsal": True}}, "rehearsal"),
        ({"privacy": None}, "makes no promise"),
        ({"sites": {"kind": "named", "names": ["bergen"]}}, "it is for bergen, and this is oslo"),
        ({"task": {"kind": "mine:Task"}}, "would have to be imported"),
        ({"data": {"kind": "simulated"}}, "not data that sites hold"),
        ({"data": {**EXPERIMENT["data"], "columns": ["age", "height"]}}, "columns is not what this site"),
    ],
)
def test_an_experiment_that_is_not_let_in_is_told_why(
    oslo: Path, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    found = wrong(check(oslo, experiment(tmp_path, **changes)))
    assert any(told in what for what in found), found


def test_a_site_whose_limits_are_open_is_told_what_is_bare(tmp_path: Path, oslo: Path) -> None:
    limited(oslo, "epsilon = 1.0", "epsilon = inf")
    found = check(oslo, experiment(tmp_path, privacy=None))
    assert wrong(found) == []
    told = "\n".join(finding.what for finding in found)
    assert "data may leave unprotected" in told
    assert "No promise: this run is open" in told


def test_an_experiment_that_is_not_there_is_told_of(oslo: Path, tmp_path: Path) -> None:
    assert any("absent.toml cannot be read" in what for what in wrong(check(oslo, tmp_path / "absent.toml")))


def test_limits_of_any_size_can_be_told(tmp_path: Path) -> None:
    limits = {"a": SiteLimits(epsilon=float("inf"), lifetime=float("inf"))}
    made = write(EXPERIMENT, {"a": {}}, tmp_path, host="localhost", port=20000, limits=limits)
    assert "nothing has been spent yet; there is no limit for all experiments" in str(check(made.sites["a"]))

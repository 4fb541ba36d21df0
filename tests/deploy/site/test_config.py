"""A site's own file: what is refused, and that its secrets are its own."""

import math
import stat
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tacit.deploy.site import config
from tacit.deploy.site.config import CoordinatorFile, SiteFile, SiteLimits
from tacit.errors import InvalidFile, InvalidValue

KEYS = {"oslo": "aa" * 32, "bergen": "bb" * 32}
GOOD: dict[str, Any] = {"name": "oslo", "coordinator": "cc" * 32, "colleagues": KEYS}


def written(folder: Path, **changes: Any) -> Path:
    document = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    (folder / "site.toml").write_text(tomli_w.dumps(document))
    return folder


def test_a_site_that_says_no_more_than_who_is_who_has_careful_limits(tmp_path: Path) -> None:
    file = SiteFile.read(written(tmp_path))
    assert file.limits == SiteLimits(
        epsilon=1.0, lifetime=10.0, delta=1e-5, tasks=(), fewest=20, trusted=False
    )
    assert not file.limits.open
    assert dict(file.roster) == {name: bytes.fromhex(key) for name, key in KEYS.items()}


def test_a_site_says_what_it_allows_and_where_its_data_are(tmp_path: Path) -> None:
    limits = {"epsilon": math.inf, "lifetime": 3, "tasks": ["cox-ph"], "fewest": 5, "trusted": True}
    data = {"path": "data/a.csv", "columns": {"age": "alder"}}
    file = SiteFile.read(written(tmp_path, limits=limits, data=data))
    assert file.limits.open
    assert file.limits.tasks == ("cox-ph",)
    assert file.data == data


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": ""}, "name = '' is not allowed"),
        ({"name": "trondheim"}, "all sites, and 'trondheim' is one of them"),
        ({"name": None}, "name is missing: give text"),
        ({"coordinator": "xyz"}, "64 hexadecimal digits"),
        ({"colleagues": {**KEYS, "bergen": "b"}}, "colleagues.bergen"),
        ({"colleagues": {**KEYS, "bergen": "AA" * 32}}, "different keys"),
        ({"colleagues": {**KEYS, "bergen": "cc" * 32}}, "different keys"),
        ({"limit": {}}, 'did you mean "limits"'),
        ({"limits": {"epsilom": 1.0}}, r"\[limits\] epsilom is not known"),
        ({"limits": {"epsilon": 0.0}}, r"\[limits\] epsilon = 0.0"),
        ({"limits": {"epsilon": math.nan}}, r"\[limits\] epsilon = nan"),
        ({"limits": {"epsilon": "much"}}, r"\[limits\] epsilon = 'much'"),
        ({"limits": {"lifetime": -1.0}}, r"\[limits\] lifetime"),
        ({"limits": {"delta": 1.0}}, r"\[limits\] delta"),
        ({"limits": {"fewest": 0}}, r"\[limits\] fewest"),
        ({"limits": {"tasks": "cox-ph"}}, r"\[limits\] tasks"),
        ({"limits": 1}, r"must be a table, \[limits\]"),
    ],
)
def test_what_is_wrong_is_refused_with_the_file_and_the_key(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidFile, match=told) as refused:
        SiteFile.read(written(tmp_path, **changes))
    assert str(tmp_path / "site.toml") in str(refused.value)


def test_a_file_that_is_absent_or_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="cannot be read: No such file"):
        SiteFile.read(tmp_path)
    (tmp_path / "site.toml").write_bytes(b"name = \xff")
    with pytest.raises(InvalidFile, match="is not TOML"):
        SiteFile.read(tmp_path)


def test_entropy_is_made_once_at_the_site_and_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    made = config.entropy(tmp_path)
    assert len(made) == 32
    assert config.entropy(tmp_path) == made
    assert stat.S_IMODE((tmp_path / config.ENTROPY).stat().st_mode) == 0o600


def test_a_key_that_was_cut_off_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / config.ENTROPY).write_bytes(b"short")
    (tmp_path / config.IDENTITY).write_bytes(b"")
    with pytest.raises(InvalidFile, match=r"entropy.key is not a key: it has 5 bytes"):
        config.entropy(tmp_path)
    with pytest.raises(InvalidFile, match=r"identity.key is not a key: it has 0 bytes"):
        config.identity(tmp_path)


def test_a_secret_is_never_overwritten(tmp_path: Path) -> None:
    config.keep_secret(tmp_path / "key", b"first")
    with pytest.raises(InvalidFile, match="File exists"):
        config.keep_secret(tmp_path / "key", b"second")
    assert (tmp_path / "key").read_bytes() == b"first"


def test_the_coordinators_file_is_read_as_carefully(tmp_path: Path) -> None:
    good: dict[str, Any] = {"host": "a.org", "port": 8443, "key": "cc" * 32, "sites": KEYS}
    (tmp_path / "coordinator.toml").write_text(tomli_w.dumps(good))
    assert dict(CoordinatorFile.read(tmp_path).roster) == dict(SiteFile.of(GOOD).roster)
    with pytest.raises(InvalidValue, match="port"):
        CoordinatorFile(**{**good, "port": 0})
    with pytest.raises(InvalidValue, match="sites"):
        CoordinatorFile(**{**good, "sites": {}})
    with pytest.raises(InvalidValue, match="different keys"):
        CoordinatorFile(**{**good, "key": KEYS["oslo"]})

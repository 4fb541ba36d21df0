"""A federation whose data are elsewhere says who takes part and what is agreed, and nothing else."""

import numpy as np
import pandas as pd
import pytest

from tacit.errors import InvalidFile, InvalidValue, Refused
from tacit.sites.environments import World
from tacit.sites.federation import RowFederation
from tacit.sites.remote import (
    RemoteEnvFederation,
    RemoteRowFederation,
    RemoteVerticalFederation,
    blank_tables,
    read_site_file,
)
from tacit.sites.splits import NamedSites
from tacit.sites.table import from_arrays
from tacit.sites.vertical import Subjects


def records(count: int = 5):
    return from_arrays(
        np.arange(2.0 * count).reshape(count, 2),
        columns=["a", "b"],
        time=np.ones(count),
        event=np.ones(count),
    )


def distant(columns=("a", "b"), **changes) -> RemoteRowFederation:
    blank = blank_tables(["oslo", "bergen", "tromso"], columns, ["time", "event"])
    return RemoteRowFederation(blank, **{"records": 300, **changes})


def test_names_columns_and_the_public_number_of_records_are_known_and_no_record_is():
    found = distant()
    assert (found.distant, RowFederation({"a": records()}).distant) == (True, False)
    assert list(found) == ["oslo", "bergen", "tromso"]
    assert (len(found), found.mean_site_size, found.layout) == (3, 100.0, "rows")
    assert (found.store.columns, list(found.store.targets), len(found.store)) == (
        ("a", "b"),
        ["time", "event"],
        0,
    )
    assert found.with_record_count(30).mean_site_size == 10.0


def test_one_can_ask_who_takes_part_without_asking_for_records():
    found = distant()
    assert "oslo" in found
    assert "paris" not in found
    with pytest.raises(KeyError):
        _ = found["paris"]


@pytest.mark.parametrize(
    "asked",
    [
        lambda found: found["oslo"],
        lambda found: found.records_of("oslo"),
        lambda found: found.cohort(["oslo"]),
        lambda found: list(found.values()),
    ],
)
def test_whoever_asks_for_records_is_told_where_they_are(asked):
    with pytest.raises(Refused, match="the records of oslo are at oslo"):
        _ = asked(distant())


@pytest.mark.parametrize("asked", [lambda found: found.pool(), lambda found: found.split(None, 0.5)])
def test_nobody_has_all_records(asked):
    with pytest.raises(Refused, match="the records of oslo, bergen, tromso are at oslo, bergen, tromso"):
        _ = asked(distant())


def test_public_records_are_of_the_agreed_columns():
    found = distant(held_out=records(), held_out_public=True, held_out_sites=["oslo"] * 4 + ["bergen"])
    assert found.held_out is not None
    assert found.held_out.sites is not None
    assert found.held_out.sites.tolist() == ["oslo"] * 4 + ["bergen"]
    with pytest.raises(InvalidValue, match="columns"):
        _ = distant(reference=from_arrays(np.ones((3, 1)), columns=["a"], time=np.ones(3), event=np.ones(3)))
    with pytest.raises(InvalidValue, match="held_out_sites"):
        _ = distant(held_out=records(), held_out_sites=["oslo"] * 4 + ["paris"])


def test_a_fingerprint_tells_agreements_apart():
    prints = [distant(), distant(columns=["a", "c"]), distant(held_out=records())]
    assert len({found.fingerprint for found in prints}) == 3
    assert distant().fingerprint == distant().fingerprint


def test_columns_and_worlds_that_are_elsewhere_are_refused_alike():
    columns = RemoteVerticalFederation({"one": {"x": records()}, "two": {"y": records()}})
    worlds = RemoteEnvFederation({"moon": World("CartPole-v1"), "mars": World("CartPole-v1")})
    assert (columns.layout, columns.distant, list(columns), columns.mean_site_size) == (
        "columns",
        True,
        ["one", "two"],
        2.5,
    )
    assert (worlds.layout, worlds.distant, list(worlds)) == ("environments", True, ["moon", "mars"])
    assert isinstance(columns.subjects, Subjects)
    with pytest.raises(Refused, match="the columns of two are at two"):
        _ = columns.cohort(["two"])
    with pytest.raises(Refused, match="the worlds of moon are at moon"):
        _ = worlds["moon"]


@pytest.mark.parametrize(
    "names", [[], ["a", "a"], ["a@b"], [" a"], ["a/b"], [".."], ["coordinator"], [""], "ab"]
)
def test_sites_need_names_that_folders_and_letters_can_bear(names):
    with pytest.raises(InvalidValue, match="names"):
        _ = NamedSites(names=names)


def test_named_sites_are_the_same_from_a_file_and_from_python():
    assert NamedSites(names=["a", "b"]) == NamedSites(names=("a", "b"))
    assert NamedSites(names=["a", "b"]).names == ("a", "b")


def test_errors_about_a_sites_own_file_name_the_setting_and_nothing_in_the_file(tmp_path):
    (tmp_path / "broken.parquet").write_text("secret-17\n")
    (tmp_path / "latin.csv").write_bytes(b"name\nB\xf8rge-secret-17\n")
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n3,4,secret-17\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "notes.txt").write_text("secret-17")
    for name in ("broken.parquet", "latin.csv", "ragged.csv", "empty.csv", "notes.txt", "absent.csv"):
        with pytest.raises(InvalidFile, match=rf'\[data\] path = "{name}" cannot be read') as caught:
            _ = read_site_file("[data] path", name, tmp_path)
        assert "secret" not in str(caught.value)
        assert caught.value.__suppress_context__
    pd.DataFrame({"a": ["007"]}).to_csv(tmp_path / "fine.csv", index=False)
    assert read_site_file("[data] path", "fine.csv", tmp_path, ["a"])["a"].tolist() == ["007"]

"""A federation is a mapping of named sites, and a cohort finds the records of each of them in one store."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit import Federation
from tacit.errors import InvalidValue
from tacit.sites.federation import Cohort, Site
from tacit.sites.table import Table, from_arrays

SIZES = st.lists(st.integers(2, 9), min_size=1, max_size=8)


def table(size: int, first: int = 0, place: str = "data") -> Table:
    """Records that carry their own number."""
    numbers = np.arange(first, first + size, dtype=np.float64)
    return from_arrays(numbers, y=-numbers, place=place)


def federation(sizes: dict[str, int], **options: object) -> Federation:
    firsts = np.cumsum([0, *sizes.values()]).tolist()
    return Federation(
        {name: table(size, first) for (name, size), first in zip(sizes.items(), firsts, strict=False)},
        **options,
    )


def named(sizes: list[int]) -> dict[str, int]:
    return {f"site-{number}": size for number, size in enumerate(sizes)}


def cohort_of(sizes: list[int]) -> Cohort:
    return federation(named(sizes)).cohort(list(named(sizes)))


def test_a_federation_is_a_mapping_in_the_order_given():
    found = federation({"oslo": 3, "bergen": 2, "aker": 4})
    assert isinstance(found, Mapping)
    assert list(found) == ["oslo", "bergen", "aker"]
    assert len(found) == 3
    assert ("bergen" in found, "berg" in found) == (True, False)
    assert found.get("berg") is None
    assert [name for name, _ in found.items()] == [site.name for site in found.values()]
    with pytest.raises(KeyError):
        found["berg"]
    with pytest.raises(KeyError):
        found.cohort(["oslo", "berg"])


@given(SIZES)
def test_each_site_has_its_own_records(sizes: list[int]):
    found, first = federation(named(sizes)), 0
    for name, size in named(sizes).items():
        assert found[name].table.features[:, 0].tolist() == list(range(first, first + size))
        assert (-found[name].table.targets["y"]).tolist() == list(range(first, first + size))
        first += size


def test_the_table_of_a_site_says_where_it_lies():
    assert federation({"oslo": 2, "bergen": 2})["bergen"].table.place == "site bergen"


@given(SIZES.flatmap(lambda sizes: st.tuples(st.just(sizes), st.permutations(list(named(sizes))))))
def test_a_cohort_addresses_the_records_of_its_sites_in_any_order(case: tuple[list[int], list[str]]):
    sizes, names = case
    found = federation(named(sizes))
    cohort = found.cohort(names)
    assert cohort.names == tuple(names)
    for name, start, size in zip(cohort.names, cohort.starts, cohort.sizes, strict=True):
        reached = cohort.store.features[start : start + size]
        assert reached.tolist() == found[name].table.features.tolist()


def test_a_cohort_may_be_a_few_sites_or_none():
    found = federation({"oslo": 3, "bergen": 2, "aker": 4}, records=9)
    few = found.cohort(["aker", "oslo"])
    assert (len(few), few.starts.tolist(), few.sizes.tolist()) == (2, [5, 0], [4, 3])
    assert few.mean_site_size == 3
    assert len(found.cohort([])) == 0


@given(SIZES, st.data())
def test_a_part_of_a_cohort_keeps_names_and_places_together(sizes: list[int], data: st.DataObject):
    cohort = cohort_of(sizes)
    positions = data.draw(st.lists(st.integers(0, len(sizes) - 1), unique=True))
    part = cohort.part(np.array(positions, dtype=np.int64))
    assert part.names == tuple(f"site-{position}" for position in positions)
    assert part.sizes.tolist() == [sizes[position] for position in positions]
    assert part.starts.tolist() == [sum(sizes[:position]) for position in positions]


@given(
    sizes=st.lists(st.integers(2, 10_000), min_size=1, max_size=60),
    most=st.integers(1, 20),
)
def test_buckets_hold_every_site_once_and_sites_of_similar_size(sizes: list[int], most: int):
    sizes_of = np.array(sizes, dtype=np.int64)
    names = tuple(named(sizes))
    buckets = Cohort(names, table(2), np.zeros_like(sizes_of), sizes_of).buckets(most)
    assert sorted(np.concatenate(buckets).tolist()) == list(range(len(sizes)))
    for bucket in buckets:
        assert len(bucket) <= most
        assert sizes_of[bucket].max() <= 2 * sizes_of[bucket].min()
    in_order = sizes_of[np.concatenate(buckets)]
    assert (in_order[:-1] >= in_order[1:]).all()


def test_buckets_are_no_smaller_than_they_need_to_be():
    buckets = cohort_of([4, 2, 8, 9, 2, 4]).buckets(3)
    assert [bucket.tolist() for bucket in buckets] == [[3, 2], [0, 5, 1], [4]]


def test_a_site_of_one_record_is_refused_by_name():
    with pytest.raises(InvalidValue, match=r"^site bergen holds one record: .* at least 2; leave it out"):
        federation({"oslo": 5, "bergen": 1})


@pytest.mark.parametrize("name", ["", " ", "oslo@norway", "@", " oslo", "oslo ", "oslo\n"])
def test_a_name_that_would_confuse_the_books_is_refused(name: str):
    with pytest.raises(InvalidValue) as caught:
        Site(name, table(3))
    assert repr(name) in str(caught.value)
    with pytest.raises(InvalidValue):
        Federation({"bergen": table(3), name: table(3)})


def test_a_name_may_hold_blanks_and_letters_of_any_kind():
    names = ["St. Mary's, ward 3", "Ålesund", "records/1"]
    assert list(Federation(dict.fromkeys(names, table(2)))) == names


def test_a_federation_without_sites_is_refused():
    with pytest.raises(InvalidValue, match=r"at least one site"):
        Federation({})


@pytest.mark.parametrize(
    "other",
    [
        from_arrays([[1], [2]], y=[1, 2], columns=("age",), place="site bergen"),
        from_arrays([[1, 2], [2, 3]], y=[1, 2], place="site bergen"),
        from_arrays([[1], [2]], z=[1, 2], place="site bergen"),
        from_arrays([[1], [2]], y=[1, 2], z=[1, 2], place="site bergen"),
    ],
    ids=["another column", "one column more", "another target", "one target more"],
)
def test_sites_and_held_out_records_must_be_alike(other: Table):
    with pytest.raises(InvalidValue, match=r"^site bergen has columns .* the same everywhere"):
        Federation({"oslo": table(3), "bergen": other})
    with pytest.raises(InvalidValue, match=r"^site bergen has columns"):
        Federation({"oslo": table(3)}, held_out=other)


def test_nothing_is_public_unless_it_is_said():
    found = federation({"oslo": 3})
    assert (found.public, found.records, found.mean_site_size, found.reference) == (False, None, None, None)
    assert federation({"oslo": 3}, held_out=table(2)).held_out_public is False
    assert federation({"oslo": 3, "bergen": 2}, records=8).mean_site_size == 4


def test_to_know_the_number_of_records_leaves_the_federation_as_it_was():
    found = federation({"oslo": 3, "bergen": 3})
    assert found.with_record_count(10).mean_site_size == 5
    assert found.with_record_count(10).fingerprint == found.fingerprint
    assert found.records is None


def test_pooled_records_are_all_records_at_one_site():
    found = federation({"oslo": 3, "bergen": 2}, public=True).pool()
    assert len(found) == 1
    assert next(iter(found.values())).table.features[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert found.public is True
    assert federation({"oslo": 3}).pool().public is False


def test_a_frame_is_parted_by_the_column_that_names_the_site():
    frame = pd.DataFrame({
        "x": [1.0, 2, 3, 4, 5],
        "y": [5.0, 4, 3, 2, 1],
        "ward": ["b", "a", "b", "a", "b"],
    })  # fmt: skip
    found = Federation.from_frame(frame, site="ward", targets=["y"])
    assert {name: site.table.features[:, 0].tolist() for name, site in found.items()} == {
        "a": [2, 4],
        "b": [1, 3, 5],
    }
    assert found["a"].table.columns == ("x",)
    assert found["b"].table.targets["y"].tolist() == [5, 3, 1]


def test_sites_that_a_frame_numbers_are_named_by_their_numbers():
    frame = pd.DataFrame({"x": [1.0, 2, 3, 4], "y": 1.0, "ward": [10, 9, 9, 10]})
    assert set(Federation.from_frame(frame, site="ward", targets=["y"])) == {"9", "10"}


def test_what_is_wrong_in_a_frame_is_named_with_the_site():
    frame = pd.DataFrame({"x": [1.0, 2, 3, np.nan], "y": 1.0, "ward": ["a", "a", "b", "b"]})
    with pytest.raises(InvalidValue, match=r"^x in site b .* 1 of 2 records"):
        Federation.from_frame(frame, site="ward", targets=["y"])
    with pytest.raises(InvalidValue, match=r"^site b holds one record"):
        Federation.from_frame(frame[:3], site="ward", targets=["y"])
    with pytest.raises(InvalidValue, match=r'^column wards is missing in data .did you mean "ward"'):
        Federation.from_frame(frame, site="wards", targets=["y"])


def test_the_fingerprint_tells_other_data_apart():
    sizes = {"oslo": 3, "bergen": 3}
    found = federation(sizes)
    changed = {name: table(3, 3 * number) for number, name in enumerate(sizes)}
    changed["bergen"].targets["y"][2] += 1e-12
    others = [
        Federation(changed),
        federation({"oslo": 2, "bergen": 4}),
        federation({"oslo": 3, "aker": 3}),
        Federation({"oslo": table(3, 3), "bergen": table(3, 0)}),
        federation({"oslo": 3, "bergen": 4}),
    ]
    assert federation(sizes).fingerprint == found.fingerprint
    assert len({found.fingerprint, *(other.fingerprint for other in others)}) == 1 + len(others)

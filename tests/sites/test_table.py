"""A table is checked once, when it is made: what is broken is named together with the place where it lies."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InvalidFile, InvalidValue
from tacit.sites.table import Table, concatenate, from_arrays, from_frame, require_column
from tacit.sites.table_files import read

FRAME = pd.DataFrame({
    "age": [50.0, 61.0, 47.0, 70.0],
    "time": [1.5, 0.25, 3.0, 2.0],
    "dose": [1, 0, 2, 1],
    "event": [True, False, True, True],
})  # fmt: skip
TARGETS = ("time", "event")
BROKEN = st.sampled_from([np.nan, np.inf, -np.inf])


def small(records: int = 4, columns: int = 3) -> Table:
    numbers = np.arange(records * columns, dtype=np.float64).reshape(records, columns)
    return from_arrays(numbers, time=np.arange(1.0, records + 1), event=np.arange(records) % 2)


def same(first: Table, second: Table) -> bool:
    return (
        first.columns == second.columns
        and first.targets.keys() == second.targets.keys()
        and np.array_equal(first.features, second.features)
        and all(np.array_equal(first.targets[name], second.targets[name]) for name in first.targets)
    )


def test_arrays_lists_and_tensors_give_the_same_table():
    rows = [[1, 2], [3, 4], [5, 6]]
    by_lists = from_arrays(rows, y=[1, 0, 1])
    by_arrays = from_arrays(np.array(rows, dtype=np.int32), y=np.array([True, False, True]))
    by_tensors = from_arrays(torch.tensor(rows), y=torch.tensor([1.0, 0.0, 1.0]))
    assert same(by_lists, by_arrays)
    assert same(by_lists, by_tensors)
    assert by_lists.features.dtype == by_lists.targets["y"].dtype == np.float64
    assert (len(by_lists), by_lists.columns) == (3, ("x1", "x2"))


def test_a_single_list_of_numbers_is_one_feature():
    assert from_arrays([1, 2, 3]).features.tolist() == [[1], [2], [3]]


def test_columns_of_arrays_can_be_named():
    assert from_arrays([[1, 2]], columns=("age", "dose")).columns == ("age", "dose")


def test_a_target_may_be_a_row_per_record():
    assert from_arrays([[1], [2]], curve=[[1, 2, 3], [4, 5, 6]]).targets["curve"].shape == (2, 3)


def test_every_other_column_of_a_frame_is_a_feature_in_its_order():
    table = from_frame(FRAME, targets=TARGETS)
    assert table.columns == ("age", "dose")
    assert table.features.tolist() == [[50, 1], [61, 0], [47, 2], [70, 1]]
    assert table.targets["time"].tolist() == FRAME["time"].tolist()
    assert table.targets["event"].tolist() == [1, 0, 1, 1]


def test_a_column_that_is_left_is_neither_feature_nor_target():
    table = from_frame(FRAME.assign(site="oslo"), targets=TARGETS, leave=("site", "dose"))
    assert table.columns == ("age",)
    assert set(table.targets) == {"time", "event"}


def test_the_index_of_a_frame_does_not_matter():
    shuffled = FRAME.set_axis([9, 9, 3, 1])
    assert same(from_frame(shuffled, targets=TARGETS), from_frame(FRAME, targets=TARGETS))


@pytest.mark.parametrize("suffix", ["csv", "parquet", "CSV", "Parquet"])
def test_a_file_gives_back_the_frame(tmp_path: Path, suffix: str):
    path = tmp_path / f"patients.{suffix}"
    FRAME.to_csv(path, index=False) if suffix.lower() == "csv" else FRAME.to_parquet(path)
    for given_as in (path, str(path)):
        assert same(from_frame(read(given_as), targets=TARGETS), from_frame(FRAME, targets=TARGETS))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("nowhere.csv", None, "No such file"),
        ("nowhere.parquet", None, "No such file"),
        ("empty.csv", b"", "No columns"),
        ("ragged.csv", b"a,b\n1,2\n1,2,3,4\n", "line 3"),
        ("latin.csv", "a,b\n1,\xe9\n".encode("latin-1"), "UTF-8"),
        ("text.parquet", b"this is no parquet file at all", "arquet"),
        ("sheet.ods", b"", "save the sheet as .xlsx or CSV"),
        ("bare", b"a\n1\n", 'must end in ".csv"'),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes | None, said: str):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidFile) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


@given(row=st.integers(0, 3), column=st.integers(0, 2), broken=BROKEN)
def test_a_broken_feature_is_named_with_its_place(row: int, column: int, broken: float):
    numbers = np.ones((4, 3))
    numbers[row, column] = broken
    with pytest.raises(InvalidValue, match=f"^x{column + 1} in site oslo .* 1 of 4 records hold NaN or inf"):
        from_arrays(numbers, time=np.ones(4), place="site oslo")


@given(rows=st.sets(st.integers(0, 3), min_size=1), name=st.sampled_from(TARGETS), broken=BROKEN)
def test_a_broken_target_is_named_with_its_place_and_counted(rows: set[int], name: str, broken: float):
    targets = {target: np.ones(4) for target in TARGETS}
    targets[name][list(rows)] = broken
    with pytest.raises(InvalidValue, match=f"^{name} in site oslo .* {len(rows)} of 4 records"):
        from_arrays(np.ones((4, 3)), place="site oslo", **targets)


def test_a_broken_row_of_a_target_counts_once():
    with pytest.raises(InvalidValue, match=r"curve in data .* 1 of 2 records"):
        from_arrays([[1], [2]], curve=[[1, np.nan, np.inf], [4, 5, 6]])


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
@pytest.mark.parametrize("name", ["dose", "time"])
def test_a_missing_value_in_a_frame_is_named_with_its_place(name: str, missing: object):
    frame = FRAME.astype({name: "Float64"}) if missing is pd.NA else FRAME.astype({name: object})
    frame.loc[2, name] = missing
    with pytest.raises(InvalidValue, match=f"^{name} in site oslo is not allowed: 1 of 4 records"):
        from_frame(frame, targets=TARGETS, place="site oslo")


@pytest.mark.parametrize(
    "values",
    [
        ["low", "high", "low", "high"],
        [1, 2, 3, "many"],
        pd.Categorical(["a", "b", "a", "b"]),
        [[1], [2], 3, 4],
    ],
    ids=["text", "mixed", "categories", "lists"],
)
@pytest.mark.parametrize("name", ["dose", "event"])
def test_a_column_without_numbers_is_named_with_its_place(name: str, values: object):
    with pytest.raises(
        InvalidValue,
        match=f"^{name} in site oslo does not hold numbers .*(encode it|give its words|correct those)",
    ):
        from_frame(FRAME.assign(**{name: values}), targets=TARGETS, place="site oslo")


def test_text_in_arrays_is_named_too():
    with pytest.raises(InvalidValue, match=r"^features in data does not hold numbers"):
        from_arrays([["a"], ["b"]])
    with pytest.raises(InvalidValue, match=r"^event in ward 3 does not hold numbers"):
        from_arrays([[1], [2]], event=["yes", "no"], place="ward 3")


def test_a_missing_column_is_named_with_its_place_and_the_nearest_one():
    with pytest.raises(InvalidValue) as caught:
        from_frame(FRAME, targets=("time", "evnt"), place="site oslo")
    assert str(caught.value) == 'column evnt is missing in site oslo (did you mean "event"?)'


def test_a_missing_column_like_no_other_lists_those_there_are():
    with pytest.raises(
        InvalidValue, match=r'^column zzz is missing in d.csv: it has "age", "time", "dose" or'
    ):
        require_column(FRAME, "zzz", "d.csv")
    with pytest.raises(InvalidValue, match=r"column hospital is missing"):
        from_frame(FRAME, targets=TARGETS, leave=("hospital",))


def test_a_frame_of_targets_alone_is_refused():
    with pytest.raises(InvalidValue, match=r"at least one column beside"):
        from_frame(FRAME[["time", "event"]], targets=TARGETS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"features": [[1, 2]], "columns": ("a",)}, "features = 'shape (1, 2) for 1 columns'"),
        ({"features": np.ones((2, 2, 2)), "columns": ("a", "b")}, "features = 'shape (2, 2, 2)"),
        ({"features": [[1], [2]], "time": [1, 2, 3]}, "time = 'shape (3,) for 2 records'"),
        ({"features": [[1], [2]], "time": 1.0}, "time = 'shape () for 2 records'"),
    ],
)
def test_shapes_that_do_not_fit_are_named(arguments: dict, said: str):
    with pytest.raises(InvalidValue, match=re.escape(said)):
        from_arrays(**arguments)


def test_records_are_taken_by_position_slice_or_mask():
    table = small()
    by_position = table.take([3, 1], "the held-out records")
    assert by_position.features[:, 0].tolist() == [9, 3]
    assert by_position.targets["time"].tolist() == [4, 2]
    assert (by_position.place, table.take([0]).place) == ("the held-out records", table.place)
    assert table.take(slice(1, 3)).targets["time"].tolist() == [2, 3]
    assert table.take(np.array([True, False, False, True])).targets["time"].tolist() == [1, 4]


def test_joined_tables_follow_one_another():
    table = small()
    assert same(concatenate([table.take([0]), table.take([1, 2]), table.take([3])]), table)


@given(
    part=st.sampled_from(["features", "time", "event"]),
    row=st.integers(0, 3),
    column=st.integers(0, 2),
    change=st.sampled_from([1.0, -1e-9, 1e300]),
)
def test_the_digest_changes_with_any_number(part: str, row: int, column: int, change: float):
    table = small()
    features, targets = table.features.copy(), {name: part.copy() for name, part in table.targets.items()}
    changed = features[:, column] if part == "features" else targets[part]
    changed[row] += change
    assert Table(features, targets, table.columns).digest() != table.digest()


def test_the_digest_changes_with_order_names_and_shapes():
    table = small()
    features, time, event = table.features, table.targets["time"], table.targets["event"]
    others = [
        table.take([1, 0, 2, 3]),
        table.take([0, 1, 2]),
        Table(features, {"time": event, "event": time}, table.columns),
        Table(features, {"time": time}, table.columns),
        Table(features, {"time": time, "events": event}, table.columns),
        Table(features, {"time": time[:, None], "event": event}, table.columns),
        Table(features, table.targets, ("a", "x2", "x3")),
    ]
    assert len({table.digest(), *(other.digest() for other in others)}) == 1 + len(others)


def test_the_digest_is_that_of_the_numbers_alone():
    table = small()
    turned = {name: table.targets[name] for name in reversed(table.targets)}
    other = Table(np.asfortranarray(table.features), turned, table.columns, "elsewhere")
    assert other.digest() == table.digest()


def test_a_sheet_of_excel_is_read_like_its_csv(tmp_path: Path):
    pytest.importorskip("openpyxl")
    named = FRAME.assign(site=["007", "7", "NA", "oslo"])
    named.to_excel(tmp_path / "sheet.xlsx", index=False)
    named.to_csv(tmp_path / "sheet.csv", index=False)
    sheet, text = (read(tmp_path / f"sheet.{end}", words=["site"]) for end in ("xlsx", "csv"))
    pd.testing.assert_frame_equal(sheet, text, check_dtype=False)
    pd.concat([FRAME, FRAME["age"]], axis=1).to_excel(tmp_path / "twice.xlsx", index=False)
    with pytest.raises(InvalidFile, match="names the column 'age' 2 times"):
        read(tmp_path / "twice.xlsx")


def test_a_sheet_without_its_package_is_refused_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "sheet.xlsx").touch()
    monkeypatch.setattr("tacit.errors.find_spec", lambda name: None)
    with pytest.raises(InvalidFile, match=r"an Excel file needs openpyxl, .*: pip install 'tacit\[excel\]'"):
        read(tmp_path / "sheet.xlsx")
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert any(one.startswith("openpyxl") for one in extras["optional-dependencies"]["excel"])

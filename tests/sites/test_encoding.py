"""Columns become numbers by public rules alone; what no rule covers is refused, with the way out."""

import tomllib
from dataclasses import asdict

import msgspec
import numpy as np
import pandas as pd
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from tacit import Federation
from tacit.errors import InvalidValue
from tacit.sites.encoding import Encoding, infer_encoding, with_scaling
from tacit.sites.table import from_frame

FRAME = pd.DataFrame(
    {
        "age": [50, 60, 70, 80],
        "sex": ["f", "m", "f", "m"],
        "stage": [1, 2, 3, 1],
        "smoker": [True, False, True, False],
    }
)
RULES = Encoding(levels={"sex": ["f", "m"], "stage": [1, 2, 3]}, center={"age": 65}, scale={"age": 10.0})


def test_words_become_a_column_for_each_level_but_the_first():
    made = RULES.apply(FRAME)
    assert list(made.columns) == ["age", "sex=m", "stage=2", "stage=3", "smoker"]
    assert made["age"].tolist() == [-1.5, -0.5, 0.5, 1.5]
    assert made["sex=m"].tolist() == [0, 1, 0, 1]
    assert made["stage=2"].tolist() == [0, 1, 0, 0]
    assert made["stage=3"].tolist() == [0, 0, 1, 0]
    assert made["smoker"].tolist() == [1, 0, 1, 0]
    assert (made.dtypes == np.float64).all()


def test_names_are_those_of_the_result_and_raw_leads_back():
    assert RULES.names(FRAME.columns) == tuple(RULES.apply(FRAME).columns)
    assert RULES.raw(RULES.names(FRAME.columns)) == tuple(FRAME.columns)
    assert Encoding().names(["a", "b"]) == ("a", "b")


def test_features_are_found_among_other_columns_in_any_order():
    names = RULES.names(FRAME.columns)
    shuffled = FRAME.assign(other="?")[["other", "stage", "smoker", "sex", "age"]]
    assert np.array_equal(RULES.features(shuffled, names), RULES.apply(FRAME).to_numpy())
    with pytest.raises(InvalidValue, match="column sex is missing in features"):
        RULES.features(shuffled.drop(columns="sex"), names, "features")


def test_an_encoding_that_says_nothing_changes_nothing():
    numbers = FRAME[["age", "stage"]]
    assert np.array_equal(Encoding().apply(numbers).to_numpy(), numbers.to_numpy())


def test_the_frame_and_its_index_stay_as_they_were():
    frame, before = FRAME.set_index(pd.Index([9, 7, 5, 3])), FRAME.copy()
    made = RULES.apply(frame)
    assert made.index.tolist() == [9, 7, 5, 3]
    assert frame.reset_index(drop=True).equals(before)


@pytest.mark.parametrize("levels", [["1", "2"], [1, 2], [1.0, 2.0], ["1.0", "2.00"]])
@pytest.mark.parametrize(
    "values",
    [[1, 2], [1.0, 2.0], ["1", "2"], ["1.0", "2.0"], pd.Categorical([1, 2]), pd.array([1, 2], dtype="Int64")],
    ids=["int", "float", "text", "text of reals", "category", "nullable"],
)
def test_numbers_are_the_same_level_however_they_are_written(levels: list, values: object):
    made = Encoding(levels={"a": levels}).apply(pd.DataFrame({"a": values}))
    assert list(made.columns) == ["a=2"]
    assert made["a=2"].tolist() == [0, 1]


@pytest.mark.parametrize(
    "values", [[True, False], ["True", "False"], ["true", "FALSE"], np.array([True, False])]
)
def test_truth_is_the_same_level_however_it_is_written(values: object):
    for levels in ([False, True], ["False", "true"]):
        made = Encoding(levels={"a": levels}).apply(pd.DataFrame({"a": values}))
        assert made["a=true"].tolist() == [1, 0]


def test_a_number_with_leading_zeros_is_a_word():
    with pytest.raises(InvalidValue, match='a in data is not allowed: it holds "007", its levels are "7"'):
        Encoding(levels={"a": ["7", "8"]}).apply(pd.DataFrame({"a": ["007", "8"]}))


def test_fractions_are_levels_too():
    made = Encoding(levels={"a": [0.5, "1.5"]}).apply(pd.DataFrame({"a": [0.5, 1.5]}))
    assert made["a=1.5"].tolist() == [0, 1]


# Missing values


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_a_missing_number_becomes_what_was_agreed_on(missing: object):
    frame = pd.DataFrame(
        {"a": pd.array([1.0, missing, 3.0], dtype="Float64" if missing is pd.NA else object)}
    )
    made = Encoding(fill={"a": 7}, center={"a": 1}, scale={"a": 2}).apply(frame)
    assert made["a"].tolist() == [0, 3, 1]


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, "", "NA", "nan"])
def test_a_missing_word_becomes_the_level_that_was_agreed_on(missing: object):
    frame = pd.DataFrame({"a": pd.Series(["x", missing, "y"], dtype=object)})
    rules = Encoding(levels={"a": ["x", "y"]}, fill={"a": "y"})
    assert rules.apply(frame)["a=y"].tolist() == [0, 1, 1]


def test_what_reads_like_a_missing_value_is_a_level_if_it_is_said_so():
    frame = pd.DataFrame({"a": ["NA", "None", "x"]})
    made = Encoding(levels={"a": ["x", "NA", "None"]}).apply(frame)
    assert made.to_numpy().tolist() == [[1, 0], [0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("rules", "column", "example"),
    [
        (Encoding(), "age", r"fill = \{ age = 50.0 \}"),
        (Encoding(levels={"sex": ["f", "m"]}), "sex", r'fill = \{ sex = "f" \}'),
        (Encoding(), "blood pressure", r'fill = \{ "blood pressure" = 50.0 \}'),
    ],
)
def test_a_missing_value_without_a_rule_is_counted_and_the_way_out_named(
    rules: Encoding, column: str, example: str
):
    frame = pd.DataFrame({column: pd.Series([None, "f" if column == "sex" else 1.0, None], dtype=object)})
    with pytest.raises(
        InvalidValue,
        match=f"^{column} in ward 3 is not allowed: 2 of 3 records hold NaN or nothing; .*{example}",
    ):
        rules.apply(frame, "ward 3")


# Refusals


def test_a_word_that_is_no_level_is_named_with_the_levels_there_are():
    with pytest.raises(InvalidValue) as caught:
        RULES.apply(FRAME.assign(sex=["f", "m", "x", "f"]), "ward 3")
    assert str(caught.value).startswith(
        'sex in ward 3 is not allowed: it holds "x", its levels are "f" or "m"; add what is new'
    )


def test_of_many_levels_the_first_are_shown():
    rules = Encoding(levels={"a": [f"level {number}" for number in range(40)]})
    with pytest.raises(InvalidValue, match='or "level 11" and 28 more'):
        rules.apply(pd.DataFrame({"a": ["other"]}))


def test_words_without_levels_are_refused_with_the_line_that_helps():
    with pytest.raises(InvalidValue) as caught:
        Encoding().apply(FRAME, "ward 3")
    assert str(caught.value).startswith("sex in ward 3 does not hold numbers")
    assert 'encode it by all levels that it may have, as in levels = { sex = ["f", "m"] }' in str(
        caught.value
    )


def test_a_rule_for_a_column_that_is_not_there_is_refused():
    with pytest.raises(InvalidValue, match=r'column stag is missing in data .did you mean "stage"'):
        Encoding(levels={"stag": [1, 2]}).apply(FRAME)


def test_a_column_that_is_there_under_the_name_of_a_level_is_refused():
    frame = pd.DataFrame({"a": ["x", "y"], "a=y": [1, 2]})
    with pytest.raises(InvalidValue, match="columns in data = 'a=y' is not allowed"):
        Encoding(levels={"a": ["x", "y"]}).apply(frame)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"levels": {"a": []}}, "levels of a = .* at least one level"),
        ({"levels": {"a": "xy"}}, "levels of a = 'xy' is not allowed: it must be a list"),
        ({"levels": {"a": [1, "1"]}}, "levels of a = .* levels that read differently"),
        ({"levels": {"a": [float("nan")]}}, "level = nan"),
        ({"fill": {"a": "x"}}, "fill of a = 'x' is not allowed: it must be a finite number"),
        ({"fill": {"a": float("inf")}}, "fill of a = inf"),
        ({"levels": {"a": ["x", "y"]}, "fill": {"a": "z"}}, 'fill of a = .z. .* must be "x" or "y"'),
        ({"levels": {"a": ["x", "y"]}, "center": {"a": 1.0}}, "center of a = 1.0 .* left out"),
        ({"center": {"a": float("nan")}}, "center of a = nan"),
        ({"scale": {"a": 0.0}}, "scale of a = 0.0 is not allowed: it must be a finite number above 0"),
        ({"scale": {"a": -1.0}}, "scale of a = -1.0"),
        ({"scale": {"a": "wide"}}, "scale of a = 'wide'"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(options: dict, said: str):
    with pytest.raises(InvalidValue, match=said):
        Encoding(**options)


# Plain data

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)


@given(
    levels=st.dictionaries(WORDS, st.lists(WORDS, min_size=1, max_size=4, unique_by=str.lower), max_size=3),
    center=st.dictionaries(WORDS, st.floats(-1e9, 1e9), max_size=3),
)
def test_an_encoding_survives_a_file(levels: dict[str, list[str]], center: dict[str, float]):
    try:
        rules = Encoding(levels=levels, center={name: center[name] for name in center if name not in levels})
    except InvalidValue:
        return
    again = msgspec.convert(tomllib.loads(tomli_w.dumps(asdict(rules))), type=Encoding)
    assert again == rules
    assert msgspec.json.decode(msgspec.json.encode(rules), type=Encoding) == rules


def test_rules_that_mean_the_same_are_equal():
    given_as = ({"a": [1, 2.0]}, {"a": ("1", "2")}, {"a": ["1.0", 2]})
    assert len({repr(Encoding(levels=levels)) for levels in given_as}) == 1
    file = tomllib.loads('levels = { a = [1, 2.0], b = [true, false], c = ["x"] }\nfill = { a = 2, d = 1 }')
    read = msgspec.convert(file, type=Encoding)
    assert read.levels == {"a": ["1", "2"], "b": ["true", "false"], "c": ["x"]}
    assert read.fill == {"a": "2", "d": 1.0}


# What public records suggest


def test_learnt_rules_know_all_levels_and_the_usual_values():
    frame = pd.DataFrame(
        {
            "a": [1.0, np.nan, 3.0, 8.0],
            "b": ["y", "x", None, "y"],
            "c": ["2", "1", "2", "10"],
            "d": [0, 1, 1, 0],
        }
    )
    rules = infer_encoding(frame)
    assert rules == Encoding(levels={"b": ["x", "y"], "c": ["1", "10", "2"]}, fill={"a": 3.0, "b": "y"})
    assert np.isfinite(rules.apply(frame).to_numpy()).all()


def test_standardized_numbers_have_mean_zero_and_spread_one():
    rules = with_scaling(FRAME, Encoding(levels={"sex": ["f", "m"]}, center={"stage": 1.0}))
    made = rules.apply(FRAME)
    assert made["age"].mean() == pytest.approx(0)
    assert made["age"].std(ddof=0) == pytest.approx(1)
    # What was said stays, and so do indicators.
    assert (rules.center["stage"], rules.scale.keys()) == (1.0, {"age"})
    assert set(made["smoker"]) == set(made["sex=m"]) == {0, 1}


def test_a_constant_column_is_left_as_it_is():
    frame = pd.DataFrame({"a": [4.0, 4.0, 4.0], "b": [1.0, 2.0, 3.0]})
    assert with_scaling(frame, Encoding()).apply(frame)["a"].tolist() == [4, 4, 4]


# Tables and federations


def test_a_table_from_a_frame_has_encoded_columns():
    frame = FRAME.assign(time=1.0, event=1)
    table = from_frame(frame, targets=("time", "event"), encoding=RULES)
    assert table.columns == RULES.names(FRAME.columns)
    assert np.array_equal(table.features, RULES.apply(FRAME).to_numpy())


def test_a_federation_carries_its_encoding_wherever_it_goes():
    frame = pd.concat([FRAME] * 3, ignore_index=True).assign(time=1.0, event=1, ward=["a", "b", "c"] * 4)
    made = Federation.from_frame(frame, site="ward", targets=("time", "event"), encoding=RULES)
    assert made.encoding is RULES
    assert made.store.columns == RULES.names(FRAME.columns)
    kept, marked = made.split(np.arange(12) % 2 == 0, 0.5)
    for other in (made.pool(), made.with_record_count(12), kept, marked):
        assert other.encoding is RULES
    plain = frame.drop(columns="sex")
    assert Federation.from_frame(plain, site="ward", targets=("time", "event")).encoding == Encoding()


def test_a_level_that_one_site_has_not_seen_leaves_its_columns_like_those_of_the_others():
    frame = FRAME.assign(time=1.0, event=1, ward=["a", "b", "a", "b"])
    made = Federation.from_frame(frame, site="ward", targets=("time", "event"), encoding=RULES)
    assert made["a"].table.features[:, 1].tolist() == [0, 0]
    assert made["b"].table.features[:, 1].tolist() == [1, 1]


def test_a_site_with_a_word_of_its_own_is_named():
    frame = FRAME.assign(time=1.0, event=1, ward=["a", "b", "a", "b"], sex=["f", "m", "f", "w"])
    with pytest.raises(InvalidValue, match=r'^sex in site b is not allowed: it holds "w"'):
        Federation.from_frame(frame, site="ward", targets=("time", "event"), encoding=RULES)

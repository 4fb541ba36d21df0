"""The record of a run is plain data, and a choice is a table of an experiment file."""

import json
import tomllib
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields

import msgspec
import pytest
import tomli_w

from tacit import Privacy, Stopping
from tacit.aggregation.mean import Mean
from tacit.aggregation.server import Adam
from tacit.engines.base import Local
from tacit.learning.record import Record, Round, describe
from tacit.sites.sampling import Fixed
from tacit.survival import LogisticHazard


def entry(number, **fields):
    usual = {
        "rounds": 3,
        "sites": 2,
        "scores": {"c_index": 0.1 + number / 7},
        "epsilon": 1 / 3,
        "budget": 3.0,
    }
    return Round(**{"number": number, "seconds": 0.1, **usual, **fields})


def test_a_round_is_read_back_as_it_was_written_to_the_last_bit():
    for told in (
        entry(1),
        entry(2, sites=None, epsilon=None, budget=None, scores={}),
        entry(3, epsilon=5e-324),
    ):
        assert msgspec.json.decode(msgspec.json.encode(told), type=Round) == told
        assert msgspec.convert(json.loads(json.dumps(told.as_dict())), type=Round) == told


def test_a_round_says_everything_in_its_fields_and_cannot_be_changed():
    told = entry(1)
    assert list(told.as_dict()) == [field.name for field in fields(Round)]
    with pytest.raises(FrozenInstanceError):
        told.number = 2


def test_a_record_counts_its_rounds_and_leaves_them_to_their_own_file():
    record = Record(rounds=(entry(1), entry(2)), chosen=1, stopped="enough", scores={"ibs": 0.2})
    assert record.as_dict() == {
        "rounds": 2,
        "chosen": 1,
        "stopped": "enough",
        "scores": {"ibs": 0.2},
        "baselines": {},
    }


def test_records_do_not_share_what_they_hold():
    assert Record().scores == {}
    assert Record().scores is not Record().scores
    assert Record().baselines is not Record().baselines


def test_a_choice_is_described_by_its_kind_and_its_fields():
    assert describe(Fixed(count=2)) == {"kind": "fixed", "count": 2}
    assert describe(Stopping(patience=3)) == {"kind": "patience", "patience": 3, "apart": 0.2, "bound": 5.0}
    assert describe(Local()) == {"kind": "local"}
    assert describe(Mean(weights={"oslo": 2.0})) == {"kind": "mean", "weights": {"oslo": 2.0}}


def test_what_is_not_set_is_left_out_of_a_description():
    found = describe(Privacy(unit="record", epsilon=3.0, delta=1e-5, clip=1.0))
    assert found["epsilon"] == 3.0
    assert "noise_multiplier" not in found


@pytest.mark.parametrize("part", [LogisticHazard(cuts=(1.0, 2.5), hidden=(4, 4)), Adam(lr=0.3), Mean()])
def test_a_description_can_be_written_as_toml(part):
    table = tomllib.loads(tomli_w.dumps({"part": describe(part)}))["part"]
    assert table.pop("kind") == part.kind
    for name, value in table.items():
        held = getattr(part, name)
        assert value == (list(held) if isinstance(held, tuple) else held)


@dataclass(frozen=True)
class Own:
    rate: float
    call: Callable[[], None]
    nested: tuple[object, ...] = ()
    kind = "plain"


def test_what_no_file_can_hold_is_left_out_of_a_description():
    assert set(describe(Own(0.5, print))) == {"kind", "rate", "nested"}
    assert set(describe(Own(0.5, print, (1, [2.0, "three"], {"four": True})))) == {"kind", "rate", "nested"}
    assert set(describe(Own(0.5, print, (1, object())))) == {"kind", "rate"}
    assert set(describe(Own(0.5, print, ({"five": b"bytes"},)))) == {"kind", "rate"}


def test_a_class_of_ones_own_is_described_by_where_it_is_found():
    assert describe(Own(0.5, print))["kind"] == f"{__name__}:Own"

"""Whatever strangers send: an answer, a refusal, and never a traceback, a hang or a control character.

A case is made of its kind and its number alone: "tables 17" is the same everywhere.
"""

import shutil
from pathlib import Path
from random import Random

import pytest
from cases import KINDS, Right, made_right

# In all two thousand.
MANY = {"experiments": 900, "tables": 300, "directories": 350, "ledgers": 200, "sites": 150, "letters": 100}
FEW = 10


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Right:
    return made_right(tmp_path_factory.mktemp("fuzz") / "right")


def faults(kind: str, number: int, place: Path, right: Right) -> list[str]:
    """Whatever is not as promised in one case."""
    place.mkdir()
    answers = KINDS[kind](Random(f"{kind} {number}"), place, right)
    shutil.rmtree(place, ignore_errors=True)
    return [
        f"{kind} {number} {' '.join(answer.words)[:200]!r}: {fault}"
        for answer in answers
        for fault in answer.faults()
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_what_strangers_send_is_answered_or_refused(kind: str, right: Right, tmp_path: Path):
    assert [
        fault for number in range(FEW) for fault in faults(kind, number, tmp_path / str(number), right)
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_thousand_things_that_strangers_send_are_answered_or_refused(
    kind: str, right: Right, tmp_path: Path
):
    found = [
        fault for number in range(MANY[kind]) for fault in faults(kind, number, tmp_path / str(number), right)
    ]
    assert found == []


def test_two_thousand_are_two_thousand():
    assert sum(MANY.values()) == 2000
    assert set(MANY) == set(KINDS)

"""A letter is believed from whoever signed it, by whom it is for, about what it answers, in one format."""

import msgspec
import pytest

from tacit.aggregation.secure import Identity, Roster
from tacit.engines.messages import FORMAT, Letter, Signed, Unreadable, bond, digest, opened, sealed

OSLO, BERGEN = Identity.fresh(), Identity.fresh()
ROSTER = Roster.of({"oslo": OSLO, "bergen": BERGEN})


def letter(**given: object) -> Letter:
    return Letter(**{"writer": "oslo", "reader": "bergen", "about": "work", **given})


def reason(sent: bytes, **options: object) -> str:
    with pytest.raises(Unreadable) as found:
        opened(sent, ROSTER, **{"reader": "bergen", **options})
    return found.value.reason


def test_a_letter_is_opened_by_whom_it_is_for():
    sent = letter(content={"a": 1}, numbers=b"")
    assert opened(sealed(sent, OSLO), ROSTER, reader="bergen") == sent
    to_anybody = letter(reader="")
    assert opened(sealed(to_anybody, OSLO), ROSTER, reader="bergen") == to_anybody
    assert reason(sealed(sent, OSLO), reader="tromso") == "unknown"


def test_an_answer_belongs_to_one_question():
    asked = sealed(letter(writer="bergen", reader="oslo"), BERGEN)
    answer = sealed(letter(answers=digest(asked)), OSLO)
    assert opened(answer, ROSTER, reader="bergen", answers=digest(asked)).answers == digest(asked)
    assert reason(answer, answers=digest(b"another")) == "replay"
    assert reason(sealed(letter(), OSLO), answers=digest(asked)) == "replay"


def test_another_format_is_not_spoken():
    assert reason(sealed(letter(format="tacit letter 0"), OSLO)) == "schema"


def test_a_letter_signed_by_another_or_changed_afterwards_is_not_believed():
    assert reason(sealed(letter(), BERGEN)) == "unknown"
    outer = msgspec.msgpack.decode(sealed(letter(), OSLO), type=Signed)
    changed = Signed(outer.letter.replace(b"work", b"rest"), outer.signature)
    assert reason(msgspec.msgpack.encode(changed)) == "unknown"
    assert reason(b"\x00") == "schema"


def test_a_signature_is_of_a_letter_and_of_nothing_else_that_is_signed_with_the_same_key():
    # What is signed begins with the format: a signature of the bytes alone is none.
    content = msgspec.msgpack.encode(letter())
    bare = Signed(content, OSLO.sign(content))
    assert reason(msgspec.msgpack.encode(bare)) == "unknown"
    marked = Signed(content, OSLO.sign(FORMAT.encode() + b"\0" + content))
    assert opened(msgspec.msgpack.encode(marked), ROSTER, reader="bergen") == letter(
        nonce=msgspec.msgpack.decode(content, type=Letter).nonce
    )


def test_a_question_asked_again_is_the_same_question_in_another_letter():
    one, again, other = letter(), letter(), letter(content={"a": 2})
    assert one.asked == again.asked != other.asked
    assert sealed(one, OSLO) != sealed(again, OSLO)


def test_a_bond_is_of_one_experiment_and_one_run_of_it():
    assert bond("a", "1") == bond("a", "1")
    assert len({bond("a", "1"), bond("a", "2"), bond("b", "1")}) == 3
    assert len(bond("a", "1")) == 32

"""A letter is believed from whoever signed it, by whom it is for, about what it answers, in one format."""

import msgspec
import pytest

from tacit.aggregation.secure import Identity, Roster
from tacit.engines.messages import (
    FORMAT,
    Envelope,
    SignedMessage,
    Unreadable,
    digest,
    open_message,
    run_digest,
    sign_message,
)

OSLO, BERGEN = Identity.fresh(), Identity.fresh()
ROSTER = Roster.of({"oslo": OSLO, "bergen": BERGEN})


def letter(**given: object) -> SignedMessage:
    return SignedMessage(**{"writer": "oslo", "reader": "bergen", "about": "work", **given})


def reason(sent: bytes, **options: object) -> str:
    with pytest.raises(Unreadable) as found:
        open_message(sent, ROSTER, **{"reader": "bergen", **options})
    return found.value.reason


def test_a_letter_is_opened_by_whom_it_is_for():
    sent = letter(content={"a": 1}, numbers=b"")
    assert open_message(sign_message(sent, OSLO), ROSTER, reader="bergen") == sent
    to_anybody = letter(reader="")
    assert open_message(sign_message(to_anybody, OSLO), ROSTER, reader="bergen") == to_anybody
    assert reason(sign_message(sent, OSLO), reader="tromso") == "unknown"


def test_an_answer_belongs_to_one_question():
    asked = sign_message(letter(writer="bergen", reader="oslo"), BERGEN)
    answer = sign_message(letter(answers=digest(asked)), OSLO)
    assert open_message(answer, ROSTER, reader="bergen", answers=digest(asked)).answers == digest(asked)
    assert reason(answer, answers=digest(b"another")) == "replay"
    assert reason(sign_message(letter(), OSLO), answers=digest(asked)) == "replay"


def test_another_format_is_not_spoken():
    assert reason(sign_message(letter(format="tacit letter 0"), OSLO)) == "schema"


def test_a_letter_signed_by_another_or_changed_afterwards_is_not_believed():
    assert reason(sign_message(letter(), BERGEN)) == "unknown"
    outer = msgspec.msgpack.decode(sign_message(letter(), OSLO), type=Envelope)
    changed = Envelope(outer.letter.replace(b"work", b"rest"), outer.signature)
    assert reason(msgspec.msgpack.encode(changed)) == "unknown"
    assert reason(b"\x00") == "schema"


def test_a_signature_is_of_a_letter_and_of_nothing_else_that_is_signed_with_the_same_key():
    # What is signed begins with the format: a signature of the bytes alone is none.
    content = msgspec.msgpack.encode(letter())
    bare = Envelope(content, OSLO.sign(content))
    assert reason(msgspec.msgpack.encode(bare)) == "unknown"
    marked = Envelope(content, OSLO.sign(FORMAT.encode() + b"\0" + content))
    assert open_message(msgspec.msgpack.encode(marked), ROSTER, reader="bergen") == letter(
        nonce=msgspec.msgpack.decode(content, type=SignedMessage).nonce
    )


def test_a_question_asked_again_is_the_same_question_in_another_letter():
    one, again, other = letter(), letter(), letter(content={"a": 2})
    assert one.request_digest == again.request_digest != other.request_digest
    assert sign_message(one, OSLO) != sign_message(again, OSLO)


def test_a_bond_is_of_one_experiment_and_one_run_of_it():
    assert run_digest("a", "1") == run_digest("a", "1")
    assert len({run_digest("a", "1"), run_digest("a", "2"), run_digest("b", "1")}) == 3
    assert len(run_digest("a", "1")) == 32

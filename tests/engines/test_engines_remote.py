"""A coordinator believes what is signed, asked for and of the right shape, and names whatever is not."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tacit.aggregation.secure import Identity, Roster
from tacit.engines.base import RecordCountQuery
from tacit.engines.messages import (
    COORDINATOR,
    NoReply,
    SignedMessage,
    digest,
    encode_arrays,
    open_message,
    sign_message,
)
from tacit.engines.remote import Remote, width_of
from tacit.errors import BudgetExhausted, Refused, SitesUnreachable
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.survival.models.cox import BreslowQuery, CoxPH
from tacit.survival.models.learner import TimeGridQuery

OURS = Identity.fresh()
THEIRS = {name: Identity.fresh() for name in ("oslo", "bergen", "tromso")}
NAMES = tuple(THEIRS)
STATE = np.array([1.0, 2.0, 3.0], dtype=np.float64)
Answer = Callable[[str, bytes], "bytes | NoReply | None"]


def says(about: str = "work", *, writer: str | None = None, **said: Any) -> Answer:
    """A site that answers what it is asked, under its own name unless told otherwise."""

    def answer(name: str, sent: bytes) -> bytes:
        letter = SignedMessage(
            writer=writer or name, reader=COORDINATOR, about=about, answers=digest(sent),
            content=said.get("content", {}), numbers=said.get("numbers", b""),
        )  # fmt: skip
        return sign_message(letter, THEIRS[writer or name])

    return answer


def row(*values: float, dtype: type = np.float64) -> bytes:
    return encode_arrays({"row": np.array(values, dtype=dtype)})


class Line:
    """Sites that answer by what was written down for them; it keeps what they were sent."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        self.answers, self.sent = answers, list[tuple[str, SignedMessage]]()

    def __call__(self, sent: dict[str, bytes], seconds: float) -> dict[str, bytes | NoReply]:
        found = {}
        for name, content in sent.items():
            roster = Roster.of({COORDINATOR: OURS})
            self.sent.append((name, open_message(content, roster, reader=name)))
            answer = self.answers[name](name, content) if name in self.answers else None
            if answer is not None:
                found[name] = answer
        return found


def coordinator(**answers: Answer) -> tuple[Remote, Line, list[str]]:
    line, told = Line(answers), list[str]()
    remote = Remote(
        exchange=line, identity=OURS, roster=Roster.of(THEIRS), run=b"\x07" * 4, log=told.append, wait=3.0
    )
    return remote, line, told


ROUND = SimpleNamespace(work_kind="round", sent=None)


def train(remote: Remote, state: Array = STATE, names=NAMES, task: object = ROUND):
    return remote.train(task, SimpleNamespace(mean_site_size=5.0), state, names, NoPrivacy(), Key(1) / 4)


def test_the_rows_of_those_who_answer_come_back_in_the_order_asked_for():
    remote, line, _ = coordinator(
        oslo=says(numbers=row(1, 2, 3)), bergen=says(numbers=row(4, 5, 6)), tromso=says(numbers=row(7, 8, 9))
    )
    updates = train(remote)
    assert updates.names == NAMES
    assert updates.matrix.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert updates.faults == ()
    assert [(name, letter.about) for name, letter in line.sent] == [(name, "work") for name in NAMES]
    for _, letter in line.sent:
        assert np.array_equal(letter.arrays["state"], STATE)
        assert letter.content["path"] == [4]
        assert letter.content["run"] == "07070707"


def test_where_models_differ_each_site_is_handed_its_own():
    remote, line, _ = coordinator(**{name: says(numbers=row(0, 0, 0)) for name in NAMES})
    states = np.arange(9).reshape(3, 3)
    train(remote, states)
    assert [letter.arrays["state"].tolist() for _, letter in line.sent] == [[row] for row in states.tolist()]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (says(numbers=row(1, 2)), "schema"),
        (says(numbers=row(1, 2, 3, 4)), "schema"),
        (says(numbers=row(1, 2, 3, dtype=np.float32)), "schema"),
        (says(), "schema"),
        (says(writer="oslo", numbers=row(1, 2, 3)), "unknown"),
        (lambda name, sent: says(numbers=row(1, 2, 3))(name, b"something else"), "replay"),
        (lambda name, sent: b"no letter", "schema"),
        (lambda name, sent: None, "absent"),
        (says("refused", content={"why": "not today"}), "refused"),
        (says(numbers=row(1, 2, 3), content={"diary": {"loss": "low"}}), "schema"),
    ],
    ids=["short", "long", "single precision", "no row", "signed by another", "of another question", "bytes",
         "nothing", "refused", "a diary of words"],
)  # fmt: skip
def test_an_answer_that_cannot_be_used_is_a_fault_with_its_reason(wrong: Answer, reason: str):
    good = says(numbers=row(1, 2, 3))
    remote, _, told = coordinator(oslo=good, bergen=wrong, tromso=good)
    updates = train(remote)
    assert updates.names == ("oslo", "tromso")
    assert [(fault.site, fault.reason) for fault in updates.faults] == [("bergen", reason)]
    assert [line for line in told if line.startswith("bergen: ")] != []


def test_a_letter_in_ones_own_name_is_no_fault_of_its_writer():
    remote, _, _ = coordinator(**{name: says(numbers=row(1, 2, 3)) for name in NAMES})
    assert train(remote).faults == ()


def test_a_round_in_which_everybody_answers_nonsense_has_no_rows_and_keeps_its_width():
    remote, _, _ = coordinator(**{name: says(numbers=row(1)) for name in NAMES})
    updates = train(remote)
    assert updates.matrix.shape == (0, 3)
    assert len(updates.faults) == 3


def test_a_round_without_sites_has_no_rows_and_keeps_its_width():
    remote, line, _ = coordinator()
    assert train(remote, names=()).matrix.shape == (0, 3)
    assert line.sent == []


def test_a_round_that_nobody_answers_ends_the_run_and_says_how_to_go_on():
    remote, _, _ = coordinator()
    with pytest.raises(SitesUnreachable, match=r"no site answered .*--resume"):
        train(remote)


def test_a_site_sends_as_many_numbers_as_the_work_says():
    assert width_of(ROUND, STATE) == 3
    assert width_of(SimpleNamespace(work_kind="round", sent=8), STATE) == 8
    assert width_of(RecordCountQuery(), STATE) == 1
    assert width_of(TimeGridQuery(cuts=3), STATE) == TimeGridQuery(cuts=3).width
    assert width_of(BreslowQuery(CoxPH(cuts=3)), STATE) == 6
    assert width_of(ROUND, np.zeros((4, 3))) == 3


def test_everybody_is_asked_before_anybody_pays():
    remote, line, told = coordinator(**{name: says(content={"told": "gladly"}) for name in NAMES})
    remote.agree("the experiment", NAMES)
    assert [letter.about for _, letter in line.sent] == ["consider"] * 3 + ["agree"] * 3
    assert told == [f"{name} agrees: gladly" for name in NAMES]


@pytest.mark.parametrize(("budget", "kind"), [(True, BudgetExhausted), (False, Refused)])
def test_a_site_that_refuses_ends_it_with_its_own_reason_and_nobody_pays(budget: bool, kind: type[Exception]):
    refusing = says("refused", content={"why": "too dear", "budget": budget})
    remote, line, _ = coordinator(oslo=says(), bergen=refusing, tromso=says())
    with pytest.raises(kind, match="bergen refuses: too dear"):
        remote.agree("the experiment", NAMES)
    assert {letter.about for _, letter in line.sent} == {"consider"}


def test_a_run_begins_with_everybody_and_goes_on_with_as_many_as_it_needs():
    remote, _, told = coordinator(oslo=says(), bergen=says())
    with pytest.raises(SitesUnreachable, match=r"some sites are missing after 3 seconds: tromso"):
        remote.agree("the experiment", NAMES)
    with pytest.raises(SitesUnreachable, match="tromso"):
        remote.agree("the experiment", NAMES, fewest=3)
    assert told == []
    remote.agree("the experiment", NAMES, fewest=2)
    assert told == ["oslo agrees: ", "bergen agrees: "]

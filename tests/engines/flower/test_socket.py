"""The guard's door: whoever knocks is answered in turn, and nobody can keep it shut or break it."""

import os
import select
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.engines.flower import socket as door
from tacit.engines.flower.socket import LIMIT, Unanswered, is_listening, request, serve
from tacit.errors import InvalidValue, Refused

# A bound for what hangs: a slow machine needs seconds.
SOON = 120.0


def backwards(asked: bytes) -> bytes:
    return asked[::-1]


@contextmanager
def guard(path: Path, answer: Callable[[bytes], bytes] = backwards) -> Generator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=serve, args=(str(path), answer), kwargs={"stop": stop})
    thread.start()
    try:
        until = time.monotonic() + SOON
        while not is_listening(str(path)):
            assert time.monotonic() < until
        yield
    finally:
        stop.set()
        thread.join(SOON)
        assert not thread.is_alive()


@contextmanager
def line(path: Path) -> Generator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(SOON)
        sock.connect(str(path))
        yield sock


def test_what_is_asked_is_answered(tmp_path: Path) -> None:
    with guard(tmp_path / "door.sock"):
        assert request(str(tmp_path / "door.sock"), b"abc", SOON) == b"cba"
        assert request(str(tmp_path / "door.sock"), b"", SOON) == b""


def test_large_contents_go_through_whole(tmp_path: Path) -> None:
    content = os.urandom(5_000_001)
    with guard(tmp_path / "door.sock"):
        assert request(str(tmp_path / "door.sock"), content, SOON) == content[::-1]


def test_any_bytes_go_through_as_they_are(tmp_path: Path) -> None:
    with guard(tmp_path / "door.sock", lambda asked: asked):

        @settings(max_examples=50, deadline=None)
        @given(st.binary(max_size=4096))
        def goes_through(content: bytes) -> None:
            assert request(str(tmp_path / "door.sock"), content, SOON) == content

        goes_through()


def test_questions_are_answered_one_at_a_time(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def answer(asked: bytes) -> bytes:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.001)
        inside.pop()
        return asked

    with guard(tmp_path / "door.sock", answer):
        knocking = [
            threading.Thread(target=request, args=(str(tmp_path / "door.sock"), bytes([number]), SOON))
            for number in range(8)
        ]
        for thread in knocking:
            thread.start()
        for thread in knocking:
            thread.join(SOON)
    assert most == [1] * 8


def test_only_the_owner_and_the_group_may_knock(tmp_path: Path) -> None:
    with guard(tmp_path / "door.sock"):
        assert stat.S_IMODE((tmp_path / "door.sock").stat().st_mode) == 0o660


def test_the_mode_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with guard(tmp_path / "door.sock"):
            assert stat.S_IMODE((tmp_path / "door.sock").stat().st_mode) == 0o660
    finally:
        os.umask(before)


def test_the_socket_is_taken_away_in_the_end(tmp_path: Path) -> None:
    with guard(tmp_path / "door.sock"):
        pass
    assert not (tmp_path / "door.sock").exists()
    assert not is_listening(str(tmp_path / "door.sock"))


def test_the_socket_of_a_guard_that_was_killed_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(tmp_path / "door.sock"))
    assert (tmp_path / "door.sock").exists()
    with guard(tmp_path / "door.sock"):
        assert request(str(tmp_path / "door.sock"), b"ab", SOON) == b"ba"


def test_a_second_guard_at_the_same_door_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with guard(tmp_path / "door.sock"):
        with pytest.raises(Refused, match="another guard already answers"):
            serve(str(tmp_path / "door.sock"), backwards)
        assert request(str(tmp_path / "door.sock"), b"ab", SOON) == b"ba"


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "door.sock").write_text("records")
    with pytest.raises(Refused, match="is not a socket"):
        serve(str(tmp_path / "door.sock"), backwards)
    assert (tmp_path / "door.sock").read_text() == "records"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="no socket can be made at"):
        serve(str(tmp_path / "nowhere" / "door.sock"), backwards)


def test_a_path_too_long_for_a_socket_is_refused_in_words(tmp_path: Path) -> None:
    long = str(tmp_path / ("x" * 120))
    assert not is_listening(long)
    for attempt in (lambda: request(long, b"", 1.0), lambda: serve(long, backwards)):
        with pytest.raises(InvalidValue, match="use a shorter folder"):
            attempt()


@pytest.mark.parametrize(("length", "refusal"), [(103, Unanswered), (104, InvalidValue)])
def test_a_path_of_103_bytes_is_the_longest_that_every_system_accepts(length: int, refusal: type[Exception]):
    with pytest.raises(refusal):
        request("/" + "x" * (length - 1), b"", SOON)


def test_a_wait_is_over_at_its_very_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket with a timeout of 0 would not wait, but fail in another way."""
    monkeypatch.setattr(door, "time", SimpleNamespace(monotonic=lambda: 5.0))
    with pytest.raises(Unanswered, match="did not answer within 0 seconds"):
        request("/nobody", b"", 0.0)


def test_nobody_behind_the_door_is_told_apart_from_silence(tmp_path: Path) -> None:
    with pytest.raises(Unanswered, match="is it running"):
        request(str(tmp_path / "door.sock"), b"abc", SOON)


def test_an_answer_that_takes_too_long_is_not_waited_for(tmp_path: Path) -> None:
    let = threading.Event()

    def slowly(asked: bytes) -> bytes:
        let.wait(SOON)
        return asked

    with guard(tmp_path / "door.sock", slowly):
        with pytest.raises(Unanswered, match=r"did not answer within 0\.05 seconds"):
            request(str(tmp_path / "door.sock"), b"abc", 0.05)
        let.set()
        assert request(str(tmp_path / "door.sock"), b"abc", SOON) == b"abc"


@pytest.mark.parametrize(
    "said",
    [b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", struct.pack(">Q", 100) + b"half", struct.pack(">Q", 2**63)],
    ids=["nothing", "half a length", "nonsense", "half a frame", "more than is taken"],
)
def test_a_visitor_who_asks_nothing_readable_does_not_stop_the_guard(tmp_path: Path, said: bytes) -> None:
    with guard(tmp_path / "door.sock"):
        with line(tmp_path / "door.sock") as visitor:
            visitor.sendall(said)
        assert request(str(tmp_path / "door.sock"), b"abc", SOON) == b"cba"


def test_a_visitor_who_announces_too_much_is_shown_out_at_once(tmp_path: Path) -> None:
    with guard(tmp_path / "door.sock"), line(tmp_path / "door.sock") as visitor:
        visitor.sendall(struct.pack(">Q", LIMIT + 1))
        assert visitor.recv(1) == b""


def test_a_visitor_who_says_nothing_is_shown_out_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "PATIENCE", 0.05)
    with guard(tmp_path / "door.sock"), line(tmp_path / "door.sock") as visitor:
        assert visitor.recv(1) == b""
        monkeypatch.setattr(door, "PATIENCE", SOON)
        assert request(str(tmp_path / "door.sock"), b"abc", SOON) == b"cba"


def test_a_visitor_who_drips_is_shown_out_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "VISIT", 0.05)
    with guard(tmp_path / "door.sock"), line(tmp_path / "door.sock") as visitor:
        visitor.sendall(struct.pack(">Q", 10))
        assert visitor.recv(1) == b""


def test_a_visitor_who_does_not_take_the_answer_does_not_stop_the_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "PATIENCE", 0.05)
    with (
        guard(tmp_path / "door.sock", lambda asked: asked * 1_000_000),
        line(tmp_path / "door.sock") as visitor,
    ):
        visitor.sendall(struct.pack(">Q", 3) + b"abc")
        hung_up = select.poll()
        hung_up.register(visitor, select.POLLHUP)
        assert hung_up.poll(1000 * SOON)
        monkeypatch.setattr(door, "PATIENCE", SOON)
        assert request(str(tmp_path / "door.sock"), b"a", SOON) == b"a" * 1_000_000


def test_a_question_that_breaks_the_guard_gets_no_answer_and_leaves_it_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fragile(asked: bytes) -> bytes:
        if asked == b"break":
            raise ZeroDivisionError("a bug")
        return asked

    with guard(tmp_path / "door.sock", fragile):
        with pytest.raises(Unanswered, match="closed the connection"):
            request(str(tmp_path / "door.sock"), b"break", SOON)
        assert request(str(tmp_path / "door.sock"), b"abc", SOON) == b"abc"
    assert "a request could not be answered" in caplog.text


def test_more_than_goes_through_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "LIMIT", 10)
    with pytest.raises(InvalidValue, match="at most 10 bytes"):
        request(str(tmp_path / "door.sock"), b"x" * 11, SOON)


def test_looking_whether_a_guard_is_there_is_not_worth_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with guard(tmp_path / "door.sock"):
        assert is_listening(str(tmp_path / "door.sock"))
        assert request(str(tmp_path / "door.sock"), b"abc", SOON) == b"cba"
    assert caplog.text == ""


def test_a_folder_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not is_listening(str(tmp_path / "pipe" / "door.sock"))


def test_a_length_that_comes_in_two_parts_takes_nothing_of_what_follows():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sent = struct.pack(">Q", 5) + b"hello"
        read: list[bytes] = []
        thread = threading.Thread(
            target=lambda: read.append(door._receive(ours, time.monotonic() + SOON)), daemon=True
        )
        theirs.sendall(sent[:4])
        thread.start()
        # The first part has been taken before the rest is sent.
        while select.select([ours], [], [], 0)[0]:
            time.sleep(0.001)
        theirs.sendall(sent[4:])
        thread.join(SOON)
    assert read == [b"hello"]

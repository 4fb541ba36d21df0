"""Sites reached through Flower's nodes: every wait ends, and what goes wrong on the way is a silence."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from tacit.engines.flower import nodes as flower
from tacit.engines.flower.nodes import DOOR, Flower, Nodes, relay_to_guard
from tacit.engines.flower.socket import serve
from tacit.engines.messages import NoReply
from tacit.errors import InvalidValue, Refused, SitesUnreachable

# A bound for what hangs: a slow machine needs seconds.
SOON = 120.0
WHO = b"who is there?"


@dataclass(frozen=True)
class Reply:
    """Reply of a grid, in the shape of Flower's messages."""

    to: str | None
    node: int
    content: Mapping[str, Any] = field(default_factory=lambda: {})
    error: Any = None

    @property
    def metadata(self) -> SimpleNamespace:
        return SimpleNamespace(reply_to_message_id=self.to, src_node_id=self.node)

    def has_error(self) -> bool:
        return self.error is not None


Behaviour = Callable[[str, int, bytes], list[Reply]]


def says(content: bytes) -> dict[str, Any]:
    return {"tacit": {"content": content}}


def site(name: str) -> Behaviour:
    def behave(number: str, node: int, content: bytes) -> list[Reply]:
        answer = name.encode() if content == WHO else name.encode() + b":" + content
        return [Reply(number, node, says(answer))]

    return behave


def silent(number: str, node: int, content: bytes) -> list[Reply]:
    return []


def unavailable(number: str, node: int, content: bytes) -> list[Reply]:
    # Flower's errors come from the SuperLink, whose number is 1.
    return [Reply(number, 1, error=SimpleNamespace(code=5, reason="Node Unavailable"))]


class Grid:
    """Flower's grid as far as it is used, with nodes that do as they are told."""

    def __init__(self, nodes: Mapping[int, Behaviour]) -> None:
        self.nodes = dict(nodes)
        self.sent: list[tuple[int, bytes]] = []
        self._numbers = count()
        self._replies: dict[str, list[Reply]] = {}
        self._lock = threading.Lock()

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[tuple[bytes, int]]) -> list[str | None]:
        numbers: list[str | None] = []
        with self._lock:
            for content, node in messages:
                number = f"message {next(self._numbers)}"
                self.sent.append((node, content))
                self._replies[number] = self.nodes[node](number, node, content)
                numbers.append(number)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Reply]:
        with self._lock:
            return [reply for number in message_ids for reply in self._replies.pop(number, [])]

    def asked(self, content: bytes) -> list[int]:
        return [node for node, sent in self.sent if sent == content]


def recognise(answer: bytes) -> str | None:
    name = answer.decode(errors="replace")
    return name if name in ("oslo", "bergen", "tromso") else None


def composed(content: bytes, node: int, seconds: float) -> tuple[bytes, int]:
    assert seconds > 0
    return content, node


def nodes(grid: Any) -> Nodes:
    return Nodes(grid, WHO, recognise, compose=composed, pause=0.001)


def ask(exchange: Nodes, *names: str, seconds: float = SOON) -> dict[str, bytes | NoReply]:
    return exchange(dict.fromkeys(names, b"hello"), seconds)


def test_every_site_is_asked_through_the_node_that_leads_to_it() -> None:
    grid = Grid({11: site("oslo"), 12: site("bergen")})
    answers = nodes(grid)({"bergen": b"1", "oslo": b"2"}, SOON)
    assert answers == {"bergen": b"bergen:1", "oslo": b"oslo:2"}
    assert list(answers) == ["bergen", "oslo"]
    assert grid.asked(b"1") == [12]
    assert grid.asked(b"2") == [11]


def test_a_node_is_greeted_once() -> None:
    grid = Grid({11: site("oslo")})
    exchange = nodes(grid)
    for _ in range(3):
        assert ask(exchange, "oslo") == {"oslo": b"oslo:hello"}
    assert grid.asked(WHO) == [11]


def test_nobody_asked_is_nothing_answered() -> None:
    grid = Grid({11: site("oslo")})
    assert nodes(grid)({}, SOON) == {}
    assert grid.sent == []


def test_a_site_whose_node_is_not_connected_is_not_waited_for() -> None:
    begun = time.monotonic()
    answers = ask(nodes(Grid({11: site("oslo")})), "oslo", "bergen")
    assert answers["oslo"] == b"oslo:hello"
    assert answers["bergen"] == NoReply("failed", "no node of this site is connected")
    assert time.monotonic() - begun < SOON / 2


def test_a_site_that_does_not_answer_is_late_and_the_others_are_heard() -> None:
    def dumb(number: str, node: int, content: bytes) -> list[Reply]:
        return site("bergen")(number, node, content) if content == WHO else []

    answers = ask(nodes(Grid({11: site("oslo"), 12: dumb})), "oslo", "bergen", seconds=2.0)
    assert answers["oslo"] == b"oslo:hello"
    assert isinstance(answers["bergen"], NoReply)
    assert answers["bergen"].reason == "late"


def test_a_node_that_is_none_of_ours_is_not_asked_anything(caplog: pytest.LogCaptureFixture) -> None:
    grid = Grid({11: site("oslo"), 66: site("mallory")})
    assert ask(nodes(grid), "oslo") == {"oslo": b"oslo:hello"}
    assert grid.asked(b"hello") == [11]
    assert "node 66 is not one of the sites" in caplog.text


def test_a_node_that_does_not_say_who_it_is_holds_nobody_up_who_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flower, "GREETING", 0.05)
    grid = Grid({11: site("oslo"), 66: silent})
    exchange = nodes(grid)
    assert exchange.wait_for_sites(["oslo"], SOON) == {"oslo"}
    assert ask(exchange, "oslo", "bergen")["oslo"] == b"oslo:hello"


def test_a_node_that_failed_is_greeted_and_asked_again() -> None:
    fails = iter([True])

    def shaky(number: str, node: int, content: bytes) -> list[Reply]:
        if content != WHO and next(fails, False):
            return unavailable(number, node, content)
        return site("oslo")(number, node, content)

    grid = Grid({11: shaky})
    assert ask(nodes(grid), "oslo") == {"oslo": b"oslo:hello"}
    assert [content for _, content in grid.sent] == [WHO, b"hello", WHO, b"hello"]


def test_a_node_that_keeps_failing_is_given_up_with_flowers_reason() -> None:
    def broken(number: str, node: int, content: bytes) -> list[Reply]:
        return (site("oslo") if content == WHO else unavailable)(number, node, content)

    grid = Grid({11: broken})
    answer = ask(nodes(grid), "oslo")["oslo"]
    assert answer == NoReply("failed", "its node failed (Flower's error 5: Node Unavailable)")
    assert len(grid.asked(b"hello")) == 2


def test_a_node_that_went_away_while_it_was_asked_is_given_up() -> None:
    grid = Grid({})

    def leaving(number: str, node: int, content: bytes) -> list[Reply]:
        if content == WHO:
            return site("oslo")(number, node, content)
        del grid.nodes[node]
        return unavailable(number, node, content)

    grid.nodes[11] = leaving
    answer = ask(nodes(grid), "oslo")["oslo"]
    assert isinstance(answer, NoReply)
    assert "Node Unavailable" in answer.detail


class Leaving(Grid):
    """A grid whose one node is gone for some looks once it was asked, and fails what it was asked."""

    def __init__(self, looks: int) -> None:
        super().__init__({})
        self.away, self._looks = 0, looks
        self.nodes = {11: self._leave}

    def _leave(self, number: str, node: int, content: bytes) -> list[Reply]:
        if content != WHO and self._looks:
            self.away, self._looks = self._looks, 0
            return unavailable(number, node, content)
        return site("oslo")(number, node, content)

    def get_node_ids(self) -> list[int]:
        self.away = max(self.away - 1, 0)
        return [] if self.away else super().get_node_ids()


def test_after_an_outage_of_the_superlink_nodes_that_come_back_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Without an outage the node is not waited for.
    assert isinstance(ask(nodes(Leaving(20)), "oslo")["oslo"], NoReply)
    # Every call counts as one that took long.
    monkeypatch.setattr(flower, "OUTAGE", -1.0)
    grid = Leaving(20)
    assert ask(nodes(grid), "oslo") == {"oslo": b"oslo:hello"}
    assert len(grid.asked(b"hello")) == 2
    # Not for ever, and not beyond the exchange.
    monkeypatch.setattr(flower, "RETURN", 0.05)
    assert isinstance(ask(nodes(Grid({})), "oslo")["oslo"], NoReply)
    monkeypatch.setattr(flower, "RETURN", SOON)
    assert isinstance(ask(nodes(Grid({})), "oslo", seconds=0.05)["oslo"], NoReply)


def test_what_an_outage_of_the_superlink_has_failed_was_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower, "OUTAGE", -1.0)
    failures = iter(range(5))

    def shaky(number: str, node: int, content: bytes) -> list[Reply]:
        failed = content != WHO and next(failures, None) is not None
        return (unavailable if failed else site("oslo"))(number, node, content)

    grid = Grid({11: shaky})
    assert ask(nodes(grid), "oslo") == {"oslo": b"oslo:hello"}
    assert len(grid.asked(b"hello")) == 6


def test_a_site_that_comes_back_through_another_node_is_found() -> None:
    grid = Grid({11: site("oslo")})
    exchange = nodes(grid)
    assert ask(exchange, "oslo") == {"oslo": b"oslo:hello"}
    grid.nodes = {12: site("oslo")}
    assert ask(exchange, "oslo") == {"oslo": b"oslo:hello"}
    assert grid.asked(b"hello") == [11, 12]


def test_a_site_that_comes_back_through_the_same_node_needs_no_new_greeting() -> None:
    grid = Grid({11: site("oslo")})
    exchange = nodes(grid)
    ask(exchange, "oslo")
    grid.nodes = {}
    assert isinstance(ask(exchange, "oslo")["oslo"], NoReply)
    grid.nodes = {11: site("oslo")}
    assert ask(exchange, "oslo") == {"oslo": b"oslo:hello"}
    assert grid.asked(WHO) == [11]


def test_a_reply_to_an_earlier_message_is_not_taken_for_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    def replaying(number: str, node: int, content: bytes) -> list[Reply]:
        if content == WHO:
            return site("oslo")(number, node, content)
        old = Reply("message 0", node, says(b"what I said before"))
        return [old, *site("oslo")(number, node, content)]

    assert ask(nodes(Grid({11: replaying})), "oslo") == {"oslo": b"oslo:hello"}
    assert "a reply to another message came" in caplog.text


def test_only_a_replayed_reply_is_a_late_one() -> None:
    def replaying(number: str, node: int, content: bytes) -> list[Reply]:
        return [Reply(number if content == WHO else "message 0", node, says(b"oslo"))]

    answer = ask(nodes(Grid({11: replaying})), "oslo", seconds=0.1)["oslo"]
    assert isinstance(answer, NoReply)
    assert answer.reason == "late"


def test_the_first_of_two_replies_counts() -> None:
    def twice(number: str, node: int, content: bytes) -> list[Reply]:
        return [*site("oslo")(number, node, content), Reply(number, node, says(b"no, rather this"))]

    assert ask(nodes(Grid({11: twice})), "oslo") == {"oslo": b"oslo:hello"}


def test_another_node_cannot_reply_in_a_sites_stead() -> None:
    def hijacked(number: str, node: int, content: bytes) -> list[Reply]:
        return site("oslo")(number, node if content == WHO else 66, content)

    assert ask(nodes(Grid({11: hijacked})), "oslo") == {
        "oslo": NoReply("unknown", "node 66 replied in its stead")
    }


@pytest.mark.parametrize(
    "content",
    [{}, {"tacit": {}}, {"tacit": None}, {"tacit": {"content": "text"}}, {"tacit": {"content": 1}}],
    ids=["no record", "no content", "no mapping", "text", "a number"],
)
def test_a_reply_of_another_shape_is_a_silence(content: Mapping[str, Any]) -> None:
    def misshapen(number: str, node: int, asked: bytes) -> list[Reply]:
        return site("oslo")(number, node, asked) if asked == WHO else [Reply(number, node, content)]

    answer = ask(nodes(Grid({11: misshapen})), "oslo")["oslo"]
    assert isinstance(answer, NoReply)
    assert answer.reason == "schema"


def test_what_a_relay_says_of_its_guard_is_passed_on_without_control_characters() -> None:
    def guardless(number: str, node: int, content: bytes) -> list[Reply]:
        if content == WHO:
            return site("oslo")(number, node, content)
        return [Reply(number, node, {"tacit": {"error": "the guard\x1b[2J is away" + "!" * 10_000}})]

    grid = Grid({11: guardless})
    answer = ask(nodes(grid), "oslo")["oslo"]
    assert isinstance(answer, NoReply)
    assert answer.reason == "failed"
    assert answer.detail.startswith("its node says: the guard [2J is away!")
    assert len(answer.detail) < 1000
    # The way to it is right: asking again would not help.
    assert grid.asked(b"hello") == [11]


def test_what_flower_raises_for_one_message_does_not_touch_the_others() -> None:
    class Failing(Grid):
        def pull_messages(self, message_ids: Iterable[str]) -> list[Reply]:
            replies = super().pull_messages(message_ids)
            if any(reply.node == 12 and reply.content != says(b"bergen") for reply in replies):
                raise OSError("the line is cut")
            return replies

    answers = ask(nodes(Failing({11: site("oslo"), 12: site("bergen")})), "oslo", "bergen")
    assert answers["oslo"] == b"oslo:hello"
    assert answers["bergen"] == NoReply("failed", "Flower failed (OSError: the line is cut)")


def test_a_message_that_flower_does_not_take_is_a_silence() -> None:
    class Full(Grid):
        def push_messages(self, messages: Iterable[tuple[bytes, int]]) -> list[str | None]:
            taken = list(messages)
            return super().push_messages(taken) if taken[0][0] == WHO else [None]

    answer = ask(nodes(Full({11: site("oslo")})), "oslo")["oslo"]
    assert isinstance(answer, NoReply)
    assert "did not accept the message" in answer.detail


def test_an_answer_is_looked_for_at_a_twentieth_of_the_time_that_it_has_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half a second at the least: whatever the clock shows, an answer lies there for a short time only."""
    now, pauses = [1000.0], list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    class Slow(Grid):
        def pull_messages(self, message_ids: Iterable[str]) -> list[Reply]:
            return super().pull_messages(message_ids) if now[0] >= 1040.0 else []

    monkeypatch.setattr(flower, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    come: Queue[Any] = Queue()
    nodes(Slow({11: site("oslo")}))._carry(11, b"hello", 1100.0, 0.5, come)
    assert come.get_nowait().node == 11
    assert 1040.0 <= now[0] <= 1042.0
    assert pauses[:20] == [0.5] * 20
    assert pauses[-1] == pytest.approx((now[0] - pauses[-1] - 1000.0) / 20)
    # One that does not come is waited for no longer than agreed.
    nodes(Slow({11: silent}))._carry(11, b"hello", now[0] + 0.75, 0.5, come)
    assert pauses[-2:] == [0.5, 0.25]


def test_an_exchange_ends_in_time_while_flower_hangs() -> None:
    class Hanging(Grid):
        away = threading.Event()

        def push_messages(self, messages: Iterable[tuple[bytes, int]]) -> list[str | None]:
            taken = list(messages)
            if taken[0][0] != WHO:
                self.away.wait(SOON)
            return super().push_messages(taken)

    grid = Hanging({11: site("oslo")})
    begun = time.monotonic()
    answer = ask(nodes(grid), "oslo", seconds=0.2)["oslo"]
    grid.away.set()
    assert isinstance(answer, NoReply)
    assert answer.reason == "late"
    assert time.monotonic() - begun < SOON / 2


def test_an_exchange_ends_in_time_while_not_even_the_nodes_can_be_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Away(Grid):
        back = threading.Event()

        def get_node_ids(self) -> list[int]:
            self.back.wait(SOON)
            return []

    grid = Away({11: site("oslo")})
    answer = ask(nodes(grid), "oslo", seconds=0.05)["oslo"]
    grid.back.set()
    assert isinstance(answer, NoReply)
    assert "the SuperLink cannot be reached" in caplog.text


class Over(BaseException):
    """As Flower says that a run is over: not even an `Exception`."""


@pytest.mark.parametrize("call", ["get_node_ids", "push_messages", "pull_messages"])
def test_a_run_that_was_stopped_ends_the_work_at_once(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def over(*given: object) -> list[Any]:
        raise Over

    grid = Grid({11: site("oslo")})
    exchange = nodes(grid)
    assert ask(exchange, "oslo") == {"oslo": b"oslo:hello"}
    monkeypatch.setattr(grid, call, over)
    begun = time.monotonic()
    with pytest.raises(SitesUnreachable, match=r"Flower has ended the run \(Over\)"):
        ask(exchange, "oslo")
    assert time.monotonic() - begun < SOON / 2


def test_sites_that_come_late_are_waited_for_at_the_start() -> None:
    class Filling(Grid):
        looks = 0

        def get_node_ids(self) -> list[int]:
            self.looks += 1
            return list(self.nodes)[: self.looks // 2]

    grid = Filling({11: site("oslo"), 12: site("bergen")})
    assert nodes(grid).wait_for_sites(["oslo", "bergen"], SOON) == {"oslo", "bergen"}


def test_who_is_missing_at_the_start_is_known_when_the_wait_is_over() -> None:
    assert nodes(Grid({11: site("oslo")})).wait_for_sites(["oslo", "bergen"], 2.0) == {"oslo"}


def test_a_node_whose_guard_comes_later_is_greeted_again_at_the_start() -> None:
    greetings = count()

    def waking(number: str, node: int, content: bytes) -> list[Reply]:
        if next(greetings) < 2:
            return [Reply(number, node, {"tacit": {"error": "the guard cannot be reached"}})]
        return site("oslo")(number, node, content)

    assert nodes(Grid({11: waking})).wait_for_sites(["oslo"], SOON) == {"oslo"}


def test_a_relay_gives_the_guard_what_came_and_brings_back_its_answer(tmp_path: Path) -> None:
    stop = threading.Event()
    path = str(tmp_path / "door.sock")
    guard = threading.Thread(target=serve, args=(path, lambda asked: asked[::-1]), kwargs={"stop": stop})
    guard.start()
    try:
        until = time.monotonic() + SOON
        while "content" not in (told := relay_to_guard(says(b"abc"), {DOOR: path}, SOON)):
            assert time.monotonic() < until
        assert told == {"content": b"cba"}
    finally:
        stop.set()
        guard.join(SOON)


def test_a_relay_without_a_guard_says_so(tmp_path: Path) -> None:
    told = relay_to_guard(says(b"abc"), {DOOR: str(tmp_path / "door.sock")}, SOON)
    assert "cannot be reached" in str(told["error"])


def test_a_relay_without_a_door_says_so() -> None:
    assert "tacit-door" in str(relay_to_guard(says(b"abc"), {}, SOON)["error"])


def test_a_relay_says_when_a_message_is_none_of_ours(tmp_path: Path) -> None:
    assert "no bytes 'content'" in str(relay_to_guard({}, {DOOR: str(tmp_path / "door.sock")}, SOON)["error"])


def test_a_relay_loads_neither_torch_nor_numpy_nor_flower_itself() -> None:
    # Flower starts a process for each message: what the relay imports is paid every time.
    code = (
        "import sys, tacit.engines.flower.nodes; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "numpy", "pandas", "scipy", "msgspec", "flwr"}.intersection(loaded)


def test_an_engine_that_is_elsewhere_is_not_used_from_here() -> None:
    with pytest.raises(Refused, match="tacit run FOLDER"):
        Flower().train(*[None] * 6)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("wrong", [{"deadline": 0}, {"wait": -1.0}, {"deadline": float("inf")}])
def test_an_engine_waits_for_a_finite_time(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValue, match="finite number above 0"):
        Flower(**wrong)


def test_flowers_own_classes_take_the_apps() -> None:
    flwr = pytest.importorskip("flwr")
    assert flwr is not None
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    assert isinstance(flower.client_app(), ClientApp)
    assert isinstance(flower.server_app(lambda meet, settings: None), ServerApp)


def test_sites_that_are_not_there_are_waited_for_two_minutes_and_an_answer_for_ten():
    assert (Flower().wait, Flower().deadline) == (120.0, 600.0)

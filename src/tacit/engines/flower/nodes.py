"""Bytes to sites and back by Flower, the only file that knows Flower.

At the coordinator `Nodes` carries letters to sites through whichever node leads to them; every wait has an
end, and whatever goes wrong on the way is a silence with a reason. At a site a relay, started by Flower for
each letter, hands it to the guard behind its door: it can read neither data nor keys, and loads neither torch
nor numpy. Flower's own identities only find the way. Who wrote a letter is in its signature.
"""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from tacit.engines.flower.socket import request
from tacit.errors import Refused, SitesUnreachable, TacitError, require_positive

# Flower starts a relay for each letter: what only a coordinator needs is imported where it is used.
if TYPE_CHECKING:
    from flwr.app import ConfigRecordValues, Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

    from tacit.engines.messages import NoReply
    from tacit.learning.query import Updates, Work
    from tacit.privacy.mechanisms.base import Mechanism
    from tacit.runtime.arrays import Array
    from tacit.runtime.keys import Key
    from tacit.sites.federation import Federation

# The key of the guard's socket in a node's configuration.
DOOR = "tacit-door"
# The pause before looking for an answer again, in seconds for each site, up to one, and as a share of
# the time that it took so far: every look costs the SuperLink some ten milliseconds.
PAUSE = 0.1
SHARE = 0.05
# Timeout of a node's answer to the greeting, in seconds.
GREETING = 60.0
# Attempts per site in one exchange: again after its node failed, since a guard repeats its answer.
TRIES = 2
# A call of Flower that takes longer, in seconds, has outlasted an outage of the SuperLink. Nodes are back
# within that many seconds more: they try again after 20 at most, and report every 30; the SuperLink takes one
# that has not reported for 60 for gone, and fails what it was asked.
OUTAGE, RETURN = 10.0, 90.0

_RECORD = "tacit"
_CONTENT = "content"
_ERROR = "error"
_MISSHAPEN = f"the message has no bytes {_CONTENT!r} in a record {_RECORD!r}"

log = logging.getLogger(__name__)

Recognise = Callable[[bytes], str | None]
Meet = Callable[[bytes, Recognise], "Nodes"]


@dataclass(frozen=True, kw_only=True)
class Flower:
    """The engine for sites on machines of their own, over Flower.

    Args:
        deadline: Seconds that a site may take for one answer.
        wait: Seconds to wait at the start for sites that are not online.
    """

    kind: ClassVar[str] = "flower"
    # As every `engines.base.Engine`, which a relay does not load.
    remembers: ClassVar[bool] = False

    deadline: float = 600.0
    wait: float = 120.0

    def __post_init__(self) -> None:
        require_positive("deadline", self.deadline)
        require_positive("wait", self.wait)

    @property
    def chosen(self) -> "Flower":
        """Engine as an experiment file describes it."""
        return self

    def train(
        self,
        task: "Work",
        federation: "Federation",
        state: "Array",
        names: Sequence[str],
        mechanism: "Mechanism",
        key: "Key",
    ) -> "Updates":
        """Refuse: only the coordinator of a Flower run sends requests to its sites."""
        raise Refused(
            "remote sites cannot be reached from here: start a Flower run from the coordinator's folder "
            "(tacit run FOLDER), which tacit deploy makes from this file"
        )


def client_app() -> "ClientApp":
    """Relay of a site, between Flower and the guard."""
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query()
    def relay(message: Message, context: "Context") -> Message:  # pyright: ignore[reportUnusedFunction]
        told = relay_to_guard(message.content, context.node_config, message.metadata.ttl)
        return Message(RecordDict({_RECORD: ConfigRecord(told)}), reply_to=message)

    return app


def relay_to_guard(
    records: Mapping[str, Any], settings: Mapping[str, Any], seconds: float
) -> "dict[str, ConfigRecordValues]":
    """Relay a message to the guard, and return its reply or the reason that there is none."""
    content = _record(records).get(_CONTENT)
    if not isinstance(content, bytes):
        return {_ERROR: _MISSHAPEN}
    if DOOR not in settings:
        return {_ERROR: f"the node was started without {DOOR} in its --node-config"}
    try:
        return {_CONTENT: request(str(settings[DOOR]), content, seconds)}
    except TacitError as error:
        return {_ERROR: str(error)}


def server_app(work: Callable[[Meet, Mapping[str, Any]], None]) -> "ServerApp":
    """The coordinator's side of a run: `work` gets how to meet its sites, and the settings of the run."""
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid: "Grid", context: "Context") -> None:  # pyright: ignore[reportUnusedFunction]
        def meet(greet: bytes, recognise: Recognise) -> "Nodes":
            return Nodes(cast("Network", grid), greet, recognise)

        work(meet, dict(context.run_config))

    return app


class Network(Protocol):
    """Protocol of the used part of Flower's grid."""

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are connected."""
        ...

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str | None]:
        """Send, and the number of each message."""
        ...

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
        """The replies that have come to these messages."""
        ...


def _message(content: bytes, node: int, seconds: float) -> "Message":
    from flwr.app import ConfigRecord, Message, RecordDict

    records = RecordDict({_RECORD: ConfigRecord({_CONTENT: content})})
    return Message(records, dst_node_id=node, message_type="query", ttl=seconds)


@dataclass
class _Exchange:
    """One exchange while it lasts."""

    sent: Mapping[str, bytes]
    until: float
    come: "Queue[_Reply]" = field(default_factory=lambda: Queue())
    answers: "dict[str, bytes | NoReply]" = field(default_factory=lambda: {})
    troubles: "dict[str, NoReply]" = field(default_factory=lambda: {})
    asked: Counter[str] = field(default_factory=lambda: Counter())
    greeted: set[int] = field(default_factory=lambda: set())
    under_way: dict[int, str] = field(default_factory=lambda: {})

    @property
    def absent(self) -> list[str]:
        """Sites without a reply and without a pending message."""
        done = {*self.answers, *self.under_way.values()}
        return [name for name in self.sent if name not in done and self.asked[name] < TRIES]


@dataclass(frozen=True)
class _Reply:
    """Reply of a node to a message; `failed` if the node itself failed."""

    node: int
    content: "bytes | NoReply | BaseException"
    failed: bool = False
    # True if the SuperLink was away meanwhile.
    outlasted: bool = False


class Nodes:
    """Sites by name, reached through the nodes that Flower knows by number.

    A greeting, sent to every unknown node, finds the site behind it; a node that failed is greeted again.
    Late, repeated and misdirected replies are never taken for answers.

    Args:
        grid: Flower's grid.
        greet: The greeting, to which a node answers with its site.
        recognise: The name of the site that gave this answer to the greeting; None if it is no site's.
        compose: Composes a message of this content to a node, with a time to live in seconds.
        pause: The pause before looking for an answer again, in seconds per site.
    """

    def __init__(
        self,
        grid: Network,
        greet: bytes,
        recognise: Recognise,
        *,
        compose: Callable[[bytes, int, float], Any] = _message,
        pause: float = PAUSE,
    ) -> None:
        self._grid = grid
        self._greet = greet
        self._recognise = recognise
        self._compose = compose
        self._pause = pause
        self._sites: dict[int, str] = {}
        # When the SuperLink came back from its last outage.
        self._back = -math.inf

    def __call__(self, sent: Mapping[str, bytes], seconds: float) -> "dict[str, bytes | NoReply]":
        """Exchange messages with sites; return each site's answer, or the reason that it has none in time.

        A site whose node is not connected is not waited for, unless the SuperLink has just been away.
        """
        exchange = _Exchange(sent, time.monotonic() + seconds)
        while True:
            if exchange.absent:
                self._send(exchange)
            left = exchange.until - time.monotonic()
            if not exchange.under_way:
                returning = self._back + RETURN - time.monotonic()
                if not exchange.absent or min(left, returning) <= 0:
                    break
                time.sleep(min(left, returning, 10 * self._pause))
                exchange.greeted.clear()
                continue
            try:
                self._take(exchange, exchange.come.get(timeout=max(0.0, left)))
            except Empty:
                break
        return {name: self._answer(exchange, name, seconds) for name in sent}

    def wait_for_sites(self, names: Iterable[str], seconds: float) -> frozenset[str]:
        """Wait until all of these sites are connected, or the time is over; return the connected ones."""
        exchange = _Exchange(dict.fromkeys(names, b""), time.monotonic() + seconds)
        while True:
            online = self._online(exchange.until)
            there = frozenset(self._sites[node] for node in online if node in self._sites)
            left = exchange.until - time.monotonic()
            if left <= 0 or there.issuperset(exchange.sent):
                return there.intersection(exchange.sent)
            self._greet_strangers(exchange, online)
            try:
                self._take(exchange, exchange.come.get(timeout=min(left, 10 * self._pause)))
            except Empty:
                # A node without a guard before may have one by now.
                exchange.greeted.intersection_update(exchange.under_way)

    def _send(self, exchange: _Exchange) -> None:
        """Send to absent sites with known nodes; greet the other nodes if any site is still absent."""
        online = self._online(exchange.until)
        # The node known last leads to a site that has two.
        ways = {self._sites[node]: node for node in self._sites if node in online}
        for name in exchange.absent:
            if name in ways:
                exchange.asked[name] += 1
                self._start(exchange, ways[name], exchange.sent[name], name, exchange.until)
        if exchange.absent:
            self._greet_strangers(exchange, online)

    def _greet_strangers(self, exchange: _Exchange, online: Iterable[int]) -> None:
        for node in online:
            if node not in self._sites and node not in exchange.greeted:
                exchange.greeted.add(node)
                self._start(exchange, node, self._greet, "", min(exchange.until, time.monotonic() + GREETING))

    def _start(self, exchange: _Exchange, node: int, content: bytes, name: str, until: float) -> None:
        exchange.under_way[node] = name
        given = (node, content, until, min(1.0, self._pause * len(exchange.sent)), exchange.come)
        # Flower's calls know no end while its SuperLink is away, and one slow upload must not keep the others
        # waiting: every message has a thread of its own, with a limited wait.
        threading.Thread(target=self._carry, args=given, name=f"to {node}", daemon=True).start()

    def _carry(self, node: int, content: bytes, until: float, pause: float, come: "Queue[_Reply]") -> None:
        from tacit.engines.messages import NoReply

        try:
            begun = time.monotonic()
            (number,) = self._grid.push_messages([self._compose(content, node, until - begun)])
            outlasted = self._mark_outage(begun)
            if number is None:
                raise Refused("it did not accept the message")
            while (now := time.monotonic()) < until:
                replies = self._grid.pull_messages([number])
                outlasted = self._mark_outage(now) or outlasted
                for reply in replies:
                    if reply.metadata.reply_to_message_id == number:
                        come.put(replace(_read(node, reply), outlasted=outlasted))
                        return
                    log.warning("a reply to another message came from node %s, and was put aside", node)
                time.sleep(min(max(pause, SHARE * (now - begun)), until - now))
            come.put(_Reply(node, NoReply("late", f"no answer within {until - begun:.3g} seconds")))
        except Exception as error:
            # Whatever Flower raises concerns this message; the others may yet be answered.
            detail = f"Flower failed ({type(error).__name__}: {error})"
            come.put(_Reply(node, NoReply("failed", detail), failed=True))
        except BaseException as error:
            # By this Flower says that the run is over.
            come.put(_Reply(node, error))

    def _mark_outage(self, since: float) -> bool:
        """Note that the SuperLink was away if a call that began then took too long; return if so."""
        now = time.monotonic()
        if now - since <= OUTAGE:
            return False
        self._back = now
        return True

    def _take(self, exchange: _Exchange, come: _Reply) -> None:
        name = exchange.under_way.pop(come.node)
        if isinstance(come.content, BaseException):
            raise _unreachable(come.content)
        if not name:
            self._acquaint(exchange, come.node, come.content)
        elif isinstance(come.content, bytes) or not come.failed:
            exchange.answers[name] = come.content
        else:
            log.warning("%s: %s", name, come.content.detail)
            exchange.troubles[name] = come.content
            # What an outage has failed was no attempt.
            exchange.asked[name] -= come.outlasted
            self._sites.pop(come.node, None)
            exchange.greeted.discard(come.node)

    def _acquaint(self, exchange: _Exchange, node: int, content: "bytes | NoReply") -> None:
        if not isinstance(content, bytes):
            log.warning("node %s did not identify itself: %s", node, content.detail)
            exchange.troubles[""] = content
            return
        name = self._recognise(content)
        if name is None:
            log.warning("node %s is not one of the sites, and is ignored", node)
            return
        if name in self._sites.values():
            log.warning("%s is now reached through node %s", name, node)
        self._sites[node] = name

    def _answer(self, exchange: _Exchange, name: str, seconds: float) -> "bytes | NoReply":
        from tacit.engines.messages import NoReply

        if name in exchange.answers:
            return exchange.answers[name]
        if name in exchange.under_way.values():
            return NoReply("late", f"no answer within {seconds:.3g} seconds")
        if name in exchange.troubles:
            return exchange.troubles[name]
        stranger = exchange.troubles.get("")
        why = "" if stranger is None else f" (one did not identify itself: {stranger.detail})"
        return NoReply("failed", f"no node of this site is connected{why}")

    def _online(self, until: float) -> tuple[int, ...]:
        """The nodes that are connected; none while Flower itself cannot be reached."""
        found: list[int] = []
        errors: list[BaseException] = []

        def look() -> None:
            try:
                found.extend(self._grid.get_node_ids())
            except BaseException as error:
                errors.append(error)

        looking, begun = (
            threading.Thread(target=look, name="looking for nodes", daemon=True),
            time.monotonic(),
        )
        looking.start()
        looking.join(max(0.0, until - time.monotonic()))
        if errors:
            raise _unreachable(errors[0])
        if looking.is_alive():
            log.warning("the SuperLink cannot be reached")
        _ = self._mark_outage(begun)
        return tuple(found)


def _unreachable(error: BaseException) -> SitesUnreachable:
    ended = SitesUnreachable(
        f"Flower has ended the run ({type(error).__name__}): it was stopped, or it failed"
    )
    ended.__cause__ = error
    return ended


def _read(node: int, reply: "Message") -> _Reply:
    """Parse a reply; the signature in its content is verified by the engine."""
    from tacit.engines.messages import NoReply

    if reply.has_error():
        detail = f"its node failed (Flower's error {reply.error.code}: {_printable(reply.error.reason)})"
        return _Reply(node, NoReply("failed", detail), failed=True)
    # Errors come from the SuperLink; anything else comes from the node that was asked, or is not for us.
    if reply.metadata.src_node_id != node:
        return _Reply(node, NoReply("unknown", f"node {reply.metadata.src_node_id} replied in its stead"))
    record = _record(reply.content)
    content, trouble = record.get(_CONTENT), record.get(_ERROR)
    if isinstance(content, bytes):
        return _Reply(node, content)
    if isinstance(trouble, str):
        return _Reply(node, NoReply("failed", f"its node says: {_printable(trouble)}"))
    return _Reply(node, NoReply("schema", _MISSHAPEN))


def _record(records: Mapping[str, Any]) -> Mapping[str, object]:
    """Return Tacit's record of a Flower message; empty if it has none."""
    record = records.get(_RECORD)
    return cast("Mapping[str, object]", record) if isinstance(record, Mapping) else {}


def _printable(told: str | None) -> str:
    # A node's operator can write anything here, and it ends up in logs.
    return "".join(sign if sign.isprintable() else " " for sign in (told or "")[:500])

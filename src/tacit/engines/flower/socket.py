"""The Unix socket of a site's guard: one request in, one answer out.

Any process that may open the socket's file may send a request; the guard verifies the sender. A relay loads
this file for every message from Flower, so it imports the standard library alone.
"""

import fcntl
import logging
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from math import inf

from tacit.errors import InvalidValue, Refused, TacitError, require

# The most that goes through a door at once, in bytes.
LIMIT = 2**31
# Longest pause of a client, and longest request, before the next in line is served, in seconds.
PATIENCE = 10.0
VISIT = 120.0
# Interval at which a guard checks `stop`, in seconds.
_GLANCE = 0.2
_LENGTH = struct.Struct(">Q")
_CHUNK = 2**20
# The longest socket name that all systems accept.
_LONGEST = 103

log = logging.getLogger(__name__)


class Unanswered(TacitError):
    """A socket without a listener, or a guard that did not answer in time."""


def request(path: str, content: bytes, seconds: float) -> bytes:
    """Send a request to the guard behind a socket, and return its answer.

    Args:
        path: The file of the socket.
        content: The request.
        seconds: The timeout.

    Raises:
        Unanswered: The guard is not running, or does not answer in time.
    """
    require(len(content) <= LIMIT, "content", f"{len(content)} bytes", f"at most {LIMIT} bytes")
    _require_short(path)
    until = time.monotonic() + seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        try:
            line.settimeout(_remaining(until))
            line.connect(path)
            _send(line, content, until)
            return _receive(line, until)
        except TimeoutError as error:
            raise Unanswered(f"the guard at {path} did not answer within {seconds:g} seconds") from error
        except OSError as error:
            raise Unanswered(f"the guard at {path} cannot be reached ({error}): is it running?") from error
        except _Truncated as error:
            raise Unanswered(
                f"the guard at {path} closed the connection ({error}): its log has the reason"
            ) from error


def is_listening(path: str) -> bool:
    """Return True if a guard answers at a socket, even one whose path is too long."""
    folder, name = os.path.split(path)
    try:
        handle = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(PATIENCE)
            # The folder by its number: the name of a socket must be short.
            line.connect(f"/proc/self/fd/{handle}/{name}")
            return True
    except OSError:
        return False
    finally:
        os.close(handle)


def serve(path: str, answer: Callable[[bytes], bytes], *, stop: threading.Event | None = None) -> None:
    """Answer requests at a socket, one at a time and in order, until stopped.

    A client that hangs up, sends half a request or sends nothing is disconnected, and the next is served.

    Args:
        path: The file of the socket; only its owner and group may open it.
        answer: Computes the answer; a client whose request makes it raise gets none.
        stop: Set to stop; for ever by default.

    Raises:
        Refused: Another guard answers there, or the file is no socket.
    """
    _require_short(path)
    stop = stop or threading.Event()
    with _lock(path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        _clear(path)
        # Before it has a name, so that there is no moment at which other users may open it.
        os.fchmod(door.fileno(), 0o660)
        door.bind(path)
        try:
            # The process's umask may have taken the group's right away.
            os.chmod(path, 0o660)
            door.listen()
            door.settimeout(_GLANCE)
            while not stop.is_set():
                with suppress(TimeoutError):
                    visitor, _ = door.accept()
                    with visitor:
                        _handle(visitor, answer)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)


def _handle(visitor: socket.socket, answer: Callable[[bytes], bytes]) -> None:
    try:
        asked = _receive(visitor, time.monotonic() + VISIT, pause=PATIENCE)
    except _Empty:
        # A client that only checked if the socket accepts connections.
        return
    except (OSError, _Truncated) as error:
        log.warning("a client sent a request that cannot be read (%s)", error)
        return
    try:
        answered = answer(asked)
    except Exception:
        log.exception("a request could not be answered")
        return
    try:
        _send(visitor, answered, time.monotonic() + VISIT, pause=PATIENCE)
    except OSError as error:
        log.warning("the client did not wait for the answer (%s)", error)


@contextmanager
def _lock(path: str) -> Generator[None]:
    """Lock the socket against other guards; the system lets go of it whatever becomes of this one."""
    try:
        held = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidValue(f"no socket can be made at {path} ({error})") from error
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refused(f"another guard already answers at {path}: stop it first") from error
        yield
    finally:
        os.close(held)


def _clear(path: str) -> None:
    """Take away the socket of a guard that is no more."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise Refused(f"{path} is not a socket: move it away, or give the guard another path")
        os.unlink(path)


class _Truncated(Exception):
    """Received fewer bytes than were announced."""


class _Empty(_Truncated):
    """Empty message."""


def _send(line: socket.socket, content: bytes, until: float, pause: float = inf) -> None:
    for part in (_LENGTH.pack(len(content)), content):
        rest = memoryview(part)
        while rest:
            line.settimeout(min(pause, _remaining(until)))
            rest = rest[line.send(rest) :]


def _receive(line: socket.socket, until: float, pause: float = inf) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(line, _LENGTH.size, until, pause))
    if length > LIMIT:
        raise _Truncated(f"it announces {length} bytes, and at most {LIMIT} are taken")
    return bytes(_exactly(line, length, until, pause))


def _exactly(line: socket.socket, length: int, until: float, pause: float) -> bytearray:
    # Grows with what has come, not with what was announced: a word costs nothing.
    come = bytearray()
    while len(come) < length:
        line.settimeout(min(pause, _remaining(until)))
        part = line.recv(min(_CHUNK, length - len(come)))
        if not part:
            raise _Truncated(f"{len(come)} of {length} bytes came") if come else _Empty("nothing came")
        come += part
    return come


def _remaining(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("it took too long")
    return left


def _require_short(path: str) -> None:
    length = len(os.fsencode(path))
    allowed = (
        f"at most {_LONGEST} bytes long, as the path of a socket: use a shorter folder, or a relative path"
    )
    require(length <= _LONGEST, "path", path, allowed)

"""Files: opened only if they are plain files, read up to a size, and replaced as a whole.

A named pipe would wait for ever and a device never ends, so neither is opened, whatever links to it. This is
the one place that renames: what is replaced is on disk, or what was there before still is.
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from tacit.errors import shorten

PathLike = str | os.PathLike[str]
# The most that is read of one file into memory, in bytes.
MOST_BYTES = 2**31
# The errors of decoding damaged JSON or MessagePack: text in it need not be UTF-8.
DAMAGED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotPlain(OSError):
    """A path that is neither a file nor a folder."""

    def __str__(self) -> str:
        return str(self.strerror)


def require_regular(path: PathLike, *ends: str) -> None:
    """Refuse a named pipe, a socket or a device before it is opened; a missing file passes.

    Args:
        path: The path.
        ends: Suffixes of files beside it that are opened together with it.

    Raises:
        NotPlain: It is one of these, behind a link or not.
        OSError: It cannot be looked at, other than for not being there.
    """
    for end in ("", *ends):
        with suppress(FileNotFoundError):
            _require_plain(os.stat(f"{os.fspath(path)}{end}"), path)


def open_regular(path: PathLike) -> BinaryIO:
    """Open a plain file for reading; nothing else is opened.

    Raises:
        NotPlain: It is a named pipe, a socket or a device.
        OSError: It is not there, is a folder, or may not be read.
    """
    # Looked at before, as opening a device may do something; and after, as it may have been exchanged.
    _require_plain(os.stat(path), path)
    stream = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    try:
        _require_plain(os.fstat(stream.fileno()), path)
    except BaseException:
        stream.close()
        raise
    return stream


def read_bytes(path: PathLike, most: int = MOST_BYTES) -> bytes:
    """Read a regular file of at most `most` bytes.

    Raises:
        NotPlain: It is a named pipe, a socket or a device.
        OSError: It cannot be read, or is larger.
    """
    with open_regular(path) as stream:
        # By its size first: nothing is read of what is too large.
        large = os.fstat(stream.fileno()).st_size > most
        content = b"" if large else stream.read(most + 1)
    if large or len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes", str(path))
    return content


def read_text(path: PathLike, most: int = MOST_BYTES) -> str:
    """Read a regular file of at most `most` bytes as UTF-8.

    Raises:
        NotPlain: It is a named pipe, a socket or a device.
        OSError: It cannot be read, or is larger.
        UnicodeDecodeError: It is no text.
    """
    # As text is read elsewhere: every end of a line is one sign.
    return read_bytes(path, most).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def replace(target: PathLike, content: bytes | str, mode: int = 0o666) -> None:
    """Replace a file atomically: afterwards the new one is on disk, or the old one still is.

    File and folder are synced, in this order, so that a power failure leaves one of the two.

    Args:
        target: The file; it need not be there.
        content: The new content.
        mode: The permissions, apart from those that the umask removes.
    """
    place = Path(target)
    # The leftover of a killed writer has this name too; a long name is cut.
    part = place.parent / f".{place.name[:200]}.part"
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, place)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    sync(place.parent)


def append(path: PathLike, content: bytes) -> None:
    """Add to the end of a plain file, which need not be there; afterwards it is on disk.

    Raises:
        NotPlain: It is a named pipe, a socket or a device.
        OSError: It cannot be written.
    """
    require_regular(path)
    with Path(path).open("ab") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def create(target: PathLike, content: bytes | str, mode: int = 0o600) -> None:
    """Write a file that was not there before, file and folder synced.

    Raises:
        FileExistsError: It is there; nothing was changed.
        OSError: It cannot be written.
    """
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
        stream.flush()
        os.fsync(stream.fileno())
    sync(Path(target).parent)


def sync(folder: PathLike) -> None:
    """Sync a folder, so that renamed, created and removed files are on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def explain(error: OSError) -> str:
    """Say in a few words why a file could not be used."""
    return shorten(error.strerror or str(error))


def _require_plain(found: os.stat_result, path: PathLike) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if kind != stat.S_IFREG:
        what = KINDS.get(kind, "something else")
        raise NotPlain(errno.EINVAL, f"it is {what}, and must be a plain file", str(path))

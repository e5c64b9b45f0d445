"""Files of others, read with a limit: regular ones only, and never more than their kind may hold.

A FIFO would block for ever and ``/dev/zero`` never ends, so both are refused before anything is read; a file
that is larger than its kind may be is refused after its limit, whatever its size claims to be. What an
archive unpacks to has a limit of its own, checked before it is unpacked. Lines of a text come one at a time:
twenty million short ones fit in no memory.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from contracts.errors import refusal

MIB = 2**20
#: Most bytes of a file, by what it holds.
TEXT_BYTES = 64 * MIB  # logs, traces, prompts, decisions, registers, results
ONNX_BYTES = 16 * MIB
#: Of an archive of arrays, and of what it unpacks to.
ARCHIVE_BYTES = 256 * MIB
UNPACKED_BYTES = 128 * MIB

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


@contextmanager
def open_regular(path: Path | str) -> Iterator[BufferedReader]:
    """The file at ``path`` for reading bytes; OSError where it is none or no regular one."""
    # Without O_NONBLOCK the opening of a FIFO already waits for a writer.
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    found = os.fstat(number).st_mode
    if not stat.S_ISREG(found):
        os.close(number)
        kind = next((name for is_kind, name in _KINDS if is_kind(found)), "no regular file")
        raise OSError(errno.EINVAL, kind, str(path))
    with open(number, "rb") as stream:
        yield stream


def read_regular(
    path: Path | str, most_bytes: int, next_step: str = "check the path and its rights"
) -> bytes:
    """Content of the file at ``path``; DocumentError where it is no regular one or exceeds ``most_bytes``."""
    try:
        with open_regular(path) as stream:
            content = stream.read(most_bytes + 1)
    except OSError as error:
        raise refusal(path, "a readable file", error.strerror or str(error), next_step) from None
    if len(content) > most_bytes:
        raise refusal(path, f"at most {most_bytes} bytes", "more", "is this the right file?")
    return content


def read_regular_text(path: Path | str, most_bytes: int, next_step: str = "") -> str:
    """``read_regular`` as text without its byte order mark; DocumentError with the line that is not UTF-8.

    next_step: of every error; "" for what fits it.
    """
    content = read_regular(path, most_bytes, next_step or "check the path and its rights")
    return text_of(content, path, next_step)


def text_of(content: bytes, path: Path | str, next_step: str = "") -> str:
    r"""The UTF-8 text ``content`` without its byte order mark; DocumentError with the line of what is none.

    Where every line ends in ``\r`` alone, as old spreadsheets write it, the lines end in ``\n`` instead. A
    NUL is refused: UTF-16 has them, and what a power cut left of a file.
    """
    try:
        at, found = content.find(b"\0"), "a NUL byte"
        text = content.decode("utf-8-sig") if at < 0 else ""
    except UnicodeDecodeError as error:
        at, found = error.start, f"byte 0x{content[error.start]:02x}"
    if at >= 0:
        utf16 = content.startswith(_UTF16) or content[:4].count(b"\0") == 2
        message = "UTF-16" if utf16 else f"{found} at offset {at}"
        line = content.count(b"\n", 0, at) + 1
        raise refusal(path, "UTF-8 text", message, next_step or "save it as UTF-8", line=line) from None
    return text if "\n" in text else text.replace("\r", "\n")


def hash_regular(path: Path | str) -> str:
    """sha256 (hex) of the file at ``path``, piece by piece; OSError where it is no regular one."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def refuse_inflated(archive: zipfile.ZipFile, most_bytes: int = UNPACKED_BYTES) -> None:
    """ValueError where ``archive`` says that it unpacks to more than ``most_bytes``.

    No member unpacks to more than it says, because ``zipfile`` stops there.
    """
    told = sum(entry.file_size for entry in archive.infolist())
    if told > most_bytes:
        raise ValueError(f"archive unpacks to {told} bytes; at most {most_bytes} are read")


def lines_of(text: str) -> Iterator[str]:
    r"""The parts of ``text`` between its newlines, as ``text.split("\n")`` has them."""
    begin = 0
    while (end := text.find("\n", begin)) >= 0:
        yield text[begin:end]
        begin = end + 1
    yield text[begin:]

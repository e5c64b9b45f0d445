"""Reading untrusted files: regular files only, up to a limit of bytes for each kind of content.

A FIFO would block for ever and ``/dev/zero`` never ends, so both are refused before anything is read. A file
above the limit of its kind is refused when the limit is reached, whatever size it claims. The unpacked size
of an archive has a limit of its own, checked before unpacking. Lines of a text come one at a time, because
twenty million short strings would not fit in memory.
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
#: An archive of arrays, and its unpacked content.
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
    """Context with the file at ``path``, opened to read bytes; OSError if it is missing or not regular."""
    # Without O_NONBLOCK the opening of a FIFO already waits for a writer.
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")
        raise OSError(errno.EINVAL, kind, str(path))
    with open(number, "rb") as stream:
        yield stream


def read_regular(
    path: Path | str, most_bytes: int, next_step: str = "check the path and its rights"
) -> bytes:
    """Content of the file at ``path``; DocumentError if it is not regular or has more than ``most_bytes``."""
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

    next_step: the advice in every error ("": one that fits the error).
    """
    content = read_regular(path, most_bytes, next_step or "check the path and its rights")
    return text_of(content, path, next_step)


def text_of(content: bytes, path: Path | str, next_step: str = "") -> str:
    r"""The UTF-8 text ``content`` without its byte order mark; DocumentError with the line that is not UTF-8.

    If lines end in ``\r`` alone, as old spreadsheets write them, they are made to end in ``\n``. A NUL byte
    is refused: it is a sign of UTF-16, or of a file damaged by a power cut.
    """
    try:
        at, defect = content.find(b"\0"), "a NUL byte"
        text = content.decode("utf-8-sig") if at < 0 else ""
    except UnicodeDecodeError as error:
        at, defect = error.start, f"byte 0x{content[error.start]:02x}"
    if at >= 0:
        utf16 = content.startswith(_UTF16) or content[:4].count(b"\0") == 2
        message = "UTF-16" if utf16 else f"{defect} at offset {at}"
        line = content.count(b"\n", 0, at) + 1
        raise refusal(path, "UTF-8 text", message, next_step or "save it as UTF-8", line=line) from None
    return text if "\n" in text else text.replace("\r", "\n")


def hash_regular(path: Path | str) -> str:
    """sha256 (hex) of the file at ``path``, read in pieces; OSError if it is not regular."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def refuse_inflated(archive: zipfile.ZipFile, most_bytes: int = UNPACKED_BYTES) -> None:
    """ValueError if ``archive`` states an unpacked size of more than ``most_bytes``.

    No member unpacks to more than it states, because ``zipfile`` stops there.
    """
    unpacked_bytes = sum(entry.file_size for entry in archive.infolist())
    if unpacked_bytes > most_bytes:
        raise ValueError(f"archive unpacks to {unpacked_bytes} bytes; at most {most_bytes} are read")


def lines_of(text: str) -> Iterator[str]:
    r"""The lines of ``text``, as ``text.split("\n")`` gives them, but one at a time."""
    begin = 0
    while (end := text.find("\n", begin)) >= 0:
        yield text[begin:end]
        begin = end + 1
    yield text[begin:]

"""Plain YAML scalars read as ``kubectl apply`` reads them, so that file and cluster agree on numbers.

``1e-3`` is a number, ``010`` is octal 8, ``0x1f`` is 31, ``1_000`` is 1000, ``1:30`` and dates are text,
a float beyond range is text. Checked against kubectl 1.32. One deliberate difference: kubectl turns the
plain words on, off, yes, no, y and n (so also the clause family N) into booleans, which no field of ours
wants. Here they are text; ``contracts.loading.loader.dump_text`` always quotes them, so that a written
document means the same to both, and ``contracts.loading.loader.cautions`` names the places to quote in a
hand-written one.
"""

from __future__ import annotations

import math
import re

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
    ".nan": math.nan, ".NaN": math.nan, ".NAN": math.nan,
    ".inf": math.inf, ".Inf": math.inf, ".INF": math.inf,
    "+.inf": math.inf, "+.Inf": math.inf, "+.INF": math.inf,
    "-.inf": -math.inf, "-.Inf": -math.inf, "-.INF": -math.inf,
}  # fmt: skip

#: Text to YAML 1.2 and to us, booleans to YAML 1.1 and kubectl: always quoted when written.
AMBIGUOUS_WORDS = frozenset(
    spelt
    for word in ("y", "n", "yes", "no", "on", "off")
    for spelt in (word, word.capitalize(), word.upper())
)

_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_INTEGERS = (
    (re.compile(r"[-+]?0[xX][0-9a-fA-F]+", re.ASCII), 16),
    (re.compile(r"[-+]?0[bB][01]+", re.ASCII), 2),
    (re.compile(r"[-+]?0[oO]?[0-7]+", re.ASCII), 8),
    (re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII), 10),
)
_MAX_INTEGER_CHARS = 70  # 64 binary digits, their prefix and a sign


def read_scalar(text: str) -> Scalar:
    """Value of the plain scalar ``text``; NaN and infinities come back as such, for the caller to refuse."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    plain = text.replace("_", "")
    integer = _integer(plain)
    if integer is not None:
        return integer
    return _float(plain) if _FLOAT.fullmatch(plain) and math.isfinite(_float(plain)) else text


def _integer(plain: str) -> int | None:
    if len(plain) > _MAX_INTEGER_CHARS:
        return None
    for pattern, base in _INTEGERS:
        if pattern.fullmatch(plain):
            value = int(plain.replace("o", "").replace("O", "") if base == 8 else plain, base)
            return value if -(2**63) <= value < 2**64 else None
    return None


def _float(plain: str) -> float:
    return float(plain)


def needs_quotes(text: str) -> bool:
    """True where some reader would not read the plain spelling of ``text`` as this text."""
    return text in AMBIGUOUS_WORDS or text == "" or read_scalar(text) != text

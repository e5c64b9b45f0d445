"""Mutations of files: of their bytes, their lines, their JSON values, their arrays and their graphs.

All are drawn from one generator, so a mutation is identified by reader and number.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator

#: Replacements of a value.
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    2**63,
    -(2**63),
    10**400,
    0.5,
    1e308,
    -0.0,
    float("nan"),
    float("inf"),
    "",
    "\0",
    "\x1b[2J",
    "\ud800",
    "9" * 5000,
    "x" * 5000,
    [],
    [[]],
    {},
    {"": ""},
)
#: Words inserted into a text as they are.
WORDS = (
    b"\0", b"\xff\xfe", b"\r\n", b"\n\n", b"\t", b"\xe2\x80\xa8", b"{", b"}", b"[" * 3000, b'"',
    b"NaN", b"-Infinity", b",", b"9" * 6000, b"1e999", b"-1", b": ", b"- ", b"&a", b"*a", b"!!python",
    b"{'a':" * 500,
)  # fmt: skip

Mutation = Callable[[bytes, Generator], bytes]


def pick(rng: Generator, several: Any) -> Any:
    """One of ``several``."""
    return several[int(rng.integers(len(several)))]


def flip(content: bytes, rng: Generator) -> bytes:
    """Change one to eight bytes."""
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 9)) if changed else 0):
        changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
    return bytes(changed)


def cut(content: bytes, rng: Generator) -> bytes:
    """Remove a stretch, often the end."""
    first = int(rng.integers(len(content) + 1))
    last = len(content) if rng.random() < 0.5 else min(len(content), first + int(rng.integers(1, 200)))
    return content[:first] + content[last:]


def repeat(content: bytes, rng: Generator) -> bytes:
    """Repeat a stretch."""
    first = int(rng.integers(len(content) + 1))
    part = content[first : first + int(rng.integers(1, 2000))]
    return content[:first] + part + content[first:]


def insert(content: bytes, rng: Generator) -> bytes:
    """Insert a hostile word somewhere."""
    place = int(rng.integers(len(content) + 1))
    word: bytes = pick(rng, WORDS)
    return content[:place] + word + content[place:]


def lines(content: bytes, rng: Generator) -> bytes:
    """Lines are dropped, doubled or swapped."""
    rows = content.split(b"\n")
    one, other = (int(rng.integers(len(rows))) for _ in range(2))
    match int(rng.integers(3)):
        case 0:
            del rows[one]
        case 1:
            rows.insert(other, rows[one])
        case _:
            rows[one], rows[other] = rows[other], rows[one]
    return b"\n".join(rows)


def scalars(content: bytes, rng: Generator) -> bytes:
    """Replace the value after a colon by a hostile one, in YAML's and JSON's form."""
    rows = content.split(b"\n")
    own = [place for place, row in enumerate(rows) if b":" in row]
    if own:
        place = pick(rng, own)
        key = rows[place].partition(b":")[0]
        rows[place] = key + b": " + json.dumps(pick(rng, VALUES)).encode()
    return b"\n".join(rows)


def json_lines(content: bytes, rng: Generator) -> bytes:
    """A value somewhere in one line of JSON is replaced, dropped or moved."""
    rows = content.split(b"\n")
    place = int(rng.integers(len(rows)))
    rows[place] = json_value(rows[place], rng)
    return b"\n".join(rows)


def json_value(content: bytes, rng: Generator) -> bytes:
    """Replace or drop a value somewhere in a JSON text; other texts stay."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return content
    holder: Any = [value]
    key: Any = 0
    while isinstance(holder[key], (dict, list)) and holder[key] and rng.random() < 0.85:
        holder = holder[key]
        key = pick(rng, list(holder)) if isinstance(holder, dict) else int(rng.integers(len(holder)))
    if holder is not value and rng.random() < 0.15 and isinstance(holder, dict):
        del holder[key]
        return json.dumps(value).encode()
    top = [value]
    (top if holder == [value] and key == 0 else holder)[key] = pick(rng, VALUES)
    return json.dumps(top[0]).encode()


def arrays(content: bytes, rng: Generator) -> bytes:
    """Give one array of an archive another type, shape or value, or remove it."""
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        found = {name: stored[name] for name in stored.files}
    name = pick(rng, list(found))
    array = found[name]
    match int(rng.integers(6)):
        case 0:
            del found[name]
        case 1:
            found[name] = array.reshape(-1)[: int(rng.integers(4))]
        case 2:
            found[name] = np.zeros((2,) * int(rng.integers(5)))
        case 3:
            kind = pick(rng, ("f2", "f4", "u8", "i1", "U1", "S3", "c16", "M8[s]", "?", "O"))
            found[name] = np.full(array.shape, None) if kind == "O" else np.zeros(array.shape, dtype=kind)
        case 4:
            found[name] = np.array(pick(rng, (np.nan, np.inf, -1, "", "\0", 2**62)))
        case _:
            found[name] = np.repeat(array, 2, axis=0) if array.ndim else array
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **found)
    return buffer.getvalue()


def members(content: bytes, rng: Generator) -> bytes:
    """The bytes of one member of an archive are mutated, header and all."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(buffer, "w") as other:
        names = archive.namelist()
        chosen = pick(rng, names)
        for name in names:
            inner = archive.read(name)
            if name == chosen:
                inner = pick(rng, (flip, cut, insert))(inner[:200], rng) + inner[200:]
            other.writestr(name, inner)
    return buffer.getvalue()


def inside_header(content: bytes, rng: Generator) -> bytes:
    """A value in the JSON header of a safetensors file is replaced or dropped, under a length that fits."""
    length = int.from_bytes(content[:8], "little")
    header = json_value(content[8 : 8 + length], rng)
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def graph(content: bytes, rng: Generator) -> bytes:
    """Change a node, a weight or a shape of an ONNX graph."""
    model = onnx.load_model_from_string(content)
    node, weight = pick(rng, model.graph.node), pick(rng, model.graph.initializer)
    match int(rng.integers(9)):
        case 0:
            node.op_type = pick(rng, ("Loop", "If", "Expand", "Tile", "Relu", "", "MatMul", "Reshape", "\0"))
        case 1:
            weight.dims[:] = [int(rng.integers(-2, 2**40)) for _ in range(int(rng.integers(5)))]
        case 2:
            weight.raw_data = weight.raw_data[: int(rng.integers(64))]
        case 3:
            weight.data_type = int(rng.integers(30))
        case 4:
            weight.data_location = 1
            weight.external_data.add(key="location", value="/dev/zero")
        case 5:
            node.input[:] = [pick(rng, model.graph.node).output[0] for _ in range(int(rng.integers(1, 4)))]
        case 6:
            pick(rng, (model.graph.input, model.graph.output))[0].type.tensor_type.shape.dim.add(
                dim_value=2**50
            )
        case 7:
            node.attribute.add(name=pick(rng, ("axis", "perm", "axes", "to")), type=7).ints[:] = [
                99,
                -99,
                2**62,
            ]
        case _:
            model.graph.node.append(node)
    changed: bytes = model.SerializeToString()
    return changed


def events(content: bytes, rng: Generator) -> bytes:
    """A value somewhere in one event of a stream is replaced or dropped."""
    rows = content.split(b"\n")
    own = [place for place, row in enumerate(rows) if row.startswith(b"data: ")]
    if own:
        place = pick(rng, own)
        rows[place] = b"data: " + json_value(rows[place].removeprefix(b"data: "), rng)
    return b"\n".join(rows)


def exposition(content: bytes, rng: Generator) -> bytes:
    """Make a number, a label or a name of a Prometheus text hostile."""
    rows = content.split(b"\n")
    place = int(rng.integers(len(rows)))
    word: bytes = pick(rng, (*WORDS, b"NaN", b"+Inf", b"1e400", b"0x7", b"--1", b'le="', b"# TYPE a"))
    head, gap, last = rows[place].rpartition(b" ")
    match int(rng.integers(3)):
        case 0:
            rows[place] = head + gap + word
        case 1:
            rows[place] = rows[place].replace(b'"', b'"' + word, 1)
        case _:
            rows[place] = word + last
    return b"\n".join(rows)


BYTES: tuple[Mutation, ...] = (flip, cut, repeat, insert)
TEXT: tuple[Mutation, ...] = (*BYTES, lines, scalars, scalars)
JSON_LINES: tuple[Mutation, ...] = (*BYTES, lines, json_lines, json_lines, json_lines)
JSON: tuple[Mutation, ...] = (*BYTES, json_value, json_value, json_value)
EVENTS: tuple[Mutation, ...] = (*BYTES, lines, events, events, events)
ARCHIVE: tuple[Mutation, ...] = (*BYTES, arrays, arrays, members)
GRAPH: tuple[Mutation, ...] = (*BYTES, graph, graph, graph)


def mutated(content: bytes, kinds: tuple[Mutation, ...], rng: Generator) -> bytes:
    """``content`` after one to three mutations of ``kinds``; an inapplicable mutation changes nothing."""
    for _ in range(int(rng.integers(1, 4))):
        try:
            content = pick(rng, kinds)(content, rng)
        except Exception:  # a mutation's own parser can fail on an earlier one's output
            continue
    return content

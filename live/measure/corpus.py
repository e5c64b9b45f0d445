"""Training and probe text that is available on every machine: four slices of whole documents.

Code and prose come from the standard library of the running Python (PSF licence): source files, long
docstrings and the ``pydoc`` topics. JSON and numbers are generated. Equal Python versions and seeds give
equal documents; ``Corpus.sha256`` tells whether two corpora are equal.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contracts.rng import stream

SLICES = ("code", "prose", "json", "numbers")
_SKIPPED_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "encodings"}
    | {"pydoc_data", "__pycache__", "turtledemo", "ensurepip"}
)
_DOCSTRING_MIN_CHARS = 300
_GENERATED_DOCUMENTS = 1800


def _words(text: str) -> list[str]:
    return text.split()


_PEOPLE = _words("ada blaise carl dana emil fatou grace hugo iris jonas kenji lena miro nadia omar")
_CITIES = _words("Accra Bergen Cusco Dakar Graz Hanoi Kyoto Leipzig Malmo Porto Riga Tunis")
_TERMS = _words("warp weft loom thread fabric pattern shuttle bobbin fringe hem seam stitch dye")


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusText:
    """One whole text of a slice; ``name`` is stable between runs of one Python version."""

    slice: str
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """All documents of one build, split into training and held-out documents."""

    train: tuple[CorpusText, ...]
    held_out: tuple[CorpusText, ...]

    @property
    def sha256(self) -> str:
        """Hash over every document's slice, name, text and side of the split."""
        digest = hashlib.sha256()
        for side, documents in (("train", self.train), ("held_out", self.held_out)):
            for document in documents:
                row = "\x1f".join((side, document.slice, document.name, document.text, ""))
                digest.update(row.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def build_corpus(seed: int, *, held_out_share: float = 0.08, library: Path | None = None) -> Corpus:
    """Read and generate all documents; a seeded draw holds out ``held_out_share`` of each slice."""
    root = library if library is not None else Path(os.__file__).parent
    documents = [*_library_documents(root), *_topics(), *_generated(seed)]
    train: list[CorpusText] = []
    held_out: list[CorpusText] = []
    for name in SLICES:
        members = [document for document in documents if document.slice == name]
        order = stream(seed, "corpus", "split", name).permutation(len(members))
        cut = max(1, round(len(members) * held_out_share))
        held_out += [members[i] for i in order[:cut]]
        train += [members[i] for i in order[cut:]]
    return Corpus(train=tuple(train), held_out=tuple(held_out))


def _library_documents(root: Path) -> Iterator[CorpusText]:
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if _SKIPPED_FOLDERS.intersection(relative.parts) or relative.name.startswith("_sysconfigdata"):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        yield CorpusText(slice="code", name=relative.as_posix(), text=text)
        yield from _docstrings(relative.as_posix(), text)


def _docstrings(name: str, text: str) -> Iterator[CorpusText]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            doc = ast.get_docstring(node)
            if doc and len(doc) >= _DOCSTRING_MIN_CHARS:
                place = getattr(node, "name", "module")
                yield CorpusText(slice="prose", name=f"{name}:{place}", text=doc)


def _topics() -> Iterator[CorpusText]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some builds of Python leave the topics out
        return
    for name in sorted(topics):
        yield CorpusText(slice="prose", name=f"topic:{name}", text=topics[name])


def _generated(seed: int) -> Iterator[CorpusText]:
    for index in range(_GENERATED_DOCUMENTS):
        rng = stream(seed, "corpus", "json", index)
        lines = (_json_record(rng) for _ in range(8))
        yield CorpusText(slice="json", name=f"json:{index}", text="\n".join(lines))
    for index in range(_GENERATED_DOCUMENTS):
        rng = stream(seed, "corpus", "numbers", index)
        blocks = (_number_block(rng) for _ in range(4))
        yield CorpusText(slice="numbers", name=f"numbers:{index}", text="\n\n".join(blocks))


def _pick(rng: np.random.Generator, words: list[str], count: int = 1) -> list[str]:
    return [words[i] for i in rng.choice(len(words), size=count, replace=False)]


def _json_person(rng: np.random.Generator) -> object:
    people = _pick(rng, _PEOPLE, int(rng.integers(1, 4)))
    rows = [{"name": n, "age": int(rng.integers(18, 90)), "mail": f"{n}@example.org"} for n in people]
    return {"people": rows, "total": int(rng.integers(1, 100)), "city": _pick(rng, _CITIES)[0]}


def _json_request(rng: np.random.Generator) -> object:
    request = {
        "model": "reference",
        "max_tokens": int(rng.choice([16, 32, 64, 128])),
        "temperature": float(rng.choice([0.0, 0.2, 0.7, 1.0])),
        "stream": bool(rng.random() < 0.5),
    }
    return {"request": request, "status": ["ok", "error", "timeout"][int(rng.integers(3))]}


def _json_call(rng: np.random.Generator) -> object:
    arguments = {"query": " ".join(_pick(rng, _TERMS, 3)), "limit": int(rng.choice([5, 10, 20, 50]))}
    tool = ["search", "weather", "lookup", "convert"][int(rng.integers(4))]
    return {"tool": tool, "arguments": arguments, "id": f"call_{int(rng.integers(16**6)):06x}"}


def _json_item(rng: np.random.Generator) -> object:
    tags = _pick(rng, _TERMS, int(rng.integers(1, 4)))
    return {"id": int(rng.integers(1, 10000)), "active": bool(rng.random() < 0.5), "tags": tags}


def _json_record(rng: np.random.Generator) -> str:
    makers = (_json_person, _json_request, _json_call, _json_item)
    value = makers[int(rng.integers(len(makers)))](rng)
    return json.dumps(value, indent=2 if rng.random() < 0.33 else None)


def _arithmetic_run(rng: np.random.Generator) -> str:
    first, step, count = int(rng.integers(50)), int(rng.integers(1, 10)), int(rng.integers(12, 30))
    return ", ".join(str(first + step * i) for i in range(count))


def _sums(rng: np.random.Generator) -> str:
    pairs = rng.integers(100, size=(10, 2)).tolist()
    return "\n".join(f"{a} + {b} = {a + b}" for a, b in pairs)


def _products(rng: np.random.Generator) -> str:
    pairs = rng.integers(13, size=(10, 2)).tolist()
    return "\n".join(f"{a} * {b} = {a * b}" for a, b in pairs)


def _dated_values(rng: np.random.Generator) -> str:
    year = int(rng.integers(1990, 2030))
    days = [(month, day) for month in range(1, 13) for day in (1, 15)]
    return "\n".join(f"{year}-{m:02d}-{d:02d},{rng.integers(10000) / 100:.2f}" for m, d in days)


def _squares(rng: np.random.Generator) -> str:
    first = int(rng.integers(2, 40))
    return "\n".join(f"{i} squared is {i * i}" for i in range(first, first + 12))


_NUMBER_MAKERS: tuple[Callable[[np.random.Generator], str], ...] = (
    _arithmetic_run,
    _sums,
    _products,
    _dated_values,
    _squares,
)


def _number_block(rng: np.random.Generator) -> str:
    return _NUMBER_MAKERS[int(rng.integers(len(_NUMBER_MAKERS)))](rng)

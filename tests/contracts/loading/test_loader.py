"""Reading documents: what is accepted, what is refused, and the messages of refusals."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contracts.documents import KINDS, Document, KernelContract, KernelPool
from contracts.errors import DocumentError, Problem
from contracts.loading.loader import (
    cautions,
    dump_text,
    load_as,
    load_document,
    load_text,
)
from contracts.loading.scalars import AMBIGUOUS_WORDS, needs_quotes, read_scalar
from contracts.loading.yaml_positions import MAX_BYTES
from tests.support.documents.document_strategies import texts
from tests.support.paths import LIBRARY

SHIPPED = sorted(LIBRARY.glob("*.yaml"))
POOL = """\
apiVersion: selvage.dev/v1alpha1
kind: KernelPool
metadata:
  name: pair
  labels: {tier: gold}
spec:
  kernels:
    - name: bf16
      profile: bf16.yaml
      replicas: 3
      role: known_good
      zones: [a, b, a]
    - name: int8
      profile: int8.yaml
      replicas: 2
      role: serving
  home:
    - {slice: default, kernel: int8}
"""


def refusal(text: str) -> str:
    """Message of the DocumentError that ``text`` gives."""
    with pytest.raises(DocumentError) as caught:
        load_text(text, "pool.yaml")
    return str(caught.value)


# What kubectl 1.32 made of each plain scalar, read from its JSON output.
KUBECTL = {
    "1e-3": 0.001, "1E5": 100000.0, "010": 8, "0o10": 8, "0x1f": 31, "0b11": 3, "08": 8, "1_000": 1000,
    "1_0.5": 10.5, "0x_1f": 31, "+1": 1, "-.5": -0.5, "+.5": 0.5, ".5e-3": 0.0005, "1.": 1, ".1_0": 0.1,
    "1:30": "1:30", "2026-01-01": "2026-01-01", "1.5.2": "1.5.2", "1e400": "1e400", "0x1p3": "0x1p3",
    ".0x": ".0x", "tRue": "tRue", "True": True, "~": None, "null": None, "x": "x",
}  # fmt: skip


@pytest.mark.parametrize(("written", "meant"), KUBECTL.items())
def test_scalars_read_as_kubectl_reads_them(written: str, meant: object) -> None:
    """A plain scalar has the value and the type that ``kubectl apply`` gives it."""
    value = read_scalar(written)
    assert value == meant
    assert isinstance(value, bool) == isinstance(meant, bool)
    assert isinstance(value, str) == isinstance(meant, str)


@pytest.mark.parametrize("word", sorted(AMBIGUOUS_WORDS))
def test_yes_and_no_are_text_and_always_quoted(word: str) -> None:
    """Words that kubectl takes for booleans are text here, quoted on output, and reported as cautions."""
    assert read_scalar(word) == word
    assert needs_quotes(word)
    text = POOL.replace("tier: gold", f"tier: {word}")
    document = load_text(text, "pool.yaml")
    assert [(c.line, c.path) for c in cautions(text, "pool.yaml")] == [(5, "metadata.labels.tier")]
    assert cautions(dump_text(document), "pool.yaml") == []
    assert f'tier: "{word}"' in dump_text(document)


@given(texts())
def test_unquoted_output_means_itself(text: str) -> None:
    """Text written without quotes reads back the same under YAML 1.1, kubectl's and our rules."""
    if not needs_quotes(text):
        assert read_scalar(text) == text
        assert text not in AMBIGUOUS_WORDS


def swap(old: str, new: str) -> str:
    """The valid pool with one place changed."""
    assert old in POOL
    return POOL.replace(old, new)


REFUSED: dict[str, tuple[str, str, str]] = {
    "unknown key": (
        swap("    role: serving", "    rolle: serving"),
        "pool.yaml:16 spec.kernels[1].rolle: expected one of name, profile",
        "did you mean 'role'?",
    ),
    "missing key": (
        swap("      replicas: 2\n", ""),
        "pool.yaml:13 spec.kernels[1].replicas: expected this key, got nothing",
        "add it",
    ),
    "text for a number": (
        swap("replicas: 2", 'replicas: "2"'),
        "pool.yaml:15 spec.kernels[1].replicas: expected a whole number, got '2'",
        "without quotes",
    ),
    "fraction for a count": (swap("replicas: 2", "replicas: 2.5"), "expected a whole number, got 2.5", ""),
    "boolean for a number": (swap("replicas: 2", "replicas: true"), "expected a whole number", ""),
    "number for text": (swap("name: int8", "name: 8"), "[1].name: expected text, got 8", "quotes"),
    "negative": (swap("replicas: 2", "replicas: -2"), "expected a value >= 1, got -2", "unit"),
    "not a number": (
        swap("replicas: 2", "replicas: .nan"),
        "pool.yaml:15 spec.kernels[1].replicas: expected a finite number, got .nan",
        "",
    ),
    "infinity": (swap("replicas: 2", "replicas: -.inf"), "expected a finite number, got -.inf", ""),
    "beyond a double": (swap("replicas: 2", "replicas: 1e999"), "expected a whole number, got '1e999'", ""),
    "wrong word": (
        swap("role: serving", "role: boss"),
        "'candidate', 'serving', 'known_good' or 'reference', got 'boss'",
        "choose",
    ),
    "server behind a path": (
        swap("role: serving", 'role: serving\n      servers: ["https://gw/team/v1"]'),
        "spec.kernels[1].servers[0]: expected text matching ^https?://",
        "without a path: a gateway that adds one needs a route at the root",
    ),
    "signs in a name": (swap("name: int8", "name: in*t8"), "expected text matching", "inner dashes"),
    "mapping for a list": (swap("[a, b, a]", "{a: b}"), "expected a list, got a mapping", "- "),
    "list for a mapping": (swap("{tier: gold}", "[gold]"), "metadata.labels", ""),
    "duplicate key": (
        POOL + "  home: []\n",
        "pool.yaml:19 spec.home: expected each key once, got a second 'home' (first on line 17)",
        "remove",
    ),
    "alias": (
        swap("[a, b, a]", "*z"),
        "pool.yaml:12 spec.kernels[0].zones: expected a plain value, got the alias *z",
        "in full",
    ),
    "anchor": (swap("[a, b, a]", "&z [a, b, a]"), "the anchor &z", "remove"),
    "tag": (swap("[a, b, a]", "!!python/tuple [a]"), "expected no tags", ""),
    "merge key": (swap("    role: serving", "    <<: {role: serving}"), "the unknown key '<<'", ""),
    "two documents": (POOL + "---\na: 1\n", "expected one document, got a second document", "split"),
    "no document": ("", "expected one YAML document, got an empty file", ""),
    "only a comment": ("# nothing\n", "expected one YAML document", ""),
    "a list": ("- 1\n", "pool.yaml:1: expected a mapping", "apiVersion"),
    "another apiVersion": (
        swap("v1alpha1", "v1"),
        "pool.yaml:1 apiVersion: expected selvage.dev/v1alpha1, got 'selvage.dev/v1'",
        "",
    ),
    "another kind": (swap("KernelPool", "Pod"), "pool.yaml:2 kind: expected KernelContract or", ""),
    "a kind that is a list": (swap("KernelPool", "[a]"), "pool.yaml:2 kind: expected", ""),
    "key that is a list": ("? [a]\n: b\n", "expected a text key", ""),
    "unclosed quote": (swap("name: int8", 'name: "int8'), "expected YAML", ""),
    "control character": (swap("int8", "in\x07t8"), "expected YAML", ""),
    "lone surrogate": (swap("int8", "\ud800"), "a lone surrogate", ""),
    "too deep": ("[" * 3000, "at most 24 levels", "flatten"),
    "too large": ("#" * (MAX_BYTES + 1), f"at most {MAX_BYTES} bytes, got {MAX_BYTES + 1} bytes", "sha256"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_give_the_place_the_expectation_and_a_next_step(case: str) -> None:
    """Each kind of bad input is refused with its place, what was expected and found, and a next step."""
    text, said, advised = REFUSED[case]
    message = refusal(text)
    assert said in message
    assert advised in message


@pytest.mark.parametrize("length", range(0, len(POOL) - 1, 7))
def test_a_truncated_file_is_refused_or_whole(length: int) -> None:
    """A file cut off anywhere is never read as a pool with fewer kernels."""
    with suppress(DocumentError):
        assert load_text(POOL[:length], "pool.yaml") == load_text(POOL, "pool.yaml")


def test_an_alias_bomb_is_not_expanded() -> None:
    """Nine levels of nine aliases are refused at the first anchor."""
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    assert "the anchor &a0" in refusal("\n".join(["a0: &a0 [x]", *levels]))


def test_all_problems_are_reported_at_once_in_file_order() -> None:
    """A document with several faults gets one line per fault, top to bottom."""
    lines = refusal(
        POOL.replace("replicas: 3", "replicas: 0").replace("role: serving", "role: x")
    ).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["pool.yaml:10", "pool.yaml:16"]


@pytest.mark.parametrize("path", [".", "missing.yaml", "nul\0name"])
def test_paths_that_are_no_files_are_refused(path: str, tmp_path: Path) -> None:
    """Folders, missing files and impossible names raise DocumentErrors."""
    with pytest.raises(DocumentError, match="expected a"):
        load_document(tmp_path / path)


@pytest.mark.parametrize(
    "raw", [b"\x7fELF\x02\x01", b"kind: \xff\n", b"\x00" * 64, bytes(range(256)), b"\x1f\x8b"]
)
def test_binary_garbage_is_refused(raw: bytes, tmp_path: Path) -> None:
    """Bytes that are not UTF-8 YAML raise DocumentErrors that name the file."""
    path = tmp_path / "garbage.yaml"
    path.write_bytes(raw)
    with pytest.raises(DocumentError, match=r"garbage\.yaml"):
        load_document(path)


def test_load_as_refuses_another_kind(tmp_path: Path) -> None:
    """A pool where a contract is needed is refused by kind."""
    path = tmp_path / "pool.yaml"
    path.write_text(POOL, encoding="utf-8")
    assert load_as(KernelPool, path).metadata.name == "pair"
    with pytest.raises(DocumentError, match="expected kind KernelContract, got kind KernelPool"):
        load_as(KernelContract, path)


@given(st.text())
def test_any_text_is_a_document_or_a_document_error(text: str) -> None:
    """No text makes the loader raise anything but DocumentError."""
    with pytest.raises(DocumentError):
        load_text(text, "any.yaml")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_error(raw: bytes) -> None:
    """No bytes make the parser raise anything but DocumentError."""
    with pytest.raises(DocumentError):
        load_text(raw.decode("latin-1"), "any.yaml")


@given(st.data())
def test_a_damaged_document_never_crashes(data: st.DataObject) -> None:
    """A shipped document with a random replacement is accepted, or refused with a line of it."""
    text = data.draw(st.sampled_from(SHIPPED)).read_text(encoding="utf-8")
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 30)))
    damaged = text[:start] + data.draw(texts(0, 12) | st.text(max_size=4)) + text[stop:]
    found: tuple[Problem, ...] = ()
    try:
        load_text(damaged, "damaged.yaml")
    except DocumentError as error:
        found = error.problems
    last = len(damaged.splitlines()) + 1
    assert all(0 <= problem.line <= last and problem.next_step for problem in found)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(0, 8), inner, max_size=3),
    max_leaves=12,
)


@given(st.sampled_from(KINDS), TREES, TREES)
def test_any_tree_under_any_kind_is_refused_politely(
    kind: type[Document], metadata: object, spec: object
) -> None:
    """Any tree in the place of metadata and spec raises a DocumentError."""
    envelope = {
        "apiVersion": "selvage.dev/v1alpha1",
        "kind": kind.__name__,
        "metadata": metadata,
        "spec": spec,
    }
    with pytest.raises(DocumentError):
        load_text(yaml.safe_dump(envelope), "tree.yaml")


@pytest.mark.parametrize("line", ["\tname: x", "  \tname: x", "\tname: x\r"])
def test_a_tab_is_reported_as_a_tab(line: str) -> None:
    """Indentation by tabs is refused with the line of the first tab."""
    with pytest.raises(DocumentError, match=r"x.yaml:3: expected YAML, got a tab .*; indent by spaces"):
        load_text(f"kind: KernelPool\nmetadata:\n{line}\n", "x.yaml")


def test_a_control_character_is_reported_with_its_line() -> None:
    """The end mark of DOS is reported on the last line, not on the first."""
    with pytest.raises(DocumentError, match=r"x.yaml:4: expected YAML, got the control character"):
        load_text("# caf\u00e9\nkind: KernelPool\nmetadata: {}\n\x1a", "x.yaml")

"""Writing documents: the text reads back the same, and the hash is that of the meaning."""

from __future__ import annotations

import json
import math
import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.documents import KINDS, Document, KernelContract, MetaContract
from contracts.loading.loader import (
    canonical_json,
    document_sha256,
    dump_text,
    load_as,
    load_document,
    load_text,
)
from contracts.loading.yaml_positions import parse
from tests.support.documents.document_strategies import contracts, documents
from tests.support.paths import LIBRARY


@given(st.sampled_from(KINDS).flatmap(documents))
def test_dumped_documents_read_back_the_same(document: Document) -> None:
    """parse(dump(x)) == x for every model, even where x breaks rules between fields."""
    written = parse(dump_text(document), "dumped.yaml")
    assert type(document).model_validate(written.value) == document


@given(contracts())
def test_contracts_survive_the_whole_loader(document: KernelContract) -> None:
    """load(dump(x)) == x, with the same hash, for contracts that keep every rule."""
    again = load_text(dump_text(document), "dumped.yaml")
    assert again == document
    assert document_sha256(again) == document_sha256(document)


@given(contracts(), st.randoms(use_true_random=False))
def test_the_hash_ignores_spelling(document: KernelContract, rng: Random) -> None:
    """Key order, JSON spelling, cluster metadata and written-out defaults leave the hash alone."""
    plain = document.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    plain |= {"apiVersion": "selvage.dev/v1alpha1", "kind": "KernelContract"}
    plain["metadata"] = {"name": document.metadata.name, "annotations": {"applied": "by hand"}}
    respelt = _PAIR.sub(_long_escape, json.dumps(_shuffled(plain, rng)))
    assert document_sha256(load_text(respelt, "respelt.yaml")) == document_sha256(document)


#: JSON writes a character beyond 16 bits as two escapes, YAML as one.
_PAIR = re.compile(r"\\u(d[89ab]..)\\u(d[c-f]..)")


def _long_escape(pair: re.Match[str]) -> str:
    character = json.loads('"' + pair[0] + '"')
    return f"\\U{ord(character):08x}"


def _shuffled(tree: object, rng: Random) -> object:
    if isinstance(tree, dict):
        keys = list(tree)
        rng.shuffle(keys)
        return {key: _shuffled(tree[key], rng) for key in keys}
    return [_shuffled(item, rng) for item in tree] if isinstance(tree, list) else tree


def test_the_hash_changes_with_the_meaning() -> None:
    """Another threshold is another document; the canonical form is plain JSON."""
    path = LIBRARY / "serving-pool.yaml"
    text = path.read_text(encoding="utf-8")
    changed = load_text(re.sub(r"threshold: (\S+)", r"threshold: 1\1", text, count=1), "changed.yaml")
    assert document_sha256(changed) != document_sha256(load_document(path))
    assert json.loads(canonical_json(changed))["metadata"] == {"name": "serving-pool"}
    assert not any(
        isinstance(v, float) and math.isnan(v) for v in json.loads(canonical_json(changed)).values()
    )


def test_documents_are_immutable() -> None:
    """A loaded document cannot be changed in place."""
    document = load_as(MetaContract, LIBRARY / "meta-contract.yaml")
    with pytest.raises(ValueError, match="frozen"):
        setattr(document.spec.clauses[0], "threshold", 1.0)  # noqa: B010 (mypy knows that it is frozen)

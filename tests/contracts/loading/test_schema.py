"""JSON Schemas and their Kubernetes form, for every kind of document."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from contracts.documents import KINDS, Document, KernelContract, Scenario
from contracts.documents.scenario import FAULT_KINDS
from contracts.errors import DocumentError
from contracts.loading.loader import load_text
from contracts.loading.schema import json_schema, kind_named, structural_schema
from tests.support.documents.document_strategies import contracts

#: Size limit: etcd takes 1.5 MB, and a client-side apply repeats an object in an annotation.
LARGEST_CRD_BYTES = 64_000
#: Keys allowed in a structural schema, as far as the models need them.
ALLOWED = frozenset(
    [
        "type",
        "format",
        "description",
        "default",
        "enum",
        "pattern",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "required",
        "properties",
        "items",
    ]
)


def nodes(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """``schema`` and every schema below it."""
    below = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return [schema, *(node for sub in below for node in nodes(sub))]


def structural_problems(schema: dict[str, Any], path: str = "") -> list[str]:
    """What the API server would refuse in ``schema``, one line each; empty for a structural one."""
    found = [f"{path}: {key} is not allowed" for key in schema if key not in ALLOWED]
    kind = schema.get("type")
    if kind not in ("object", "array", "string", "number", "integer", "boolean"):
        found.append(f"{path}: type is {kind!r}")
    if (kind == "array") != ("items" in schema):
        found.append(f"{path}: items go with arrays and only there")
    if "properties" in schema and kind != "object":
        found.append(f"{path}: properties go with objects")
    missing = [name for name in schema.get("required", ()) if name not in schema.get("properties", {})]
    found += [f"{path}: requires the unknown {name}" for name in missing]
    for name, sub in schema.get("properties", {}).items():
        found += structural_problems(sub, f"{path}.{name}")
    if "items" in schema:
        found += structural_problems(schema["items"], f"{path}[]")
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_model_has_a_structural_schema(kind: type[Document]) -> None:
    """Each kind converts: a type at every node, no reference, no union, required names exist."""
    schema = structural_schema(kind)
    assert structural_problems(schema) == []
    text = json.dumps(schema)
    for refused in (
        "$ref",
        "anyOf",
        "oneOf",
        "allOf",
        "additionalProperties",
        "prefixItems",
        "null",
        "const",
    ):
        assert f'"{refused}"' not in text
    assert len(text) < LARGEST_CRD_BYTES
    assert schema["properties"]["metadata"] == {"type": "object"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_structural_defaults_are_the_models_own(kind: type[Document]) -> None:
    """The schema has a default exactly where the model has one, so the API server fills in the same."""
    for node in nodes(structural_schema(kind)["properties"]["spec"]):
        optional = set(node.get("properties", {})) - set(node.get("required", []))
        for name in set(node.get("properties", {})) - optional:
            assert "default" not in node["properties"][name]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_json_schema_asks_for_the_envelope(kind: type[Document]) -> None:
    """Written documents must have apiVersion, kind, metadata and spec, and no other key."""
    schema = json_schema(kind)
    assert set(schema["required"]) == {"apiVersion", "kind", "metadata", "spec"}
    assert schema["additionalProperties"] is False
    assert schema["properties"]["kind"]["const"] == kind.__name__


@given(contracts())
def test_defaults_of_the_api_server_change_nothing(document: KernelContract) -> None:
    """A sparse document with the structural defaults applied is the document itself."""
    sparse = document.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    filled = _with_defaults(structural_schema(KernelContract)["properties"]["spec"], sparse["spec"])
    whole = document.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert filled == whole["spec"]


def _with_defaults(schema: dict[str, Any], given_value: Any) -> Any:
    """What Kubernetes' defaulting makes of ``given_value``."""
    if schema["type"] == "array":
        return [_with_defaults(schema["items"], item) for item in given_value]
    if schema["type"] != "object":
        return given_value
    found = dict(given_value)
    for name, sub in schema["properties"].items():
        if name not in found and "default" in sub:
            found[name] = sub["default"]
        if name in found:
            found[name] = _with_defaults(sub, found[name])
    return found


def test_a_broken_schema_is_detected() -> None:
    """The check itself finds references, unions, missing types and unknown keys (negative control)."""
    broken = {
        "type": "object",
        "required": ["ghost"],
        "properties": {"a": {"$ref": "#/x"}, "b": {"type": "array"}, "c": {"anyOf": []}},
    }
    found = " ".join(structural_problems(broken))
    for said in (
        "$ref is not allowed",
        "anyOf is not allowed",
        "type is None",
        "items go with",
        "unknown ghost",
    ):
        assert said in found


def test_a_union_has_no_structural_form() -> None:
    """A model with a union of two types is refused by the conversion, not silently narrowed."""

    class Odd(Document):
        spec: int | str

    with pytest.raises(ValueError, match="no structural form"):
        structural_schema(Odd)


def test_kinds_are_found_by_name_in_any_case() -> None:
    """``kernelcontract`` names KernelContract; an unknown name lists the kinds."""
    assert kind_named("kernelcontract") is KernelContract
    with pytest.raises(DocumentError, match="KernelContract, KernelPool"):
        kind_named("Pod")


def test_the_schema_lists_the_accepted_kinds_of_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registered kind is in both schemas, as the loader accepts it."""
    monkeypatch.setitem(FAULT_KINDS, "acme-fault", object())
    for schema in (json_schema(Scenario), structural_schema(Scenario)):
        kinds = [found for found in enums(schema) if "requantise" in found]
        assert kinds
        assert all("acme-fault" in found for found in kinds)


def enums(schema: Any) -> list[list[str]]:
    """Every list of words in ``schema``."""
    if isinstance(schema, list):
        return [found for inner in schema for found in enums(inner)]
    if not isinstance(schema, dict):
        return []
    own = [schema["enum"]] if isinstance(schema.get("enum"), list) else []
    return own + [found for inner in schema.values() for found in enums(inner)]


def test_numbers_without_a_point_are_numbers() -> None:
    """A stored object has ``1`` where a file had ``1.0``; both are the same document."""
    text = """{"apiVersion": "selvage.dev/v1alpha1", "kind": "KernelContract", "metadata": {"name": "a"},
        "spec": {"description": "d", "temperature": %s, "slices": [{"name": "s", "default": true}],
        "clauses": [{"id": "c", "family": "R", "metric": "failure_rate", "threshold": %s, "budget": %s,
        "level": "L1", "remediation": "r", "reason": "r"}],
        "escalation": {"guard_threshold": 0.5, "fallback_threshold": 2, "when_uncertified": "shed"}}}"""
    assert load_text(text % (1, 0, 0), "a") == load_text(text % ("1.0", "0.0", "-0.0"), "b")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_document_says_what_it_is(kind: type[Document]) -> None:
    """Every field below ``spec``, however deep, has a description."""
    spec = structural_schema(kind)["properties"]["spec"]
    without = [
        name
        for node in nodes(spec)
        for name, field in node.get("properties", {}).items()
        if not field.get("description", "").strip()
    ]
    assert without == []

"""JSON Schema of every kind, and its Kubernetes form (a structural ``openAPIV3Schema``).

A structural schema gives a type at every node, has no ``$ref``, no union and no ``title``; an optional
field is simply not required; ``additionalProperties: false`` is implied by pruning and left out. The
API server fills in the defaults, so a stored object and a loaded file have the same canonical hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contracts import documents
from contracts.documents import Document
from contracts.documents.envelope import INT64_MAX
from contracts.errors import refusal

Schema = dict[str, Any]

#: What a structural schema may say of one node, besides ``properties`` and ``items``.
_KEPT = (
    "type",
    "format",
    "description",
    "default",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "required",
)


def kind_named(name: str, kinds: Sequence[type[Document]] | None = None) -> type[Document]:
    """The document model of kind ``name`` (any case), one of ``kinds`` or of all; ``DocumentError`` lists
    the kinds otherwise.
    """
    every = documents.KINDS if kinds is None else kinds
    for kind in every:
        if kind.__name__.lower() == name.lower():
            return kind
    known = ", ".join(kind.__name__ for kind in every)
    raise refusal("KIND", f"one of {known}", repr(name), "name a kind of document")


def json_schema(kind: type[Document]) -> Schema:
    """JSON Schema (2020-12) of the documents of ``kind`` as they are written."""
    schema = kind.model_json_schema(by_alias=True, mode="validation")
    schema["required"] = ["apiVersion", "kind", *(name for name in schema["required"] if name != "kind")]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def structural_schema(kind: type[Document]) -> Schema:
    """``openAPIV3Schema`` of ``kind``: what a CustomResourceDefinition version holds."""
    schema = kind.model_json_schema(by_alias=True, mode="validation")
    definitions: Schema = schema.get("$defs", {})
    return {
        "type": "object",
        "description": schema.get("description", ""),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _structural(schema["properties"]["spec"], definitions),
        },
    }


def _structural(node: Schema, definitions: Schema) -> Schema:
    """``node`` without references, unions and what Kubernetes refuses."""
    flat = _without_references(node, definitions)
    found: Schema = {key: flat[key] for key in _KEPT if key in flat}
    if "default" in found:
        found["default"] = _without_nulls(found["default"])
        if found["default"] is None:
            del found["default"]  # an absent optional field: Kubernetes prunes null
    if found.get("maximum") == INT64_MAX:
        del found["maximum"]  # the format says so, and as a double the bound is not exact
    if "const" in flat:
        found["enum"] = [flat["const"]]
    _bound_exclusively(flat, found)
    if "properties" in flat:
        found["properties"] = {
            name: _structural(sub, definitions) for name, sub in flat["properties"].items()
        }
    if "items" in flat:
        found["items"] = _structural(flat["items"], definitions)
    if found.get("type") == "integer":
        found["format"] = "int64"
    if found.get("type") == "number":
        found["format"] = "double"
    return found


def _without_nulls(default: Any) -> Any:
    if isinstance(default, dict):
        return {key: _without_nulls(value) for key, value in default.items() if value is not None}
    return default


def _without_references(node: Schema, definitions: Schema) -> Schema:
    """``node`` with a reference replaced by its target and ``X | null`` by ``X``."""
    if "$ref" in node:
        target = definitions[node["$ref"].rpartition("/")[2]]
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return _without_references({**target, **rest}, definitions)
    if "anyOf" in node:
        real = [part for part in node["anyOf"] if part.get("type") != "null"]
        if len(real) != 1:
            raise ValueError(f"a union has no structural form: {node}")
        rest = {key: value for key, value in node.items() if key != "anyOf"}
        return _without_references({**real[0], **rest}, definitions)
    return node


def _bound_exclusively(flat: Schema, found: Schema) -> None:
    """OpenAPI 3.0 writes an exclusive bound as the bound and a flag."""
    for given, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if given in flat:
            found[bound], found[given] = flat[given], True

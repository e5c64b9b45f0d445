"""Every field of every resource has a description for ``kubectl explain``."""

from __future__ import annotations

from typing import Any

import pytest

from k8s.resources.definition import definition
from k8s.resources.kinds import RESOURCES, ResourceKind

Object = dict[str, Any]


def unexplained(schema: Object, path: str) -> list[str]:
    """Paths of fields of ``schema``, nested ones too, without a description."""
    found = []
    for name, field in schema.get("properties", {}).items():
        found += [] if field.get("description", "").strip() else [f"{path}.{name}"]
        found += unexplained(field, f"{path}.{name}")
    return found + (unexplained(schema["items"], f"{path}[]") if "items" in schema else [])


@pytest.mark.parametrize("kind", RESOURCES, ids=lambda kind: kind.name)
def test_every_field_and_every_rule_is_explained(kind: ResourceKind) -> None:
    """Every field of spec and status, however deep, has a description, and every rule a message."""
    schema = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["description"]
    for part in ("spec", "status"):
        assert unexplained({"properties": {part: schema["properties"][part]}}, "") == []
    for rule in schema["properties"]["spec"]["x-kubernetes-validations"]:
        assert ":" in rule["message"]

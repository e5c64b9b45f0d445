"""The definitions: structural, equal to the loader's rules, and checked on a real API server."""

from __future__ import annotations

import copy
import json

import pytest
from kubernetes import client

from contracts.errors import DocumentError
from contracts.loading.loader import document_sha256
from k8s.resources.kinds import GROUP, RESOURCES, VERSION, document_of, resource_named
from k8s.resources.rules import RULES
from tests.support.cluster.resource_cases import (
    BROKEN,
    CLUSTER_ONLY,
    VALID,
    Object,
    drill,
)
from tests.support.documents.drill_cases import SOUND_DRILL

pytestmark = pytest.mark.waits


def create(api: client.ApiClient, namespace: str, given: Object) -> Object:
    """Create ``given``; returns the object that the server stored."""
    kind = resource_named(given["kind"])
    objects = client.CustomObjectsApi(api)
    body = {**given, "metadata": {**given["metadata"], "namespace": namespace}}
    found: Object = objects.create_namespaced_custom_object(
        GROUP, VERSION, namespace, kind.plural, body, field_validation="Strict"
    )
    return found


def test_every_resource_has_a_valid_example() -> None:
    """``VALID`` has an example of every kind."""
    assert {kind.name for kind in RESOURCES} == set(VALID)


def test_an_unknown_kind_is_refused_by_name() -> None:
    """The error for an unknown kind lists the known ones."""
    with pytest.raises(KeyError, match="Scenario is no cluster resource; these are: FaultDrill"):
        resource_named("Scenario")


@pytest.mark.needs("kube_api")
class TestOnAServer:
    @pytest.mark.parametrize("kind", sorted(VALID))
    def test_a_document_is_stored_unchanged(self, api: client.ApiClient, namespace: str, kind: str) -> None:
        """A document that was created on the server has the same hash when it is read back."""
        given = VALID[kind]()
        stored = create(api, namespace, given)
        before, after = document_of(given), document_of(stored)
        assert after.metadata.namespace == namespace
        same = after.model_copy(update={"metadata": before.metadata})
        assert document_sha256(same) == document_sha256(before)

    @pytest.mark.parametrize("kind", sorted(VALID))
    def test_an_unknown_field_is_refused(self, api: client.ApiClient, namespace: str, kind: str) -> None:
        """A field that the schema does not have is refused under strict validation."""
        broken = VALID[kind]()
        broken["spec"]["no_such_field"] = 1
        assert "no_such_field" in refusal(api, namespace, broken)

    @pytest.mark.parametrize("kind", sorted(VALID))
    def test_a_status_is_a_subresource(self, api: client.ApiClient, namespace: str, kind: str) -> None:
        """Writing the status does not raise the generation."""
        """A status is written apart."""
        stored = create(api, namespace, VALID[kind]())
        condition = {
            "type": "Accepted",
            "status": "True",
            "reason": "Valid",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status = {"observedGeneration": 1, "conditions": [condition]}
        plural = resource_named(kind).plural
        found = client.CustomObjectsApi(api).replace_namespaced_custom_object_status(
            GROUP, VERSION, namespace, plural, stored["metadata"]["name"], {**stored, "status": status}
        )
        assert found["status"] == status
        assert found["metadata"]["generation"] == 1


def refusal(api: client.ApiClient, namespace: str, broken: Object) -> str:
    """The server's message when it refuses ``broken``."""
    with pytest.raises(client.ApiException) as caught:
        create(api, namespace, broken)
    return str(json.loads(caught.value.body)["message"])


@pytest.mark.needs("kube_api")
@pytest.mark.parametrize("name", sorted({**BROKEN, **CLUSTER_ONLY}))
def test_broken_documents_are_refused_at_apply(api: client.ApiClient, namespace: str, name: str) -> None:
    """The server refuses each broken document with the message of its rule."""
    kind, change, said = {**BROKEN, **CLUSTER_ONLY}[name]
    broken = VALID[kind]()
    change(broken["spec"])
    assert said in refusal(api, namespace, broken)


@pytest.mark.needs("kube_api")
@pytest.mark.parametrize("kind", sorted(RULES))
def test_every_rule_refuses_something(api: client.ApiClient, namespace: str, kind: str) -> None:
    """No rule of a definition is idle: the server refuses some nonsense with the words of each."""
    said = []
    for about, change, _ in {**BROKEN, **CLUSTER_ONLY}.values():
        if about == kind:
            broken = VALID[kind]()
            change(broken["spec"])
            said.append(refusal(api, namespace, broken))
    idle = [rule.message for rule in RULES[kind] if not any(rule.message in text for text in said)]
    assert idle == []


@pytest.mark.needs("kube_api")
def test_a_drill_with_every_field_is_accepted(api: client.ApiClient, namespace: str) -> None:
    """No rule of the definition refuses a drill that the loader accepts, at the limits of each field."""
    found = drill()
    found["spec"].update(copy.deepcopy(SOUND_DRILL))
    assert document_of(create(api, namespace, found)).metadata.name == found["metadata"]["name"]


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_the_loader_refuses_the_same_documents(name: str) -> None:
    """The loader refuses the same broken documents."""
    kind, change, _ = BROKEN[name]
    broken = VALID[kind]()
    change(broken["spec"])
    with pytest.raises(DocumentError):
        document_of(broken)

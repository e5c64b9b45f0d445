"""Definitions applied over those of an earlier version with stored objects."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from contracts.documents import FaultDrill
from contracts.errors import DocumentError
from k8s.resources.definition import definition
from k8s.resources.kinds import VERSION, document_of, resource_named
from tests.support.cluster.kube_api import install_definitions
from tests.support.documents.drills import DRILL
from tests.support.waiting import until

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]

Object = dict[str, Any]
#: A group of this test, because other tests use ours.
GROUP = "upgrade.selvage.test"
PLURAL = "faultdrills"
NAME = f"{PLURAL}.{GROUP}"


def today() -> Object:
    """The present definition of a drill, in this test's group."""
    found = copy.deepcopy(definition(resource_named("FaultDrill")))
    found["metadata"]["name"], found["spec"]["group"] = NAME, GROUP
    names = found["spec"]["names"]
    found["spec"]["names"] = {
        key: one for key, one in names.items() if key not in ("shortNames", "categories")
    }
    return found


def spec_of(found: Object) -> Object:
    """Schema of the spec."""
    schema: Object = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec: Object = schema["properties"]["spec"]
    return spec


def earlier() -> Object:
    """The definition before it had cross-field rules, when a field had another name."""
    found = today()
    spec = spec_of(found)
    del spec["x-kubernetes-validations"]
    spec["properties"]["abort_if"] = spec["properties"].pop("abort_when")
    return found


class Drills:
    """Drills of that group in one namespace."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._custom = client.CustomObjectsApi(api)
        self._place = (GROUP, VERSION, namespace, PLURAL)

    def create(self, name: str, **spec: object) -> None:
        """Create a drill with the earlier field names."""
        found = {**copy.deepcopy(DRILL), "apiVersion": f"{GROUP}/{VERSION}", "metadata": {"name": name}}
        guards = found["spec"].pop("abort_when")
        found["spec"] |= {"abort_if": guards, **spec}
        self._custom.create_namespaced_custom_object(*self._place, found, field_validation="Strict")

    def read(self, name: str) -> Object:
        """The drill as the server returns it, under our group."""
        found: Object = self._custom.get_namespaced_custom_object(*self._place, name)
        return {**found, "apiVersion": f"selvage.dev/{VERSION}"}

    def patch(self, name: str, change: Object) -> Object:
        """Merge ``change`` into the drill."""
        merge = "application/merge-patch+json"
        found: Object = self._custom.patch_namespaced_custom_object(
            *self._place, name, change, _content_type=merge
        )
        return found

    def tell(self, name: str, status: Object) -> None:
        """Write a status, as operator and drill runner do."""
        self._custom.patch_namespaced_custom_object_status(
            *self._place,
            name,
            [{"op": "add", "path": "/status", "value": status}],
            _content_type="application/json-patch+json",
        )


@pytest.fixture
def drills(api: client.ApiClient, namespace: str) -> Iterator[Drills]:
    """A valid and an invalid drill stored under the earlier definition, then the present one is applied."""
    extensions, found = client.ApiextensionsV1Api(api), Drills(api, namespace)
    install_definitions(api, [earlier()])
    try:
        until(lambda: _created(found))
        found.create("senseless", steady_state=[{"name": "a", "metric": "quality", "threshold": 7.0}])
        extensions.patch_custom_resource_definition(
            NAME, today(), _content_type="application/merge-patch+json"
        )
        until(lambda: "abort_if" not in found.read("sound")["spec"])
        yield found
    finally:
        extensions.delete_custom_resource_definition(NAME)
        until(lambda: NAME not in _names(extensions))


def _names(extensions: client.ApiextensionsV1Api) -> list[str]:
    return [one.metadata.name for one in extensions.list_custom_resource_definition().items]


def _created(drills: Drills) -> bool:
    try:
        drills.create("sound")
    except client.exceptions.NotFoundException:  # not served yet
        return False
    return True


def sound(drills: Drills, name: str) -> FaultDrill:
    """The drill ``name`` as a document."""
    found = document_of(drills.read(name))
    assert isinstance(found, FaultDrill)
    return found


def test_a_field_that_was_renamed_is_missing_and_reported(drills: Drills) -> None:
    """The value of the old field is not carried over: the drill has no guard until one is added."""
    assert sound(drills, "sound").spec.abort_when == ()  # the drill runner refuses it as NoGuards
    drills.patch("sound", {"spec": {"abort_when": DRILL["spec"]["abort_when"]}})
    assert sound(drills, "sound").spec.abort_when[0].name == "outage"


def test_an_object_that_is_invalid_now_can_be_updated_and_released(drills: Drills) -> None:
    """An object that would be refused now still accepts a status and finalizers, and can be corrected."""
    with pytest.raises(DocumentError, match="metric"):
        document_of(drills.read("senseless"))
    drills.tell("senseless", {"observedGeneration": 1, "conditions": []})
    for finalizers in (["selvage.dev/drill"], None):
        drills.patch("senseless", {"metadata": {"finalizers": finalizers}})
    with pytest.raises(client.ApiException, match="a drill watches"):
        drills.patch("senseless", {"spec": {"description": "another"}})
    drills.patch("senseless", {"spec": {key: DRILL["spec"][key] for key in ("steady_state", "abort_when")}})
    assert sound(drills, "senseless").spec.abort_when

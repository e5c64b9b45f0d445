"""Definitions that a cluster needs for our tests: our own, and those of routes and pools."""

from __future__ import annotations

import yaml
from kubernetes import client

from k8s.resources.definition import definitions
from tests.support.cluster.kube_api import install_definitions
from tests.support.cluster.kube_assets import gateway_crds, pool_crd


def definitions_installed(api: client.ApiClient, keep: bool = False) -> None:
    """Create them and wait until they are served; ``keep``: existing ones stay."""
    gateway, pool = gateway_crds(), pool_crd()
    assert gateway is not None
    assert pool is not None
    others = [yaml.safe_load(one.read_text(encoding="utf-8")) for one in (gateway / "httproutes.yaml", pool)]
    known = client.ApiextensionsV1Api(api).list_custom_resource_definition().items if keep else []
    names = {one.metadata.name for one in known}
    wanted = [*definitions(), *others]
    install_definitions(api, [one for one in wanted if one["metadata"]["name"] not in names])

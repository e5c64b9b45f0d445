"""Columns of ``kubectl get``: the API server's table, one cell per column."""

from __future__ import annotations

import ssl
from typing import Any

import httpx
import pytest

from k8s.operator.summary import pool_summary, shares_text
from k8s.resources.kinds import GROUP, RESOURCES, VERSION, ResourceKind, resource_named
from tests.support.cluster.cluster_worlds import Bench

pytestmark = pytest.mark.waits

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def row(name: str, weight: float, health: float = 0.0, clause: str = "") -> dict[str, Any]:
    """A kernel as in a pool's status."""
    return {"name": name, "ready": 2, "weight": weight, "health": health, "clause": clause}


@pytest.mark.parametrize("kind", RESOURCES, ids=lambda kind: kind.name)
def test_no_column_reads_a_list(kind: ResourceKind) -> None:
    """No column selects a whole list, of which the server would silently show the first entry."""
    assert not [column.name for column in kind.columns if "[*]" in column.path]


def test_shares_are_rounded_in_their_text() -> None:
    """Shares are rounded and follow their names; kernels without a share are left out."""
    assert shares_text({"fp8": 0.70004, "bf16": 0.29996, "int4": 0.0}) == "fp8 0.7, bf16 0.3"
    assert shares_text({"fp8": 0.0}) == ""


def test_the_worst_kernel_is_named_with_its_clause() -> None:
    """The summary names the kernel with the worst health and its clause, or none if all are healthy."""
    found = pool_summary([row("a", 0.2), row("b", 0.7, 1.5, "H-kl"), row("c", 0.05, 0.4)], 0.05)
    assert found["weights"] == "a 0.2, b 0.7, c 0.05, (refused) 0.05"
    assert (found["worstKernel"], found["worstHealth"], found["worstClause"]) == ("b", 1.5, "H-kl")
    assert pool_summary([row("a", 0.5), row("b", 0.5)], 0.0)["worstKernel"] == ""
    assert pool_summary([row("a", 0.5), row("b", 0.5, 0.0, "R-ttft")], 0.0)["worstKernel"] == "b"


def cells(bench: Bench, kind: str) -> dict[str, Any]:
    """Column -> cell of the only resource of ``kind``, wide columns included."""
    plural = resource_named(kind).plural
    server = bench.api.configuration
    found = httpx.get(
        f"{server.host}/apis/{GROUP}/{VERSION}/namespaces/{bench.namespace}/{plural}",
        headers={"Accept": _TABLE, "Authorization": server.api_key["authorization"]},
        verify=ssl.create_default_context(cafile=server.ssl_ca_cert),
        timeout=60.0,
    ).json()
    (only,) = found["rows"]
    names = [one["name"] for one in found["columnDefinitions"]]
    return dict(zip(names, only["cells"], strict=True))


@pytest.mark.needs("kube_api")
@pytest.mark.slow
def test_kubectl_get_shows_every_kernel_and_the_worst_clause(bench: Bench) -> None:
    """The server's table shows each kernel's weight, and the worst kernel with its health and clause."""
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 5)
    pool, policy = cells(bench, "KernelPool"), cells(bench, "RoutePolicy")
    assert (pool["Ready"], pool["Weights"]) == ("True", "fp8 0.5, bf16 0.5")
    assert (pool["Worst"], pool["Clause"]) == ("", "")
    assert policy["Weights"] == "prose: fp8 1; numbers: bf16 1"
    assert policy["Kernels"] == "prose fp8, numbers bf16"
    bench.drift["fp8"] = 0.02
    bench.turns(operator, 45)
    pool = cells(bench, "KernelPool")
    assert pool["Weights"] == "bf16 1"
    assert pool["Worst"] == "fp8"
    assert float(pool["Health"]) > 0.0
    assert pool["Clause"] in {
        one["id"] for one in bench.read("KernelContract", "chat-contract")["spec"]["clauses"]
    }
    assert pool["Age"]

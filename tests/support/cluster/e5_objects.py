"""The sample's resources as an API server returns them, and one in memory that E5 may change."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from k8s.operator.objects import ClusterError, Resources
from tests.support.cluster.cluster_worlds import sample

Object = dict[str, Any]


def returned(name: str) -> Object:
    """One object of the sample with the server's additions."""
    (found,) = sample(name)
    found["metadata"] |= {"namespace": "chat", "uid": f"uid-{name}", "generation": 1, "resourceVersion": "1"}
    return dict(found)


def resources() -> Resources:
    """The sample's contract, pool and policy."""
    return Resources(
        contracts={"chat-contract": returned("contract")},
        pools={"chat-pool": returned("pool")},
        policies={"chat": returned("policy")},
    )


class PolicyServer:
    """Holds one RoutePolicy. conflicts: writes that come too late; lost: writes with a lost answer."""

    def __init__(self, conflicts: int = 0, lost: int = 0) -> None:
        self.held: Object | None = returned("policy")
        self.conflicts, self.lost = conflicts, lost
        self.specs: list[Object] = []

    def policy(self, name: str) -> Object | None:
        """A copy of it."""
        return copy.deepcopy(self.held)

    def put_policy(self, found: Object) -> Object | None:
        """As the API server: another spec is another generation; an old version is refused."""
        assert self.held is not None
        metadata = self.held["metadata"]
        if self.conflicts or found["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            self.conflicts = max(0, self.conflicts - 1)
            return None
        made = copy.deepcopy(found)
        changed = made["spec"] != self.held["spec"]
        made["metadata"]["generation"] = metadata["generation"] + changed
        made["metadata"]["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        self.held = made
        self.specs.append(made["spec"])
        if self.lost:
            self.lost -= 1
            raise ClusterError("RoutePolicy chat: the API server does not answer")
        return copy.deepcopy(made)

    def edit(self, change: Callable[[Object], object]) -> None:
        """A change by another client."""
        found = self.policy("chat")
        assert found is not None
        change(found)
        assert self.put_policy(found) is not None

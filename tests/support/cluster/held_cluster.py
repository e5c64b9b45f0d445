"""A namespace in memory that can refuse, be unreachable and lose pods: for tests without an API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k8s.operator.namespace import NamespaceOperator
from k8s.operator.objects import ClusterError, Manifest
from k8s.operator.pods.pod_facts import IN_ROTATION, OUT
from k8s.operator.records.snapshot import config_name
from scripts.studies.operator.answers import answer
from scripts.studies.operator.resources import PoolSize
from scripts.studies.operator.world import MemoryCluster, RecordedWorld

#: The one policy of such a namespace, its pool, its contract and its route.
POLICY = "pool-0"
SHAPE = PoolSize(kernels=2, replicas=3, slices=2)


class HeldCluster(MemoryCluster):
    """``MemoryCluster`` with labelled pods. failing: methods without an answer; refusing: refused methods."""

    def __init__(self, shape: PoolSize = SHAPE) -> None:
        super().__init__(1, shape)
        self.labels: dict[str, str] = {}
        self.statuses: dict[str, Manifest] = {}
        self.failing: set[str] = set()
        self.refusing: set[str] = set()
        self.written: list[Manifest] = []
        """Every revision of a route."""

    @property
    def config(self) -> dict[str, Any]:
        """The ConfigMap of the policy."""
        return self._configs[config_name(POLICY)]

    def lose(self, *keys: str) -> None:
        """Remove the entries under ``keys`` from the ConfigMap; without keys all of them."""
        if not keys:
            self._configs.clear()
        for key in keys:
            for part in ("data", "binaryData"):
                self.config[part].pop(key, None)

    def read(self, name: str) -> Manifest | None:
        """A route."""
        self._ask("read")
        return super().read(name)

    def replace(self, route: Manifest, *, trial: bool = False) -> Manifest:
        """Store a route."""
        self.written.append(route)
        return super().replace(route, trial=trial)

    def speak(self, names: list[str], said: Mapping[str, tuple[list[Manifest], int]]) -> None:
        """Set the gateways' status of the route: conditions, and how many generations each is behind."""
        route = self._routes[POLICY]
        generation = 10
        parents = [
            {
                "parentRef": {"name": name},
                "conditions": [{**one, "observedGeneration": generation - late} for one in conditions],
            }
            for name, (conditions, late) in said.items()
        ]
        self._routes[POLICY] = {
            **route,
            "metadata": {**route["metadata"], "generation": generation},
            "spec": {**route["spec"], "parentRefs": [{"name": name} for name in names]},
            "status": {"parents": parents},
        }

    def read_config(self, name: str) -> Manifest | None:
        """The stored state."""
        self._ask("read_config")
        return super().read_config(name)

    def endpoint_slices(self, service: str) -> list[Manifest]:
        """Every pod of the Service that its label leaves in rotation."""
        self._ask("endpoint_slices")
        (found,) = super().endpoint_slices(service)
        listed = [one for one in found["endpoints"] if self._label(one["targetRef"]["name"]) != OUT]
        return [{**found, "endpoints": listed}]

    def pods(self, selector: Mapping[str, str]) -> list[Manifest]:
        """Every pod of a kernel, ready."""
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        return [
            {
                "metadata": {
                    **one["metadata"],
                    "labels": {IN_ROTATION: self._label(one["metadata"]["name"])},
                },
                "status": {**status, "podIP": f"10.0.1.{n}"},
            }
            for n, one in enumerate(super().pods(selector))
        ]

    def label_pod(self, name: str, key: str, value: str) -> None:
        """Store the label."""
        assert key == IN_ROTATION
        self.labels[name] = value
        self.places_version += 1

    def write_status(self, found: Manifest, status: Manifest) -> None:
        """Store it."""
        self._ask("write_status")
        self.statuses[f"{found['kind']}/{found['metadata']['name']}"] = status

    def condition(self, kind: str) -> tuple[str, str, str]:
        """Status, reason and message of one condition of the policy."""
        found = next(
            one for one in self.statuses[f"RoutePolicy/{POLICY}"]["conditions"] if one["type"] == kind
        )
        return found["status"], found["reason"], found["message"]

    def out(self) -> list[str]:
        """Pods with a label that takes them out of rotation."""
        return sorted(name for name, value in self.labels.items() if value == OUT)

    def weights(self) -> list[list[int]]:
        """Weights of each rule of the route in force."""
        rules = self._routes[POLICY]["spec"]["rules"]
        return [[one["weight"] for one in rule["backendRefs"]] for rule in rules]

    def _label(self, pod: str) -> str:
        return self.labels.get(pod, "true")

    def _ask(self, method: str) -> None:
        if method in self.failing:
            raise ClusterError(f"{method}: the API server does not answer")
        if method in self.refusing:
            raise ClusterError(f"{method}: the API server said 403 Forbidden", refused=True)


class HeldWorld(RecordedWorld):
    """A world of servers with constant answers."""

    cluster: HeldCluster

    def __init__(self, shape: PoolSize = SHAPE) -> None:
        super().__init__(cluster=HeldCluster(shape), texts=[answer(float(n)) for n in range(200)])

    def turns(self, operator: NamespaceOperator, count: int) -> None:
        """Run ``count`` ticks of one second."""
        for _ in range(count):
            self.advance()
            operator.turn()

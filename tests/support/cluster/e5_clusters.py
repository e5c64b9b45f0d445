"""A namespace in which E5 can run: pods that take faults, and operator and drill runner in threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from k8s.api.experiments import ApiExperiment
from k8s.process.drills import LEASE, turn
from k8s.process.election import Leadership
from tests.support.cluster.drilled_pods import DrillWorld, drill_spec
from tests.support.cluster.granted import E5, RUNNER, rights
from tests.support.waiting import PATIENCE_S

#: A numeric drift that breaks the sample's hard clauses, nats.
HARD = 0.02


@dataclass
class E5World:
    """``world`` with every part of a cluster running. seen: RoutePolicy specs, in order."""

    world: DrillWorld
    seen: list[dict[str, Any]] = field(default_factory=list)

    def policy(self) -> dict[str, Any]:
        """The RoutePolicy."""
        return dict(self.world.bench.read("RoutePolicy", "chat"))

    def drill_names(self) -> list[str]:
        """Names of the present FaultDrills."""
        found = self.world.bench.custom.list_namespaced_custom_object(
            "selvage.dev", "v1alpha1", self.world.bench.namespace, "faultdrills"
        )
        return [str(one["metadata"]["name"]) for one in found["items"]]

    def struck(self) -> bool:
        """Whether the first fp8 server has a fault in force."""
        return bool(self.world.in_force("chat-fp8-0"))


def drill_file(folder: Path, **changes: Any) -> Path:
    """A drill in which one fp8 server answers errors."""
    fault = {
        "name": "errors",
        "kind": "http_errors",
        "dose": 1.0,
        "onset_s": 4.0,
        "target": {"kernel": "fp8", "replica": 0},
    }
    spec = drill_spec() | {"faults": [fault], "description": "One server answers errors."} | changes
    body = {"apiVersion": "selvage.dev/v1alpha1", "kind": "FaultDrill", "metadata": {"name": "errors"}}
    path = folder / "errors.yaml"
    path.write_text(yaml.safe_dump({**body, "spec": spec}))
    return path


@contextmanager
def running_cluster(world: DrillWorld) -> Iterator[E5World]:
    """Operator and drill runner until the block ends; faults of the first fp8 server show in probes of its
    kernel.

    The operator's clock runs four times as fast as the drill's.
    """
    found, bench = E5World(world=world), world.bench
    window = {"detection": {"window_s": 15.0, "min_samples": 10}}
    bench.change("KernelContract", "chat-contract", window)
    operator, drills = bench.operator(), world.drills()
    leadership = Leadership(rights(bench.api, RUNNER), bench.namespace, "runner", timeout_s=20.0, lease=LEASE)

    def operate() -> None:
        bench.drift = {"fp8": HARD} if found.struck() else {}
        bench.now_s += 1.0
        operator.turn()
        spec = found.policy()["spec"]
        if not found.seen or found.seen[-1] != spec:
            found.seen.append(spec)

    with ExitStack() as stack:
        stack.callback(drills.leave)
        stack.enter_context(repeated(operate, 0.25))
        stack.enter_context(repeated(lambda: turn(drills, leadership), 0.5))
        _await_lease(ApiExperiment(rights(bench.api, E5), bench.namespace))
        yield found


def _await_lease(cluster: ApiExperiment) -> None:
    """Until the drill runner leads."""
    deadline_at_s = time.monotonic() + PATIENCE_S
    while cluster.lease_age_s(LEASE) is None:
        assert time.monotonic() < deadline_at_s, "the drill runner never led"
        time.sleep(0.2)


@contextmanager
def repeated(step: Callable[[], object], every_s: float) -> Iterator[None]:
    """``step`` repeatedly in a thread; its exception is raised at the end."""
    stop, failed = threading.Event(), []

    def loop() -> None:
        while not stop.wait(every_s):
            try:
                step()
            except Exception as error:  # raised by the test, at the end
                failed.append(error)
                return

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60.0)
        if failed:
            raise failed[0]

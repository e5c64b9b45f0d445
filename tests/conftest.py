"""Shared by tests: Hypothesis profiles, and the guard for parts that may be missing.

``@pytest.mark.needs("vllm")`` runs a test only where the part is present. A missing part is listed at
the end of the run with the reason and the command that provides it; when ``SELVAGE_REQUIRE`` (comma
separated) names it, its tests fail instead of being skipped.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest
from hypothesis import HealthCheck, settings

from tests.support.cluster.kube_assets import assets, full_cluster, gateway_crds, pool_crd

#: The time for drawing examples depends on the machine's load, and says nothing about the code.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=50,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "nightly",
    deadline=None,
    max_examples=1000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

#: Tests that need one of these have every core to themselves: servers measure time, and start processes.
ALONE = frozenset({"aiohttp", "envoy", "full_cluster", "gpu", "kube_api", "own_api", "ray", "vllm"})
#: Name of a report's property: a part that was missing.
MISSING = "missing part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part that a test may need: how to detect its absence, and the command that provides it."""

    reason: Callable[[], str]
    command: str


def module_missing(name: str) -> Callable[[], str]:
    """Reason when module ``name`` cannot be imported, empty when it can."""
    return lambda: "" if find_spec(name) else f"module {name} is not installed"


def program_missing(name: str) -> Callable[[], str]:
    """Reason when program ``name`` is not on the path, empty when it is."""
    return lambda: "" if which(name) else f"program {name} is not on the path"


def azure_trace() -> Path | None:
    """The public Azure LLM inference trace (code): ``SELVAGE_AZURE_TRACE``, else in a folder beside ours."""
    named = os.environ.get("SELVAGE_AZURE_TRACE")
    neighbours = Path(__file__).resolve().parent.parent.parent.glob("*/data/AzureLLMInferenceTrace_code.csv")
    candidates = [Path(named)] if named else sorted(neighbours)
    return next((path for path in candidates if path.is_file()), None)


def _rl_missing() -> str:
    """Reason why a library of the extra ``rl`` cannot be imported."""
    needed = ("gymnasium", "minari", "onnx", "optuna", "sb3_contrib", "stable_baselines3", "torch")
    return next((reason for name in needed if (reason := module_missing(name)())), "")


def _envoy_missing() -> str:
    """Reason when there is no Envoy to start."""
    from contracts.errors import MissingPartError
    from live.gateway.process import find_envoy

    try:
        find_envoy()
    except MissingPartError as error:
        return str(error)
    return ""


def _gpu_missing() -> str:
    return "" if list(Path("/dev").glob("nvidia[0-9]*")) else "no NVIDIA device is visible"


_CLUSTER_MISSING = "KUBECONFIG names no file, or GATEWAY_API_CRDS no definitions"


def _endpoints_missing() -> str:
    """Reason why endpoints of the tests cannot be addresses of this machine."""
    return "a full cluster takes no loopback address as an endpoint" if full_cluster() else ""


def _full_cluster_missing() -> str:
    """Reason why there is no full cluster for tests."""
    own = "the API server of the tests has no admission policies, network policies or garbage collection"
    return _kube_api_missing() if full_cluster() else own


def _kube_api_missing() -> str:
    """Reason why there is no API server for tests."""
    if reason := module_missing("kubernetes")() or module_missing("trustme")():
        return reason
    if full_cluster():
        named = os.environ.get("KUBECONFIG", "")
        return "" if Path(named).is_file() and gateway_crds() else _CLUSTER_MISSING
    return _own_api_missing()


def _own_api_missing() -> str:
    """Reason why no API server of a test's own can be started."""
    if reason := module_missing("kubernetes")() or module_missing("trustme")():
        return reason
    if assets() is None:
        return "neither KUBEBUILDER_ASSETS nor set-up's folder has etcd and kube-apiserver"
    if gateway_crds() is None:
        return "neither GATEWAY_API_CRDS nor set-up's folder has httproutes.yaml"
    return (
        ""
        if pool_crd() is not None
        else "no inferencepools.yaml lies with the definitions of the Gateway API"
    )


PARTS: dict[str, Part] = {
    "kube_api": Part(reason=_kube_api_missing, command="python -m scripts.setup.kube_assets"),
    "own_api": Part(reason=_own_api_missing, command="python -m scripts.setup.kube_assets"),
    "own_endpoints": Part(reason=_endpoints_missing, command="unset SELVAGE_CLUSTER"),
    "full_cluster": Part(
        reason=_full_cluster_missing, command="SELVAGE_CLUSTER=1 KUBECONFIG=/path/to/config make test"
    ),
    "torch": Part(reason=module_missing("torch"), command="make setup-test"),
    "transformers": Part(reason=module_missing("transformers"), command="make setup-test"),
    "vllm": Part(reason=module_missing("vllm"), command="make setup-test"),
    "rl": Part(reason=_rl_missing, command="make setup-test"),
    "gymnasium": Part(reason=module_missing("gymnasium"), command="make setup-test"),
    "stable_baselines3": Part(reason=module_missing("stable_baselines3"), command="make setup-test"),
    "ray": Part(reason=module_missing("ray"), command="pip install 'ray[default]'"),
    "river": Part(reason=module_missing("river"), command="make setup-test"),
    "envoy": Part(reason=_envoy_missing, command="make setup-test"),
    "aiohttp": Part(reason=module_missing("aiohttp"), command="make setup-test"),
    "gpu": Part(reason=_gpu_missing, command="run on a machine with an NVIDIA GPU"),
    "chromium": Part(reason=program_missing("chromium"), command="apt-get install chromium"),
    "kubectl": Part(reason=program_missing("kubectl"), command="https://kubernetes.io/docs/tasks/tools/"),
    "openssl": Part(reason=program_missing("openssl"), command="apt-get install openssl"),
    "azure_trace": Part(
        reason=lambda: "" if azure_trace() else "the Azure LLM trace is not on this machine",
        command="SELVAGE_AZURE_TRACE=/path/to/AzureLLMInferenceTrace_code.csv make test",
    ),
}


@cache
def reason_missing(part: str) -> str:
    """Why ``part`` is missing here; empty when it is present."""
    return PARTS[part].reason()


def required_parts() -> set[str]:
    """Parts that must be present in this run."""
    return {name for name in os.environ.get("SELVAGE_REQUIRE", "").split(",") if name}


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a ``SELVAGE_REQUIRE`` that names no known part."""
    unknown = sorted(required_parts() - set(PARTS))
    if unknown:
        raise pytest.UsageError(
            f"SELVAGE_REQUIRE: expected some of {', '.join(sorted(PARTS))}, got {unknown[0]!r}"
        )


def wanted_parts(item: pytest.Item) -> list[str]:
    """Parts that a test declares."""
    return [part for marker in item.iter_markers("needs") for part in marker.args]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that must not run in parallel: not tests that only wait, unless all share a cluster."""
    for item in items:
        waits = item.get_closest_marker("waits") is not None and not full_cluster()
        if ALONE.intersection(wanted_parts(item)) and not waits:
            item.add_marker("alone")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose part is missing, or fail it when the part is required."""
    for part in wanted_parts(item):
        reason = reason_missing(part)
        if not reason:
            continue
        item.user_properties.append((MISSING, part))  # kept in the report for the final summary
        text = f"{part}: {reason}; to provide it: {PARTS[part].command}"
        if part in required_parts():
            pytest.fail(f"required by SELVAGE_REQUIRE, {text}", pytrace=False)
        pytest.skip(text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List each missing part once, with its reason and its command."""
    stats = terminalreporter.stats
    ended = [one for key in ("skipped", "failed", "error") for one in stats.get(key, [])]
    tests = [one for one in ended if isinstance(one, pytest.TestReport)]  # no failed import
    reported = Counter(str(part) for one in tests for name, part in one.user_properties if name == MISSING)
    if not reported:
        return
    terminalreporter.section("missing parts")
    for part, count in sorted(reported.items()):
        noun = "test" if count == 1 else "tests"
        terminalreporter.write_line(
            f"{part}: {count} {noun} could not run: {reason_missing(part)}; "
            f"to provide it: {PARTS[part].command}"
        )


@pytest.fixture
def azure_trace_path() -> Path:
    """The trace file; use with ``@pytest.mark.needs("azure_trace")``."""
    path = azure_trace()
    assert path is not None
    return path

"""Continuous integration's own command: it requires every part that it can provide."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SAYS = '#!/bin/sh\necho "required: $SELVAGE_REQUIRE"\n'


def program(path: Path, text: str) -> None:
    """An executable at ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the command alone, and a ``make`` that prints the required parts."""
    program(tmp_path / "own" / ".ci" / "run", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    program(tmp_path / "bin" / "make", SAYS)
    for name in ("bash", "dirname", "ls", "mktemp", "rm", "sh"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "bin" / name).symlink_to(found)
    return tmp_path / "own"


def required(checkout: Path, **environment: str) -> set[str]:
    """The parts that the command requires there."""
    clean = {"PATH": str(checkout.parent / "bin"), **environment}
    done = subprocess.run(
        [str(checkout / ".ci" / "run")], env=clean, capture_output=True, text=True, check=True
    )
    (line,) = (one for one in done.stdout.splitlines() if one.startswith("required: "))
    return set(line.removeprefix("required: ").split(","))


def test_an_api_server_beside_the_checkout_is_required(checkout: Path) -> None:
    """With an API server beside the checkout, no test of the cluster world may be skipped."""
    beside = checkout.parent / "shared" / "kube-testapi"
    program(beside / "install", "#!/bin/sh\n")
    program(beside / "crds" / "v1" / "httproutes.yaml", "")
    assert required(checkout) == {"vllm", "envoy", "kube_api"}


def test_named_assets_and_kubectl_are_required(checkout: Path) -> None:
    """Named assets and a kubectl on the path are required; absent ones are not."""
    assert required(checkout) == {"vllm", "envoy"}
    assert required(checkout, KUBEBUILDER_ASSETS="/some/where") == {"vllm", "envoy", "kube_api"}
    program(checkout.parent / "bin" / "kubectl", "#!/bin/sh\n")
    assert required(checkout) == {"vllm", "envoy", "kubectl"}


def test_what_is_asked_for_is_required_alone(checkout: Path) -> None:
    """A list of required parts installs these and no others."""
    assert required(checkout, SELVAGE_REQUIRE="torch", KUBEBUILDER_ASSETS=os.sep) == {"torch"}

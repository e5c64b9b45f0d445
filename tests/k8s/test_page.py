"""Commands and YAML of docs/kubernetes.md, and the shipped folders, by kubectl on a real API server.

This API server lacks the kinds in ``UNKNOWN``: these objects are only built by kustomize. A full cluster
checks admission and network policies. Of built-in kinds, field names are validated, values are not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from tests.support.cluster.cluster_worlds import SAMPLE
from tests.support.cluster.kube_api import Server, kubeconfig
from tests.support.cluster.kube_assets import assets
from tests.support.cluster.kubectl import Done, Kubectl
from tests.support.cluster.made_cluster import definitions_installed
from tests.support.documents.drills import DRILL
from tests.support.paths import ROOT

pytestmark = [pytest.mark.needs("own_api", "kubectl"), pytest.mark.waits]

PAGE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
UNKNOWN = {
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("argoproj.io/v1alpha1", "AnalysisTemplate"),
    ("flagger.app/v1beta1", "MetricTemplate"),
    ("monitoring.coreos.com/v1", "PrometheusRule"),
    ("monitoring.coreos.com/v1", "PodMonitor"),
}
FOLDERS = [
    str(path.parent.relative_to(ROOT))
    for path in sorted((ROOT / "k8s").rglob("kustomization.yaml"))
    if "components" not in path.parts  # built by the kustomizations that use them: k8s/examples/drills
]
#: Fields of a spec that belong to the pool; others belong to the policy.
POOL_FIELDS = {"known_good_headroom_ratio", "prometheus"}
#: Commands that need a container, and so a kubelet, which this server lacks.
WITHOUT_A_SERVER = ("kubectl cp ", "kubectl exec ", "kubectl logs ")


def lines() -> list[str]:
    """Every kubectl command of the page with an argument, in blocks and in the text."""
    found = re.findall(r"^kubectl \w.*$|`(kubectl [^`]* [^`]*)`", PAGE, re.MULTILINE)
    plain = re.findall(r"^kubectl \w.*$", PAGE, re.MULTILINE)
    return list(dict.fromkeys([*plain, *(one for one in found if one and not one.endswith(" -k"))]))


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl on a new server with the definitions, the sample, and the promotion that commands name."""
    programs, folder = assets(), tmp_path_factory.mktemp("page")
    assert programs is not None
    for name in ("KEYFILE", "PASSWORDFILE", "TOKENFILE", "CAFILE"):
        (folder / name).write_text("made-up")
    with Server(programs) as server:
        with client.ApiClient(server.configuration) as api:
            definitions_installed(api)
        found = Kubectl(kubeconfig=kubeconfig(server.configuration, folder), folder=folder)
        for one in ("k8s/manifests", "k8s/examples/chat", "k8s/examples/promotion"):
            found.apply(one)
        subject = '{"status":{"subject":"3f9c"}}'
        told = ("kernelpromotion/fp8-next", "--namespace=chat", "--subresource=status", "--type=merge")
        assert found.run("patch", *told, "-p", subject).returncode == 0
        yield found


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_passes_a_dry_run_with_strict_validation(kubectl: Kubectl, folder: str) -> None:
    """The built objects of a shipped folder pass a server-side dry run; only known kinds may be missing."""
    assert kubectl.apply(folder, "--dry-run=server", "--namespace=chat") <= UNKNOWN


def test_a_dry_run_refuses_an_unknown_field(kubectl: Kubectl) -> None:
    """Strict validation is in force for our kinds and for built-in ones."""
    for kind, name in (("RoutePolicy", "policy"), ("Deployment", "fp8")):
        found = next(
            one for one in yaml.safe_load_all((SAMPLE / f"{name}.yaml").read_text()) if one["kind"] == kind
        )
        found["spec"]["nobody_knows"] = 1
        flags = (
            "apply",
            "--server-side",
            "--dry-run=server",
            "--validate=strict",
            "--namespace=chat",
            "-f",
            "-",
        )
        done = kubectl.run(*flags, stdin=json.dumps(found))
        assert done.returncode != 0, kind
        assert "nobody_knows" in done.stderr


def test_every_command_of_the_page_is_run(kubectl: Kubectl) -> None:
    """Each kubectl command of the page succeeds on a server, some as a dry run."""
    found = lines()
    assert len(found) >= 18
    for line in found:
        if not line.startswith(WITHOUT_A_SERVER):
            _carry_out(kubectl, line)


def _carry_out(kubectl: Kubectl, line: str) -> None:
    if folder := re.fullmatch(r"kubectl apply --server-side -k (\S+)", line):
        assert kubectl.apply(folder[1]) <= UNKNOWN
        return
    if folder := re.fullmatch(r"kubectl delete -k (\S+)", line):
        assert kubectl.would_delete(folder[1]) <= UNKNOWN
        return
    done = kubectl.line(_adapted(line))
    waits = line.startswith(("kubectl wait ", "kubectl rollout "))
    assert done.returncode == 0 or (waits and _only_waited(done)), f"{line}\n{done.stderr}"


def _adapted(line: str) -> str:
    """The command with a short timeout, and as a dry run if it was already carried out."""
    if line.startswith(("kubectl create ", "kubectl label ")):
        return f"{line} --dry-run=server"
    if line.startswith(("kubectl wait ", "kubectl rollout ")):
        return f"{re.sub(r' --timeout=[^ ]+', '', line)} --timeout=1s"
    if line.startswith("kubectl patch faultdrill NAME"):
        return line.replace("NAME", "late-answers --namespace chat")
    assert line.startswith(("kubectl annotate ", "kubectl get ")), f"nobody runs this line: {line}"
    return line


def _only_waited(done: Done) -> bool:
    """The object waited for exists and does not change: no operator runs here."""
    return "timed out" in done.stderr and "NotFound" not in done.stderr


def test_every_block_fits_its_resource(kubectl: Kubectl) -> None:
    """Every YAML block of the page is accepted by the server within its resource."""
    blocks = [yaml.safe_load(text) for kind, text in BLOCKS if kind == "yaml"]
    assert blocks
    for block in blocks:
        name, patch = _placed(block)
        flags = (
            "apply",
            "--server-side",
            "--force-conflicts",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            "-",
        )
        done = kubectl.run(*flags, "--namespace=chat", stdin=json.dumps(patch))
        assert done.returncode == 0, f"{name}: {done.stderr}"


def _placed(block: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name of the sample's resource with ``block`` merged into it, and that resource."""
    if set(block) == {"spec"} and "announced_fingerprint" in block["spec"]:
        path = SAMPLE.parent / "promotion" / "promotion.yaml"
        found = dict(yaml.safe_load(path.read_text(encoding="utf-8")))
        found["spec"] |= block["spec"]
        return "promotion", found
    if set(block) == {"spec"}:
        kind = "pool" if POOL_FIELDS & block["spec"].keys() else "policy"
        found = dict(yaml.safe_load((SAMPLE / f"{kind}.yaml").read_text(encoding="utf-8")))
        found["spec"] |= block["spec"]
        return kind, found
    assert set(block) == {"backend"}, f"nobody knows where this belongs: {block}"
    found = dict(yaml.safe_load((SAMPLE / "pool.yaml").read_text(encoding="utf-8")))
    found["spec"]["kernels"][0] |= block
    return "pool", found


def _of_other_pages() -> list[tuple[str, dict[str, Any]]]:
    """Page and object of each YAML block of other pages that can be applied to a cluster."""
    found: list[tuple[str, dict[str, Any]]] = []
    for name in ("drills", "faults", "live"):
        text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        for block in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            loaded = yaml.safe_load(block)
            if not (
                isinstance(loaded, dict) and "kernels" in loaded
            ):  # servers at addresses, without backends
                found.append((name, _whole(loaded)))
    return found


def _whole(block: Any) -> dict[str, Any]:
    """The resource that ``block`` is, or of which it is a part."""
    if isinstance(block, list):
        (found,) = yaml.safe_load_all((SAMPLE / "contract.yaml").read_text(encoding="utf-8"))
        return {**found, "spec": {**found["spec"], "clauses": [*found["spec"]["clauses"], *block]}}
    if "apiVersion" in block:
        return dict(block)
    part = {"faults": [block]} if "onset_s" in block else block
    return {**DRILL, "spec": {**DRILL["spec"], **part}}


def test_blocks_of_other_pages_are_accepted_too(kubectl: Kubectl) -> None:
    """YAML blocks of the pages on drills, faults and live fleets are accepted by the server as well."""
    blocks = _of_other_pages()
    assert {page for page, _ in blocks} == {"drills", "faults", "live"}
    for page, found in blocks:
        flags = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
        done = kubectl.run(*flags, "--namespace=chat", "-f", "-", stdin=json.dumps(found))
        assert done.returncode == 0, f"{page}: {done.stderr}"


def test_the_page_names_files_that_are_there() -> None:
    """Every folder that a command applies has a kustomization."""
    named = [one for line in lines() for one in re.findall(r"-k (\S+)", line)]
    assert named
    for one in named:
        assert Path(ROOT / one / "kustomization.yaml").is_file(), one

"""docs/kubernetes.md and the shipped folders, by kubectl on an API server of their own: applied or dry-run.

The API server of the tests lacks what ``UNKNOWN`` names: these objects are built by kustomize and not judged;
a full cluster judges admission policies and network policies. It validates built-in kinds by their fields
alone, not by their values.
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

pytestmark = [pytest.mark.needs("own_api", "kubectl"), pytest.mark.timeout(300), pytest.mark.waits]

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
    if "components" not in path.parts  # built by who names them: k8s/examples/drills
]
#: Blocks of a spec that are the pool's; others are the policy's.
POOL_FIELDS = {"known_good_headroom_ratio", "prometheus"}
#: Nothing of a server is asked: these ask a container, and no kubelet is there.
WITHOUT_A_SERVER = ("kubectl cp ", "kubectl exec ", "kubectl logs ")


def lines() -> list[str]:
    """Every line of the page that calls kubectl with an argument, in blocks and in the text, in its order."""
    found = re.findall(r"^kubectl \w.*$|`(kubectl [^`]* [^`]*)`", PAGE, re.MULTILINE)
    plain = re.findall(r"^kubectl \w.*$", PAGE, re.MULTILINE)
    return list(dict.fromkeys([*plain, *(one for one in found if one and not one.endswith(" -k"))]))


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """On a fresh server that has the definitions, the sample, and the promotion that lines speak of."""
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
    """What is built of a shipped folder passes a server-side dry run; what a server lacks is named."""
    assert kubectl.apply(folder, "--dry-run=server", "--namespace=chat") <= UNKNOWN


def test_a_dry_run_refuses_a_field_that_nobody_knows(kubectl: Kubectl) -> None:
    """Strict validation is in force, for kinds of ours and for those of Kubernetes."""
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


def test_every_line_of_the_page_is_carried_out(kubectl: Kubectl) -> None:
    """Each kubectl line of the page does what it says on a server, or a dry run of it; none is left over."""
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
    """Without long waiting, without lasting effects where those were there already."""
    if line.startswith(("kubectl create ", "kubectl label ")):
        return f"{line} --dry-run=server"
    if line.startswith(("kubectl wait ", "kubectl rollout ")):
        return f"{re.sub(r' --timeout=[^ ]+', '', line)} --timeout=1s"
    if line.startswith("kubectl patch faultdrill NAME"):
        return line.replace("NAME", "late-answers --namespace chat")
    assert line.startswith(("kubectl annotate ", "kubectl get ")), f"nobody runs this line: {line}"
    return line


def _only_waited(done: Done) -> bool:
    """Nobody acts here: what is waited for is there, and does not come."""
    return "timed out" in done.stderr and "NotFound" not in done.stderr


def test_every_block_fits_its_resource(kubectl: Kubectl) -> None:
    """Every YAML block of the page is taken by the server in the resource that it is a part of."""
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
    """The object of the sample with ``block`` in its place."""
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
    """Page and object of each YAML block of the other pages that a cluster may be given."""
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
    """The object that ``block`` is, or is a part of."""
    if isinstance(block, list):
        (found,) = yaml.safe_load_all((SAMPLE / "contract.yaml").read_text(encoding="utf-8"))
        return {**found, "spec": {**found["spec"], "clauses": [*found["spec"]["clauses"], *block]}}
    if "apiVersion" in block:
        return dict(block)
    part = {"faults": [block]} if "onset_s" in block else block
    return {**DRILL, "spec": {**DRILL["spec"], **part}}


def test_blocks_of_other_pages_are_taken_too(kubectl: Kubectl) -> None:
    """What the pages on drills, faults and live fleets write is taken by the server as well."""
    blocks = _of_other_pages()
    assert {page for page, _ in blocks} == {"drills", "faults", "live"}
    for page, found in blocks:
        flags = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
        done = kubectl.run(*flags, "--namespace=chat", "-f", "-", stdin=json.dumps(found))
        assert done.returncode == 0, f"{page}: {done.stderr}"


def test_the_page_names_files_that_are_there() -> None:
    """Every folder that a line applies is shipped."""
    named = [one for line in lines() for one in re.findall(r"-k (\S+)", line)]
    assert named
    for one in named:
        assert Path(ROOT / one / "kustomization.yaml").is_file(), one

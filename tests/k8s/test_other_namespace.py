"""The manifests in another namespace: kustomize rewrites fields, but not texts inside a field."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.k8s.test_manifests import MANIFESTS

Object = dict[str, Any]

ELSEWHERE = "elsewhere"
#: Admission policy -> account to which it applies.
ACCOUNTS = {"selvage-quarantine-label": "selvage-operator", "selvage-drill-pods": "selvage-drills"}


def built(folder: Path, resources: list[str], components: list[str]) -> list[Object]:
    """Parts of the manifests as built by ``kubectl kustomize`` for the namespace ELSEWHERE."""
    places = {part: os.path.relpath(MANIFESTS / part, folder) for part in (*resources, *components)}
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": ELSEWHERE,
        "resources": [places[part] for part in resources],
        "components": [places[part] for part in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def user_matched(policy: Object, namespace: str) -> str:
    """User name that the single match condition of ``policy`` accepts for a request in ``namespace``.

    Evaluates only what the policies use: equality of the user's name with concatenated texts.
    """
    (condition,) = policy["spec"]["matchConditions"]
    subject, _, terms = condition["expression"].partition(" == ")
    assert subject == "request.userInfo.username"
    known = {"request.namespace": namespace}
    return "".join(
        known[term] if term in known else term.removeprefix("'").removesuffix("'")
        for term in terms.split(" + ")
    )


@pytest.mark.needs("kubectl")
def test_admission_policies_match_the_accounts_of_any_namespace(tmp_path: Path) -> None:
    """Built for another namespace, each admission policy matches the account of that namespace."""
    found = built(tmp_path, ["operator", "admission"], ["components/drills"])
    policies = [one for one in found if one["kind"] == "ValidatingAdmissionPolicy"]
    accounts = {
        (one["metadata"]["namespace"], one["metadata"]["name"])
        for one in found
        if one["kind"] == "ServiceAccount"
    }
    assert {one["metadata"]["name"] for one in policies} == set(ACCOUNTS)
    for policy in policies:
        account = ACCOUNTS[policy["metadata"]["name"]]
        assert (ELSEWHERE, account) in accounts
        for namespace in (ELSEWHERE, "chat"):
            assert user_matched(policy, namespace) == f"system:serviceaccount:{namespace}:{account}"


@pytest.mark.needs("kubectl")
def test_no_expression_names_a_namespace(tmp_path: Path) -> None:
    """Built for another namespace, no admission policy, Role or RoleBinding names the sample's namespace."""
    found = built(tmp_path, ["operator", "admission"], ["components/drills"])
    kinds = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "Role", "RoleBinding"}
    judged = [one for one in found if one["kind"] in kinds]
    assert {one["kind"] for one in judged} == kinds
    for one in judged:
        assert "chat:" not in str(one)
        assert one["metadata"].get("namespace", ELSEWHERE) == ELSEWHERE
        for subject in one.get("subjects", []):
            assert subject.get("namespace", ELSEWHERE) == ELSEWHERE

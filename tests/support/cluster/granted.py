"""Rights of an account by its shipped Role: a client that is refused everything else, and records calls.

The API server of the tests grants everything to every account, so the rights are checked here: a call that
the Role does not grant ends in 403 before it is sent, as in a cluster, and fails its test afterwards.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml
from kubernetes import client

from tests.support.paths import ROOT

#: Environment variable with the file for the running test's calls.
NOTES = "SELVAGE_TEST_CALLS"
#: Verb, group and resource, as RBAC names them.
Call = tuple[str, str, str]

#: Account -> file with its Role.
ROLES = {
    "selvage-operator": ROOT / "k8s" / "manifests" / "operator" / "role.yaml",
    "selvage-drills": ROOT / "k8s" / "manifests" / "components" / "drills" / "role.yaml",
    "selvage-e5": ROOT / "k8s" / "examples" / "e5" / "role.yaml",
}
OPERATOR, RUNNER, E5 = ROLES
_VERBS = {"GET": "get", "PUT": "update", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
#: Rights of every account to read: system:discovery of every cluster.
_DISCOVERY = ("api", "apis", "version", "healthz", "livez", "readyz", "openapi", "")


def granted(account: str) -> frozenset[Call]:
    """Every call that the Role of ``account`` grants."""
    with ROLES[account].open(encoding="utf-8") as stream:
        (role,) = (one for one in yaml.safe_load_all(stream) if one["kind"] == "Role")
    return frozenset(
        (verb, group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def call_of(method: str, url: str, query: Sequence[tuple[str, Any]] = ()) -> Call | None:
    """The call of a request; None for discovery, which needs no Role."""
    parts = urlsplit(url)
    path = parts.path.strip("/").split("/")
    head = 2 if path[0] == "api" else 3
    if path[0] not in ("api", "apis") or len(path) <= head:
        return None if path[0] in _DISCOVERY else (_VERBS[method], "", parts.path)
    group, rest = "" if head == 2 else path[1], path[head:]
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    asked = {**dict(parse_qsl(parts.query)), **{name: str(value) for name, value in query}}
    verb = _VERBS[method]
    if verb == "get" and asked.get("watch", "").lower() in ("true", "1"):
        verb = "watch"
    elif verb == "get" and len(rest) == 1:
        verb = "list"
    return verb, group, rest[0] if len(rest) < 3 else f"{rest[0]}/{rest[2]}"


class Account:
    """A client with the rights of one account. calls: its calls."""

    def __init__(self, configuration: client.Configuration, account: str = OPERATOR) -> None:
        self.api = client.ApiClient(configuration)
        self.calls: set[Call] = set()
        allowed, inner = granted(account), self.api.rest_client.request

        def request(method: str, url: str, **arguments: Any) -> Any:
            call = call_of(method, url, arguments.get("query_params") or ())
            if call is not None:
                self.calls.add(call)
                note(account, call, allowed)
            return inner(method, url, **arguments)

        self.api.rest_client.request = request


def rights(api: client.ApiClient, account: str = OPERATOR) -> client.ApiClient:
    """A client of the same server that may do what the Role of ``account`` grants."""
    return Account(api.configuration, account).api


def note(account: str, call: Call, allowed: frozenset[Call]) -> None:
    """Record a call for the running test; ApiException 403 if ``account`` lacks the right."""
    if path := os.environ.get(NOTES):
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps([account, call, call in allowed]) + "\n")
    if call not in allowed:
        raise client.ApiException(status=403, reason=f"{account} may not {' '.join(call)}")


def noted(path: Path) -> list[tuple[str, Call, bool]]:
    """Account, call and whether it was granted, of every recorded call."""
    if not path.is_file():
        return []
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [(account, tuple(call), granted_) for account, call, granted_ in rows]


def account_process(account: str) -> list[str]:
    """The command ``selvage`` in a process with the rights of ``account``, run in the repository's root."""
    return [sys.executable, "-m", "tests.support.cluster.granted_process", account]

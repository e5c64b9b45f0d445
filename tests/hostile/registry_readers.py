"""Readers of registries and their configuration: manifests, tokens, challenges, credentials."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import httpx

from contracts.loading.oci import parse_manifest, parse_oci
from live.artefacts.access import Credential, RegistryOrigins, read_credentials
from live.artefacts.registry import Repository, challenge_of
from tests.hostile import mutations
from tests.hostile.readers import Reader, refused_if, written
from tests.support.servers.oci_registry import manifest_of

URI = parse_oci("oci://registry.example/team/kernels@sha256:" + "0" * 64, "test")
CONFIG = json.dumps(
    {
        "auths": {
            "registry.example": {"auth": "bWU6c2VjcmV0"},
            "https://index.docker.io/v1/": {"identitytoken": "refresh"},
        }
    }
)
CHALLENGE = (
    'Bearer realm="https://registry.example/token",service="registry.example",scope="repository:a:pull"'
)


def token(path: Path) -> None:
    """Take the token out of an answer."""
    nobody = cast(httpx.AsyncClient, None)
    registry = RegistryOrigins(origin="https://registry.example:443")
    Repository(nobody, registry, Credential(), URI)._token_in(path.read_bytes())


def challenge(path: Path) -> None:
    """Read the challenge of a 401; an unreadable one is none."""
    found = challenge_of([path.read_text(encoding="latin-1")])
    refused_if(found is None or not found.realm.startswith("https://"))


REGISTRY: dict[str, Reader] = {
    "manifest of an artefact": Reader(
        read=lambda path: parse_manifest(path.read_bytes(), "an artefact"),
        originals=written("manifest.json", manifest_of({"a.yaml": b"a", "b/c.npz": b"b"})),
        kinds=mutations.JSON,
    ),
    "token of a registry": Reader(
        read=token,
        originals=written("token.json", json.dumps({"token": "a-token", "expires_in": 300})),
        kinds=mutations.JSON,
    ),
    "challenge of a registry": Reader(
        read=challenge,
        originals=written("challenge.txt", CHALLENGE),
        kinds=(*mutations.BYTES, mutations.lines),
        refused_share=0.05,
    ),
    "credentials of registries": Reader(
        read=read_credentials,
        originals=written("config.json", CONFIG),
        kinds=mutations.JSON,
    ),
}

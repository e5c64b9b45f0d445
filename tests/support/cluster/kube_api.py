"""A real Kubernetes API server for tests: ``etcd`` and ``kube-apiserver`` of ``KUBEBUILDER_ASSETS``.

Started as envtest does: own certificates, loopback alone, a token for the tests, data in a folder
that is removed at the end. No controller manager runs: tests write the status of pods and deployments.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import trustme
from kubernetes import client

from tests.support.guarded import Guard, guarded
from tests.support.waiting import PATIENCE_S

TOKEN = "tests-only"


class Server:
    """An API server that can be stopped and started again on its data; use as a context."""

    def __init__(self, programs: Path) -> None:
        self._programs, self._stack = programs, ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        """Start both programs; the folder of their data is removed after the block."""
        try:
            self._begin()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End both."""
        try:
            self.stop()
        finally:
            self._stack.close()

    def _begin(self) -> None:
        self.folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="selvage-api-")))
        peers, clients, self._port = (free_port() for _ in range(3))
        self.etcd_url, own = f"http://127.0.0.1:{clients}", f"http://127.0.0.1:{peers}"
        etcd = [
            str(self._programs / "etcd"),
            *("--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync", "--log-level", "error"),
            *("--listen-client-urls", self.etcd_url, "--advertise-client-urls", self.etcd_url),
            *("--listen-peer-urls", own, "--initial-advertise-peer-urls", own),
            *("--initial-cluster", f"default={own}"),
        ]
        self._stack.enter_context(guarded(etcd, self.folder / "etcd.log", os.environ, ask_first_s=20.0))
        self._guard = self._stack.enter_context(Guard())
        self._authority = _certificates(self.folder)
        self.configuration = _configuration(self._port, self._authority)
        self.start()

    def start(self) -> None:
        """Start answering, with the data written before."""
        flags = _server_flags(self.folder, self.etcd_url, self._port)
        log = self.folder / "api.log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [str(self._programs / "kube-apiserver"), *flags],
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._guard.watch(self._process.pid)
        _await_ready(f"https://127.0.0.1:{self._port}", self._authority, log)

    def stop(self, killed: bool = False) -> None:
        """Stop answering; ``killed``: without closing connections properly."""
        if self._process is not None:
            self._process.kill() if killed else self._process.terminate()
            self._process.wait(70.0)
            self._guard.forget(self._process.pid)
            self._process = None


@contextmanager
def api_server(programs: Path) -> Iterator[client.Configuration]:
    """Connection to a fresh API server, which is removed after the block."""
    with Server(programs) as server:
        yield server.configuration


def _server_flags(folder: Path, etcd_url: str, port: int) -> list[str]:
    account = str(folder / "account.key")
    return [
        f"--etcd-servers={etcd_url}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        f"--client-ca-file={folder / 'ca.crt'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=AlwaysAllow",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={account}",
        f"--service-account-signing-key-file={account}",
        "--disable-admission-plugins=ServiceAccount",
    ]


def _certificates(folder: Path) -> Path:
    """Write the server's certificates; returns that of the authority."""
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1", "localhost")
    own.private_key_pem.write_to_path(str(folder / "server.key"))
    own.cert_chain_pems[0].write_to_path(str(folder / "server.crt"))
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    accounts = trustme.CA(key_type=trustme.KeyType.RSA).issue_cert("accounts", key_type=trustme.KeyType.RSA)
    accounts.private_key_pem.write_to_path(str(folder / "account.key"))
    (folder / "tokens.csv").write_text(f"{TOKEN},tests,tests,system:masters\n")
    return folder / "ca.crt"


def _await_ready(url: str, authority: Path, log: Path) -> None:
    until_at_s = time.monotonic() + PATIENCE_S
    context = ssl.create_default_context(cafile=str(authority))
    with httpx.Client(verify=context, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        while time.monotonic() < until_at_s:
            try:
                if http.get(f"{url}/readyz").status_code == httpx.codes.OK:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
    raise RuntimeError(f"the API server was not ready after {PATIENCE_S:g} s:\n{log.read_text()[-2000:]}")


def _configuration(port: int, authority: Path) -> client.Configuration:
    found = client.Configuration(host=f"https://127.0.0.1:{port}")
    found.ssl_ca_cert = str(authority)
    found.api_key = {"authorization": f"Bearer {TOKEN}"}
    return found


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def install_definitions(api: client.ApiClient, definitions: list[dict[str, Any]]) -> None:
    """Create ``definitions`` and wait until the server serves each."""
    extensions = client.ApiextensionsV1Api(api)
    for one in definitions:
        extensions.create_custom_resource_definition(one)
    until_at_s = time.monotonic() + PATIENCE_S
    for one in definitions:
        while not _established(extensions, one["metadata"]["name"]):
            if time.monotonic() > until_at_s:
                raise RuntimeError(f"{one['metadata']['name']} is not served after {PATIENCE_S:g} s")
            time.sleep(0.05)


def _established(extensions: client.ApiextensionsV1Api, name: str) -> bool:
    found = extensions.read_custom_resource_definition(name)
    conditions = found.status.conditions or [] if found.status else []
    return any(one.type == "Established" and one.status == "True" for one in conditions)


def kubeconfig(configuration: client.Configuration, folder: Path) -> Path:
    """Connection settings for another process."""
    path = folder / "kubeconfig"
    if configuration.api_key.get("authorization") != f"Bearer {TOKEN}":  # not our server
        return Path(os.environ["KUBECONFIG"])
    token = configuration.api_key["authorization"].removeprefix("Bearer ")
    cluster = {"server": configuration.host, "certificate-authority": configuration.ssl_ca_cert}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "tests",
                "clusters": [{"name": "tests", "cluster": cluster}],
                "users": [{"name": "tests", "user": {"token": token}}],
                "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
            }
        )
    )
    return path

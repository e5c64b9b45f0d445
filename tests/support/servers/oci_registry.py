"""A small registry on loopback, with its token service, and the answers of a hostile one."""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import trustme

from contracts.loading.oci import MANIFEST_TYPE, TITLE
from tests.support.servers.listening import Listening, listening

TOKEN = "a-token-of-this-repository"


def sha256(content: bytes) -> str:
    """Hex."""
    return hashlib.sha256(content).hexdigest()


def manifest_of(files: dict[str, bytes]) -> bytes:
    """A manifest of ``files`` as ``oras push`` writes it."""
    layers = [
        {
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": f"sha256:{sha256(content)}",
            "size": len(content),
            "annotations": {TITLE: name},
        }
        for name, content in files.items()
    ]
    found = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "layers": layers}
    return json.dumps(found).encode()


@dataclass
class OciRegistry:
    """Its content by digest, its answers, and the requests. challenge: of a 401, "" for no 401."""

    url: str = ""
    held: dict[str, bytes] = field(default_factory=dict)
    challenge: str = ""
    wants: str = f"Bearer {TOKEN}"
    """Value of the Authorization header that it accepts."""
    redirects: dict[str, str] = field(default_factory=dict)
    """Last part of a path -> redirect target."""
    status: int = 200
    stall: bool = False
    """Begin an answer and never end it."""
    lengths: dict[str, int] = field(default_factory=dict)
    """Last part of a path -> a false Content-Length."""
    token_body: bytes = json.dumps({"token": TOKEN}).encode()
    came: list[tuple[str, str]] = field(default_factory=list)
    """Path with query, and Authorization, of each request."""
    posted: list[dict[str, list[str]]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def host(self) -> str:
        """HOST:PORT."""
        return urlsplit(self.url).netloc

    def push(self, files: dict[str, bytes], repository: str = "team/kernels") -> str:
        """Store ``files``; returns the URI of the artefact."""
        self.held |= {sha256(content): content for content in files.values()}
        manifest = manifest_of(files)
        self.held[sha256(manifest)] = manifest
        return f"oci://{self.host}/{repository}@sha256:{sha256(manifest)}"

    def folder(self, folder: Path, *names: str) -> str:
        """Store these files of ``folder``."""
        return self.push({name: (folder / name).read_bytes() for name in names})


@contextmanager
def oci_registry(certificate: trustme.LeafCert | None = None) -> Iterator[OciRegistry]:
    """A registry on a port of its own, over TLS with ``certificate``."""
    secure = None
    if certificate is not None:
        secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(secure)
    with listening(OciRegistry(), _Handler, secure) as known:
        yield known


class _Handler(BaseHTTPRequestHandler):
    server: Listening[OciRegistry]

    def do_GET(self) -> None:
        """Answer as a registry does, or as the test sets."""
        known, given = self.server.known, self.headers.get("Authorization", "")
        known.came.append((self.path, given))
        path = urlsplit(self.path).path
        last = path.rpartition("/")[2]
        if path == "/token":
            self._answer(200, known.token_body)
        elif path.startswith("/v2/") and known.challenge and given != known.wants:
            self._answer(401, b"", {"WWW-Authenticate": known.challenge})
        elif last in known.redirects:
            self._answer(307, b"", {"Location": known.redirects[last]})
        elif known.status != 200:
            self._answer(known.status, b"no")
        else:
            content = known.held.get(last.removeprefix("sha256:"))
            self._answer(404 if content is None else 200, content or b"", length=known.lengths.get(last))

    def do_POST(self) -> None:
        """The token service, called with a refresh token."""
        known = self.server.known
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        known.posted.append(parse_qs(body))
        self._answer(200, known.token_body)

    def _answer(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, length: int | None = None
    ) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Set-Cookie", "seen=1; Path=/")
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.server.known.stall:
            self.wfile.write(body[:1])
            self.wfile.flush()
            self.server.known.ended.wait()
            return
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

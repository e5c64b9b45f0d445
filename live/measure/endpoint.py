"""Access to a running server: URL, model, key, certificates, proxies, and errors that state a remedy.

The key is sent in the ``Authorization`` header only; it appears in no message, log or document. A key that is
read from a file may change at any time, as with a mounted Kubernetes Secret. Proxies and certificates are
taken from the environment (``HTTPS_PROXY``, ``NO_PROXY``, ``SSL_CERT_FILE``) as httpx does.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from contracts.errors import DocumentError, MeasurementError, refusal
from contracts.regular_files import read_regular_text
from live.bounded_http import whole_answer
from live.origins import DIRECT

_CONNECT_S = 10.0
#: Size limit of an answer; the largest answers are whole rows of a vocabulary.
_MOST_BYTES = 512 * 2**20
#: HTTP status of a caller without the right to ask.
REFUSED = (401, 403)
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


#: Size limit of a key file.
_KEY_BYTES = 16 * 1024


class FileKey(httpx.Auth):
    """Sends the present key in ``file``; while the file cannot be read, the previous key is used.

    ``key``: the initial key, "" for none.
    """

    def __init__(self, file: Path, key: str) -> None:
        self._file, self._key = file, key
        self._read_of: tuple[int, int, int] | None = None
        """Inode, size and modification time of the file version that was read."""

    @property
    def key(self) -> str:
        """The present key."""
        with suppress(OSError, ValueError, DocumentError):
            status = self._file.stat()
            now = status.st_ino, status.st_size, status.st_mtime_ns
            if now != self._read_of:
                found = read_regular_text(self._file, _KEY_BYTES).strip()
                self._key = found if _fits_a_header(found) else self._key
                self._read_of = now
        return self._key

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the key to ``request``."""
        if key := self.key:
            request.headers["Authorization"] = f"Bearer {key}"
        yield request


def _fits_a_header(key: str) -> bool:
    return bool(key) and all("!" <= sign <= "~" for sign in key)


def listed_models(answer: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Name -> entry of the models in an answer of ``/v1/models``, in its order."""
    listed = answer.get("data")
    listed = listed if isinstance(listed, list) else []
    return {str(one["id"]): one for one in listed if isinstance(one, dict) and one.get("id")}


#: Meaning of log-probabilities in references; servers do not state it, and this is vLLM's default.
LOGPROBS_MODE = "raw_logprobs"


def stated_model(answer: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The facts that answers of the model ``name`` depend on, from an answer of ``/v1/models``; used as one
    key.

    They are name, source, context and adapter as the server states them. If the source is a folder of this
    machine, its files are included, because weights and tokenizer may be replaced under the same name.
    """
    entry = listed_models(answer).get(name, {})
    root = str(entry.get("root") or "")
    told = [
        f"{field} {entry.get(field)}" for field in ("root", "max_model_len", "parent") if entry.get(field)
    ]
    return name, *told, *_folder_identity(Path(root)), f"logprobs_mode {LOGPROBS_MODE}"


def _folder_identity(folder: Path) -> tuple[str, ...]:
    """Hash of names, sizes and modification times of a folder's files; empty if it is no local folder."""
    if not folder.is_absolute() or not folder.is_dir():
        return ()
    rows = []
    for path in sorted(folder.iterdir()):
        with suppress(OSError):
            status = path.stat()
            rows.append(f"{path.name} {status.st_size} {status.st_mtime_ns}")
    return (f"files {hashlib.sha256(chr(10).join(rows).encode()).hexdigest()[:32]}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What the operator declares about a server; "" for what is not declared."""

    name: str = ""
    dtype: str = ""
    quantization: str = ""
    kv_cache_dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One server. url: with or without ``/v1``; model: name that the server uses, "" for its first model.

    key_file: file that ``api_key`` was read from; it is read again when it changes.
    """

    url: str
    model: str = ""
    api_key: str = field(default="", repr=False)
    ca_file: Path | None = None
    timeout_s: float = 120.0
    transport: httpx.BaseTransport | None = None
    key_file: Path | None = None

    def __post_init__(self) -> None:
        parts = httpx.URL(self.url) if _readable(self.url) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.host:
            raise refusal(self.url, "http://HOST:PORT or https://HOST", "no such URL", "correct the URL")
        if parts.userinfo:
            hidden = str(parts.copy_with(username=None, password=None))
            step = "give the key by --api-key-env or --api-key-file"
            raise refusal(hidden, "a URL without user and password", "both", step)

    @property
    def base(self) -> str:
        """The URL without a trailing ``/v1``."""
        return self.url.rstrip("/").removesuffix("/v1")

    def client(self) -> httpx.Client:
        """A client with the key, the certificates and the environment's proxies, which servers of this
        machine bypass.

        Raises DocumentError for invalid proxies or certificates.
        """
        auth = None if self.key_file is None else FileKey(self.key_file, self.api_key)
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key and auth is None else {}
        timeout, certificates = httpx.Timeout(self.timeout_s, connect=_CONNECT_S), _certificates(self.ca_file)
        try:
            return httpx.Client(
                base_url=self.base,
                timeout=timeout,
                transport=self.transport,
                headers=headers,
                auth=auth,
                verify=certificates,
                mounts=DIRECT,
            )
        except (ImportError, ValueError) as error:  # httpx reads the proxies here
            told = str(error).partition(". ")[0]
            place = f"the proxy variables ({', '.join(_PROXIES)})"
            step = "correct them, or add this server to NO_PROXY"
            raise refusal(place, "http://HOST:PORT", told, step) from None

    def answer(self, client: httpx.Client, method: str, path: str, body: object = None) -> dict[str, Any]:
        """The JSON object that the server answers.

        Raises DocumentError if the server cannot be reached or refuses the key, and MeasurementError
        for every other unusable answer.
        """
        response = self.content(client, method, path, body)
        what = f"{method} {self.base}{path}"
        try:
            answer = response.json()
        except (ValueError, RecursionError):
            raise MeasurementError(f"{what}: the answer is no JSON: {self._shown(response)!r}") from None
        if not isinstance(answer, dict):
            raise MeasurementError(f"{what}: the answer is no JSON object")
        return answer

    def model_identity(self, client: httpx.Client) -> tuple[str, ...]:
        """``stated_model`` of this server's model, or of the first that it lists if none is named. Raises as
        ``answer`` does.
        """
        listed = self.answer(client, "GET", "/v1/models")
        return stated_model(listed, self.model or next(iter(listed_models(listed)), ""))

    def content(self, client: httpx.Client, method: str, path: str, body: object = None) -> httpx.Response:
        """The server's raw answer; raises as ``answer`` does if there is none."""
        try:
            response = whole_answer(client, method, path, self.timeout_s, _MOST_BYTES, json=body)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            raise self._unreachable(error) from None
        except httpx.TimeoutException:
            message = f"no whole answer within {self.timeout_s:g} s; look at the server's log and its load"
            raise MeasurementError(f"{method} {self.base}{path}: {message}") from None
        except httpx.HTTPError as error:
            raise MeasurementError(f"{method} {self.base}{path}: {type(error).__name__}: {error}") from None
        self._refuse_unusable(response, f"{method} {self.base}{path}")
        return response

    def _refuse_unusable(self, response: httpx.Response, what: str) -> None:
        if response.status_code in REFUSED:
            given = "with a wrong key" if self.api_key else "without a key"
            step = "name the variable or file with the key: --api-key-env NAME or --api-key-file PATH"
            raise refusal(what, "an answer", f"HTTP {response.status_code} {given}", step)
        if response.status_code != 200:
            raise MeasurementError(f"{what}: HTTP {response.status_code}: {self._shown(response)}")

    @staticmethod
    def _shown(answer: httpx.Response) -> str:
        """The beginning of an answer, without the key, which a server might repeat."""
        sent = answer.request.headers.get("Authorization", "").removeprefix("Bearer ")
        return (answer.text.replace(sent, "(key)") if sent else answer.text)[:300]

    def _unreachable(self, error: httpx.HTTPError) -> DocumentError:
        message = f"{type(error).__name__}: {error}"
        if "CERTIFICATE" in message.upper():
            step = _certificate_step(message)
            return refusal(self.base, "a server whose certificate can be verified", message, step)
        step = "start the server, or correct the URL or the proxy variables"
        return refusal(self.base, "a server that answers", message, step)


def _certificate_step(message: str) -> str:
    """The remedy for the certificate problem that ``message`` describes."""
    if "expired" in message:
        return "renew the server's certificate; no option takes one that has expired"
    if "not yet valid" in message:
        return "correct this machine's clock, or the server's certificate"
    if "mismatch" in message or "not valid for" in message:
        return "name the server as its certificate does, or give it one for this name or address"
    return "give the certificate authority's file by --ca-file"


def _readable(url: str) -> bool:
    try:
        httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return True


def _certificates(ca_file: Path | None) -> ssl.SSLContext | bool:
    """Only the certificates of ``ca_file``, or the system's without a file."""
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise refusal(str(ca_file), "a file with PEM certificates", str(error), "correct --ca-file") from None

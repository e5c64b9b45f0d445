"""Artefacts from a registry on loopback: complete, checked by digest, secrets sent to that registry only."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from contracts.errors import DocumentError
from contracts.loading.oci import STORE_VARIABLE, MissingArtefactError, parse_oci, store_folder
from contracts.loading.uris import resolve_uri
from live.artefacts.access import RegistryOrigins
from live.artefacts.fetch import RegistryAccess, fetch
from tests.support.servers.oci_registry import TOKEN, OciRegistry, manifest_of, oci_registry, sha256

FILES = {"profile.yaml": b"kind: KernelProfile\n", "data/samples.npz": b"\0" * 5000}
USER, PASSWORD = "robot", "s3cret-of-the-robot"
IDENTITY = "refresh-s3cret"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of the test's own."""
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def registry() -> Iterator[OciRegistry]:
    """A registry that answers correctly."""
    with oci_registry() as found:
        yield found


@pytest.fixture
def other() -> Iterator[OciRegistry]:
    """A second server."""
    with oci_registry() as found:
        yield found


def access(
    registry: OciRegistry, *beside: OciRegistry, auth: Path | None = None, within_s: float = 20.0
) -> RegistryAccess:
    """Access to ``registry`` and additional ones."""
    allowed = RegistryOrigins(origin=registry.url, beside=frozenset(one.url for one in beside))
    return RegistryAccess(registries=(allowed,), auth_file=auth, within_s=within_s)


def config(folder: Path, host: str, **entry: str) -> Path:
    """A config.json with one entry."""
    path = folder / "config.json"
    path.write_text(json.dumps({"auths": {host: entry}}), encoding="utf-8")
    return path


def basic() -> str:
    """The header of the user."""
    return "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def refused(uri: str, by: RegistryAccess) -> str:
    """The reason why ``uri`` is refused; nothing of it is kept."""
    with pytest.raises(DocumentError) as error:
        fetch(parse_oci(uri, "test"), by)
    assert not store_folder().exists() or not list(store_folder().iterdir())
    for secret in (PASSWORD, IDENTITY, TOKEN, basic().removeprefix("Basic ")):
        assert secret not in str(error.value)
    return str(error.value)


def test_an_artefact_is_fetched_once_and_its_files_lie_beside_each_other(registry: OciRegistry) -> None:
    """The URI means the first file, #FILE another; a second fetch, and resolving, send no request."""
    uri = registry.push(FILES)
    with pytest.raises(MissingArtefactError, match=f"selvage oci pull {uri}"):
        resolve_uri(uri, "pool.yaml")
    fetch(parse_oci(uri, "test"), access(registry))
    asked = len(registry.came)
    assert asked == 3
    profile = resolve_uri(uri, "pool.yaml")
    assert profile.read_bytes() == FILES["profile.yaml"]
    assert resolve_uri("data/samples.npz", profile) == resolve_uri(f"{uri}#data/samples.npz", "pool.yaml")
    fetch(parse_oci(uri, "test"), access(registry))
    assert len(registry.came) == asked


def test_what_was_changed_in_the_store_is_refused(registry: OciRegistry) -> None:
    """The other files of the artefact are compared too, and so is a changed manifest."""
    uri = registry.push(FILES)
    folder = fetch(parse_oci(uri, "test"), access(registry))
    assert resolve_uri(uri, "pool.yaml")
    (folder / "data" / "samples.npz").write_bytes(b"\1" * 5000)
    with pytest.raises(DocumentError, match=r"remove .* and fetch it again"):
        resolve_uri(uri, "pool.yaml")
    (folder.parent / "manifest.json").write_bytes(manifest_of({"other.yaml": b""}))
    with pytest.raises(DocumentError, match="what its digest says"):
        resolve_uri(uri, "pool.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "oci://registry.example/team/kernels:v1",
        "oci://registry.example/team/kernels",
        "oci://registry.example/team/kernels@sha512:" + "0" * 128,
        "oci://registry.example/Team/kernels@sha256:" + "0" * 64,
        "oci://user:secret@registry.example/team/kernels@sha256:" + "0" * 64,
        "oci://registry.example/../x@sha256:" + "0" * 64,
        "oci://registry.example/team@sha256:" + "0" * 64 + "#../../etc/passwd",
        "oci://registry.example/team@sha256:" + "0" * 64 + "#/etc/passwd",
    ],
)
def test_a_uri_without_a_digest_is_refused_with_the_next_step(text: str) -> None:
    """Tags, other digests, users and names that lead out of the artefact are not allowed in URIs."""
    with pytest.raises(DocumentError, match="oras resolve"):
        resolve_uri(text, "pool.yaml")


def test_no_other_registry_is_asked(registry: OciRegistry) -> None:
    """A registry that no option names is not contacted, and the message names the option."""
    uri = registry.push(FILES)
    assert f"--registry https://{registry.host}" in refused(uri, RegistryAccess())
    assert registry.came == []


def test_a_token_is_fetched_from_the_realm_for_this_repository_alone(
    registry: OciRegistry, tmp_path: Path
) -> None:
    """The user goes to the token service, the token to the registry, and the scope is chosen by us."""
    uri = registry.push(FILES)
    registry.challenge = f'Bearer realm="{registry.url}/token",service="it, self",scope="repository:all:*"'
    auth = config(tmp_path, registry.host, auth=basic().removeprefix("Basic "))
    fetch(parse_oci(uri, "test"), access(registry, auth=auth))
    (asked,) = [one for one in registry.came if one[0].startswith("/token")]
    assert asked == (
        "/token?service=it%2C+self&scope=repository%3Ateam%2Fkernels%3Apull&client_id=selvage",
        basic(),
    )
    assert {given for path, given in registry.came if path.startswith("/v2/")} == {"", f"Bearer {TOKEN}"}


def test_identity_and_registry_tokens_count(registry: OciRegistry, tmp_path: Path) -> None:
    """A refresh token is exchanged by POST; a registry's own token is sent unchanged, on request."""
    uri = registry.push(FILES)
    registry.challenge = f'Bearer realm="{registry.url}/token",service="r"'
    auth = config(tmp_path, registry.host, identitytoken=IDENTITY)
    fetch(parse_oci(uri, "test"), access(registry, auth=auth))
    assert registry.posted[0]["refresh_token"] == [IDENTITY]
    assert IDENTITY not in str(registry.came)
    registry.wants = "Bearer own"
    another = registry.push({"other": b"1"})
    auth = config(tmp_path, f"https://{registry.host}/v1/", registrytoken="own")
    fetch(parse_oci(another, "test"), access(registry, auth=auth))


def test_user_and_password_count_where_they_are_asked_for(registry: OciRegistry, tmp_path: Path) -> None:
    """Basic is answered with the entry of this registry; without one the message names the option."""
    registry.challenge, registry.wants = 'Basic realm="r"', basic()
    uri = registry.push(FILES)
    told = refused(
        uri, access(registry, auth=config(tmp_path, "elsewhere.example", username=USER, password=PASSWORD))
    )
    assert "--registry-auth-file" in told
    assert all(given == "" for _, given in registry.came)
    auth = config(tmp_path, registry.host, username=USER, password=PASSWORD)
    fetch(parse_oci(uri, "test"), access(registry, auth=auth))


def test_no_other_host_learns_a_secret(registry: OciRegistry, other: OciRegistry, tmp_path: Path) -> None:
    """A realm or redirect elsewhere is not followed; if it was named, it gets no secret."""
    uri = registry.push(FILES)
    auth = config(tmp_path, registry.host, username=USER, password=PASSWORD)
    registry.challenge = f'Bearer realm="{other.url}/token",service="r"'
    assert f"--registry {registry.url},{other.url}" in refused(uri, access(registry, auth=auth))
    assert other.came == []
    registry.challenge = f'Bearer realm="{registry.url}/token",service="r"'
    blob = f"sha256:{sha256(FILES['profile.yaml'])}"
    registry.redirects = {blob: f"{other.url}/bucket/{blob}?signature=abc"}
    told = refused(uri, access(registry, auth=auth))
    assert "a redirect to" in told
    assert "signature" not in told
    assert other.came == []
    other.held = dict(registry.held)
    fetch(parse_oci(uri, "test"), access(registry, other, auth=auth))
    assert [given for _, given in other.came] == [""]


Change = Callable[[OciRegistry], object]


def _blob(registry: OciRegistry, content: bytes) -> None:
    registry.held[sha256(FILES["data/samples.npz"])] = content


def _loop(registry: OciRegistry) -> None:
    blob = f"sha256:{sha256(FILES['profile.yaml'])}"
    registry.redirects = {blob: f"{registry.url}/v2/team/kernels/blobs/{blob}"}


def _cut(registry: OciRegistry) -> None:
    registry.lengths[f"sha256:{sha256(FILES['data/samples.npz'])}"] = 5001


def _manifest(registry: OciRegistry) -> None:
    digest = next(key for key, one in registry.held.items() if one.startswith(b"{"))
    registry.held[digest] = manifest_of({"other.yaml": b"x"})


def _says(**answers: object) -> Change:
    """A registry with the fields ``answers``; URL in a text stands for its own."""

    def change(registry: OciRegistry) -> None:
        for key, value in answers.items():
            setattr(registry, key, value.replace("URL", registry.url) if isinstance(value, str) else value)

    return change


def _astray(registry: OciRegistry) -> None:
    registry.redirects = {f"sha256:{sha256(FILES['profile.yaml'])}": "file:///etc/passwd"}


_BEARER = 'Bearer realm="URL/token"'
HOSTILE: dict[str, tuple[Change, str]] = {
    "another content": (lambda one: _blob(one, b"\1" * 5000), "sha256"),
    "a longer blob": (lambda one: _blob(one, b"\0" * 6000), "at most 5000 bytes of data/samples.npz"),
    "a shorter blob": (lambda one: _blob(one, b"\0" * 10), "did not arrive whole"),
    "a blob that breaks off": (_cut, "RemoteProtocolError"),
    "another manifest": (_manifest, "of manifest.json"),
    "no blob": (lambda one: one.held.pop(sha256(FILES["data/samples.npz"])), "HTTP 404"),
    "redirects without end": (_loop, "at most 3 redirects"),
    "a redirect to nowhere": (_astray, "a redirect to a URL"),
    "401 without a challenge": (_says(challenge="Digest realm=x"), "without a challenge"),
    "401 for every token": (_says(challenge=_BEARER, wants="never"), "HTTP 401 again"),
    "a realm that is no URL": (_says(challenge='Bearer realm="x'), "a realm that is a URL"),
    "a token that is none": (
        _says(challenge=_BEARER, token_body=b'{"token": "a\\r\\nX-Evil: 1"}'),
        "JSON with a token",
    ),
    "a token without end": (_says(challenge=_BEARER, token_body=b" " * 100_000), "too much"),
    "an error": (_says(status=503), "HTTP 503"),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_registry_leaves_nothing_behind(registry: OciRegistry, name: str) -> None:
    """Any answer that is incomplete or wrong is refused by name, and nothing is kept."""
    change, said = HOSTILE[name]
    uri = registry.push(FILES)
    change(registry)
    assert said in refused(uri, access(registry))


def test_a_registry_that_never_ends_costs_a_whole_time(registry: OciRegistry) -> None:
    """A fetch has one time limit as a whole, however slowly its pieces come."""
    uri = registry.push(FILES)
    registry.stall = True
    assert "within 0.5 s" in refused(uri, access(registry, within_s=0.5))


@pytest.mark.parametrize(
    "content", ["", "[]", '{"credsStore": "desktop"}', '{"auths": {"r": {"auth": "%"}}}']
)
def test_a_config_without_credentials_is_refused_without_its_content(
    registry: OciRegistry, tmp_path: Path, content: str
) -> None:
    """A file of helpers, or with other content, is refused and its content is not shown."""
    path = tmp_path / "config.json"
    path.write_text(content, encoding="utf-8")
    told = refused(registry.push(FILES), access(registry, auth=path))
    assert str(path) in told
    assert registry.came == []


def test_certificates_of_a_private_authority_come_by_file(tmp_path: Path) -> None:
    """Over TLS nothing is read from a server with an untrusted authority, and everything with --ca-file."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with oci_registry(authority.issue_cert("127.0.0.1")) as registry:
        uri = registry.push(FILES)
        assert registry.url.startswith("https://")
        assert "ConnectError" in refused(uri, access(registry))
        fetch(parse_oci(uri, "test"), replace(access(registry), ca_file=tmp_path / "ca.pem"))
        another = registry.push({"other": b"1"})
        with pytest.raises(DocumentError, match="No such file"):
            fetch(parse_oci(another, "test"), replace(access(registry), ca_file=tmp_path / "none.pem"))

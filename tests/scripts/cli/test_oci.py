"""``selvage oci pull``, and ``oci://`` URIs in commands."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.documents import KernelProfile
from contracts.errors import DocumentError
from contracts.loading.loader import load_as
from contracts.loading.oci import STORE_VARIABLE, MissingArtefactError
from contracts.loading.uris import resolve_uri
from scripts.cli.main import app
from scripts.cli.registries import copied, pulled_or_path, registry_access
from tests.support.paths import ROOT
from tests.support.servers.oci_registry import OciRegistry, oci_registry

PROFILES = ROOT / "contracts" / "library" / "profiles"
RUN = CliRunner()
SECRET = "s3cret-of-the-robot"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OciRegistry]:
    """A registry, and an empty store."""
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    with oci_registry() as found:
        yield found


def test_a_pulled_profile_is_a_document_like_any_other(registry: OciRegistry) -> None:
    """The command prints the file, and documents may name the URI afterwards."""
    uri = registry.folder(PROFILES, "fp8.yaml", "fp8.npz", "reference.npz", "prompts.jsonl")
    with pytest.raises(MissingArtefactError, match=f"selvage oci pull {uri}"):
        resolve_uri(uri, "pool.yaml")
    done = RUN.invoke(app, ["oci", "pull", uri, "--registry", registry.url])
    assert done.exit_code == 0, done.output
    printed = Path(done.output.strip())
    assert printed == resolve_uri(uri, "pool.yaml")
    assert load_as(KernelProfile, printed) == load_as(KernelProfile, PROFILES / "fp8.yaml")


def test_a_refused_pull_is_bad_input_and_tells_no_secret(registry: OciRegistry, tmp_path: Path) -> None:
    """Exit code 2, the next step, and no word of the credentials."""
    auth = tmp_path / "config.json"
    auth.write_text(json.dumps({"auths": {registry.host: {"username": "me", "password": SECRET}}}))
    registry.challenge, registry.wants = 'Basic realm="r"', "never"
    words = ["oci", "pull", registry.push({"a": b"1"}), "--registry", registry.url]
    done = RUN.invoke(app, [*words, "--registry-auth-file", str(auth)])
    assert done.exit_code == 2
    assert "HTTP 401 again" in done.stderr
    assert SECRET not in done.stderr + done.output
    tagged = RUN.invoke(app, [*words[:2], "oci://registry.example/a/b:v1", *words[3:]])
    assert "oras resolve" in tagged.stderr
    assert RUN.invoke(app, [*words[:4], "registry.example"]).exit_code == 2


def test_answers_of_a_reference_are_copied_where_nothing_lies(registry: OciRegistry, tmp_path: Path) -> None:
    """An operator may continue from an artefact's answers; existing files stay."""
    uri = registry.push({"chat/one.npz": b"checked", "chat/two.npz": b"checked"})
    folder = tmp_path / "references"
    (folder / "chat").mkdir(parents=True)
    (folder / "chat" / "two.npz").write_bytes(b"own")
    copied(uri, registry_access([registry.url], None, None), folder, "--references-from")
    assert (folder / "chat" / "one.npz").read_bytes() == b"checked"
    assert (folder / "chat" / "two.npz").read_bytes() == b"own"
    assert sorted(one.name for one in (folder / "chat").iterdir()) == ["one.npz", "two.npz"]


def test_prompts_that_are_pinned_are_the_pinned_ones(tmp_path: Path) -> None:
    """A mounted file with other content, or none, is refused with both hashes and the next step."""
    access, file = registry_access((), None, None), tmp_path / "prompts.jsonl"
    file.write_bytes(b"golden")
    pin = hashlib.sha256(b"golden").hexdigest()
    assert pulled_or_path(str(file), access, "--prompts", pin.upper()) == file
    assert pulled_or_path(str(file), access, "--prompts") == file
    file.write_bytes(b"others")
    with pytest.raises(
        DocumentError, match=f"expected sha256 {pin}, got sha256 [0-9a-f]{{64}}; .*--prompts-sha256"
    ):
        pulled_or_path(str(file), access, "--prompts", pin)
    with pytest.raises(DocumentError, match="No such file"):
        pulled_or_path(str(tmp_path / "none"), access, "--prompts", pin)

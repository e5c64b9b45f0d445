"""Signatures: an artefact drives only if the pinned key signed the present file."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("torch")

from contracts.documents import RoutePolicy
from contracts.errors import DocumentError
from policies.certify.signature import public_key, refuse_unsigned, signature_file, signature_of
from policies.route import route_setup
from tests.hostile.test_files import selvage
from tests.policies.certify.test_own_meta import artefact, route
from tests.policies.learned.test_runner import FLEET

#: A second implementation for comparison.
OPENSSL = shutil.which("openssl")
#: RFC 8032, section 7.1, test 2, as PKCS 8 and as SubjectPublicKeyInfo.
PRIVATE = (
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7\n"
    "-----END PRIVATE KEY-----\n"
)
PUBLIC = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
SIGNATURE = (
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The private key of the standard's second test."""
    (tmp_path / "key.pem").write_text(PRIVATE)
    return tmp_path / "key.pem"


def test_it_is_the_signature_of_the_standard(key: Path) -> None:
    """RFC 8032's own example: key, message and signature."""
    assert signature_of(bytes([0x72]), key) == (bytes.fromhex(SIGNATURE), PUBLIC)


def test_sign_and_verify(key: Path, tmp_path: Path) -> None:
    """A signed file verifies; with one other byte, another key, another signature or none it does not."""
    file = tmp_path / "certificate.json"
    file.write_text("{}\n")
    assert selvage("policy", "verify", file, "--key", PUBLIC).exit_code == 1
    signed = selvage("policy", "sign", file, "--key", key)
    assert (signed.exit_code, signed.stdout) == (0, f"{PUBLIC}\n")
    assert selvage("policy", "verify", file, "--key", PUBLIC).exit_code == 0
    assert selvage("policy", "verify", file, "--key", "0" * 64).exit_code == 1
    signature = signature_file(file).read_bytes()
    for altered in (signature[:-1] + bytes([signature[-1] ^ 1]), signature[:10], b""):
        signature_file(file).write_bytes(altered)
        assert selvage("policy", "verify", file, "--key", PUBLIC).exit_code == 1
    signature_file(file).write_bytes(signature)
    file.write_text("{} \n")
    assert selvage("policy", "verify", file, "--key", PUBLIC).exit_code == 1


@pytest.mark.parametrize("content", ["", "no key", PRIVATE.replace("MC4", "MC5"), PRIVATE[:60]])
def test_files_that_are_no_keys_are_bad_input(content: str, tmp_path: Path) -> None:
    """A file without an ed25519 key is refused by name with exit code 2, for signing and for verifying."""
    bad, file = tmp_path / "bad.pem", tmp_path / "file"
    bad.write_text(content)
    file.write_text("x")
    for words in (("sign", file, "--key", bad), ("verify", file, "--key", bad)):
        done = selvage("policy", *words)
        assert done.exit_code == 2, done.output
        assert "bad.pem" in done.stderr
    assert not signature_file(file).exists()


@pytest.mark.needs("openssl")
def test_openssl_agrees(key: Path, tmp_path: Path) -> None:
    """OpenSSL verifies signatures made here; the public key may be given as the PEM file that it writes."""
    file = tmp_path / "file"
    file.write_bytes(b"what is signed")
    assert selvage("policy", "sign", file, "--key", key).exit_code == 0
    made = [str(OPENSSL), "pkey", "-in", str(key), "-pubout", "-out", str(tmp_path / "public.pem")]
    subprocess.run(made, check=True)
    assert public_key(str(tmp_path / "public.pem")) == PUBLIC
    words = ["pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", str(tmp_path / "public.pem")]
    words += ["-in", str(file), "-sigfile", str(signature_file(file))]
    subprocess.run([str(OPENSSL), *words], check=True, stdout=subprocess.DEVNULL)


def pinning(folder: Path, manifest: Path, key: str) -> RoutePolicy:
    """A route that drives by ``manifest`` and requires a signature by ``key``."""
    return route(folder, manifest).model_copy(
        update={"spec": route(folder, manifest).spec.model_copy(update={"signed_by": key})}
    )


def test_a_route_that_pins_a_key_refuses_what_it_did_not_sign(key: Path, tmp_path: Path) -> None:
    """Unsigned, signed by another key, or changed since: refused in every mode; signed: it drives."""
    manifest = artefact(tmp_path, names=True)
    document = pinning(tmp_path, manifest, PUBLIC)
    file = str(tmp_path / "route.yaml")
    with pytest.raises(DocumentError, match=r"signature by 3d4017.*got none.*policy sign"):
        route_setup(document, file, FLEET)
    signature, _ = signature_of(manifest.read_bytes(), key)
    signature_file(manifest).write_bytes(signature)
    assert route_setup(document, file, FLEET).policy is not None
    with pytest.raises(DocumentError, match="another one"):
        route_setup(pinning(tmp_path, manifest, "0" * 64), file, FLEET)
    manifest.write_text(manifest.read_text() + "\n")
    sha256 = hashlib.sha256(manifest.read_bytes()).hexdigest()
    assert document.spec.artifact is not None
    pinned = document.spec.artifact.model_copy(update={"sha256": sha256})
    changed = document.model_copy(update={"spec": document.spec.model_copy(update={"artifact": pinned})})
    with pytest.raises(DocumentError, match="changed file"):
        route_setup(changed, file, FLEET)


def test_a_pinned_key_needs_a_file_to_be_signed(tmp_path: Path) -> None:
    """A built-in policy under the shipped meta-contract has no file that could be signed."""
    document = pinning(tmp_path, artefact(tmp_path, names=True), PUBLIC)
    spec = document.spec.model_copy(
        update={
            "policy": "sequential",
            "artifact": None,
            "meta_contract": "package:contracts/library/meta-contract.yaml",
        }
    )
    with pytest.raises(DocumentError, match="signed_by"):
        route_setup(document.model_copy(update={"spec": spec}), str(tmp_path / "route.yaml"), FLEET)


def test_the_file_is_named(tmp_path: Path) -> None:
    """A missing signature is reported with the file, the place and the next step."""
    (tmp_path / "m.yaml").write_text("x")
    with pytest.raises(DocumentError, match=r"m\.yaml.*m\.yaml\.sig"):
        refuse_unsigned(tmp_path / "m.yaml", PUBLIC)

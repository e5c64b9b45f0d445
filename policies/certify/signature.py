"""The author of a file: ed25519 signatures (RFC 8032) over a file's bytes, in ``FILE.sig`` next to it.

Keys are PEM files as OpenSSL makes them (``openssl genpkey -algorithm ed25519``); OpenSSL makes and checks
the same signatures (``openssl pkeyutl -sign|-verify -rawin``). In documents a public key is its 32 bytes in
hex. Optional: the extra ``sign`` installs the library, which is not needed if no key is pinned.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from contracts.errors import DocumentError, MissingPartError, refusal
from contracts.regular_files import TEXT_BYTES, read_regular

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNATURE_BYTES, KEY_BYTES, _PEM_BYTES = 64, 32, 2**16
_MAKE = "openssl genpkey -algorithm ed25519 -out KEY; openssl pkey -in KEY -pubout -out KEY.pub"


def signature_file(path: Path) -> Path:
    """Path of the signature of the file at ``path``."""
    return path.with_name(f"{path.name}.sig")


def signature_of(content: bytes, key_file: Path) -> tuple[bytes, str]:
    """64-byte signature of ``content`` by the private key in ``key_file``, and the public key in hex.

    Raises DocumentError for a file without such an unencrypted key, MissingPartError without the library.
    """
    key = _private(key_file)
    return key.sign(content), key.public_key().public_bytes_raw().hex()


def public_key(text: str) -> str:
    """The public key in hex from ``text``: hex itself, or the path of a PEM file; DocumentError otherwise."""
    if len(text) == 2 * KEY_BYTES and set(text) <= set("0123456789abcdef"):
        return text
    return _public(Path(text)).public_bytes_raw().hex()


def refuse_unsigned(file: Path, key_hex: str) -> None:
    """DocumentError unless the key signed the present content of ``file``."""
    place = signature_file(file)
    hint = f"the holder of the key signs it: selvage policy sign {file} --key KEY"
    if not place.exists():
        raise _refusal(file, f"a signature by {key_hex} in {place}", "none", hint)
    signature, content = read_regular(place, TEXT_BYTES), read_regular(file, TEXT_BYTES)
    if not _is_signed(content, signature, key_hex):
        raise _refusal(file, f"a signature by {key_hex}", f"another one in {place}, or a changed file", hint)


def _is_signed(content: bytes, signature: bytes, key_hex: str) -> bool:
    _need()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key_hex)).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


def _private(path: Path) -> Ed25519PrivateKey:
    _need()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = read_regular(path, _PEM_BYTES, _MAKE)
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:  # TypeError: the key is encrypted
        raise _refusal(path, "a private key without a password (PEM)", f"{error}"[:200], _MAKE) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _refusal(path, "an ed25519 key", type(key).__name__, _MAKE)
    return key


def _public(path: Path) -> Ed25519PublicKey:
    _need()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    content = read_regular(path, _PEM_BYTES, "give the public key in hex, or its PEM file")
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _refusal(path, "a public key (PEM)", f"{error}"[:200], _MAKE) from None
    if not isinstance(key, Ed25519PublicKey):
        raise _refusal(path, "an ed25519 key", type(key).__name__, _MAKE)
    return key


def _need() -> None:
    try:
        import cryptography  # noqa: F401 - whether it is there
    except ModuleNotFoundError:
        raise MissingPartError(
            "signatures need the library cryptography; run: pip install 'selvage-fleet[sign]'"
        ) from None


def _refusal(file: Path, expected: str, actual: str, next_step: str) -> DocumentError:
    return refusal(file, expected, actual, next_step, path="signature")

"""A checkpoint folder: its location, the hash of its weights, the bytes of weights that a kernel holds, and
the KV cache size of an engine that measures it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from contracts.errors import DocumentError, MeasurementError, MissingPartError, refusal
from contracts.loading.untrusted import MALFORMED, json_of
from contracts.regular_files import TEXT_BYTES, open_regular, read_regular, read_regular_text
from live.measure import checkpoint
from live.measure.kernels import Kernel

SHIPPED_MODEL = Path(__file__).resolve().parents[2] / "contracts" / "library" / "refmodel"
_HEADER_LIMIT_BYTES = 32 * 2**20
_MOST_AXES, _MOST_NUMBERS = 16, 2**48
_WIDTH_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_NARROW_BYTES = {"fp8": 1.0, "int8": 1.0, "int4": 0.5}


def find_checkpoint(model: str) -> Path:
    """Folder of ``model``: the shipped one for "", a local folder, or a hub name (downloaded once)."""
    if not model:
        return SHIPPED_MODEL
    folder = Path(model)
    if folder.is_dir():
        missing = [name for name in ("config.json", "tokenizer.json") if not (folder / name).is_file()]
        if missing or not list(folder.glob("*.safetensors")):
            wanted = "config.json, tokenizer.json and *.safetensors"
            raise _refusal(model, wanted, f"no {missing[0] if missing else '*.safetensors'}")
        return folder
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise _refusal(model, "a folder with a checkpoint", "nothing there")
    return _download(model)


def checkpoint_sha256(folder: Path) -> str:
    """Hash over every weight file, in name order."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with _opened(path) as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()


def weights_bytes(folder: Path, kernel: Kernel) -> int:
    """Bytes of weights that a replica of ``kernel`` holds: the files' size if packed, else by its dtype."""
    if kernel.scheme:
        return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    options = {option.name: option.value for option in kernel.options}
    width = _WIDTH_BYTES[str(options.get("dtype", "bfloat16"))]
    quantised = str(options.get("quantization", "")).partition("_")[0]
    narrow = _NARROW_BYTES.get(quantised, width)
    return sum(
        int(numbers * (narrow if name.endswith("_proj.weight") else width))
        for name, numbers in _sizes(folder)
    )


def _sizes(folder: Path) -> Iterator[tuple[str, int]]:
    """Name and number of elements of every tensor, from the headers of the weight files."""
    for path in sorted(folder.glob("*.safetensors")):
        with _opened(path) as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _HEADER_LIMIT_BYTES:
                raise _refusal(str(path), "a safetensors file", f"a header of {length} bytes")
            content = file.read(length)
        try:
            header = json_of(content)
            found = [(name, _numbers(header[name]["shape"])) for name in header if name != "__metadata__"]
        except MALFORMED as error:
            raise _refusal(str(path), "a safetensors file", f"{error}"[:200]) from None
        yield from found


def _numbers(shape: list[int]) -> int:
    """Number of elements of a tensor of ``shape``; ValueError for an impossible shape."""
    if len(shape) > _MOST_AXES or not all(type(axis) is int and 0 <= axis <= _MOST_NUMBERS for axis in shape):
        raise ValueError("a shape that no tensor has")
    return math.prod(shape)


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    """A weight file; DocumentError if it cannot be read or is no regular file."""
    try:
        with open_regular(path) as file:
            yield file
    except OSError as error:
        raise _refusal(str(path), "a readable file", error.strerror or str(error)) from None


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of the checkpoint in ``folder``; DocumentError if it is not valid."""
    path = folder / "config.json"
    try:
        found = json_of(read_regular(path, TEXT_BYTES))
    except (ValueError, RecursionError) as error:
        raise _refusal(str(path), "a model's config.json", f"{error}"[:200]) from None
    if not isinstance(found, dict):
        raise _refusal(str(path), "a JSON object", type(found).__name__)
    return found


def read_tokenizer(folder: Path) -> Any:
    """The tokenizer of the checkpoint in ``folder``; DocumentError if there is none."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    content = read_regular_text(path, TEXT_BYTES)
    try:
        return Tokenizer.from_str(content)
    except Exception as error:  # the library raises plain exceptions
        raise _refusal(str(path), "a tokenizer", f"{error}"[:200]) from None


def _download(model: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MissingPartError(
            f"{model!r} is no local folder and huggingface_hub is not installed to fetch it;"
            " run `make setup-test`, or name a local folder"
        ) from None
    try:
        patterns = ["*.json", "*.safetensors"]
        return Path(snapshot_download(model, allow_patterns=patterns))
    except Exception as error:  # the hub client raises many kinds
        raise _refusal(model, "a local folder or a model on the hub", str(error)[:200]) from None


def _refusal(model: str, expected: str, actual: str) -> DocumentError:
    return refusal(
        model,
        expected,
        actual,
        "give --model a folder with a checkpoint, or leave it out for the shipped model",
    )


_KV_TOKENS = 32_768
_MIN_KV_BYTES = 64 * 2**20
_SIZES = ("num_key_value_heads", "num_attention_heads", "head_dim", "hidden_size", "num_hidden_layers")
_MOST = 2**24


def _size(found: object) -> int:
    """A size of a model; ValueError for impossible values."""
    if isinstance(found, bool) or not isinstance(found, int) or not 0 < found <= _MOST:
        raise ValueError(f"{found!s:.40} among the sizes")
    return found


def kv_bytes(folder: Path) -> int:
    """Bytes of KV cache for 32,768 tokens of the model in ``folder`` at four bytes a number, at least 64 MiB.

    Raises MeasurementError if its config.json does not state the model's sizes.
    """
    config = checkpoint.read_config(folder)
    try:
        sizes = {name: _size(config[name]) for name in _SIZES if config.get(name)}
        heads = sizes.get("num_key_value_heads") or sizes["num_attention_heads"]
        width = sizes.get("head_dim") or sizes["hidden_size"] // sizes["num_attention_heads"]
        per_token = 2 * sizes["num_hidden_layers"] * heads * width * 4
        return max(_MIN_KV_BYTES, int(per_token * _KV_TOKENS))
    except (*MALFORMED, ZeroDivisionError) as error:
        told = f"{type(error).__name__}: {error}"[:200]
        raise MeasurementError(
            f"{folder / 'config.json'}: expected the sizes of the model, got {told}"
        ) from None

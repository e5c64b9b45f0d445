"""How much room for keys and values an engine gets that measures a model."""

from __future__ import annotations

from pathlib import Path

from contracts.errors import MeasurementError
from contracts.loading.malformed import MALFORMED
from live.measure import checkpoint

_KV_TOKENS = 32_768
_MIN_KV_BYTES = 64 * 2**20
_SIZES = ("num_key_value_heads", "num_attention_heads", "head_dim", "hidden_size", "num_hidden_layers")
_MOST = 2**24


def _size(found: object) -> int:
    """A size of a model; ValueError for what can be none."""
    if isinstance(found, bool) or not isinstance(found, int) or not 0 < found <= _MOST:
        raise ValueError(f"{found!s:.40} among the sizes")
    return found


def kv_bytes(folder: Path) -> int:
    """Room for 32,768 tokens of the model in ``folder`` at four bytes a number, bytes.

    Raises MeasurementError where its config.json does not say how large it is.
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

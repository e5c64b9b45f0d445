"""Plain Stable-Baselines3 policies as ONNX files: from a saved zip, without unpickling code, or from a model.

Supported are actor-critic policies (PPO, A2C) of dense layers on ``Selvage/FleetRouting-v0``. The zip's
``data`` is JSON, of which the readable half is read; its weights are loaded by torch's loader of plain arrays
alone (``weights_only``). Anything else in the zip is ignored.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.errors import DocumentError, MissingPartError, refusal
from contracts.regular_files import ARCHIVE_BYTES, read_regular, refuse_inflated
from policies.learned.dense_graph import ACTIVATIONS, DenseNetwork, dense_bytes

_LAYER = re.compile(r"mlp_extractor\.policy_net\.(\d+)\.weight")
Weights = Mapping[str, NDArray[np.float32]]


def bytes_of_zip(path: Path) -> bytes:
    """The ONNX file of the policy saved in ``path``; DocumentError for an unsupported one."""
    plain, content = _members(path)
    told, weights = _saved_data(plain, str(path)), _weights(content, path)
    return _bytes(weights, _activation(told, str(path)), str(path))


def seed_of_zip(path: Path) -> int | None:
    """The seed that the policy saved in ``path`` was trained with; None if it is not recorded."""
    told = _saved_data(_members(path)[0], str(path)).get("seed")
    return told if isinstance(told, int) and not isinstance(told, bool) and told >= 0 else None


def _members(path: Path) -> tuple[bytes, bytes]:
    """``data`` and ``policy.pth`` of the zip at ``path``."""
    content = read_regular(path, ARCHIVE_BYTES)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            refuse_inflated(archive)
            return archive.read("data"), archive.read("policy.pth")
    except Exception as error:  # a damaged archive makes zipfile's parsers raise almost anything
        raise _refusal(str(path), "a zip of Stable-Baselines3's save()", f"{error}"[:200]) from None


def _saved_data(plain: bytes, place: str) -> Mapping[str, Any]:
    """The zip's metadata."""
    try:
        told = json.loads(plain)
    except (ValueError, RecursionError) as error:
        raise _refusal(place, "JSON in the zip's data", f"{error}"[:200]) from None
    if not isinstance(told, dict):
        raise _refusal(place, "a JSON object in the zip's data", type(told).__name__)
    return told


def bytes_of_model(model: Any) -> bytes:
    """The ONNX file of a live algorithm's policy (``PPO``, ``A2C``)."""
    policy = model.policy
    state = {name: value.detach().cpu().numpy() for name, value in policy.state_dict().items()}
    name = str(policy.activation_fn.__name__)
    return _bytes(state, _known(name, "the model"), "the model")


def _bytes(weights: Weights, activation: str, place: str) -> bytes:
    numbers = sorted(int(found[1]) for name in weights if (found := _LAYER.fullmatch(name)))
    names = [*(f"mlp_extractor.policy_net.{number}" for number in numbers), "action_net"]
    foreign = [name for name in weights if name.startswith(("features_extractor.", "pi_features_extractor."))]
    if foreign:
        raise _refusal(place, "dense layers on the plain observation", f"{foreign[0]} besides")
    try:
        layers = tuple((weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in names)
        return dense_bytes(DenseNetwork(layers=layers, activation=activation))
    except (KeyError, ValueError) as error:
        raise _refusal(place, "an actor-critic policy of dense layers (MlpPolicy)", str(error)) from None


def _weights(content: bytes, path: Path) -> Weights:
    try:
        import torch
    except ImportError:
        raise MissingPartError(
            "reading a saved policy needs torch; pip install 'selvage-fleet[rl]'"
        ) from None
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        _refuse_stretched(list(state.values()), len(content))
        return {str(name): value.numpy() for name, value in state.items()}
    except Exception as error:  # the loader of plain arrays raises several types for code
        told = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise _refusal(str(path), "weights that are plain arrays", told) from None


def _refuse_stretched(tensors: list[Any], most_bytes: int) -> None:
    """ValueError for tensors that repeat their stored values, and so would fill the memory."""
    if sum(tensor.numel() * tensor.element_size() for tensor in tensors) > most_bytes:
        raise ValueError("tensors of more numbers than the file holds")


def _activation(told: Mapping[str, Any], place: str) -> str:
    """The activation between the layers: as saved, else the library's default, tanh."""
    if told.get("use_sde"):
        raise _refusal(place, "a policy without state-dependent exploration", "use_sde")
    given_kwargs = told.get("policy_kwargs") or {}
    if not isinstance(given_kwargs, dict):
        raise _refusal(place, "policy_kwargs that are an object", type(given_kwargs).__name__)
    given = str(given_kwargs.get("activation_fn", "Tanh"))
    return _known(re.sub(r"\W+$", "", given).rpartition(".")[2], place)


def _known(name: str, place: str) -> str:
    found = {one.lower(): one for one in ACTIVATIONS}.get(name.lower())
    if found is None:
        raise _refusal(place, f"an activation of {', '.join(ACTIVATIONS)}", name)
    return found


def _refusal(place: str, expected: str, actual: str) -> DocumentError:
    return refusal(place, expected, actual, "see docs/extending.md")

"""Client of a server that reduces its rows itself: what it offers, and its checked answers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from numpy.typing import NDArray

from contracts.errors import MeasurementError
from contracts.loading.untrusted import MALFORMED
from live.bounded_http import whole_answer
from live.kld.inside.orders import COLUMNS, MOST_ROW_VALUES, PREFIX, PROTOCOL, TOKEN_HEADER
from live.measure.endpoint import Endpoint
from live.measure.prompts import Prompt
from live.measure.reference import ReferenceScores

_LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOffer:
    """What a server's plug-in reports. folder: where it reads references, on the server's host."""

    vocabulary: int
    tokens: int
    folder: Path
    most_prompts: int
    most_positions: int


class KldServer:
    """The routes of the plug-in, over an open connection."""

    def __init__(self, endpoint: Endpoint, client: httpx.Client) -> None:
        self._endpoint = endpoint
        self._client = client

    def offer(self) -> tuple[PluginOffer | None, str]:
        """What the plug-in offers; or None and the reason, such as no plug-in or a wrong token."""
        try:
            answer = whole_answer(self._client, "GET", f"{PREFIX}status", self._endpoint.timeout_s)
        except httpx.HTTPError as error:
            return None, f"{PREFIX}status: {type(error).__name__}: {error}"
        if answer.status_code != httpx.codes.OK:
            return None, _why_not(answer)
        return _offer(answer)

    def reduced(
        self, prompts: Sequence[Prompt], reference: ReferenceScores, indices: Sequence[int]
    ) -> list[NDArray[np.float64]]:
        """float64 [positions, COLUMNS] of each prompt, at ``indices`` of the reference's list.

        Raises MeasurementError if the server refuses, as for a file that it cannot read.
        """
        told = {
            "path": str(reference.path),
            "sha256": reference.sha256,
            "vocabulary": int(reference.rows.shape[1]),
            "first_rows": [int(reference.starts[index]) for index in indices],
        }
        body = {"prompts": [list(one.token_ids) for one in prompts], "reference": told}
        numbers = self._numbers("reduce", body, "<f8", prompts, len(COLUMNS))
        return [np.asarray(part, dtype=np.float64) for part in numbers]

    def rows(self, prompt: Prompt, vocabulary: int, kind: str = "f4") -> NDArray[np.float32]:
        """float32 [positions, V]: log-probabilities over the whole vocabulary. kind f2: sent as float16."""
        body = {"prompts": [list(prompt.token_ids)], "type": kind}
        part = self._numbers("rows", body, f"<{kind}", [prompt], vocabulary)[0]
        return np.asarray(part, dtype=np.float32)

    def _numbers(
        self, route: str, body: object, kind: str, prompts: Sequence[Prompt], width: int
    ) -> list[NDArray[np.floating]]:
        """One array [positions, width] per prompt."""
        raw = self._endpoint.content(self._client, "POST", f"{PREFIX}{route}", body).content
        positions = [one.positions for one in prompts]
        wanted = sum(positions) * width * np.dtype(kind).itemsize
        if len(raw) != wanted:
            raise MeasurementError(f"{PREFIX}{route}: {wanted} bytes expected, {len(raw)} answered")
        whole = np.frombuffer(raw, dtype=kind).reshape(-1, width)
        return list(np.split(whole, np.cumsum(positions)[:-1]))


@contextmanager
def connect(endpoint: Endpoint, token: str) -> Iterator[KldServer]:
    """An open connection; ``token`` is the plug-in's, "" if it needs none."""
    with endpoint.client() as client:
        if token:
            client.headers[TOKEN_HEADER] = token
        yield KldServer(endpoint, client)


def batches(prompts: Sequence[Prompt], most_prompts: int, most_positions: int) -> Iterator[list[int]]:
    """Indices of ``prompts`` in order, in batches that fit one request."""
    batch: list[int] = []
    positions = 0
    for index, prompt in enumerate(prompts):
        if batch and (len(batch) == most_prompts or positions + prompt.positions > most_positions):
            yield batch
            batch, positions = [], 0
        batch.append(index)
        positions += prompt.positions
    if batch:
        yield batch


def rows_fit(prompts: Sequence[Prompt], vocabulary: int) -> bool:
    """Whether whole rows of every prompt fit into one answer."""
    return max(one.positions for one in prompts) * vocabulary <= MOST_ROW_VALUES


def _why_not(answer: httpx.Response) -> str:
    try:
        told = answer.json()
    except (ValueError, RecursionError):
        told = None
    reason = told.get("refused") if isinstance(told, dict) else None
    return str(reason)[:300] if reason else f"{PREFIX}status: HTTP {answer.status_code}"


def _offer(answer: httpx.Response) -> tuple[PluginOffer | None, str]:
    try:
        told = answer.json()
        if told["protocol"] != PROTOCOL or tuple(told["columns"]) != COLUMNS:
            return None, f"its plug-in speaks protocol {told['protocol']!r:.20}, not {PROTOCOL}"
        if told["unfit"]:
            return None, str(told["unfit"])[:300]
        return PluginOffer(
            vocabulary=int(told["vocabulary"]),
            tokens=int(told["tokens"]),
            folder=Path(told["folder"]),
            most_prompts=max(1, int(told["most_prompts"])),
            most_positions=max(1, int(told["most_positions"])),
        ), ""
    except MALFORMED:
        return None, f"{PREFIX}status answers something else"


def local_folder(endpoint: Endpoint, token: str) -> Path | None:
    """The folder where a server on this machine reads references; None if remote or without a folder."""
    if httpx.URL(endpoint.url).host not in _LOCAL_HOSTS:
        return None
    with connect(endpoint, token) as server:
        offer, _ = server.offer()
    if offer is None or not offer.folder.is_dir() or not os.access(offer.folder, os.W_OK):
        return None
    return offer.folder

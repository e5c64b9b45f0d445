"""The bigram server with the plug-in's routes; numpy computes its answers in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from live.kld.inside.orders import COLUMNS, PREFIX, PROTOCOL, TOKEN_HEADER
from live.kld.positions import from_rows
from live.measure.prompts import Prompt
from live.measure.reference import ReferenceScores, open_reference
from tests.support.servers.bigram_server import TABLE, VOCABULARY, FakeServer, prompts


@dataclass
class KldFake(FakeServer):
    """folder: of its references; token: required; asked: routes in order."""

    folder: Path = Path()
    token: str = ""
    unfit: str = ""
    protocol: int = PROTOCOL
    asked: list[str] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        if not request.url.path.startswith(PREFIX):
            return super().__call__(request)
        if self.token and request.headers.get(TOKEN_HEADER) != self.token:
            return httpx.Response(403, json={"refused": f"the header {TOKEN_HEADER} is wrong"})
        route = request.url.path.removeprefix(PREFIX)
        if route == "status":
            return httpx.Response(200, json=self.status())
        return self.answered(route, json.loads(request.content))

    def status(self) -> dict[str, object]:
        """The plug-in's status."""
        limits = {"vocabulary": VOCABULARY, "tokens": 100, "most_prompts": 2, "most_positions": 1000}
        said = {"protocol": self.protocol, "columns": list(COLUMNS), "unfit": self.unfit}
        return {**said, **limits, "folder": str(self.folder)}

    def answered(self, route: str, body: dict[str, object]) -> httpx.Response:
        """Raw numbers, or the refusal of a file that this server cannot read."""
        lists = body["prompts"]
        assert isinstance(lists, list)
        rows = [np.stack([self.values(token) for token in ids[:-1]]) for ids in lists]
        if route == "rows":
            return httpx.Response(200, content=np.concatenate(rows).astype(f"<{body['type']}").tobytes())
        told = body["reference"]
        assert isinstance(told, dict)
        path = Path(told["path"])
        if not path.is_relative_to(self.folder):
            return httpx.Response(400, json={"refused": "the reference is no file below this folder"})
        whole = np.fromfile(path, dtype="<f4").reshape(-1, told["vocabulary"])
        parts = []
        for ids, mine, first in zip(lists, rows, told["first_rows"], strict=True):
            prompt = Prompt(id=0, slice="toy", split="probe", document="", token_ids=tuple(ids), text="")
            parts.append(from_rows(prompt, whole[first : first + len(mine)], mine).values[:, : len(COLUMNS)])
        return httpx.Response(200, content=np.concatenate(parts).astype("<f8").tobytes())


def stored(folder: Path) -> ReferenceScores:
    """The undrifted bigram model's rows of the prompts, in a file of ``folder``."""
    rows = np.concatenate([TABLE[list(each.token_ids[:-1])] for each in prompts()])
    path = folder / "bigrams.f32"
    path.write_bytes(rows.astype("<f4").tobytes())
    return open_reference(path, prompts(), ())

"""The plug-in's calls to the engine's workers; a fake engine in place of vLLM's client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from live.kld.inside import endpoint
from live.kld.inside.endpoint import KldPlugin
from live.kld.inside.orders import OrderRefusedError


class Engine:
    """Answers after ``late_s``; records the given time limits."""

    def __init__(self, late_s: float) -> None:
        self._late_s = late_s
        self.limits: list[float | None] = []

    async def collective_rpc(self, method: str, timeout: float | None, args: tuple[Any, ...]) -> list[str]:
        """As vLLM's: one answer of each worker."""
        self.limits.append(timeout)
        await asyncio.sleep(self._late_s)
        return [f"{method}{args}"] * 2


def test_a_late_worker_is_given_up_on_here_and_not_in_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine would match the late answer to another call, so it is given no limit."""
    monkeypatch.setattr(endpoint, "_ENGINE_WITHIN_S", 0.05)
    plugin = KldPlugin()
    for late_s in (0.0, 5.0):
        plugin._engine = engine = Engine(late_s)
        if late_s:
            with pytest.raises(OrderRefusedError, match=r"no answer to ready within 0\.05 s"):
                asyncio.run(plugin._call("ready", 1))
        else:
            assert asyncio.run(plugin._call("ready", 1)) == ["ready(1,)"] * 2
        assert engine.limits == [None]

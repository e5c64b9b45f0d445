"""The environment of ``selvage bench env`` and of the studies of training, and the timing of its parts.

The shipped E5 pool at a fixed load, every episode at the full rate, all else drawn.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from contracts.documents import Scenario
from contracts.loading.loader import dump_text, load_as
from contracts.loading.shipped import E5_BASE, SERVING_POOL
from contracts.loading.uris import resolve_uri
from controller.detect.detector import Detector
from controller.detect.window import WindowDetector
from controller.fleet import FleetSetup
from simulator.env.core import EnvConfig
from simulator.env.space import EpisodeSpace

HORIZON_S = 300.0
RATE_RPS = 60.0
PROMPT_TOKENS, OUTPUT_TOKENS = 512.0, 128.0


def write_scenario(folder: Path, pool_uri: str) -> Path:
    """The quiet E5 scenario at the benchmark's load, written into ``folder``."""
    base = load_as(Scenario, resolve_uri(E5_BASE, "selvage bench env"))
    work = base.spec.workload
    tokens = {
        "rate_rps": RATE_RPS,
        "prompt_tokens": work.prompt_tokens.model_copy(update={"mean": PROMPT_TOKENS}),
        "output_tokens": work.output_tokens.model_copy(update={"mean": OUTPUT_TOKENS}),
    }
    spec = base.spec.model_copy(
        update={
            "pool_uri": pool_uri,
            "contract": SERVING_POOL,
            "workload": work.model_copy(update=tokens),
        }
    )
    path = folder / "bench-env.yaml"
    path.write_text(dump_text(base.model_copy(update={"spec": spec})))
    return path


def make_config(scenario: Path) -> EnvConfig:
    """Configuration of the same; windows inside."""
    space = EpisodeSpace(rate_ratio=(1.0, 1.0), prompt_factor=(1.0, 1.0), answer_factor=(1.0, 1.0))
    return EnvConfig(scenarios=(scenario,), horizon_s=HORIZON_S, space=space, detector=windows)


def windows(fleet: FleetSetup) -> Detector:  # noqa: ARG001 - windows need no fitting to a fleet
    """The detector of completed windows."""
    return WindowDetector()


def timed(function: Any, label: str, spent_s: dict[str, float]) -> Any:
    """``function``, whose CPU seconds are added to ``spent_s[label]``."""

    def called(*arguments: Any, **named: Any) -> Any:
        began = time.process_time()
        try:
            return function(*arguments, **named)
        finally:
            spent_s[label] += time.process_time() - began

    return called

"""Checks the inputs of the compiled engine, which checks no bounds of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.engine.layout import MAX_ATTEMPTS, MAX_BATCH
from simulator.engine.requests import RequestArrivals
from simulator.engine.spec import EngineEffect, EngineSpec


def require(fine: bool, name: str, expected: str, actual: object) -> None:
    """Raise ``ValueError`` unless ``fine``."""
    if not fine:
        raise ValueError(f"{name}: expected {expected}, got {actual}")


def require_index(values: NDArray[np.int64], size: int, name: str) -> None:
    """Raise ``ValueError`` unless all ``values`` lie in 0..size - 1."""
    if values.size:
        low, high = int(values.min()), int(values.max())
        require(low >= 0 and high < size, name, f"indices in 0..{size - 1}", f"{low}..{high}")


def check_spec(spec: EngineSpec) -> None:
    """Raise ``ValueError`` unless shapes agree and every number is usable."""
    k, s, r = spec.kernels, spec.slices, spec.replicas
    require(r > 0 and k > 0 and s > 0, "spec", "at least one replica, kernel and slice", (r, k, s))
    _check_kernels(spec)
    _check_slices(spec)
    require(s < 2**7 and r < 2**15, "spec", "fewer than 128 slices and 32768 replicas", (s, r))
    _check_quality(spec)
    require(bool((spec.timeout_s > 0.0).all()), "timeout_s", "numbers > 0", spec.timeout_s.tolist())
    _check_limits(spec)


def _check_kernels(spec: EngineSpec) -> None:
    """Check per-kernel settings: replicas, step model, request delay, KV blocks."""
    k, model, delays = spec.kernels, spec.step_model, spec.request_delay_s
    require_index(spec.replica_kernel, k, "replica_kernel")
    require(model.shape == (k, 4), "step_model", f"shape {(k, 4)}", model.shape)
    usable = bool(np.isfinite(model).all() and (model >= 0.0).all() and (model[:, 0] > 0.0).all())
    require(usable, "step_model", "finite numbers >= 0 with a base time > 0", model.tolist())
    usable = len(delays) in (0, k) and all(0.0 <= delay < np.inf for delay in delays)
    require(usable, "request_delay_s", f"{k} finite numbers >= 0, or none", delays)
    require(spec.kv_blocks.shape == (k,), "kv_blocks", f"shape {(k,)}", spec.kv_blocks.shape)


def _check_slices(spec: EngineSpec) -> None:
    """Check per-slice settings: SLOs by latency family, and whether clauses are hard."""
    s, objectives = spec.slices, (spec.slices, spec.families)
    require(spec.slo_ms.shape == objectives, "slo_ms", f"shape {objectives}", spec.slo_ms.shape)
    require(spec.hard_slices.shape == (s,), "hard_slices", f"shape {(s,)}", spec.hard_slices.shape)


def _check_quality(spec: EngineSpec) -> None:
    """Check the loss of every measured condition of a kernel on every prompt."""
    shape = spec.quality.shape
    whole = len(shape) == 3 and shape[0] == spec.kernels and 0 not in shape
    require(whole, "quality", f"shape ({spec.kernels}, conditions, prompts)", shape)
    require(shape[1] < 2**7, "quality", "fewer than 128 conditions", shape)
    require(bool(np.isfinite(spec.quality).all()), "quality", "finite numbers", "NaN or inf")


def _check_limits(spec: EngineSpec) -> None:
    """Check scalars of the spec, and that an empty replica of each kernel has blocks above the watermark."""
    require(1 <= spec.max_batch <= MAX_BATCH, "max_batch", f"1..{MAX_BATCH}", spec.max_batch)
    budget = spec.token_budget
    require(budget > spec.max_batch, "token_budget", f"more than max_batch {spec.max_batch}", budget)
    require(1 <= spec.max_attempts <= MAX_ATTEMPTS, "max_attempts", f"1..{MAX_ATTEMPTS}", spec.max_attempts)
    require(spec.queue_limit >= 1, "queue_limit", "a number >= 1", spec.queue_limit)
    for name, number in (("block_tokens", spec.block_tokens), ("session_slots", spec.session_slots)):
        require(number > 0 and number & (number - 1) == 0, name, "a power of two", number)
    require(spec.watermark_blocks >= 0, "watermark_blocks", "a number >= 0", spec.watermark_blocks)
    smallest = int(spec.kv_blocks.min())
    require(smallest > spec.watermark_blocks, "kv_blocks", f"more than {spec.watermark_blocks}", smallest)
    edges = np.asarray(spec.histogram_edges_ms)
    require(bool((np.diff(edges) > 0.0).all()), "histogram_edges_ms", "rising numbers", edges.tolist())


def check_arrivals(spec: EngineSpec, arrivals: RequestArrivals, *, after_s: float) -> None:
    """Raise ``ValueError`` for arrivals that are out of order, out of range or can never be served."""
    n = len(arrivals)
    if n == 0:
        return
    require(arrivals.uniforms.shape == (n, 4), "uniforms", f"shape {(n, 4)}", arrivals.uniforms.shape)
    in_unit = bool((arrivals.uniforms >= 0.0).all() and (arrivals.uniforms < 1.0).all())
    require(in_unit, "uniforms", "numbers in [0, 1)", "others")
    at_s = arrivals.arrived_at_s
    in_order = bool(at_s[0] >= after_s and (at_s[1:] >= at_s[:-1]).all() and np.isfinite(at_s[-1]))
    require(in_order, "arrived_at_s", f"rising finite numbers from {after_s}", f"{at_s[0]} .. {at_s[-1]}")
    require_index(arrivals.slice, spec.slices, "slice")
    require(int(arrivals.session.max()) < 2**31, "session", "numbers below 2**31", arrivals.session.max())
    require_index(arrivals.prompt, spec.quality.shape[2], "prompt")
    usable = bool((arrivals.prompt_tokens >= 1).all() and (arrivals.output_tokens >= 1).all())
    require(usable, "tokens", "at least 1 prompt and 1 output token", "less")
    require_tokens(spec, int((arrivals.prompt_tokens + arrivals.output_tokens).max()))


def require_tokens(spec: EngineSpec, longest: int) -> None:
    """Raise ``ValueError`` unless requests of ``longest`` tokens, prompt and output together, fit."""
    most = spec.prompt_and_output_tokens
    require(longest <= most, "tokens", f"at most {most} (KV cache of a replica)", longest)


def check_effect(spec: EngineSpec, effect: EngineEffect) -> None:
    """Raise ``ValueError`` for an effect with an unmeasured condition or an impossible speed."""
    conditions = spec.quality.shape[1]
    require(0 <= effect.condition < conditions, "condition", f"0..{conditions - 1}", effect.condition)
    places = spec.slices
    require(-1 <= effect.only_slice < places, "only_slice", f"-1..{places - 1}", effect.only_slice)
    for name in ("after_tokens", "min_batch"):
        number = getattr(effect, name)
        require(0 <= number < 2**15, name, "a number in 0..32767", number)
    factor = effect.step_time_factor
    require(0.0 < factor < np.inf, "step_time_factor", "a number > 0", factor)
    for name in ("step_extra_s", "http_latency_s"):
        number = getattr(effect, name)
        require(0.0 <= number < np.inf, name, "a number >= 0", number)
    for name in ("kv_held_ratio", "http_error_ratio"):
        number = getattr(effect, name)
        require(0.0 <= number <= 1.0, name, "a ratio in 0..1", number)

"""Shipped profiles as a server would show them: the most probable tokens alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from contracts.assess.samples import load_samples, save_samples
from contracts.documents import KernelProfile, Scenario
from contracts.documents.profile import ProfileSpec
from contracts.loading.loader import dump_text, load_as
from tests.support.paths import ROOT

LIBRARY = ROOT / "contracts" / "library"


def write_top_k_scenario(folder: Path, *, step_times: bool = True) -> Path:
    """The shipped scenario of silent requantisation over kernels that only ``top_k`` was measured of."""
    scenario = load_as(Scenario, LIBRARY / "scenarios" / "silent-requantise.yaml")
    pool = scenario.spec.pool
    assert pool is not None
    for kernel in pool.kernels:
        write_top_k_profile(folder, kernel.name, step_times=step_times)
    kernels = tuple(one.model_copy(update={"profile": f"{one.name}.yaml"}) for one in pool.kernels)
    update = {
        "pool": pool.model_copy(update={"kernels": kernels}),
        "contract": str(LIBRARY / "serving-pool-full-vocab.yaml"),
        "horizon_s": 300.0,
    }
    path = folder / "scenario.yaml"
    path.write_text(dump_text(scenario.model_copy(update={"spec": scenario.spec.model_copy(update=update)})))
    return path


def write_top_k_profile(folder: Path, name: str, *, step_times: bool = True) -> Path:
    """The shipped profile ``name`` without its full-vocabulary and sampled values."""
    shipped = LIBRARY / "profiles" / f"{name}.yaml"
    profile = load_as(KernelProfile, shipped)
    samples = load_samples(shipped.with_suffix(".npz"))
    values = samples.values.copy()
    hidden = [not column.endswith("@top_k") for column in samples.metric_names]
    values[:, :, :, hidden] = np.nan
    digest = save_samples(folder / f"{name}.npz", replace(samples, values=values))
    path = folder / f"{name}.yaml"
    spec = _of_top_k(profile.spec, shipped.parent, digest, step_times)
    path.write_text(dump_text(profile.model_copy(update={"spec": spec})))
    return path


def _of_top_k(spec: ProfileSpec, home: Path, digest: str, step_times: bool) -> ProfileSpec:
    conditions = tuple(
        one.model_copy(update={"measures": tuple(m for m in one.measures if m.estimator == "top_k")})
        for one in spec.conditions
    )
    update = {
        "conditions": conditions,
        "samples": spec.samples.model_copy(update={"sha256": digest}),
        "prompts": spec.prompts.model_copy(update={"uri": str(home / spec.prompts.uri)}),
        "step_time": spec.step_time if step_times else None,
    }
    log_probs = spec.reference.log_probs
    assert log_probs is not None
    pinned = log_probs.model_copy(update={"uri": str(home / log_probs.uri)})
    return spec.model_copy(
        update={**update, "reference": spec.reference.model_copy(update={"log_probs": pinned})}
    )

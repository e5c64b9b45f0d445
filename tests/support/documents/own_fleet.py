"""A user's own fleet: two kernels, slices "support" and "sql", a contract, a scenario."""

from __future__ import annotations

from pathlib import Path

from tests.support.documents.documents_written import envelope, write_yaml
from tests.support.fleets.synthetic import contract_document, pool_spec, scenario_document
from tests.support.fleets.synthetic_kernels import SyntheticKernel, write_profile

SLICES = ("support", "sql")
KERNELS = (
    SyntheticKernel(name="fast", drift_kl=6e-5, base_ms=3.0, role="serving", replicas=2, slices=SLICES),
    SyntheticKernel(name="careful", drift_kl=1e-6, base_ms=5.0, role="known_good", replicas=2, slices=SLICES),
)


def write_own_fleet(
    folder: Path, horizon_s: float = 60.0, kernels: tuple[SyntheticKernel, ...] = KERNELS
) -> Path:
    """Profiles, pool.yaml, contract.yaml and scenario.yaml in ``folder``; the scenario's path."""
    folder.mkdir(parents=True, exist_ok=True)
    for kernel in kernels:
        write_profile(folder, kernel)
    write_yaml(folder / "pool.yaml", envelope("KernelPool", "own-pool", pool_spec(kernels)))
    write_yaml(folder / "contract.yaml", contract_document("own-contract", kernels[0].slices))
    document = scenario_document(kernels=kernels, horizon_s=horizon_s, rate_rps=6.0)
    spec = document["spec"]
    assert isinstance(spec, dict)
    del spec["pool"]
    spec["pool_uri"] = "pool.yaml"
    return write_yaml(folder / "scenario.yaml", document)

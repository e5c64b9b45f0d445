"""Several profiles of one server, and what they say of its steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.documents.profile import StepTime
from contracts.errors import MeasurementError
from contracts.rng import stream
from live.measure.backend import StepPlan
from live.measure.request_steps import RequestKind, requests_of
from live.measure.step_agreement import step_agreement
from live.measure.step_model import fit_step_time
from scripts.cli.main import app
from tests.support.top_k_pools import write_top_k_profile

KINDS = requests_of(StepPlan(batches=(1, 4), contexts=(32, 128, 512), decode_steps=24))


def measured(seed: int, base_ms: float = 2.0, blocks: int = 4) -> StepTime:
    """A fit to requests of a server whose steps are known, with noise of 2 %."""
    rng = stream(seed, "agreement")

    def took(kind: RequestKind) -> float:
        p = kind.point(1.0)
        steps = p.steps or 1
        work = base_ms * steps + 0.02 * p.prefill_tokens + 0.3 * p.decode_sequences
        return float((work + 0.0005 * p.context_tokens + 1.0) * rng.normal(1.0, 0.02))

    return fit_step_time([kind.point(took(kind)) for _ in range(blocks) for kind in KINDS])


def test_fits_to_one_server_agree_and_to_another_one_do_not() -> None:
    """Three measurements of equal steps meet; one with a base half as long again contradicts them."""
    same = [measured(seed) for seed in (1, 2, 3)]
    assert step_agreement(same).agrees
    other = step_agreement([*same, measured(4, base_ms=3.0)])
    assert [one.name for one in other.coefficients if not one.agrees] == ["base_ms"]
    assert not other.agrees


def test_vague_predictions_do_not_agree() -> None:
    """Intervals so wide that they meet anyhow prove nothing."""
    vague = measured(1)
    assert vague.predictions is not None
    wide = tuple(p.model_copy(update={"half_width_ms": p.predicted_ms}) for p in vague.predictions)
    unsure = vague.model_copy(update={"predictions": wide})
    found = step_agreement([unsure, unsure])
    assert all(one.agrees for one in found.coefficients)
    assert not found.agrees


def test_profiles_that_say_nothing_of_their_uncertainty_are_refused(tmp_path: Path) -> None:
    """One alone cannot agree, and one without half-widths or without step times cannot be judged."""
    bare = measured(1).model_copy(update={"half_widths": None})
    for models in ([measured(1)], [measured(1), bare]):
        with pytest.raises(MeasurementError, match="half-widths"):
            step_agreement(models)
    path = write_top_k_profile(tmp_path, "bf16", step_times=False)
    done = CliRunner().invoke(app, ["profile", "agree", str(path), str(path)])
    assert done.exit_code == 2
    assert "--no-step-times" in done.stderr

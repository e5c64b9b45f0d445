"""Agreement of several profiles of one server on its step times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.documents import KernelProfile
from contracts.documents.serving_path import ServingPath
from contracts.documents.step_time import StepHalfWidths, StepTime
from contracts.errors import MeasurementError
from contracts.loading.loader import dump_text, load_as
from contracts.rng import stream
from live.measure.backend import StepPlan
from live.measure.steps.agreement import CAPACITY_SHARE, CapacityTerms, step_agreement
from live.measure.steps.model import fit_step_time
from live.measure.steps.timed_requests import RequestKind, requests_of
from scripts.cli.main import app
from tests.support.fleets.top_k_pools import write_top_k_profile

KINDS = requests_of(StepPlan(batches=(1, 4), contexts=(32, 128, 512), decode_steps=24))


def measured(seed: int, base_ms: float = 2.0, blocks: int = 4) -> StepTime:
    """A fit to requests of a server with known step times, with noise of 2 %."""
    rng = stream(seed, "agreement")

    def took(kind: RequestKind) -> float:
        p = kind.point(1.0)
        steps = p.steps or 1
        work = base_ms * steps + 0.02 * p.prefill_tokens + 0.3 * p.decode_sequences
        return float((work + 0.0005 * p.context_tokens + 1.0) * rng.normal(1.0, 0.02))

    return fit_step_time([kind.point(took(kind)) for _ in range(blocks) for kind in KINDS])


def test_fits_to_one_server_agree_and_to_another_one_do_not() -> None:
    """Three measurements of equal steps agree; one with a base half as long again contradicts them."""
    same = [measured(seed) for seed in (1, 2, 3)]
    assert step_agreement(same).agrees
    other = step_agreement([*same, measured(4, base_ms=3.0)])
    assert [one.name for one in other.coefficients if not one.agrees] == ["base_ms"]
    assert not other.agrees


def test_vague_predictions_do_not_agree() -> None:
    """Intervals so wide that they always overlap prove nothing."""
    vague = measured(1)
    assert vague.predictions is not None
    wide = tuple(p.model_copy(update={"half_width_ms": p.predicted_ms}) for p in vague.predictions)
    unsure = vague.model_copy(update={"predictions": wide})
    found = step_agreement([unsure, unsure])
    assert all(one.agrees for one in found.coefficients)
    assert not found.agrees


def certain(model: StepTime, factor: float = 1.0) -> StepTime:
    """``model`` with all of its times ``factor`` as long, and intervals that always overlap."""
    names = StepHalfWidths.model_fields
    times = {name: factor * getattr(model, name) for name in names}
    predictions = tuple(
        one.model_copy(
            update={"predicted_ms": factor * one.predicted_ms, "half_width_ms": 0.14 * one.predicted_ms}
        )
        for one in model.predictions or ()
    )
    wide = StepHalfWidths(**{name: 0.14 * getattr(model, name) for name in names})
    return model.model_copy(update=times | {"half_widths": wide, "predictions": predictions})


def test_predicted_step_times_that_contradict_each_other_do_not_agree() -> None:
    """Intervals of coefficients may overlap while those of a predicted step do not."""
    model = certain(measured(1))
    assert model.predictions is not None
    longer = tuple(
        one.model_copy(update={"predicted_ms": 1.5 * one.predicted_ms}) for one in model.predictions
    )
    found = step_agreement([model, model.model_copy(update={"predictions": longer})])
    assert all(one.agrees for one in found.coefficients)
    assert [one.agrees for one in found.predictions] == [False, False, False]
    assert not found.agrees


@pytest.mark.parametrize(("factor", "agrees"), [(1.08, True), (1.13, False)])
def test_capacity_must_agree_although_every_interval_meets(factor: float, agrees: bool) -> None:
    """Steps that last longer mean less capacity, and a difference above a tenth is a disagreement."""
    model = certain(measured(1))
    found = step_agreement([model, certain(model, factor)])
    assert all(one.agrees for one in (*found.coefficients, *found.predictions))
    assert found.capacity.apart == pytest.approx(factor - 1.0, rel=1e-6)
    assert found.agrees is agrees is (factor - 1.0 <= CAPACITY_SHARE)


def test_capacity_is_the_simulators_and_knows_the_serving_path() -> None:
    """The serving path's additional time reduces capacity, and counts if every profile has measured it."""
    model, path = certain(measured(1)), ServingPath(step_overhead_ms=2.0)
    bare, served, half = (step_agreement([model, model], one) for one in ([], [path, path], [path, None]))
    assert served.capacity.served
    assert served.capacity.carried_rps[0] < bare.capacity.carried_rps[0] == half.capacity.carried_rps[0]
    assert not half.capacity.served


@pytest.mark.parametrize("terms", [CapacityTerms(ttft_ms=0.1), CapacityTerms(inter_token_ms=0.1)])
def test_objectives_that_nothing_keeps_still_tell_kernels_apart(terms: CapacityTerms) -> None:
    """Objectives that no load keeps leave at most half of the steady state; slower kernels carry less."""
    model = certain(measured(1))
    slower = model.model_copy(update={"base_ms": 2.0 * model.base_ms})
    free, held = (step_agreement([model, slower], terms=one).capacity for one in (CapacityTerms(), terms))
    assert held.carried_rps[0] > held.carried_rps[1]
    assert 0.1 < held.carried_rps[0] / free.carried_rps[0] <= 0.5
    assert not held.agrees


def test_profiles_of_other_operating_points_are_refused() -> None:
    """Predictions of other steps, or none, cannot be compared; the message says what to do."""
    model = certain(measured(1))
    assert model.predictions is not None
    moved = (*model.predictions[:2], model.predictions[2].model_copy(update={"decode_sequences": 7}))
    for other in (moved, None):
        with pytest.raises(MeasurementError, match="--step-sequences"):
            step_agreement([model, model.model_copy(update={"predictions": other})])


def written(folder: Path, name: str, step: StepTime, **fingerprint: str) -> Path:
    """A profile file with these step times."""
    path = write_top_k_profile(folder, "bf16")
    document = load_as(KernelProfile, path)
    update = {"step_time": step, "fingerprint": document.spec.fingerprint.model_copy(update=fingerprint)}
    found = folder / f"{name}.yaml"
    made = document.model_copy(update={"spec": document.spec.model_copy(update=update)})
    found.write_text(dump_text(made))
    return found


def test_the_command_tells_every_number_and_its_exit_code_the_answer(tmp_path: Path) -> None:
    """Exit code 0 if all agree, 1 if something does not; the same figures as table and as JSON."""
    model = certain(measured(1))
    paths = [written(tmp_path, str(f), certain(model, f)) for f in (1.0, 1.05, 1.13)]
    same = CliRunner().invoke(app, ["profile", "agree", *map(str, paths[:2])])
    assert (same.exit_code, same.stdout.count("| yes |")) == (0, 8)
    done = CliRunner().invoke(app, ["profile", "agree", "--json", *map(str, paths)])
    told = json.loads(done.stdout)
    assert done.exit_code == 1
    assert [len(told["coefficients"]), len(told["predictions"]), len(told["half_width_shares"])] == [4, 3, 3]
    assert told["capacity"]["agrees"] is told["agrees"] is False


def test_other_builds_and_copies_are_refused(tmp_path: Path) -> None:
    """A profile of another build, and a copy of the same file, prove nothing about repeatability."""
    model = certain(measured(1))
    first, copy = written(tmp_path, "first", model), written(tmp_path, "copy", model)
    other = written(tmp_path, "other", certain(model, 1.01), dtype="float32")
    for second, told in ((copy, "a copy of"), (other, "the configuration of"), (first, "two or more")):
        done = CliRunner().invoke(app, ["profile", "agree", str(first), str(second)])
        assert done.exit_code == 2
        assert told in done.stderr


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

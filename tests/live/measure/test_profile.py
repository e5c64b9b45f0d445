"""The measuring loop on a fake engine: verification, negative control, undo, repeats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from contracts.assess.samples import SPLITS, load_samples
from contracts.documents.envelope import FileRef
from contracts.documents.profile import Fingerprint, KernelProfile
from contracts.documents.step_time import StepPoint
from contracts.errors import DocumentError, MeasurementError
from contracts.loading.loader import load_as
from contracts.metrics import COLUMN_NAMES
from contracts.rng import stream
from live.measure.backend import EngineFacts, FullScores, Scores, StepPlan
from live.measure.kernels import EngineOption, FaultDose, Kernel, Variable, slow_doses
from live.measure.measurement import KernelMeasurement, MeasurePlan
from live.measure.profile import KernelMeter
from live.measure.profile_writer import ProfileContext, write_profile
from live.measure.prompts import Prompt
from live.measure.reference import ReferenceScores

VOCABULARY, POSITIONS = 40, 6
KERNEL = Kernel(name="fake", description="arrays", float_bits=16)


def prompts() -> list[Prompt]:
    """Twelve prompts over two slices and three splits."""
    return [
        Prompt(
            id=i,
            slice=("code", "json")[i % 2],
            split=SPLITS[i % 3],
            document="",
            token_ids=tuple(range(i, i + POSITIONS + 1)),
            text="",
        )
        for i in range(12)
    ]


def logits() -> np.ndarray:
    """Reference logits, float32 [12, positions, vocabulary]."""
    return stream(1, "logits").normal(size=(12, POSITIONS, VOCABULARY)).astype(np.float32)


def reference() -> ReferenceScores:
    """The reference made of these logits."""
    rows = logits().reshape(-1, VOCABULARY)
    starts = np.arange(13, dtype=np.int64) * POSITIONS
    return ReferenceScores(rows=rows, starts=starts, sha256="0" * 64, versions=())


@dataclass
class FakeSession:
    """An engine whose scores are the reference plus a small fixed offset and the injected noise."""

    blind: bool = False
    leaky: bool = False
    touchy: bool = False
    nan: bool = False
    noise: float = 0.0
    factor: float = 1.0
    residue: float = field(default=0.0)
    facts: EngineFacts = field(
        default_factory=lambda: EngineFacts(
            fingerprint=Fingerprint(engine="fake", engine_version="1", dtype="float32"),
            weights_bytes=10,
            kv_bytes_per_token=1,
            vocabulary=VOCABULARY,
        )
    )

    def score(self, asked: Sequence[Prompt]) -> Iterator[Scores]:
        offset = stream(2, "offset").normal(size=(12, POSITIONS, VOCABULARY)) * (1e-3 + self.noise)
        values = (logits() + offset).astype(np.float32)
        if self.nan and self.noise:
            values[0, 0, 0] = np.nan
        for prompt in asked:
            yield FullScores(log_probs=values[prompt.id])

    def time_steps(self, plan: StepPlan) -> list[StepPoint]:
        return [
            StepPoint(
                prefill_tokens=p,
                decode_sequences=d,
                context_tokens=d * k,
                measured_ms=self.factor * (1 + p + d + d * k),
            )
            for p, d, k in ((32, 0, 0), (64, 0, 0), *((0, b, k) for b in plan.batches for k in (16, 32)))
        ]

    def canary(self) -> str:
        return str(self.residue + (0.0 if self.blind else self.noise))

    def inject(self, dose: FaultDose) -> None:
        if dose.numeric:
            self.noise = float(dose.arguments[0])
            self.residue += 1e-9 if self.touchy else 0.0
        else:
            self.factor = float(dose.arguments[0])

    def undo(self) -> None:
        self.residue += 1e-6 if self.leaky and self.noise else 0.0
        self.noise, self.factor = 0.0, 1.0

    def peak_bytes(self) -> int:
        return 100


@dataclass
class FakeBackend:
    session: FakeSession
    name: str = "fake"
    kernels: tuple[Kernel, ...] = (KERNEL,)

    @contextmanager
    def start(
        self,
        kernel: Kernel,
        *,
        environment: tuple[Variable, ...] = (),
        options: tuple[EngineOption, ...] = (),
    ) -> Iterator[FakeSession]:
        assert kernel is KERNEL
        assert not environment
        assert not options
        yield self.session


def noise_dose(size: float) -> FaultDose:
    """Noise of ``size`` in the fake engine's scores."""
    return FaultDose(
        name=f"noise-{size}", kind="noise", method="m", arguments=(size,), setting=size, unit="sd"
    )


def measure(session: FakeSession, *doses: FaultDose) -> KernelMeasurement:
    """The measurement of the fake kernel under ``doses``."""
    meter = KernelMeter(FakeBackend(session), prompts(), reference(), lambda _: None)
    return meter.measure(KERNEL, MeasurePlan(doses=doses))


def test_drift_grows_with_the_dose_and_the_healthy_state_returns() -> None:
    """Each dose is verified, larger doses drift further, and the last healthy repeat equals the first."""
    measured = measure(FakeSession(), noise_dose(0.01), noise_dose(0.1), *slow_doses())
    column = COLUMN_NAMES.index("kl_mean@full_vocab")
    drift = {c.name: float(c.values[:, :, column].mean()) for c in measured.conditions}
    assert drift["healthy"] < drift["noise-0.01"] < drift["noise-0.1"]
    assert drift["slow-2x"] == drift["healthy"]
    assert all(condition.verified and condition.restored for condition in measured.conditions)
    healthy = measured.conditions[0].values
    assert np.array_equal(healthy[:, 0], healthy[:, 1])
    assert any("bit-identical" in note for note in measured.notes)
    factors = {c.name: c.step_time_factor for c in measured.conditions}
    assert factors["slow-4x"] == pytest.approx(4.0)


def test_an_injection_that_the_canary_does_not_see_is_left_out() -> None:
    """A dose counts only when the functional canary confirms it, and the profile says what is missing."""
    measured = measure(FakeSession(blind=True), noise_dose(0.1))
    assert [condition.name for condition in measured.conditions] == ["healthy"]
    assert any("did not confirm" in note for note in measured.notes)


def test_an_undo_that_leaves_a_trace_stops_the_measurement() -> None:
    """A canary that does not return to its healthy value is an error, not a profile."""
    with pytest.raises(MeasurementError, match="did not return"):
        measure(FakeSession(leaky=True), noise_dose(0.1))


def test_the_negative_control_must_not_change_the_canary() -> None:
    """An injection of size zero that changes the kernel stops the measurement."""
    with pytest.raises(MeasurementError, match="size 0"):
        measure(FakeSession(touchy=True), noise_dose(0.1))


def test_not_finite_scores_are_left_out_with_a_note() -> None:
    """A dose under which the engine answers NaN is no condition, and the note says so."""
    measured = measure(FakeSession(nan=True), noise_dose(0.1))
    assert [condition.name for condition in measured.conditions] == ["healthy"]
    assert any("not finite" in note for note in measured.notes)


def test_a_written_profile_reads_back_and_pins_its_samples(tmp_path: Path) -> None:
    """The document loads, its hashes fit the files, and changed samples are refused."""
    context = ProfileContext(
        model_name="fake",
        model_sha256="1" * 64,
        reference_sha256="0" * 64,
        golden=FileRef(uri="reference.npz", sha256="3" * 64),
        prompts_uri="prompts.jsonl",
        prompts_sha256="2" * 64,
        command="selvage profile",
        versions=(("python", "3"),),
        seed=0,
        date="2026-01-01",
    )
    path = write_profile(tmp_path, measure(FakeSession(), noise_dose(0.1)), prompts(), context)
    document = load_as(KernelProfile, path)
    samples = load_samples(tmp_path / document.spec.samples.uri, document.spec.samples.sha256)
    assert samples.condition_names == ("healthy", "noise-0.1")
    measures = {
        (m.slice, m.metric): m for m in document.spec.conditions[0].measures if m.estimator != "top_k"
    }
    rows = samples.rows("certify", "code")
    expected = samples.prompt_values("kl_mean@full_vocab", "healthy", rows).mean()
    assert measures["code", "kl_mean"].mean == pytest.approx(expected, rel=1e-5)
    damaged = bytearray((tmp_path / "fake.npz").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "fake.npz").write_bytes(bytes(damaged))
    with pytest.raises(DocumentError, match="sha256"):
        load_samples(tmp_path / "fake.npz", document.spec.samples.sha256)

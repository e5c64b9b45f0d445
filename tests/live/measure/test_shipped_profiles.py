"""The shipped profiles, prompts and reference model are complete, pinned and consistent."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from contracts.assess.samples import SPLITS, KernelSamples, load_samples
from contracts.assess.verdicts import ContractVerdict
from contracts.documents.profile import Condition, KernelProfile
from contracts.errors import DocumentError
from contracts.loading.loader import load_as
from contracts.loading.uris import read_pinned, resolve_uri
from contracts.metrics import COLUMN_NAMES, METRICS
from live.measure.checkpoint import SHIPPED_MODEL, checkpoint_sha256
from live.measure.drift_table import drift_page
from live.measure.prompts import SHIPPED_PROMPTS, load_prompts
from selvage_fleet.documents import judge
from tests.support.paths import DOCS

FOLDER = SHIPPED_PROMPTS.parent
FILES = sorted(FOLDER.glob("*.yaml"))
GPU_FOLDER = FOLDER.with_name("gpu-profiles")
GPU_FILES = sorted(GPU_FOLDER.glob("*.yaml"))
EVERY = [*FILES, *GPU_FILES]
SLICES = {"code", "prose", "json", "numbers", "long_context"}


@cache
def profile_at(path: Path) -> KernelProfile:
    """The document at ``path``."""
    return load_as(KernelProfile, path)


@cache
def samples_of(path: Path) -> KernelSamples:
    """The samples that the document at ``path`` pins."""
    pinned = profile_at(path).spec.samples
    return load_samples(resolve_uri(pinned.uri, path), pinned.sha256)


def condition(path: Path, name: str) -> Condition:
    """Condition ``name`` of the document at ``path``."""
    return next(one for one in profile_at(path).spec.conditions if one.name == name)


def mean_kl(path: Path, name: str) -> float:
    """Mean KL over all prompts of condition ``name``."""
    samples = samples_of(path)
    column = samples.metric_names.index("kl_mean@full_vocab")
    return float(samples.values[samples.condition(name), :, :, column].mean())


def test_at_least_six_kernels_differ_numerically() -> None:
    """The shipped kernels make a ladder: six or more with different healthy log-probabilities."""
    assert len({mean_kl(path, "healthy") for path in FILES}) >= 6


@pytest.mark.parametrize("path", EVERY, ids=[path.stem for path in EVERY])
def test_a_profile_is_complete_and_pinned(path: Path) -> None:
    """Hashes fit, splits are disjoint, every slice is measured, every condition verified and undone."""
    spec = profile_at(path).spec
    samples = samples_of(path)
    read_pinned(spec.prompts, path)
    assert spec.reference.log_probs is not None
    read_pinned(spec.reference.log_probs, path)
    assert path.stat().st_size < 256 * 1024
    assert samples.condition_names == tuple(one.name for one in spec.conditions)
    assert samples.metric_names == COLUMN_NAMES
    assert set(samples.slices) == SLICES
    assert {(s, p) for s, p in zip(samples.prompt_slice, samples.prompt_split, strict=True)} == {
        (name, split) for name in SLICES for split in SPLITS
    }
    assert spec.conditions[0].name == "healthy"
    assert all(one.verified and one.restored_bit_exact for one in spec.conditions)
    if spec.step_time is None:
        assert "--no-step-times" in spec.provenance.command
    else:
        assert spec.step_time.relative_error < 0.25
    assert spec.provenance.model_sha256 == checkpoint_sha256(SHIPPED_MODEL)
    assert spec.not_measured
    assert set(spec.not_measured) <= set(METRICS)


@pytest.mark.parametrize("folder", [FOLDER, GPU_FOLDER], ids=["cpu", "gpu"])
def test_the_reference_file_covers_every_golden_token(folder: Path) -> None:
    """One row per position of every prompt; the best ten fall, and a golden token among them agrees."""
    prompts = load_prompts(SHIPPED_PROMPTS)
    with np.load(folder / "reference.npz", allow_pickle=False) as file:
        starts, ids, best = file["starts"], file["top_ids"], file["top_log_probs"]
        token, order = file["token_log_probs"], file["prompt_ids"]
    assert order.tolist() == [prompt.id for prompt in prompts]
    assert np.diff(starts).tolist() == [prompt.positions for prompt in prompts]
    assert (np.diff(best, axis=1) <= 0.0).all()
    assert (np.exp(best.astype(np.float64)).sum(axis=1) <= 1.0 + 1e-6).all()
    golden = np.concatenate([prompt.token_ids[1:] for prompt in prompts])
    among = ids == golden[:, None]
    assert np.array_equal(best[among], token[among.any(axis=1)])
    assert 0.2 < among[:, 0].mean() < 1.0


@pytest.mark.parametrize("path", EVERY, ids=[path.stem for path in EVERY])
def test_quantiles_of_the_document_are_those_of_the_samples(path: Path) -> None:
    """The document's numbers follow from the samples alone."""
    samples = samples_of(path)
    for one in profile_at(path).spec.conditions:
        for measure in one.measures:
            column = f"{measure.metric}@{measure.estimator}"
            values = samples.prompt_values(column, one.name, samples.rows("certify", measure.slice))
            values = values[~np.isnan(values)]
            assert measure.n == values.size
            assert measure.mean == pytest.approx(values.mean(), rel=1e-4, abs=1e-12)
            assert measure.p95 == pytest.approx(np.quantile(values, 0.95), rel=1e-4, abs=1e-12)


def test_requantising_drifts_further_with_every_bit() -> None:
    """On the bf16 kernel KL grows from healthy through 8, 6, 5 and 4 to 3 bits, on every split."""
    path = FOLDER / "bf16.yaml"
    ladder = ["healthy", *(f"requantise-w{bits}" for bits in (8, 6, 5, 4, 3))]
    drifts = [mean_kl(path, name) for name in ladder]
    assert drifts == sorted(drifts)
    assert drifts[4] > 20 * drifts[0]


def test_the_int8_kernel_drifts_on_a_host_without_vnni() -> None:
    """Same weights, flags and fingerprint, at least twice the KL."""
    path = FOLDER / "w8a8.yaml"
    assert mean_kl(path, "isa-no-vnni") > 2 * mean_kl(path, "healthy")
    assert any("isa-no-vnni: fingerprint equal" in note for note in profile_at(path).spec.notes)


def test_slowed_steps_change_time_and_nothing_else() -> None:
    """Slow conditions have factors in the order of their doses and the healthy values."""
    path = FOLDER / "bf16.yaml"
    samples = samples_of(path)
    factors = [condition(path, f"slow-{dose}x").step_time_factor for dose in ("1.5", "2", "4")]
    assert 1.0 < factors[0] < factors[1] < factors[2]
    healthy = samples.values[samples.condition("healthy")]
    assert np.array_equal(samples.values[samples.condition("slow-4x")], healthy, equal_nan=True)


def test_repeats_are_what_the_notes_say() -> None:
    """If a profile says that repeats were bit-identical, its samples are."""
    for path in EVERY:
        notes = " ".join(profile_at(path).spec.notes)
        values = samples_of(path).values
        same = np.array_equal(values[:, :, :1], values[:, :, 1:2], equal_nan=True)
        assert same == ("were bit-identical" in notes), path.stem


def test_a_graphics_card_and_a_processor_agree_on_the_reference() -> None:
    """The float32 references of both differ by rounding alone, below the drift of any other kernel."""
    with np.load(FOLDER / "reference.npz") as cpu, np.load(GPU_FOLDER / "reference.npz") as gpu:
        assert np.array_equal(cpu["top_ids"][:, 0], gpu["top_ids"][:, 0])
        assert float(np.abs(cpu["token_log_probs"] - gpu["token_log_probs"]).max()) < 1e-4


def test_the_contract_judges_kernels_of_a_graphics_card_as_those_of_a_processor() -> None:
    """Thresholds derived on a CPU: each GPU kernel breaks them where its CPU counterpart does."""
    like = {"torch-fp8-row": "fp8", "torch-fp8-tensor": "fp8", "torch-w8a8": "w8a8", "torch-w4a16": "w4a16"}

    def broken(path: Path) -> bool:
        evaluation = judge("package:contracts/library/serving-generation.yaml", path)
        return evaluation.verdict is ContractVerdict.FAIL

    for path in GPU_FILES:
        dtype = path.stem.removeprefix("torch-")[:4]
        plain = dtype if dtype in ("bf16", "fp16", "fp32") else "fp32"
        assert broken(path) == broken(FOLDER / f"{like.get(path.stem, plain)}.yaml"), path.stem
    assert {path.stem for path in GPU_FILES if broken(path)} == set(like) - {"torch-w8a8"}


def test_a_corrupt_profile_is_refused(tmp_path: Path) -> None:
    """A document without its conditions, or with changed samples, is not loaded."""
    text = FILES[0].read_text()
    broken = tmp_path / FILES[0].name
    broken.write_text(text.replace("kind: KernelProfile", "kind: KernelProfil"))
    with pytest.raises(DocumentError, match="kind"):
        load_as(KernelProfile, broken)
    broken.write_text(text.replace("verified: true", "verified: 1", 1))
    with pytest.raises(DocumentError, match="verified"):
        load_as(KernelProfile, broken)
    other = tmp_path / "other.npz"
    other.write_bytes(b"PK\x03\x04nothing")
    with pytest.raises(DocumentError, match="sha256"):
        load_samples(other, profile_at(FILES[0]).spec.samples.sha256)


def test_shipped_data_is_small() -> None:
    """All samples stay under 8 MB, the model under 10 MB."""
    assert sum(path.stat().st_size for path in FOLDER.glob("*.npz")) < 8 * 2**20
    assert sum(path.stat().st_size for path in SHIPPED_MODEL.iterdir()) < 10 * 2**20


def test_the_training_record_pins_the_model() -> None:
    """Each file named in ``training.json`` has the recorded hash, and no slice is untrained."""
    record = json.loads((SHIPPED_MODEL / "training.json").read_text())
    for name, digest in record["files_sha256"].items():
        assert hashlib.sha256((SHIPPED_MODEL / name).read_bytes()).hexdigest() == digest
    untrained = float(np.log(record["plan"]["vocabulary"]))
    assert all(loss < 0.6 * untrained for loss in record["held_out_loss_nats"].values())


def test_the_drift_page_is_current() -> None:
    """``docs/drift.md`` and ``drift-gpu.md`` are what ``selvage profile table --page`` prints."""
    for page, files in (("drift.md", FILES), ("drift-gpu.md", GPU_FILES)):
        folder = f"contracts/library/{files[0].parent.name}"
        assert (DOCS / page).read_text() == drift_page([profile_at(path) for path in files], folder), page


def test_golden_prompts_are_those_the_profiles_were_measured_on() -> None:
    """Ids, slices and splits of the prompts file are those of every samples file."""
    prompts = load_prompts(SHIPPED_PROMPTS)
    for path in FILES:
        samples = samples_of(path)
        assert samples.prompt_ids.tolist() == [prompt.id for prompt in prompts]
        assert samples.prompt_slice == tuple(prompt.slice for prompt in prompts)
        assert samples.prompt_split == tuple(prompt.split for prompt in prompts)

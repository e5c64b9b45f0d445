"""Reference servers, and references kept between runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from contracts.errors import DocumentError, MeasurementError, MissingPartError
from contracts.metrics import COLUMN_NAMES
from live.measure.backend import FullScores, TopScores, top_values
from live.measure.backends.openai_backend import OpenaiBackend
from live.measure.checkpoint import SHIPPED_MODEL
from live.measure.measurement import MeasurePlan, ServerCondition
from live.measure.profile import KernelMeter
from live.measure.reference import TopReference, _network, measure_top_reference, require_torch
from live.measure.reference_store import golden_bytes, stored_top_reference
from tests.support.servers.bigram_server import TABLE, FakeServer, prompts, reached, reference

KL, FLIP = COLUMN_NAMES.index("kl_mean@top_k"), COLUMN_NAMES.index("top1_flip@top_k")


def of_server(server: FakeServer) -> TopReference:
    """A reference server's answers to the prompts."""
    return measure_top_reference(OpenaiBackend(reached(server)), prompts())


def measured(drift: float) -> np.ndarray:
    """Healthy values [prompts, repeats, columns] of a server against a reference server without drift."""
    backend = OpenaiBackend(reached(FakeServer(drift=drift)))
    meter = KernelMeter(backend, prompts(), of_server(FakeServer()), lambda _: None)
    return meter.measure(backend.kernels[0], MeasurePlan(steps=None)).conditions[0].values


def test_a_server_against_itself_shows_no_drift() -> None:
    """The same lists on both sides: zero divergence, no flips, and no column of the full vocabulary."""
    values = measured(0.0)
    assert np.abs(values[:, :, KL]).max() < 1e-12
    assert values[:, :, FLIP].max() == 0.0
    assert np.isnan(values[:, :, COLUMN_NAMES.index("kl_mean@full_vocab")]).all()


def test_two_lists_bound_what_one_list_shows() -> None:
    """Tokens missing from the reference's list are pooled: no more divergence than with all of them."""
    backend = OpenaiBackend(reached(FakeServer(drift=0.4)))
    full = reference()
    with backend.start(backend.kernels[0]) as session:
        for index, scores in enumerate(session.score(prompts())):
            both = top_values(of_server(FakeServer()).of(index), scores)
            exact = top_values(full.of(index), scores)
            assert 0.0 < both[KL] <= exact[KL] + 1e-6
            assert both[FLIP] == exact[FLIP]


def test_a_kernel_with_every_token_is_compared_on_the_references_list() -> None:
    """Full scores against a reference server: a lower bound of the exact divergence."""
    rows = reference().of(0)
    drifted = rows + np.linspace(0.0, 0.3, rows.shape[1], dtype=np.float32)
    drifted -= np.log(np.exp(drifted).sum(axis=1, keepdims=True))
    exact = float((np.exp(rows) * (rows - drifted)).sum(axis=1).mean())
    found = top_values(of_server(FakeServer()).of(0), FullScores(log_probs=drifted))
    assert 0.0 < found[KL] <= exact + 1e-6


def test_a_stored_reference_is_the_measured_one(tmp_path: Path) -> None:
    """Values from the store are equal in every number, and the server is not asked again."""
    backend = OpenaiBackend(reached(FakeServer()))
    asked: list[int] = []
    first = stored_top_reference(tmp_path, backend, prompts(), on_prompt=lambda: asked.append(1))
    again = stored_top_reference(tmp_path, backend, prompts(), on_prompt=lambda: asked.append(1))
    assert len(asked) == len(prompts())
    assert golden_bytes(prompts(), first) == golden_bytes(prompts(), again)
    assert (first.sha256, first.versions) == (again.sha256, again.versions)


def test_another_prompt_list_has_another_reference(tmp_path: Path) -> None:
    """A store keeps references separately by their prompts; a damaged file is refused by its name."""
    backend = OpenaiBackend(reached(FakeServer()))
    for some in (prompts(), prompts()[:3]):
        stored_top_reference(tmp_path, backend, some, on_prompt=lambda: None)
    kept = sorted(tmp_path.iterdir())
    assert len(kept) == 2
    for path in kept:
        path.write_bytes(b"damaged")
    with pytest.raises(DocumentError, match="delete it"):
        stored_top_reference(tmp_path, backend, prompts(), on_prompt=lambda: None)


def test_a_reference_of_other_prompts_is_refused(tmp_path: Path) -> None:
    """A file under another reference's name is refused, whatever it holds."""
    backend, every = OpenaiBackend(reached(FakeServer())), prompts()
    stored_top_reference(tmp_path, backend, every[:3], on_prompt=lambda: None)
    (other,) = tmp_path.iterdir()
    stored_top_reference(tmp_path, backend, every, on_prompt=lambda: None)
    for path in tmp_path.iterdir():
        path.write_bytes(other.read_bytes())
    with pytest.raises(DocumentError, match="positions of other prompts"):
        stored_top_reference(tmp_path, backend, every, on_prompt=lambda: None)


def test_a_reference_without_the_prompts_own_tokens_is_refused() -> None:
    """Probes are checked by the golden token's log-probability, so it must be there."""
    with pytest.raises(MeasurementError, match="leaves out"):
        of_server(FakeServer(own=False))


def test_another_server_is_a_condition_of_the_kernel() -> None:
    """A server with other answers is a measured dose; one with equal answers is left out, and reported."""
    backend = OpenaiBackend(reached(FakeServer()))
    meter = KernelMeter(backend, prompts(), reference(), lambda _: None)
    servers = tuple(
        ServerCondition(name=name, endpoint=reached(FakeServer(drift=drift)))
        for name, drift in (("worse", 0.5), ("alike", 0.0))
    )
    found = meter.measure(backend.kernels[0], MeasurePlan(steps=None, servers=servers))
    assert [one.name for one in found.conditions] == ["healthy", "worse"]
    assert found.conditions[1].fault == "kernel_regression"
    assert found.conditions[1].values[:, :, KL].mean() > found.conditions[0].values[:, :, KL].mean()
    assert any(note.startswith("alike:") for note in found.notes)


def test_golden_values_are_the_servers_own() -> None:
    """The file holds the log-probability of each prompt's own next token."""
    found = of_server(FakeServer())
    for prompt, scores in zip(prompts(), found.scores, strict=True):
        exact = TABLE[list(prompt.token_ids[:-1]), list(prompt.token_ids[1:])]
        assert scores.golden == pytest.approx(exact)
    cut = replace(found, scores=tuple(_without_golden(one) for one in found.scores))
    assert golden_bytes(prompts(), found) != golden_bytes(prompts(), cut)


def _without_golden(scores: TopScores) -> TopScores:
    return replace(scores, golden=np.full_like(scores.golden, np.nan))


class Loader:
    """Replaces transformers' model classes: records its arguments, or lacks a part."""

    def __init__(self, lacking: str = "") -> None:
        self.lacking = lacking
        self.asked: dict[str, object] = {}
        self.AutoModelForCausalLM = self
        bars = {"is_progress_bar_enabled": lambda: False, "disable_progress_bar": lambda: None}
        self.utils = SimpleNamespace(logging=SimpleNamespace(**bars))

    def from_pretrained(self, model: str, **options: object) -> Loader:
        """The model itself."""
        if self.lacking:
            raise ImportError(self.lacking)
        self.asked = {"model": model, **options}
        return self

    def eval(self) -> Loader:
        """Ready to score."""
        return self


@pytest.mark.needs("torch")
def test_layers_are_spread_as_asked() -> None:
    """The device map goes to the loader, in float32; without the part that spreads, the remedy is named."""
    import torch

    loader = Loader()
    assert _network(torch, loader, Path("m"), "auto") is loader
    assert loader.asked == {"model": "m", "dtype": torch.float32, "device_map": "auto"}
    with pytest.raises(MissingPartError, match="pip install accelerate"):
        _network(torch, Loader("no accelerate"), Path("m"), "auto")


@pytest.mark.needs("torch", "transformers")
def test_loading_a_model_draws_no_bar(capfd: pytest.CaptureFixture[str]) -> None:
    """Progress on standard error comes from the command alone; other progress bars come back afterwards."""
    torch, transformers = require_torch()
    before = transformers.utils.logging.is_progress_bar_enabled()
    _network(torch, transformers, SHIPPED_MODEL, "")
    assert capfd.readouterr().err == ""
    assert transformers.utils.logging.is_progress_bar_enabled() == before

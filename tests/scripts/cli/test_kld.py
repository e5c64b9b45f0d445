"""``selvage kld`` on a fake server: table, JSON, exit codes, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from contracts.errors import DocumentError
from live.measure import endpoint as reaching
from live.measure.prompts import dump_prompts
from scripts.cli.main import app
from tests.support.paths import ROOT
from tests.support.servers.bigram_server import prompts
from tests.support.servers.kld_server import KldFake, stored


def kld(*words: str) -> tuple[int, str]:
    """Exit code and standard output."""
    done = CliRunner().invoke(app, ["kld", *words])
    return done.exit_code, done.stdout + (done.stderr if done.exit_code == 2 else "")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A folder that is accepted as a checkpoint of the bigram model, with the prompts beside it."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": 60, "max_position_embeddings": 64}))
    (folder / "weights.safetensors").write_bytes(b"")
    tokens = {"a": 0}
    (folder / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "model": {"type": "WordLevel", "vocab": tokens, "unk_token": "a"}})
    )
    (tmp_path / "prompts.jsonl").write_text(dump_prompts(prompts()))
    return folder


def words(tmp_path: Path, *more: str) -> tuple[str, ...]:
    """A comparison on the fake server against the stored rows."""
    own = ("--prompts", str(tmp_path / "prompts.jsonl"), "--positions", "0")
    reference = ("--reference", str(tmp_path / "bigrams.f32"))
    return ("http://127.0.0.1:9", "--model", str(tmp_path / "model"), *own, *reference, *more)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkpoint: Path) -> KldFake:
    """Every client of an endpoint reaches this one."""
    fake = KldFake(drift=0.3, folder=tmp_path)
    stored(tmp_path)
    client = reaching.Endpoint.client

    def faked(self: reaching.Endpoint) -> httpx.Client:
        made = client(self)
        return httpx.Client(base_url=self.base, headers=made.headers, transport=httpx.MockTransport(fake))

    monkeypatch.setattr(reaching.Endpoint, "client", faked)
    return fake


def test_the_table_and_the_json_tell_the_same(server: KldFake, tmp_path: Path) -> None:
    """Figures with limits, the route used, and no verdict without a contract."""
    code, said = kld(*words(tmp_path))
    assert code == 0
    for heading in ("Mean KLD", "99.9% KLD", "Same top p", "RMS dp", "PPL ratio", "Route reduced"):
        assert heading in said
    code, said = kld(*words(tmp_path, "--json", "--out", str(tmp_path / "out.json")))
    told = json.loads(said)
    assert (code, told["route"], told["evaluation"]) == (0, "reduced", None)
    figures = told["slices"][0]["figures"]
    assert figures["kld_mean"]["low"] <= figures["kld_mean"]["value"] <= figures["kld_mean"]["high"]
    assert figures["kld_max"]["low"] is None
    assert json.loads((tmp_path / "out.json").read_text())["reference_sha256"] == told["reference_sha256"]


def test_the_public_route_says_that_it_bounds(server: KldFake, tmp_path: Path) -> None:
    """Lower bounds are marked as such, with the reason below."""
    server.unfit = "no such runner"
    code, said = kld(*words(tmp_path))
    assert code == 0
    assert "Mean KLD, nats ≥" in said
    assert "Mean TV at most" in said
    assert "Route public" in said
    assert "no such runner" in said


@pytest.mark.parametrize(("drift", "code"), [(3.0, 1), (0.0, 3)])
def test_the_exit_code_is_the_gate_s(drift: float, code: int, server: KldFake, tmp_path: Path) -> None:
    """A server with a large difference fails; six prompts of a nearly equal one are too few to pass."""
    server.drift = drift
    contract = str(ROOT / "contracts" / "library" / "minimal-train-infer.yaml")
    found, said = kld(*words(tmp_path, "--contract", contract, "--json"))
    assert found == code, said
    outcome = {1: "Failed", 3: "Inconclusive"}[code]
    assert json.loads(said)["evaluation"]["outcome"] == outcome


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--route", "fast"), "--route: expected one of reduced, rows, public"),
        (("--reference", "nowhere"), "--reference: expected torch"),
        (("--contract", "nowhere.yaml"), "nowhere.yaml"),
        (("--api-key-env", "SELVAGE_NO_SUCH_KEY"), "SELVAGE_NO_SUCH_KEY is not set"),
        (("--plugin-token-file", "nowhere"), "nowhere"),
        (("--waive", "nonsense"), "--waive"),
    ],
)
def test_bad_input_exits_2_and_says_where(
    more: tuple[str, ...], said: str, server: KldFake, tmp_path: Path
) -> None:
    """Before anything is measured."""
    code, printed = kld(*words(tmp_path, *more))
    assert code == 2
    assert said in printed
    assert "/selvage/kld/reduce" not in server.asked


def test_without_a_server_it_asks_for_one() -> None:
    """It is not guessed."""
    code, printed = kld()
    assert (code, "ENDPOINT: expected the URL" in printed) == (2, True)
    with pytest.raises(DocumentError):
        reaching.Endpoint(url="")


def test_stage_prints_what_a_server_s_start_needs(tmp_path: Path) -> None:
    """Shell lines on stdout, and the token's file below the folder."""
    code, printed = kld("--stage", str(tmp_path / "here"))
    assert code == 0
    assert "export SELVAGE_KLD=1" in printed
    assert "export VLLM_PLUGINS=" in printed
    assert (tmp_path / "here" / "token").is_file()

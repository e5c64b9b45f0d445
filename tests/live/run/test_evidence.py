"""Evidence of an incident, and the bundle made of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from live.control.chain import read_chain
from live.control.journal import Beginning, DecisionLog
from live.control.loop import ControlPorts, LiveController
from live.measure.backend import TopScores
from live.measure.endpoint import Endpoint
from live.measure.prompts import Prompt
from live.run.evidence import (
    EVIDENCE,
    DescribedReplica,
    IncidentEvidence,
    ReferenceAnswer,
    read_logprobs,
    worst,
)
from policies.registry import make_configuration
from scripts.cli.main import app
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.fakes import ManualClock, RecordingActuator, ScriptedTelemetry
from tests.support.fleets.worlds import drift, script

LAYOUT = make_layout(kernels=2, slices=1, per_kernel=2)
SETUP = make_configuration("hysteresis", make_fleet(LAYOUT))
PROMPT = Prompt(id=0, slice="s0", split="probe", document="d", token_ids=(1, 7, 9), text="")
FLAGS = ["--dtype", "float16"]


def scores(*rows: dict[int, float]) -> TopScores:
    """Rows in the form of the reference."""
    return TopScores(
        token_ids=np.array([list(row) for row in rows]),
        log_probs=np.array([list(row.values()) for row in rows]),
        golden=np.zeros(len(rows)),
    )


REST = {token: -9.0 - token for token in range(10, 28)}
REFERENCE = scores({7: -0.1, 8: -2.4}, {9: -0.2, 8: -1.8})


class Server:
    """A server with a given answer to probes; records the requests."""

    def __init__(self, answer: object) -> None:
        self.asked: list[dict[str, Any]] = []
        self._answer = answer

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """One answer."""
        self.asked.append(json.loads(request.content))
        return httpx.Response(200, json=self._answer)

    @property
    def endpoint(self) -> Endpoint:
        """Its endpoint."""
        return Endpoint(url="http://127.0.0.1:9", model="m", transport=httpx.MockTransport(self))


def row(**tokens: float) -> dict[str, dict[str, float]]:
    """One position of an answer: token number after the letter t."""
    return {name[1:]: {"logprob": value} for name, value in tokens.items()}


REST_ROW = {str(token): {"logprob": value} for token, value in REST.items()}
ROWS = [row(t7=-0.9, t8=-1.0) | REST_ROW, row(t9=-0.2, t8=-1.8) | REST_ROW]
GOOD = {"choices": [{"prompt_logprobs": [None, *ROWS]}]}


class Every(dict[int, ReferenceAnswer]):
    """The same golden prompt under every number."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: int) -> ReferenceAnswer:
        return ReferenceAnswer(prompt=PROMPT, reference=REFERENCE)


def incident(folder: Path, server: Server) -> str:
    """A kernel that drifts, its log and evidence; the controller's errors."""
    log = DecisionLog(folder, Beginning(setup=SETUP, state=None, documents={"pool": "p"}, code_version="1"))
    facts = {"fingerprint": "fp-1", "arguments": FLAGS}
    kept = IncidentEvidence(
        folder / EVIDENCE, SETUP, Every(), lambda _: DescribedReplica(endpoint=server.endpoint, engine=facts)
    )
    clock = ManualClock()
    ports = ControlPorts(
        source=ScriptedTelemetry(script(LAYOUT, 80, drift(LAYOUT, [0, 1], 3.0))),
        clock=clock,
        actuator=RecordingActuator(range(0)),
        watchers=(log, kept),
    )
    one = LiveController(SETUP, ports)
    for _ in range(80):
        assert one.step().error == ""
        clock.advance(1000.0)
    kept.close()
    log.close()
    return one.last_error


def test_an_incident_leaves_both_traces_and_the_engine(tmp_path: Path) -> None:
    """Traffic leaves a kernel: its worst replica is probed once, and the right answer is stored beside it."""
    server = Server(GOOD)
    incident(tmp_path, server)
    files = list((tmp_path / EVIDENCE).iterdir())
    assert (len(files), len(server.asked)) == (1, 1)
    found = json.loads(files[0].read_text())
    assert found["replica"] in LAYOUT.replicas[:2]
    assert found["reference"] == [{"7": -0.1, "8": -2.4}, {"9": -0.2, "8": -1.8}]
    assert [len(one) for one in found["observed"]] == [20, 20]
    assert found["observed"][0] == {"7": -0.9, "8": -1.0} | {str(t): v for t, v in REST.items()}
    assert found["engine"] == {"fingerprint": "fp-1", "arguments": FLAGS}
    assert found["failing"] in found["probes"]
    assert server.asked[0]["prompt"] == list(PROMPT.token_ids)


@pytest.mark.parametrize("answer", [{}, {"choices": []}, {"choices": [{"prompt_logprobs": None}]}, [1]])
def test_a_replica_that_answers_nothing_usable_is_told(tmp_path: Path, answer: object) -> None:
    """The file is written all the same, without the trace and with the reason."""
    incident(tmp_path, Server(answer))
    found = json.loads(next((tmp_path / EVIDENCE).iterdir()).read_text())
    assert found["observed"] is None
    assert "asked again" in found["note"]


class _AtOnce:
    """An executor that runs each task at once."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def submit(self, write: Callable[..., None], *given: object) -> Future[None]:
        """Run it."""
        done: Future[None] = Future()
        try:
            write(*given)
            done.set_result(None)
        except OSError as error:
            done.set_exception(error)
        return done

    def shutdown(self) -> None:
        """Do nothing."""


def test_evidence_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, or a file in place of the folder: the loop is told, and continues."""
    monkeypatch.setattr("live.run.evidence.ThreadPoolExecutor", _AtOnce)
    (tmp_path / EVIDENCE).write_text("in the way")
    assert "File exists" in incident(tmp_path, Server(GOOD))


def test_the_worst_probe_is_of_those_that_were_answered() -> None:
    """A missing answer has no value."""
    probes = [{"answered": False, "values": {"kl": 9.0}}, {"answered": True, "values": {"kl": 0.1}}]
    assert worst(probes) == probes[1]
    assert worst(probes[:1]) is None


def test_what_a_probe_did_not_measure_hides_no_worse_one() -> None:
    """Probes of other kinds, with an unknown first metric, are passed over for a probe that shows something;
    an answer of another request takes precedence over any number.
    """
    nan = float("nan")
    drifted = {"answered": True, "values": {"kl": 0.1, "pair": nan, "nonce_crossed": nan}}
    fine = {"answered": True, "values": {"kl": 0.001, "pair": nan, "nonce_crossed": nan}}
    generated = {"answered": True, "values": {"kl": nan, "pair": 0.5, "nonce_crossed": 0.0}}
    crossed = {"answered": True, "values": {"kl": nan, "pair": nan, "nonce_crossed": 1.0}}
    empty = {"answered": True, "values": {"kl": nan, "pair": nan, "nonce_crossed": nan}}
    for probes in itertools.permutations([drifted, fine, generated, empty]):
        assert worst(list(probes)) is drifted
    assert worst([drifted, crossed, fine]) is crossed
    assert worst([empty, generated]) is generated
    assert worst([empty]) is None


def test_an_answer_keeps_the_order_of_its_positions() -> None:
    """Rows are ordered by position; the first token has none."""
    found = read_logprobs(Server(GOOD).endpoint, PROMPT)
    assert found.token_ids.shape[0] == PROMPT.positions


def bundled(source: Path, out: Path) -> tuple[int, str]:
    """Exit code and output of the command."""
    done = CliRunner().invoke(app, ["explain", str(source), "--bundle", str(out)])
    return done.exit_code, done.output


def test_a_bundle_holds_what_a_report_needs(tmp_path: Path) -> None:
    """Text, timeline, chained lines, and the failing probe with both traces; a second one is refused."""
    log, out = tmp_path / "log", tmp_path / "bundle"
    incident(log, Server(GOOD))
    code, said = bundled(log, out)
    assert code == 0, said
    names = sorted(one.name for one in out.iterdir())
    replica = names[1].removeprefix("evidence-").removesuffix(".json")
    assert names == ["decisions.jsonl", f"evidence-{replica}.json", "incident.md", "timeline.json"]
    page = (out / "incident.md").read_text()
    assert "`--dtype float16`" in page
    assert "furthest apart at position 0, by 1.4 nats" in page
    assert "because" in page
    assert read_chain(out / "decisions.jsonl").rows
    assert bundled(log, out)[0] == 2


def test_a_bundle_of_nothing_is_refused(tmp_path: Path) -> None:
    """A scenario has no log; a folder without one says what it should hold; nothing is written."""
    out = tmp_path / "bundle"
    for source in ("package:contracts/library/suites/e5-base.yaml", str(tmp_path)):
        code, said = bundled(Path(source), out)
        assert code == 2, said
    assert not out.exists()

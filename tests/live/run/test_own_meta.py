"""``--meta`` of ``selvage run`` and ``selvage replay``: it supervises the policy, and logs name it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner, Result

from contracts.compiled.contract import FleetLayout
from contracts.documents import KernelPool
from contracts.errors import DocumentError
from contracts.loading.loader import load_as
from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import resolve_uri
from contracts.telemetry import FleetTelemetry, SampleRates
from live.control.journal import Beginning, DecisionLog, read_log
from live.control.loop import ControlPorts, LiveController
from live.control.setup import LiveSetup, live_setup
from live.run.options import OtherDocuments, RunOptions, documents_for, recipe, setup_again
from policies.supervised import meta_sha256
from scripts.cli import run as command
from scripts.cli.main import app
from tests.support.documents.documents_written import envelope, write_yaml
from tests.support.documents.own_fleet import write_own_fleet
from tests.support.documents.own_meta import MOVE_RATIO, write_own_meta
from tests.support.fleets.builders import quiet_telemetry, with_probes
from tests.support.fleets.fakes import ManualClock, RecordingActuator, ScriptedTelemetry

POOL = resolve_uri("package:contracts/library/live-pool.yaml", "")
KERNELS = tuple(kernel.name for kernel in load_as(KernelPool, POOL).spec.kernels)
REPLICAS: dict[str, tuple[str, ...]] = {name: (f"{name}-0", f"{name}-1") for name in KERNELS}
RATES = SampleRates(probes_per_s=1.0, scrape_interval_s=1.0)
TICKS = 30


def route(folder: Path, **more: str) -> Path:
    """A policy that moves at once, with a document that names the shipped meta-contract."""
    spec: dict[str, object] = {
        "description": "tests only",
        "policy": "shield-alone",
        "pool": load_as(KernelPool, POOL).metadata.name,
        "contract": "serving-pool",
        "meta_contract": SHIPPED_META,
        "route": {"name": "live"},
    }
    return write_yaml(folder / "route.yaml", envelope("RoutePolicy", "own", spec | more))


def set_up(options: RunOptions) -> LiveSetup:
    """The controller that ``options`` ask for."""
    return live_setup(documents_for(load_as(KernelPool, POOL), POOL, options), REPLICAS, RATES)


def record(folder: Path, options: RunOptions) -> Path:
    """A log of ``TICKS`` decisions under ``options``."""
    documents = documents_for(load_as(KernelPool, POOL), POOL, options)
    setup = live_setup(documents, REPLICAS, RATES).setup
    told = recipe(documents, options, REPLICAS, RATES)
    log = DecisionLog(folder, Beginning(setup=setup, state=None, documents=told, code_version="1"))
    source = ScriptedTelemetry(seen(setup.layout, float(second)) for second in range(1, TICKS + 1))
    ports = ControlPorts(
        source=source, clock=ManualClock(), actuator=RecordingActuator(range(0)), watchers=(log,)
    )
    one = LiveController(setup, ports)
    for _ in range(TICKS):
        one.step()
    log.close()
    assert one.last_error == ""
    return folder


def seen(layout: FleetLayout, now_s: float) -> FleetTelemetry:
    """A fleet at its best, probed on every slice."""
    return with_probes(quiet_telemetry(layout, now_s), layout, np.zeros(len(layout.probe_metrics)))


def largest_move(folder: Path) -> float:
    """Largest change of one weight within one tick of the log."""
    return max(
        abs(float(move["after"]) - float(move["before"]))
        for row in read_log(folder)
        for move in row.get("moves", ())
    )


def replayed(log: Path, *more: str | Path) -> Result:
    """``selvage replay``."""
    return CliRunner().invoke(app, ["replay", str(log), "--json", *map(str, more)])


@pytest.fixture
def meta(tmp_path: Path) -> Path:
    """The own meta-contract."""
    return write_own_meta(tmp_path)


def test_the_command_hands_it_on(meta: Path) -> None:
    """``selvage run --meta`` asks for the controller that is tested below; so does ``--scrape-timeout``."""
    found = command.options_of(command.RunRequest(meta=str(meta), observe=True, scrape_timeout=7.0))
    assert found.meta == str(meta)
    assert found.scrape_timeout_s == 7.0


def test_servers_are_driven_under_it(meta: Path, tmp_path: Path) -> None:
    """It takes the place of the document's, limits and baseline; without it the document's holds."""
    policy = str(route(tmp_path))
    bare, kept = (set_up(RunOptions(policy=policy, meta=uri)).setup for uri in ("", str(meta)))
    assert bare.meta is not None
    assert kept.meta is not None
    assert (bare.meta.sha256, kept.meta.sha256) == (meta_sha256(SHIPPED_META), meta_sha256(str(meta)))
    assert kept.options.limits.max_move_ratio == MOVE_RATIO
    assert kept.baseline is not None
    assert kept.baseline.policy_id == "fixed_known_good"


def test_a_document_that_pins_another_is_refused(meta: Path, tmp_path: Path) -> None:
    """Both hashes and the remedy are named; a document that pins this very meta-contract is accepted."""
    shipped = meta_sha256(SHIPPED_META)
    options = RunOptions(policy=str(route(tmp_path, meta_contract_sha256=str(shipped))), meta=str(meta))
    with pytest.raises(DocumentError, match="leave --meta out, or pin it") as refused:
        set_up(options)
    assert f"{meta_sha256(str(meta))}, of --meta {meta}" in str(refused.value)
    assert f"{shipped}, of {SHIPPED_META}" in str(refused.value)
    pinned = route(tmp_path, meta_contract_sha256=str(meta_sha256(str(meta))))
    assert set_up(RunOptions(policy=str(pinned), meta=str(meta))).setup.meta is not None


def test_a_log_names_it_and_is_decided_again_under_it(meta: Path, tmp_path: Path) -> None:
    """The same bytes come out; once the meta-contract is another the log is refused, with its file."""
    log = record(tmp_path / "log", RunOptions(policy=str(route(tmp_path)), meta=str(meta)))
    assert largest_move(log) <= MOVE_RATIO + 1e-9
    done = replayed(log)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["identical"]
    changed = yaml.safe_load(meta.read_text())
    changed["spec"]["description"] = "another"
    write_yaml(meta, changed)
    refused = replayed(log)
    assert refused.exit_code == 2
    assert "own-meta.yaml" in refused.output
    assert "the meta of the log" in " ".join(refused.output.split())


def test_another_is_a_what_if(meta: Path, tmp_path: Path) -> None:
    """Under the own meta-contract the logged moves would have been smaller, whatever the document pins."""
    document = route(tmp_path, meta_contract_sha256=str(meta_sha256(SHIPPED_META)))
    log = record(tmp_path / "log", RunOptions(policy=str(document)))
    assert largest_move(log) > 2.0 * MOVE_RATIO
    done = replayed(log, "--meta", meta)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["what_if"]
    assert found["differences"]
    told = read_log(log)[0]["documents"]
    again = setup_again(told, OtherDocuments(meta=str(meta))).setup
    assert again.meta is not None
    assert again.meta.sha256 == meta_sha256(str(meta))


def test_logs_of_earlier_versions_have_none(tmp_path: Path) -> None:
    """A log that says nothing of a meta-contract is decided again under its document's."""
    log = record(tmp_path / "log", RunOptions(policy=str(route(tmp_path))))
    told = {name: value for name, value in read_log(log)[0]["documents"].items() if "meta" not in name}
    found = setup_again(told).setup.meta
    assert found is not None
    assert found.sha256 == meta_sha256(SHIPPED_META)


@pytest.mark.parametrize("asked", [None, "certified", "off"])
def test_clocks_of_running_servers_are_held_against_their_own_past(tmp_path: Path, asked: str | None) -> None:
    """Profiles were measured on other machines, unless the document says that they were not."""
    policy = route(tmp_path, **({"own_clocks": asked} if asked else {}))
    assert set_up(RunOptions(policy=str(policy))).setup.own_clocks == (asked or "usual")


def test_slices_of_ones_own_need_their_contract(tmp_path: Path) -> None:
    """The shipped contract promises nothing of slices that it does not name, so it is not taken for them."""
    write_own_fleet(tmp_path)
    file = tmp_path / "pool.yaml"
    pool = load_as(KernelPool, file)
    with pytest.raises(DocumentError, match=r"spec\.home: .*got support, sql; name the contract.*--contract"):
        documents_for(pool, file, RunOptions())
    own = documents_for(pool, file, RunOptions(contract=str(tmp_path / "contract.yaml")))
    assert own.contract.metadata.name == "own-contract"

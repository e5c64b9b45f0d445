"""Good files of every kind that are made for mutation, each in a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from contracts.assess.samples import load_samples
from live.fleet.processes import ProcessId
from live.fleet.state import (
    FleetFolder,
    FleetState,
    GatewayState,
    Phase,
    ServerState,
    read_state,
    write_state,
)
from live.gateway.settings import GatewaySettings
from policies.certify.evidence import evidence_text
from policies.offline.transitions import TransitionHeader, Transitions, save_transitions
from tests.contracts.assess.test_register import filled
from tests.support.documents.certification_evidence import sound_evidence
from tests.support.fleets.synthetic_kernels import KERNELS, write_profile


def fleet_folder(folder: Path) -> list[Path]:
    """The state of a fleet of one server."""
    process = ProcessId(pid=1, started_ticks=1)
    server = ServerState(
        name="a-0", kernel="a", url="http://127.0.0.1:1", phase=Phase.READY, process=process, nonce="n"
    )
    gateway = GatewayState(url="http://127.0.0.1:2", admin_url="", settings=GatewaySettings())
    state = FleetState(
        pool="p",
        model="m",
        served_name="m",
        how="forked",
        supervisor=process,
        servers=(server,),
        gateway=gateway,
        slices=("s",),
        homes=("a",),
        default_slice="s",
    )
    place = FleetFolder(path=folder)
    write_state(place, state)
    assert read_state(place) == state
    return [place.state]


def small_episodes(folder: Path) -> list[Path]:
    """A few episodes as a certification writes them."""
    whole = sound_evidence()
    few = replace(
        whole,
        incidents=whole.incidents[:6],
        quiet=whole.quiet[:2],
        decision_ms=whole.decision_ms[:9],
        still=dict(list(whole.still.items())[:6]),
    )
    text = evidence_text(few)
    (folder / "episodes.json").write_text(text)
    return [folder / "episodes.json"]


def samples(folder: Path) -> list[Path]:
    """Samples of the synthetic kernels, cut to a few prompts."""
    write_profile(folder, KERNELS[0], 1)
    whole = next(folder.glob("*.npz"))
    with np.load(whole, allow_pickle=False) as stored:
        found = {name: stored[name] for name in stored.files}
    for name in ("prompt_ids", "prompt_slice", "prompt_split"):
        found[name] = found[name][:6]
    found["values"] = found["values"][:, :6]
    np.savez_compressed(folder / "small.npz", **found)
    load_samples(folder / "small.npz")
    return [folder / "small.npz"]


def transitions(folder: Path) -> list[Path]:
    """A log of four ticks."""
    header = TransitionHeader(
        world="simulation",
        episode="a",
        policy_id="fixed",
        seed=1,
        reward_source="telemetry",
        encoding_version=4,
        contract_sha256="a" * 64,
        tick_s=1.0,
    )
    log = Transitions(
        header=header,
        observation=np.zeros((5, 7), dtype=np.float32),
        choice=np.zeros((4, 2), dtype=np.int64),
        reward=np.zeros(4),
        cost=np.zeros(4),
        log_probability=np.full(4, np.nan),
    )
    save_transitions(folder / "log.npz", log)
    return [folder / "log.npz"]


def register(folder: Path) -> list[Path]:
    """A register of three entries."""
    filled(folder / "register.jsonl", 3)
    return [folder / "register.jsonl"]

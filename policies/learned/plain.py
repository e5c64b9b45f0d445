"""A policy that any library trained on the environment: an ONNX file run by onnxruntime.

It sees the environment's observation and gives the environment's action, which becomes a table in the same
way (``controller.encoding.actions``). Nothing is remembered between ticks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

from contracts.errors import DocumentError, refusal
from controller.encoding.encoder import Encoder
from controller.fleet import FleetSetup
from controller.ports import Observation, PolicyState, Proposal
from policies.learned.dense_graph import INPUT, OUTPUT
from policies.learned.onnx_check import UnfitGraphError, check_onnx


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainPolicy:
    """Proposes the table of the network's action; see the module."""

    policy_id: str
    encoder: Encoder
    session: Any
    reads_running: bool = True

    def initial(self, batch: int) -> PolicyState:  # noqa: ARG002 (nothing is remembered of any fleet)
        """Nothing."""
        return {}

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The table of the network's action; no replica is ejected."""
        action = self.session.run([OUTPUT], {INPUT: self.encoder.encode(observation)})[0]
        home = np.asarray(observation.home)
        table = self.encoder.table(action, home, observation.ready.shape[1])
        return Proposal(table=table, ejected=np.zeros(observation.in_rotation.shape, dtype=np.bool_)), state


def plain_policy(content: bytes, fleet: FleetSetup, policy_id: str, file: str) -> PlainPolicy:
    """The policy of an ONNX file for ``fleet``; DocumentError if the file does not fit the fleet."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        check_onnx(content)
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except UnfitGraphError as error:
        raise _refusal(file, error.expected, error.actual) from None
    except Exception as error:  # onnxruntime raises its own types for files that it cannot read
        raise _refusal(file, "an ONNX network", str(error).splitlines()[0][:200]) from None
    taken = {value.name: value.shape for value in session.get_inputs()}
    given = {value.name: value.shape for value in session.get_outputs()}
    if set(taken) != {INPUT} or set(given) != {OUTPUT}:
        raise _refusal(file, f"input {INPUT!r} and output {OUTPUT!r}", f"{list(taken)}, {list(given)}")
    encoder = _encoder(fleet, int(given[OUTPUT][1]), file)
    if int(taken[INPUT][1]) != encoder.size:
        raise _refusal(file, f"{encoder.size} inputs (this encoding)", f"{taken[INPUT][1]} inputs")
    return PlainPolicy(policy_id=policy_id, encoder=encoder, session=session)


def _encoder(fleet: FleetSetup, actions: int, file: str) -> Encoder:
    """The encoding in which a network with this many outputs was trained."""
    slices, kernels = len(fleet.home), len(fleet.layout.kernels)
    most, rest = divmod(actions, slices)
    if rest or most - 1 < kernels:
        expected = f"an action per slice of {slices} for shedding and at least {kernels} kernels"
        raise _refusal(file, expected, f"{actions} outputs")
    return Encoder(kernels_max=most - 1, slices=slices)


def _refusal(file: str, expected: str, actual: str) -> DocumentError:
    step = "export it again, from a policy that was trained on the environment of this contract's slices"
    return refusal(file, expected, actual, step, path="onnx")

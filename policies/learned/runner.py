"""Inference of a learned policy: an ONNX file run by onnxruntime, without torch.

Its input is the encoded observation and the memory of ``policies.learned.choosing``; it takes the choice with
the highest score. A recurrent network also reads its outputs of the previous tick (``hidden``, ``cell``),
which are kept in the policy's state and serialised with it. Everything that decides whether the policy may
drive (hash, encoding, certificate) is checked on loading, in ``policies.certify.artifact_files``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from contracts.errors import DocumentError, refusal
from controller.encoding.encoder import Encoder
from controller.fleet import FleetSetup
from controller.ports import Observation, PolicyState, Proposal
from policies.learned.choosing import NETWORK_MEMORY, Chooser, InputLayout
from policies.learned.onnx_check import UnfitGraphError, check_onnx
from policies.learned.onnx_graph import INPUT, OUTPUT


class ScoreRunner:
    """Scores float32 [B, S, choices] of inputs float32 [B, size], on one thread.

    memory: sizes of a recurrent network's memory by name; empty if it is not recurrent.
    Raises DocumentError for content that is not a network of this kind; ``file`` names it in messages.
    """

    def __init__(self, content: bytes, file: str = "the ONNX file") -> None:
        try:
            check_onnx(content)
        except UnfitGraphError as error:
            raise _refusal(file, error.expected, error.actual) from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises its own types for files that it cannot read
            raise _refusal(file, "an ONNX network", str(error).splitlines()[0][:200]) from None
        taken = {value.name: value.shape for value in self._session.get_inputs()}
        given = {value.name: value.shape for value in self._session.get_outputs()}
        names = NETWORK_MEMORY if set(taken) != {INPUT} else {}
        if set(taken) != {INPUT, *names} or set(given) != {OUTPUT, *names.values()}:
            expected = f"input {INPUT!r} and output {OUTPUT!r}, or with memory {NETWORK_MEMORY}"
            raise _refusal(file, expected, f"{list(taken)}, {list(given)}")
        if any(taken[name] != given[names[name]] for name in names):
            raise _refusal(file, "memory of one size", f"{taken} in, {given} out")
        if len(taken[INPUT]) != 2 or len(given[OUTPUT]) != 3 or any(len(taken[name]) != 2 for name in names):
            raise _refusal(file, "inputs [batch, size], scores [batch, slices, choices]", f"{taken}, {given}")
        self.size, (_, self.slices, self.choices) = int(taken[INPUT][1]), given[OUTPUT]
        self.memory = {name: int(taken[name][1]) for name in names}
        self._try(file)

    def _try(self, file: str) -> None:
        """Run one step of two fleets, so that a network that cannot run is refused before it drives."""
        try:
            scores, memory = self.step(np.zeros((2, self.size), dtype=np.float32), self.initial(2))
        except Exception as error:  # as above
            raise _refusal(file, "a network that runs", str(error).splitlines()[0][:200]) from None
        found = {"scores": scores.shape, **{name: array.shape for name, array in memory.items()}}
        sizes = {"scores": (2, self.slices, self.choices)}
        expected = sizes | {name: (2, size) for name, size in self.memory.items()}
        if found != expected:
            raise _refusal(file, f"{expected} for two fleets", f"{found}")

    def __call__(self, inputs: NDArray[np.float32], memory: PolicyState | None = None) -> NDArray[np.float32]:
        """Scores of ``inputs`` by a network with that ``memory``; None for its initial memory."""
        return self.step(inputs, memory or self.initial(len(inputs)))[0]

    def initial(self, batch: int) -> PolicyState:
        """The memory of ``batch`` fleets before the first tick: zeros [B, size]."""
        return {name: np.zeros((batch, size), dtype=np.float32) for name, size in self.memory.items()}

    def step(
        self, inputs: NDArray[np.float32], memory: PolicyState
    ) -> tuple[NDArray[np.float32], PolicyState]:
        """``(scores, memory after)``; the memory is empty unless the network is recurrent."""
        outputs = [OUTPUT, *(NETWORK_MEMORY[name] for name in self.memory)]
        fed = {INPUT: inputs} | {name: memory[name] for name in self.memory}
        if not self.memory:
            return np.asarray(self._session.run(outputs, fed)[0]), {}
        # Fleet by fleet: a matrix product's last bits depend on its size, and the memory would keep them.
        rows = [
            self._session.run(outputs, {name: array[b : b + 1] for name, array in fed.items()})
            for b in range(len(inputs))
        ]
        scores, *after = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        return scores, dict(zip(self.memory, after, strict=True))

    def layout(self) -> InputLayout:
        """The layout that follows from the network's sizes."""
        return InputLayout(encoder=Encoder(kernels_max=self.choices - 1, slices=self.slices))


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedPolicy:
    """Chooses by score; see the module."""

    policy_id: str
    chooser: Chooser
    runner: ScoreRunner
    reads_running: bool = True

    def initial(self, batch: int) -> PolicyState:
        """Every slice at home, with empty memory."""
        return {**self.chooser.initial(batch), **self.runner.initial(batch)}

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The table of the best choices, within capacity."""
        inputs, memory = self.chooser.look(observation, state)
        scores, remembered = self.runner.step(inputs, memory)
        return self.chooser.propose(scores.argmax(axis=2), observation, {**memory, **remembered})


def learned_policy(
    content: bytes, fleet: FleetSetup, policy_id: str, file: str = "the ONNX file"
) -> LearnedPolicy:
    """The policy of an ONNX file for ``fleet``; DocumentError if the file does not fit the fleet."""
    runner = ScoreRunner(content, file)
    layout, kernels = runner.layout(), len(fleet.layout.kernels)
    if layout.size != runner.size:
        raise _refusal(file, f"{layout.size} inputs (this encoding)", f"{runner.size} inputs")
    if runner.slices != len(fleet.home) or kernels >= runner.choices:
        actual = f"{kernels} kernels and {len(fleet.home)} slices in the fleet"
        hint = (
            "name a fleet like the one it was trained for; `selvage policy export MANIFEST --scenario "
            "SCENARIO` writes its network for a fleet of your own, `selvage policy suite SCENARIO` what "
            "certifies it there"
        )
        expected = f"at most {runner.choices - 1} kernels and exactly {runner.slices} slices"
        raise _refusal(file, expected, actual, hint)
    chooser = Chooser.of(layout.encoder, kernels, fleet.home, fleet.contract)
    return LearnedPolicy(policy_id=policy_id, chooser=chooser, runner=runner)


def _refusal(
    file: str, expected: str, actual: str, hint: str = "train and export it again with this version"
) -> DocumentError:
    return refusal(file, expected, actual, hint, path="onnx")

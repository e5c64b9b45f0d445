"""A learned policy at work: an ONNX file run by onnxruntime, without torch.

Its input is the encoded observation and the memory of ``policies.choosing``; it takes the choice with the
highest score. Everything that decides who may drive (hash, encoding, certificate) is checked on loading,
in ``policies.artifact_files``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from contracts.errors import DocumentError, Problem
from controller.features import Encoder
from controller.ports import Observation, PolicyState, Proposal
from controller.setup import FleetSetup
from policies.choosing import Chooser, InputLayout

_INPUT, _OUTPUT = "inputs", "scores"


class ScoreRunner:
    """Scores float32 [B, S, choices] of inputs float32 [B, size], on one thread.

    Raises DocumentError for content that is no network of this kind; ``file`` names it in messages.
    """

    def __init__(self, content: bytes, file: str = "the ONNX file") -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises types of its own for whatever it cannot read
            raise _refused(file, "an ONNX network", str(error).splitlines()[0][:200]) from None
        shapes = {value.name: value.shape for value in self._session.get_inputs()}
        scores = {value.name: value.shape for value in self._session.get_outputs()}
        if set(shapes) != {_INPUT} or set(scores) != {_OUTPUT}:
            raise _refused(
                file, f"input {_INPUT!r} and output {_OUTPUT!r}", f"{list(shapes)}, {list(scores)}"
            )
        self.size, (_, self.slices, self.choices) = int(shapes[_INPUT][1]), scores[_OUTPUT]

    def __call__(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores of ``inputs``."""
        (scores,) = self._session.run([_OUTPUT], {_INPUT: inputs})
        return np.asarray(scores)

    def layout(self) -> InputLayout:
        """The layout that the network's sizes stand for."""
        return InputLayout(encoder=Encoder(kernels_max=self.choices - 1, slices=self.slices))


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedPolicy:
    """Chooses by score; see the module."""

    policy_id: str
    chooser: Chooser
    runner: ScoreRunner
    reads_running: bool = True

    def initial(self, batch: int) -> PolicyState:
        """Every slice at home."""
        return self.chooser.initial(batch)

    def propose(self, seen: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The table of the best choices, as far as capacity goes."""
        inputs, memory = self.chooser.look(seen, state)
        return self.chooser.propose(self.runner(inputs).argmax(axis=2), seen, memory)


def learned_policy(
    content: bytes, fleet: FleetSetup, policy_id: str, file: str = "the ONNX file"
) -> LearnedPolicy:
    """The policy of an ONNX file for ``fleet``; DocumentError where the file does not fit the fleet."""
    runner = ScoreRunner(content, file)
    layout, kernels = runner.layout(), len(fleet.layout.kernels)
    if layout.size != runner.size:
        raise _refused(file, f"{layout.size} inputs (this encoding)", f"{runner.size} inputs")
    if runner.slices != len(fleet.home) or kernels >= runner.choices:
        actual = f"{kernels} kernels and {len(fleet.home)} slices in the fleet"
        raise _refused(file, f"at most {runner.choices - 1} kernels and {runner.slices} slices", actual)
    chooser = Chooser.of(layout.encoder, kernels, fleet.home, fleet.contract)
    return LearnedPolicy(policy_id=policy_id, chooser=chooser, runner=runner)


def _refused(file: str, expected: str, actual: str) -> DocumentError:
    problem = Problem(file, 0, "onnx", expected, actual, "train and export it again with this version")
    return DocumentError([problem])

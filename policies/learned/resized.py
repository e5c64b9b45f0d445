"""The scoring network for fleets of other sizes: the same weights in a graph of other dimensions.

``policies.learned.network.Scorer`` reads every (kernel, slice) pair with one set of weights and pools over
kernels and slices, so its weights are independent of their number. Its ONNX file contains the sizes in its
reshapes. ``resized`` writes the file anew for another number of slices, or for more kernels, with unchanged
weights. The result is another file with another hash, so the certificate of the first does not cover it: it
must be certified on suites of the fleet that it will drive.

A network with memory, or one of another library, reads a vector of fixed length; those are refused.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from contracts.errors import DocumentError, refusal
from contracts.loading.untrusted import MALFORMED
from controller.encoding.encoder import Encoder
from policies.learned.choosing import InputLayout
from policies.learned.onnx_graph import Weights, network_bytes, weight_places
from policies.learned.runner import ScoreRunner


def resized(content: bytes, kernels: int, slices: int, file: str = "the ONNX file") -> bytes:
    """The ONNX file ``content`` for fleets of ``slices`` slices and up to ``kernels`` kernels, or as many as
    it already reads; the same bytes if it fits.

    Raises DocumentError for a file that is not a network of ours; ``file`` names it in messages.
    """
    runner = ScoreRunner(content, file)
    if runner.memory:
        raise _refusal(file, f"a network that remembers {runner.memory}")
    weights = _weights_of(content, runner.layout(), file)
    most = max(kernels, runner.choices - 1)
    if (most, slices) == (runner.choices - 1, runner.slices):
        return content
    return network_bytes(weights, InputLayout(encoder=Encoder(kernels_max=most, slices=slices)))


def _weights_of(content: bytes, layout: InputLayout, file: str) -> Weights:
    """Weights by name as in ``Scorer.state_dict``, from ``content``, which was written for ``layout``.

    The graph is written again from them and must be equal: weights from a graph with other arithmetic would
    make another policy.
    """
    model = onnx.load_model_from_string(content)
    constants = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    try:
        found = {name: np.array(constants[place].T) for name, place in weight_places(layout).items()}
        same = onnx.load_model_from_string(network_bytes(found, layout)) == model
    except MALFORMED:
        same = False
    if not same:
        raise _refusal(file, "another graph than this version writes")
    return found


def _refusal(file: str, actual: str) -> DocumentError:
    expected = "a network of `selvage train` without memory, which reads slices and kernels by shared weights"
    hint = "train a policy for this fleet: selvage train"
    return refusal(file, expected, actual, hint, path="onnx")

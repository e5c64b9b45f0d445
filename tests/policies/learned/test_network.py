"""The scoring network: symmetries, masks, and the ONNX file that mirrors it."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from policies.learned.choosing import BLOCKED, OWN_REASON, PEER_REASON, REASON  # noqa: E402
from policies.learned.network import Critic, Scorer, rows_in_use  # noqa: E402
from policies.learned.onnx_graph import network_bytes  # noqa: E402
from policies.learned.runner import ScoreRunner  # noqa: E402
from tests.support.fleets.network_inputs import LAYOUT, permuted, random_inputs  # noqa: E402


def trained(seed: int = 0) -> Scorer:
    """A network with weights as far from the initial ones as after training."""
    torch.manual_seed(seed)
    scorer = Scorer(LAYOUT, width=16)
    with torch.no_grad():
        for weights in scorer.parameters():
            weights.add_(0.1 * torch.randn_like(weights))
    return scorer


def scores(scorer: Scorer, inputs: np.ndarray, kernels: int | None = None) -> np.ndarray:
    """Scores as an array."""
    with torch.no_grad():
        out: np.ndarray = scorer(torch.from_numpy(inputs), kernels).numpy()
    return out


def test_permuting_kernels_permutes_scores() -> None:
    """Another order of the kernels gives the same scores in that order, and leaves shed's alone."""
    scorer, inputs = trained(), random_inputs(16, 4)
    order = np.array([2, 0, 3, 1])
    mine, theirs = scores(scorer, inputs), scores(scorer, permuted(inputs, order))
    np.testing.assert_allclose(theirs[..., :-1], mine[..., order], rtol=0, atol=1e-4)
    np.testing.assert_allclose(theirs[..., -1], mine[..., -1], rtol=0, atol=1e-5)


def test_padding_changes_no_score() -> None:
    """Reading only the rows in use gives the same as reading the padding too, for actor and critic."""
    inputs = random_inputs(16, 3)
    assert rows_in_use(torch.from_numpy(inputs), LAYOUT) == 3
    few, all_rows = scores(trained(), inputs, 3), scores(trained(), inputs)
    np.testing.assert_allclose(few[..., [0, 1, 2, 4]], all_rows[..., [0, 1, 2, 4]], rtol=0, atol=1e-5)
    assert max(few[..., 3].max(), all_rows[..., 3].max()) <= -BLOCKED / 2
    critic = Critic(LAYOUT, width=8)
    with torch.no_grad():
        values = [critic(torch.from_numpy(inputs), rows) for rows in (3, None)]
    np.testing.assert_allclose(values[0].numpy(), values[1].numpy(), rtol=0, atol=1e-5)


def test_closed_kernels_are_never_chosen() -> None:
    """Where some kernel is open (ready, certified, not condemned), the choice is open."""
    inputs = random_inputs(256, 4)
    rows, _ = LAYOUT.encoder.split(inputs[:, : LAYOUT.encoder.size])
    names = [name.removeprefix("kernel0.") for name in LAYOUT.encoder.names()[: LAYOUT.encoder.row_size]]
    ready = rows[..., names.index("ready_ratio")] > 0
    choice = scores(trained(), inputs).argmax(axis=2)
    for index in range(LAYOUT.encoder.slices):
        hard, certified = (
            rows[..., names.index(f"slice{index}.{name}")] > 0.5 for name in ("hard_violated", "certified")
        )
        is_open = ready & certified & ~hard
        chosen = choice[:, index]
        kernel = chosen < 4
        assert is_open[np.flatnonzero(kernel), chosen[kernel]].all()


def test_an_untrained_network_stays_until_an_alarm() -> None:
    """Before training a slice keeps its choice while that is open and calm, and leaves it in alarm."""
    torch.manual_seed(0)
    scorer, inputs = Scorer(LAYOUT), np.zeros((1, LAYOUT.size), dtype=np.float32)
    names = list(LAYOUT.names())
    for kernel in range(3):
        for name in ("present", "ready_ratio"):
            inputs[0, names.index(f"kernel{kernel}.{name}")] = 1.0
        for index in range(3):
            inputs[0, names.index(f"kernel{kernel}.slice{index}.certified")] = 1.0
    for index in range(3):
        inputs[0, names.index(f"kernel1.slice{index}.chosen")] = 1.0
    assert scores(scorer, inputs).argmax(axis=2).tolist() == [[1, 1, 1]]
    inputs[0, names.index("kernel1.slice2.guard")] = 1.0
    left = scores(scorer, inputs).argmax(axis=2)[0]
    assert left[:2].tolist() == [1, 1]
    assert left[2] in (0, 2)


@pytest.mark.parametrize("kernels", [1, 3, 4])
def test_onnx_agrees_with_torch(kernels: int) -> None:
    """onnxruntime gives torch's scores to 1e-5 of their size, for any pool and batch."""
    scorer, inputs = trained(3), random_inputs(32, kernels, seed=kernels)
    weights = {name: tensor.numpy() for name, tensor in scorer.state_dict().items()}
    runner = ScoreRunner(network_bytes(weights, LAYOUT))
    mine, theirs = scores(scorer, inputs), runner(inputs)
    allowed = mine > -BLOCKED / 2
    np.testing.assert_allclose(theirs[allowed], mine[allowed], rtol=1e-5, atol=1e-5)
    assert (theirs[~allowed] < -BLOCKED / 2).all()
    np.testing.assert_array_equal(theirs.argmax(axis=2), mine.argmax(axis=2))
    np.testing.assert_array_equal(runner(inputs[:1]).argmax(axis=2), mine[:1].argmax(axis=2))


def test_an_open_kernel_is_left_only_for_a_reason() -> None:
    """For any weights, a slice stays on an open kernel without an alarm or evidence."""
    inputs = random_inputs(256, 4, seed=5)
    names = [name.removeprefix("kernel0.") for name in LAYOUT.encoder.names()[: LAYOUT.encoder.row_size]]
    rows, _ = LAYOUT.encoder.split(inputs[:, : LAYOUT.encoder.size])
    for index in range(LAYOUT.encoder.slices):
        rows[..., names.index(f"slice{index}.guard")] = 0.0
        rows[..., names.index(f"slice{index}.hard_violated")] = 0.0
        rows[..., names.index(f"slice{index}.certified")] = 1.0
        rows[..., names.index(f"slice{index}.evidence")] *= 0.99 * REASON / 2.0
    rows[..., names.index("ready_ratio")] = 1.0
    memory = inputs[:, LAYOUT.encoder.size : LAYOUT.encoder.size + LAYOUT.cell_memory_size]
    before = memory.reshape(256, 4, 3, -1)[..., 0].argmax(axis=1)
    scorer = trained(7)
    np.testing.assert_array_equal(scores(scorer, inputs).argmax(axis=2), before)
    with torch.no_grad():
        scorer.stay.fill_(-100.0)
    np.testing.assert_array_equal(scores(scorer, inputs).argmax(axis=2), before)
    rows[:, :, names.index("slice1.evidence")] = REASON + 0.1
    rows[:, :, names.index("slice2.evidence")] = OWN_REASON + 0.01
    rows[:, :, names.index("slice0.evidence")] = OWN_REASON - 0.01
    left = scores(scorer, inputs).argmax(axis=2) != before
    assert left.any(axis=0).tolist() == [False, True, True]
    rows[:, :, names.index("slice2.guard")] = 1.0
    rows[:, :, names.index("slice0.evidence")] = PEER_REASON + 0.01
    left = scores(scorer, inputs).argmax(axis=2) != before
    assert left.any(axis=0).tolist() == [True, False, True]


def test_equal_weights_give_equal_bytes() -> None:
    """Writing the network twice gives the same file, and another weight another file."""
    weights = {name: tensor.numpy().copy() for name, tensor in trained().state_dict().items()}
    first = network_bytes(weights, LAYOUT)
    assert first == network_bytes(dict(reversed(weights.items())), LAYOUT)
    weights["stay"] = weights["stay"] + 1.0
    assert first != network_bytes(weights, LAYOUT)

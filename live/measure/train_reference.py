"""Train the reference model: a Llama of 3.7 million parameters on text of every machine. EDGE: torch.

Run as ``python -m live.measure.train_reference --out DIR``. Deterministic on one machine and thread count:
the budget is a number of steps, not a time. Writes ``model.safetensors`` (bf16), ``config.json``, the
tokenizer and ``training.json`` (command, seed, tokens, losses per slice, versions, hashes).
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from contracts.loading.files import json_text, sha256_of, write_json
from contracts.rng import stream
from live.measure.corpus import SLICES, Corpus, CorpusText, build_corpus

MIX = {"code": 0.40, "prose": 0.30, "json": 0.15, "numbers": 0.15}
BOS_ID = 0
TokenStreams = dict[str, NDArray[np.int16]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """The parameters that determine the result: model size, budget, rates, seed.

    ``batch_tokens`` per step are cut into sequences of 256 positions, and of 512 on every fourth step, so
    that positions up to 512 are trained.
    """

    seed: int = 0
    steps: int = 1250
    batch_tokens: int = 2048
    vocabulary: int = 2048
    hidden: int = 256
    intermediate: int = 768
    layers: int = 4
    max_positions: int = 2048
    matrix_rate: float = 0.02
    other_rate: float = 3e-3
    warmup_steps: int = 40


def train_tokenizer(corpus: Corpus, plan: TrainPlan) -> Tokenizer:
    """Byte-level BPE with one token per digit."""
    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Split(Regex(r"\p{N}"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=plan.vocabulary,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    samples = [d.text[:4000] for name in SLICES for d in _sample(corpus.train, name, 300, plan.seed)]
    tokenizer.train_from_iterator(samples, trainer)
    return tokenizer


def _sample(documents: tuple[CorpusText, ...], name: str, count: int, seed: int) -> list[CorpusText]:
    members = [document for document in documents if document.slice == name]
    order = stream(seed, "tokenizer", name).permutation(len(members))
    return [members[i] for i in order[:count]]


def encode(tokenizer: Tokenizer, documents: tuple[CorpusText, ...]) -> TokenStreams:
    """One stream of token ids per slice; each document begins with the begin token."""
    streams: TokenStreams = {}
    for name in SLICES:
        texts = [document.text for document in documents if document.slice == name]
        ids: list[int] = []
        for encoding in tokenizer.encode_batch(texts):
            ids += [BOS_ID, *encoding.ids]
        streams[name] = np.array(ids, dtype=np.int16)
    return streams


def build_model(plan: TrainPlan) -> LlamaForCausalLM:
    """A fresh model in float32; the residual projections start smaller, as in GPT-2."""
    torch.manual_seed(plan.seed)
    config = LlamaConfig(
        vocab_size=plan.vocabulary,
        hidden_size=plan.hidden,
        intermediate_size=plan.intermediate,
        num_hidden_layers=plan.layers,
        num_attention_heads=plan.hidden // 64,
        num_key_value_heads=max(1, plan.hidden // 128),
        head_dim=64,
        max_position_embeddings=plan.max_positions,
        bos_token_id=BOS_ID,
        eos_token_id=1,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.mul_(1 / math.sqrt(2 * plan.layers))
    return model


def build_optimizers(model: LlamaForCausalLM, plan: TrainPlan) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms."""
    matrices: list[Any] = []
    others: list[Any] = []
    for name, parameter in model.named_parameters():
        inner = parameter.ndim == 2 and "embed" not in name and "lm_head" not in name
        (matrices if inner else others).append(parameter)
    return [
        torch.optim.Muon(matrices, lr=plan.matrix_rate, momentum=0.95, weight_decay=0.01),
        torch.optim.AdamW(others, lr=plan.other_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def rate_scale(step: int, plan: TrainPlan) -> float:
    """Warm up, hold, then fall linearly over the second half to 2 %."""
    warm = min(1.0, (step + 1) / plan.warmup_steps)
    done = step / plan.steps
    return warm * (1.0 if done < 0.5 else max(0.02, (1.0 - done) / 0.5))


def draw_batch(streams: TokenStreams, rng: np.random.Generator, rows: int, length: int) -> torch.Tensor:
    """int64 [rows, length + 1] windows, slices drawn by ``MIX``."""
    shares = np.array([MIX[name] for name in SLICES])
    windows = []
    for index in rng.choice(len(SLICES), size=rows, p=shares / shares.sum()):
        ids = streams[SLICES[index]]
        start = int(rng.integers(len(ids) - length - 1))
        windows.append(ids[start : start + length + 1].astype(np.int64))
    return torch.from_numpy(np.stack(windows))


def token_loss(model: LlamaForCausalLM, batch: torch.Tensor) -> torch.Tensor:
    """Mean next-token cross entropy in nats."""
    logits = model(input_ids=batch[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())


def train(model: LlamaForCausalLM, streams: TokenStreams, plan: TrainPlan) -> int:
    """Run the plan; returns the number of trained tokens. Progress goes to stderr."""
    optimizers = build_optimizers(model, plan)
    rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    rng = stream(plan.seed, "training", "batches")
    tokens, started = 0, time.process_time()
    for step in range(plan.steps):
        length = 512 if step % 4 == 3 else 256
        for optimizer, base in zip(optimizers, rates, strict=True):
            for group, rate in zip(optimizer.param_groups, base, strict=True):
                group["lr"] = rate * rate_scale(step, plan)
        loss = token_loss(model, draw_batch(streams, rng, plan.batch_tokens // length, length))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        tokens += plan.batch_tokens
        if step % 50 == 0:
            spent = time.process_time() - started
            sys.stderr.write(f"step {step} loss {loss.item():.3f} cpu_s {spent:.0f}\n")
    return tokens


def held_out_losses(model: LlamaForCausalLM, streams: TokenStreams, plan: TrainPlan) -> dict[str, float]:
    """Mean loss per slice on held-out documents, 24 windows of 256 positions."""
    model.eval()
    losses = {}
    with torch.no_grad():
        for name in SLICES:
            rng = stream(plan.seed, "held out", name)
            batch = draw_batch(dict.fromkeys(SLICES, streams[name]), rng, 24, 256)
            losses[name] = round(float(token_loss(model, batch)), 4)
    return losses


def _versions() -> dict[str, str]:
    import tokenizers
    import transformers

    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": str(transformers.__version__),
        "tokenizers": str(tokenizers.__version__),
    }


def _record(plan: TrainPlan, out: Path, measured: dict[str, Any]) -> dict[str, Any]:
    files = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")
    return {
        "command": f"OMP_NUM_THREADS=1 python -m live.measure.train_reference --seed {plan.seed}"
        f" --steps {plan.steps} --out contracts/library/refmodel",
        "plan": {name: getattr(plan, name) for name in TrainPlan.__slots__},
        "mix": MIX,
        "text": "Python standard library sources, docstrings and pydoc topics (PSF licence); generated"
        " JSON and numbers",
        "versions": _versions(),
        "files_sha256": {name: sha256_of(out / name) for name in files},
        **measured,
    }


def main(arguments: list[str] | None = None) -> None:
    """Train, save and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=TrainPlan().steps)
    options = parser.parse_args(arguments)
    plan = TrainPlan(seed=options.seed, steps=options.steps)
    torch.set_num_threads(1)
    corpus = build_corpus(plan.seed)
    tokenizer = train_tokenizer(corpus, plan)
    model = build_model(plan)
    tokens = train(model, encode(tokenizer, corpus.train), plan)
    losses = held_out_losses(model, encode(tokenizer, corpus.held_out), plan)
    staging = options.out.with_name(options.out.name + ".tmp")
    _save(model, tokenizer, staging)
    measured = {
        "trained_tokens": tokens,
        "held_out_loss_nats": losses,
        "corpus_sha256": corpus.sha256,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "cpu_s": round(time.process_time()),
    }
    record = _record(plan, staging, measured)
    write_json(staging / "training.json", record, indent=2)
    options.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(staging.iterdir()):
        os.replace(path, options.out / path.name)
    staging.rmdir()
    sys.stdout.write(f"{json_text(record, indent=2)}\n")


def _save(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(str(folder))
    model.to(torch.bfloat16).save_pretrained(str(folder))


if __name__ == "__main__":
    main()

"""Tokens a second of the local engine beside Hugging Face ``generate()``, as ratios.

    OMP_NUM_THREADS=1 python benchmarks/engine.py [--rounds 5] [--batch 32]

Both sample at temperature 1 from the same model in the same process, turn about, on fresh random
prompts (so that no prefix is cached). ``equal``: every row samples as many tokens. ``ragged``: rows
want different numbers (uniform in 4..128), ``generate()`` pads to the longest, only wanted tokens
count for both. ``stream``: four such batches; ``generate()`` takes one after the other, the engine
refills a row as soon as it is free.
Seconds are CPU seconds of this process, which on one thread are wall-clock seconds of an idle
machine: neighbours disturb the ratio less. The last lines measure what the prefix cache saves on a
repeated context, and the bfloat16 gap between the engine and a full forward pass.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import PreTrainedModel

from hexad.contract.sampling import Sampling
from hexad.policy.engine import Completion, DrawKey, Request
from hexad.policy.load import load_policy
from hexad.policy.local import LocalEngine
from hexad.policy.policy import Policy

SHAPES = ("tiny", "small")
PROMPT = 64
LETTERS = 256
"""Prompts are random ids below this one."""


def build(shape: str) -> Policy:
    """``builtin:<shape>``, whose weights are random."""
    policy = load_policy(f"builtin:{shape}", seed=0)
    policy.model.eval()
    return policy


def sample(engine: LocalEngine, requests: list[Request]) -> list[Completion]:
    """Submit all requests at once and wait for them."""

    done: list[Completion] = []

    async def together() -> None:  # returns nothing: Python 3.11 prints what asyncio.run returns
        done.extend(await asyncio.gather(*[engine.sample(request) for request in requests]))

    asyncio.run(together())
    return done


def by_engine(engine: LocalEngine, prompts: np.ndarray, lengths: np.ndarray, run: int) -> float:
    """CPU seconds of the engine for ``lengths`` tokens after each of ``prompts``."""
    requests = [
        Request(prompt, Sampling(), DrawKey(run, str(row), 0), int(length), (), f"{run}/{row}")
        for row, (prompt, length) in enumerate(zip(prompts, lengths, strict=True))
    ]
    start = time.process_time()
    done = sample(engine, requests)
    seconds = time.process_time() - start
    assert [len(completion.ids) for completion in done] == lengths.tolist()
    return seconds


def by_generate(model: PreTrainedModel, prompts: np.ndarray, lengths: np.ndarray) -> float:
    """CPU seconds of ``generate()`` for the longest of ``lengths`` after all ``prompts``."""
    ids = torch.from_numpy(prompts.astype(np.int64))
    longest = int(lengths.max())
    start = time.process_time()
    with torch.inference_mode():
        out = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            max_new_tokens=longest,
            pad_token_id=0,
            eos_token_id=None,
        )
    seconds = time.process_time() - start
    assert out.shape[1] == PROMPT + longest
    return seconds


def measure(shape: str, case: str, batch: int, rounds: int) -> list[str]:
    """One row of the table: medians over ``rounds`` interleaved rounds."""
    policy = build(shape)
    engine = LocalEngine(policy, rows=batch)
    generator = np.random.default_rng(0)
    count = 4 * batch if case == "stream" else batch
    own: list[float] = []
    other: list[float] = []
    for number in range(rounds + 1):
        prompts = generator.integers(0, LETTERS, (count, PROMPT)).astype(np.int32)
        spread = generator.integers(4, 129, count) if case != "equal" else np.full(count, 64)
        seconds = by_engine(engine, prompts, spread, number)
        parts = [slice(first, first + batch) for first in range(0, count, batch)]
        theirs = sum(by_generate(policy.model, prompts[part], spread[part]) for part in parts)
        if number:  # the first round warms up
            own.append(spread.sum() / seconds)
            other.append(spread.sum() / theirs)
    ratios = [left / right for left, right in zip(own, other, strict=True)]
    return [
        shape,
        case,
        str(batch),
        f"{statistics.median(own):,.0f}",
        f"{statistics.median(other):,.0f}",
        f"{statistics.median(ratios):.2f}x",
        f"{min(ratios):.1f}-{max(ratios):.1f}",
    ]


def prefix_saving(shape: str) -> tuple[float, float]:
    """CPU seconds for a group of 8 on a 256-token prompt without and with its prefix cached."""
    engine = LocalEngine(build(shape), rows=8)
    generator = np.random.default_rng(1)
    cold, warm = [], []
    for number in range(6):
        prompt = generator.integers(0, LETTERS, 256).astype(np.int32)
        prompts = np.repeat(prompt[None], 8, 0)
        for times, run in ((cold, 2 * number), (warm, 2 * number + 1)):
            times.append(by_engine(engine, prompts, np.full(8, 1), run))
    return statistics.median(cold[1:]), statistics.median(warm[1:])


def bfloat16_gap(shape: str) -> dict[str, float]:
    """|log-ratio| of engine log-probs against a full forward pass, both in bfloat16."""
    policy = load_policy(f"builtin:{shape}", seed=0, dtype=torch.bfloat16)
    engine = LocalEngine(policy, rows=32)
    generator = np.random.default_rng(2)
    prompts = generator.integers(0, LETTERS, (32, PROMPT)).astype(np.int32)
    requests = [
        Request(prompt, Sampling(), DrawKey(0, str(row), 0), 64, ())
        for row, prompt in enumerate(prompts)
    ]
    done = sample(engine, requests)
    ids = np.stack([np.concatenate((r.ids, c.ids)) for r, c in zip(requests, done, strict=True)])
    with torch.inference_mode():
        logits = (
            policy.model(torch.from_numpy(ids.astype(np.int64))).logits[:, PROMPT - 1 : -1].float()
        )
    chosen = torch.from_numpy(ids[:, PROMPT:].astype(np.int64))[..., None]
    full = logits.log_softmax(-1).gather(-1, chosen)[..., 0].numpy()
    gap = np.abs(full - np.stack([completion.logprobs for completion in done]))
    return {"mean": gap.mean(), "p99": float(np.quantile(gap, 0.99)), "max": gap.max()}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    table = Table("model", "lengths", "rows", "engine tok/s", "generate tok/s", "ratio", "range")
    for shape in SHAPES:
        for case in ("equal", "ragged", "stream"):
            table.add_row(*measure(shape, case, options.batch, options.rounds))
        table.add_row(*measure(shape, "ragged", 256, max(1, options.rounds // 2)))
    console = Console()
    console.print(table)
    for shape in SHAPES:
        cold, warm = prefix_saving(shape)
        gap = ", ".join(f"{name} {value:.4f}" for name, value in bfloat16_gap(shape).items())
        console.print(
            f"{shape}: group of 8 on a 256-token prompt {cold * 1e3:.1f} ms, again "
            f"{warm * 1e3:.1f} ms; bfloat16 |log-ratio| to a full forward: {gap}"
        )


if __name__ == "__main__":
    main()

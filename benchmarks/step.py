"""One whole synchronous step beside TRL's GRPO: same model, same prompts, same number of tokens.

    OMP_NUM_THREADS=1 python benchmarks/step.py [--rounds 3]

A step is 32 prompts x 8 completions of at most 64 tokens at temperature 1, rewards, group-relative
advantages, one clipped update of all of them in one optimiser step. Both run in this process, turn
about, on untrained weights of ``builtin:tiny``, from prompts of the calculator. Rewards are dense,
so that neither side may skip a row. Ours also stores the episodes and closes its books.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
warnings.filterwarnings("ignore")
sys.path.insert(0, str(Path(__file__).parent))

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from transformers import TrainerCallback  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from hexad.contract.messages import Message, Role  # noqa: E402
from hexad.contract.task import Split  # noqa: E402
from hexad.environments.registry import family  # noqa: E402
from hexad.loop import Loop  # noqa: E402
from hexad.policy.load import load_policy  # noqa: E402
from hexad.recipe.load import resolve  # noqa: E402
from hexad.recipe.read import Document  # noqa: E402
from hexad.run import compose  # noqa: E402

GROUPS, SIZE, TOKENS = 32, 8, 64
RECIPE: dict[str, Any] = {
    "method": "grpo",
    "feedback": {"mapping": "dense:DenseMapping"},
    "task": {"limits": {"turns": 1, "turn_tokens": TOKENS, "context_tokens": 512}},
    "data": {"groups": GROUPS, "group_size": SIZE},
    "update": {"minibatches": 1, "optimizer": {"lr": 1e-6, "schedule": "constant"}},
    "budget": {"episodes": 10**9},
    "run": {"evaluation": {"every": None, "final": "none"}, "checkpoints": {"every": None}},
}


class Ours:
    """Steps of the real loop."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.seconds = loop, Counter[str]()
        self.loop._load()

    def step(self) -> dict[str, float]:
        """Seconds by phase, and tokens, of one step."""
        ledger = self.loop.parts.ledger
        before, tokens = Counter(ledger.seconds), ledger.used["rollout_tokens"]
        started = time.perf_counter()
        self.loop.step()
        whole = time.perf_counter() - started
        phases = {phase: s - before[phase] for phase, s in ledger.seconds.items()}
        generated = ledger.used["rollout_tokens"] - tokens
        rollout = phases.pop("rollout")
        return {"step": whole, "generate": rollout, "rest": whole - rollout, "tokens": generated}


class Theirs(TrainerCallback):  # type: ignore[misc]
    """Steps of TRL's trainer, timed from outside."""

    def __init__(self) -> None:
        policy = load_policy("builtin:tiny", seed=0)
        chat = policy.chat(family("calculator").tools)
        tasks = family("calculator").tasks(Split.TRAIN, 4 * GROUPS)
        texts = [
            policy.tokenizer.decode(
                chat.prompt([Message(Role.USER, task.data["expression"])]).ids.tolist()
            )
            for task in tasks
        ]
        arguments = GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=GROUPS * SIZE // 4,
            gradient_accumulation_steps=4,
            num_generations=SIZE,
            max_completion_length=TOKENS,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            beta=0.0,
            learning_rate=1e-6,
            max_steps=1,
            bf16=False,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        self.generating, self.tokens, self.whole, self.began = 0.0, 0, 0.0, 0.0
        self.trainer = GRPOTrainer(
            model=policy.model,
            reward_funcs=self.reward,
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": texts}),
            processing_class=policy.tokenizer,
            callbacks=[self],
        )
        generate = self.trainer._generate_and_score_completions

        def timed(inputs: Any) -> Any:
            started = time.perf_counter()
            made = generate(inputs)
            self.generating += time.perf_counter() - started
            self.tokens += int(made["completion_mask"].sum())
            return made

        self.trainer._generate_and_score_completions = timed

    def reward(self, completion_ids: list[list[int]], **_: Any) -> list[float]:
        """The same dense reward."""
        return [(sum(ids) % 11) / 11 for ids in completion_ids]

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """The clock starts before the first micro-batch, and so before generation."""
        self.began = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """The optimiser has stepped."""
        self.whole += time.perf_counter() - self.began

    def step(self) -> dict[str, float]:
        """Seconds of one optimiser step, of the generation inside it, and its tokens."""
        self.generating, self.tokens, self.whole = 0.0, 0, 0.0
        self.trainer.train()
        rest = self.whole - self.generating
        whole, generating = self.whole, self.generating
        return {"step": whole, "generate": generating, "rest": rest, "tokens": self.tokens}


def main() -> None:
    """Interleave, and print medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    theirs = Theirs()
    recipe = resolve(Document(Path(__file__), RECIPE, {}))
    with tempfile.TemporaryDirectory() as folder, compose(recipe, Path(folder)) as loop:
        ours = Ours(loop)
        ours.step(), theirs.step()  # warm up
        pairs = [(ours.step(), theirs.step()) for _ in range(rounds)]
    table = Table(title="one synchronous step, medians; ratio = theirs / ours")
    for column in ("", "hexad", "TRL", "ratio"):
        table.add_column(column, justify="left" if not column else "right")
    for key in ("step", "generate", "rest"):
        mine, peer = (statistics.median(p[i][key] for p in pairs) for i in (0, 1))
        table.add_row(f"seconds, {key}", f"{mine:.2f}", f"{peer:.2f}", f"{peer / mine:.2f}")
    for title, key in (("generated tokens/s", "generate"), ("trained tokens/s", "rest")):
        mine, peer = (statistics.median(p[i]["tokens"] / p[i][key] for p in pairs) for i in (0, 1))
        table.add_row(title, f"{mine:,.0f}", f"{peer:,.0f}", f"{mine / peer:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()

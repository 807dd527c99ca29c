"""GAE over ragged rows beside torchrl and TRL's recurrence: same numbers, one process, turn about.

    OMP_NUM_THREADS=1 python benchmarks/credit.py [--rounds 5] [--scale]

4096 episodes of 16 to 4096 actions, gamma .99, lambda .95, one thread, process CPU time. Ours is
``gae`` on a ready clock in float64: it also gathers the values and checks what it reads. torchrl is
its vectorised function on the flat rows in float32, with its next values given (in float64 it asks
for 35 GB). TRL removed its PPO trainer in 1.13, and the recurrence stood inside ``train()``: the
row "trl" is that loop over padded columns as we rewrote it, in float32. All results are compared
with ours first. ``--scale`` walks 10^6 to 10^8 steps and prints seconds and peak memory.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

from hexad.credit.clock import TERMINAL, Clock
from hexad.credit.gae import gae
from hexad.credit.scan import scan

warnings.filterwarnings("ignore")

GAMMA, LAMBDA = 0.99, 0.95
Job = Callable[[], torch.Tensor]


def ready(lengths: torch.Tensor) -> tuple[Clock, torch.Tensor]:
    """The token clock of rows of one prompt token and ``lengths`` actions, all terminated."""
    generator = torch.Generator().manual_seed(0)
    rows, steps = len(lengths), int(lengths.sum())
    episode = torch.repeat_interleave(torch.arange(rows), lengths)
    decision = torch.arange(steps).add_(episode)
    last = torch.zeros(steps, dtype=torch.bool)
    last[torch.cumsum(lengths, 0) - 1] = True
    reward = torch.zeros(steps, dtype=torch.float64)
    reward[last] = torch.randint(0, 2, (rows,), generator=generator).double()
    step = torch.full((steps + rows,), -1)
    step[decision + 1] = torch.arange(steps)
    successor = (decision + 1).masked_fill_(last, TERMINAL)
    ends = torch.ones(rows, dtype=torch.bool)
    value = torch.rand(steps + rows, generator=generator, dtype=torch.float64)
    return Clock(
        "token", episode, decision, successor, last, reward, step, ends, ~ends, ~ends
    ), value


def jobs(clock: Clock, value: torch.Tensor, lengths: torch.Tensor) -> dict[str, Job]:
    """Name -> a run that returns the flat advantages."""
    from torchrl.objectives.value.functional import vec_generalized_advantage_estimate as peer

    now = value[clock.decision]
    after = torch.where(clock.last, 0.0, value[clock.successor.clamp_min(0)])
    inside = torch.arange(int(lengths.max())) < lengths[:, None]

    def padded(flat: torch.Tensor) -> torch.Tensor:
        wide = torch.zeros(inside.shape, dtype=flat.dtype)
        wide[inside] = flat
        return wide

    columns = [v.float().unsqueeze(-1) for v in (now, after, clock.reward)]
    done = clock.last.unsqueeze(-1)

    def torchrl() -> torch.Tensor:
        return peer(GAMMA, LAMBDA, *columns, done, done)[0].squeeze(-1)

    values, rewards = padded(now.float()), padded(clock.reward.float())

    def trl() -> torch.Tensor:
        carry, width, found = torch.zeros(len(lengths)), values.shape[1], []
        for t in range(width - 1, -1, -1):
            ahead = values[:, t + 1] if t + 1 < width else 0.0
            carry = rewards[:, t] + GAMMA * ahead - values[:, t] + GAMMA * LAMBDA * carry
            found.append(carry)
        advantage = torch.stack(found[::-1], dim=1)
        _ = advantage + values
        return advantage[inside]

    def hexad(policy: float, critic: float) -> Job:
        return lambda: gae(clock, value, gamma=GAMMA, policy=policy, critic=critic).advantage

    return {
        "hexad": hexad(LAMBDA, LAMBDA),
        "hexad, two lambdas": hexad(LAMBDA, 1.0),
        "torchrl, flat float32": torchrl,
        "trl (rewritten), padded float32": trl,
    }


def compare(rounds: int, rows: int) -> None:
    """Print tokens a second of everyone, and the ratio of ours to theirs, round by round."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(16, 4097, (rows,), generator=generator)
    clock, value = ready(lengths)
    found = jobs(clock, value, lengths)
    reference = found["hexad"]()
    errors = {name: float((job().double() - reference).abs().max()) for name, job in found.items()}
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(rounds):
        for name, job in found.items():
            start = time.process_time()
            job()
            seconds[name].append(time.process_time() - start)
    table = Table("", "M tokens/s", "hexad is faster by", "range", "max difference")
    for name, times in seconds.items():
        ratios = [theirs / ours for theirs, ours in zip(times, seconds["hexad"], strict=True)]
        speed = int(lengths.sum()) / statistics.median(times) / 1e6
        spread = f"{min(ratios):.1f}-{max(ratios):.1f}"
        middle = f"{statistics.median(ratios):.1f}"
        table.add_row(name, f"{speed:.1f}", middle, spread, f"{errors[name]:.1e}")
    Console().print(table)


def scale(size: int, what: str) -> None:
    """Seconds and peak memory of one size, in this process."""
    if what == "scan":
        x, a = torch.rand(size, dtype=torch.float64), torch.rand(size, dtype=torch.float64)
        start = time.process_time()
        scan(x, a)
    else:
        clock, value = ready(torch.full((size // 1000,), 1000))
        start = time.process_time()
        gae(clock, value, gamma=GAMMA, policy=LAMBDA, critic=1.0)
    taken = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{what:5} {size:>11,} steps {taken:7.2f} s {size / taken / 1e6:6.1f} M/s {peak:5.2f} GiB"
    )


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("WHAT", "SIZE"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.one:
        scale(int(options.one[1]), options.one[0])
    elif options.scale:
        for what in ("scan", "gae"):
            for size in (10**6, 10**7, 10**8):
                subprocess.run([sys.executable, __file__, "--one", what, str(size)], check=True)
    else:
        compare(options.rounds, options.rows)


if __name__ == "__main__":
    main()

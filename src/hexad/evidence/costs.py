"""CPU seconds of sampling, split into what a decode step costs and what a row of it does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexad.policy.engine import EngineStats


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds, and what the engine did in them."""

    cpu: float
    tokens: int
    rows: float

    @classmethod
    def of(cls, cpu: float, before: EngineStats, after: EngineStats) -> Cost:
        """The cost between two readings; ``rows`` is the mean company of a decode step."""
        steps = after.decode_steps - before.decode_steps
        rows = after.decode_rows - before.decode_rows
        return cls(cpu, after.sampled_tokens - before.sampled_tokens, rows / steps if steps else 1)

    @property
    def steps(self) -> float:
        """Decode steps, the first token of each turn included."""
        return self.tokens / self.rows


def step_costs(serial: Cost, batch: Cost) -> tuple[float, float]:
    """``(a, b)`` with ``a steps + b tokens`` = CPU of both; neither is negative.

    The two have to differ in company: where they do not, all of it is the step's.
    """
    if batch.rows <= 1.01 or serial.tokens == 0:
        return batch.cpu / max(batch.steps, 1.0), 0.0
    matrix = np.array([[serial.steps, serial.tokens], [batch.steps, batch.tokens]])
    step, row = np.linalg.solve(matrix, np.array([serial.cpu, batch.cpu]))
    if row < 0:
        return batch.cpu / batch.steps, 0.0
    if step < 0:
        return 0.0, batch.cpu / batch.tokens
    return float(step), float(row)

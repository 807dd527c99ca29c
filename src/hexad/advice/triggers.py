"""Signs that say change direction: the metric, the threshold, and for how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Row = Mapping[str, Any]
"""One row of ``metrics.jsonl``."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One condition on the column ``metric`` of ``metrics.jsonl`` (``*`` stands for a name).

    ``below`` and ``above`` hold when the column is there and beyond ``threshold`` in each of the
    last ``batches`` rows; ``rises`` and ``falls`` when the mean of the later half of them differs
    from that of the earlier half by at least ``threshold``.
    """

    metric: str
    relation: Literal["below", "above", "rises", "falls"]
    threshold: float
    batches: int

    def holds(self, rows: Sequence[Row]) -> bool:
        """Whether the last rows show it; never before there are ``batches`` of them."""
        window = rows[-self.batches :]
        if len(window) < self.batches:
            return False
        return any(self._seen([row.get(key) for row in window]) for key in self._keys(window[-1]))

    @property
    def text(self) -> str:
        """The condition in words."""
        amount = "by" if self.relation in ("rises", "falls") else "than"
        word = {"below": "lower", "above": "higher"}.get(self.relation, self.relation)
        length = f"{self.batches} batches" if self.batches > 1 else "1 batch"
        return f"{self.metric} {word} {amount} {self.threshold:g} over {length}"

    def told(self, row: Row) -> bool:
        """Whether ``row`` has the column at all."""
        return any(row.get(key) is not None for key in self._keys(row))

    def _keys(self, row: Row) -> list[str]:
        if not self.metric.endswith("*"):
            return [self.metric]
        start = self.metric.removesuffix("*")
        return [key for key in row if key.startswith(start)]

    def _seen(self, values: Sequence[float | None]) -> bool:
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return False
        if self.relation == "below":
            return max(known) < self.threshold
        if self.relation == "above":
            return min(known) > self.threshold
        half = len(known) // 2
        change = sum(known[-half:]) / half - sum(known[:half]) / half
        return (change if self.relation == "rises" else -change) >= self.threshold


@dataclass(frozen=True, slots=True)
class Trigger:
    """All of ``signs`` together say: change to ``then``.

    Where no column of ``metrics.jsonl`` tells alone, ``reads`` says what evaluations show beside
    it (``hexad.evidence.triggers`` has the rule), and ``unmeasured`` what would have to be known
    where nothing that a run writes tells. ``source`` is the section of the seed.
    """

    key: str
    what: str
    then: str
    source: str
    signs: tuple[Sign, ...] = ()
    reads: str = ""
    unmeasured: str = ""

    def fires(self, rows: Sequence[Row]) -> bool:
        """Whether the last rows of ``metrics.jsonl`` show every sign."""
        return bool(self.signs) and all(sign.holds(rows) for sign in self.signs)

    def told(self, row: Row) -> bool:
        """Whether ``row`` says anything of the signs: a batch that sampled nothing does not."""
        return all(sign.told(row) for sign in self.signs)

    @property
    def text(self) -> str:
        """What fires it, in words."""
        if self.signs:
            return " and ".join(sign.text for sign in self.signs)
        return self.reads or f"nothing that a run writes tells: {self.unmeasured}"


MATRIX = "长程 Agent 的选择矩阵"
_ROWS = (
    Trigger(
        "closed-loop-errors",
        "imitation is good and errors add up in the closed loop",
        "reinforcement learning where the verifier is reliable, or demonstrations of recovery",
        f"{MATRIX}, row 1",
        reads="success on selection (evaluation.jsonl) below exp(-token loss x action tokens of an "
        "episode), what errors that do not add up would leave, at 2 evaluations",
    ),
    Trigger(
        "outside-the-data",
        "the new policy often visits states outside the offline data",
        "pairs of a new round, or reinforcement learning where the environment is safe",
        f"{MATRIX}, row 2",
        signs=(Sign("data/states_outside", "above", 0.8, 1),),
    ),
    Trigger(
        "no-contrast",
        "groups have no variance for long",
        "other tasks or data.dynamic; a critic (ppo) if attempts stay alike",
        f"{MATRIX}, row 3",
        (Sign("group/signal", "below", 0.2, 10), Sign("reward/success", "below", 0.9, 10)),
    ),
    Trigger(
        "heavy-barrier",
        "the group barrier is too heavy",
        "critic-based asynchronous training (sao)",
        f"{MATRIX}, row 3",
        unmeasured="the speed-up in here.schedules of a new `hexad check`: 1.2 or more",
    ),
    Trigger(
        "critic-off",
        "the critic stays wrong and reliable group samples can be had",
        "rloo or grpo",
        f"{MATRIX}, row 4",
        (Sign("critic/explained_variance", "below", 0.0, 10),),
    ),
    Trigger(
        "barrier-is-not-the-cost",
        "profiling shows that the barrier is not the main cost",
        "the same recipe with timing.mode: synchronous",
        f"{MATRIX}, row 5",
        unmeasured="the speed-up in here.schedules of a new `hexad check`: less than 1.2",
    ),
    Trigger(
        "stale-dropped",
        "much of what was sampled is refused as stale alone",
        "a smaller timing.max_lag, or synchronous training",
        "同步与异步, requirement 5; 失败模式应沿轴定位, row 4",
        (Sign("episode/stale", "above", 0.05, 5),),
    ),
    Trigger(
        "process-hacked",
        "process scores rise while success falls",
        "the outcome alone, with process scores for diagnosis only",
        f"{MATRIX}, row 6",
        (Sign("reward/component/*", "rises", 0.05, 20), Sign("reward/success", "falls", 0.02, 20)),
    ),
    Trigger(
        "single-window-stronger",
        "evaluation without compaction is much stronger, or key facts get lost",
        "a longer context or a structured memory",
        f"{MATRIX}, row 7",
        unmeasured="paired evaluations, compacted and in a single window",
    ),
    Trigger(
        "verifier-hole",
        "training reward rises while independent success falls",
        "stop, and repair the verifier: a better estimator optimises the wrong goal more steadily",
        "失败模式应沿轴定位, row 1",
        reads="reward/success and success on selection (evaluation.jsonl) come apart, by the rule "
        "of `hexad diagnose`",
    ),
)
TRIGGERS: dict[str, Trigger] = {trigger.key: trigger for trigger in _ROWS}
"""By key."""

"""The ledger watches every arrow: what went in, what came out, what was dropped and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hexad.contract.events import (
    BatchTrained,
    Consumed,
    CriticJudged,
    CriticTrained,
    EpisodeDone,
    EpisodeLeft,
    EpisodeLost,
    EpisodeRefused,
    Event,
    GroupJudged,
    ItemsMade,
    RowsRead,
    TasksDrawn,
    Timed,
    WorkersSeen,
    WorkLost,
)
from hexad.contract.reasons import Reason
from hexad.evidence import journal, staleness
from hexad.evidence.books import RUN_ENDED, Books
from hexad.evidence.conduct import Conduct
from hexad.evidence.critic import CriticBooks
from hexad.evidence.drops import KEPT, Drops
from hexad.evidence.funnel import Funnel
from hexad.evidence.metrics import OUTSIDE
from hexad.evidence.tallies import tally_json
from hexad.evidence.window import Window
from hexad.recipe.axes import BudgetSpec

TRAIN = "train"
"""Purpose of an episode that may be trained on; every other purpose is auxiliary."""
EVALUATION_PHASE = "evaluation"
"""Phase whose seconds are not training seconds."""
COUNTED = ("episodes", "rollout_tokens", "train_tokens", "tool_calls")
"""Budgets that do not depend on the clock."""
SAMPLES = ("episodes", "rollout_tokens", "tool_calls")
"""What sampling consumes, of these."""


class Ledger:
    """A sink that keeps the books of a run in ``folder``.

    ``commit`` writes one row a batch to ``metrics.jsonl`` (this batch) and ``ledger.jsonl``
    (cumulative). Sink and part of the state registry.
    """

    def __init__(self, folder: Path) -> None:
        self.logs = (folder / journal.METRICS, folder / journal.LEDGER)
        self.books, self.funnel, self.window = Books(), Funnel(), Window()
        self.used: dict[str, float] = dict.fromkeys((*COUNTED, "loss_tokens"), 0)
        self.seconds: Counter[str] = Counter()
        self.groups: dict[str, dict[str, int]] = {}
        self.auxiliary: dict[str, dict[str, int]] = {}
        self.killed = {"episodes": 0, "sampled_tokens": 0}
        self.critic, self.drops, self.conduct = CriticBooks(), Drops(), Conduct()
        self.stale = staleness.Staleness()
        self.rows: dict[str, Any] = {}
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            TasksDrawn: self._drawn,
            RowsRead: self._read,
            EpisodeDone: self._done,
            EpisodeLost: self._gone,
            EpisodeLeft: self._left,
            EpisodeRefused: self._refused,
            GroupJudged: self._judged,
            BatchTrained: self._trained,
            Consumed: self._consumed,
            WorkersSeen: self._workers,
            CriticJudged: self._criticised,
            CriticTrained: self._critic_trained,
            Timed: self._timed,
            WorkLost: self._lost,
            ItemsMade: self._made,
        }

    def __call__(self, event: Event) -> None:
        """Book ``event``; kinds that move no account are ignored."""
        if handler := self._handlers.get(type(event)):
            handler(event)

    # -- budgets -----------------------------------------------------------------------------

    @property
    def train_seconds(self) -> float:
        """Wall-clock seconds of all phases but evaluation."""
        return sum(s for phase, s in self.seconds.items() if phase != EVALUATION_PHASE)

    def consumed(self) -> dict[str, float]:
        """What every budget counts, so far."""
        return {key: self.used[key] for key in COUNTED} | {"seconds": self.train_seconds}

    def progress(self, budget: BudgetSpec) -> float:
        """Largest used share of the counted budgets, in [0, 1]; seconds never enter.

        With a budget in seconds only it stays 0: schedules must not depend on the clock.
        """
        limits = {key: getattr(budget, key) for key in COUNTED}
        shares = [self.used[key] / limit for key, limit in limits.items() if limit]
        return min(1.0, max(shares, default=0.0))

    def spent(self, budget: BudgetSpec) -> float:
        """Largest used share of any budget, seconds included; beyond 1 once it is overdrawn."""
        limits = {key: getattr(budget, key) for key in self.consumed()}
        shares = [used / limits[key] for key, used in self.consumed().items() if limits[key]]
        return max(shares, default=0.0)

    def exhausted(self, budget: BudgetSpec, *, samples: bool = True) -> str | None:
        """Why the run must end now, or ``None``; budgets of samples count only with ``samples``."""
        for key, used in self.consumed().items():
            limit = getattr(budget, key) if samples or key not in SAMPLES else None
            if limit is not None and used >= limit:
                return f"budget {key} is used up ({used:.0f} of {limit:g})"
        return None

    # -- rows --------------------------------------------------------------------------------

    def commit(self, version: int) -> dict[str, Any]:
        """Close the books of batch ``version`` on disk and return its metrics row.

        Raises ``ContractViolation`` when the books do not balance; nothing is written then.
        """
        self.books.balance()
        row = {"step": version, **self.window.row()}
        row |= self.critic.metrics()
        row |= {f"budget/{key}": self.used[key] for key in COUNTED}
        journal.append(self.logs[0], row)
        journal.append(self.logs[1], {"step": version, **self.row()})
        self.window, self.critic = Window(), CriticBooks()
        return row

    def close(self, version: int) -> None:
        """Write a last row of ``ledger.jsonl``: the books as the run leaves them.

        It keeps what the row before says of the last batch. Raises ``ContractViolation`` when the
        books do not balance.
        """
        self.books.balance()
        before = journal.rows(self.logs[1])
        last = before[-1] if before else {}
        journal.append(self.logs[1], {**last, "step": version, **self._cumulative()})

    def row(self) -> dict[str, Any]:
        """The cumulative books, and the role table and histograms of this batch."""
        tallies = self.window.tallies.items()
        return self._cumulative() | {
            "roles": self.window.roles,
            "histograms": {k: tally_json(tally) for k, tally in tallies if not staleness.ours(k)},
            **({"critic": critic} if (critic := self.critic.row()) else {}),
        }

    def _cumulative(self) -> dict[str, Any]:
        return {
            "funnel": self.funnel.row(),
            "books": self.books.row(),
            "consumed": dict(self.used),
            "groups": self.groups,
            "auxiliary": self.auxiliary,
            "killed": self.killed,
            **({"staleness": stale} if (stale := self.stale.row()) else {}),
            **({"rows": self.rows} if self.rows else {}),
            **({"drops": drops} if (drops := self.drops.state()) else {}),
            **({"conduct": conduct} if (conduct := self.conduct.row()) else {}),
            "time": {**self.seconds, "train": self.train_seconds},
        }

    # -- state -------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return {
            "books": self.books.state(),
            "funnel": self.funnel.state(),
            "window": self.window.state(),
            "used": dict(self.used),
            "seconds": dict(self.seconds),
            "groups": {key: dict(value) for key, value in self.groups.items()},
            "auxiliary": {key: dict(value) for key, value in self.auxiliary.items()},
            "killed": dict(self.killed),
            "critic": self.critic.state(),
            "drops": self.drops.state(),
            "conduct": self.conduct.state(),
            "staleness": self.stale.state(),
            "rows": dict(self.rows),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self.books = Books.restored(state["books"])
        self.funnel = Funnel.restored(state["funnel"])
        self.window = Window.restored(state["window"])
        self.used, self.seconds = dict(state["used"]), Counter(state["seconds"])
        self.groups = {key: dict(value) for key, value in state["groups"].items()}
        self.auxiliary = {key: dict(value) for key, value in state["auxiliary"].items()}
        self.killed = dict(state["killed"])
        self.critic = CriticBooks.restored(state["critic"])
        self.drops = Drops.restored(state["drops"])
        self.conduct = Conduct.restored(state["conduct"])
        self.stale = staleness.Staleness.restored(state["staleness"])
        self.rows = dict(state["rows"])

    # -- events ------------------------------------------------------------------------------

    def _drawn(self, event: TasksDrawn) -> None:
        self.funnel.tasks += event.tasks
        self.funnel.started += event.episodes

    def _read(self, event: RowsRead) -> None:
        self.rows = {"data": event.name, "read": event.rows, "dropped": dict(event.dropped)}

    def _done(self, event: EpisodeDone) -> None:
        episode, costs = event.episode, event.episode.costs
        self.books.receive(episode, event.purpose)
        if event.purpose != TRAIN:
            account = self.auxiliary.setdefault(event.purpose, {})
            _add(account, "episodes", 1)
            _add(account, "sampled_tokens", costs.sampled_tokens + costs.lost_tokens)
            _add(account, "tool_calls", costs.tool_calls)
            return
        self.funnel.end(episode)
        self.conduct.add(episode)
        self.stale.ended(episode)
        if episode.prefix is None:  # what goes on from another's turn is no attempt at a task
            self.window.episode(episode)
        self.used["episodes"] += 1
        self.used["rollout_tokens"] = self.books.generated - self._auxiliary_tokens()
        self.used["tool_calls"] += costs.tool_calls

    def _gone(self, event: EpisodeLost) -> None:
        self.books.lose(event.sampled_tokens)
        self.used["rollout_tokens"] = self.books.generated - self._auxiliary_tokens()
        self.drops.add("lost", event.sampled_tokens, None, None)
        self.funnel.ended["failed"] += 1

    def _left(self, event: EpisodeLeft) -> None:
        self.books.leave(event.sampled_tokens)
        self.used["rollout_tokens"] = self.books.generated - self._auxiliary_tokens()
        self.drops.add(RUN_ENDED, event.sampled_tokens, None, None)

    def _made(self, event: ItemsMade) -> None:
        if event.outside is not None:
            self.window.scalars[OUTSIDE] = event.outside

    def _auxiliary_tokens(self) -> int:
        return sum(account["sampled_tokens"] for account in self.auxiliary.values())

    def _refused(self, event: EpisodeRefused) -> None:
        self.books.drop(event.episode_id, event.reasons[0])
        self.funnel.refuse(event.reasons)
        self.drops.add(event.reasons[0], event.action_tokens, event.lag, event.age)
        self.window.counts["refused"] += 1
        self.window.counts["stale"] += set(event.reasons) == {Reason.STALE_VERSION}

    def _consumed(self, event: Consumed) -> None:
        self.drops.add(KEPT, event.action_tokens, event.lag, event.age)
        self.window.consumed(event)

    def _workers(self, event: WorkersSeen) -> None:
        self.window.workers(event)

    def _judged(self, event: GroupJudged) -> None:
        starved = ("starved",) if event.scored < 2 <= event.members else ()
        for kind in (event.kind, "signal" if event.signal else "no_signal", *starved):
            account = self.groups.setdefault(kind, {})
            _add(account, "groups", 1)
            _add(account, "tokens", event.sampled_tokens)
        self.window.group(event)

    def _trained(self, event: BatchTrained) -> None:
        self.books.train(event.episodes, event.action_tokens)
        self.funnel.action_tokens += event.action_tokens
        self.funnel.loss_tokens += event.loss_tokens
        self.funnel.updates += event.optimizer_steps
        self.used["train_tokens"] += event.train_tokens
        self.used["loss_tokens"] += event.loss_tokens
        self.window.trained(event)
        self.stale.add(event.tallies)

    def _criticised(self, event: CriticJudged) -> None:
        self.critic.add(event)

    def _critic_trained(self, event: CriticTrained) -> None:
        # Budgets count the policy's tokens; the critic's own are shown beside them.
        self.used["critic_tokens"] = self.used.get("critic_tokens", 0) + event.tokens
        self.window.criticised(event)

    def _timed(self, event: Timed) -> None:
        self.seconds[event.phase] += event.seconds  # type: ignore[assignment]
        self.window.seconds[event.phase] += event.seconds  # type: ignore[assignment]

    def _lost(self, event: WorkLost) -> None:
        # Not in the books: a resumed run does that work again and must equal the whole run.
        self.killed["episodes"] += event.episodes
        self.killed["sampled_tokens"] += event.sampled_tokens


def _add(account: dict[str, int], key: str, value: int) -> None:
    account[key] = account.get(key, 0) + value

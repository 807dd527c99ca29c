"""One episode, run of tokens by run of tokens: what it is, and whether it is trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from hexad.contract.arrays import Ints
from hexad.contract.episode import Episode

Decode = Callable[[Ints], str]
"""Text of token ids, special tokens included."""
_SHOWN = 44
"""Characters of a span in the table; JSON has them all."""


def annotate(episode: Episode, decode: Decode) -> dict[str, Any]:
    """Every span of ``episode`` as JSON: place, kind, turn, tokens, of these sampled and trained.

    ``logprob`` is the sum over sampled tokens, in nats; absent where the policy sampled none.
    """
    spans = []
    for number, segment in enumerate(episode.segments):
        for span in segment.spans:
            part = slice(span.start, span.end)
            action = segment.action[part]
            row: dict[str, Any] = {
                "segment": number,
                "turn": span.turn,
                "kind": str(span.kind),
                "name": span.name,
                "tokens": span.end - span.start,
                "sampled": int(action.sum()),
                "trained": int((segment.weight[part] > 0).sum()),
                "text": decode(segment.ids[part]),
            }
            if (segment.version[part] >= 0).any():
                row["logprob"] = float(segment.logprob[part][segment.version[part] >= 0].sum())
            spans.append(row)
    verdict = episode.verdict
    return {
        "episode": episode.episode_id,
        "task": episode.task_id,
        "ending": str(episode.ending.kind),
        "verdict": None if verdict is None else str(verdict.status),
        "rewards": _components(episode),
        "spans": spans,
    }


def _components(episode: Episode) -> dict[str, float]:
    """The sum of each component, and the gate's reward where it replaces them."""
    found: dict[str, float] = {}
    for reward in episode.rewards:
        found[reward.component] = found.get(reward.component, 0.0) + reward.value
    if episode.gate is not None:
        found[f"gate ({episode.gate.reason})"] = episode.gate.reward
    return found


def table(document: dict[str, Any]) -> Table:
    """The annotated episode for people."""
    rewards = ", ".join(f"{name} {value:g}" for name, value in document["rewards"].items())
    shown = Table(
        title=f"Episode {document['episode']}: {document['ending']}, "
        f"verdict {document['verdict']}, reward {rewards or 'none'}",
        title_justify="left",
    )
    shown.add_column("turn", justify="right")
    shown.add_column("span", no_wrap=True)
    for column in ("tokens", "sampled", "trained", "log-prob"):
        shown.add_column(column, justify="right", no_wrap=True)
    shown.add_column("text", overflow="fold")
    for row in document["spans"]:
        name = f"{row['kind']} {row['name']}".rstrip()
        logprob = f"{row['logprob']:.2f}" if "logprob" in row else ""
        counts = [str(row[key]) for key in ("tokens", "sampled", "trained")]
        shown.add_row(str(row["turn"]), name, *counts, logprob, _short(row["text"]))
    return shown


def _short(text: str) -> str:
    shown = repr(text)[1:-1]
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."


def chosen(episodes: Sequence[Episode]) -> Episode | None:
    """The episode worth showing: of those without a fault, the first of the most turns."""
    whole = [episode for episode in episodes if not episode.faulted]
    return max(whole, key=lambda episode: episode.costs.turns, default=None)

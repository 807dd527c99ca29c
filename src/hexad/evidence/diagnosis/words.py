"""A diagnosis in words, the same on the terminal and on a page."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def heading(finding: Row) -> str:
    """Axis, symptom, since when, and how sure."""
    since = "" if finding["since"] is None else f", since batch {finding['since']}"
    return f"{finding['axis']}: {finding['what']}{since} ({finding['confidence']:.0%} sure)"


def nothing(stage: Row) -> str:
    """What a diagnosis without findings may claim: no more than was looked at."""
    count = len(stage["symptoms"])
    if stage["not_checked"]:
        which = f"of the {count} symptoms, none that could be checked"
    else:
        which = f"none of {count} symptoms"
    return f"{which} is seen in {stage['facts']['batches']} batches"


def title(facts: Row) -> str:
    """Which episodes the table of :func:`looked_at` is of."""
    if "since_batch" not in facts:
        return "No stored episodes"
    return f"The newest {facts['episodes']} stored episodes, from batch {facts['since_batch']} on"


def looked_at(facts: Row) -> list[tuple[str, str]]:
    """What the newest stored episodes are, row by row; empty without stored episodes."""
    found = []
    for kind, row in facts.get("endings", {}).items():
        success = f", success {row['success']:.1%}" if "success" in row else ""
        told = f"{row['episodes']:,} episodes, {row['turns']:.1f} turns{success}"
        found.append((f"ending {kind}", told))
    for name, share in facts.get("longest_quarter", {}).items():
        found.append((f"longest quarter, denominator {name}", f"{share:.1%} of the loss"))
    if facts.get("score_by_length") is not None:
        told = f"r = {facts['score_by_length']:+.2f}"
        found.append(("score and length within groups", told))
    for turns, row in facts.get("horizons", {}).items():
        success = "" if row["success"] is None else f", success {row['success']:.1%}"
        told = f"{row['episodes']:,} episodes, {row['cut']:.1%} cut by a limit{success}"
        found.append((f"{turns} turns", told))
    for name, row in facts.get("advantages", {}).items():
        told = f"{row['mean']:+.3f} on average, deviation {row['std']:.3f}, {row['count']:,} tokens"
        found.append((f"advantage in batch {facts['traced']}, {name}", told))
    for name, row in facts.get("bootstrap", {}).items():
        told = f"{row['mean']:+.3f} on average over {row['count']:,} episodes"
        found.append((f"value before the last action, {name}", told))
    for row in facts.get("temperatures", ()):
        success = "" if row["success"] is None else f", success {row['success']:.1%}"
        told = f"{row['contrast']} of {row['groups']} groups have a contrast{success}"
        found.append((f"tried again at temperature {row['temperature']:g}", told))
    if "trained_tokens" in facts:
        told = f"{facts['trained_tokens']:.1%}, {facts['loss_tokens']:.1%} of them with a weight"
        found.append(("sampled tokens that were trained on, whole run", told))
    cells = facts.get("quadrants")
    if cells is not None:
        counts = ", ".join(f"{name} {cells[name]:,}" for name in list(cells)[:4])
        found.append(("reward - independent outcome", counts))
    return found

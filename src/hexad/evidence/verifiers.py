"""Which verifiers judged a run: their cards, kept in the run folder as ``verifiers.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hexad.contract.durable import disk_errors, write_whole
from hexad.feedback.judge import Feedback

NAME = "verifiers.json"


def row(feedback: Feedback) -> dict[str, Any]:
    """Digest, mapping and card (``None`` where the verifier has none), as JSON.

    ``verifier`` is the digest of the verifier alone, ``digest`` that of all that makes the reward.
    """
    card = feedback.card
    return {
        "digest": feedback.digest,
        "verifier": feedback.verifier.digest,
        "mapping": feedback.mapping.version,
        "timeout": feedback.timeout,
        "card": None if card is None else card.row(),
        "terms": feedback.terms.lines,
    }


def write(folder: Path, training: Feedback | None, evaluation: Feedback | None) -> None:
    """Keep the cards of both in ``folder``; training by demonstrations has no verifier."""
    found = {"training": training, "evaluation": evaluation}
    rows = {name: row(each) for name, each in found.items() if each is not None}
    text = json.dumps(rows, indent=2, sort_keys=True) + "\n"
    with disk_errors("write the verifiers' cards", folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / NAME, text.encode(), "cards")


def read(folder: Path) -> dict[str, Any]:
    """What :func:`write` kept, or nothing for a run that began before there were cards."""
    path = folder / NAME
    rows: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
    return rows


def lines(rows: dict[str, Any]) -> list[str]:
    """One line a verifier for people."""
    shown = []
    for purpose, kept in rows.items():
        shown += kept.get("terms", [])
        card = kept["card"]
        if card is None:
            shown.append(f"verifier of {purpose}: has no card, so what it checks is not known here")
            continue
        text = f"verifier of {purpose}: {card['name']} checks {card['checks']}"
        shown.append(f"{text}; it does not check {card['blind']}")
    return shown

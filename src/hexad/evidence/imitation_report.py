"""What a summary shows of imitation: the entries that evaluations wrote, without any policy."""

from __future__ import annotations

from collections.abc import Sequence

from hexad.evidence.folder import Row


def ends(rows: Sequence[Row]) -> list[Row]:
    """The entries of the first and the last of ``rows`` that have one."""
    seen = [row["imitation"] for row in rows if "imitation" in row]
    return [seen[0], seen[-1]] if seen else []


def lines(found: Sequence[Row]) -> dict[str, str]:
    """For a summary, from :func:`ends`: the token loss of both, hazard and recovery of the last."""
    shown: dict[str, str] = {}
    losses = [f"{each['token_loss']['mean']:.3f}" for each in found if "token_loss" in each]
    if losses:
        dropped = found[-1].get("token_loss", {}).get("dropped", {})
        left = "".join(f"; {count} rows dropped: {flaw}" for flaw, count in dropped.items())
        shown["held-out token loss"] = " > ".join(losses) + left
    if found and "first_error" in found[-1]:
        hazards = [f"{row['hazard']:.2f}" for row in found[-1]["first_error"]]
        shown["first error by turn"] = " ".join(hazards)
        recovery = found[-1]["recovery"]
        share = f"{recovery['success']:.0%}" if "success" in recovery else "none"
        shown["recovered after it"] = f"{share} of {recovery['scored']}"
    return shown

"""What a run folder and a profile of ``hexad check`` have measured, for the advisor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from hexad.advice.agreement import judge
from hexad.advice.measured import BarrierProfile, Groups, Lag, Measured, Number, Qualified
from hexad.advice.questions import Agreement
from hexad.cli import advise_fit as fit
from hexad.cli.advise_fit import Subject
from hexad.contract.faults import UserError
from hexad.evidence import audit, journal, metrics, profiles
from hexad.evidence.folder import Part, parts

WINDOW = 10
"""Newest batches of a run that are looked at."""


def of_run(run_dir: Path, of: Subject) -> Measured:
    """The newest batches of the run's last stage that samples, and the audit of that stage.

    Counts are differences of the cumulative ledger; what was not measured is ``None``. Raises
    ``UserError`` for a folder that is no run, for one that has sampled nothing, and for a run of
    another task.
    """
    online = [p for p in parts(run_dir) if p.recipe.data.regime == "online" and p.metrics]
    if not online:
        fix = "give a run that has sampled episodes, or leave --run out"
        raise UserError("this run has sampled no batch", where=str(run_dir), fix=fix)
    part = online[-1]
    fit.require_task(part.recipe, of, str(part.folder))
    qualified, unused = _audited(part, of)
    rows = journal.rows(part.folder / journal.LEDGER)
    before = rows[-WINDOW - 1] if len(rows) > WINDOW else {}
    source = f"{part.folder}, last {min(WINDOW, len(rows))} batches"
    return Measured(
        groups=_groups(part, rows[-1], before, source) if rows else None,
        explained_variance=_median(part, "critic/explained_variance", source),
        success=_success(part, source),
        faulted=_faulted(rows[-1], before, source) if rows else None,
        qualified=qualified,
        unused=unused,
    )


def _audited(part: Part, of: Subject) -> tuple[tuple[Qualified, ...], tuple[str, ...]]:
    """What `hexad audit` found of the run's verifier: a high training reward is its yes.

    An audit of another verifier confirms nothing of this one. Where the answers name none they may
    mean the run's: then one that failed counts against it.
    """
    row = audit.read(part.folder)
    if row is None or not sum(row["cells"].values()):
        return (), ()
    paid, missed, unpaid, refused = (row["cells"][name] for name in audit.CELLS)
    counts = Agreement(
        right=paid + unpaid, right_accepted=paid, wrong=missed + refused, wrong_accepted=missed
    )
    name = part.recipe.feedback.verifier or profiles.OWN
    source = f"{part.folder / audit.FILE} of {name}, reward at least {row['high']:g}"
    if not fit.same_verifier(part.recipe, of) and (of.named or judge(counts).state != "failed"):
        mine = of.recipe.feedback.verifier or profiles.OWN
        why = f"this task is judged by {mine}; name the verifier in feedback.verifier"
        return (), (f"{source}: {why}",)
    return (Qualified(counts, source),), ()


def _groups(part: Part, now: Mapping[str, Any], before: Mapping[str, Any], source: str) -> Any:
    """Verdicts of groups of at least two attempts; an attempt alone has no contrast."""
    if part.recipe.data.group_size < 2:
        return None

    def count(kind: str) -> int:
        rows = (row.get("groups", {}).get(kind, {}).get("groups", 0) for row in (now, before))
        newest, older = rows
        return int(newest - older)

    right, wrong, mixed = count("all_correct"), count("all_wrong"), count("mixed")
    total = right + wrong + mixed
    return Groups(source, total, count("signal"), right, wrong) if total else None


def _faulted(now: Mapping[str, Any], before: Mapping[str, Any], source: str) -> Number | None:
    ended = now["funnel"]["ended"]
    old = before["funnel"]["ended"] if before else {}
    count = ended["count"] - old.get("count", 0)
    failed = ended.get("failed", 0) - old.get("failed", 0)
    return Number(failed / count, source) if count else None


def _success(part: Part, source: str) -> Number | None:
    """On ``selection``; hidden tasks are for reporting and choose nothing."""
    if rows := part.on("selection"):
        return Number(rows[-1]["success"], f"{part.folder}, selection at {rows[-1]['step']}")
    return _median(part, metrics.SUCCESS, source)


def _median(part: Part, key: str, source: str) -> Number | None:
    values = [row[key] for row in part.metrics[-WINDOW:] if key in row]
    return Number(median(values), source) if values else None


def of_check(path: Path, of: Subject) -> Measured:
    """The profile that ``hexad check`` wrote to ``path``.

    Raises ``UserError`` for another file, and for a profile of another task, policy or verifier.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        fit.require_profile(document, of, str(path))
        return _profile(document, str(path))
    except OSError as error:
        fix = "run `hexad check RECIPE`: it says where it wrote its profile"
        raise UserError(f"cannot be read: {error.strerror}", where=str(path), fix=fix) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        fix = "give the JSON file that `hexad check RECIPE` wrote"
        raise UserError("this is no profile of hexad check", where=str(path), fix=fix) from error


def _profile(document: Mapping[str, Any], source: str) -> Measured:
    qualified = _qualified(document, source)
    if "measured" not in document:  # a recipe that samples in rounds
        return Measured(qualified=qualified)
    measured, here = document["measured"], document["here"]
    seconds, batch = measured["episode_seconds"], here["batch"]
    size = f"{batch['groups']} x {batch['group_size']}"
    lags = [
        Lag(int(name.removeprefix("max_lag ")), float(row["speedup"]), float(row["stale_share"]))
        for name, row in here["schedules"].items()
        if name.startswith("max_lag ")
    ]
    tail = float(seconds["p99"]) / float(seconds["p50"]) if seconds.get("p50") else None
    profile = BarrierProfile(source, tuple(lags), tail, float(measured["learner_use"]), size)
    kinds, signal = measured["groups_by_verdict"], measured["signal"]
    right, wrong = int(kinds.get("all_correct", 0)), int(kinds.get("all_wrong", 0))
    count = right + wrong + int(kinds.get("mixed", 0))
    groups = None
    if batch["group_size"] > 1 and count and signal is not None:
        groups = Groups(source, count, round(float(signal) * count), right, wrong)
    return Measured(groups=groups, profile=profile, qualified=qualified)


def _qualified(document: Mapping[str, Any], source: str) -> tuple[Qualified, ...]:
    """The comparisons with an independent verifier and with labels, where they were made."""
    found = document.get("qualification") or {}
    made = []
    if (compared := found.get("agreement")) is not None:
        probes = tuple(found["probes"].get("accepted", ()))
        made.append(Qualified(_counts(compared), source, probes))
    if (labelled := found.get("labelled")) is not None:
        made.append(Qualified(_counts(labelled), f"{source}, labels {labelled['file']}"))
    return tuple(made)


def _counts(compared: Mapping[str, Any]) -> Agreement:
    accepted, refused = compared["false_positive"], compared["false_negative"]
    return Agreement(
        right=refused["of"],
        right_accepted=refused["of"] - refused["count"],
        wrong=accepted["of"],
        wrong_accepted=accepted["count"],
    )


def join(run: Measured | None, check: Measured | None) -> Measured:
    """Both together; of a run the groups are newer than those of the profile."""
    if run is None or check is None:
        return run or check or Measured()
    return replace(
        run,
        profile=check.profile,
        groups=run.groups or check.groups,
        qualified=(*run.qualified, *check.qualified),
    )

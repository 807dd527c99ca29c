"""``hexad diagnose``: every rule on one part of a run, the likeliest symptom first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.faults import UserError
from hexad.contract.store import Store
from hexad.evidence import traces
from hexad.evidence.archive import Archive, opened
from hexad.evidence.diagnosis import curves as rules
from hexad.evidence.diagnosis import stored as probes
from hexad.evidence.diagnosis import strata
from hexad.evidence.diagnosis.began import began
from hexad.evidence.diagnosis.findings import SYMPTOMS, Finding
from hexad.evidence.diagnosis.retry import temperatures
from hexad.evidence.diagnosis.stored import Stored
from hexad.evidence.folder import Part
from hexad.evidence.intervals import wilson
from hexad.recipe.axes import Recipe

Row = dict[str, Any]
EPISODES = 512
"""About as many of the newest stored episodes are probed."""
LEAST = 0.5
"""A finding below this confidence is not named."""

NOT_INDEPENDENT = "one verifier judges training and evaluation, so no outcome is independent"
"""Why there are no quadrants."""
CONTRADICTED = 0.02
"""Lower bound of the share of wrong among what training called correct, from which on it counts."""


def diagnose(part: Part, *, sample: bool = False) -> Row:
    """What fails in ``part``: findings by falling confidence, and the facts that were looked at.

    Nothing is trained; stored episodes are judged again by the evaluation's verifier. With
    ``sample`` a suspected lack of contrast is tried again, hotter, on a few train tasks. Raises
    ``UserError`` where the episodes cannot be read.
    """
    curves = rules.Curves(part.recipe, part.metrics, part.on("selection"), part.ledger or {})
    found = [finding for rule in rules.RULES if (finding := rule(curves)) is not None]
    facts: Row = {"batches": len(part.metrics), "evaluations": len(curves.selection)}
    facts |= _accepted(curves)
    unchecked: list[str] = []
    stored = _newest(part)
    if stored is None:
        unchecked.append("masks, clock, reductions and quadrants: no stored episodes")
    else:
        found += [_dated(part, finding) for finding in probes.stored_rules(stored)]
        facts |= _facts(part, stored)
        try:
            found = _judged(part, stored, found, facts, sample)
            if "quadrants" not in facts:
                unchecked.append(f"quadrants: {NOT_INDEPENDENT}")
        except UserError as error:
            unchecked.append(f"quadrants: {error.what}")
        if "advantages" not in facts:
            unchecked.append("advantages by turn and task: no trace of a stored batch (run.traces)")
    if len(curves.selection) < 4:
        unchecked.append("training against independent success: fewer than four evaluations")
    if not curves.success.enough:
        unchecked.append("trends: fewer than 30 batches with a training success")
    named = sorted((f for f in found if f.confidence >= LEAST), key=lambda f: -f.confidence)
    return {
        "stage": part.name,
        "findings": [_row(finding, part.recipe) for finding in _distinct(named)],
        "facts": facts,
        "not_checked": unchecked,
        "symptoms": list(SYMPTOMS),
    }


def _judged(
    part: Part, stored: Stored, found: Sequence[Finding], facts: Row, sample: bool
) -> list[Finding]:
    """``found`` with what the archive says of it: misses among what was paid, other draws.

    Adds to ``facts``; no quadrants where one verifier judges training and evaluation: beside itself
    it has no hole. Raises ``UserError`` without a whole checkpoint or with unknown tasks.
    """
    with opened(part) as archive:
        audited = list(found)
        if archive.independent:
            facts["quadrants"] = cells = quadrants(archive, stored.episodes)
            audited = _held(archive, stored, found, cells)
        suspected = any(each.symptom.key == "no-contrast" for each in audited)
        if sample and suspected and (tried := temperatures(archive, stored.episodes)):
            facts["temperatures"] = tried
    return audited


def _held(archive: Archive, stored: Stored, found: Sequence[Finding], cells: Row) -> list[Finding]:
    """``found``, held to ``cells``, and whether the two verifiers contradict each other."""
    audited = [_audited(finding, cells) for finding in found]
    for finding in _contradicted(cells, stored.step):
        share = 0.5 * cells["contradicted"] / cells["correct"]

        def wrong(episodes: Sequence[Episode], share: float = share) -> bool:
            seen = quadrants(archive, episodes)
            return bool(seen["contradicted"] > share * seen["correct"])

        since = began(archive.store, stored.step, wrong)
        audited.append(replace(finding, since=since))
    return audited


def _dated(part: Part, finding: Finding) -> Finding:
    """A finding of the newest stored episodes, with the first batch that shows it, too."""

    def shows(episodes: Sequence[Episode]) -> bool:
        seen = probes.stored_rules(Stored(part.recipe, 0, tuple(episodes)))
        return any(each.symptom is finding.symptom for each in seen)

    assert finding.since is not None
    return replace(finding, since=began(Store(part.folder / "episodes"), finding.since, shows))


def _accepted(curves: rules.Curves) -> Row:
    """The share of the sampled tokens that training took in, and of what it took what counted."""
    books, funnel = curves.books.get("books", {}), curves.books.get("funnel", {})
    tokens = funnel.get("tokens", {})
    sampled = books.get("generated", 0) - sum(books.get("auxiliary", {}).values())
    if curves.recipe.data.regime != "online" or sampled <= 0 or not tokens.get("action"):
        return {}
    return {
        "trained_tokens": books["trained"] / sampled,
        "loss_tokens": tokens["loss"] / tokens["action"],
    }


def quadrants(archive: Archive, episodes: Sequence[Episode], high: float = 0.5) -> Row:
    """Episodes by training reward (high: at least ``high``) and the independent outcome.

    ``correct`` counts those that training called correct, ``contradicted`` those of them that miss.
    """
    cells = dict.fromkeys(("high-hit", "high-miss", "low-hit", "low-miss"), 0)
    correct = contradicted = 0
    weights = archive.recipe.feedback.weights
    for episode in episodes:
        score = episode.score(weights)
        if math.isnan(score):
            continue
        task, transcript = archive.task(episode), archive.transcript(episode)
        verdict = archive.examiner.judge(task, episode, transcript)
        if verdict is not None and verdict.scored:
            outcome = "hit" if verdict.success else "miss"
            called = episode.verdict is not None and episode.verdict.success
            correct += called
            contradicted += called and not verdict.success
            cells[f"{'high' if score >= high else 'low'}-{outcome}"] += 1
    paid = cells["high-hit"] + cells["high-miss"]
    interval = wilson(cells["high-miss"], paid)
    return {**cells, "paid_for_nothing": cells["high-miss"] / paid if paid else None,
            "interval": interval, "correct": correct, "contradicted": contradicted}  # fmt: skip


def _newest(part: Part) -> Stored | None:
    """The newest stored batches, until there are enough episodes."""
    if not (part.folder / "episodes").is_dir():
        return None
    store = Store(part.folder / "episodes")
    episodes: list[Episode] = []
    for step in reversed([s for p in store.parts() for s in range(p.first, p.last + 1)]):
        episodes = store.read([step]) + episodes
        if len(episodes) >= EPISODES:
            break
    return Stored(part.recipe, step, tuple(episodes)) if episodes else None


def _facts(part: Part, stored: Stored) -> Row:
    usable = stored.usable
    facts: Row = {
        "episodes": len(stored.episodes),
        "since_batch": stored.step,
        "endings": probes.endings(stored.episodes),
        "horizons": strata.horizons(stored.episodes),
    }
    if len(usable) >= 8 and stored.sampled_and_trained:
        facts["longest_quarter"] = probes.reductions(usable)
        facts["score_by_length"] = probes.by_length(usable)
    store = Store(part.folder / "episodes")
    steps = [s for p in store.parts() for s in range(p.first, p.last + 1)]
    traced = strata.newest(part.folder, steps)
    if traced is not None:
        episodes, told = store.read([traced]), traces.batch(part.folder, traced)
        facts["traced"] = traced
        facts["advantages"] = strata.advantages(told, episodes)
        facts["bootstrap"] = strata.bootstrap(told, episodes)
    return facts


def _audited(finding: Finding, cells: Row) -> Finding:
    """A suspected hole, after a look at what was paid: confirmed by misses, not named without."""
    if finding.symptom.key != "verifier-hole":
        return finding
    if cells["paid_for_nothing"] is None:
        told = "none of the stored episodes was paid"
        sure = 0.5 * finding.confidence
        return replace(finding, confidence=sure, evidence=(*finding.evidence, told))
    low, high = cells["interval"]
    told = f"of what was paid {cells['paid_for_nothing']:.1%} [{low:.1%}, {high:.1%}] missed"
    sure = finding.confidence + 0.08 if low > 0.01 else 0.5 * finding.confidence
    evidence = (*finding.evidence, f"{told} by the independent verifier")
    return replace(finding, confidence=min(0.98, sure), evidence=evidence)


def _contradicted(cells: Row, step: int) -> list[Finding]:
    """A hole that was there from the start opens no gap, but the two verifiers disagree on it."""
    wrong, correct = cells["contradicted"], cells["correct"]
    low, high = wilson(wrong, correct) or (0.0, 1.0)
    if low < CONTRADICTED:
        return []
    told = (
        f"of {correct} episodes that training called correct the independent verifier calls "
        f"{wrong / correct:.1%} [{low:.1%}, {high:.1%}] wrong",
    )
    sure = 0.96 if low > 5 * CONTRADICTED else 0.85
    return [Finding(SYMPTOMS["verifier-hole"], sure, step, told)]


def _distinct(found: Sequence[Finding]) -> list[Finding]:
    """Each symptom once, by its most confident finding, with the evidence of all."""
    kept: dict[str, Finding] = {}
    for finding in found:
        first = kept.setdefault(finding.symptom.key, finding)
        if first is not finding:
            evidence = (*first.evidence, *finding.evidence)
            kept[finding.symptom.key] = replace(first, evidence=evidence)
    return list(kept.values())


def _row(finding: Finding, recipe: Recipe) -> Row:
    symptom = finding.symptom
    return {
        "key": symptom.key,
        "axis": symptom.axis,
        "what": symptom.what,
        "since": finding.since,
        "confidence": round(finding.confidence, 2),
        "evidence": list(finding.evidence),
        "causes": symptom.causes,
        "tries": symptom.to_try(recipe),
        "source": symptom.source,
    }

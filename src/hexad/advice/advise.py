"""The advice as a whole: a start with its reasons, its price and what speaks against it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hexad.advice.checklist import Item, checklist
from hexad.advice.contradictions import Contradiction
from hexad.advice.critics import CHECKS
from hexad.advice.draft import Draft, draft, running
from hexad.advice.facts import Difference, Facts, gather
from hexad.advice.measured import FAULTED, Measured
from hexad.advice.path import Path, Step, compose
from hexad.advice.questions import Questionnaire
from hexad.advice.requirements import MEASURE_BARRIER, MEASURE_VERIFIER, Broken, broken
from hexad.advice.shapes import SHAPES, Shape
from hexad.advice.starts import STARTS, Start, start_of
from hexad.advice.triggers import TRIGGERS, Trigger
from hexad.recipe.methods import METHODS
from hexad.recipe.read import Document


@dataclass(frozen=True, slots=True)
class Alternative:
    """Not the start: ``rejected`` breaks assumptions of the method, ``possible`` does not."""

    key: str
    verdict: Literal["rejected", "possible"]
    broken: tuple[Broken, ...]
    because: str
    source: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Evidence that nobody has yet, and how it is got."""

    what: str
    how: str


@dataclass(frozen=True, slots=True)
class Advice:
    """What to start with. ``starts`` are the rows of the seed's table that the path takes.

    ``refusals`` say why there is no recipe, where ``draft`` has none.
    """

    name: str
    shapes: tuple[Shape, ...]
    path: Path
    starts: tuple[Start, ...]
    draft: Draft
    refusals: tuple[str, ...]
    companions: tuple[str, ...]
    missing: tuple[Missing, ...]
    triggers: tuple[Trigger, ...]
    alternatives: tuple[Alternative, ...]
    steps: tuple[Item, ...]
    differences: tuple[Difference, ...]
    contradictions: tuple[Contradiction, ...]
    unused: tuple[str, ...]

    def row(self) -> dict[str, Any]:
        """JSON."""
        return {
            "name": self.name,
            "shapes": [{"shape": s.key, "task": s.task, "source": s.source} for s in self.shapes],
            "path": [asdict(step) for step in self.path.steps],
            "starts": [asdict(start) for start in self.starts],
            "later": [asdict(step) for step in self.path.later],
            "measure_first": list(self.path.first),
            "recipe": self.draft.tree,
            "not_in_recipe": dict(self.draft.missing),
            "remarks": list(self.draft.remarks),
            "refusals": list(self.refusals),
            "companions": list(self.companions),
            "missing_evidence": [asdict(each) for each in self.missing],
            "switch": [_trigger(trigger) for trigger in self.triggers],
            "alternatives": [asdict(each) for each in self.alternatives],
            "steps": [asdict(item) for item in self.steps],
            "differences": [asdict(each) for each in self.differences],
            "not_used": list(self.unused),
            "contradictions": [
                {
                    "answers": {key: list(values) for key, values in row.answers.items()},
                    "reason": row.reason,
                    "followed": dict(row.followed),
                }
                for row in self.contradictions
            ],
        }


def advise(answers: Questionnaire, measured: Measured, source: Document) -> Advice:
    """Advice on the task in ``answers``; ``source`` is the file they are from.

    Raises ``UserError`` where ``task`` or ``policy`` of that file make no recipe.
    """
    facts = gather(answers, measured)
    path = compose(facts, running())
    shapes = tuple(shape for shape in SHAPES if shape.fits(facts))
    drafted = draft(answers, path, facts, source)
    taken = _starts((*path.steps, *path.later))
    return Advice(
        name=answers.name,
        shapes=shapes,
        path=path,
        starts=_starts(path.steps),
        draft=drafted,
        refusals=() if drafted.tree is not None else _refusals(path, drafted, facts),
        companions=_companions(shapes, taken, facts),
        missing=tuple(_missing(path, facts)),
        triggers=_triggers(shapes, taken),
        alternatives=tuple(_alternatives(taken, facts)),
        steps=checklist(facts, path),
        differences=facts.differences,
        contradictions=facts.contradictions,
        unused=measured.unused,
    )


def _starts(steps: Iterable[Step]) -> tuple[Start, ...]:
    found = [start_of(step.method) for step in steps]
    return tuple(start for start in found if start is not None)


def _refusals(path: Path, drafted: Draft, facts: Facts) -> tuple[str, ...]:
    """Why there is no recipe: what each kind of stage lacks."""
    if drafted.missing:
        return tuple(drafted.missing.values())
    lacks = [*broken(("rollouts", "reward", "success"), facts)]
    lacks += broken(("demonstrations", "pairs"), facts)
    return tuple(f"it is not so that {each.assumption} ({each.because})" for each in lacks)


def _companions(
    shapes: tuple[Shape, ...], taken: tuple[Start, ...], facts: Facts
) -> tuple[str, ...]:
    found = [text for shape in shapes if _concerns(shape, taken) for text in shape.companions]
    found += [text for start in taken for text in start.companions]
    if any(start.critic != "no" for start in taken):
        found += [f"of the critic: {check.what} ({check.metric})" for check in CHECKS]
    if facts["feedback.process"] == "learned":
        found.append("learned process scores are for diagnosis only: they are a goal of their own")
    if facts["feedback.outcome"] == "judge":
        found.append("the judge that trains is not the one that evaluates")
    qualified, faulted = facts.measured.qualified, facts.measured.faulted
    if accepted := dict.fromkeys(probe for each in qualified for probe in each.probes):
        probes = ", ".join(accepted)
        found.append(f"the verifier accepts what answers no task ({probes}): mend that first")
    if faulted is not None and faulted.value > FAULTED:
        found.append(
            f"{faulted.value:.1%} of the episodes fault ({faulted.source}): mend that first"
        )
    return tuple(dict.fromkeys(found))


def _triggers(shapes: tuple[Shape, ...], taken: tuple[Start, ...]) -> tuple[Trigger, ...]:
    keys = [key for shape in shapes for key in shape.triggers if _concerns(shape, taken)]
    keys += [key for start in taken for key in start.triggers]
    return tuple(TRIGGERS[key] for key in dict.fromkeys(keys))


def _concerns(shape: Shape, taken: tuple[Start, ...]) -> bool:
    """Whether the path takes the shape's method; a shape without one concerns every path."""
    return not shape.first or any(start.key in shape.first for start in taken)


def _missing(path: Path, facts: Facts) -> Iterable[Missing]:
    methods = [step.method for step in (*path.steps, *path.later)]
    records = [METHODS[name] for name in methods if name in METHODS]
    online = any(step.kind == "rl" for step in (*path.steps, *path.later))
    if online and facts.agreement.state != "passed":
        yield Missing("agreement of the verifier", MEASURE_VERIFIER)
    if any(r.assumptions.min_group_size > 1 for r in records) and facts.measured.groups is None:
        how = "run `hexad check RECIPE` and give its file with --check, or a run with --run"
        yield Missing("contrast inside groups", how)
    if any(r.assumptions.critic for r in records) and facts.measured.explained_variance is None:
        how = "train, then read critic/explained_variance; give the run with --run"
        yield Missing("what the critic is worth", how)
    waits = facts["timing.durations"] == "heavy_tailed" or facts["timing.learner"] == "idle"
    if online and waits and facts.measured.profile is None:
        yield Missing("barrier profile", MEASURE_BARRIER)
    if "dpo" in methods:
        yield Missing("states that the pairs cover", "audit the pairs: source, length, states")
    if "sft" in methods and not facts.unevaluated:
        yield Missing("closed-loop success after imitation", "hexad evaluate RUN")


def _alternatives(taken: tuple[Start, ...], facts: Facts) -> Iterable[Alternative]:
    chosen = {start.key for start in taken}
    for start in STARTS:
        if start.key in chosen:
            continue
        found = tuple(broken(start.assumes, facts))
        verdict: Literal["rejected", "possible"] = "rejected" if found else "possible"
        because = "; ".join(each.because for each in found) if found else start.idle
        yield Alternative(start.key, verdict, found, because, start.source)


def _trigger(trigger: Trigger) -> dict[str, Any]:
    return {**asdict(trigger), "fires_when": trigger.text}

"""The data funnel as a flow: every stage a bar, every loss a branch with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from hexad.view.charts import number
from hexad.view.facts import Facts

_HEIGHT, _TOP, _STEP, _BAR = 100.0, 40.0, 170.0, 14.0
_LOSSES = 3
"""Reasons named at a stage; the rest is one branch."""
_ROW = 15.0


@dataclass(frozen=True, slots=True)
class Stage:
    """``amount`` that arrived, and why it is less than at the stage before."""

    name: str
    amount: float
    lost: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Flow:
    """Stages in order, all in one ``unit``."""

    unit: str
    stages: tuple[Stage, ...]
    note: str = ""

    @property
    def svg(self) -> Markup:
        """The flow as a picture; its table says the same in numbers."""
        whole = max((stage.amount for stage in self.stages), default=0.0) or 1.0
        most = max((len(stage.lost) for stage in self.stages), default=0)
        width = _STEP * (len(self.stages) - 1) + 110
        height = _TOP + _HEIGHT + 18 + _ROW * (min(most, _LOSSES + 1) + 1)
        drawn = [_ribbon(i, a, b, whole) for i, (a, b) in enumerate(pairwise(self.stages))]
        drawn += [_bar(i, stage, whole) for i, stage in enumerate(self.stages)]
        told = ", ".join(f"{s.name} {number(s.amount)}" for s in self.stages)
        return Markup(
            '<svg class="flow" width="{0}" viewBox="0 0 {0} {1}" role="img" aria-label="{2}: {3}">'
            "{4}</svg>"
        ).format(width, height, self.unit, told, Markup("").join(drawn))


def flows(facts: Facts) -> list[Flow]:
    """The funnel in episodes, in tokens and in seconds; none before the first batch."""
    return [_episodes(facts), _tokens(facts), _seconds(facts)] if facts.last else []


def _episodes(facts: Facts) -> Flow:
    funnel, books = facts.last["funnel"], facts.last
    ended = funnel["ended"]
    flying = funnel["started"] - ended["count"]
    stages = [
        Stage("started", funnel["started"]),
        Stage("ended", ended["count"], (("in flight", flying),) if flying else ()),
        *(
            Stage(name, funnel[name]["count"], _ranked(funnel[name]["lost"]))
            for name in ("rewarded", "valid", "accepted")
        ),
    ]
    if "trained" in books.get("drops", {}):
        trained = books["drops"]["trained"]["episodes"]
        waiting = funnel["accepted"]["count"] - trained
        stages.append(Stage("trained", trained, (("waiting", waiting),) if waiting > 0 else ()))
    kinds = ", ".join(f"{k} {v:,}" for k, v in sorted(ended["kinds"].items()))
    note = f"{funnel['tasks']:,} tasks drawn; {funnel['updates']:,} optimiser steps. "
    note += f"Endings: {kinds}"
    return Flow("episodes", tuple(stages), note)


def _tokens(facts: Facts) -> Flow:
    books, funnel = facts.last["books"], facts.last["funnel"]
    whole = books["generated"] + books["supplied"]
    apart = dict(books["auxiliary"])
    kept = whole - sum(apart.values())
    lost = dict(books["dropped"]) | {"lost to faults": books["lost"], "pending": books["pending"]}
    used = facts.last["consumed"]
    idle = funnel["tokens"]["action"] - funnel["tokens"]["loss"]
    return Flow(
        "tokens",
        (
            Stage("sampled or given", whole),
            Stage("for training", kept, _ranked(apart)),
            Stage("trained", books["trained"], _ranked(lost)),
            Stage("in the loss", funnel["tokens"]["loss"], _ranked({"without weight": idle})),
        ),
        f"{used['train_tokens']:,.0f} action tokens went through a backward pass, "
        "counted once a pass; tokens without advantage need none",
    )


def _seconds(facts: Facts) -> Flow:
    spent = {k: v for k, v in facts.last["time"].items() if k != "train"}
    whole, apart = sum(spent.values()), spent.pop("evaluation", 0.0)
    update = spent.pop("update", 0.0)
    wait = spent.pop("rollout", 0.0)
    asynchronous = facts.part.recipe.timing.mode == "asynchronous"
    name = "waiting for episodes" if asynchronous else "rollout"
    return Flow(
        "seconds",
        (
            Stage("wall-clock", whole),
            Stage("training", whole - apart, _ranked({"evaluation": apart})),
            Stage("learner", whole - apart - wait, _ranked({name: wait})),
            Stage("update", update, _ranked(spent)),
        ),
    )


def _ranked(reasons: dict[str, float]) -> tuple[tuple[str, float], ...]:
    found = [(name, amount) for name, amount in reasons.items() if amount]
    return tuple(sorted(found, key=lambda item: -item[1]))


def _size(amount: float, whole: float) -> float:
    return round(max(_HEIGHT * amount / whole, 0.5 if amount else 0.0), 1)


def _ribbon(index: int, before: Stage, after: Stage, whole: float) -> Markup:
    """What goes on, and what leaves downwards between two bars."""
    left, right = index * _STEP + _BAR, (index + 1) * _STEP
    on, gone = _size(min(before.amount, after.amount), whole), _size(before.amount, whole)
    middle = (left + right) / 2
    shown = Markup('<path class="ribbon" d="M{0},{2}H{1}V{3}H{0}Z"/>').format(
        left, right, _TOP, _TOP + on
    )
    if gone - on >= 0.5:
        low = _TOP + _HEIGHT + 4
        shown += Markup(
            '<path class="loss" d="M{0},{2}C{1},{2} {1},{2} {1},{4}H{5}C{5},{3} {1},{3} {0},{3}Z"/>'
        ).format(left, middle, _TOP + on, _TOP + gone, low, middle - min(gone - on, 30))
    return shown


def _bar(index: int, stage: Stage, whole: float) -> Markup:
    x = index * _STEP
    shown = Markup(
        '<rect class="bar" x="{0}" y="{1}" width="{2}" height="{3}"><title>{4}</title></rect>'
        '<text class="stage" x="{0}" y="14">{5}</text>'
        '<text class="amount" x="{0}" y="30">{4}</text>'
    ).format(x, _TOP, _BAR, _size(stage.amount, whole), f"{stage.amount:,.0f}", stage.name)
    rows = list(stage.lost[:_LOSSES])
    if rest := stage.lost[_LOSSES:]:
        rows.append((f"{len(rest)} more", sum(amount for _, amount in rest)))
    for place, (reason, amount) in enumerate(rows):
        y = _TOP + _HEIGHT + 20 + _ROW * place
        shown += Markup('<text class="reason" x="{}" y="{}" text-anchor="end">{} {}</text>').format(
            x + _BAR, y, reason, number(amount)
        )
    return shown

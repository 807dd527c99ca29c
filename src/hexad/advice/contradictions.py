"""Answers that cannot both be true, and which of them advice follows: the cautious one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GIVEN = ("<given>",)
"""Stands for any answer but ``None``."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """All of ``answers`` (key to values) together make no sense; ``followed`` is assumed."""

    answers: Mapping[str, tuple[Any, ...]]
    reason: str
    followed: Mapping[str, Any]
    source: str

    def holds(self, stated: Mapping[str, Any]) -> bool:
        """Whether these answers were given."""
        return all(
            stated[key] is not None if values == GIVEN else stated[key] in values
            for key, values in self.answers.items()
        )


CONTRADICTIONS: tuple[Contradiction, ...] = (
    Contradiction(
        {"feedback.goal": ("outcome", "both"), "feedback.outcome": ("none",)},
        "success is an end state that can be told, and nobody tells it",
        {},
        "反馈来源",
    ),
    Contradiction(
        {
            "feedback.goal": ("subjective", "both"),
            "feedback.preferences": ("none",),
            "feedback.outcome": ("none", "exact"),
        },
        "success is a matter of judgement, and nobody judges: an exact check measures something "
        "else",
        {},
        "反馈来源: 相对判断比绝对打分可靠",
    ),
    Contradiction(
        {"feedback.outcome": ("none",), "feedback.agreement": GIVEN},
        "a verifier was compared with an independent judgement, and there is no verifier",
        {"feedback.agreement": None},
        "反馈来源: 结果可以程序化核验",
    ),
    Contradiction(
        {"feedback.outcome": ("none",), "feedback.verifier": GIVEN},
        "a verifier is named, and nobody scores an episode",
        {"feedback.verifier": None},
        "反馈来源",
    ),
    Contradiction(
        {"data.irreversible": (True,), "data.sandbox": (False,), "data.trials": ("cheap",)},
        "a trial that cannot be undone is not cheap",
        {"data.trials": "costly"},
        "长程 Agent 的选择矩阵, row 8",
    ),
    Contradiction(
        {
            "data.irreversible": (True,),
            "data.sandbox": (False,),
            "data.collection": ("rounds", "continuous"),
        },
        "new episodes are sampled where an action cannot be undone, and nothing contains it",
        {"data.collection": "fixed"},
        "长程 Agent 的选择矩阵, row 8",
    ),
    Contradiction(
        {"data.trials": ("costly",), "critic.candidates": ("cheap",)},
        "one more attempt is costly, and several attempts at one task are cheap",
        {"critic.candidates": "single"},
        "Critic：用 value 计算，还是用额外 rollout 比较",
    ),
    Contradiction(
        {"data.collection": ("fixed",), "critic.candidates": ("cheap",)},
        "no new episode can be sampled, so no task can be attempted several times",
        {"critic.candidates": "single"},
        "数据与策略",
    ),
    Contradiction(
        {"data.collection": ("fixed",), "timing.learner": ("idle",)},
        "stored data is there already: no learner waits for it",
        {"timing.learner": "busy"},
        "同步与异步",
    ),
    Contradiction(
        {"action.unit": ("episode",), "credit.reward": ("steps", "transitions")},
        "an action that is the whole episode has no steps to be rewarded",
        {"action.unit": "turn"},
        "动作粒度",
    ),
    Contradiction(
        {"feedback.process": ("none",), "credit.reward": ("steps",)},
        "reward falls at steps, and no step is scored",
        {"credit.reward": "end"},
        "信用分配",
    ),
    Contradiction(
        {"feedback.process": ("none", "learned"), "feedback.process_signal": GIVEN},
        "a signal is named, and no step is checked",
        {"feedback.process_signal": None},
        "信用分配",
    ),
    Contradiction(
        {"action.overflow": (True,), "credit.horizon": ("short",)},
        "episodes are short, and their context overflows",
        {"credit.horizon": "long"},
        "信用分配: 压缩、分段与层级决策",
    ),
)
"""Every pair or triple, with the section of the seed that both answers belong to."""

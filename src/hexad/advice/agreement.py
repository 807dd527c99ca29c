"""May a verifier be optimised? Its agreement with an independent judgement, as an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from hexad.advice.questions import Agreement

WRONG_ACCEPTED = 0.1
"""Largest share of wrong episodes that may be accepted: what a policy would learn to exploit."""
RIGHT_ACCEPTED = 0.8
"""Smallest share of right episodes that must be accepted."""
State = Literal["unmeasured", "few", "passed", "failed"]


@dataclass(frozen=True, slots=True)
class Judged:
    """``state``, and both shares with their 95 % intervals in words."""

    state: State
    text: str


def judge(agreement: Agreement | None) -> Judged:
    """``passed`` and ``failed`` need the whole interval on one side of the bound; else ``few``.

    One number of agreement would not do: on a sample that is almost all right, a verifier that
    accepts everything agrees almost always.
    """
    if agreement is None:
        return Judged(
            "unmeasured", "nobody has compared the verifier with an independent judgement"
        )
    right = wilson(agreement.right_accepted, agreement.right)
    wrong = wilson(agreement.wrong_accepted, agreement.wrong)
    text = (
        f"accepted {_share(agreement.wrong_accepted, agreement.wrong, wrong)} of the wrong episodes"
        f" (at most {WRONG_ACCEPTED:.0%}) and "
        f"{_share(agreement.right_accepted, agreement.right, right)} of the right ones"
        f" (at least {RIGHT_ACCEPTED:.0%})"
    )
    if wrong[0] > WRONG_ACCEPTED or right[1] < RIGHT_ACCEPTED:
        return Judged("failed", text)
    passed = wrong[1] <= WRONG_ACCEPTED and right[0] >= RIGHT_ACCEPTED
    return Judged("passed" if passed else "few", text)


def wilson(count: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion; (0, 1) where nothing was counted.

    ``hexad.evidence.intervals`` has the same formula; this room imports no other.
    """
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.975)
    p, width = count / n, z * z / n
    center = (p + width / 2.0) / (1.0 + width)
    half = math.sqrt(p * (1.0 - p) * width + width * width / 4.0) / (1.0 + width)
    return max(0.0, center - half), min(1.0, center + half)


def _share(count: int, n: int, interval: tuple[float, float]) -> str:
    return f"{count} of {n} [{interval[0]:.1%}, {interval[1]:.1%}]"

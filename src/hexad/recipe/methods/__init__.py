"""Method records: one small file a method."""

from __future__ import annotations

import difflib

from hexad.contract.faults import UserError
from hexad.recipe.methods.dr_grpo import DR_GRPO
from hexad.recipe.methods.grpo import GRPO
from hexad.recipe.methods.record import Assumptions, Method, flatten
from hexad.recipe.methods.reinforce import REINFORCE
from hexad.recipe.methods.rloo import RLOO
from hexad.recipe.methods.sft import SFT

METHODS: dict[str, Method] = {m.name: m for m in (SFT, REINFORCE, RLOO, GRPO, DR_GRPO)}
"""Every built-in method by name."""


def method(name: str) -> Method:
    """The record called ``name``. Raises ``UserError`` with the nearest right name."""
    if name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(name, METHODS, n=1)
    fix = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(METHODS)}"
    raise UserError(f"unknown method {name!r}", where="method", fix=fix)


__all__ = ["METHODS", "Assumptions", "Method", "flatten", "method"]

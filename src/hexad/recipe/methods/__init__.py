"""Method records: one small file a method."""

from __future__ import annotations

import difflib

from hexad.contract.faults import UserError
from hexad.contract.lookup import load_object
from hexad.recipe.methods.areal import AREAL
from hexad.recipe.methods.awr import AWR
from hexad.recipe.methods.cispo import CISPO
from hexad.recipe.methods.compactionrl import COMPACTIONRL
from hexad.recipe.methods.dagger import DAGGER
from hexad.recipe.methods.dapo import DAPO
from hexad.recipe.methods.dpo import DPO
from hexad.recipe.methods.dr_grpo import DR_GRPO
from hexad.recipe.methods.gigpo import GIGPO
from hexad.recipe.methods.grpo import GRPO
from hexad.recipe.methods.gspo import GSPO
from hexad.recipe.methods.impala import IMPALA
from hexad.recipe.methods.ipo import IPO
from hexad.recipe.methods.kto import KTO
from hexad.recipe.methods.ppo import PPO
from hexad.recipe.methods.record import Assumptions, Method, flatten
from hexad.recipe.methods.reinforce import REINFORCE
from hexad.recipe.methods.reinforce_pp import REINFORCE_PP
from hexad.recipe.methods.rejection import REJECTION
from hexad.recipe.methods.reward_model import REWARD_MODEL
from hexad.recipe.methods.rloo import RLOO
from hexad.recipe.methods.sao import SAO
from hexad.recipe.methods.sft import SFT
from hexad.recipe.methods.simpo import SIMPO
from hexad.recipe.methods.vapo import VAPO

_RECORDS = (
    SFT,
    DAGGER,
    AWR,
    REJECTION,
    DPO,
    IPO,
    SIMPO,
    KTO,
    REWARD_MODEL,
    REINFORCE,
    RLOO,
    GRPO,
    DR_GRPO,
    DAPO,
    GSPO,
    CISPO,
    REINFORCE_PP,
    PPO,
    VAPO,
    GIGPO,
    IMPALA,
    AREAL,
    SAO,
    COMPACTIONRL,
)
METHODS: dict[str, Method] = {record.name: record for record in _RECORDS}
"""Every built-in method by name."""


def method(name: str) -> Method:
    """The record called ``name``, or the ``Method`` that ``package.module:object`` refers to.

    Raises ``UserError`` with the nearest right name.
    """
    if ":" in name:
        found = load_object(name, where="method")
        if isinstance(found, Method):
            return found
        fix = "make it a hexad.recipe.methods.Method"
        raise UserError(f"{name} is a {type(found).__name__}", where="method", fix=fix)
    if name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(name, METHODS, n=1)
    fix = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(METHODS)}"
    raise UserError(f"unknown method {name!r}", where="method", fix=fix)


__all__ = ["METHODS", "Assumptions", "Method", "flatten", "method"]

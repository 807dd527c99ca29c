"""Rejection sampling: the policy imitates those of its own samples that a verifier accepts."""

from hexad.recipe.methods.record import Assumptions, Method

REJECTION = Method(
    name="rejection",
    title="Rejection sampling fine-tuning (best-of-N)",
    equation="loss = -(1 / sum_t w_t) sum_t w_t log pi(a_t | h_t), over the action tokens of the "
    "policy's own attempts that are correct (or the best one of every task)",
    source="Yuan et al. 2023, Scaling Relationship on Learning Mathematical Reasoning with Large "
    "Language Models, arXiv 2308.01825",
    atom="row",
    assumptions=Assumptions(behaviour_logprobs=False, tolerates_lag=True),
    needs={"logprob": False, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {
            "regime": "iterative",
            "origin": "policy",
            "group_size": 4,
            "rounds": {"tasks": 512, "keep": "correct"},
        },
        "action": {"denominator": "token"},
        "credit": {"estimator": "none"},
        "update": {"surrogate": "nll"},
    },
    functions={
        "kept": "hexad.feedback.pairs:correct",
        "surrogate": "hexad.update.surrogate:nll",
        "reduce": "hexad.update.reduce",
    },
    notes="A baseline: every sample is in the books, the rejected ones as dropped. Best-of-N at "
    "evaluation time costs N episodes a task, which is not what this trains.",
)

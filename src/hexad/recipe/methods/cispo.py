"""CISPO: a clipped, detached ratio weighs the log-likelihood; no token loses its gradient."""

from hexad.recipe.methods.record import Assumptions, Method

CISPO = Method(
    name="cispo",
    title="Clipped importance sampling policy optimisation",
    equation="J = (1 / sum_i L_i) sum_i sum_t sg(clip(r_t, 1 - low, 1 + high)) A_i log pi(a_t),"
    "  r_t = pi(a_t) / old(a_t)",
    source="MiniMax 2025, MiniMax-M1, arXiv 2506.13585",
    atom="group",
    assumptions=Assumptions(min_group_size=2),
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {"regime": "online", "origin": "policy"},
        "action": {"denominator": "token"},
        "credit": {
            "estimator": "grpo",
            "std": "population",
            "threshold": 1e-06,
            "truncation": "score",
        },
        "update": {"surrogate": "cispo", "clip_low": 1.0, "clip_high": 4.0},
    },
    functions={
        "credit": "hexad.credit.group_relative:grpo",
        "surrogate": "hexad.update.surrogate:cispo",
        "reduce": "hexad.update.reduce",
    },
    notes="UNVERIFIED: the report discloses no upper bound. 4.0 (a cap of 5 on the ratio) is "
    "what other frameworks use; clip_low 1.0 means no lower bound, as in practice. The "
    "paper also takes dynamic sampling and the length penalty from DAPO: data.dynamic "
    "and feedback.overlong.",
)

"""DAPO: GRPO with a higher upper clip, token mean and dynamic sampling."""

from hexad.recipe.methods.record import Assumptions, Method

DAPO = Method(
    name="dapo",
    title="Decoupled clip and dynamic sampling policy optimisation",
    equation="A_i = (R_i - mean R) / std R over groups that are mixed;  J = (1 / sum_i L_i) "
    "sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i),  low < high",
    source="Yu et al. 2025, DAPO, arXiv 2503.14476",
    atom="group",
    assumptions=Assumptions(min_group_size=2),
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {
            "regime": "online",
            "origin": "policy",
            "dynamic": {"surplus": "drop", "rounds": 10, "at_cap": "train"},
        },
        "action": {"denominator": "token"},
        "credit": {
            "estimator": "grpo",
            "std": "population",
            "threshold": 1e-06,
            "truncation": "score",
        },
        "update": {"surrogate": "clip", "clip_low": 0.2, "clip_high": 0.28},
    },
    functions={
        "credit": "hexad.credit.group_relative:grpo",
        "surrogate": "hexad.update.surrogate:clip",
        "reduce": "hexad.update.reduce",
    },
    notes="Four parts, none alone is DAPO: clip-higher, dynamic sampling, token mean and the "
    "soft punishment of length, which is feedback.overlong and must be declared, since "
    "it depends on the task. Overlong filtering is the separate, earlier option "
    "credit.truncation: mask. Success is reported on all sampled episodes and on the "
    "kept ones apart. No KL. Population standard deviation with an exact zero branch.",
)

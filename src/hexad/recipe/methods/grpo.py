"""GRPO: group-relative advantage divided by the group's standard deviation, with PPO's clip."""

from hexad.recipe.methods.record import Assumptions, Method

GRPO = Method(
    name="grpo",
    title="Group relative policy optimisation",
    equation="A_i = (R_i - mean R) / std R, 0 where std R <= threshold;  J = (1/N) sum_i (1/L_i) "
    "sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i),  r_t = pi(a_t) / old(a_t)",
    source="Shao et al. 2024, DeepSeekMath, arXiv 2402.03300",
    atom="group",
    assumptions=Assumptions(min_group_size=2),
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {"regime": "online", "origin": "policy"},
        "action": {"denominator": "episode"},
        "credit": {
            "estimator": "grpo",
            "std": "population",
            "threshold": 1e-6,
            "truncation": "score",
        },
        "update": {"surrogate": "clip", "clip_low": 0.2, "clip_high": 0.2},
    },
    functions={
        "credit": "hexad.credit.group_relative:grpo",
        "surrogate": "hexad.update.surrogate:clip",
        "reduce": "hexad.update.reduce",
    },
    notes="The paper averages over each sampled output; for an agent that is the rollout, so the "
    "denominator is episode, not response. The paper does not state the clip; 0.2 is PPO's. Its "
    "KL term (k3, 0.04) is left out. Population standard deviation with an exact zero branch in "
    "place of an added epsilon.",
)

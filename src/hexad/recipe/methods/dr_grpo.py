"""Dr. GRPO: GRPO without the standard deviation and without the division by length."""

from hexad.recipe.methods.record import Assumptions, Method

DR_GRPO = Method(
    name="dr_grpo",
    title="GRPO done right",
    equation="A_i = R_i - mean R;  J = (1 / (N L)) sum_i sum_t "
    "min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i),  L declared beforehand",
    source="Liu et al. 2025, Understanding R1-Zero-Like Training, arXiv 2503.20783",
    atom="group",
    assumptions=Assumptions(min_group_size=2),
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {"regime": "online", "origin": "policy", "group_size": 8},
        "action": {"denominator": "fixed"},
        "credit": {"estimator": "dr_grpo", "truncation": "score"},
        "update": {"surrogate": "clip", "clip_low": 0.2, "clip_high": 0.2},
    },
    functions={
        "credit": "hexad.credit.group_relative:dr_grpo",
        "surrogate": "hexad.update.surrogate:clip",
        "reduce": "hexad.update.reduce",
    },
    notes="action.length must be declared: the release divides by its generation limit (3000). "
    "RLOO's advantage is K / (K - 1) times this one.",
)

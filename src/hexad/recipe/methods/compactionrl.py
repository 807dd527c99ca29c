"""CompactionRL: token-level PPO over the segments of compacted episodes."""

from hexad.recipe.methods.record import Assumptions, Method

COMPACTIONRL = Method(
    name="compactionrl",
    title="CompactionRL",
    equation="A_(s,i) = (gamma lambda)^(N_later) A_local;  J = token mean over all segments of "
    "min(r_t A_t, clip(r_t, 1 - low, 1 + high) A_t)",
    source="CompactionRL, arXiv 2607.05378 (secondary readings)",
    atom="episode",
    assumptions=Assumptions(critic=True),
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {"regime": "online", "origin": "policy", "group_size": 1},
        "action": {"denominator": "token"},
        "critic": {"updates": 2},
        "credit": {"estimator": "gae", "alpha": 1.5, "lambda_critic": 1.0},
        "update": {"surrogate": "clip", "clip_low": 0.2, "clip_high": 0.2},
    },
    functions={
        "credit": "hexad.credit.gae:gae",
        "surrogate": "hexad.update.surrogate:clip",
        "reduce": "hexad.update.reduce",
    },
    notes="Sampled summaries are actions, copied ones are not. UNVERIFIED: the clip, gamma, "
    "the unit of l and the critic's target; here the trace continues across a seam, "
    "which is exact, where the paper scales each segment's own estimate.",
    missing="compacted episodes",
)

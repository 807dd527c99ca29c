"""AReaL: decoupled PPO, clipped around the policy at arrival, weighed by its staleness."""

from hexad.recipe.methods.record import Assumptions, Method

AREAL = Method(
    name="areal",
    title="AReaL, decoupled PPO",
    equation="u_t = pi(a_t) / prox(a_t);  J = E[(prox / mu) min(u_t A, clip(u_t, 1 - low, 1 + "
    "high) A)]",
    source="Fu et al. 2025, AReaL, arXiv 2505.24298",
    atom="batch",
    assumptions=Assumptions(tolerates_lag=True),
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {"regime": "online", "origin": "policy"},
        "action": {"denominator": "token"},
        "timing": {"mode": "asynchronous", "max_lag": 4},
        "credit": {
            "estimator": "reinforce",
            "baseline": "none",
            "whiten": "batch",
            "truncation": "score",
        },
        "update": {
            "surrogate": "clip",
            "clip_low": 0.2,
            "clip_high": 0.2,
            "minibatches": 4,
            "correction": {"ratio": "proximal", "rule": "tis", "high": 5.0},
        },
    },
    functions={
        "credit": "hexad.credit.group_relative:reinforce",
        "surrogate": "hexad.update.surrogate:clip",
        "reduce": "hexad.update.reduce",
    },
    notes="prox is the learner before the batch's first step, recomputed on arrival. "
    "Advantages are whitened over the batch. The paper gives no cap of prox / mu: 5.0 "
    "is ours.",
)

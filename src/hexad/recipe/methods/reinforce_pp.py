"""REINFORCE++: return-to-go with the KL in the reward, whitened over the whole batch."""

from hexad.recipe.methods.record import Assumptions, Method

REINFORCE_PP = Method(
    name="reinforce_pp",
    title="REINFORCE++",
    equation="G_t = sum_(k >= t) (r_k - beta k1_k);  A = (G - mean G) / std G over all action "
    "tokens of the batch;  J = token mean of min(r_t A_t, clip(r_t, 1 - low, 1 + high) "
    "A_t)",
    source="Hu 2025, REINFORCE++, arXiv 2501.03262",
    atom="batch",
    assumptions=Assumptions(reference=True),
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {"regime": "online", "origin": "policy"},
        "action": {"denominator": "token"},
        "credit": {"estimator": "reinforce_pp", "whiten": "batch", "truncation": "score"},
        "update": {
            "surrogate": "clip",
            "clip_low": 0.2,
            "clip_high": 0.2,
            "kl": {"estimator": "k1", "placement": "reward", "coefficient": 0.001},
        },
    },
    functions={
        "credit": "hexad.credit.reward_to_go:reward_to_go",
        "surrogate": "hexad.update.surrogate:clip",
        "reduce": "hexad.update.reduce",
    },
    notes="The return is kept through observations: an estimator that multiplies it by the "
    "mask at every step loses it before each tool result. The moments are weighted by "
    "tokens, so long episodes count more. One attempt a task in the paper; more do no "
    "harm.",
)

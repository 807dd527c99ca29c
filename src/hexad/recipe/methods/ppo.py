"""PPO: a clipped surrogate with advantages from a learned critic by GAE."""

from hexad.recipe.methods.record import Assumptions, Method

PPO = Method(
    name="ppo",
    title="Proximal policy optimisation",
    equation="delta_t = r_t + gamma V(s_(t+1)) - V(s_t);  A_t = delta_t + gamma lambda A_(t+1);"
    "  J = token mean of min(r_t A_t, clip(r_t, 1 - low, 1 + high) A_t);  critic: 1/2 "
    "(V - sg(A + V_held))^2",
    source="Schulman et al. 2017, arXiv 1707.06347; GAE: Schulman et al. 2016, arXiv 1506.02438",
    atom="row",
    assumptions=Assumptions(critic=True),
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {"regime": "online", "origin": "policy"},
        "action": {"denominator": "token"},
        "critic": {"updates": 1},
        "credit": {
            "estimator": "gae",
            "lambda_policy": 0.95,
            "lambda_critic": 0.95,
            "whiten": "batch",
        },
        "update": {"surrogate": "clip", "clip_low": 0.2, "clip_high": 0.2},
    },
    functions={
        "credit": "hexad.credit.gae:gae",
        "surrogate": "hexad.update.surrogate:clip",
        "reduce": "hexad.update.reduce",
    },
    notes="The clock ticks on action tokens alone: an observation, however long, is one step "
    "from the last action before it to the first after it. Termination does not "
    "bootstrap, truncation does. Values, targets and explained variance are taken "
    "before any update on the batch. lambda .95 is common, the papers leave it open; "
    "whitening over the batch is a common choice, not the paper's.",
)

"""SAO: one rollout a task, a critic, and a two-sided gate on current / behaviour."""

from hexad.recipe.methods.record import Assumptions, Method

SAO = Method(
    name="sao",
    title="Single-rollout asynchronous optimisation",
    equation="r_t = pi(a_t) / mu(a_t);  J = mean over all action tokens of sg(r_t 1[1 - low < "
    "r_t < 1 + high]) A_t log pi(a_t);  lambda_policy = 1 - 1 / (alpha l), "
    "lambda_critic = 1",
    source="SAO, arXiv 2607.07508 (secondary readings)",
    atom="row",
    assumptions=Assumptions(critic=True, tolerates_lag=True),
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {"regime": "online", "origin": "policy", "group_size": 1},
        "action": {"denominator": "token"},
        "critic": {"updates": 2, "freeze": "attention"},
        "timing": {"mode": "asynchronous", "max_lag": 4},
        "credit": {"estimator": "gae", "alpha": 1.5, "lambda_critic": 1.0},
        "update": {"surrogate": "dis", "clip_low": 0.3, "clip_high": 5.0},
    },
    functions={
        "credit": "hexad.credit.gae:gae",
        "surrogate": "hexad.update.surrogate:dis",
        "reduce": "hexad.update.reduce",
    },
    notes="UNVERIFIED, and decided here: the gate's weight is detached, its interval is open,"
    " gated tokens stay in the denominator, l counts action tokens. The bounds are the "
    "paper's for mathematics; 0.8 and 3.0 for code. The critic's learning rate is five "
    "times the actor's in the paper; max_lag is ours.",
)

"""IMPALA: V-trace targets and advantages for an actor-critic on stale data."""

from hexad.recipe.methods.record import Assumptions, Method

IMPALA = Method(
    name="impala",
    title="Importance weighted actor-learner architecture",
    equation="rho_t = min(rho_bar, pi / mu), c_t = lambda min(c_bar, pi / mu);  v_t = V_t + "
    "rho_t (r_t + gamma V_(t+1) - V_t) + gamma c_t (v_(t+1) - V_(t+1));  J = sum_t "
    "rho_t (r_t + gamma v_(t+1) - V_t) log pi",
    source="Espeholt et al. 2018, IMPALA, arXiv 1802.01561",
    atom="row",
    assumptions=Assumptions(critic=True, tolerates_lag=True),
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {"regime": "online", "origin": "policy"},
        "action": {"denominator": "token"},
        "critic": {"updates": 1},
        "timing": {"mode": "asynchronous", "max_lag": 4},
        "credit": {"estimator": "vtrace", "rho_bar": 1.0, "c_bar": 1.0, "lambda_policy": 1.0},
        "update": {"surrogate": "plain", "entropy": 0.00025},
    },
    functions={
        "credit": "hexad.credit.vtrace:vtrace",
        "surrogate": "hexad.update.surrogate:plain",
        "reduce": "hexad.update.reduce",
    },
    notes="The ratio inside V-trace is old / behaviour, taken once a batch; the moving policy"
    " enters through the surrogate alone, so no change is counted twice. Evidence that "
    "V-trace helps language models is UNVERIFIED. max_lag is a choice of ours.",
)

"""REINFORCE: Monte Carlo policy gradient, with no baseline or the batch mean."""

from hexad.recipe.methods.record import Method

REINFORCE = Method(
    name="reinforce",
    title="REINFORCE with a batch-mean baseline",
    equation="grad J = E[sum_t grad log pi(a_t | h_t) (R - b)],  b = batch mean of R, or 0",
    source="Williams 1992, Simple Statistical Gradient-Following Algorithms for Connectionist "
    "Reinforcement Learning",
    atom="batch",
    needs={"logprob": True, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {"regime": "online", "origin": "policy"},
        "action": {"denominator": "fixed", "length": 1},
        "credit": {"estimator": "reinforce", "baseline": "batch", "truncation": "score"},
        "update": {"surrogate": "plain"},
    },
    functions={
        "credit": "hexad.credit.group_relative:reinforce",
        "surrogate": "hexad.update.surrogate:plain",
        "reduce": "hexad.update.reduce",
    },
    notes="The batch mean holds the episode's own return, so the gradient is (N-1)/N of the "
    "leave-one-out one, and it mixes the difficulty of tasks. Denominator fixed with length 1 is "
    "the sum of log-probs of an episode, averaged over episodes: the published objective. "
    "Baseline beta with whiten: batch is SPO's advantage; its prioritised sampling of tasks is not "
    "offered, since no source gives its weights: tasks come in order.",
)

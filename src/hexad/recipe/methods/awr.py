"""Advantage-weighted imitation of logged episodes: the offline baseline."""

from hexad.recipe.methods.record import Assumptions, Method

AWR = Method(
    name="awr",
    title="Advantage-weighted regression on logged episodes",
    equation="loss = -(1 / sum_i w_i n_i) sum_i w_i sum_t log pi(a_it | h_it),  "
    "w_i = min(exp((R_i - b) / beta), cap), b the mean logged score of the task, or of all data",
    source="Peng et al. 2019, Advantage-Weighted Regression, arXiv 1910.00177 (UNVERIFIED; "
    "here the baseline is a mean of logged scores, not a learned value)",
    atom="row",
    assumptions=Assumptions(behaviour_logprobs=False, tolerates_lag=True),
    needs={"logprob": False, "reward": True},
    axes={
        "feedback": {"source": "verifier"},
        "data": {
            "regime": "fixed",
            "group_size": 1,
            "advantage": {"beta": 0.5, "cap": 20.0, "baseline": "group"},
        },
        "action": {"denominator": "token"},
        "credit": {"estimator": "none"},
        "update": {"surrogate": "nll"},
    },
    functions={
        "weights": "hexad.feedback.advantage:weights",
        "surrogate": "hexad.update.surrogate:nll",
        "reduce": "hexad.update.reduce",
    },
    notes="Name the episodes of a run in data.origin. Nothing is sampled, so nothing outside the "
    "data is ever tried: compare it with a method that samples, at one budget. beta and cap are "
    "choices, not published defaults. With baseline: group the only attempt at a task weighs 1.",
)

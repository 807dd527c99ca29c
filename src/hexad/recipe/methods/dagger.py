"""DAgger: the expert labels the states that the learner itself has visited."""

from hexad.recipe.methods.record import Assumptions, Method

DAGGER = Method(
    name="dagger",
    title="Dataset aggregation (DAgger)",
    equation="loss = -(1 / sum_t w_t) sum_t w_t log pi(a*_t | h_t),  a*_t the expert's turn in the "
    "state h_t that the policy reached, over the states of all rounds so far",
    source="Ross, Gordon, Bagnell 2011, A Reduction of Imitation Learning and Structured "
    "Prediction to No-Regret Online Learning",
    atom="row",
    assumptions=Assumptions(behaviour_logprobs=False, tolerates_lag=True),
    needs={"logprob": False, "reward": False},
    axes={
        "feedback": {"source": "demonstrations"},
        "data": {
            "regime": "iterative",
            "origin": "policy",
            "group_size": 1,
            "rounds": {"tasks": 256, "passes": 2, "rounds": 4, "keep": "expert"},
        },
        "action": {"denominator": "token"},
        "credit": {"estimator": "none"},
        "update": {"surrogate": "nll"},
    },
    functions={
        "labels": "hexad.rollout.relabel:relabelled",
        "surrogate": "hexad.update.surrogate:nll",
        "reduce": "hexad.update.reduce",
    },
    notes="Begin with a policy that was trained on demonstrations: the learner alone acts (the "
    "paper's beta is 1 before the first round and 0 from it on). It needs an environment whose "
    "expert gives advice in any state. Played episodes are in the books as dropped: only the "
    "expert's turns are trained on.",
)

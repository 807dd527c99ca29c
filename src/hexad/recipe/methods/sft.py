"""Supervised fine-tuning on demonstrations: behaviour cloning of the expert's action tokens."""

from hexad.recipe.methods.record import Assumptions, Method

SFT = Method(
    name="sft",
    title="Supervised fine-tuning (behaviour cloning)",
    equation="loss = -(1 / sum_t w_t) sum_t w_t log pi(a_t | h_t), over the expert's action tokens",
    source="Pomerleau 1989, Efficient Training of Artificial Neural Networks for Autonomous "
    "Navigation; token mean as usual for language models",
    atom="row",
    assumptions=Assumptions(behaviour_logprobs=False, tolerates_lag=True),
    needs={"logprob": False, "reward": False},
    axes={
        "feedback": {"source": "demonstrations"},
        "data": {"regime": "fixed", "origin": "expert", "group_size": 1},
        "action": {"denominator": "token"},
        "credit": {"estimator": "none"},
        "update": {"surrogate": "nll"},
    },
    functions={"surrogate": "hexad.update.surrogate:nll", "reduce": "hexad.update.reduce"},
    notes="Judge it by closed-loop success, not by token loss.",
)

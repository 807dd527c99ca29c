"""One short episode, as books and evaluations meet it."""

from hexad.contract.ending import Ending, EndingKind
from hexad.contract.episode import Actor, Costs, Episode
from hexad.contract.provenance import Provenance
from hexad.contract.reward import Reward
from hexad.contract.segment import Segment
from hexad.contract.task import Split
from hexad.contract.verdict import Verdict, VerdictStatus

PROVENANCE = Provenance(*["d"] * 8)


def build(name, *, tokens=4, status="correct", ending="terminal", actor="policy", **costs):
    """An episode of ``tokens`` sampled tokens; ``status`` None means that nobody judged it."""
    ids = list(range(tokens))
    policy = actor == "policy"
    segment = Segment(
        ids=ids,
        action=[True] * tokens,
        weight=[1.0] * tokens,
        logprob=[-1.0 if policy else float("nan")] * tokens,
        version=[0 if policy else -1] * tokens,
        turn=[0] * tokens,
    )
    verdict = None
    rewards = ()
    if status is not None:
        scored = status in ("correct", "wrong", "invalid", "timeout")
        score = float(status == "correct") if scored else None
        verdict = Verdict(VerdictStatus(status), score)
        rewards = (Reward("task", score),) if scored else ()
    return Episode(
        episode_id=name,
        task_id=f"task-{name}",
        group_id=f"group-{name}",
        member=0,
        split=Split.TRAIN,
        environment="calculator",
        initial_state="s",
        seed=0,
        segments=(segment,),
        ending=Ending.of(EndingKind(ending)),
        provenance=PROVENANCE,
        actor=Actor(actor),
        rewards=rewards,
        verdict=verdict,
        costs=Costs(**{"sampled_tokens": tokens if policy else 0, "turns": 2, **costs}),
    )

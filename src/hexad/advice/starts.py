"""The seed's six common starting points. They are not of one level; none outranks another."""

from __future__ import annotations

from dataclasses import dataclass

from hexad.advice.requirements import ONLINE

TABLE = "六种常见起点并不处于同一层级"
BOUNDS = "各方法的决策边界"


@dataclass(frozen=True, slots=True)
class Start:
    """A row of the table, and what the seed's section on the method adds.

    ``methods`` are records of ``hexad.recipe.methods``, ``assumes`` keys of ``REQUIREMENTS``,
    ``idle`` says why the method need not be the start although nothing it assumes is broken.
    """

    key: str
    data: str
    rollouts: str
    critic: str
    credit: str
    synchronisation: str
    suits: str
    companions: tuple[str, ...]
    triggers: tuple[str, ...]
    methods: tuple[str, ...]
    assumes: tuple[str, ...]
    idle: str
    source: str


STARTS: tuple[Start, ...] = (
    Start(
        "sft",
        "sequences of actions by experts, or filtered ones",
        "no",
        "no",
        "local likelihood of demonstrated actions",
        "ordinary data parallelism",
        "a start: tool protocol, output structure, basic behaviour",
        ("closed-loop evaluation, not the loss on demonstrations alone",),
        ("closed-loop-errors",),
        ("sft",),
        ("demonstrations",),
        "the protocol is learned; imitation is bounded by what demonstrations cover",
        f"{TABLE}, row 1; {BOUNDS}, SFT",
    ),
    Start(
        "dpo",
        "pairs under one condition",
        "not within a round",
        "no",
        "usually compares whole responses or trajectories",
        "ordinary data parallelism",
        "stable preferences, and environments that are costly or risky to act in",
        ("reference, construction of pairs and length bias are checked",),
        ("outside-the-data",),
        ("dpo",),
        ("pairs",),
        "the goal is told by a program: comparing whole trajectories uses that badly",
        f"{TABLE}, row 2; {BOUNDS}, DPO",
    ),
    Start(
        "ppo",
        "rollouts, rewards, probabilities of the old policy",
        "usually",
        "usually",
        "advantages by token or turn",
        "the boundary between sampling and training a batch",
        "a learned value, fine advantages, moderate reuse of a batch",
        ("old log-probs, KL, endings and denominator are right at the same time",),
        ("critic-off", "verifier-hole"),
        ("ppo", "compactionrl"),
        (*ONLINE, "critic"),
        "attempts at one task give a baseline without a critic to train and to calibrate",
        f"{TABLE}, row 3; {BOUNDS}, PPO",
    ),
    Start(
        "rloo",
        "K >= 2 scored trajectories of one prompt",
        "yes",
        "no",
        "relative advantage of a response or episode",
        "the whole group must be there",
        "few comparable candidates, and no wish for a critic",
        ("initial states are equal inside a group",),
        ("no-contrast", "heavy-barrier", "verifier-hole"),
        ("rloo",),
        (*ONLINE, "candidates"),
        "another baseline is the start here; at one budget it is a control",
        f"{TABLE}, row 4; {BOUNDS}, RLOO",
    ),
    Start(
        "grpo",
        "K >= 2 scored trajectories of one prompt",
        "yes",
        "no",
        "normalised inside the group, then broadcast to action tokens",
        "the whole group must be there",
        "checkable reward, cheap candidates, enough mixed groups",
        ("all-right, all-wrong and mixed groups are reported, and the tokens they cost",),
        ("no-contrast", "heavy-barrier", "verifier-hole"),
        ("grpo",),
        (*ONLINE, "candidates"),
        "another baseline is the start here; at one budget it is a control",
        f"{TABLE}, row 5; {BOUNDS}, GRPO",
    ),
    Start(
        "critic-async",
        "a stream of rollouts, behaviour probabilities, rewards",
        "yes",
        "yes",
        "advantages by token or turn",
        "no group barrier, but policy lag",
        "one trajectory a state, heavy-tailed durations, a barrier that a profile confirms",
        (
            "behaviour log-probs and versions are recorded with every token",
            "too old data is dropped by a rule and counted, never mixed in silently",
            "faults of the environment are told apart from failures of the policy",
        ),
        ("barrier-is-not-the-cost", "stale-dropped", "critic-off", "verifier-hole"),
        ("sao", "impala"),
        (*ONLINE, "critic", "stream", "barrier"),
        "compaction is synchronous here",
        f"{TABLE}, row 6; {BOUNDS}, Critic-based asynchronous methods",
    ),
)
"""All six rows."""


def start_of(method: str) -> Start | None:
    """The starting point that a method record belongs to; ``None`` for none of the six."""
    return next((start for start in STARTS if method in start.methods), None)

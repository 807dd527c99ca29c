"""What errors do, by hand-made episodes; the loss on held-out tokens, by plain transformers."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from builders import expert, segment
from hexad.contract.faults import UserError
from hexad.contract.messages import AssistantTurn, Message, Role
from hexad.contract.task import Split, Task
from hexad.evidence import imitation_report
from hexad.evidence.imitation import Imitation, errors
from hexad.learner.held_out import token_loss
from hexad.policy.load import load_policy

SAID = {"a": "rrw", "b": "wrr", "c": "rrr", "d": "w", "e": "rw"}
"""Task -> its turns: r is right, w is wrong."""


class Family:
    def advice(self, task, transcript):
        return (AssistantTurn("r"),)


class Chat:
    def decode(self, name):
        question = [Message(Role.USER, "q")]
        return tuple(question + [Message(Role.ASSISTANT, each) for each in SAID[name]])


def played(name, success, faulted=False, scored=True):
    verdict = SimpleNamespace(success=success)
    return SimpleNamespace(
        task_id=name, segments=name, faulted=faulted, scored=scored, verdict=verdict
    )


TASKS = [Task(name, Split.SELECTION) for name in SAID]
EPISODES = [
    played("a", False),
    played("b", True),
    played("c", True),
    played("d", False, scored=False),
    played("e", False, faulted=True),
]


def test_hazard_by_turn_and_recovery_by_hand():
    found = errors(Family(), Chat(), TASKS, EPISODES)
    assert [tuple(row.values()) for row in found["first_error"]] == [
        (0, 4, 2, 0.5),
        (1, 2, 0, 0.0),
        (2, 2, 1, 0.5),
    ]
    recovery = found["recovery"]
    assert (recovery["erred"], recovery["ended"]) == (3, 2)
    assert (recovery["scored"], recovery["correct"], recovery["success"]) == (2, 1, 0.5)
    assert recovery["low"] < 0.5 < recovery["high"]


def test_nobody_who_erred_has_no_rate():
    found = errors(Family(), Chat(), TASKS, [played("c", True)])
    assert "success" not in found["recovery"] and found["recovery"]["erred"] == 0
    assert [row["hazard"] for row in found["first_error"]] == [0.0, 0.0, 0.0]


def test_the_entry_says_what_can_be_said():
    plain = SimpleNamespace()

    def none(task):
        raise UserError("there is no expert")

    plain.demonstration = none
    world = SimpleNamespace(family=plain, chat=Chat())
    assert Imitation(world, lambda episodes: (0.5, 9), 64)(Split.SELECTION, TASKS, EPISODES) == {}
    given = Imitation(world, lambda episodes: (0.5, len(episodes)), 64, held_out=(expert(),))
    (row,) = given(Split.SELECTION, TASKS, EPISODES).values()
    assert row == {"token_loss": {"mean": 0.5, "tokens": 1, "of": "held_out"}}


def test_the_summary_shows_loss_hazard_and_recovery():
    last = errors(Family(), Chat(), TASKS, EPISODES)
    rows = [
        {"imitation": {"token_loss": {"mean": 2.0}}},
        {"split": "selection"},
        {"imitation": {"token_loss": {"mean": 0.25}, **last}},
    ]
    assert imitation_report.lines(imitation_report.ends(rows)) == {
        "held-out token loss": "2.000 > 0.250",
        "first error by turn": "0.50 0.00 0.50",
        "recovered after it": "50% of 2",
    }
    assert imitation_report.lines(imitation_report.ends([{"split": "selection"}])) == {}


def test_the_token_loss_is_the_weighted_mean_of_plain_log_probs():
    policy = load_policy("builtin:tiny", seed=3)
    segments = [
        segment((("user", length), ("text", 3), ("observation", 2), ("text", 2)), policy=False)
        for length in (2, 5)
    ]
    half = segments[1].weight * 0.5
    half[-1] = 0.0
    segments[1] = replace(segments[1], weight=half)
    episodes = [expert(number, segments=(each,)) for number, each in enumerate(segments)]
    total = mass = count = 0.0
    with torch.no_grad():
        for each in segments:
            ids = torch.tensor(each.ids.astype("int64"))[None]
            log = torch.log_softmax(policy.model(ids).logits[0], -1)
            for place in each.weight.nonzero()[0].tolist():
                total -= float(each.weight[place]) * float(log[place - 1, ids[0, place]])
                mass += float(each.weight[place])
                count += 1
    for limit in (4, 4096):
        loss, tokens = token_loss(policy, episodes, limit)
        assert loss == pytest.approx(total / mass, rel=1e-5) and tokens == count == 9

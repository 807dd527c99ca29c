"""A trained reward model as a verifier: what it reads, where it draws the line, who it is."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from builders import episode
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.episode import Actor
from hexad.contract.faults import UserError, VerifierFault
from hexad.contract.messages import AssistantTurn, Message, Role
from hexad.contract.segment import NO_VERSION
from hexad.contract.task import Split
from hexad.environments.registry import family
from hexad.evidence.qualify import cases
from hexad.feedback.registry import build
from hexad.learner.reward_model import FACTS, RewardModel
from hexad.learner.reward_verifier import rendered
from hexad.policy.engine import Completion, Stop
from hexad.policy.load import load_policy
from hexad.rollout.recorder import Recorder

CALCULATOR = family("calculator")
POLICY = load_policy("builtin:tiny", seed=0)
CHAT = POLICY.chat(CALCULATOR.tools)
(TASK,) = CALCULATOR.tasks(Split.TRAIN, 1)


@pytest.fixture(scope="module")
def model():
    made = RewardModel.beside(POLICY)
    torch.manual_seed(3)
    torch.nn.init.normal_(made.net.head.weight, std=0.2)
    return made


@pytest.fixture
def folder(model, tmp_path):
    model.measured = {"cut": 0.25, "success": 0.75, "scored": 40}
    model.save(tmp_path / "reward")
    return tmp_path / "reward"


def carrier(**changes):
    provenance = replace(
        episode().provenance, tokenizer=POLICY.tokenizer_digest, template=POLICY.template_digest
    )
    ended = Ending.of(EndingKind.TERMINAL)
    return episode(provenance=provenance, ending=ended, verdict=None, rewards=(), **changes)


def recorded(case):
    """The episode of ``case`` as it is sampled: prompt, turns and what is heard between them."""
    recorder, told = Recorder(Actor.EXPERT), list(case.transcript)
    turns = [i for i, message in enumerate(told) if message.role is Role.ASSISTANT]
    recorder.start(CHAT.prompt(told[: turns[0]]))
    for place, following in zip(turns, [*turns[1:], None], strict=True):
        ids = CHAT.encode(AssistantTurn(told[place].content, told[place].tool_calls))
        nothing = np.full(len(ids), np.nan, np.float32), np.full(len(ids), NO_VERSION, np.int32)
        completion = Completion(ids, *nothing, Stop.TOKEN)
        recorder.completion(recorder.context, completion, CHAT.parse(ids).spans)
        heard = told[place + 1 : following] if following is not None else []
        recorder.observation(CHAT.follow(ids, heard, header=following is not None))
    return carrier(segments=(recorder.finish(),))


def test_a_saved_model_says_the_same(model, folder):
    again = RewardModel.open(folder)
    episodes = [recorded(case) for case in cases(CALCULATOR, carrier())[:3]]
    assert again.rewards(episodes, 4096) == model.rewards(episodes, 64)
    assert len(set(again.rewards(episodes, 4096))) == 3
    assert again.measured == model.measured


def test_what_was_sampled_and_what_is_told_have_one_reward(model, folder):
    """The transcripts of `hexad check` come without ids of their own."""
    made = build("reward_model", CALCULATOR, {"path": str(folder)})
    for case in cases(CALCULATOR, carrier())[:4]:
        sampled = recorded(case)
        (reward,) = model.rewards([sampled], 4096)
        by_ids = made.verify(case.task, sampled, CHAT.decode(sampled.segments))
        by_text = made.verify(case.task, case.episode, case.transcript)
        assert by_ids == by_text
        assert json.loads(by_ids.evidence)["reward"] == pytest.approx(reward, abs=1e-6)
        assert by_ids.score == pytest.approx(1 / (1 + np.exp(0.25 - reward)), abs=1e-6)
        assert by_ids.success == (reward > 0.25)


def test_the_line_is_where_it_was_measured_unless_the_recipe_draws_it(folder):
    case = cases(CALCULATOR, carrier())[0]
    low, high = (
        build("reward_model", CALCULATOR, {"path": str(folder), "threshold": t}) for t in (-99, 99)
    )
    assert low.verify(case.task, case.episode, case.transcript).success
    assert not high.verify(case.task, case.episode, case.transcript).success
    assert "75.0% of 40 held-out pairs" in low.card.checks and low.digest != high.digest


def test_a_model_that_nobody_measured_needs_a_threshold(folder):
    facts = json.loads((folder / FACTS).read_text())
    (folder / FACTS).write_text(json.dumps({**facts, "measured": None}))
    with pytest.raises(UserError, match="nobody has measured"):
        build("reward_model", CALCULATOR, {"path": str(folder)})
    made = build("reward_model", CALCULATOR, {"path": str(folder), "threshold": 0})
    assert "was not measured" in made.card.checks


def test_the_digest_is_of_the_weights(model, folder, tmp_path):
    first = build("reward_model", CALCULATOR, {"path": str(folder)}).digest
    assert first == build("reward_model", CALCULATOR, {"path": str(folder)}).digest
    with torch.no_grad():
        model.net.head.bias.add_(1.0)
    model.save(tmp_path / "other")
    with torch.no_grad():
        model.net.head.bias.sub_(1.0)
    assert first != build("reward_model", CALCULATOR, {"path": str(tmp_path / "other")}).digest


def test_what_it_cannot_read_is_the_policys_doing_or_a_fault(folder):
    made = build("reward_model", CALCULATOR, {"path": str(folder)})
    case = cases(CALCULATOR, carrier())[0]

    def answered(text):
        told = (*case.transcript[:-1], Message(Role.ASSISTANT, text))
        return made.verify(case.task, case.episode, told).status

    assert answered("\ud800") == "invalid" and answered("9" * 100_000) == "invalid"
    assert made.verify(case.task, case.episode, case.transcript[:1]).status == "wrong"
    foreign = replace(case.episode, provenance=episode().provenance)
    with pytest.raises(VerifierFault, match="another tokenizer"):
        made.verify(case.task, foreign, case.transcript)
    with pytest.raises(UserError, match="no reward model"):
        build("reward_model", CALCULATOR, {"path": str(folder / "nowhere")})
    (folder / "reward_head.safetensors").write_bytes(b"junk")
    with pytest.raises(UserError, match="cannot be read"):
        RewardModel.open(folder)


def test_a_rendered_transcript_is_what_the_recorder_stores():
    for case in cases(CALCULATOR, carrier())[:4]:
        (row,) = recorded(case).segments
        last = int(np.flatnonzero(row.action)[-1])
        assert np.array_equal(rendered(CHAT, case.transcript), row.ids[: last + 1])

"""The local engine under cut distributions: what it draws, from which sets, in any company."""

from __future__ import annotations

import asyncio
import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from engine_bench import VOCABULARY, alone, bits, policy_of, qwen, ragged, request, run

from hexad.contract.faults import EngineFault, UserError
from hexad.contract.sampling import Sampling
from hexad.policy.engine import DrawKey, Request, Stop
from hexad.policy.grammar import Grammars
from hexad.policy.local import LocalEngine
from hexad.policy.scripted import Reply, ScriptedEngine
from hexad.policy.transforms import MAX_SUPPORT, distribution

NUMBER = "start: /[0-9]+([.][0-9]+)?/"
LETTERS = 'start: "ab" | /[a-z]{3,9}/'
GRID = [
    Sampling(*values)
    for values in itertools.product([1.0, 0.6], [0, 5], [1.0, 0.85], [0.0, 0.04], [None, NUMBER])
]
CUTS = [sampling for sampling in GRID if not sampling.full_support]


def every_bit(done):
    return [
        (*pair, each.support and (each.support.ids.tobytes(), each.support.offsets.tobytes()))
        for pair, each in zip(bits(done), done, strict=True)
    ]


def expected(policy, asked, given):
    """Tempered logits [n, V] of the Hugging Face model, and the sets [n, V] that it would keep."""
    ids = torch.from_numpy(np.concatenate((asked.ids, given.ids)).astype(np.int64))
    with torch.no_grad():
        logits = policy.model(ids[None]).logits[0, len(asked.ids) - 1 : -1]
    allowed = None
    if asked.sampling.grammar is not None:
        grammars = Grammars(policy.tokenizer, VOCABULARY, policy.stop_ids)
        matcher = grammars.matcher(asked.sampling.grammar, asked.stop_ids)
        rows = []
        for token in given.ids.tolist():
            rows.append(torch.from_numpy(matcher.allowed()))
            if token not in asked.stop_ids:
                matcher.accept(token)
        allowed = torch.stack(rows)
    return logits / asked.sampling.temperature, distribution(logits, asked.sampling, allowed)[1]


@pytest.mark.parametrize("sampling", CUTS, ids=str)
def test_the_record_equals_a_full_forward_over_the_recorded_sets(sampling: Sampling) -> None:
    """Over its own set the full forward would be wrong by 0.005 somewhere in this very grid:
    rounding moves a token across the border of min_p. So sets are recorded, never made again."""
    policy = policy_of(qwen())
    requests = ragged(6, sampling=sampling, stop_ids=(1,), max_tokens=14)
    done = run(LocalEngine(policy, rows=6), requests)
    moved = 0
    for asked, given in zip(requests, done, strict=True):
        scores, kept = expected(policy, asked, given)
        assert given.support is not None and len(given.support) == len(given.ids)
        assert given.support.holds(given.ids).all() and given.support.ordered().all()
        assert (given.logprobs[given.support.forced] == 0.0).all()
        recorded = torch.zeros_like(kept)
        recorded[given.support.owner.copy(), given.support.ids.astype(np.int64)] = True
        logs = scores.masked_fill(~recorded, -torch.inf).log_softmax(-1)
        own = logs.gather(1, torch.tensor(given.ids)[:, None].long())[:, 0].numpy()
        assert np.abs(own - given.logprobs).max() < 1e-4
        moved += int((recorded != kept).sum())
    assert moved <= 1


def test_requests_of_every_transform_share_a_batch_and_keep_their_bits() -> None:
    policy = policy_of(qwen())
    mixed = [
        replace(each, sampling=sampling, stop_ids=(1,))
        for each, sampling in zip(ragged(len(GRID)), GRID, strict=True)
    ]
    together = run(LocalEngine(policy, rows=len(GRID)), mixed)
    assert every_bit(together) == every_bit([alone(policy, each) for each in mixed])
    few_rows = run(LocalEngine(policy, rows=3), mixed)
    assert every_bit(few_rows) == every_bit(together)
    supports = [each.support is None for each in together]
    assert supports == [sampling.full_support for sampling in GRID]


def test_a_full_request_has_the_same_bits_beside_cut_ones() -> None:
    policy = policy_of(qwen())
    plain = ragged(4)
    cut = ragged(4, 1, sampling=Sampling(top_k=3))
    mixed = run(LocalEngine(policy, rows=8), [*plain, *cut])
    assert every_bit(mixed[:4]) == every_bit(run(LocalEngine(policy, rows=8), plain))
    assert all(each.support is None for each in mixed[:4])


def test_a_lane_that_cut_before_does_not_cut_the_next_request() -> None:
    policy = policy_of(qwen())
    engine = LocalEngine(policy, rows=1)
    run(engine, [request([3], sampling=Sampling(top_k=2))])
    assert every_bit(run(engine, [request([3])])) == every_bit([alone(policy, request([3]))])


def test_draws_follow_the_cut_distribution() -> None:
    policy = policy_of(qwen())
    sampling = Sampling(temperature=1.4, top_k=6, top_p=0.9)
    prompt = [7, 8, 9]
    many = [
        request(prompt, str(i), sampling=sampling, max_tokens=1, key=DrawKey(0, str(i), 0))
        for i in range(1500)
    ]
    ids = np.array([each.ids[0] for each in run(LocalEngine(policy, rows=64), many)])
    with torch.no_grad():
        logits = policy.model(torch.tensor([prompt])).logits[0, -1:]
    share = distribution(logits, sampling)[0][0].exp().numpy()
    counts = np.bincount(ids, minlength=VOCABULARY)
    assert (counts[share == 0] == 0).all()
    error = np.sqrt(share * (1 - share) / len(ids))
    assert (np.abs(counts / len(ids) - share) <= 4.5 * error + 1e-12).all()


def test_a_grammar_holds_to_the_last_token_and_then_stops() -> None:
    policy = policy_of(qwen())
    for grammar, pattern in ((NUMBER, r"[0-9]+([.][0-9]+)?"), (LETTERS, r"ab|[a-z]{3,9}")):
        sampling = Sampling(1.5, grammar=grammar)
        asked = ragged(12, sampling=sampling, stop_ids=(1,), max_tokens=40)
        for given in run(LocalEngine(policy, rows=5), asked):
            assert given.stop is Stop.TOKEN
            text = policy.tokenizer.decode(given.ids[:-1].tolist())
            assert re.fullmatch(pattern, text), text


def test_what_a_grammar_forces_has_probability_one() -> None:
    policy = policy_of(qwen())
    forced = request([3], sampling=Sampling(grammar='start: "calculate" /[0-9]/'), stop_ids=(1,))
    given = alone(policy, forced)
    assert policy.tokenizer.decode(given.ids[:-1].tolist())[:9] == "calculate"
    assert given.support.forced.tolist() == [True] * (len(given.ids) - 2) + [False, True]
    assert given.logprobs[given.support.forced].tolist() == [0.0] * (len(given.ids) - 1)
    assert given.ids[-1] == 1 and given.stop is Stop.TOKEN


def test_an_abort_returns_as_many_sets_as_tokens() -> None:
    policy = policy_of(qwen())
    engine = LocalEngine(policy, rows=1)
    long = [request([3, i], str(i), max_tokens=100, sampling=Sampling(top_k=4)) for i in range(2)]

    async def scene() -> list[object]:
        tasks = [asyncio.create_task(engine.sample(each)) for each in long]
        for _ in range(10):
            await asyncio.sleep(0)
        await engine.abort()
        return await asyncio.gather(*tasks)

    cut, queued = asyncio.run(scene())
    assert cut.stop is queued.stop is Stop.ABORT
    assert 0 < len(cut.ids) == len(cut.support) < 100
    assert len(queued.ids) == 0 and queued.support is None


def test_a_grammar_that_is_stuck_fails_its_request_alone() -> None:
    """After ``a`` this grammar wants the policy's own stop id, which is no text."""
    policy = policy_of(qwen())
    stuck = request([3], "x", stop_ids=(2,), sampling=Sampling(grammar='start: "a" <[1]>'))
    fine = request([4, 5], "y", sampling=Sampling(top_k=3))

    async def scene() -> list[object]:
        engine = LocalEngine(policy, rows=2)
        calls = [engine.sample(stuck), engine.sample(fine)]
        return await asyncio.gather(*calls, return_exceptions=True)

    fault, done = asyncio.run(scene())
    assert isinstance(fault, EngineFault) and "the grammar allows no token" in str(fault)
    assert every_bit([done]) == every_bit([alone(policy, fine)])


def test_a_grammar_needs_a_stop_id_to_end_with() -> None:
    with pytest.raises(ValueError, match="a grammar ends with a stop id"):
        alone(policy_of(qwen()), request([3], sampling=Sampling(grammar=NUMBER)))


def test_sets_that_may_not_fit_are_refused_beforehand() -> None:
    policy = policy_of(qwen(vocab_size=MAX_SUPPORT + 1))
    asked: Request = request([3], sampling=Sampling(top_p=0.9), max_tokens=1)
    with pytest.raises(UserError, match="can be recorded"):
        alone(policy, asked)
    small = replace(asked, sampling=Sampling(top_p=0.9, top_k=MAX_SUPPORT))
    assert 1 <= len(alone(policy, small).support.ids) <= MAX_SUPPORT


def test_a_script_names_sets_too() -> None:
    reply = Reply([5, 6, 1], support=[[4, 5], [6], [1, 2]])
    given = run(ScriptedEngine([reply]), [request([3], max_tokens=2)])[0]
    assert given.support.ids.tolist() == [4, 5, 6]
    assert given.support.offsets.tolist() == [0, 2, 3]
    with pytest.raises(ValueError, match="3 ids but 1 sets"):
        run(ScriptedEngine([replace(reply, support=[[4]])]), [request([3], max_tokens=2)])

"""Weights that change while requests are open: who sampled which token, and from what."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from engine_bench import (
    VOCABULARY,
    alone,
    bits,
    forward,
    perturbed,
    policy_of,
    qwen,
    ragged,
    request,
    run,
)
from transformers import GPT2Config, GPT2LMHeadModel

from hexad.contract.faults import ContractViolation
from hexad.contract.sampling import Sampling
from hexad.policy.engine import Completion, Stop
from hexad.policy.local import LocalEngine
from hexad.policy.partial import continued, joined
from hexad.policy.versions import VersionedEngines

WORD = "start: /[a-z0-9 ]{20,40}/"


def other(model):
    """Weights that sample something else."""
    torch.manual_seed(7)
    return {
        name: tensor + 0.3 * torch.randn_like(tensor) for name, tensor in model.state_dict().items()
    }


def loaded(weights):
    model = qwen()
    model.load_state_dict(weights)
    return policy_of(model)


def published_at(engine, requests, weights, *steps, order=None):
    """Completions of ``requests``; version 1, 2, ... comes in flight after so many decode steps.

    ``order`` gets the numbers of the requests as they end.
    """

    async def one(number, each):
        done = await engine.sample(each)
        if order is not None:
            order.append(number)
        return done

    async def scene():
        tasks = [asyncio.create_task(one(*each)) for each in enumerate(requests)]
        for version, step in enumerate(steps, 1):
            while engine.stats.decode_steps < step:
                await asyncio.sleep(0)
            await engine.publish(weights[version - 1], version, "in_flight")
        return [await task for task in tasks]

    return asyncio.run(scene())


def copying(model, rows=8):
    return LocalEngine(policy_of(model), rows=rows, bind=False)


def test_equal_weights_in_flight_change_the_versions_and_not_one_other_bit():
    model, requests = qwen(), ragged(12, max_tokens=20)
    quiet = run(copying(model), requests)
    same = model.state_dict()
    done = published_at(copying(model), requests, [same, same], 3, 9)
    assert [pair[:2] for pair in bits(done)] == [pair[:2] for pair in bits(quiet)]
    assert [each.stop for each in done] == [each.stop for each in quiet]
    assert {v for each in done for v in each.versions.tolist()} == {0, 1, 2}


def test_each_token_is_drawn_from_the_version_that_it_names_and_no_old_key_is_read():
    model = qwen()
    weights = [other(model), {k: v * 1.1 for k, v in other(model).items()}]
    policies = [policy_of(model), *map(loaded, weights)]
    requests = ragged(6, max_tokens=24, stop_ids=(1, 40, 41, 42, 43))
    completions = published_at(copying(model), requests, weights, 4, 11)
    assert {done.stop for done in completions} == {Stop.TOKEN, Stop.LENGTH}
    assert {v for done in completions for v in done.versions.tolist()} == {0, 1, 2}
    for asked, done in zip(requests, completions, strict=True):
        assert (np.diff(done.versions) >= 0).all()
        start = 0
        for version, policy in enumerate(policies):
            count = int((done.versions == version).sum())
            if not count:
                continue
            head = Completion(
                done.ids[:start], done.logprobs[:start], done.versions[:start], Stop.ABORT
            )
            room = asked.max_tokens - start
            fresh = alone(policy, continued(asked, [head], room))
            part = slice(start, start + count)
            assert fresh.ids[:count].tolist() == done.ids[part].tolist()
            assert fresh.logprobs[:count].tobytes() == done.logprobs[part].tobytes()
            start += count
        assert start == len(done.ids)
        last = int(done.ids[-1]) in asked.stop_ids
        assert done.stop is (Stop.TOKEN if last else Stop.LENGTH)
        assert last or len(done.ids) == asked.max_tokens


def test_the_generic_path_takes_weights_in_flight_too():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=2, initializer_range=0.2
    )
    model = perturbed(GPT2LMHeadModel(config))
    weights, requests = other(model), ragged(5, max_tokens=16)
    engine = copying(model)
    assert engine.path == "generic"
    completions = published_at(engine, requests, [weights], 5)
    assert {v for done in completions for v in done.versions.tolist()} == {0, 1}
    old = [forward(model, asked, done) for asked, done in zip(requests, completions, strict=True)]
    model.load_state_dict(weights)
    for asked, done, first in zip(requests, completions, old, strict=True):
        own = np.where(done.versions == 0, first, forward(model, asked, done))
        assert np.abs(own - done.logprobs).max() < 1e-4


def test_a_grammar_goes_on_where_the_turn_was_cut():
    model = qwen()
    sampling = Sampling(grammar=WORD)
    asked = [replace(each, sampling=sampling) for each in ragged(5, max_tokens=30, stop_ids=(1,))]
    quiet = run(copying(model), asked)
    done = published_at(copying(model), asked, [model.state_dict()] * 2, 2, 6)
    assert [pair[:2] for pair in bits(done)] == [pair[:2] for pair in bits(quiet)]
    assert [each.support for each in done] == [each.support for each in quiet]
    mixed = published_at(copying(model), asked, [other(model)], 5)
    assert all(len(each.support) == len(each.ids) for each in mixed)
    assert all(each.support.holds(each.ids).all() for each in mixed)
    tokenizer = policy_of(model).tokenizer
    for each in mixed:
        text = tokenizer.decode(each.ids[: -1 if each.stop is Stop.TOKEN else None].tolist())
        assert each.stop is not Stop.TOKEN or 20 <= len(text) <= 40


def test_waiting_requests_and_later_ones_get_the_new_weights_only():
    model = qwen()
    weights = other(model)
    requests = ragged(9, max_tokens=16)
    order = []
    done = published_at(copying(model, rows=2), requests, [weights], 2, order=order)
    assert sorted(order[:2]) == [0, 1]  # what was cut waits in front of what waited
    fresh = loaded(weights)
    whole = [
        (asked, each)
        for asked, each in zip(requests, done, strict=True)
        if (each.versions == 1).all()
    ]
    assert len(whole) >= 5
    for asked, each in whole:
        assert bits([replace(each, versions=each.versions * 0)]) == bits([alone(fresh, asked)])


def test_an_abort_after_a_cut_returns_what_both_versions_sampled():
    model = qwen()
    engine = copying(model)

    async def scene():
        task = asyncio.create_task(engine.sample(request([3, 4], max_tokens=40, session="s")))
        while engine.stats.decode_steps < 3:
            await asyncio.sleep(0)
        await engine.publish(other(model), 1, "in_flight")
        count = engine.stats.sampled_tokens
        await engine.abort("s")
        return count, await task

    count, done = asyncio.run(scene())
    assert done.stop is Stop.ABORT and len(done.ids) == count and set(done.versions) == {0}


def test_weights_that_do_not_fit_are_refused_before_anything_is_touched():
    model, asked = qwen(), [request([3, 4], max_tokens=12)]
    before = run(copying(model), asked)
    short, odd = dict(model.state_dict()), dict(model.state_dict())
    name = next(iter(short))
    del short[name]
    odd[name] = odd[name][:-1]
    for bad in (short, odd):
        engine = copying(model)
        with pytest.raises(ContractViolation, match=name):
            asyncio.run(engine.publish({k: v * 2 for k, v in bad.items()}, 1))
        assert engine.version == 0 and bits(run(engine, asked)) == bits(before)


def test_a_bound_engine_takes_nothing_in_flight():
    engine = LocalEngine(policy_of(qwen()), rows=2)
    with pytest.raises(ContractViolation, match="in flight"):
        asyncio.run(engine.publish(None, 1, "in_flight"))


def test_pieces_that_disagree_about_their_sets_are_no_completion():
    full = alone(policy_of(qwen()), request([3], max_tokens=3))
    cut = alone(policy_of(qwen()), replace(request([3], max_tokens=3), sampling=Sampling(top_k=4)))
    with pytest.raises(ValueError, match="sets"):
        joined([full, cut])
    assert VOCABULARY > 4


def test_an_episode_ends_on_the_weights_that_it_began_with():
    model = qwen()
    weights = [other(model), {k: v * 1.1 for k, v in other(model).items()}]
    asked = request([5, 6, 7], max_tokens=8)
    engines = VersionedEngines(lambda: copying(model), most=2)

    async def scene():
        await engines.publish(model.state_dict(), 0)
        first = engines.enter("a")
        await engines.publish(weights[0], 1)
        second = engines.enter("b")
        assert engines.versions == (0, 1)
        waiting = asyncio.create_task(engines.publish(weights[1], 2))
        await asyncio.sleep(0)
        assert not waiting.done()
        done = [await first.sample(asked), await second.sample(asked)]
        served = engines.stats.requests
        await engines.leave("a")
        await waiting
        assert engines.versions == (1, 2) and engines.stats.requests == served == 2
        assert not first.health().ok
        done.append(await engines.enter("c").sample(asked))
        await engines.leave("b")
        await engines.leave("c")
        assert engines.versions == (2,)
        await engines.publish(weights[0], 3)
        assert engines.versions == (3,) and engines.newest.health().ok
        await engines.close()
        return done

    done = asyncio.run(scene())
    policies = [policy_of(model), *map(loaded, weights)]
    for version, (each, policy) in enumerate(zip(done, policies, strict=True)):
        assert set(each.versions.tolist()) == {version}
        assert each.logprobs.tobytes() == alone(policy, asked).logprobs.tobytes()

"""The prefix cache changes the work, never the result; a publish retires it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import torch
from engine_bench import VOCABULARY, alone, bits, policy_of, qwen, ragged, request, run, worst

from hexad.policy.backend import Ask
from hexad.policy.engine import Completion, DrawKey, Request
from hexad.policy.local import LocalEngine
from hexad.policy.slots import Slots


def following(asked: Request, given: Completion, extra: int = 5) -> Request:
    """The next turn of the same session."""
    ids = np.concatenate((asked.ids, given.ids, np.arange(3, 3 + extra)))
    return request(ids, asked.session or "", max_tokens=9)


def test_turns_of_a_session_reuse_their_own_slot_bit_for_bit() -> None:
    policy = policy_of(qwen())
    engine = LocalEngine(policy, rows=16)
    turn = ragged(16, max_tokens=7)
    for _ in range(3):
        before = engine.stats
        done = run(engine, turn)
        assert bits(done) == bits([alone(policy, each) for each in turn])
        turn = [following(a, g) for a, g in zip(turn, done, strict=True)]
    computed = sum(len(each.ids) for each in turn)
    before = engine.stats
    run(engine, turn)
    cached = engine.stats.cached_tokens - before.cached_tokens
    # All but the last sampled token and the five new ones of each turn.
    assert computed - cached == 16 * 6


def test_group_members_and_strangers_share_prefixes_within_one_batch() -> None:
    policy = policy_of(qwen())
    generator = np.random.default_rng(3)
    system = generator.integers(0, VOCABULARY, 40)
    requests = [
        request(
            np.concatenate((system, tail)), f"{task}/{member}", key=DrawKey(0, str(task), member)
        )
        for task, tail in enumerate(generator.integers(0, VOCABULARY, (4, 10)))
        for member in range(4)
    ]
    engine = LocalEngine(policy, rows=16)
    done = run(engine, requests)
    computed = engine.stats.prompt_tokens - engine.stats.cached_tokens
    # The first prompt whole, three other tails, and the last token of each twin.
    assert computed == 50 + 3 * 10 + 12
    assert bits(done) == bits([alone(policy, each) for each in requests])
    assert len(set(bits(done))) == 16


def test_a_group_is_computed_in_two_waves_however_large() -> None:
    """Copies come from the first of them, never from each other: waves run one after another."""
    slots = Slots(64)
    generator = np.random.default_rng(0)
    system = generator.integers(0, VOCABULARY, 30).astype(np.int32)
    tails = generator.integers(0, VOCABULARY, (4, 10)).astype(np.int32)
    asks = [Ask(i, np.concatenate((system, tails[i // 8])), 4, None) for i in range(32)]
    places = slots.plan(asks)
    assert [place.wave for place in places] == [0, *[1] * 7] + [1, *[2] * 7] * 3
    assert [place.start for place in places] == [0, *[39] * 7] + [30, *[39] * 7] * 3
    for slot in range(32):
        slots.release(slot, keep=True)
    assert {place.wave for place in slots.plan(asks[:8])} == {0, 1}


def test_twins_of_a_multi_head_model_are_bit_equal_to_the_first() -> None:
    """One uncached token each, one query a head: the smallest product there is."""
    policy = policy_of(qwen(num_key_value_heads=4))
    twins = [request(range(2, 40), "same", session=str(i)) for i in range(20)]
    done = run(LocalEngine(policy, rows=32), twins)
    assert set(bits(done)) == set(bits([alone(policy, twins[0])]))


def test_eviction_keeps_results_and_open_requests_intact() -> None:
    policy = policy_of(qwen())
    small, large = LocalEngine(policy, rows=4, slots=4), LocalEngine(policy, rows=64)
    turn = ragged(50, max_tokens=20)
    for _ in range(2):
        done = run(small, turn)
        assert bits(done) == bits(run(large, turn))
        turn = [following(a, g) for a, g in zip(turn, done, strict=True)]
    assert small.stats.cached_tokens < large.stats.cached_tokens


def test_a_session_that_goes_back_is_served_from_its_remaining_prefix() -> None:
    policy = policy_of(qwen())
    engine = LocalEngine(policy, rows=2)
    first = request(range(2, 32), "s")
    run(engine, [first])
    back = request([*range(2, 22), 7, 7, 7], "s")
    (done,) = run(engine, [back])
    assert engine.stats.cached_tokens == 20
    assert bits([done]) == bits([alone(policy, back)])


def test_growing_contexts_keep_what_was_cached() -> None:
    policy = policy_of(qwen(), 512)
    engine = LocalEngine(policy, rows=2)
    short = request(range(2, 30), "s", max_tokens=3)
    (given,) = run(engine, [short])
    generator = np.random.default_rng(0)
    ids = np.concatenate((short.ids, given.ids, generator.integers(0, VOCABULARY, 350)))
    long = request(ids, "s", max_tokens=60)
    (done,) = run(engine, [long])
    assert engine.stats.cached_tokens == 30
    assert bits([done]) == bits([alone(policy, long)])


def test_field_case_o15_a_publish_retires_the_cache_of_a_bound_engine() -> None:
    model = qwen()
    engine = LocalEngine(policy_of(model), rows=4)
    requests = ragged(4)
    old = run(engine, requests)
    with engine.lease().writer(), torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    asyncio.run(engine.publish(None, 1))
    before = engine.stats.cached_tokens
    new = run(engine, requests)
    assert engine.stats.cached_tokens == before
    assert all((each.versions == 1).all() for each in new)
    assert worst(model, requests, new) < 1e-4 < worst(model, requests, old)


def test_a_copying_engine_serves_the_published_weights_only() -> None:
    model, requests = qwen(), ragged(4)
    engine = LocalEngine(policy_of(model), rows=4, bind=False)
    old = run(engine, requests)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    assert bits(run(engine, requests)) == bits(old)
    asyncio.run(engine.publish(model.state_dict(), 5))
    new = run(engine, requests)
    assert engine.version == 5 and all((each.versions == 5).all() for each in new)
    assert worst(model, requests, new) < 1e-4


def test_a_publish_waits_for_open_requests_and_later_ones_wait_for_it() -> None:
    model = qwen()
    engine = LocalEngine(policy_of(model), rows=4, bind=False)
    weights = {name: tensor * 1.1 for name, tensor in model.state_dict().items()}

    async def scene() -> list[Completion]:
        early = [asyncio.create_task(engine.sample(each)) for each in ragged(4, max_tokens=30)]
        await asyncio.sleep(0)
        publish = asyncio.create_task(engine.publish(weights, 1))
        await asyncio.sleep(0)
        assert engine.version == 0
        late = asyncio.create_task(engine.sample(request([1, 2, 3], "late")))
        await publish
        assert all(task.done() for task in early) and not late.done()
        return [*[task.result() for task in early], await late]

    *early, late = asyncio.run(scene())
    assert {v for each in early for v in each.versions.tolist()} == {0}
    assert set(late.versions.tolist()) == {1}
    model.load_state_dict(weights)
    assert worst(model, [request([1, 2, 3], "late")], [late]) < 1e-4


def test_binding_moves_parameters_together_without_a_copy(tmp_path: Path) -> None:
    """The learner's parameters stay theirs: identity, values, checkpoint and in-place steps."""
    model = qwen()
    values = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    owners = list(model.parameters())
    requests = ragged(4)
    first, second = (LocalEngine(policy_of(model), rows=4) for _ in range(2))
    assert all(left is right for left, right in zip(owners, model.parameters(), strict=True))
    assert all(torch.equal(values[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.is_contiguous() for parameter in owners)
    storages = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in owners}
    assert sum(storages.values()) == sum(p.numel() * p.element_size() for p in owners)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert worst(loaded.eval(), requests, run(first, requests)) < 1e-4
    with torch.no_grad():
        model.model.layers[0].self_attn.v_proj.weight.mul_(3.0)
        model.model.layers[1].mlp.up_proj.weight.mul_(3.0)
    for engine in (first, second):
        asyncio.run(engine.publish(None, 1))
        assert worst(model, requests, run(engine, requests)) < 1e-4
    model.to(torch.float64).to(torch.float32)  # gives every parameter new memory
    asyncio.run(first.publish(None, 2))
    assert worst(model, requests, run(first, requests)) < 1e-4

"""State comes back with its exact values and types, from text and tensors that cannot execute."""

import json
import math
import random
import struct
from enum import StrEnum

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hexad.contract.faults import UserError
from hexad.learner.encoding import decode, encode
from hexad.learner.registry import Registry


def through(value):
    """``value`` encoded, written as JSON text, read and decoded."""
    body, tensors = encode(value)
    return decode(json.loads(json.dumps(body, allow_nan=False)), tensors)


def exact(left, right):
    """Equal in value, bits and type, all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        same = [exact(a, b) for a, b in zip(left.items(), right.items(), strict=True)]
        return len(left) == len(right) and all(same)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(exact, left, right))
    if isinstance(left, float):
        return struct.pack(">d", left) == struct.pack(">d", right)
    if isinstance(left, np.ndarray | np.generic):
        return (left.dtype, left.shape, left.tobytes()) == (
            right.dtype,
            right.shape,
            right.tobytes(),
        )
    if isinstance(left, torch.Tensor):
        same = left.dtype == right.dtype and left.shape == right.shape
        return same and left.numpy(force=True).tobytes() == right.numpy(force=True).tobytes()
    return left == right


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**130), 2**130)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(st.characters(), max_size=6)
    | st.binary(max_size=6)
)
KEYS = st.text(max_size=4) | st.integers() | st.booleans() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["a", "$float", "$x", "'"]) | KEYS, inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None, database=None)
@given(VALUES)
def test_nested_plain_values_are_restored_exactly(value):
    assert exact(through(value), value)


ARRAYS = [
    np.array([1.5, -0.0, np.nan, np.inf], np.float32),
    np.array([2**64 - 1, 0], np.uint64),
    np.array([[1, 2, 3], [4, 5, 6]], np.int16).T,
    np.zeros((0, 3)),
    np.array(7, np.int8),
    np.array([True, False]),
    np.array([1 + 2j]),
    np.array([1, 2], ">i4"),
    np.array(["ab", "c"]),
    np.float32(0.1),
    np.int64(3),
    np.bool_(True),
]


@pytest.mark.parametrize("value", ARRAYS, ids=lambda v: f"{type(v).__name__}-{v.dtype}-{v.shape}")
def test_numpy_values_keep_type_shape_and_bits(value):
    back = through({"x": value, "again": [value]})
    assert exact(back, {"x": value, "again": [value]})
    if isinstance(value, np.ndarray):
        assert back["x"].flags.writeable


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.complex64,
        torch.uint64,
    ],
)
def test_tensors_keep_type_shape_and_bits(dtype, tmp_path):
    values = torch.arange(6).reshape(2, 3).to(dtype)
    state = {"t": values.T, "scalar": values[0, 1], "empty": values[:0], "view": values[0]}
    registry, part = registered(state)
    registry.save(tmp_path / "state")
    part.value = None
    registry.load(tmp_path / "state")
    for name, expected in state.items():
        found = part.value[name]
        assert found.dtype == dtype and found.shape == expected.shape
        assert torch.equal(found, expected)


def test_tensors_are_copies_without_gradient():
    weight = torch.ones(3, requires_grad=True)
    body, tensors = encode({"w": weight, "same": weight})
    with torch.no_grad():
        weight.mul_(2)
    back = decode(body, tensors)
    assert torch.equal(back["w"], torch.ones(3)) and not back["w"].requires_grad
    assert torch.equal(back["same"], torch.ones(3))


def test_paths_that_look_alike_stay_apart():
    value = {
        "a.b": torch.tensor(1),
        "a": {"b": torch.tensor(2)},
        1: torch.tensor(3),
        "1": torch.tensor(4),
    }
    back = through(value)
    assert [int(back["a.b"]), int(back["a"]["b"]), int(back[1]), int(back["1"])] == [1, 2, 3, 4]


class Colour(StrEnum):
    RED = "red"


class Odd:
    pass


def test_enums_are_stored_as_their_value():
    assert exact(through([Colour.RED]), ["red"])


@pytest.mark.parametrize(
    "value",
    [Odd(), {1, 2}, print, np.array([Odd()]), torch.float32, range(3)],
    ids=lambda v: type(v).__name__,
)
def test_what_cannot_be_kept_is_refused_with_its_path(value):
    with pytest.raises(TypeError, match=r"state\.outer\.1"):
        encode({"outer": [0, value]})


def test_an_unknown_mark_is_refused():
    with pytest.raises(ValueError, match=r"unknown mark \$pickle"):
        decode({"a": [{"$pickle": "00"}]}, {})


class Part:
    def __init__(self, value):
        self.value = value

    def state(self):
        return self.value

    def restore(self, state):
        self.value = state


def registered(value, name="part"):
    registry, part = Registry(), Part(value)
    registry.register(name, part)
    return registry, part


def test_generators_continue_where_they_were(tmp_path):
    # O18 item 4: seed 0 draws .8444 .7580, is saved, and must continue .4206 .2589.
    class Generators:
        def __init__(self):
            self.python = random.Random(0)
            self.numpy = np.random.Generator(np.random.PCG64(0))
            self.torch = torch.Generator().manual_seed(0)

        def draw(self):
            tensor = torch.rand(2, generator=self.torch).tolist()
            return [self.python.random(), self.python.random(), *self.numpy.random(2), *tensor]

        def state(self):
            return {
                "python": self.python.getstate(),
                "numpy": self.numpy.bit_generator.state,
                "torch": self.torch.get_state(),
            }

        def restore(self, state):
            self.python.setstate(state["python"])
            self.numpy.bit_generator.state = state["numpy"]
            self.torch.set_state(state["torch"])

    one, registry = Generators(), Registry()
    registry.register("random", one)
    assert [round(x, 4) for x in one.draw()[:2]] == [0.8444, 0.7580]
    registry.save(tmp_path / "state")
    expected = one.draw()
    assert [round(x, 4) for x in expected[:2]] == [0.4206, 0.2589]
    other, fresh = Generators(), Registry()
    fresh.register("random", other)
    fresh.load(tmp_path / "state")
    assert other.draw() == expected


def test_optimizer_continues_bit_for_bit(tmp_path):
    def make():
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 2)
        return layer, torch.optim.AdamW(layer.parameters(), lr=0.1)

    def train(layer, optimizer, count):
        for i in range(count):
            optimizer.zero_grad()
            layer(torch.full((1, 3), float(i + 1))).square().sum().backward()
            optimizer.step()

    straight, its_optimizer = make()
    train(straight, its_optimizer, 3)
    registry, _ = registered({"w": straight.state_dict(), "o": its_optimizer.state_dict()})
    registry.save(tmp_path / "state")
    train(straight, its_optimizer, 3)
    resumed, optimizer = make()
    fresh, part = registered(None)
    fresh.load(tmp_path / "state")
    resumed.load_state_dict(part.value["w"])
    optimizer.load_state_dict(part.value["o"])
    train(resumed, optimizer, 3)
    assert exact(dict(resumed.state_dict()), dict(straight.state_dict()))
    assert exact(through(optimizer.state_dict()), through(its_optimizer.state_dict()))


def test_nothing_on_disk_is_a_pickle(tmp_path):
    registry, _ = registered({"t": torch.ones(1), "f": math.nan})
    registry.save(tmp_path / "state")
    assert sorted(p.name for p in (tmp_path / "state").iterdir()) == [
        "part.json",
        "part.safetensors",
    ]
    body = json.loads((tmp_path / "state" / "part.json").read_text())
    assert body == {"t": {"$tensor": "state.t"}, "f": {"$float": "7ff8000000000000"}}


def test_missing_and_unexpected_parts_are_named_and_nothing_is_restored(tmp_path):
    saved = Registry()
    for name in ("learner", "queue", "dual"):
        saved.register(name, Part({"x": 1}))
    saved.save(tmp_path / "state")
    registry, part = registered({"x": 0}, "learner")
    registry.register("critic", Part({}))
    with pytest.raises(UserError, match="missing state: critic; unexpected state: dual, queue"):
        registry.load(tmp_path / "state")
    assert part.value == {"x": 0}


def test_names_are_taken_once_and_fit_a_file():
    registry, _ = registered({})
    with pytest.raises(ValueError, match="registered already"):
        registry.register("part", Part({}))
    for name in ("", "../x", "A", "a/b", ".hidden"):
        with pytest.raises(ValueError, match="not a file name"):
            registry.register(name, Part({}))
    assert registry.names == ("part",)

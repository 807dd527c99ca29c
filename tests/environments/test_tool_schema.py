import asyncio
from typing import Annotated, Literal

import pytest
import sample_tools
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import Field

from hexad.contract.faults import UserError
from hexad.contract.messages import ToolCall
from hexad.environments.toolbox import ToolBox
from hexad.environments.tools import Effect, tool


@tool(effect=Effect.READ_ONLY, isolated=False)
def every_type(
    whole: int,
    real: float,
    text: str,
    flag: bool,
    kind: Literal["a", "b"],
    title: str,
    maybe: int | None = None,
    many: Annotated[list[int], Field(max_length=2)] = [],  # noqa: B006
) -> str:
    """Take one of each."""
    return repr([whole, real, text, flag, kind, title, maybe, many])


GOOD = {"whole": 1, "real": 2, "text": "x", "flag": True, "kind": "a", "title": "t"}


def call(box, name, arguments, error=None):
    return asyncio.run(box.call(ToolCall(name, arguments, error)))


def test_schema_comes_from_the_signature_and_description_from_the_docstring():
    box = ToolBox([sample_tools.divide, every_type])
    divide, every = box.schemas
    assert divide.name == "divide"
    assert divide.description == "Divide a by b."
    assert divide.parameters == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    }
    properties = every.parameters["properties"]
    assert list(properties) == [
        "whole", "real", "text", "flag", "kind", "title", "maybe", "many",
    ]  # fmt: skip
    assert properties["kind"] == {"enum": ["a", "b"], "type": "string"}
    assert properties["title"] == {"type": "string"}
    assert properties["maybe"]["default"] is None
    assert every.parameters["required"] == list(properties)[:6]
    Draft202012Validator.check_schema(every.parameters)
    assert Draft202012Validator(every.parameters).is_valid(GOOD)


def test_good_arguments_arrive_with_their_defaults():
    result = call(ToolBox([every_type]), "every_type", GOOD)
    assert result.ok
    assert result.content == "[1, 2.0, 'x', True, 'a', 't', None, []]"
    assert result.effect is Effect.READ_ONLY


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"whole": "3"}, "whole"),
        ({"whole": True}, "whole"),
        ({"whole": 3.0}, "whole"),
        ({"whole": None}, "whole"),
        ({"real": "2.5"}, "real"),
        ({"real": float("nan")}, "real"),
        ({"real": float("inf")}, "real"),
        ({"text": 3}, "text"),
        ({"text": "\ud800"}, "arguments"),
        ({"flag": 1}, "flag"),
        ({"kind": "c"}, "kind"),
        ({"maybe": "x"}, "maybe"),
        ({"many": [1, 2, 3]}, "many"),
        ({"many": [1, "2"]}, "many.1"),
        ({"unheard": 1}, "unheard is unknown"),
        ({"whole": 10**5000}, "not plain JSON"),
    ],
)
def test_bad_arguments_are_named_and_the_fields_are_listed(change, named):
    result = call(ToolBox([every_type]), "every_type", {**GOOD, **change})
    assert not result.ok
    assert result.effect is None
    assert result.content.startswith("error: ")
    assert named in result.content
    assert named == "not plain JSON" or "fields: whole, real, text" in result.content


def test_missing_field_unknown_tool_and_malformed_call_are_observations():
    box = ToolBox([sample_tools.divide, every_type])
    assert call(box, "divide", {"a": 1}).content == "error: b is missing. fields: a, b"
    unknown = call(box, "x" * 500 + "\ud800\n", {})
    assert not unknown.ok and len(unknown.content) < 120
    assert unknown.content.endswith("tools: divide, every_type")
    assert unknown.content.isascii() and "\n" not in unknown.content
    malformed = call(box, "divide", {}, error="not JSON: \x00 " + "y" * 500)
    assert malformed.content.startswith("error: malformed call: not JSON")
    assert malformed.effect is None and len(malformed.content) < 120


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*GOOD, "zz"]), json_values))
def test_whatever_json_the_policy_writes_is_an_observation(arguments):
    result = call(ToolBox([every_type]), "every_type", {**GOOD, **arguments})
    assert result.content.encode()
    assert result.ok == (result.effect is not None)


def test_functions_that_cannot_be_tools_are_refused():
    def untyped(a):
        """Do."""

    def variadic(*numbers: int):
        """Do."""

    def silent(a: int):
        pass

    def fine(a: int):
        """Do."""

    def decorate(function, **options):
        return tool(effect=Effect.READ_ONLY, **{"isolated": False, **options})(function)

    for bad in (untyped, variadic, silent):
        with pytest.raises(UserError):
            decorate(bad)
    with pytest.raises(UserError, match="could not import"):
        decorate(fine, isolated=True)
    with pytest.raises(UserError, match="only an isolated tool"):
        decorate(fine, timeout=1.0)
    with pytest.raises(UserError, match="same name"):
        ToolBox([decorate(fine), decorate(fine)])


def test_digest_changes_with_effect_and_limits_but_not_between_calls():
    def act(a: int) -> int:
        """Act."""
        return a

    one = tool(effect=Effect.READ_ONLY, isolated=False)(act)
    two = tool(effect=Effect.EXTERNAL, isolated=False)(act)
    assert ToolBox([one]).digest == ToolBox([one]).digest
    assert ToolBox([one]).digest != ToolBox([two]).digest
    assert ToolBox([one]).digest != ToolBox([one], timeout=3.0).digest


def test_effects_say_what_may_be_repeated():
    assert [effect.idempotent for effect in Effect] == [True, False, False, False]
    assert [effect.contained for effect in Effect] == [True, True, False, False]

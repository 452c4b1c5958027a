"""The messages of a context are such as providers accept, however little room there is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reverie import Space
from tests.messages import user


def call(**arguments: Any) -> dict[str, Any]:
    function = {"name": "write", "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


@pytest.mark.parametrize("tokens", [300, 500, 1_000])
def test_arguments_of_a_cut_call_stay_json(space: Space, tokens: int) -> None:
    session = space.session("s")
    session.append(user("write the file"))
    session.append(call(path="a.py", text="line of code\n" * 400, more=["x" * 3_000]))
    session.append({"role": "tool", "tool_call_id": "c1", "content": "ok"})
    history = session.context(tokens=tokens).history
    calls = [each for message in history for each in message.get("tool_calls", ())]
    assert calls or tokens < 500
    for each in calls:
        assert json.loads(each["function"]["arguments"])["path"] == "a.py"


@pytest.mark.parametrize("tokens", [300, 600, 1_000])
def test_image_and_signature_are_whole_or_left_out(space: Space, tokens: int) -> None:
    image = "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUg" * 900
    signature = "EqQBCgIYAhIM" * 80
    session = space.session("s")
    session.append(user("look at the screen"))
    session.append(
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I look. " * 300, "signature": signature},
                {"type": "text", "text": "Looking."},
            ],
        }
    )
    session.append(call(path="screen"))
    part = {"type": "image_url", "image_url": {"url": image}}
    session.append({"role": "tool", "tool_call_id": "c1", "content": [part]})
    shown = json.dumps(session.context(tokens=tokens).history)
    assert "iVBOR" not in shown or image in shown
    assert "EqQBC" not in shown or signature in shown

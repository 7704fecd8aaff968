"""Clients of chat models, against a server that speaks the real protocols, and functions as models."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from loom.agent.chat_models import (
    Answer,
    AnthropicChat,
    ChatModel,
    OpenAIChat,
    Prompt,
    ToolCall,
    Usage,
    as_chat_model,
)
from loom.errors import InvalidInput, LanguageModelError
from loom.testing import Answer as Said
from loom.testing import Broken, Call, Cut, Fail, Hang, Request, ScriptedModel

KEY = "sk-very-secret-4711"
TOOL = {"name": "look_up", "description": "Look it up.", "parameters": {"type": "object", "properties": {}}}
ASKED = Prompt(
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is the 港口?"}],
    [TOOL],
    max_tokens=200,
    breakpoints=[0],
)
CALL = Call("look_up", {"place": "the harbour of Rotterdam, where the ships are"})


@pytest.fixture
def server() -> Iterator[ScriptedModel]:
    with ScriptedModel() as made:
        yield made


@pytest.fixture(params=["openai", "anthropic"])
def client(request: pytest.FixtureRequest, server: ScriptedModel) -> ChatModel:
    return made(request.param, server)


def made(kind: str, server: ScriptedModel, **more: Any) -> ChatModel:
    if kind == "openai":
        return OpenAIChat("some-model", server.openai_url, api_key=KEY, **more)
    return AnthropicChat("some-model", server.url, api_key=KEY, **more)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_text_and_calls_come_back(client: ChatModel, server: ScriptedModel, streamed: bool) -> None:
    server.add(Said("It is in Rotterdam, and the ships are there too.", (CALL, CALL), output_tokens=17))
    pieces: list[str] = []
    answer = client.answer(ASKED, pieces.append if streamed else None)
    assert answer.text == "It is in Rotterdam, and the ships are there too."
    assert "".join(pieces) == (answer.text if streamed else "")
    assert [(call.name, call.arguments) for call in answer.calls] == [("look_up", CALL.text)] * 2
    assert len({call.id for call in answer.calls}) == 2
    assert answer.stop == "tools"
    assert answer.usage is not None
    assert answer.usage.answer == 17
    assert answer.usage.total > 17
    sent = server.requests[0]
    assert sent.body["max_tokens"] == 200
    assert "Look it up." in sent.text
    keys = (sent.headers.get("authorization"), sent.headers.get("x-api-key"))
    assert keys in [(f"Bearer {KEY}", None), (None, KEY)]


def test_a_tool_round_is_sent_as_the_service_wants_it(client: ChatModel, server: ScriptedModel) -> None:
    server.add("Thanks.")
    call = ToolCall("c1", "look_up", '{"place": "x"}')
    rounds = [
        *ASKED.messages,
        Answer(calls=(call,)).to_message(),
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
    ]
    assert client.answer(Prompt(rounds, [TOOL])).text == "Thanks."  # the server refuses a call without its result


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_what_the_service_cached_is_told(kind: str, server: ScriptedModel) -> None:
    server.add("One.", "Two.")
    client = made(kind, server)
    first, second = client.answer(ASKED).usage, client.answer(ASKED).usage
    assert isinstance(first, Usage)
    assert isinstance(second, Usage)
    assert first.cached == 0
    assert 0 < second.cached <= second.prompt
    assert first + second == Usage(first.prompt + second.prompt, second.cached, first.answer + second.answer)


def test_how_an_answer_ended(client: ChatModel, server: ScriptedModel) -> None:
    server.add(*[Said("No.", stop="refusal"), Said("In the", stop="length"), Said()] * 2)
    for on_text in (None, lambda piece: None):
        ends = [client.answer(ASKED, on_text) for _ in range(3)]
        assert [one.stop for one in ends] == ["refusal", "length", "end"]
        assert [one.text for one in ends] == ["No.", "In the", ""]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_busy_service_is_tried_again(client: ChatModel, server: ScriptedModel, streamed: bool) -> None:
    server.add(Fail(429, retry_after_s=0), Fail(529, retry_after_s=0), "Now.")
    assert client.answer(ASKED, (lambda piece: None) if streamed else None).text == "Now."


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("line", "told"),
    [
        (Fail(401), "api_key"),
        (Fail(400), "status 400"),
        (Cut(), "broke off|cannot be reached|middle of an answer"),
        (Broken(), "protocol|broke off"),
        (Broken(b'{"choices": [[]], "content": [[]], "usage": 3}'), "protocol|broke off"),
        (Broken(b"data: [1, 2]\n\n"), "protocol|stream"),
        (Broken(b"data: " + b"[" * 5000 + b"\n\n"), "protocol|stream"),
    ],
)
def test_a_failure_is_an_error_that_says_what_to_do_and_no_secret(
    server: ScriptedModel,
    line: Fail | Cut | Broken,
    told: str,
    streamed: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for kind in ("openai", "anthropic"):
        server.add(line)
        with caplog.at_level(logging.DEBUG), pytest.raises(LanguageModelError, match=told) as seen:
            made(kind, server, max_retries=0).answer(ASKED, (lambda piece: None) if streamed else None)
        assert KEY not in f"{seen.value}{caplog.text}"
        assert "港口" not in f"{seen.value}{caplog.text}"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_call_can_be_cancelled_while_the_service_hangs(
    client: ChatModel, server: ScriptedModel, streamed: bool
) -> None:
    cancelled = threading.Event()

    def hang(request: Request) -> Hang:
        cancelled.set()
        return Hang()

    server.add(hang)
    with pytest.raises(LanguageModelError):
        client.answer(ASKED, (lambda piece: None) if streamed else None, cancelled)
    assert len(server.requests) == 1  # and it is not tried again


def test_the_name_picks_the_client_and_the_environment_its_key(
    server: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, address in (("OPENAI", server.openai_url), ("ANTHROPIC", server.url)):
        monkeypatch.setenv(f"{name}_BASE_URL", address)
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
    server.add(*["Yes."] * 4)
    for name in ("claude-opus-5", "anthropic:other", "gpt-6", "openai:gpt-6"):
        assert as_chat_model(name).answer(ASKED).text == "Yes."
    assert [one.path for one in server.requests] == ["/messages"] * 2 + ["/chat/completions"] * 2
    assert [one.body["model"] for one in server.requests] == ["claude-opus-5", "other", "gpt-6", "gpt-6"]
    assert KEY not in repr(as_chat_model("gpt-6"))


def test_the_key_of_the_environment_stays_with_its_address(
    server: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.add("Yes.")
    OpenAIChat("m", server.openai_url).answer(ASKED)
    assert "authorization" not in server.requests[0].headers


def test_functions_and_models_of_texts_are_models_too() -> None:
    async def slow(messages: list[Any]) -> str:
        return str(messages[-1]["content"]).upper()

    def calling(messages: list[Any], tools: list[Any]) -> dict[str, Any]:
        call = {"id": "c", "function": {"name": tools[0]["name"], "arguments": {"a": 1}}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    class OfTexts:
        def complete(self, prompt: str) -> str:
            return prompt.splitlines()[0]

    pieces: list[str] = []
    assert as_chat_model(slow).answer(ASKED, pieces.append).text == "WHERE IS THE 港口?"
    assert pieces == ["WHERE IS THE 港口?"]
    assert as_chat_model(calling).answer(ASKED).calls == (ToolCall("c", "look_up", '{"a": 1}'),)
    assert as_chat_model(OfTexts()).answer(ASKED).text == "system: Be brief."
    with pytest.raises(LanguageModelError, match="NoneType"):
        as_chat_model(lambda messages: None).answer(ASKED)


@pytest.mark.parametrize("llm", ["", "  ", 5, None, OpenAIChat])
def test_what_is_no_model_is_refused(llm: Any) -> None:
    with pytest.raises(InvalidInput):
        as_chat_model(llm)

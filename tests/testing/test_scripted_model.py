"""The scripted model server, spoken to by the clients that people use: the SDKs of OpenAI and Anthropic."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from loom.testing import Answer, Broken, Call, Cut, Fail, Hang, Request, ScriptedModel

CALL = Call("look_up", {"place": "the harbour of Rotterdam, where the ships are", "depth": 3})
TOOL: dict[str, Any] = {"type": "object", "properties": {"place": {"type": "string"}}}
USER: Any = {"role": "user", "content": "Where is it?"}


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as server:
        yield server


def by_openai(model: ScriptedModel, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=model.openai_url, api_key="none", max_retries=0, **more)


def by_anthropic(model: ScriptedModel, **more: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=model.url, api_key="none", max_retries=0, **more)


def said_by_openai(client: openai.OpenAI, *messages: Any) -> Any:
    return client.chat.completions.create(model="m", messages=[*messages] or [USER])


def said_by_anthropic(client: anthropic.Anthropic, *messages: Any, **more: Any) -> Any:
    return client.messages.create(model="m", max_tokens=100, messages=[*messages] or [USER], **more)


# -- answers -----------------------------------------------------------------------------------------


def test_texts_and_calls_reach_every_client_whole(model: ScriptedModel) -> None:
    model.add(*[Answer("In the 港口.", (CALL,))] * 3)
    with by_openai(model) as client:
        chat = said_by_openai(client).choices[0]
        response: Any = client.responses.create(model="m", input="Where is it?")
    with by_anthropic(model) as other:
        message = said_by_anthropic(other)
    assert (chat.message.content, chat.finish_reason) == ("In the 港口.", "tool_calls")
    assert chat.message.tool_calls[0].function.arguments == CALL.text
    assert response.output_text == "In the 港口."
    assert (response.output[1].name, response.output[1].arguments) == (CALL.name, CALL.text)
    assert (message.content[0].text, message.stop_reason) == ("In the 港口.", "tool_use")
    assert message.content[1].input == CALL.arguments


def test_streams_end_in_the_same_answers(model: ScriptedModel) -> None:
    answer = Answer("The ships are in the harbour, and the harbour is in Rotterdam.", (CALL, CALL))
    model.add(answer, answer, answer)
    with by_openai(model) as client:
        with client.chat.completions.stream(model="m", messages=[USER]) as chunks:
            chat = chunks.get_final_completion().choices[0].message
        with client.responses.stream(model="m", input="Where is it?") as events:
            response = events.get_final_response()
    with by_anthropic(model) as other:
        pieces: list[str] = []
        with other.messages.stream(model="m", max_tokens=100, messages=[USER]) as stream:
            pieces += stream.text_stream
            message = stream.get_final_message()
    assert chat.content == response.output_text == "".join(pieces) == answer.text
    assert [call.function.arguments for call in chat.tool_calls or ()] == [CALL.text] * 2
    assert [getattr(item, "arguments", None) for item in response.output[1:]] == [CALL.text] * 2
    assert [getattr(block, "input", None) for block in message.content[1:]] == [CALL.arguments] * 2
    assert len({call.id for call in chat.tool_calls or ()}) == 2
    assert len(pieces) > 1


def test_a_line_can_be_a_function_of_the_request(model: ScriptedModel) -> None:
    def echo(request: Request) -> str:
        return f"{request.path}: {request.body['messages'][-1]['content']}"

    model.add(echo)
    with by_openai(model) as client:
        assert said_by_openai(client).choices[0].message.content == "/chat/completions: Where is it?"
    assert model.requests[0].headers["authorization"] == "Bearer none"
    assert "Where is it?" in model.requests[0].text
    assert model.left == 0


def test_what_was_read_before_is_cached(model: ScriptedModel) -> None:
    model.add("One.", "Two.", "Three.", "Four.")
    again = [USER, {"role": "assistant", "content": "One."}, USER]
    with by_openai(model) as client:
        first = said_by_openai(client).usage
        second = said_by_openai(client, *again).usage
    assert first.prompt_tokens_details.cached_tokens == 0
    assert second.prompt_tokens_details.cached_tokens == first.prompt_tokens
    system: Any = [{"type": "text", "text": "You are brief.", "cache_control": {"type": "ephemeral"}}]
    with by_anthropic(model) as other:
        third = said_by_anthropic(other, system=system).usage
        fourth = said_by_anthropic(other, *again, system=system).usage
    assert third.cache_read_input_tokens == 0
    assert 0 < fourth.cache_read_input_tokens < fourth.input_tokens  # no further than the mark


# -- failures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 429, 500, 529])
def test_a_status_arrives_as_the_error_of_each_client(model: ScriptedModel, status: int) -> None:
    model.add(*[Fail(status, retry_after_s=0)] * 2)
    with by_openai(model) as client, pytest.raises(openai.APIStatusError) as seen:
        said_by_openai(client)
    with by_anthropic(model) as other, pytest.raises(anthropic.APIStatusError) as known:
        said_by_anthropic(other)
    assert (seen.value.status_code, known.value.status_code) == (status, status)
    assert seen.value.response.headers["retry-after"] == "0"


def test_a_client_that_tries_again_gets_the_next_line(model: ScriptedModel) -> None:
    model.add(Fail(429, retry_after_s=0), "Now.")
    with by_openai(model).with_options(max_retries=1) as client:
        assert said_by_openai(client).choices[0].message.content == "Now."
    assert len(model.requests) == 2


def test_an_answer_breaks_off_whole_or_streamed(model: ScriptedModel) -> None:
    model.add(Cut(), Cut())
    with by_openai(model) as client:
        with pytest.raises(openai.APIConnectionError):
            said_by_openai(client)
        with pytest.raises(openai.APIConnectionError):
            list(client.chat.completions.create(model="m", messages=[USER], stream=True))


def test_a_hanging_server_is_given_up_and_can_be_closed(model: ScriptedModel) -> None:
    arrived = threading.Event()

    def hang(request: Request) -> Hang:
        arrived.set()
        return Hang()

    model.add(Hang(), hang)
    with by_openai(model, timeout=0.05) as client, pytest.raises(openai.APITimeoutError):
        said_by_openai(client)
    ended: list[type[Exception]] = []

    def ask() -> None:
        with by_anthropic(model) as other:
            try:
                said_by_anthropic(other)
            except anthropic.APIConnectionError as error:
                ended.append(type(error))

    asking = threading.Thread(target=ask)
    asking.start()
    assert arrived.wait(60)
    model.close()
    asking.join()
    assert ended == [anthropic.APIConnectionError]


def test_an_answer_of_another_protocol_and_malformed_arguments(model: ScriptedModel) -> None:
    model.add(Broken(), Call("look_up", '{"place": '))
    with by_openai(model) as client:
        assert isinstance(said_by_openai(client), str)
        assert said_by_openai(client).choices[0].message.tool_calls[0].function.arguments == '{"place": '


def test_refusals_limits_and_empty_answers(model: ScriptedModel) -> None:
    model.add(*[Answer("No.", stop="refusal"), Answer("In the", stop="length"), Answer()] * 2)
    with by_openai(model) as client:
        chats = [said_by_openai(client).choices[0] for _ in range(3)]
    with by_anthropic(model) as other:
        messages = [said_by_anthropic(other) for _ in range(3)]
    assert [chat.finish_reason for chat in chats] == ["content_filter", "length", "stop"]
    assert (chats[0].message.refusal, chats[2].message.content) == ("No.", "")
    assert [message.stop_reason for message in messages] == ["refusal", "max_tokens", "end_turn"]
    assert messages[2].content == []


def test_a_script_that_ended_fails_or_repeats(model: ScriptedModel) -> None:
    with by_openai(model) as client, pytest.raises(openai.BadRequestError, match="script ended"):
        said_by_openai(client)
    with ScriptedModel(["Again."], repeat=True) as other, by_openai(other) as client:
        assert {said_by_openai(client).choices[0].message.content for _ in range(3)} == {"Again."}
        assert [one.id for one in client.models.list()] == ["scripted"]


# -- what the services refuse ------------------------------------------------------------------------

RESULT = {"role": "tool", "tool_call_id": "c1", "content": "found"}
ASKED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}


@pytest.mark.parametrize("messages", [[USER, RESULT], [USER, ASKED], [USER, ASKED, USER, RESULT]])
def test_openai_refuses_a_call_or_a_result_alone(model: ScriptedModel, messages: list[Any]) -> None:
    with by_openai(model) as client, pytest.raises(openai.BadRequestError, match="tool"):
        said_by_openai(client, *messages)
    assert model.requests == ()


def test_openai_takes_a_call_with_its_result(model: ScriptedModel) -> None:
    model.add("Thanks.")
    with by_openai(model) as client:
        assert said_by_openai(client, USER, ASKED, RESULT).choices[0].message.content == "Thanks."


USES = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]}
GIVES = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "found"}]}
EMPTY = {"role": "user", "content": [{"type": "text", "text": " "}]}
SYSTEM = {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize("messages", [[USER, GIVES], [USER, USES], [USER, USES, USER], [EMPTY], [SYSTEM, USER]])
def test_anthropic_refuses_what_its_service_refuses(model: ScriptedModel, messages: list[Any]) -> None:
    with by_anthropic(model) as client, pytest.raises(anthropic.BadRequestError):
        said_by_anthropic(client, *messages)
    assert model.requests == ()


def test_anthropic_takes_a_call_with_its_result_and_counts_tokens(model: ScriptedModel) -> None:
    model.add("Thanks.")
    with by_anthropic(model) as client:
        assert said_by_anthropic(client, USER, USES, GIVES).content[0].text == "Thanks."
        assert client.messages.count_tokens(model="m", messages=[USER]).input_tokens > 0

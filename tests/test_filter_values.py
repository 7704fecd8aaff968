"""A filter value that cannot match is an error; names of ours are read in any case."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import loom
from loom.agent.memory_tools import MemoryTools
from loom.cli import main
from loom.errors import InvalidInput
from loom.storage.contract import Dimensions, Filter
from loom.types import MemoryQuery, MemoryTier, MemoryType, Trust

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def memory() -> Any:
    with loom.open(embedder="none", derive=False) as opened:
        opened.remember(
            "the harbour opens at nine",
            id="one",
            role="user",
            dimensions=Dimensions(subject="subject", flow="state", layer="type"),
        )
        yield opened


@pytest.mark.parametrize(
    ("field", "value", "plain"),
    [
        ("tier", "L1", "l1"),
        ("tier", MemoryTier.L1, "l1"),
        ("tier", ["L1", "l2"], ("l1", "l2")),
        ("trust", "User", "user"),
        ("trust", Trust.USER, "user"),
        ("trust", {"WEB"}, ("web",)),
        ("subject", "World", "world"),
        ("flow", "EVENT", "event"),
        ("layer", "Type", "type"),
    ],
)
def test_names_of_ours_are_read_in_any_case(field: str, value: object, plain: object) -> None:
    assert getattr(Filter.of(**{field: value}), field) == plain


@pytest.mark.parametrize("field", ["tier", "trust", "subject", "flow", "layer"])
@pytest.mark.parametrize("value", ["nonsense", ["nonsense"], "", 3])
def test_an_unknown_name_raises_with_the_choices(memory: Any, field: str, value: object) -> None:
    choices = {
        "tier": "l1, l2, l3, l4",
        "trust": "user, agent, tool, web, unknown",
        "subject": "subject, world",
        "flow": "state, event",
        "layer": "type, instance",
    }[field]
    for verb, asked in ((memory.recall, ["harbour"]), (memory.list, []), (memory.forget, [])):
        with pytest.raises(InvalidInput, match=choices):
            verb(*asked, **{field: value})
    assert memory.get("one") is not None


@pytest.mark.parametrize(
    "filters",
    [
        {"tier": "L1"},
        {"trust": "User"},
        {"subject": "Subject"},
        {"flow": "State"},
        {"layer": "TYPE"},
        {"role": "User"},
        {"kind": "Message"},
        {"kind": ["MESSAGE", "mine"]},
    ],
)
def test_every_verb_finds_by_a_name_in_another_case(memory: Any, filters: dict[str, Any]) -> None:
    assert [hit.id for hit in memory.recall("harbour", **filters)] == ["one"]
    assert [record.id for record in memory.list(**filters).records] == ["one"]
    assert memory.forget(**filters).ids == ("one",)


def test_a_kind_and_a_role_of_the_callers_own_are_found_as_they_were_written(memory: Any) -> None:
    memory.remember("a note", id="note", kind="Note", role="Planner")
    assert [record.id for record in memory.list(kind="Note").records] == ["note"]
    assert [record.id for record in memory.list(role="Planner").records] == ["note"]


@pytest.mark.parametrize("role", ["User", "USER", "user"])
def test_a_role_in_another_case_has_the_same_trust(memory: Any, role: str) -> None:
    memory.remember("x", id="by role", role=role)
    assert memory.get("by role").trust == "user"


def test_trust_is_written_in_any_case(memory: Any) -> None:
    memory.remember("x", id="trusted", trust="Web")
    assert memory.get("trusted").trust == "web"


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan"), "0.5", True])
def test_an_importance_that_none_can_have_raises(value: Any) -> None:
    with pytest.raises(InvalidInput, match="0 to 1"):
        Filter(min_importance=value)


def test_a_range_of_time_that_ends_before_it_begins_raises() -> None:
    with pytest.raises(InvalidInput, match="until"):
        Filter(since=NOON, until=NOON - timedelta(hours=1))


def test_a_query_takes_names_in_any_case_and_refuses_unknown_ones() -> None:
    given: Any = {"tier": "L2", "type": "Fact"}
    asked = MemoryQuery("x", **given)
    assert (asked.tier, asked.type) == (MemoryTier.L2, MemoryType.FACT)
    with pytest.raises(InvalidInput, match="l1, l2, l3, l4"):
        MemoryQuery("x", **{**given, "tier": "L5"})


def test_promote_and_facts_take_names_in_any_case(memory: Any, tmp_path: Any) -> None:
    assert memory.promote("one", "L2")
    assert memory.facts(fact_type="User_Preference") == []
    with pytest.raises(InvalidInput, match="user_preference"):
        memory.facts(fact_type="nonsense")
    file = tmp_path / "m.loom"
    with loom.open(file, embedder="none", derive=False) as stored:
        stored.remember("x", id="one")
    assert main(["promote", "one", "--to", "L2", "--store", str(file)]) == 0


def test_an_agents_tool_takes_a_tier_in_any_case_and_refuses_an_unknown_one(memory: Any) -> None:
    tools = MemoryTools(memory)
    assert "error" not in tools.call("promote", {"id": "one", "to": "L2"})
    assert "l1, l2" in tools.call("promote", {"id": "one", "to": "L4"})


@pytest.mark.parametrize("stored", ["v17", 17, 17.5, ["other", "v17"], [1, 17]])
def test_metadata_is_compared_with_thousands_of_values(memory: Any, stored: object) -> None:
    memory.remember("tagged", id="tagged", metadata={"tag": stored})
    memory.remember("not tagged", id="other", metadata={"tag": "elsewhere"})
    values: list[Any] = [f"v{number}" for number in range(10_000)] + [n / 2 for n in range(10_000)] + [None, True]
    assert [record.id for record in memory.list(where={"tag": values}).records] == ["tagged"]
    assert [hit.id for hit in memory.recall("tagged", where={"tag": values})] == ["tagged"]
    assert memory.forget(where={"tag": values}).ids == ("tagged",)


@pytest.mark.parametrize("value", [10**30, -(10**30), [10**30, 3]])
def test_metadata_is_compared_with_integers_of_any_size(memory: Any, value: Any) -> None:
    memory.remember("large", id="large", metadata={"size": value})
    memory.remember("small", id="small", metadata={"size": 4})
    assert [record.id for record in memory.list(where={"size": value}).records] == ["large"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1.0, float("-inf")]])
def test_a_number_that_no_metadata_can_hold_raises(memory: Any, value: Any) -> None:
    with pytest.raises(InvalidInput, match="finite"):
        memory.list(where={"size": value})


def test_more_metadata_keys_than_one_query_can_compare_raise(memory: Any) -> None:
    with pytest.raises(InvalidInput, match="500 metadata keys"):
        memory.list(where={f"k{number}": 1 for number in range(10_000)})

"""Hits, records, receipts, facts and contexts as JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import loom
from loom.context.items import ContextItem, DroppedItem, Place, SourceReport
from loom.context.orchestrator import Context
from loom.errors import InvalidInput
from loom.recall.hits import Hit
from loom.storage.contract import Dimensions, Record
from loom.text.thesaurus import Alternative, Concept
from loom.types import Fact, FactType, MemoryTier, Receipt

texts = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.none() | texts
shares = st.floats(0.0, 1.0)
counts = st.integers(0, 2**40)
moments = st.integers(-(2**31), 2**33).flatmap(
    lambda seconds: st.sampled_from([UTC, timezone(timedelta(hours=8))]).map(
        lambda zone: datetime.fromtimestamp(seconds, zone)
    )
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, json_values, max_size=3)
ids = st.tuples(texts, texts) | st.just(())
dimensions = st.builds(
    Dimensions,
    st.sampled_from(("subject", "world")),
    st.sampled_from(("state", "event")),
    st.sampled_from(("type", "instance")),
)
records = st.builds(
    Record,
    counts, texts, counts, texts, moments, moments, texts, texts, names, names, names, texts, dimensions, shares,
    counts, texts, objects, json_values, st.none() | moments,
)  # fmt: skip
concepts = st.builds(Concept, texts, ids, st.lists(st.builds(Alternative, texts, ids, shares), max_size=2).map(tuple))
hits = st.builds(
    Hit,
    id=texts, content=texts, score=shares, tokens=counts, created_at=moments, role=names, name=names,
    session_id=names, kind=texts, trust=texts, importance=shares, metadata=objects, version=counts,
    superseded_at=st.none() | moments,
    signals=st.dictionaries(texts, shares, max_size=2), copies=counts, copy_ids=ids, uses=counts, query_terms=ids,
    seq=counts, link_terms=ids, concepts=st.lists(concepts, max_size=2).map(tuple), shares_session=st.booleans(),
    names=st.dictionaries(texts, texts, max_size=2),
)  # fmt: skip
receipts = st.builds(Receipt, texts, st.sampled_from(MemoryTier), counts, counts, st.booleans(), texts)
facts = st.builds(
    Fact,
    texts, st.sampled_from(FactType), shares, texts, st.lists(texts, max_size=2), counts, moments, st.none() | shares,
    st.lists(texts, max_size=2), st.none() | moments, objects,
)  # fmt: skip
items = st.builds(
    ContextItem,
    texts, texts, names, shares, counts, texts, st.sampled_from(Place), st.none() | moments, counts, texts,
    st.booleans(),
)  # fmt: skip
contexts = st.builds(
    Context,
    st.lists(st.fixed_dictionaries({"role": texts, "content": texts}), max_size=3),
    items=st.lists(items, max_size=2),
    dropped=st.lists(st.builds(DroppedItem, texts, texts, names, shares, counts, texts, texts), max_size=2),
    tokens=counts,
    budget=counts,
    sources=st.lists(st.builds(SourceReport, texts, counts, counts, counts, counts, texts), max_size=2),
    notes=st.lists(texts, max_size=2),
    prefix=counts,
    breakpoints=st.lists(counts, max_size=2),
)


@given(st.one_of(records, hits, receipts, facts))
def test_what_a_verb_gives_back_survives_json(value: Any) -> None:
    told = json.loads(json.dumps(value.to_dict(), allow_nan=False))
    again = type(value).from_dict(told)
    assert again == value
    assert type(again) is type(value)
    assert again.to_dict() == told


@given(contexts)
def test_a_context_survives_json(value: Context) -> None:
    again = Context.from_dict(json.loads(json.dumps(value.to_dict(), allow_nan=False)))
    assert again == value
    assert vars(again) == vars(value)


MADE: Mapping[str, Callable[[loom.Memory], Any]] = {
    "Receipt": lambda memory: memory.remember("Kites need wind.", id="kite"),
    "Record": lambda memory: memory.get("wind"),
    "Hit": lambda memory: memory.recall("What do boats need?")[0],
    "Fact": lambda memory: memory.get_fact("known"),
    "Context": lambda memory: memory.context("What do boats need?", session_id="s1", budget=400),
}


@pytest.fixture(params=MADE)
def made(request: pytest.FixtureRequest) -> Any:
    with loom.open(embedder="none", derive=False) as memory:
        memory.remember("Boats need wind, said Ana.", id="wind", name="Ana", session_id="s1", metadata={"n": [1]})
        memory.add_fact(Fact("Ana sails.", id="known", tags=["sailing"]), sources=["wind"])
        return MADE[request.param](memory)


def test_what_a_memory_gives_back_is_json_and_can_be_made_again(made: Any) -> None:
    told = made.to_dict()
    again = type(made).from_dict(json.loads(json.dumps(told)))
    assert again == made
    assert again.to_dict() == told


def test_times_are_told_with_their_offset(made: Any) -> None:
    for name, value in made.to_dict().items():
        if name.endswith("_at") and value is not None:
            assert datetime.fromisoformat(value).utcoffset() == timedelta(0)


def test_an_unknown_or_a_wrong_field_is_refused_by_name(made: Any) -> None:
    kind = type(made)
    with pytest.raises(InvalidInput, match=f"{kind.__name__} has no field 'colour'; its fields are"):
        kind.from_dict({**made.to_dict(), "colour": "red"})
    name, value = next((name, value) for name, value in made.to_dict().items() if isinstance(value, int | list | str))
    wrong: Any = 5 if isinstance(value, list | str) else "five"
    with pytest.raises(InvalidInput, match=f"{name} of {kind.__name__} must be"):
        kind.from_dict({**made.to_dict(), name: wrong})
    with pytest.raises(InvalidInput, match=f"{kind.__name__} cannot be made from these fields: .*missing"):
        kind.from_dict({})
    with pytest.raises(InvalidInput, match=f"{kind.__name__} is made from a mapping of its fields, not from str"):
        kind.from_dict("text")


def test_a_hit_made_again_gives_the_same_reasons() -> None:
    with loom.open(embedder="none", derive=False) as memory:
        memory.remember(["Boats need wind.", "Boats need water, and kites need wind.", "Kites are light."])
        for hit in memory.recall("What do boats need?"):
            again = Hit.from_dict(hit.to_dict())
            assert (again.ranks, again.why) == (hit.ranks, hit.why)


def test_a_page_is_walked_and_counted_by_its_records() -> None:
    with loom.open(embedder="none", derive=False) as memory:
        memory.remember(["one", "two", "three"])
        page = memory.list(limit=2)
        assert [record.content for record in page] == ["three", "two"]
        assert len(page) == 2
        assert not memory.list(session_id="none")

"""The pull reader: equal to the standard library on valid JSON, whatever its buffer, and bounded on the rest."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.importers import json_reader
from loom.importers.json_reader import CutFile, JsonReader, MalformedValue

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def elements(data: bytes, chunk: int = 1 << 20, largest: int = 1 << 20) -> list[Any]:
    """The elements of an array, with errors in place of unreadable ones."""
    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_reader, "CHUNK", chunk)
        reader = JsonReader(io.BytesIO(data), largest)
        try:
            for _ in reader.elements():
                try:
                    found.append(reader.value())
                except CutFile:
                    raise
                except MalformedValue as error:
                    found.append(error)
        except MalformedValue as error:
            found.append(error)
    return found


@given(st.lists(VALUES, max_size=6), st.booleans(), st.sampled_from([None, 1]), st.integers(1, 40))
def test_every_value_is_the_same_as_that_of_the_standard_library(
    values: list[Any], is_ascii: bool, indent: int | None, chunk: int
) -> None:
    data = json.dumps(values, ensure_ascii=is_ascii, indent=indent).encode("utf-8", "surrogatepass")
    if "\\ud" not in data.decode("utf-8", "surrogatepass").lower():
        assert elements(data, chunk) == json.loads(data.decode("utf-8", "surrogatepass"))


@given(st.binary(max_size=60), st.integers(1, 20))
def test_whatever_the_bytes_the_reader_ends_and_says_where(data: bytes, chunk: int) -> None:
    for one in elements(b"[" + data, chunk):
        if isinstance(one, MalformedValue):
            assert 0 <= one.position <= len(data) + 1


def test_what_is_malformed_costs_only_itself() -> None:
    data = b'[{"a":1} {"b":2}, garbage, {"c": nope}, 3,, :, "x", "\xff", NaN, "\\ud800", {"d":'
    found = elements(data)
    good = [one for one in found if not isinstance(one, MalformedValue)]
    assert good == [{"a": 1}, {"b": 2}, 3, "x", "\ufffd"]
    bad = [(one.position, isinstance(one, CutFile)) for one in found if isinstance(one, MalformedValue)]
    places = [data.index(mark) for mark in (b"garbage", b'{"c"', b":,", b'"\xff"', b"NaN")]
    assert bad == [*((place, False) for place in places), (len(data), True)]


def test_a_value_that_is_too_large_is_passed_over_without_being_held() -> None:
    data = b'[1, "' + b"a" * 5000 + b'", {"b": [' + b"2, " * 2000 + b"2]}, 3]"
    for chunk in (64, 1 << 20):
        found = elements(data, chunk, largest=1000)
        assert [found[0], found[3]] == [1, 3]
        assert all("longer than 1,000 bytes" in str(one) for one in found[1:3])


def test_deep_nesting_is_refused_and_not_followed() -> None:
    deep = b"[" * 200_000 + b"]" * 200_000
    found = elements(b"[" + deep + b", 7]")
    assert "RecursionError" in str(found[0])
    assert found[1] == 7


def test_members_are_stepped_through_and_what_is_left_is_skipped() -> None:
    reader = JsonReader(io.BytesIO(b'\xef\xbb\xbf {"skip": {"a": [1, "}"]}, "list": [1, 2], "name": "Ana"}'))
    seen: list[Any] = []
    for name in reader.members():
        if name == "list":
            seen += [reader.value() for _ in reader.elements()]
        elif name == "name":
            seen.append(reader.value())
    assert seen == [1, 2, "Ana"]
    with pytest.raises(CutFile, match="member without a name"):
        list(JsonReader(io.BytesIO(b"{1: 2}")).members())
    with pytest.raises(MalformedValue, match="it is not an array"):
        list(JsonReader(io.BytesIO(b"{}")).elements())

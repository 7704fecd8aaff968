"""task_process.md as text: unchanged parts stay the same, byte for byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loom.notebook.expressions import evaluate, literal
from loom.notebook.process import TaskProcess, new_process

FREE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r#"), max_size=30)
NAMES = st.from_regex(r"[a-z_甲乙][a-z0-9_甲乙]{0,8}", fullmatch=True).filter(
    lambda name: name not in ("and", "or", "not", "contains", "true", "false")
)
VALUES = st.one_of(
    st.integers(-(10**30), 10**30),
    st.booleans(),
    st.floats(0, 1e6).map(lambda number: round(number, 3)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)


def test_a_file_with_everything_around_it_is_changed_in_the_lines_concerned_only() -> None:
    text = (
        "---\r\ntitle: Mine\r\n---\r\n# Task Process\r\n\r\nHello [[link]].\r\n\r\n## State\r\n- Pointer: 1\r\n"
        "- Phase: executing\r\n- Owner: Ana\r\n\r\n## TODO\r\n* [ ] one  ← current\r\n  - a remark\r\n* [ ] two\r\n"
        "\r\n"
        "```\r\n## TODO\r\n- [ ] not me\r\n```\r\n<!-- kept -->\r\n| a | b |\r\n"
    )
    process = TaskProcess.parse(text)
    assert [item.text for item in process.items] == ["one", "two"]
    after = process.ticked().assigned("n", 3).text
    expected = text.replace("- Pointer: 1", "- Pointer: 2").replace("* [ ] one  ← current", "* [x] one")
    expected = expected.replace("* [ ] two", "* [ ] two  ← current")
    expected = expected.replace("## TODO\r\n*", "## Variables\r\n- n: 3\r\n\r\n## TODO\r\n*")
    assert after == expected


@given(st.lists(FREE.filter(lambda text: text.strip() and "←" not in text), min_size=1, max_size=6), st.data())
def test_going_back_and_forth_ends_where_it_began(steps: list[str], data: st.DataObject) -> None:
    process = new_process(steps)
    there = data.draw(st.integers(1, len(process.items) + 1))
    back = process.moved(there).moved(1)
    assert back.text == process.text
    assert [item.text for item in back.items] == [item.text for item in process.items]


@given(NAMES, VALUES, st.lists(FREE.map(lambda text: f"> {text}"), max_size=5))
def test_a_variable_is_read_as_it_was_written_and_nothing_else_changes(
    name: str, value: object, notes: list[str]
) -> None:
    process = TaskProcess.parse("\n".join(["# Task Process", *notes, "", "## TODO", "- [ ] one", ""]))
    after = process.assigned(name, value)  # type: ignore[arg-type]
    assert after.variables[name] == value
    assert type(after.variables[name]) is type(value)
    kept = [line for line in after.text.split("\n") if line.startswith(">")]
    assert kept == notes
    again = after.assigned(name, 1)
    assert again.variables == {name: 1}
    assert again.text.replace(f"## Variables\n- {name}: 1\n\n", "", 1) == process.text


@given(VALUES)
def test_a_literal_is_the_value(value: object) -> None:
    assert evaluate(literal(value), {}) == value  # type: ignore[arg-type]


@given(st.integers(-1000, 1000), st.integers(-1000, 1000), st.integers(1, 50))
def test_arithmetic_is_that_of_numbers(first: int, second: int, third: int) -> None:
    variables = {"a": first, "b": second, "c": third}
    assert evaluate("a + b * c - (a - b)", variables) == first + second * third - (first - second)
    assert evaluate("a // c * c + a % c", variables) == first
    assert evaluate("a < b OR b <= a", variables) is True
    assert evaluate("NOT (a == b AND a != b)", variables) is True
    assert evaluate("a ≤ b 或 a ≥ b", variables) is True
    assert evaluate("a / 1 == a", variables) is True

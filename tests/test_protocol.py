"""Ids, times, tasks and agent cards."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.errors import InvalidInput
from loom.protocol import AgentCapability, AgentCard, IdMaker, NodeProtocol, Task, TaskStatus, new_id, utc_now

IDS_PER_PROCESS = 25_000
MICRO = timedelta(microseconds=1)


def output_of(script: str) -> list[str]:
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return finished.stdout.split()


# --- ids ---


@pytest.fixture
def switching_often() -> Iterator[None]:
    """Threads take turns after a microsecond, so that they meet between any two steps."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_ids_are_26_characters_of_crockfords_alphabet() -> None:
    assert set(new_id()) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
    assert len(new_id()) == 26


def test_ids_of_one_process_ascend() -> None:
    ids = [new_id() for _ in range(50_000)]
    assert all(first < second for first, second in itertools.pairwise(ids))


def test_an_id_begins_with_its_millisecond() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id()
    after = time.time_ns() // 1_000_000
    moment = 0
    for character in made[:10]:
        moment = moment * 32 + "0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(character)
    assert before <= moment <= after


def test_ids_do_not_descend_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = new_id()
    real = time.time_ns
    monkeypatch.setattr("loom.protocol.time.time_ns", lambda: real() - 3_600 * 10**9)
    after = [new_id() for _ in range(1000)]
    assert before < after[0]
    assert sorted(set(after)) == after


def test_ids_ascend_when_the_counter_of_a_millisecond_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = IdMaker(ids_per_millisecond=8)
    monkeypatch.setattr("loom.protocol.time.time_ns", lambda: 1_700_000_000_000 * 1_000_000)
    ids = [maker.make() for _ in range(30)]
    assert sorted(set(ids)) == ids
    assert ids[0][:10] < ids[-1][:10]
    assert all(len(one) == 26 for one in ids)


@pytest.mark.usefixtures("switching_often")
def test_threads_never_share_an_id_and_each_sees_its_own_ascend() -> None:
    made: list[list[str]] = [[] for _ in range(4)]
    gate = threading.Barrier(4)

    def work(into: list[str]) -> None:
        gate.wait()
        into.extend(new_id() for _ in range(20_000))

    threads = [threading.Thread(target=work, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one for ids in made for one in ids}) == 80_000
    assert all(sorted(ids) == ids for ids in made)


def test_four_processes_never_make_the_same_id() -> None:
    script = f"from loom.protocol import new_id\nprint('\\n'.join(new_id() for _ in range({IDS_PER_PROCESS})))"
    running = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    ids = [one for process in running for one in process.communicate()[0].split()]
    assert len(ids) == 4 * IDS_PER_PROCESS
    assert len(set(ids)) == len(ids)


def test_a_forked_child_does_not_repeat_its_parents_ids(tmp_path: Path) -> None:
    # The clock stands still, so that parent and children share the millisecond and only chance differs.
    # Each writes a file of its own: long writes of several processes to one pipe run into each other.
    output_of(
        "import os\n"
        "from loom import protocol\n"
        "protocol.time.time_ns = lambda: 1_700_000_000_000_000_000\n"
        "protocol.new_id()\n"
        "children = []\n"
        "for _ in range(4):\n"
        "    children.append(os.fork())\n"
        "    if not children[-1]:\n"
        "        break\n"
        f"ids = [protocol.new_id() for _ in range({IDS_PER_PROCESS})]\n"
        f"with open(os.path.join({str(tmp_path)!r}, str(os.getpid())), 'w') as file:\n"
        "    file.write('\\n'.join(ids))\n"
        "if not children[-1]:\n"
        "    os._exit(0)\n"
        "assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4\n"
    )
    ids = [one for written in tmp_path.iterdir() for one in written.read_text().split()]
    assert len(ids) == 5 * IDS_PER_PROCESS
    assert len(set(ids)) == len(ids)


def test_a_child_forked_while_another_thread_makes_an_id_can_make_its_own() -> None:
    # The lock is held by another thread at the moment of the fork, and the child has no such thread.
    ids = output_of(
        "import os, sys, threading, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from loom import protocol\n"
        "held, release = threading.Event(), threading.Event()\n"
        "chance = os.urandom\n"
        "def slow_chance(size):\n"
        "    held.set(); release.wait()\n"
        "    return chance(size)\n"
        "os.urandom = slow_chance\n"
        "thread = threading.Thread(target=protocol.new_id); thread.start(); held.wait()\n"
        "os.urandom = chance\n"
        "if (child := os.fork()) == 0:\n"
        "    sys.stdout.write(protocol.new_id()); sys.stdout.flush(); os._exit(0)\n"
        "release.set(); thread.join(); os.waitpid(child, 0)\n"
    )
    assert len(ids) == 1


def test_an_interrupted_thread_can_make_an_id_in_its_signal_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = IdMaker()
    chance, made = os.urandom, []

    def interrupted(size: int) -> bytes:  # called where the lock is held, as a signal may arrive
        monkeypatch.setattr("loom.protocol.os.urandom", chance)
        made.append(maker.make())
        return chance(size)

    monkeypatch.setattr("loom.protocol.os.urandom", interrupted)
    made.append(maker.make())
    assert [len(one) for one in made] == [26, 26]
    assert made[0] != made[1]


# --- tasks ---

moments = st.integers(-(2**55), 2**55).map(lambda micros: datetime(1970, 1, 1, tzinfo=UTC) + micros * MICRO)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
tasks = st.builds(
    Task,
    task_id=st.text(min_size=1),
    action=st.text(),
    parameters=st.dictionaries(st.text(), json_values, max_size=4),
    result=json_values,
    error=st.none() | st.text(),
    status=st.sampled_from(TaskStatus),
    session_id=st.none() | st.text(),
    parent_task_id=st.none() | st.text(),
    source_agent=st.text(),
    target_agent=st.text(),
    created_at=moments,
    updated_at=moments,
    metadata=st.dictionaries(st.text(), json_values, max_size=4),
)


@given(tasks)
def test_a_task_survives_json(task: Task) -> None:
    assert Task.from_dict(json.loads(json.dumps(task.to_dict(), allow_nan=False))) == task


def test_a_task_needs_no_arguments() -> None:
    task = Task()
    assert (task.action, task.parameters, task.result, task.error) == ("", {}, None, None)
    assert task.status is TaskStatus.PENDING
    assert len(task.task_id) == 26
    assert task.created_at.tzinfo is UTC
    assert task.updated_at == task.created_at


def test_tasks_share_no_containers() -> None:
    first, second = Task(), Task()
    first.parameters["key"] = first.metadata["key"] = 1
    assert second.parameters == {}
    assert second.metadata == {}


def test_a_status_may_be_given_as_text() -> None:
    assert Task(status="failed").status is TaskStatus.FAILED  # type: ignore[arg-type]


def test_an_unknown_status_is_refused_with_the_accepted_ones() -> None:
    with pytest.raises(InvalidInput, match="'done' does not exist; it must be one of pending, running"):
        Task(status="done")  # type: ignore[arg-type]


def test_times_of_other_zones_are_kept_in_utc() -> None:
    moment = datetime(2025, 1, 5, 18, 30, tzinfo=timezone(timedelta(hours=8)))
    task = Task(created_at=moment)
    assert task.created_at == moment
    assert task.created_at.isoformat() == "2025-01-05T10:30:00+00:00"
    assert task.updated_at == moment


@pytest.mark.parametrize("name", ["created_at", "updated_at"])
def test_naive_times_are_refused_everywhere(name: str) -> None:
    naive: Any = {name: datetime(2025, 1, 5)}  # noqa: DTZ001
    with pytest.raises(InvalidInput, match=f"{name} is 2025-01-05T00:00:00, a time without a zone"):
        Task(**naive)
    with pytest.raises(InvalidInput, match="without a zone"):
        Task.from_dict({name: "2025-01-05T10:30:00"})
    task = Task()
    setattr(task, name, naive[name])
    with pytest.raises(InvalidInput, match="without a zone"):
        task.to_dict()


def test_a_time_that_utc_cannot_express_is_refused() -> None:
    with pytest.raises(InvalidInput, match="outside the years"):
        Task(created_at=datetime.min.replace(tzinfo=timezone(timedelta(hours=8))))


@pytest.mark.parametrize("task_id", ["", None, 7])
def test_an_id_that_is_no_text_is_refused(task_id: Any) -> None:
    with pytest.raises(InvalidInput, match="task_id"):
        Task(task_id=task_id)


def test_missing_fields_take_their_defaults() -> None:
    task = Task.from_dict({"action": "execute", "created_at": "2025-01-05T10:30:00Z"})
    assert task.action == "execute"
    assert task.status is TaskStatus.PENDING
    assert task.updated_at == task.created_at == datetime(2025, 1, 5, 10, 30, tzinfo=UTC)
    assert Task.from_dict({}).task_id != Task.from_dict({}).task_id


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"acton": "execute"}, "no field 'acton'; its fields are task_id, action"),
        ({"parameters": None}, "parameters of Task must be dict, not NoneType"),
        ({"parameters": [1]}, "must be dict, not list"),
        ({"session_id": 5}, "session_id of Task must be str, not int"),
        ({"status": "done"}, "one of pending"),
        ({"created_at": "yesterday"}, "created_at is 'yesterday', not a time in ISO 8601"),
        ({"created_at": 1736073000}, "must be a datetime or a text in ISO 8601, not int"),
        ({"task_id": ""}, "task_id"),
    ],
)
def test_a_description_that_is_no_task_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Task.from_dict(data)


def test_a_task_is_not_made_from_text() -> None:
    with pytest.raises(InvalidInput, match="not from str"):
        Task.from_dict("{}")  # type: ignore[arg-type]


def test_neither_direction_shares_containers_with_the_task() -> None:
    task = Task(parameters={"list": [1]})
    described = task.to_dict()
    described["parameters"]["list"].append(2)
    assert task.parameters == {"list": [1]}
    again = Task.from_dict(described)
    described["parameters"]["list"].append(3)
    assert again.parameters == {"list": [1, 2]}


class Colour(StrEnum):
    RED = "red"


def test_members_of_enums_and_tuples_become_plain_json() -> None:
    described = Task(parameters={"colour": Colour.RED, "pair": (1, 2), Colour.RED: True}).to_dict()
    assert described["parameters"] == {"colour": "red", "pair": [1, 2], "red": True}
    assert type(described["parameters"]["colour"]) is str
    assert type(described["status"]) is str


class Circle(list[Any]):
    """A list that contains itself."""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"deep": [{1, 2}]}, r"result\.deep\[0\] is of type set"),
        (b"bytes", "result is of type bytes"),
        (float("nan"), "result is nan"),
        ([float("-inf")], r"result\[0\] is -inf"),
        ({1: "one"}, "result has a key of type int"),
        (datetime(2025, 1, 5, tzinfo=UTC), "result is of type datetime"),
    ],
)
def test_what_json_cannot_carry_is_refused_by_place_and_type(value: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Task(result=value).to_dict()


def test_a_value_that_contains_itself_is_refused() -> None:
    circle = Circle()
    circle.append(circle)
    with pytest.raises(InvalidInput, match="contains itself"):
        Task(result=circle).to_dict()


# --- agents ---


def test_an_agent_card_survives_json() -> None:
    card = AgentCard(
        "agent-1",
        name="Researcher",
        capabilities=(AgentCapability.PLANNING, AgentCapability.TOOL_USE),
        skills=("search", "总结"),
        metadata={"team": "a"},
    )
    assert AgentCard.from_dict(json.loads(json.dumps(card.to_dict()))) == card
    assert hash(card) == hash(AgentCard.from_dict(card.to_dict()))


def test_an_agent_card_takes_lists_and_names_of_capabilities() -> None:
    card = AgentCard("agent-1", capabilities=["planning"], skills=["search"])  # type: ignore[arg-type]
    assert card.capabilities == (AgentCapability.PLANNING,)
    assert card.skills == ("search",)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": "nobody"}, "missing 1 required positional argument: 'agent_id'"),
        ({"agent_id": ""}, "agent_id must be a text"),
        ({"agent_id": "a", "capabilities": ["flying"]}, "'flying' does not exist"),
        ({"agent_id": "a", "capabilities": "planning"}, "must be list or tuple, not str"),
        ({"agent_id": "a", "skill": []}, "no field 'skill'"),
    ],
)
def test_a_description_that_is_no_card_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        AgentCard.from_dict(data)


def test_a_lone_text_is_not_taken_for_a_list_of_skills() -> None:
    with pytest.raises(InvalidInput, match="skills must be a list"):
        AgentCard("agent-1", skills="search")  # type: ignore[arg-type]


class Echo:
    """The smallest node."""

    node_id = "echo"

    async def execute_task(self, task: Task) -> Task:
        task.result = task.parameters
        task.status = TaskStatus.COMPLETED
        return task

    def get_capabilities(self) -> AgentCard:
        return AgentCard(self.node_id)


def test_a_node_is_known_by_its_methods() -> None:
    node: NodeProtocol = Echo()
    assert isinstance(node, NodeProtocol)
    assert not isinstance(object(), NodeProtocol)


def test_the_present_is_aware_and_in_utc() -> None:
    assert utc_now().tzinfo is UTC


def test_importing_the_foundation_brings_in_nothing_heavy() -> None:
    heavy = "{'asyncio', 'logging', 'numpy', 'tomllib', 'difflib', 'concurrent.futures', 'sqlite3', 'random'}"
    loaded = output_of(
        "import sys; before = set(sys.modules)\n"
        "import loom.protocol, loom.events, loom.settings\n"
        f"print(*sorted({heavy} & (set(sys.modules) - before)))"
    )
    assert loaded == []

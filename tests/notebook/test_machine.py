"""Task processes as programs: in both languages, killed at every step, and edited by people meanwhile."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom.errors import InvalidInput, NotFound
from loom.notebook.machine import Machine, Outcome
from loom.notebook.process import TaskProcess, new_process

EUCLID = (
    "@loop IF b == 0 THEN GOTO @end",
    "SET r = a % b",
    "SET a = b",
    "SET b = r",
    "GOTO @loop",
    "@end SET result = a",
)
EUCLID_CHINESE = (
    "@循环 如果 乙 == 0 那么 转到 @结束",
    "设 余 = 甲 % 乙",
    "设 甲 = 乙",
    "设 乙 = 余",
    "转到 @循环",
    "@结束 设 result = 甲",
)
# A machine with two counters and a third for the product, by nothing but counting up, counting down and jumping.
COUNTERS = (
    "@outer IF x == 0 THEN GOTO @end",
    "SET x = x - 1",
    "SET back = 0",
    "@inner IF y == 0 THEN GOTO @restore",
    "SET y = y - 1",
    "SET back = back + 1",
    "SET result = result + 1",
    "GOTO @inner",
    "@restore IF back == 0 THEN GOTO @outer",
    "SET back = back - 1",
    "SET y = y + 1",
    "GOTO @restore",
    "@end STOP",
)
PROGRAMS: dict[str, tuple[TaskProcess, int]] = {
    "euclid": (new_process(EUCLID, variables={"a": 1071, "b": 462}), 21),
    "欧几里得": (new_process(EUCLID_CHINESE, variables={"甲": 1071, "乙": 462}, chinese=True), 21),
    "counters": (new_process(COUNTERS, variables={"x": 3, "y": 4, "result": 0}), 12),
}


def written(folder: Path, process: TaskProcess | str) -> Machine:
    path = folder / "task_process.md"
    path.write_text(process if isinstance(process, str) else process.text, encoding="utf-8")
    return Machine(path)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_what_it_should(name: str, tmp_path: Path) -> None:
    process, expected = PROGRAMS[name]
    report = written(tmp_path, process).run()
    assert report.outcome is Outcome.DONE
    assert report.process.variables["result"] == expected


@pytest.mark.parametrize("name", ["euclid", "欧几里得"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_is_killed_at_any_step_continues_at_the_right_one(
    name: str, when: str, tmp_path: Path
) -> None:
    """Each child gets one step further than the one before and is killed around the write of that step."""
    process, expected = PROGRAMS[name]
    machine = written(tmp_path, process)
    whole = Machine(written_copy(tmp_path, process)).run().steps
    for _ in range(3 * whole):
        if _killed_at_a_write(machine.run, when, number=2 if when == "after" else 1):
            TaskProcess.parse(machine.path.read_text(encoding="utf-8"))  # never half a file
            if when == "before":
                machine.step()  # or it would die at the same step for ever
            continue
        break
    report = machine.run()
    assert report.process.variables["result"] == expected
    assert machine.state().is_finished
    assert not list(tmp_path.glob("*.half"))


def written_copy(folder: Path, process: TaskProcess) -> Path:
    copy = folder / "copy"
    copy.mkdir()
    path = copy / "task_process.md"
    path.write_text(process.text, encoding="utf-8")
    return path


def _killed_at_a_write(work: Callable[[], Any], when: str, number: int) -> bool:
    """Whether a child that does the work died at its n-th write of a file, before or after it."""
    child = os.fork()
    if child == 0:
        writes = 0
        real = os.replace

        def replace(source: Any, target: Any) -> None:
            nonlocal writes
            writes += 1
            if writes == number and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            real(source, target)
            if writes == number and when == "after":
                os.kill(os.getpid(), signal.SIGKILL)

        os.replace = replace  # type: ignore[assignment]
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_the_example_of_the_third_document_runs(tmp_path: Path) -> None:
    """003 §4.2: requirement 112. What is text waits for an agent; the note below the rules is only text."""
    text = (
        "# Task Process\n\n## 当前状态\n- 指令指针: 3\n- 阶段: executing\n\n## TODO列表（事件流体现在列表变化中）\n"
        "- [x] 读取PIM文件\n- [x] 生成第一章\n- [ ] 生成第二章  ← 当前\n- [ ] 验证完整性\n\n## 动态指令\n"
        "IF error THEN retry ELSE continue\n\n注：task_process.md同时包含：\n- 状态：当前执行到哪一步\n"
    )
    machine = written(tmp_path, text)
    assert machine.state().moved(3).text == text
    asked: list[str] = []

    def do(item: str, variables: Any) -> str:
        asked.append(item)
        if len(asked) == 1:
            raise RuntimeError("磁盘忙")
        return "好"

    report = Machine(machine.path, do=do).run()
    assert report.outcome is Outcome.DONE
    assert asked == ["生成第二章", "生成第二章", "验证完整性"]
    after = machine.path.read_text(encoding="utf-8")
    assert "- [x] 验证完整性\n" in after
    assert after.endswith("注：task_process.md同时包含：\n- 状态：当前执行到哪一步\n")


def test_items_add_items_and_so_a_process_writes_itself(tmp_path: Path) -> None:
    """Loops by adding items, and recursion by items that add items: requirement 115."""
    steps = ["SET n = 3", 'ADD "IF n > 0 THEN GOTO @count ELSE STOP" AT END', "GOTO 4", "CONTINUE"]
    steps += ["@count SET n = n - 1", 'SET seen = seen + "x"', 'IF n > 0 THEN ADD "GOTO @count" AT END']
    machine = written(tmp_path, new_process(steps, variables={"seen": ""}))
    report = machine.run(200)
    assert report.outcome is Outcome.DONE
    assert report.process.variables["seen"] == "xxx"
    assert len(report.process.items) > len(steps)


def test_functions_are_types_and_processes_their_instances(tmp_path: Path) -> None:
    """Requirement 153: a step names a registered function, or a process that becomes an instance of its own."""
    (tmp_path / "gcd.md").write_text(new_process(EUCLID, variables={"a": 1, "b": 1}).text)
    steps = [
        'RUN "gcd.md" WITH a = 48, b = x * 2 -> g',
        "CALL double(number = g) -> d",
        "运行 gcd.md 带 a = d, b = 10 → h",
    ]
    machine = written(tmp_path, new_process(steps, variables={"x": 18}))
    report = Machine(machine.path, functions={"double": lambda number: number * 2}).run()
    assert report.outcome is Outcome.DONE
    assert (report.process.variables["g"], report.process.variables["d"], report.process.variables["h"]) == (
        12,
        24,
        2,
    )
    assert (tmp_path / "gcd.1.md").exists()
    assert (tmp_path / "gcd.2.md").exists()
    assert Machine(tmp_path / "gcd.md").state().pointer == 1  # the program itself did not run


def test_a_process_may_run_itself(tmp_path: Path) -> None:
    path = tmp_path / "factorial.md"
    steps = [
        "IF n == 0 THEN GOTO @end",
        'RUN "factorial.md" WITH n = n - 1 -> below',
        "SET result = n * below",
        "STOP",
    ]
    path.write_text(new_process([*steps, "@end SET result = 1"], variables={"n": 4}).text)
    report = Machine(path).run()
    assert report.process.variables["result"] == 24


def test_a_process_below_that_waits_is_continued_by_the_one_above(tmp_path: Path) -> None:
    (tmp_path / "ask.md").write_text(new_process(["ask Ana", "SET result = 7"]).text)
    machine = written(tmp_path, new_process(['RUN "ask.md" -> n', "SET m = n + 1"]))
    report = machine.run()
    assert report.outcome is Outcome.WAITING
    assert "ask Ana" in report.message
    Machine(tmp_path / "ask.1.md").complete("she says yes")
    assert machine.run().process.variables["m"] == 8


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (["SET x = 1 / 0"], "divides by zero"),
        (["SET x = nothing + 1"], "no variable 'nothing'"),
        (["GOTO 9"], "no item 9"),
        (["GOTO @nowhere"], "label @nowhere"),
        (["@a CONTINUE", "@a CONTINUE", "GOTO @a"], "2 items have the label"),
        (["CALL os.system(command = 'ls')"], "no function 'os.system'"),
        (["RUN ../secret.md"], "same folder"),
        (['RUN "missing.md"'], "no process"),
        (["SET x = " + "(" * 200 + "1" + ")" * 200], "nested deeper"),
    ],
)
def test_what_cannot_be_done_fails_with_file_and_line_and_stays_where_it_is(
    steps: list[str], told: str, tmp_path: Path
) -> None:
    machine = written(tmp_path, new_process(steps))
    report = machine.run()
    assert report.outcome is Outcome.FAILED
    assert told in report.message
    assert "task_process.md, line " in report.message
    assert machine.state().phase == "failed"


def test_text_is_never_executed(tmp_path: Path) -> None:
    called: list[str] = []
    texts = [
        "Please call the office (and mind the gap)",
        "if you can, then go to the bakery",
        "SETTLE the bill",
        "CALL home",
        "`rm -rf /`",
        "IF THEN ELSE",
    ]
    machine = written(tmp_path, new_process(texts))
    report = Machine(machine.path, functions={"home": called.append}, do=lambda text, _: text).run()
    assert report.outcome is Outcome.DONE
    assert called == []
    assert report.process.variables["result"] == texts[-1]


def test_an_endless_loop_is_stopped_and_says_so(tmp_path: Path) -> None:
    machine = written(tmp_path, new_process(["GOTO 1"]))
    report = machine.run(40)
    assert report.outcome is Outcome.OUT_OF_STEPS
    assert report.steps == 40
    assert "look for a loop" in report.message
    (tmp_path / "self.md").write_text(new_process(['RUN "self.md"']).text)
    assert "nested deeper" in Machine(tmp_path / "self.md").run(100).message
    assert (
        "too large" in written(tmp_path, new_process(["SET x = x * x", "GOTO 1"], variables={"x": 9})).run(99).message
    )


def test_edits_while_a_step_is_carried_out_are_kept(tmp_path: Path) -> None:
    machine = written(tmp_path, new_process(["wait", "end"]))
    started, edited = threading.Event(), threading.Event()

    def do(text: str, variables: Any) -> str:
        if text == "wait":
            started.set()
            edited.wait(20)
        return text

    def edit() -> None:
        started.wait(20)
        machine.path.write_text(machine.path.read_text() + "\nA note of mine.\n")
        edited.set()

    person = threading.Thread(target=edit)
    person.start()
    report = Machine(machine.path, do=do).run()
    person.join()
    assert report.outcome is Outcome.DONE
    assert machine.path.read_text().endswith("\nA note of mine.\n")


def test_an_item_that_is_changed_while_it_is_carried_out_stops_the_process(tmp_path: Path) -> None:
    machine = written(tmp_path, new_process(["wait", "end"]))

    def do(text: str, variables: Any) -> str:
        machine.path.write_text(machine.path.read_text().replace("] wait", "] something else"))
        return text

    with pytest.raises(InvalidInput, match="was changed while"):
        Machine(machine.path, do=do).run()
    assert "something else" in machine.path.read_text()


def test_two_threads_do_each_item_once(tmp_path: Path) -> None:
    machine = written(tmp_path, new_process([f"item {number}" for number in range(20)]))
    done: list[str] = []
    workers = [
        threading.Thread(target=Machine(machine.path, do=lambda text, _: done.append(text)).run) for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert done == [f"item {number}" for number in range(20)]


def test_files_that_are_none_are_refused_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "task_process.md"
    with pytest.raises(NotFound):
        Machine(path).run()
    path.write_bytes(b"# Task Process\n\n## TODO\n- [ ] \xff\xfe\n")
    with pytest.raises(InvalidInput, match="line 4: the file is not UTF-8"):
        Machine(path).run()
    path.write_text("# Task Process\n\n## State\n- Pointer: 7\n\n## TODO\n- [ ] one\n")
    with pytest.raises(InvalidInput, match="line 4: the pointer is 7, and there is 1 item"):
        Machine(path).run()
    path.write_text("# Task Process\n\n## State\n- Pointer: three\n")
    with pytest.raises(InvalidInput, match="line 4"):
        Machine(path).run()
    path.unlink()
    path.mkdir()
    with pytest.raises(InvalidInput, match="folder"):
        Machine(path).run()
    path.rmdir()
    path.symlink_to(tmp_path / "elsewhere.md")
    (tmp_path / "elsewhere.md").write_text(new_process(["CONTINUE"]).text)
    with pytest.raises(InvalidInput, match="link"):
        Machine(path).run()

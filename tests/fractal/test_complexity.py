"""The rule for dividing a task. Requirement 103; trap: "and" inside "random", and nearly zero for Chinese."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.errors import InvalidInput
from loom.fractal import estimate_task_complexity, should_use_fractal
from loom.protocol import Task
from loom.settings import FractalConfig, GrowthTrigger

SIMPLE = ("What time is it?", "Translate this sentence.", "现在几点了？", "翻译这句话。")
COMPLEX = (
    "First back up the database, then run the migration and update the docs; next tell the customers, and finally "
    "deploy to production as well as check the logs and the metrics.",
    "首先备份数据库，然后运行迁移，接着更新文档，同时通知客户，最后部署到生产环境并检查日志以及监控指标。",
    "请完成以下步骤：一、收集销售数据和库存数据；二、清洗并合并；三、生成图表以及报告，然后发送给各部门，同时归档。",
)


@pytest.mark.parametrize("task", SIMPLE)
def test_a_simple_task_is_simple(task: str) -> None:
    assert estimate_task_complexity(task) < 0.1
    assert not should_use_fractal(task)


@pytest.mark.parametrize("task", COMPLEX)
def test_a_task_of_many_steps_is_complex_in_both_languages(task: str) -> None:
    assert estimate_task_complexity(task) >= 0.7
    assert should_use_fractal(task)


@pytest.mark.parametrize(
    "task",
    [
        "Back up the wiki, migrate it to the new host, update the links, tell the editors, close the old one.",
        "Weigh the parcels, print labels, call the courier.",
        "Could you scan the letters, sort them by sender and dust the shelf?",
        "We need the hall painted, the stage lights repaired and the piano tuned.",
        "备份知识库，迁移到新主机，更新链接，通知编辑，关掉旧站，再写一份说明。",
        "把箱子搬到三楼，给供应商回复邮件，下午取快递。",
    ],
)
def test_three_pieces_of_work_in_one_sentence_are_divided(task: str) -> None:
    assert should_use_fractal(task)


@pytest.mark.parametrize(
    "task",
    [
        "Buy rice, lentils, onions, garlic, ginger and coriander.",
        "We painted the hall, repaired the lights, tuned the piano and went home. Who had the key?",
        "Which of Anna, Bert, Cleo and Dirk wrote the report and signed the letter?",
        "买大米、扁豆、洋葱、大蒜、生姜和香菜。",
        "昨天我们刷了墙，修了灯，调了钢琴，然后回家了。钥匙在谁那里？",
    ],
)
def test_a_list_of_things_and_the_story_around_a_question_are_not_divided(task: str) -> None:
    assert not should_use_fractal(task)


@pytest.mark.parametrize(
    ("task", "plain"),
    [
        ("Paint a random sandwich stand in Portland", "Paint a purple omelette truck in Bristol"),
        ("Explain the authentication of the Athens theatre", "Explain the verification of the Bristol cinema"),
        ("Restart the plush surplus firstborn nextcloud", "Restart the cosy cosmic someone somewhere"),
        ("参与和平谈判的共和国", "出席停火会议的代表团"),
        ("并发请求的总和并非饱和", "大量请求的数目已经很多"),
        ("及时普及同时代的合并技术", "很快推广当代人的压缩技术"),
    ],
)
def test_no_word_counts_for_being_inside_another(task: str, plain: str) -> None:
    assert estimate_task_complexity(task) == pytest.approx(estimate_task_complexity(plain), abs=0.02)


@pytest.mark.parametrize(
    ("joined", "apart"),
    [
        ("read the book and write a review", "read the book or write a review"),
        ("分析销售数据和库存数据", "分析销售数据中库存数据"),
        ("下载文件并解压", "下载文件来解压"),
        ("检查接口以及文档", "检查接口里的文档"),
    ],
)
def test_what_joins_two_demands_counts(joined: str, apart: str) -> None:
    assert estimate_task_complexity(joined) >= estimate_task_complexity(apart) + 0.09


@pytest.mark.parametrize(
    "task", ["1. read\n2. parse\n3. write", "- read\n- parse\n- write", "一、读取；二、解析；三、写入"]
)
def test_a_numbered_list_is_a_row_of_steps(task: str) -> None:
    assert estimate_task_complexity(task) >= 0.3
    assert estimate_task_complexity("version 1.2 of 3.4 costs 5.60") < 0.1


def test_a_task_is_judged_by_what_it_asks_for() -> None:
    text = COMPLEX[0]
    assert estimate_task_complexity(Task(action="execute", parameters={"content": text, "retries": 3})) == (
        estimate_task_complexity(text)
    )
    assert estimate_task_complexity(Task(action="ping")) < 0.1


@given(st.text(max_size=300))
def test_an_estimate_lies_between_0_and_1_whatever_the_text(text: str) -> None:
    assert 0.0 <= estimate_task_complexity(text) <= 1.0
    assert estimate_task_complexity(text + "，然后再检查一遍。") >= estimate_task_complexity(text) - 1e-9


@pytest.mark.parametrize(
    ("trigger", "simple", "complicated", "requested"),
    [
        (GrowthTrigger.NEVER, False, False, False),
        (GrowthTrigger.ALWAYS, True, True, True),
        (GrowthTrigger.MANUAL, False, False, True),
        (GrowthTrigger.COMPLEXITY, False, True, False),
    ],
)
def test_the_trigger_decides(trigger: GrowthTrigger, simple: bool, complicated: bool, requested: bool) -> None:
    config = FractalConfig(growth_trigger=trigger)
    assert should_use_fractal(SIMPLE[0], config) is simple
    assert should_use_fractal(COMPLEX[0], config) is complicated
    assert should_use_fractal(SIMPLE[0], config, requested=True) is requested


def test_the_threshold_is_the_callers() -> None:
    assert should_use_fractal(SIMPLE[0], FractalConfig(complexity_threshold=0.01))
    assert not should_use_fractal(COMPLEX[0], FractalConfig(complexity_threshold=1.0))


def test_what_is_no_task_is_refused() -> None:
    nothing: Any = None
    with pytest.raises(InvalidInput):
        estimate_task_complexity(nothing)

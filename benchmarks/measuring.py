"""The common parts of the benchmarks: texts of our own, sides that are measured in turn, and reports.

Every figure is a ratio between sides that ran in the same process and took turns, chunk by chunk, so that other work
on the machine slows all of them alike. The ratio that counts is the median over the chunks. CPU time is of the
calling thread unless stated otherwise.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = ["Side", "best_by_query", "messages", "percentile", "print_table", "questions", "ratio", "take_turns"]

_SEED = 20_240_607


def _words(text: str) -> list[str]:
    return text.split()


_NAMES = _words(
    "Ana Ben Chen Dara Emil Farah Goran Hana Ines Jun Kofi Lena Mika Nour Omar Petra Quinn Rosa Sven Tomas"
)
_OPENINGS = (
    "We decided that",
    "Please remember that",
    "I think",
    "It turned out that",
    "Yesterday we saw that",
    "The customer says",
    "For the next release",
    "As far as I know",
    "In the meeting",
    "After the update",
)
_NOUNS = _words(
    "server cache token session index budget invoice garden kitchen train ticket battery engine camera window "
    "report contract museum river bridge harbour forest recipe violin keyboard monitor printer router sensor "
    "database queue worker parser compiler library package release branch deployment cluster gateway firewall "
    "password certificate calendar holiday dentist airport passport umbrella bicycle mountain valley island "
    "picture letter novel lecture exam school teacher doctor nurse hospital pharmacy insurance account salary "
    "meeting agenda project deadline customer supplier warehouse shipment container factory machine robot "
    "temperature pressure humidity voltage frequency signal channel message protocol schema migration backup "
    "snapshot segment vector sentence paragraph summary translation dictionary grammar accent melody rhythm"
)
_VERBS = _words(
    "moved changed failed started stopped returned broke improved replaced restored measured repaired delivered "
    "cancelled booked painted translated compiled deployed reviewed approved rejected postponed signed opened "
    "closed renamed merged split counted checked cleaned charged printed recorded shipped tested taught learned"
)
_QUALITIES = _words(
    "old new small large quiet noisy slow quick green blue red yellow heavy light warm cold early late cheap "
    "expensive broken stable public private local remote northern southern wooden digital strange familiar"
)
_SYLLABLES = _words(
    "ba do ka li mo nu pe ra si ta ve zo fen gor hal jin lum mar nel pol quin ros tam vel wex yor zan"
)
_LINKS = ("because", "although", "and", "while", "so that", "but", "before", "after", "unless", "which means")
_PLACES = _words(
    "Berlin Lisbon Nairobi Kyoto Lima Oslo Toronto Hanoi Porto Krakow Dakar Tallinn Turin Quito Riga Malmo"
)

_ZH_PEOPLE = _words("小王 小李 老张 陈工 林老师 赵医生 周经理 吴同学 郑师傅 孙阿姨 妈妈 爸爸 客户 同事 邻居 房东")
_ZH_THINGS = _words(
    "服务器 缓存 令牌 会话 索引 预算 发票 花园 厨房 火车票 电池 发动机 相机 窗户 报告 合同 博物馆 河流 桥梁 港口 "
    "森林 菜谱 小提琴 键盘 显示器 打印机 路由器 传感器 数据库 队列 解析器 编译器 图书馆 软件包 版本 分支 集群 网关 "
    "防火墙 密码 证书 日历 假期 牙医 机场 护照 雨伞 自行车 山谷 岛屿 照片 信件 小说 讲座 考试 学校 医院 药店 保险 "
    "账户 工资 会议 议程 项目 截止日期 供应商 仓库 货物 集装箱 工厂 机器人 温度 压力 湿度 电压 频率 信号 频道 协议"
)
_ZH_ACTS = _words(
    "搬到 修改 启动 停止 归还 弄坏 改进 替换 恢复 测量 修理 送到 取消 预订 翻译 部署 审核 批准 拒绝 推迟 签署 打开 "
    "关闭 改名 合并 拆分 清点 检查 打扫 充电 打印 记录 寄出 测试 教会 学会"
)
_ZH_PLACES = _words("北京 上海 广州 成都 杭州 西安 武汉 南京 青岛 昆明 厦门 苏州 长沙 大连 三楼会议室 地下车库")
_ZH_SURNAMES = "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林高罗"
_ZH_GIVEN = "明华丽军伟芳娜静敏强磊洋艳勇杰涛超平刚桂英文博宇晨浩然欣怡梓涵雨婷志远思源子轩"
_ZH_LINKS = ("因为", "虽然", "而且", "所以", "但是", "之前", "之后", "也就是说")


def _clause(random: np.random.Generator) -> str:
    """One English clause; names, numbers and identifiers form the long tail that real talk has."""
    number = int(random.integers(1, 20_000))
    quality, noun, verb, other = (_pick(random, words) for words in (_QUALITIES, _NOUNS, _VERBS, _NOUNS))
    shape = int(random.integers(6))
    if shape == 0:
        return f"the {quality} {noun} was {verb} by {_pick(random, _NAMES)}"
    if shape == 1:
        return f"{_pick(random, _NAMES)} {verb} the {_coined(random)} {noun} in {_pick(random, _PLACES)}"
    if shape == 2:
        return f"{noun}_{other} {number} {verb} with a {quality} {_coined(random)}"
    if shape == 3:
        return f"ticket {number} about the {quality} {noun} was {verb}"
    if shape == 4:
        return f"{_coined(random).title()} from {_coined(random).title()} {verb} a {noun}"
    return f"the {noun} and the {other} cost {number} in {_pick(random, _PLACES)}"


def _coined(random: np.random.Generator) -> str:
    """A word of two to four syllables, of half a million, some common and most rare: names of all kinds."""
    rank = int(len(_SYLLABLES) ** (2 + 2 * random.random()))
    word = ""
    while rank:
        rank, syllable = divmod(rank, len(_SYLLABLES))
        word += _SYLLABLES[syllable]
    return word


def _chinese_clause(random: np.random.Generator) -> str:
    number = int(random.integers(1, 20_000))
    person, thing, act, other = (_pick(random, words) for words in (_ZH_PEOPLE, _ZH_THINGS, _ZH_ACTS, _ZH_THINGS))
    shape = int(random.integers(4))
    if shape == 0:
        return f"{person}把{thing}{act}了{_pick(random, _ZH_PLACES)}"
    if shape == 1:
        return f"{number}号{thing}已经{act}，和{other}放在一起"
    if shape == 2:
        return f"{_chinese_name(random)}把{thing}交给了{_chinese_name(random)}"
    return f"{person}说{thing}要在{_pick(random, _ZH_PLACES)}{act}"


def _chinese_name(random: np.random.Generator) -> str:
    return "".join(_pick(random, signs) for signs in (_ZH_SURNAMES, _ZH_GIVEN, _ZH_GIVEN))


def _pick(random: np.random.Generator, words: Sequence[str]) -> str:
    """The first words of a list are the most frequent, as in any language."""
    return words[int(len(words) * random.random() ** 1.5)]


def _message(random: np.random.Generator) -> str:
    wanted = int(random.integers(60, 380))
    if random.random() < 0.5:
        text = f"{_pick(random, _OPENINGS)} {_clause(random)}"
        while len(text) < wanted:
            text += f", {_pick(random, _LINKS)} {_clause(random)}"
        return text[:399] + "."
    text = _chinese_clause(random)
    while len(text) < wanted:
        text += f"，{_pick(random, _ZH_LINKS)}{_chinese_clause(random)}"
    return text[:399] + "。"


def messages(count: int, seed: int = _SEED) -> Iterator[str]:
    """Short messages, half English and half Chinese, of 60 to 400 characters; the same for the same seed."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield _message(random)


def long_turns(count: int, seed: int = _SEED + 2) -> Iterator[str]:
    """Turns of an assistant of about 500 to 2,000 tokens, half English and half Chinese; the same for the same seed.

    Each has headings, paragraphs, a list, a table and a code block, on the topics of the short messages.
    """
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield _long_turn(random)


# About as many characters make a token.
_LETTERS_PER_TOKEN = 3.45
_CHINESE_PER_TOKEN = 1.17


def _long_turn(random: np.random.Generator) -> str:
    is_chinese = random.random() < 0.5
    wanted = int(random.integers(500, 2_000)) * (_CHINESE_PER_TOKEN if is_chinese else _LETTERS_PER_TOKEN)
    parts: list[str] = []
    size = 0
    while size < wanted:
        part = _part(random, len(parts), is_chinese)
        parts.append(part)
        size += len(part) + 2
    return "\n\n".join(parts)


def _part(random: np.random.Generator, number: int, is_chinese: bool) -> str:
    """A block of a long turn; the kinds take turns, so that each turn has all of them."""
    say = _chinese_clause if is_chinese else _clause
    stop = "。" if is_chinese else "."
    kind = number % 6
    if kind == 0:
        return f"## {number // 6 + 1}. {_pick(random, _ZH_THINGS if is_chinese else _NOUNS)}"
    if kind == 2:
        return "\n".join(f"{at}. {say(random)}{stop}" for at in range(1, 5))
    if kind == 4:
        rows = "\n".join(f"| {say(random)} | {int(random.integers(1, 20_000))} |" for _ in range(3))
        return f"| {'事项' if is_chinese else 'item'} | {'编号' if is_chinese else 'number'} |\n|---|---|\n{rows}"
    if kind == 5:
        lines = (f"{_coined(random)}_{_pick(random, _NOUNS)} = {int(random.integers(1, 20_000))}" for _ in range(6))
        return "```python\n" + "\n".join(lines) + "\n```"
    between = "" if is_chinese else " "
    return between.join(f"{say(random)}{stop}" for _ in range(4))


def questions(count: int, seed: int = _SEED + 1) -> list[str]:
    """Questions in both languages about the topics of the messages."""
    random = np.random.default_rng(seed)
    asked: list[str] = []
    for _ in range(count):
        if random.random() < 0.5:
            names = _pick(random, _NAMES), _pick(random, _PLACES)
            nouns = _pick(random, _NOUNS), _pick(random, _NOUNS)
            asked.append(
                f"What did {names[0]} say about the {_coined(random)} {nouns[0]} and the {nouns[1]} in "
                f"{names[1]}, and was ticket {int(random.integers(1, 20_000))} {_pick(random, _VERBS)}?"
            )
        else:
            asked.append(
                f"{_chinese_name(random)}说的{int(random.integers(1, 20_000))}号{_pick(random, _ZH_THINGS)}"
                f"后来{_pick(random, _ZH_ACTS)}到{_pick(random, _ZH_PLACES)}了吗？"
            )
    return asked


# --- taking turns -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Side:
    """One side of a comparison: `run` does a chunk of `each` things; the times are per thing, in microseconds."""

    name: str
    run: Callable[[], object]
    each: int = 1
    clock: Callable[[], float] = time.thread_time
    cpu_us: list[float] = field(default_factory=list)
    wall_us: list[float] = field(default_factory=list)

    def measure(self) -> None:
        wall, cpu = time.perf_counter(), self.clock()
        self.run()
        cpu, wall = self.clock() - cpu, time.perf_counter() - wall
        self.cpu_us.append(cpu / self.each * 1e6)
        self.wall_us.append(wall / self.each * 1e6)

    def forget(self) -> None:
        """Drop the measurements so far: the first chunks fill caches."""
        self.cpu_us.clear()
        self.wall_us.clear()


def take_turns(sides: Sequence[Side], rounds: int, warm_up: int = 2) -> None:
    """Run the sides one after another, `rounds` times, with another one first each time."""
    order = itertools.cycle(range(len(sides)))
    for number in range(warm_up + rounds):
        if number == warm_up:
            for side in sides:
                side.forget()
        first = next(order)
        for side in (*sides[first:], *sides[:first]):
            side.measure()


def percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent))


def ratio(left: Side, *right: Side) -> float:
    """The median over the chunks of the ratio of the left side's CPU to that of the right ones together."""
    sums = [sum(values) for values in zip(*(side.cpu_us for side in right), strict=True)]
    return float(statistics.median(ours / bare for ours, bare in zip(left.cpu_us, sums, strict=True)))


def print_table(sides: Sequence[Side], what: str) -> None:
    width = max(len(side.name) for side in sides) + 2
    print(f"  {what:<{width}}{'CPU us p50':>12}{'p95':>9}{'best':>9}{'wall p50':>11}{'p95':>9}")
    for side in sides:
        cpu, wall = side.cpu_us, side.wall_us
        print(
            f"  {side.name:<{width}}{percentile(cpu, 50):>12.1f}{percentile(cpu, 95):>9.1f}{min(cpu):>9.1f}"
            f"{percentile(wall, 50):>11.1f}{percentile(wall, 95):>9.1f}"
        )


def best_by_query(runs: Sequence[Callable[[int], object]], queries: int, rounds: int = 3) -> list[list[float]]:
    """CPU milliseconds of the process for each run and query, the runs in turn, the best of the rounds.

    The best, because a query that another process interrupts says nothing about the query.
    """
    best = [[float("inf")] * queries for _ in runs]
    for number in range(min(20, queries)):
        for run in runs:
            run(number)
    for _ in range(rounds):
        for number in range(queries):
            for run, times in zip(runs, best, strict=True):
                started = time.process_time()
                run(number)
                times[number] = min(times[number], (time.process_time() - started) * 1e3)
    return best

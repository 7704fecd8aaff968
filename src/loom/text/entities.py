"""Names in a text: people, places, numbers and things, by rules for English and Chinese, without a model.

The names have two uses: they show which kind of question a text can answer (who, where, how many), and they connect
memories in the graph. The rules prefer to find too much: a wrong mark costs a small part of a score, and a wrong name
connects nothing. All other modules take the word lists of Chinese names from here. This module also defines the terms
under which names that a model has read are indexed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any

from loom.text.date_phrases import MONTH_NAMES, WEEKDAY_NAMES
from loom.text.numerals import NUMBER_WORDS
from loom.text.scripts import HAN
from loom.text.words import is_function_word, simplified, terms

__all__ = [
    "AMOUNT",
    "COMPOUND_SURNAMES",
    "ENTITIES_VERSION",
    "LONGEST_NAME",
    "MOST_NAMES",
    "NAMES",
    "NO_NAMES",
    "PLACES",
    "SOMEBODY",
    "SOMEWHERE",
    "SURNAMES",
    "TITLES",
    "UNNAMED_KINDS",
    "answer_marks",
    "entity_mark",
    "entity_marks",
    "entity_name",
    "name_nodes",
    "named",
    "names_in",
    "names_terms",
    "nodes_of_name",
    "only_asks",
]

ENTITIES_VERSION = 2

SOMEBODY = "\x1f@who"
SOMEWHERE = "\x1f@where"
AMOUNT = "\x1f@many"
"""The marks of texts that name a person, a place or a number: answers to "who", "where" and "how many"."""

_ENTITY = "\x1fe"
# The most characters of a text that are searched for names.
_MOST_CHARS = 2_000

MOST_NAMES = 16
LONGEST_NAME = 60
"""The most names of a text, and the most characters of a name, that are used."""

PLACES = """
北京 上海 天津 重庆 广州 深圳 杭州 南京 苏州 成都 武汉 西安 长沙 郑州 青岛 大连 厦门 宁波 无锡 济南 合肥 福州 昆明
贵阳 南昌 沈阳 哈尔滨 长春 石家庄 太原 兰州 海口 三亚 南宁 拉萨 乌鲁木齐 呼和浩特 银川 西宁 珠海 东莞 佛山 香港
澳门 台北 台湾 高雄 河北 山西 辽宁 吉林 黑龙江 江苏 浙江 安徽 福建 江西 山东 河南 湖北 湖南 广东 海南 四川 贵州
云南 陕西 甘肃 青海 内蒙古 广西 西藏 宁夏 新疆 中国 美国 英国 法国 德国 日本 韩国 印度 俄罗斯 加拿大 澳大利亚
新加坡 意大利 西班牙 巴西 泰国 越南 欧洲 亚洲 非洲 东京 大阪 京都 首尔 纽约 伦敦 巴黎 柏林 旧金山 洛杉矶 悉尼
"""
SURNAMES = (
    "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯于董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛叶阎余潘杜戴夏钟汪田任姜范方石姚谭廖邹熊"
    "金陆郝孔白崔康毛邱秦江史顾侯邵孟龙万段雷钱汤尹黎易常武乔贺赖龚文張劉陳楊趙黃吳孫馬羅鄭謝韓馮許葉閻鍾蘇盧蔣賈鄧"
)
COMPOUND_SURNAMES = "欧阳 司马 上官 诸葛 东方 皇甫 尉迟 公孙 慕容 令狐 歐陽 司馬 諸葛"
NO_NAMES = """
高性 高效 高级 高度 高可 高并 高低 高铁 高中 高速 高峰 高达 高于 方法 方案 方面 方向 方式 方便 时间 金额 金融 金属
黄色 黄金 马上 马路 白天 白色 白名 周期 周围 周边 周年 周一 周二 周三 周四 周五 周六 周日 周末 程序 程度 安全 常见
常用 常量 常规 常常 任务 任何 任意 任职 石油 江苏 江西 文件 文档 文本 文字 文章 文化 文献 易于 易用 武汉 武器 段落
钱包 汤圆 万一 万能 龙头 史上 孔子 毛病 毛衣 康复 范围 范例 田野 钟头 叶子 余额 余下 丁点 贾岛 苏州 许多 许可 曾经
于是 于此 唐朝 宋朝 宋体 韩国 谢谢 罗列 梁山 郑州 何时 何地 何种 何处 林业 胡说 胡同 徐州 黄山 张图 张表 张纸 王者
王国 李子 杨树 陈述 陈列 刘海 金价 金牌 雷达 雷雨 夏天 夏季 汪洋 方块 方差 石头 熊猫 姜汤 高兴 高温 高压 高校 高考
万元 万人 钱款 余数 文科 常识 常温 贺卡 白酒 白菜 马克 马拉 罗马 江边 孙子 孙女 程式 任期 顾客 顾问 顾虑 石墨 易读
康健 史料 龙虾 叶片 侯选
"""
"""Words that begin with a surname and are not names."""
TITLES = "总 工 老师 经理 医生 教授 主任 先生 女士 小姐 同学 师傅 博士 律师 哥 姐 叔 阿姨"

# --- which kind of answer ------------------------------------------------------------------------------------

# Surnames that are rarely other words, and the exceptions by their next character.
_SURE_SURNAMES = (
    "王李张刘陈杨赵吴徐孙胡朱郭罗梁宋郑谢韩唐冯董萧曹袁邓许傅沈曾彭吕苏卢蒋蔡贾魏薛阎"
    "潘杜戴汪姜姚谭廖邹郝崔邱秦顾侯邵孟尹黎乔贺赖龚張劉陳楊趙吳孫羅鄭謝韓馮許蘇盧蔣賈鄧"
)
_NO_PEOPLE = """
张开 张桌 张床 张椅 张卡 张票 张照 张地 张嘴 苏醒 苏打 谢了 杜绝 许久 许愿 孟子 秦朝 唐装 唐诗 宋代
韩式 韩剧 王子 贺年 罗汉 罗纹 朱红 胡子 胡萝 胡椒 胡乱 董事 顾得 顾不 彭湃 姜茶 姜片 乔迁 曾祖 曹操
梁柱 杨梅 杨柳 汪汪 潘多
"""


@cache
def _person() -> re.Pattern[str]:
    """Return the pattern of a Chinese name or its beginning. Compiled at first use, which takes 4 ms."""
    return re.compile(
        f"[小老阿][{SURNAMES}]|[{SURNAMES}](?:{'|'.join(TITLES.split())})"
        f"|(?=[{_SURE_SURNAMES}])(?!{'|'.join((NO_NAMES + _NO_PEOPLE).split())}).[{HAN}]"
    )


# In English, a capitalised word inside a sentence: after a lower-case letter or a comma.
_CAPITAL = re.compile("(?<=[a-z,;] )[A-Z][a-z]+")
_CAPITAL_PLACE = re.compile(" (?:in|at|from|near|around)(?: the)? ([A-Z][a-z]+)")
_NO_PLACES = frozenset(
    (
        *(name.capitalize() for name in (*MONTH_NAMES, *WEEKDAY_NAMES)), "Christmas", "Easter", "English", "French",
        "German", "Spanish", "Italian", "Chinese", "Japanese",
    )
)  # fmt: skip
_NUMBER = re.compile(
    "[0-9]|百分之|第[一二三四五六七八九十]"
    "|[零一二三四五六七八九十百千万亿两半几][十百千万亿个月日号年天周点次台条张位名人块元分秒小岁楼层期版章节页行列只本件份套种倍米斤公平毛角克升瓶杯碗盒箱包袋双对家间栋辆部首篇趟遍回顿级度]"
)
_PEOPLE = """
mom mum mother dad father parent sister brother sibling son daughter kid child wife husband partner girlfriend
boyfriend fiance aunt uncle cousin grandma grandpa grandmother grandfather grandparent niece nephew friend
colleague coworker neighbor neighbour roommate boss manager teacher coach mentor doctor nurse lawyer landlord
client intern designer engineer professor customer vendor contractor plumber electrician
爸 妈 哥 姐 弟 妹 叔 姑 舅 姨 婶 嫂 爷 奶 姥 外公 外婆 老公 老婆 媳妇 丈夫 妻子 儿子 女儿 孩子
侄子 侄女 岳父 岳母 公公 婆婆 亲戚 朋友 同学 同事 邻居 室友 房东 老板 领导 经理 主管 主任 组长 队长
老师 教练 医生 大夫 护士 律师 师傅 司机 保安 保姆 客户 实习 导师 学长 学姐 师兄 师姐 前辈 校长 院长
总监 店长 中介 店员 裁缝 木匠 电工 歌手 作家 画家 演员 导演 程师 计师 影师 持人 递员 务员
"""
_SPOTS = """
park beach school shop store restaurant museum city town village country state home house apartment office gym
hospital library cafe lake river mountain forest coast island street road church shelter studio theater theatre
stadium airport station hotel camp campground garden farm university college court zoo mall market bar pub club
kitchen garage basement attic room drawer shelf cupboard box folder directory server region north
south east west upstairs downstairs behind opposite
市 区 县 省 镇 村 路 街 巷 楼 店 馆 院 园 厅 站 厂 场 桥 湖 海 江 河 岛 寺 庙 塔 城 港 湾
国 乡 左 右 南 北 柜 箱 盒 学校 公司 机场 食堂 超市 宿舍 公室 仓库 阳台 厨房 卧室 书房 家里 老家
附近 旁边 对面 隔壁 门口 里面 外面 后面 前面 上面 下面 东边 西边 东侧 西侧 东门 西门 东面 西面 抽屉
架子 桌上 床上 床下 包里 口袋
"""
_NUMBER_WORDS = (
    " ".join(NUMBER_WORDS)
    + """
hundred thousand million dozen couple once twice half double triple several few both single pair
"""
)


@cache
def _vocabulary() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the terms of people, places and numbers. Stemmed at first use, which takes a few milliseconds."""
    people, spots, numbers = (
        frozenset(terms(word)[0] for word in listed.split())  # the first bigram of a long Chinese word
        for listed in (_PEOPLE, _SPOTS + PLACES, _NUMBER_WORDS)
    )
    return people, spots, numbers


def answer_marks(text: str, found: Collection[str]) -> list[str]:
    """Return the marks of the questions ("who", "where", "how many") that a text can answer."""
    people, spots, numbers = _vocabulary()
    text = text[:_MOST_CHARS]
    capitals = [word for word in _CAPITAL.findall(text) if word not in _NO_PLACES]
    marks: list[str] = []
    if capitals or (not text.isascii() and _person().search(text)) or not people.isdisjoint(found):
        marks.append(SOMEBODY)
    if (capitals and not _NO_PLACES.issuperset(_CAPITAL_PLACE.findall(text))) or not spots.isdisjoint(found):
        marks.append(SOMEWHERE)
    if _NUMBER.search(text) or not numbers.isdisjoint(found):
        marks.append(AMOUNT)
    return marks


_SENTENCE = re.compile("[^.!?。！？…\n]+[.!?。！？…\n]*")
# A greeting before a question does not count as a statement.
_TOLD = 0.3


def only_asks(text: str) -> bool:
    """Whether a text that ends in a question states almost nothing else."""
    asked = sum(len(sentence) for sentence in _SENTENCE.findall(text) if sentence.rstrip()[-1:] in "?？")
    return asked >= (1.0 - _TOLD) * len(text)


# --- names ---------------------------------------------------------------------------------------------------

_LATIN_NAME = re.compile(
    r"[A-Z][\w'&-]*(?:(?: (?:of|the|de|la|van|von))? [A-Z0-9][\w'&-]*)+"  # Bank of England, Python 3
)
_QUOTED = re.compile('"([^"\n]{2,60})"|“([^”\n]{2,60})”|「([^」\n]{2,60})」|『([^』\n]{2,60})』|《([^》\n]{2,60})》')
_TITLED = re.compile(f"[{SURNAMES}](?:{'|'.join(title for title in TITLES.split() if len(title) > 1)})")
_SINGLE = re.compile(r"(?<![\w.])(?:[A-Z][\w'-]*[a-z0-9]|[A-Z]{2,}|[A-Za-z]+[_.0-9][\w.-]*\w)(?!\w)")


def entity_mark(name: str) -> str:
    """Return the mark of a name, independent of case, spacing and width."""
    return _ENTITY + " ".join(simplified(name[:LONGEST_NAME]).casefold().split())


def entity_name(mark: str) -> str | None:
    """Return the name in a mark; None for any other term."""
    return mark[len(_ENTITY) :] if mark.startswith(_ENTITY) else None


def entity_marks(text: str, metadata: Mapping[str, Any]) -> list[str]:
    """Return the marks of a record's names of several words, each once. Names of one word already are terms.

    Names from another source, such as a model, are passed as `entities` in the metadata.
    """
    found = dict.fromkeys(map(entity_mark, islice(_long_names(text[:_MOST_CHARS]), MOST_NAMES)))
    given = metadata.get("entities")
    if isinstance(given, list):
        named = (name for name in given[:MOST_NAMES] if isinstance(name, str) and name.strip())
        found.update(dict.fromkeys(map(entity_mark, named)))
    return list(found)


def _long_names(text: str) -> Iterator[str]:
    for match in _LATIN_NAME.finditer(text):
        words = match.group().split(" ")
        while words and (is_function_word(words[0]) or words[0] == "I"):  # "The Blue Lantern", "In New York"
            words = words[1:]
        if len(words) > 1:
            yield " ".join(words)
    for match in _QUOTED.finditer(text):
        yield next(group for group in match.groups() if group is not None)
    if not text.isascii():
        yield from _TITLED.findall(text)


def name_nodes(text: str, metadata: Mapping[str, Any]) -> list[str]:
    """Return the terms and marks of all names in a text, which connect it to other texts with the same names."""
    found = dict.fromkeys(entity_marks(text, metadata))
    text = text[:_MOST_CHARS]
    for word in islice(_SINGLE.findall(text), MOST_NAMES):
        if not is_function_word(word):
            found.update(dict.fromkeys(terms(word)[:1]))
    if not text.isascii():
        plain = simplified(text)
        found.update(dict.fromkeys(name for name in islice(_person().findall(plain), MOST_NAMES) if len(name) == 2))
    return list(found)


# --- names that a model read -----------------------------------------------------------------------------------

NAMES = "names"
"""The kind of a record with the names that a model has read in another record."""

UNNAMED_KINDS = frozenset({"fact", "summary", NAMES})
"""The kinds of derived records, in which no model reads names."""

_NAMED = "\x1fm"


def named(node: str = "") -> str:
    """Return the term under which a record of names indexes a term or mark. A search for words never matches it.

    Without a node, return the mark that all records of names have.
    """
    return _NAMED + node


def names_in(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the names in a record of names, each with the words of the source text that refer to it."""
    given = metadata.get(NAMES)
    if not isinstance(given, Mapping):
        return {}
    pairs = islice(given.items(), MOST_NAMES)
    return {name[:LONGEST_NAME]: said for name, said in pairs if name.strip() and isinstance(said, str)}


def names_terms(metadata: Mapping[str, Any]) -> list[str]:
    """Return the terms of a record of names: a mark for each name, and its words if the source text has others."""
    found = [named()]
    for name, said in names_in(metadata).items():
        found.append(named(entity_mark(name)))
        if name.casefold() != said.casefold():
            found += map(named, terms(name))
    return found


def nodes_of_name(name: str) -> list[str]:
    """Return the terms and marks that connect texts with this name."""
    found = dict.fromkeys(name_nodes(name, {"entities": [name]}))
    if len(name) == 2 or (name.isascii() and " " not in name):  # a name of one word is a term, capitalised or not
        found.update(dict.fromkeys(terms(name)[:1]))
    return list(found)

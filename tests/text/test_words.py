"""The analyser finds the words that a person would search, in both languages, in bounded time and memory."""

from __future__ import annotations

import base64
import math
import random
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.text import words
from loom.text.words import MAX_TERM_CHARS, query_terms, terms

# Forty memories and what one may ask about each: simplified, some traditional, some with identifiers.
MEMORIES_AND_QUESTIONS = [
    ("我的猫叫咪咪，是一只橘猫，今年三岁了。", "我家那只猫叫什么名字？"),
    ("上周三我们开会决定数据库采用WAL模式，因为写入不会阻塞读取。", "数据库最后选了哪种模式？"),
    ("小王下个月要调到深圳分公司工作。", "谁要去深圳？"),
    ("妈妈对花生过敏，做菜的时候千万不能放。", "妈妈吃什么会过敏？"),
    ("项目的截止日期是2024-05-01，不能再延期。", "项目什么时候截止？"),
    ("登录服务使用OAuth2的授权码流程。", "登录用的是哪个OAuth流程？"),
    ("服务器的IP地址是10.0.0.12，端口8080。", "服务器的端口是多少？"),
    ("我在memory_manager.py里修复了一个内存泄漏的问题。", "MemoryManager 里修了什么问题？"),
    ("爷爷年轻的时候在铁路局当过二十年的火车司机。", "爷爷以前做什么工作？"),
    ("周末我打算去西湖边骑自行车。", "周末打算去哪里骑车？"),
    ("她最喜欢的作家是村上春树，《挪威的森林》读过三遍。", "她喜欢哪个作家？"),
    ("我們決定把會議改到星期五下午三點。", "会议改到什么时候了？"),
    ("張先生的電話號碼已經更新到通訊錄裡。", "张先生的电话号码在哪里？"),
    ("這家餐廳的牛肉麵非常好吃，值得再去。", "哪家店的牛肉面好吃？"),
    ("客戶要求報價單在月底之前發出。", "客户的报价单要在什么时候发出？"),
    ("部署脚本放在 scripts/deploy.sh，需要先设置 API_KEY。", "部署之前要设置什么？"),
    ("我对青霉素过敏，上次打针起了疹子。", "我对什么药过敏？"),
    ("儿子的幼儿园老师姓林，非常有耐心。", "儿子的老师姓什么？"),
    ("去年国庆节我们全家去了云南大理旅行。", "去年國慶去哪裡旅行了？"),
    ("公司的报销流程要先找财务李姐签字。", "报销要找谁签字？"),
    ("这台笔记本电脑的内存是32GB，硬盘1TB。", "笔记本的内存有多大？"),
    ("我每天早上六点半起床跑步五公里。", "我每天跑步跑多远？"),
    ("新来的实习生叫陈晓，负责测试自动化。", "測試自動化由誰負責？"),
    ("前端框架我们选了Vue 3，没有用React。", "前端用的是什么框架？"),
    ("女朋友的生日是十一月十五日，想要一条项链。", "女朋友的生日是哪天？"),
    ("银行卡密码不要写在笔记里。", "密码可以写在笔记里吗？"),
    ("医生建议我少喝咖啡，多喝温水，胃不好。", "医生给了我什么建议？"),
    ("租的房子合同到明年三月到期，房租四千五。", "房租是多少钱？"),
    ("用户反馈搜索结果太慢，平均要等两秒钟。", "用户反馈了什么问题？"),
    ("日志文件保存在 /var/log/loom/app.log，保留七天。", "app.log 保留几天？"),
    ("我大学学的是机械工程，后来自学编程转行。", "我在大学学的是什么专业？"),
    ("那只狗是从流浪动物救助站领养回来的。", "狗是从哪里领养的？"),
    ("张伟和李娜下个月在杭州举行婚礼。", "婚礼在哪个城市举行？"),
    ("汽车保养约在本周六上午，店在解放路。", "什么时候去保养汽车？"),
    ("缓存的过期时间设为15分钟，见 cache.ttl_seconds。", "缓存多久过期？"),
    ("我正在学弹吉他，老师每周二晚上来。", "吉他课是星期几？"),
    ("产品经理认为首页的注册按钮颜色太浅。", "注册按钮有什么问题？"),
    ("昨晚停电，冰箱里的冰淇淋全化了。", "冰淇淋为什么化了？"),
    ("蓝牙耳机落在了出租车上，已经联系司机。", "我的耳机丢在哪了？"),
    ("合同编号是HT-2024-0093，由法务部保管。", "HT-2024-0093 由谁保管？"),
]


def ranked(query: str, texts: list[str], *, k1: float = 1.2, b: float = 0.75) -> list[int]:
    """The texts that match, best first, by plain BM25."""
    counts = [Counter(terms(text)) for text in texts]
    average = sum(count.total() for count in counts) / len(counts)
    scores: dict[int, float] = {}
    for term, weight in query_terms(query).items():
        holders = [place for place, count in enumerate(counts) if term in count]
        rarity = math.log(1 + (len(texts) - len(holders) + 0.5) / (len(holders) + 0.5))
        for place in holders:
            frequency = counts[place][term]
            length = 1 - b + b * counts[place].total() / average
            gain = weight * rarity * frequency * (k1 + 1) / (frequency + k1 * length)
            scores[place] = scores.get(place, 0.0) + gain
    return sorted(scores, key=lambda place: (-scores[place], place))


def finds(query: str, text: str) -> bool:
    return not set(query_terms(query)).isdisjoint(terms(text))


def test_chinese_questions_find_their_memory_among_the_first_five() -> None:
    texts = [text for text, _ in MEMORIES_AND_QUESTIONS]
    found = [place in ranked(question, texts)[:5] for place, (_, question) in enumerate(MEMORIES_AND_QUESTIONS)]
    assert sum(found) / len(found) > 0.95


@pytest.mark.parametrize(
    ("question", "memory"),
    [
        ("猫", "我的猫叫咪咪"),
        ("貓", "我的猫叫咪咪"),
        ("猫", "我的貓叫咪咪"),
        ("他们何时结婚", "张伟和李娜下个月在杭州举行婚礼。"),
        ("我", "这是我的"),
        ("ＡＰＩ＿ＫＥＹ", "the API_KEY is set"),
        ("Ｐｙｔｈｏｎ", "写 Python 代码"),
        ("C++", "我用C++语言写程序"),
        ("データベース", "新しいデータベースを選ぶ"),
        ("데이터", "데이터베이스를 선택했다"),
        ("ฐานข้อมูล", "เราเลือกฐานข้อมูลใหม่"),
        ("हिन्दी", "वह हिन्दी बोलती है"),
        ("cafe", "We met at the Café."),
        ("CAFÉ", "the cafe\u0301 is closed"),
        ("🎉", "生日快乐🎉🎉"),
        ("memory", "mem\u00adory mana\u200bger"),
    ],
)
def test_scripts_and_widths_are_folded_alike(question: str, memory: str) -> None:
    assert finds(question, memory)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("memory_manager", "Memory_Manager"),
        ("memory_manager", "MemoryManager"),
        ("memory_manager", "memory-manager"),
        ("getUserName", "get_user_name"),
        ("API_KEY", "apiKey"),
        ("e-mail", "email"),
        ("gpt-4", "GPT4"),
        ("1,000,000", "1000000"),
        ("Ana's", "Ana"),
        ("Ana’s", "ana"),
        ("don’t", "don't"),
        ("U.S.A.", "USA"),
        ("IDs", "id"),
        ("550e8400-e29b-41d4-a716-446655440000", "550E8400E29B41D4A716446655440000"),
    ],
)
def test_two_spellings_of_one_name_share_their_whole_form(one: str, other: str) -> None:
    assert terms(one)[0] == terms(other)[0]


@pytest.mark.parametrize(
    ("text", "whole", "parts"),
    [
        ("memory_manager", "memory_manager", ["memory", "manager"]),
        ("loom.memory.core", "Loom.Memory.Core", ["loom", "memory", "core"]),
        ("src/loom/core.py", "src/loom/core.py", ["core.py", "loom", "core", "py"]),
        ("API_KEY", "api_key", ["api", "key"]),
        ("HTTPServer2", "httpserver2", ["http", "server", "2", "HTTPServer"]),
        ("OAuth2", "oauth2", ["OAuth", "2"]),
        ("getUserName", "getusername", ["get", "user", "name"]),
        ("well-known", "well-known", ["well", "known"]),
        ("__init__.py", "__init__.py", ["init", "py"]),
        ("3.14", "3.14", ["3", "14"]),
        ("v1.2.3", "V1.2.3", ["1.2.3", "2"]),
        ("2024-05-01", "2024-05-01", ["2024", "05", "01"]),
        ("12:30", "12:30", ["12", "30"]),
        ("10km", "10KM", ["10", "km"]),
        ("ana.lee@example.com", "Ana.Lee@example.com", ["ana", "lee", "example.com", "example"]),
        ("https://docs.example.org/a/guide?page=7", "docs.example.org/a/guide", ["guide", "page", "7"]),
        ("C++", "c++", ["c"]),
        ("C#", "c#", ["c"]),
        (".NET", ".net", ["net"]),
        ("see `.env`", ".env", ["env"]),
        ("O'Brien", "obrien", ["brien"]),
        ("3eb6f2c0a1b2c3d4e5f60718293a4b5c6d7e8f90", "3EB6F2C0A1B2C3D4E5F60718293A4B5C6D7E8F90", ["3eb6f2c"]),
        ("550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000", ["550e8400"]),
    ],
)
def test_a_compound_is_found_whole_and_in_parts(text: str, whole: str, parts: list[str]) -> None:
    held = set(terms(f"Look at {text}, please."))
    assert set(query_terms(whole)) <= held
    for part in parts:
        assert set(query_terms(part)) <= held, part


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("12", "13"),
        ("1-2", "12"),
        ("3.14", "314"),
        ("1.2.3", "1.23"),
        ("2024-05-01", "20240501"),
        ("C++", "C#"),
        ("rack12", "rack13"),
    ],
)
def test_what_differs_in_a_number_or_sign_stays_different(one: str, other: str) -> None:
    assert terms(one)[0] not in terms(other)


@pytest.mark.parametrize(
    ("question", "memory"),
    [
        ("Where did Ana go?", "I went to Lisbon"),
        ("What did they buy?", "We bought a lamp"),
        ("painted sunrises", "she is painting a sunrise"),
        ("child", "the children's books"),
        ("authorize", "authorization"),
        ("cities", "that city"),
        ("choosing", "we chose it"),
        ("adding", "we add it"),
        ("studies", "she studied"),
        ("Where does she live?", "she lives there"),
    ],
)
def test_english_word_forms_meet(question: str, memory: str) -> None:
    assert finds(question, memory)


@pytest.mark.parametrize(
    ("word", "stem"),
    [
        ("consignment", "consign"),
        ("knightly", "knight"),
        ("generously", "generous"),
        ("hopping", "hop"),
        ("hoping", "hope"),
        ("relational", "relat"),
        ("radically", "radic"),
        ("happiness", "happi"),
        ("dying", "die"),
        ("news", "news"),
        ("universities", "universiti"),
        ("universal", "universal"),
        ("agreed", "agre"),
        ("feed", "feed"),
        ("bliss", "bliss"),
        ("gas", "gas"),
        ("kiwis", "kiwi"),
        ("sky", "sky"),
        ("boyish", "boyish"),
        ("apologist", "apolog"),
    ],
)
def test_stems_follow_the_published_rules(word: str, stem: str) -> None:
    assert terms(word) == [stem]


def test_question_and_function_words_are_dropped_from_questions() -> None:
    assert set(query_terms("Which OAuth flow did we choose?")) == {*terms("OAuth"), *terms("flow choose")}
    assert set(query_terms("What's the plan? Didn't you know?")) == set(terms("plan know"))
    weights = query_terms("我们选择了什么模式")
    assert {"选择", "模式"} <= {term for term, weight in weights.items() if weight == 1.0}
    assert "什么" not in weights
    assert "了什" not in weights
    assert weights["择了"] < 0.5


def test_words_that_hold_a_function_character_keep_their_weight() -> None:
    for word in ("目的", "的确", "了解", "其他", "酒吧", "几何", "请假"):
        assert query_terms(f"这次{word}如何")[word] == 1.0


@pytest.mark.parametrize("question", ["what is this", "是什么", "吗", "To be or not to be", "的", "Who?", "谁"])
def test_a_question_of_function_words_alone_keeps_them(question: str) -> None:
    assert set(query_terms(question)) == set(terms(question)) != set()


def test_capitals_tell_a_name_from_a_function_word() -> None:
    assert "it" in query_terms("Who leads the IT team?")
    assert "it" not in query_terms("Who leads it?")
    assert query_terms("WHO LEADS IT?") == query_terms("who leads it?")


def test_an_exact_name_outweighs_its_parts() -> None:
    texts = ["the memory manager of the shop", "memory_manager is ready", "manager", "memory"]
    assert ranked("memory_manager", texts)[0] == 1
    assert set(ranked("memory_manager", texts)) == {0, 1, 2, 3}


def test_repetition_is_kept_on_the_index_side() -> None:
    assert terms("tea and tea") == ["tea", "and", "tea"]
    assert Counter(terms("猫猫，猫"))["猫"] == 3


@pytest.mark.parametrize("separator", ["\0", "\x01", "\x1f", "\x7f", "\n", "\t", "，", "\u3000", "\u2028"])
def test_control_characters_and_punctuation_separate(separator: str) -> None:
    assert terms(f"alpha{separator}beta") == ["alpha", "beta"]


def test_a_long_compound_keeps_its_parts_and_is_found_whole() -> None:
    path = "/".join(["harbour", "lights"] * 6)
    held = terms(path)
    assert set(terms("harbour lights")) < set(held)
    assert all(len(term) <= MAX_TERM_CHARS for term in held)
    assert held[0] != terms(path + "x")[0]


def test_a_long_word_is_one_term_found_by_its_exact_value() -> None:
    word = "x" * 65
    assert terms(word) == terms(word.upper())
    assert len(terms(word)) == 1
    assert terms(word) != terms(word + "x")
    assert terms("x" * 64) == ["x" * 64]


@pytest.mark.parametrize(
    "encode",
    [
        lambda data: base64.b64encode(data).decode(),
        lambda data: base64.urlsafe_b64encode(data).decode(),
        lambda data: base64.encodebytes(data).decode(),
        lambda data: data.hex(),
    ],
    ids=["base64", "urlsafe", "lines", "hex"],
)
def test_encoded_data_leaves_few_terms_and_is_found_by_its_value(encode: object) -> None:
    assert callable(encode)
    blob = encode(random.Random(7).randbytes(300_000))
    held = terms(f"the picture of the harbour: {blob} end")
    assert len(held) < 30
    assert set(query_terms(blob)) & set(held)
    assert finds("harbour", f"the picture of the harbour: {blob}")
    other = encode(random.Random(8).randbytes(300_000))
    assert not set(query_terms(other)) & set(held)


def test_a_long_path_of_words_is_not_mistaken_for_encoded_data() -> None:
    path = "/".join(["projects", "harbour-lights", "quarterly_report", "final-version"] * 6)
    assert {*terms("harbour"), *terms("quarterly"), "version"} <= set(terms(f"see {path}"))


ADVERSARIAL = {
    "one word": "a" * 200_000,
    "dots": "a.b." * 50_000,
    "apostrophes": "s'" * 100_000,
    "underscores": "_" * 200_000,
    "signs": "-" * 200_000,
    "segments": "a-b/" * 50_000,
    "colons": "1:" * 100_000,
    "thousands": "1,000" * 40_000,
    "camel": "aB" * 100_000,
    "plus": "c++" * 60_000,
    "marks": "a" + "\u0301\u0323" * 100_000,
    "accents": "é" * 100_000,
    "full width": "Ａ，" * 60_000,
    "lines": ("a" * 12 + "\n") * 3_200,
    "han": "猫" * 100_000,
    "NUL": "\0" * 200_000,
    "leading dots": " .x" * 60_000,
}


@pytest.mark.timeout(30)  # a fraction of a second is usual; work that grew with the square would take minutes
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_a_large_odd_text_is_analysed_in_bounded_time(name: str) -> None:
    text = ADVERSARIAL[name]
    held = set(terms(text))
    assert set(query_terms(text)) <= held
    assert all(len(term) <= MAX_TERM_CHARS for term in held)


def test_the_cache_is_bounded_and_never_changes_a_term() -> None:
    numbers = [f"word{number}x" for number in range(words.CACHE_TOKENS + 100)]
    first = terms(" ".join(numbers))
    assert len(words.TOKEN_TERMS) <= words.CACHE_TOKENS
    words.TOKEN_TERMS.clear()
    assert terms(" ".join(numbers)) == first


def test_every_folded_character_is_a_traditional_one_with_one_simplified_form() -> None:
    pairs = words.CHARACTER_PAIRS
    traditional, simplified = pairs[::2], pairs[1::2]
    assert len(traditional) == len(simplified) == len(set(traditional))
    assert set(traditional).isdisjoint(simplified)
    # GB 2312 is the simplified set: it has the right side, and of the left side only a few that it keeps for
    # another use.
    assert all(character.encode("gb2312") for character in simplified if character != "啰")
    assert {character for character in traditional if _in_gb2312(character)} == set("後著徵於矽夥")


def _in_gb2312(character: str) -> bool:
    try:
        character.encode("gb2312")
    except UnicodeEncodeError:
        return False
    return True


PINNED_TERMS = (
    "ana team choos memorymanag memori manag v1.2.3 1.2.3 v1 1 2 3 src/loom/core.py "
    "src loom core.py core py on 2024-05-01 2024 05 01 我们 们的 的猫 猫叫 叫咪 咪咪 我 们 的 猫 叫 咪 "
    "咪 httpserver2 http server 2 httpserver cost 1000.50 1000 50 dont email e mail "
    "ana@example.com ana example.com exampl com api cafe env .env "
)
PINNED_QUERY = {"memorymanag": 1.0, "memori": 0.5, "manag": 0.5, "的猫": 0.1, "猫叫": 1.0, "猫": 0.5, "叫": 0.5}


def test_the_terms_of_this_version_never_change() -> None:
    """Stored indexes hold these. A change here needs a new ANALYZER_VERSION, and then new terms below."""
    text = (
        "Ana's team chose memory_manager v1.2.3 (src/loom/core.py) on 2024-05-01; 我們的貓叫咪咪, HTTPServer2 costs "
        "1,000.50. Don't e-mail ana@example.com! ＡＰＩ Café .env"
    )
    assert words.ANALYZER_VERSION == 1
    assert terms(text) == PINNED_TERMS.split()
    assert query_terms("Which memory_manager 我们的猫叫什么?") == PINNED_QUERY


texts = st.one_of(
    st.text(),
    st.text(alphabet="aZ09_-./@:',+# 猫的了是什么貓Ａé\u0301\u200d\n\0"),
    st.text(alphabet=st.characters(min_codepoint=0x20, max_codepoint=sys.maxunicode)),
)


@given(texts)
def test_whatever_a_question_keeps_is_in_the_same_text(text: str) -> None:
    held = set(terms(text))
    asked = query_terms(text)
    assert set(asked) <= held
    assert bool(asked) == bool(held)
    assert all(weight > 0 for weight in asked.values())


@given(texts)
def test_terms_are_short_without_blanks_and_stable(text: str) -> None:
    found = terms(text)
    assert found == terms(text)
    for term in found:
        assert 0 < len(term) <= MAX_TERM_CHARS
        assert not any(character.isspace() or character == "\0" for character in term)


@given(texts, texts)
def test_a_text_keeps_its_terms_beside_another(one: str, other: str) -> None:
    assert Counter(terms(one)) + Counter(terms(other)) == Counter(terms(f"{one} | {other}"))


@given(st.text(alphabet="abcdeXYZ019_-./' ", max_size=80))
def test_a_chinese_neighbour_does_not_change_english_terms(text: str) -> None:
    assert Counter(terms(text)) + Counter(["猫"]) == Counter(terms(f"{text} 猫"))


@given(st.text(alphabet=st.characters(codec="ascii", categories=("Ll", "Nd", "Zs")), max_size=80))
def test_case_does_not_matter_to_plain_words(text: str) -> None:
    assert [terms(word)[:1] for word in text.split()] == [terms(word.upper())[:1] for word in text.split()]

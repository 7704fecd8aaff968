"""The differences that make two texts distinct in any case, in English and Chinese, and those that do not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.text.duplicates import may_merge, normal_form, protected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the backup is in rack 12", "the backup is in rack 13"),
        ("two disks failed", "three disks failed"),
        ("one disk is full", "two disks are full"),
        ("it needs 5 GB", "it needs 5 MB"),
        ("the fee is $5", "the fee is €5"),
        ("it was -5 degrees", "it was 5 degrees"),
        ("about 1,000 rows", "about 10,000 rows"),
        ("三台服务器", "四台服务器"),
        ("预算一万元", "预算两万元"),
        ("第三次尝试", "第四次尝试"),
        ("rack 3 has 3 disks, rack 4 has 4", "rack 3 has 4 disks, rack 4 has 3"),
    ],
)
def test_another_number_is_another_text(one: str, other: str) -> None:
    assert not may_merge(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("we meet on Monday", "we meet on Tuesday"),
        ("周一开会", "周二开会"),
        ("released in 2023", "released in 2024"),
        ("3月5日发布", "3月6日发布"),
        ("the call is at 3pm", "the call is at 4pm"),
        ("下午3点开会", "上午3点开会"),
        ("it runs next week", "it runs last week"),
        ("due March 5, 2024", "due May 5, 2024"),
    ],
)
def test_another_date_is_another_text(one: str, other: str) -> None:
    assert not may_merge(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ana likes tea", "Ben likes tea"),
        ("tea is what Ana likes", "tea is what Ben likes"),
        ("Ana pays Ben", "Ben pays Ana"),
        ("we store it in Redis", "we store it in Postgres"),
        ("the US team agreed", "the UK team agreed"),
        ("张伟负责部署", "李娜负责部署"),
        ("我的同事叫王芳", "我的同事叫李芳"),
        ("张总同意了", "李总同意了"),
        ("小王说可以", "小李说可以"),
        ("会议在北京", "会议在上海"),
        ("这件事问老王", "这件事问老李"),
    ],
)
def test_another_name_is_another_text(one: str, other: str) -> None:
    assert not may_merge(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("upgrade to v1.2", "upgrade to v1.3"),
        ("see /etc/a.conf", "see /etc/b.conf"),
        ("call https://example.com/a", "call https://example.com/b"),
        ("write to ana@example.com", "write to ben@example.com"),
        ("用 memory_manager", "用 memory_store"),
        ("import loom.memory.core", "import loom.types"),
        ("set API_KEY", "set api_key"),
        ("the host 10.0.0.1", "the host 10.0.0.2"),
        ("at commit a1b2c3d", "at commit a1b2c3e"),
        ("run it with --force", "run it with --dry"),
        ("fixed in #12", "fixed in #13"),
        ("asked GPT-4", "asked GPT-5"),
        ("서버12 재시작", "서버13 재시작"),
    ],
)
def test_another_identifier_is_another_text(one: str, other: str) -> None:
    assert not may_merge(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the cache is on", "the cache is not on"),
        ("it does work", "it doesn't work"),
        ("he always locks it", "he never locks it"),
        ("the cache is enabled", "the cache is disabled"),
        ("启用缓存", "不启用缓存"),
        ("我喜欢红茶", "我不喜欢红茶"),
        ("测试成功", "测试失败"),
        ("配置相同", "配置不同"),
        ("缓存不启用，队列启用", "缓存启用，队列不启用"),
        ("缓存关闭，队列开启", "缓存开启，队列关闭"),
        ("the cache is not on, the queue is on", "the cache is on, the queue is not on"),
    ],
)
def test_a_denial_is_another_text(one: str, other: str) -> None:
    assert not may_merge(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("12月上线", "十二月上线"),
        ("in December", "十二月"),
        ("2024年3月5日", "2024-03-05"),
        ("二〇二四年", "in 2024"),
        ("March 5, 2024", "the 5th of March 2024"),
        ("Mar. 5th 2024", "2024/3/5"),
        ("下午三点半", "15:30"),
        ("at 3 pm", "at 15:00"),
        ("周一开会", "星期一开会"),
        ("three disks", "3 disks"),
        ("two hundred and fifty racks", "250 racks"),
        ("twenty-five racks", "25 racks"),
        ("两百五十台", "250台"),
        ("1.5万元", "15000元"),
        ("百分之五十", "50 percent"),
        ("3 million users", "3,000,000 users"),
        ("5GB", "5 gb"),
        ("三十秒", "30 seconds"),
        ("１２ 台", "12台"),
        ("version 1.2", "v1.2"),
        ("GPT-4 is fast", "gpt-4 is fast"),
    ],
)
def test_another_spelling_is_the_same_number_date_or_identifier(one: str, other: str) -> None:
    assert may_merge(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("We use redis", "we use Redis."),
        ("Deploys run on Friday", "On Friday deploys run"),
        ("Ana moved to Berlin in 2024", "In 2024 Ana moved to Berlin"),
        ("User prefers dark mode", "The user likes dark mode in the editor"),
        ("Preference: dark theme", "A dark theme is preferred"),
        ("it does not work", "it doesn't work"),
        ("未启用缓存", "没有启用缓存"),
        ("用户喜欢深色主题", "用户偏好深色的主题"),
        ("特别快，非常稳定", "很快，不过很稳定"),
        ("高性能的方案", "方案的性能高"),
    ],
)
def test_other_words_for_the_same_may_be_merged(one: str, other: str) -> None:
    assert may_merge(one, other)


def test_what_is_protected_is_told_by_kind_and_in_order() -> None:
    found = protected("On Monday Ana moved 5 GB from rack 12 to /srv/b, not to Paris, at 14:30.")
    assert found.numbers == ("5gb", "12")
    assert found.dates == ("w1", "14:30")
    assert found.names == ("ana", "paris")
    assert found.identifiers == ("/srv/b",)
    assert len(found.negations) == 1


def test_may_and_march_are_months_only_where_something_says_so() -> None:
    assert protected("You may go. May I? They march on.").dates == ()
    assert protected("in May").dates == ("-5-",)
    assert protected("March 3").dates == ("-3-3",)


def test_the_normal_form_forgets_case_width_spacing_and_outer_punctuation() -> None:
    assert normal_form("  “Ｗe  use\tRedis!” ") == normal_form("we use redis") == "we use redis"
    assert normal_form("缓存已启用。") == normal_form("缓存已启用")
    assert normal_form("a.b") != normal_form("a b")
    assert normal_form("啟用") != normal_form("启用")


WORDS = """
Ana Ben redis Redis rack 12 13 十二 not 不 启用 缓存 Monday 周一 3月 v1.2 a_b /x 5GB two hundred May . , 。 张伟 说 of
"""
words = st.sampled_from(WORDS.split())
sentences = st.lists(words, max_size=8).flatmap(lambda found: st.sampled_from([" ".join(found), "".join(found)]))


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=40), sentences), st.one_of(st.text(max_size=40), sentences))
def test_it_is_symmetric_holds_for_the_text_itself_and_never_fails(one: str, other: str) -> None:
    assert may_merge(one, one)
    assert may_merge(one, other) == may_merge(other, one) == may_merge(protected(one), protected(other))
    assert normal_form(normal_form(one)) == normal_form(one)


@settings(max_examples=100, deadline=None)
@given(sentences, st.integers(0, 10**9), st.integers(0, 10**9))
def test_one_changed_number_is_always_seen(text: str, first: int, second: int) -> None:
    assert may_merge(f"{text} | {first} | ", f"{text} | {second} | ") == (first == second)


@pytest.mark.parametrize(
    "hostile",
    [
        "a",
        ".",
        "a.",
        "a..",
        "-",
        "1",
        "1,",
        "十",
        "张",
        "不",
        "/",
        "é",
        "\u0301",
        "May ",
        "two ",
        "not ",
        "hundred ",
        "A ",
    ],
)
def test_one_thing_over_and_over_is_read_in_one_go(hostile: str) -> None:
    check_hostile(hostile)


@pytest.mark.parametrize(
    "hostile", ["第万", "亿", "1 million ", "12月", "小王", "'", "没有", "年月日", "\ud800", "🎉", "\x00", "(?", "\\"]
)
def test_a_hostile_text_is_read_in_one_go(hostile: str) -> None:
    check_hostile(hostile)


def check_hostile(hostile: str) -> None:
    text = hostile * (25_000 // len(hostile))
    assert may_merge(text, text)
    assert not may_merge(text, f"{text} | 7")


def test_numerals_without_end_make_no_giant_number() -> None:
    assert protected("第" + "万" * 50_000).numbers
    assert protected("9" * 50_000 + " million").numbers
    assert len(protected("hundred " * 5_000).numbers) > 1

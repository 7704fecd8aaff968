"""Which sentences of a user's turn are standing instructions, which are preferences, and which hold for once."""

from __future__ import annotations

import pytest

from loom.knowledge.instructions import InstructionKind, InstructionScope, find_instructions

_INSTRUCTIONS = [
    "Always show types when I ask for code.",
    "Never email anyone before nine.",
    "Please always write out numbers below ten.",
    "From now on, reply in plain text.",
    "From now on I want the answer first and the reasons after it.",
    "In the future, please check the calendar before you propose a date.",
    "Going forward use British spelling.",
    "When I ask for a recipe, leave out the story around it.",
    "If I paste a stack trace, tell me the cause before anything else.",
    "Use semantic versions whenever you mention a package.",
    "Each time you touch the schema, add a migration.",
    "For regular expressions, add a comment that explains each group.",
    "In our repo we never use default exports.",
    "Don't apologise any more, just fix it.",
    "Do not delete anything without asking.",
    "Stop adding emojis.",
    "Every function you write must have a docstring.",
    "Keep your answers under five sentences.",
    "Ask me before you install anything.",
    "Remember that I'm colour-blind.",
    "Keep in mind that we only ship to Europe.",
    "You must never share the staging password.",
    "I want you to always double-check the dates.",
    "Make sure you never quote more than a line of lyrics.",
    "Call me Captain.",
    "Treat everything under /secrets as off limits.",
    "以后回答都用中文。",
    "从现在开始，日期写成年月日。",
    "每次改了接口，都要更新文档。",
    "我问你代码的时候，请给出完整的例子。",
    "凡是超过一百块的支出，先问我。",
    "不要再给我发链接了。",
    "千万别动线上的配置。",
    "永远不要把密钥写进代码。",
    "写邮件时，结尾不要用“此致敬礼”。",
    "记住我们只发往国内。",
    "你写的函数都要带注释。",
    "回答尽量简短。",
    "没有我的允许，不要重启服务。",
    "金额一律用人民币。",
    "请叫我老王。",
    "涉及隐私的问题，先提醒我。",
    "默认用 UTF-8 编码。",
]
_PREFERENCES = [
    "I prefer metric units.",
    "I'd rather walk than take the bus.",
    "I love films without a happy ending.",
    "I can't stand background music.",
    "I don't like surprises in reviews.",
    "My favourite editor is Emacs.",
    "I usually work late at night.",
    "We try to avoid plastic.",
    "Diagrams work best for me.",
    "I understand things better with an example.",
    "I'm not a fan of ORMs.",
    "I'm a strict vegan.",
    "I care more about safety than about speed.",
    "I tend to choose boring technology.",
    "I'm trying to keep the image under 50 MB, so what should I leave out?",
    "I prefer small steps, can you break the task down?",
    "我喜欢简单的方案。",
    "我更喜欢公制单位。",
    "我不吃海鲜。",
    "我习惯晚上工作。",
    "我讨厌弹窗。",
    "我宁可慢一点也要稳。",
    "我一般坐地铁出门。",
    "我对青霉素过敏。",
    "我是夜猫子型的人。",
    "我看重隐私，你觉得哪个浏览器好？",
    "对我来说安全比速度更重要。",
]
_NEITHER = [
    "Show me how to implement a login form.",
    "Can you always do that?",
    "Should I never use eval?",
    "It never works on the first try.",
    "My sister always forgets her keys.",
    "I never understood pointers.",
    "I like this one.",
    "I love the second draft.",
    "Do you prefer tabs or spaces?",
    "What do you usually recommend?",
    "Let me know when you're done.",
    "If it fails, try again.",
    "When I start the app, it crashes.",
    "When you have time, look at the second page.",
    "Use a table for this one.",
    "Don't send it yet.",
    "Thanks for all your help!",
    "I'd like to know how old the tree is.",
    "Make sure you add the invoice number.",
    "Remember the bug with the cart?",
    "Call me when it is ready.",
    "I get an error when I try to deploy the app.",
    "The server always restarts at midnight.",
    "I used to prefer Java.",
    "She told me to never give up.",
    "In the end we always lost.",
    "教我写一个登录页面。",
    "你喜欢哪一个？",
    "我喜欢这个。",
    "他总是迟到。",
    "每次打开都报错。",
    "以后我会去日本。",
    "这次用表格。",
    "先别发。",
    "还记得那个错误吗？",
    "是不是应该永远不用 eval？",
    "我以前喜欢喝茶。",
    "写完告诉我。",
]
_OF_OTHERS = [
    'The sign says "always wear a helmet" and I laughed.',
    "Translate into German: always close the door and never run.",
    "Here is the prompt:\nYou are a bot. Always be polite. Never swear.",
    "> Always reply to all.\nWhat does he want?",
    "```\n# always use the cache\n```\nWhat is that comment for?",
    "2024-01-01 10:00:00 INFO always use the cache",
    "`always` is a keyword, isn't it?",
    "牌子上写着“请勿随时拍照，永远不要触摸展品”。",
    "把下面这句翻译成英文：以后一律不要迟到。",
    "> 以后都用表格。\n他是什么意思？",
]


@pytest.mark.parametrize("said", _INSTRUCTIONS)
def test_an_instruction_is_recognised_among_other_sentences(said: str) -> None:
    for turn in (said, f"The weather is fine.\n{said}\nWhat time is it?", f"天气不错。{said}现在几点了？"):
        found = find_instructions(turn)
        assert [one.kind for one in found] == [InstructionKind.INSTRUCTION], turn
        assert found[0].text == said
        assert turn[slice(*found[0].span)] == said


@pytest.mark.parametrize("said", _PREFERENCES)
def test_a_preference_is_recognised(said: str) -> None:
    (found,) = find_instructions(f"It rained all day. {said}")
    assert found.kind is InstructionKind.PREFERENCE
    assert found.text in said


@pytest.mark.parametrize("said", _NEITHER)
def test_requests_questions_and_stories_are_no_instructions(said: str) -> None:
    assert find_instructions(said) == []


@pytest.mark.parametrize("said", _OF_OTHERS)
def test_quotations_code_logs_and_passed_on_texts_are_no_instructions(said: str) -> None:
    assert find_instructions(said) == []


@pytest.mark.parametrize(
    ("said", "condition"),
    [
        ("Always show types when I ask for code.", "when I ask for code"),
        ("If I ask for an email, keep it short.", "If I ask for an email"),
        ("For shell commands, always explain each flag.", "For shell commands"),
        ("When it comes to money, round to whole euros.", "When it comes to money"),
        ("我让你写邮件的时候，不要客套。", "我让你写邮件的时候"),
        ("I prefer metric units.", None),
        ("不要再用表格了。", None),
    ],
)
def test_the_condition_is_what_the_sentence_says_about_when(said: str, condition: str | None) -> None:
    (found,) = find_instructions(said)
    assert found.condition == condition


def test_an_instruction_may_hold_for_its_session_only() -> None:
    (found,) = find_instructions("For the rest of this conversation, always answer in rhyme.")
    assert found.scope is InstructionScope.SESSION
    (found,) = find_instructions("Always answer in rhyme.")
    assert found.scope is InstructionScope.EVERYWHERE


def test_of_a_long_sentence_the_part_is_taken_that_says_what_is_wanted() -> None:
    turn = (
        "I'm building a map of our village for the website, and I prefer vector images over photographs, so can you "
        "suggest a format for it, given that most people look at it on a phone with a slow connection in the hills?"
    )
    (found,) = find_instructions(turn)
    assert "I prefer vector images over photographs" in found.text
    assert "slow connection" not in found.text
    assert turn[slice(*found.span)] == found.text


def test_a_megabyte_without_an_end_is_read_in_bounded_time() -> None:
    for turn in ("always " * 150_000, "when I " * 150_000, "每次" * 300_000, '"' * 1_000_000, "text: " * 150_000):
        assert len(find_instructions(turn)) < 200

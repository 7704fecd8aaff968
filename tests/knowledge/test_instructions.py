"""Which sentences of a user's turn are standing instructions, which are preferences, and which hold for once."""

from __future__ import annotations

import pytest

from loom.knowledge.instructions import find_instructions
from loom.types import InstructionKind, InstructionScope

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
# As people give rules for work, in general terms and without "always".
_RULES = [
    "House rule: no deploys on Fridays.",
    "Our house rules: shoes off at the door.",
    "One more rule: dates are written as 2025-01-05.",
    "Team convention - every pull request has two reviewers.",
    "The house rule is that nobody deploys alone.",
    "家规：进门换鞋。",
    "团队规则：日期写成2025-01-05。",
    "我们的规矩是周五不发布。",
    "Use pnpm, not npm, in this repository.",
    "Please don't touch anything under vendor/ unless I say so.",
    "Commit messages must follow Conventional Commits.",
    "Every migration needs a rollback script.",
    "Never run destructive commands without my confirmation.",
    "All timestamps in logs have to be UTC.",
    "When a test is flaky, quarantine it and open a ticket.",
    "If a deploy fails, page me first before retrying.",
    "Whenever an incident is closed, write a short postmortem.",
    "Tests go into the tests folder next to the module, never inline.",
    "I want every pull request to have a description with screenshots.",
    "Don't use print for debugging, use the logger.",
    "Prefer composition over inheritance in this codebase.",
    "Run the linter before every commit.",
    "You should ask before adding a dependency.",
    "For incident reports, start with the customer impact.",
    "Only query the replica, never the primary.",
    "Keep pull requests under 400 lines.",
    "Charts should always have labelled axes.",
    "Report percentages with one decimal.",
    "In SQL, use CTEs instead of nested subqueries.",
    "When summarising a dataset, mention the number of missing values.",
    "I don't want any seed oils in recipes you suggest.",
    "Going forward, all amounts in euros please.",
    "Always cite the ticket number when you change something.",
    "Make a backup before you modify any config file.",
    "Ping me on Slack rather than by email.",
    "I like my code with type annotations everywhere.",
    "I'd prefer if you kept explanations brief.",
    "I tend to favour Postgres over MySQL.",
    "I'm not comfortable with force pushes.",
    "I hate long meetings, so keep agendas tight.",
    "My preference is for aisle seats.",
    "I usually review PRs in the morning.",
    "We use tabs for indentation here.",
    "Our team deploys on Tuesdays only.",
    "Let's stick with snake_case for all new files.",
    "Please address me as Dr. Kim from here on.",
    "Please respond in Spanish from now on.",
    "Don't send notifications after 6 pm.",
    "No emojis in commit messages.",
    "Please refrain from using abbreviations.",
    "It's important to me that you double check figures.",
    "Remember: no deployments on Fridays.",
    "As a rule, round up.",
    "I only drink decaf.",
    "I can't have gluten.",
    "I'm more of a visual learner.",
    "I'd appreciate examples with every explanation.",
    "以后提交信息都按照 Conventional Commits 写。",
    "代码里的注释请用英文。",
    "部署之前一定要先跑一遍测试。",
    "没我确认不要动生产数据库。",
    "报告里的百分比保留一位小数。",
    "发邮件给客户之前先让我看一眼。",
    "请一直用简体中文跟我说话。",
    "每次给我推荐餐厅都要避开辣的。",
    "我习惯用 VS Code 写代码。",
    "我偏向选早班高铁。",
    "我不喜欢太啰嗦的解释。",
    "我希望回答里带上具体例子。",
    "周报统一放在周五下午发。",
    "图表的坐标轴都要标单位。",
    "讲数学题的时候，一步一步来。",
    "默认货币是人民币。",
    "以后叫我小周就行。",
    "不要再用表情符号了。",
    "回答问题先给结论，再讲理由。",
    "所有接口都要写单元测试。",
    "遇到报错，先贴完整堆栈再分析。",
    "我一般不吃海鲜，推荐菜的时候注意一下。",
    "写总结的时候控制在三百字以内。",
    "晚上十点以后别给我发提醒。",
    "给孩子讲故事时，别出现吓人的情节。",
    "我更愿意坐靠窗的位置。",
    "我比较看重性价比。",
    "变量名用驼峰。",
    "我只喝美式，不加糖。",
    "涉及金额的地方都精确到分。",
    "帮我订酒店的话，优先选有健身房的。",
    "改代码前先说一下思路。",
    "以后说英文单词的时候顺便给我音标。",
    "请你每次都把步骤列出来。",
    "从今往后，日期写成 2024-01-01 这种格式。",
    "别用感叹号。",
]
_LOOK_ALIKES = [
    "Rule of thumb: the bigger the cache, the slower the start.",
    "The house rule in poker is that aces are high.",
    "My grandmother had a house rule: no phones at dinner.",
    "House rule: is that a thing in your team?",
    "游戏规则：先出完牌的赢。",
    "他们公司的规定：迟到扣钱。",
    "I always wanted to see Rome.",
    "Show me the types here.",
    "Can you run the linter before I commit?",
    "Use the second option for the header.",
    "It should always return a list, but it returns None.",
    "The cron job never finished last night.",
    "My boss always says we should ship faster.",
    "Always on my mind is playing on the radio.",
    "Don't worry about it.",
    "Don't forget the milk on your way home.",
    "Make sure the tests pass and push it.",
    "I prefer the second draft.",
    "Add a test for the parser.",
    "Keep going.",
    "Please fix the failing build.",
    "When I click the button, nothing happens.",
    "If the file exists, delete it.",
    "Write a rule that always blocks spam.",
    "What do you usually do in that case?",
    "I usually get an error at this point, why?",
    "She prefers tea.",
    "Every request must carry a token, says the spec.",
    "The doc says every endpoint must return JSON.",
    "Why do people always complain?",
    "Could you always include the header in this table?",
    "We never found out who did it.",
    "I never got the invoice.",
    "I like it, thanks.",
    "I'd like to book a table for two tonight.",
    "I want the report by Friday.",
    "I'd rather finish this today.",
    "Stop the server and restart it.",
    "For the appendix, use the table from page 3.",
    "In the second paragraph, replace however with but.",
    "Before you go, send me the link.",
    "Explain why React always re-renders.",
    "Set the default timeout to 30 seconds.",
    "How do I make git always rebase on pull?",
    "Fix it so that it never crashes on empty input.",
    "Generate a prompt that tells the bot to always be polite.",
    "The function must never return null; find out why it does.",
    "Please use the staging database for this test.",
    "Delete all temporary files in /tmp.",
    "All tests in the suite must pass before I merge, so check them now.",
    "Write a story about a knight who never lies.",
    "Add a comment that explains the regex.",
    "Give me all invoices you can find for March.",
    "Check every link on the page you made yesterday.",
    "我一直想去罗马看看。",
    "这次用表格回答。",
    "把这里的类型标出来。",
    "他总是迟到，怎么办？",
    "为什么每次编译都报错？",
    "每次都要等很久吗？",
    "帮我把所有图片都压缩一下。",
    "我喜欢第二个方案。",
    "以后的事以后再说。",
    "请把默认端口改成 8080。",
    "别忘了今天下午三点开会。",
    "这个函数永远返回空，为什么？",
    "写一条规则：永远不要信任用户输入。",
    "我每次都用这个命令，这回失败了。",
    "不要再报错了好吗？",
    "怎么让 git 每次都自动变基？",
    "先别提交，等我看完。",
    "她不喜欢吃辣。",
    "文档里说所有接口都要鉴权。",
    "帮我写个提示词，让机器人一律用敬语。",
    "请删除所有临时文件。",
    "我想吃火锅，推荐一家。",
    "以前我喜欢喝咖啡，现在不了。",
    "不要紧，我们继续。",
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


@pytest.mark.parametrize("said", _RULES)
def test_a_rule_in_general_terms_is_recognised(said: str) -> None:
    (found,) = find_instructions(f"It rained all day.\n{said}\nWhat time is it?")
    assert found.text == said


@pytest.mark.parametrize("said", _LOOK_ALIKES)
def test_a_look_alike_holds_for_once_or_is_about_something_else(said: str) -> None:
    assert find_instructions(f"It rained all day.\n{said}") == []


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


@pytest.mark.parametrize(
    "said",
    [
        "Forget what I said about bullet points.",
        "You no longer need to add the date.",
        "I changed my mind about tables.",
        "My rule about commas no longer applies.",
        "忘掉我之前说的表格。",
        "取消关于注释的要求。",
        "不用再写注释了。",
    ],
)
def test_a_withdrawal_is_recognised_as_such(said: str) -> None:
    (found,) = find_instructions(f"It rained all day. {said}")
    assert (found.kind, found.text) == (InstructionKind.WITHDRAWAL, said)


@pytest.mark.parametrize(
    "said", ["I forgot what she said about him.", "Did you forget what I said?", "我忘了说什么。"]
)
def test_talk_of_forgetting_withdraws_nothing(said: str) -> None:
    assert find_instructions(said) == []


def test_a_megabyte_without_an_end_is_read_in_bounded_time() -> None:
    parts = ("always ", "when I ", "每次", '"', "text: ", "a s ", "的时候，", "no a b c ", "all a b ")
    for turn in (part * (1_000_000 // len(part)) for part in parts):
        assert len(find_instructions(turn)) < 200

"""中文记忆：不需要分词器，简体与繁体、全角与半角都能互相找到。

Chinese without a word segmenter: simplified and traditional, full-width and half-width find each other.
Run it with: python examples/chinese.py
"""

from __future__ import annotations

import loom

NOTES = (
    "用户希望回答简短，不要超过三句话。",
    "服务器部署在十二号机柜，不是十三号。",
    "数据库选用 PostgreSQL 16，理由是团队最熟悉。",
    "向量检索的召回率要达到百分之九十八。",
    "发票编号 INV-2041，金额三千二百元。",
)

QUESTIONS = (
    "用户喜欢什么样的回答？",
    "服务器在哪个机柜？",
    "資料庫選用了什麼？團隊熟悉嗎？",
    "ＩＮＶ－２０４１ 的金额是多少？",
)


def main() -> None:
    with loom.open() as memory:  # 没有路径：只在内存里
        memory.remember(list(NOTES), role="user", name="小魏", session_id="项目会议")
        memory.flush()
        for question in QUESTIONS:
            best = memory.recall(question, limit=1)[0]
            print(f"问：{question}\n答：{best.content}（{best.tokens} 个 token；{best.why}）")


if __name__ == "__main__":
    main()

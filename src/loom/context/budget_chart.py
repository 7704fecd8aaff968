"""A picture of a built prompt: the tokens of each source as a bar, in SVG."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from loom.context.orchestrator import Context

__all__ = ["BudgetPart", "budget_chart", "budget_parts"]

_WIDTH, _BAR, _LEFT, _LINE = 720, 44, 16, 22
# Colours that colour-blind readers can tell apart (after Okabe and Ito).
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
_FIXED, _FREE = "#7f7f7f", "#eeeeee"


@dataclass(frozen=True, slots=True)
class BudgetPart:
    """A part of a budget: its name, its tokens, and the number of its items (0 if it has no items)."""

    name: str
    tokens: int
    items: int
    colour: str

    def label(self, budget: int) -> str:
        """The part in words."""
        share = f"{self.name}: {self.tokens:,} tokens ({100 * self.tokens / budget:.0f} %)"
        many = "" if self.items == 1 else "s"
        return f"{share}, {self.items} item{many}" if self.items else share


def budget_parts(context: Context) -> list[BudgetPart]:
    """The parts of a prompt's budget: fixed parts, each source, and free room."""
    used = [source for source in context.sources if source.tokens]
    fixed = max(0, context.tokens - sum(source.tokens for source in used))
    return [
        BudgetPart("system, question, framing", fixed, 0, _FIXED),
        *(
            BudgetPart(source.name, source.tokens, source.used, _COLOURS[at % len(_COLOURS)])
            for at, source in enumerate(used)
        ),
        BudgetPart("free", context.budget - context.tokens, 0, _FREE),
    ]


def budget_chart(context: Context, title: str = "Where the budget went") -> str:
    """An SVG image of the budget: fixed parts, each source, and free room."""
    parts = budget_parts(context)
    height = 2 * _LINE + _BAR + _LINE * (len(parts) + 1)
    scale = (_WIDTH - 2 * _LEFT) / context.budget
    shapes = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="{_LINE}" font-size="15">{escape(title)}: '
        f"{context.tokens:,} of {context.budget:,} tokens</text>",
    ]
    at, top = float(_LEFT), int(1.6 * _LINE)
    for row, part in enumerate(parts):
        width = part.tokens * scale
        shapes.append(f'<rect x="{at:.1f}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{part.colour}"/>')
        at += width
        line = top + _BAR + _LINE * (row + 1)
        told = escape(part.label(context.budget))
        shapes += [
            f'<rect x="{_LEFT}" y="{line - 11}" width="12" height="12" fill="{part.colour}" stroke="#999"/>',
            f'<text x="{_LEFT + 20}" y="{line}" font-size="13">{told}</text>',
        ]
    return "\n".join([*shapes, "</svg>\n"])

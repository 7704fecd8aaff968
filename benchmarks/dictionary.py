"""The dictionary that archive blocks share: makes it, and measures its savings.

    python -m benchmarks.dictionary [--write] [--data PATH/locomo10.json] [--save]

It is made of the development dialogues of that time and of the recall sets of this project: 32 KB in English and 32
KB in Chinese. The marked dialogues and other data used for measuring are not in it. `--write` puts it into the
package; without `--write` the command ends with 1 if the file in the package differs. The Chinese half holds phrases
that three texts or more share: zstd's own trainer finds little in a script without spaces. The texts are under the
licence of the project, and so is the dictionary.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import figures
from benchmarks.archive import Corpus, chinese, grouped, talk, tasks, up_to
from loom.storage import blocks
from loom.storage.blocks import compress, shipped

if TYPE_CHECKING or sys.version_info < (3, 14):
    from backports import zstd
else:
    from compression import zstd

__all__ = ["main", "make"]

_HERE = Path(__file__).parent
_PLACE = Path(blocks.__file__).with_name("phrases.bin")
_HALF = 32 * 1024
_ADDED_LATER = ("_chatter_",)  # another dictionary would be another format of blocks
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_FEWEST_TEXTS = 3
_PHRASE_LENGTHS = (2, 3, 4, 6, 8)
_FEWEST_BYTES, _MOST_BYTES = 6, 120
# A word with the characters after it, or one character of a script without spaces.
_UNIT = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+\W?|\W")


def texts() -> list[str]:
    """The texts from which the dictionary is made, in a fixed order."""
    found = [
        f"{turn['speaker']}: {turn['text']}"
        for file in sorted((_HERE / "dialogues" / "development").glob("*.json"))
        if not any(part in file.name for part in _ADDED_LATER)
        for turn in json.loads(file.read_text())["turns"]
    ]
    for name in ("agent.txt", "chinese.txt"):
        lines = (_HERE / "recall" / "sets" / name).read_text().splitlines()
        found += [line for line in lines if line and not line.startswith("#")]
    return found


def make() -> bytes:
    """The dictionary: the Chinese half, then the English half, to which zstd can refer with fewer bits."""
    several = texts()
    chosen = [text for text in several if len(_CHINESE.findall(text)) > 3]
    others = [text.encode() for text in several if len(_CHINESE.findall(text)) <= 3]
    return phrases(chosen, _HALF) + b"\0" + zstd.train_dict(others, _HALF).dict_content


def phrases(several: Iterable[str], most_bytes: int) -> bytes:
    """The phrases that save the most in such texts, each in at least three of them, the best ones last."""
    found: Counter[str] = Counter()
    for text in several:
        found.update(_phrases_of(text))
    worth = [
        (count * (len(encoded) - 3), encoded)
        for phrase, count in found.items()
        if count >= _FEWEST_TEXTS and _FEWEST_BYTES <= len(encoded := phrase.encode()) <= _MOST_BYTES
    ]
    chosen: list[bytes] = []
    together = b""
    for _, encoded in sorted(worth, reverse=True):
        if len(together) + len(encoded) > most_bytes:
            break
        if encoded not in together:
            chosen.append(encoded)
            together += encoded + b"\0"
    return b"\0".join(reversed(chosen))


def _phrases_of(text: str) -> set[str]:
    units = _UNIT.findall(text)
    return {
        "".join(units[start : start + length])
        for length in _PHRASE_LENGTHS
        for start in range(len(units) - length + 1)
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.dictionary", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the dictionary into the package")
    parser.add_argument("--data", type=Path, help="a copy of LoCoMo's locomo10.json")
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    chosen = parser.parse_args(arguments)
    content = make()
    if chosen.write:
        _PLACE.write_bytes(content)
    same = _PLACE.read_bytes() == content
    print(f"{len(content):,} bytes, sha256 {hashlib.sha256(content).hexdigest()}; in the package: {same}")
    table = [["texts", "bytes", "without a dictionary", "with it"]]
    none = itertools.repeat(None)
    for name, items in (
        ("dialogue", zip(talk(chosen.data), none, strict=False)),
        ("Chinese", zip(chinese(), none, strict=False)),
        ("tasks with structured data", tasks()),
    ):
        corpus = Corpus(name, up_to(items, chosen.tokens)[0])
        size = sum(len(text.encode()) + len((data or "").encode()) for text, data in corpus.dumped())
        bare = sum(len(compress(group, None)[0]) for group in grouped(corpus))
        ours = sum(len(compress(group, shipped())[0]) for group in grouped(corpus))
        print(f"  {name:<28}{size:>10,} bytes{size / bare:>7.2f} : 1 without, {size / ours:.2f} : 1 with it")
        table.append([name, f"{size:,}", f"{size / bare:.2f}:1", f"{size / ours:.2f}:1"])
    if chosen.save:
        figures.save("dictionary", sys.argv[1:] if arguments is None else arguments, {"table": table})
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())

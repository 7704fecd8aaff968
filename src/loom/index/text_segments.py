"""Text segments: built from documents, merged, rewritten without some documents, and checked.

A segment holds 64-bit hashes of terms, never terms or text. A posting is a document number and a code: an index into
the segment's table of distinct pairs (term frequency, document length). A table of BM25 impacts per pair therefore
scores every posting. A segment also holds the doc values of its documents. How text becomes terms is decided in
`analysis.py`; how postings are read and scored, in `text_postings.py` and `text_scoring.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from loom.errors import InvalidInput
from loom.index.doc_values import DOC_VALUE_WORDS, packed
from loom.index.segments import Array, Built, DamagedSegment, Segment

__all__ = [
    "FORMAT",
    "KIND",
    "LARGEST_FREQUENCY",
    "build",
    "checked_arrays",
    "merge",
    "run_starts",
    "term_hash",
    "verify",
    "without",
]

KIND = "text"
FORMAT = 3
LARGEST_FREQUENCY = 0xFFFF
"""The highest term frequency that is stored; higher ones are stored as this value."""

# The kernels read these types without conversion, so a file with other types is refused.
_ARRAYS: dict[str, tuple[type[np.generic], ...]] = {
    "keys": (np.int64,),
    "lengths": (np.uint32,),
    "doc_values": (np.int64,),
    "hashes": (np.uint64,),
    "starts": (np.uint32, np.uint64),
    "documents": (np.uint32,),
    "codes": (np.uint16, np.uint32),
    "pair_frequencies": (np.uint16,),
    "pair_lengths": (np.uint32,),
}


@lru_cache(maxsize=1 << 17)
def term_hash(term: str) -> int:
    """The 64 bits that stand for a term in every segment."""
    return int.from_bytes(blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def build(documents: Iterable[tuple[int, Sequence[str]]], doc_values: Array | None = None) -> Built:
    """Header and arrays of a segment of these documents: (key, terms with repetitions), keys ascending.

    The length of a document is the number of its terms. A term frequency above 65,535 counts as 65,535. `doc_values`
    has a row for each document; without it, all doc values are unknown.
    """
    keys, lengths, hashes = array("q"), array("Q"), array("Q")
    for key, terms in documents:
        keys.append(key)
        lengths.append(len(terms))
        hashes.extend(map(term_hash, terms))
    key_array = np.array(keys, dtype=np.int64)
    if len(key_array) > 1 and not (key_array[1:] > key_array[:-1]).all():
        raise InvalidInput("documents of a segment must come in ascending order of their keys, each key once")
    length_array = np.array(lengths, dtype=np.uint32)
    owners = np.repeat(np.arange(len(keys), dtype=np.uint32), length_array)
    occurrences = np.array(hashes, dtype=np.uint64)
    order = np.argsort(occurrences, kind="stable")  # stable: the documents of a term stay ascending
    occurrences, owners = occurrences[order], owners[order]
    del order
    first = np.flatnonzero(run_starts(occurrences) | run_starts(owners))
    frequencies = np.minimum(np.diff(first, append=len(owners)), LARGEST_FREQUENCY).astype(np.uint32)
    occurrences, owners = occurrences[first], owners[first]
    codes, pairs = _encode(frequencies, length_array[owners])
    if doc_values is None:
        doc_values = packed((key, *[None] * 6) for key in keys)
    return _assemble(key_array, length_array, doc_values, *_list_bounds(occurrences), owners, codes, pairs)


def merge(segments: Sequence[Segment], *, postings_at_once: int = 1 << 20) -> Built:
    """One segment with the documents of several, given in any order.

    Copies whole posting lists, about `postings_at_once` postings at a time, so peak memory is little more than the
    size of the new segment. Raises `InvalidInput` if two segments hold the same key.
    """
    parts = sorted((checked_arrays(segment) for segment in segments), key=_first_key)
    if not parts:
        return build(())
    keys = np.concatenate([part["keys"] for part in parts])
    lengths = np.concatenate([part["lengths"] for part in parts])
    doc_values = np.concatenate([part["doc_values"] for part in parts])
    bases = np.cumsum([0] + [len(part["keys"]) for part in parts])[:-1]
    new_numbers: Array | None = None
    if not (keys[1:] > keys[:-1]).all():  # key ranges overlap: renumber the documents by key
        by_key = np.argsort(keys, kind="stable")
        new_numbers = np.empty(len(keys), dtype=np.uint32)
        new_numbers[by_key] = np.arange(len(keys), dtype=np.uint32)
        keys, lengths, doc_values = keys[by_key], lengths[by_key], doc_values[by_key]
        if not (keys[1:] > keys[:-1]).all():
            raise InvalidInput("segments to merge must not share a key")
    new_codes, pairs = _merged_pairs(parts)
    postings = sum(len(part["documents"]) for part in parts)
    documents = np.empty(postings, dtype=np.uint32)
    codes = np.empty(postings, dtype=_code_type(pairs))
    hashes: list[Array] = []
    counts: list[Array] = []
    done = 0
    for ranges in _hash_ranges(parts, postings_at_once):
        names, sizes, owners, owned_codes = _merged_lists(parts, ranges, bases, new_codes, new_numbers)
        end = done + len(owners)
        documents[done:end], codes[done:end], done = owners, owned_codes, end
        hashes.append(names)
        counts.append(sizes)
    starts = np.append(0, np.concatenate(counts).cumsum())
    return _assemble(keys, lengths, doc_values, np.concatenate(hashes), starts, documents, codes, pairs)


def without(segment: Segment, keys: Collection[int]) -> Built:
    """The segment without these documents.

    Their postings, lengths and doc values are gone, and so are the hashes of terms that only they had.
    """
    part = checked_arrays(segment)
    kept = ~np.isin(part["keys"], np.fromiter(keys, dtype=np.int64, count=len(keys)))
    new_numbers = (np.cumsum(kept) - 1).astype(np.uint32)
    postings = kept[part["documents"]]
    counts = np.diff(part["starts"]).astype(np.intp)
    occurrences = np.repeat(part["hashes"], counts)[postings]
    owners = new_numbers[part["documents"][postings]]
    used, codes = np.unique(part["codes"][postings], return_inverse=True)
    pairs = part["pair_frequencies"][used], part["pair_lengths"][used]
    rest, lengths, doc_values = (part[name][kept] for name in ("keys", "lengths", "doc_values"))
    return _assemble(rest, lengths, doc_values, *_list_bounds(occurrences), owners, codes, pairs)


def checked_arrays(segment: Segment) -> Mapping[str, Array]:
    """The arrays of a segment. Raises `DamagedSegment` if their types and shapes do not fit together.

    Reads the header only. Their content is verified by the checksums.
    """
    header, arrays = segment.header, segment.arrays
    name = "a segment in memory" if segment.path is None else segment.path.name
    if header.get("kind") != KIND or header.get("format") != FORMAT:
        raise DamagedSegment(f"{name} is not a text segment of format {FORMAT}")
    if not arrays.keys() >= _ARRAYS.keys():
        raise DamagedSegment(f"{name} lacks arrays of a text segment")
    for array_name, types in _ARRAYS.items():
        values = arrays[array_name]
        width = (DOC_VALUE_WORDS,) if array_name == "doc_values" else ()
        fits = values.dtype in types and values.ndim == 1 + len(width) and values.shape[1:] == width
        if not fits or not values.flags.c_contiguous:
            raise DamagedSegment(f"the array {array_name!r} of {name} has another type or shape")
    sizes = {array_name: len(values) for array_name, values in arrays.items()}
    if (
        sizes["keys"] != header.get("count")
        or sizes["lengths"] != sizes["keys"]
        or sizes["doc_values"] != sizes["keys"]
        or sizes["starts"] != sizes["hashes"] + 1
        or sizes["documents"] != sizes["codes"]
        or sizes["pair_frequencies"] != sizes["pair_lengths"]
    ):
        raise DamagedSegment(f"the arrays of {name} do not fit together")
    # The first and the last key come from the header, so that the pages of the keys are read only when needed.
    first, last = (header.get("first_key"), header.get("last_key")) if sizes["keys"] else (0, 0)
    for number in (first, last, header.get("total_length")):
        if not isinstance(number, int) or not 0 <= number < 1 << 62:
            raise DamagedSegment(f"the header of {name} is not valid: {number!r} is not a key or a length")
    return arrays


def verify(segment: Segment) -> None:
    """Raise `DamagedSegment` unless the arrays of a segment agree with each other. Reads everything.

    Merging and rewriting compute new checksums, so the arrays must be verified before. `open_segment` compares the
    checksums only.
    """
    part = checked_arrays(segment)
    header, keys, starts, documents = segment.header, part["keys"], part["starts"], part["documents"]
    count, postings = len(keys), len(documents)
    ends = starts[(starts > 0) & (starts < postings)].astype(np.intp)
    rises = documents[1:] > documents[:-1]
    rises[ends - 1] = True  # where one list ends and the next one begins
    sound = (
        _ascending(keys)
        and (not count or (int(keys[0]), int(keys[-1])) == (header["first_key"], header["last_key"]))
        and int(part["lengths"].sum(dtype=np.int64)) == header["total_length"]
        and _ascending(part["hashes"])
        and (int(starts[0]), int(starts[-1])) == (0, postings)
        and _ascending(starts)
        and bool(rises.all())
        and (not postings or int(documents.max()) < count)
        and (not postings or int(part["codes"].max()) < len(part["pair_lengths"]))
    )
    if not sound:
        name = "a segment in memory" if segment.path is None else segment.path.name
        raise DamagedSegment(f"the arrays of {name} contradict each other: the index must be rebuilt")


def _ascending(values: Array) -> bool:
    return bool((values[1:] > values[:-1]).all())


def run_starts(values: Array) -> npt.NDArray[np.bool_]:
    """True where a value differs from the one before it, and for the first."""
    changed = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed


# --- Posting lists -----------------------------------------------------------------------------------------


def _hash_ranges(parts: Sequence[Mapping[str, Array]], postings_at_once: int) -> Iterator[list[tuple[int, int]]]:
    """The terms to merge in each step: a range of places for each part, which covers the same range of hashes in all.

    Hashes are spread evenly, so a step has about `postings_at_once` postings, and more only if one term has them.
    """
    steps = max(1, sum(len(part["documents"]) for part in parts) // postings_at_once)
    edges = np.array([(step << 64) // steps for step in range(1, steps)], dtype=np.uint64)
    cuts = [[0, *part["hashes"].searchsorted(edges).tolist(), len(part["hashes"])] for part in parts]
    for step in range(steps):
        yield [(cut[step], cut[step + 1]) for cut in cuts]


def _merged_lists(
    parts: Sequence[Mapping[str, Array]],
    ranges: Sequence[tuple[int, int]],
    bases: Array,
    new_codes: Sequence[Array],
    new_numbers: Array | None,
) -> tuple[Array, Array, Array, Array]:
    """The posting lists of these terms in all parts, one list per term, its documents ascending.

    Returns the hashes in order, the length of each list, and the documents and codes of all.
    """
    hashes = np.concatenate([part["hashes"][first:last] for part, (first, last) in zip(parts, ranges, strict=True)])
    lengths: list[Array] = []
    owners: list[Array] = []
    codes: list[Array] = []
    for part, (first, last), base, renamed in zip(parts, ranges, bases, new_codes, strict=True):
        starts = part["starts"][first : last + 1].astype(np.intp)
        inside = slice(int(starts[0]), int(starts[-1]))
        lengths.append(np.diff(starts))
        owners.append(part["documents"][inside] + np.uint32(base))
        codes.append(renamed[part["codes"][inside]])
    moved, all_codes = np.concatenate(owners), np.concatenate(codes)
    counts = np.concatenate(lengths)
    by_hash = np.argsort(hashes, kind="stable")  # stable: lists of one term keep the order of the segments
    sources = np.cumsum(counts) - counts
    sizes = counts[by_hash]
    gather = np.repeat(sources[by_hash] - (np.cumsum(sizes) - sizes), sizes)
    gather += np.arange(len(gather))
    moved, all_codes = moved[gather], all_codes[gather]
    firsts = np.flatnonzero(run_starts(hashes[by_hash]))
    distinct = hashes[by_hash][firsts]
    together = np.add.reduceat(sizes, firsts) if len(firsts) else sizes
    if new_numbers is not None:
        moved = new_numbers[moved]
        order = np.lexsort((moved, np.repeat(np.arange(len(distinct)), together)))
        moved, all_codes = moved[order], all_codes[order]
    return distinct, together, moved, all_codes


def _list_bounds(occurrences: Array) -> tuple[Array, Array]:
    """The distinct hashes of sorted postings, and the start of each list, followed by the end of the last."""
    first = np.flatnonzero(run_starts(occurrences))
    return occurrences[first], np.append(first, len(occurrences))


def _assemble(
    keys: Array,
    lengths: Array,
    doc_values: Array,
    hashes: Array,
    starts: Array,
    owners: Array,
    codes: Array,
    pairs: tuple[Array, Array],
) -> Built:
    """Header and arrays from postings sorted by hash, then by document."""
    header = {
        "kind": KIND,
        "format": FORMAT,
        "count": len(keys),
        "total_length": int(lengths.sum(dtype=np.int64)),
        "first_key": int(keys[0]) if len(keys) else None,
        "last_key": int(keys[-1]) if len(keys) else None,
    }
    arrays: dict[str, Array] = {
        "keys": keys.astype(np.int64, copy=False),
        "lengths": lengths.astype(np.uint32, copy=False),
        "doc_values": doc_values.astype(np.int64, copy=False),
        "hashes": hashes,
        "starts": starts.astype(np.uint32 if len(owners) < 1 << 32 else np.uint64),
        "documents": owners.astype(np.uint32, copy=False),
        "codes": codes.astype(_code_type(pairs), copy=False),
        "pair_frequencies": pairs[0].astype(np.uint16),
        "pair_lengths": pairs[1].astype(np.uint32),
    }
    return header, arrays


# --- Codes -------------------------------------------------------------------------------------------------


def _code_type(pairs: tuple[Array, Array]) -> type[np.uint16 | np.uint32]:
    return np.uint16 if len(pairs[0]) <= 1 << 16 else np.uint32


def _encode(frequencies: Array, lengths: Array) -> tuple[Array, tuple[Array, Array]]:
    """The codes of postings, and the table of pairs (frequencies, lengths) that the codes index."""
    distinct, codes = np.unique(frequencies.astype(np.uint64) << np.uint64(32) | lengths, return_inverse=True)
    return codes, _unpacked(distinct)


def _merged_pairs(parts: Sequence[Mapping[str, Array]]) -> tuple[list[Array], tuple[Array, Array]]:
    """The new code for each code of each part, and the table of pairs that the new codes index."""
    tables = [part["pair_frequencies"].astype(np.uint64) << np.uint64(32) | part["pair_lengths"] for part in parts]
    distinct, renamed = np.unique(np.concatenate(tables), return_inverse=True)
    pairs = _unpacked(distinct)
    edges = np.cumsum([len(table) for table in tables])[:-1]
    return np.split(renamed.astype(_code_type(pairs)), edges), pairs


def _unpacked(distinct: Array) -> tuple[Array, Array]:
    return (distinct >> np.uint64(32)).astype(np.uint16), (distinct & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def _first_key(part: Mapping[str, Array]) -> int:
    return int(part["keys"][0]) if len(part["keys"]) else 0

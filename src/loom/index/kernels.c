/* The inner loops of searching: sums of postings, lookups in posting lists, distances of codes, exact cosines.
 *
 * Every function has a numpy equivalent (text_scoring.py, vector_codes.py, vector_scoring.py) that gives the same
 * bits: products and sums are computed in the same order, and compiled without contraction (-ffp-contract=off).
 * Nothing is allocated and no state is kept. Document numbers and codes come from files that may be damaged, so they
 * are checked before use: a function that finds one out of range returns OUTSIDE, and its output is undefined.
 */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define OUTSIDE (-1)

/* Increased with every change of a function's parameters or results. kernels.py loads no library of another version. */
#define VERSION 4

int64_t loom_version(void)
{
    return VERSION;
}

/* One build serves every processor of an architecture: loops that gain from wide registers are compiled for three
 * widths, and a call uses the widest that the machine has. Tests compile with a smaller WIDEST. */
#ifndef WIDEST
#define WIDEST 512
#endif
#define BODY static inline __attribute__((always_inline))
#if defined(__x86_64__) && WIDEST >= 256
#define IN_512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq,prefer-vector-width=512")))
#define IN_256 __attribute__((target("avx2,popcnt")))
#define HAS_512                                                                                        \
    (WIDEST >= 512 && __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512bw") && \
     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
#define HAS_256 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt"))
#define IN_EACH_WIDTH(result, name, parameters, arguments)                                             \
    IN_512 static result name##_512 parameters { return name##_body arguments; }                       \
    IN_256 static result name##_256 parameters { return name##_body arguments; }                       \
    result loom_##name parameters                                                                      \
    {                                                                                                  \
        if (HAS_512)                                                                                   \
            return name##_512 arguments;                                                               \
        return HAS_256 ? name##_256 arguments : name##_body arguments;                                 \
    }
#else
#define IN_EACH_WIDTH(result, name, parameters, arguments) \
    result loom_##name parameters { return name##_body arguments; }
#endif

/* A segment or the tail, in the layout of SOURCE in kernels.py. */
typedef struct {
    const uint32_t *documents; /* list after list, ascending within each */
    const void *codes;
    const double *impacts;  /* by code */
    const uint64_t *bits;   /* bitmaps of common lists, `width` words each */
    const uint32_t *before; /* for each of these words, the number of set bits before it */
    int64_t postings;
    int64_t code_bytes;
    int64_t codes_end;     /* all codes are below this */
    int64_t documents_end; /* all documents are below this */
    int64_t base;          /* the number of the first document */
    int64_t width;
} source;

/* The postings of one term in one source. */
typedef struct {
    int64_t source, first, last;
    int64_t slot; /* of its bitmap, or -1 */
    int64_t row;  /* of the result that it adds to */
} list;

static inline int lies_outside(const source *own, const list *one)
{
    return one->first < 0 || one->first > one->last || one->last > own->postings;
}

#define ADD_ALL(type)                                                                                 \
    do {                                                                                              \
        const type *codes = (const type *)own->codes;                                                 \
        for (int64_t i = one->first; i < one->last; i++) {                                            \
            const uint32_t document = documents[i];                                                   \
            const uint64_t code = codes[i];                                                           \
            if (document >= documents_end || code >= codes_end)                                       \
                return OUTSIDE;                                                                       \
            of_source[document] += impacts[code] * weight;                                            \
        }                                                                                             \
    } while (0)

/* Add the contribution of each posting to the sum of its document. */
int64_t loom_add(const source *sources, const list *lists, const double *weights, int64_t count, double *sums)
{
    for (int64_t number = 0; number < count; number++) {
        const list *one = lists + number;
        const source *own = sources + one->source;
        const uint32_t *documents = own->documents;
        const double *impacts = own->impacts;
        const double weight = weights[number];
        const uint64_t documents_end = (uint64_t)own->documents_end, codes_end = (uint64_t)own->codes_end;
        double *of_source = sums + own->base;
        if (lies_outside(own, one))
            return OUTSIDE;
        if (own->code_bytes == 2)
            ADD_ALL(uint16_t);
        else if (own->code_bytes == 4)
            ADD_ALL(uint32_t);
        else
            ADD_ALL(uint64_t);
    }
    return 0;
}

static inline uint64_t code_at(const source *own, int64_t place)
{
    switch (own->code_bytes) {
    case 2:
        return ((const uint16_t *)own->codes)[place];
    case 4:
        return ((const uint32_t *)own->codes)[place];
    default:
        return ((const uint64_t *)own->codes)[place];
    }
}

/* A min-heap: the smallest value is at the top. */
static void sift_up(double *heap, int64_t at, double value)
{
    while (at > 0 && heap[(at - 1) / 2] > value) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = value;
}

static void sift_down(double *heap, int64_t size, double value)
{
    int64_t at = 0;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= size)
            break;
        if (child + 1 < size && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= value)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = value;
}

#define BLOCK 32

/* The `limit`-th highest of the sums, 0.0 if fewer are above zero. `heap` has room for `limit`. */
BODY double threshold_body(const double *sums, int64_t size, int64_t limit, double *heap)
{
    int64_t filled = 0;
    double lowest = 0.0;
    for (int64_t start = 0; start < size; start += BLOCK) {
        const int64_t end = start + BLOCK < size ? start + BLOCK : size;
        int above = 0;
        for (int64_t i = start; i < end; i++)
            above |= sums[i] > lowest;
        if (!above)
            continue;
        for (int64_t i = start; i < end; i++) {
            const double value = sums[i];
            if (!(value > lowest))
                continue;
            if (filled < limit) {
                sift_up(heap, filled++, value);
                if (filled == limit)
                    lowest = heap[0];
            } else {
                sift_down(heap, limit, value);
                lowest = heap[0];
            }
        }
    }
    return filled < limit ? 0.0 : heap[0];
}

IN_EACH_WIDTH(double, threshold, (const double *sums, int64_t size, int64_t limit, double *heap),
              (sums, size, limit, heap))

/* The places, ascending, of the sums that are above zero and at least `lowest`. Returns their number, even if it is
 * more than `room`. */
BODY int64_t select_body(const double *sums, int64_t size, double lowest, int64_t *places, double *chosen,
                         int64_t room)
{
    int64_t found = 0;
    const double least = lowest > 0.0 ? lowest : DBL_TRUE_MIN;
    for (int64_t start = 0; start < size; start += BLOCK) {
        const int64_t end = start + BLOCK < size ? start + BLOCK : size;
        int any = 0;
        for (int64_t i = start; i < end; i++)
            any |= sums[i] >= least;
        if (!any)
            continue;
        for (int64_t i = start; i < end; i++) {
            if (!(sums[i] >= least))
                continue;
            if (found < room) {
                places[found] = i;
                chosen[found] = sums[i];
            }
            found++;
        }
    }
    return found;
}

IN_EACH_WIDTH(int64_t, select,
              (const double *sums, int64_t size, double lowest, int64_t *places, double *chosen, int64_t room),
              (sums, size, lowest, places, chosen, room))

#define GROUP 64

/* As `threshold` and then `select`. Sets all sums to zero if there was room, and leaves them unchanged if not.
 * `highest` has room for one of each GROUP sums.
 *
 * Each of the best groups has a sum that reaches the lowest of their maxima, so few groups need a second pass. */
BODY int64_t take_body(double *sums, int64_t size, int64_t limit, double *highest, double *heap, int64_t *places,
                       double *chosen, int64_t room)
{
    typedef int64_t __attribute__((may_alias)) bits;
    const bits *as_bits = (const bits *)sums; /* ordered as the numbers above zero; integer maxima vectorise */
    const int64_t groups = (size + GROUP - 1) / GROUP;
    for (int64_t group = 0; group < groups; group++) {
        const int64_t end = (group + 1) * GROUP < size ? (group + 1) * GROUP : size;
        int64_t most = 0;
        for (int64_t i = group * GROUP; i < end; i++)
            most = as_bits[i] > most ? as_bits[i] : most;
        memcpy(highest + group, &most, sizeof most);
    }
    const double reached = threshold_body(highest, groups, limit, heap);
    const double least = reached > 0.0 ? reached : DBL_TRUE_MIN;
    int64_t found = 0, kept = 0;
    for (int64_t group = 0; group < groups; group++) {
        if (highest[group] < least)
            continue;
        const int64_t end = (group + 1) * GROUP < size ? (group + 1) * GROUP : size;
        for (int64_t i = group * GROUP; i < end; i++) {
            if (sums[i] < least)
                continue;
            if (found < room) {
                places[found] = i;
                chosen[found] = sums[i];
            }
            found++;
        }
    }
    if (found > room)
        return found;
    memset(sums, 0, (size_t)size * sizeof *sums);
    const double lowest = threshold_body(chosen, found, limit, heap);
    for (int64_t i = 0; i < found; i++)
        if (chosen[i] >= lowest) {
            places[kept] = places[i];
            chosen[kept++] = chosen[i];
        }
    return kept;
}

IN_EACH_WIDTH(int64_t, take,
              (double *sums, int64_t size, int64_t limit, double *highest, double *heap, int64_t *places,
               double *chosen, int64_t room),
              (sums, size, limit, highest, heap, places, chosen, room))

/* The place of a document in a list, or -1. The documents of the list from `*low` on are at least `*from`, and below
 * `end`; both advance to where the next document can be. Documents are spread about evenly, so the search starts at
 * the place that this suggests: it touches a page or two of a list that is not in memory, where a binary search
 * touches one at every step. */
static inline int64_t place_of(const uint32_t *documents, int64_t last, int64_t end, uint32_t wanted, int64_t *low,
                               int64_t *from)
{
    int64_t below = *low, above = last, step = 8;
    const double share = wanted > *from ? (double)(wanted - *from) / (double)(end - *from) : 0.0;
    int64_t at = below + (int64_t)(share * (double)(last - below));
    if (at < last && documents[at] < wanted) {
        do {
            below = at + 1;
            at += step;
            step *= 2;
        } while (at < last && documents[at] < wanted);
        above = at < last ? at : last;
    } else {
        while (at > below && at < last) {
            above = at;
            at -= step;
            step *= 2;
            if (at >= below && documents[at] < wanted) {
                below = at + 1;
                break;
            }
        }
    }
    while (below < above) {
        const int64_t middle = below + (above - below) / 2;
        if (documents[middle] < wanted)
            below = middle + 1;
        else
            above = middle;
    }
    *low = below;
    *from = wanted;
    return below < last && documents[below] == wanted ? below : -1;
}

/* Add the contribution of each list to each of the wanted documents (ascending), in the list's row of a table whose
 * rows are `stride` apart. With `stride` 0 all lists add to one row. */
int64_t loom_look_up(const source *sources, const list *lists, const double *weights, int64_t count,
                     const int64_t *wanted, int64_t documents, double *values, int64_t stride)
{
    for (int64_t number = 0; number < count; number++) {
        const list *one = lists + number;
        const source *own = sources + one->source;
        const uint64_t *bits = own->bits + one->slot * own->width;
        const uint32_t *before = own->before + one->slot * own->width;
        double *row = values + one->row * stride;
        int64_t low = one->first, from = 0, i = 0;
        if (lies_outside(own, one))
            return OUTSIDE;
        while (i < documents && wanted[i] < own->base)
            i++;
        for (; i < documents && wanted[i] - own->base < own->documents_end; i++) {
            const uint32_t document = (uint32_t)(wanted[i] - own->base);
            int64_t place;
            if (one->slot < 0) {
                place = place_of(own->documents, one->last, own->documents_end, document, &low, &from);
            } else {
                const uint64_t word = bits[document >> 6], bit = (uint64_t)1 << (document & 63);
                if (!(word & bit))
                    continue;
                place = one->first + before[document >> 6] + __builtin_popcountll(word & (bit - 1));
            }
            if (place < 0)
                continue;
            if (place >= one->last)
                return OUTSIDE;
            const uint64_t code = code_at(own, place);
            if (code >= (uint64_t)own->codes_end)
                return OUTSIDE;
            row[i] += own->impacts[code] * weights[number];
        }
    }
    return 0;
}

#define COARSE 3

/* Hamming distances over the coarse words of some codes. These are stored word by word, `stride` codes each. */
BODY void coarse_distances(const uint64_t *codes, int64_t stride, int64_t count, const uint64_t *signs,
                           uint8_t *distances)
{
    const uint64_t *one = codes, *two = codes + stride, *three = codes + 2 * stride;
    const uint64_t first = signs[0], second = signs[1], third = signs[2];
    for (int64_t i = 0; i < count; i++)
        distances[i] = (uint8_t)(__builtin_popcountll(one[i] ^ first) + __builtin_popcountll(two[i] ^ second) +
                                 __builtin_popcountll(three[i] ^ third));
}

/* The number of distances that are at most `furthest`. */
BODY int64_t count_within(const uint8_t *distances, int64_t count, uint8_t furthest)
{
    int64_t found = 0;
    for (int64_t start = 0; start < count; start += 128) {
        const int64_t end = start + 128 < count ? start + 128 : count;
        uint8_t near = 0;
        for (int64_t i = start; i < end; i++)
            near += distances[i] <= furthest;
        found += near;
    }
    return found;
}

/* The places, ascending, of all distances below `radius`, and of those equal to it while there is room. */
BODY int64_t rows_within(const uint8_t *distances, int64_t count, uint8_t radius, int64_t room, int64_t *rows)
{
    int64_t found = 0, tied = room - (radius ? count_within(distances, count, radius - 1) : 0);
    for (int64_t start = 0; start < count; start += BLOCK) {
        const int64_t end = start + BLOCK < count ? start + BLOCK : count;
        int any = 0;
        for (int64_t i = start; i < end; i++)
            any |= distances[i] <= radius;
        if (!any)
            continue;
        for (int64_t i = start; i < end && found < room; i++)
            if (distances[i] < radius || (distances[i] == radius && tied-- > 0))
                rows[found++] = i;
    }
    return found;
}

#define AHEAD 4

/* For the chosen rows, the sum of the weights (0 to 3, in two bit planes) of all bits that differ. The words of a code
 * that are not in `coarse` are contiguous in `fine`. */
BODY void weighted_distances(const uint64_t *coarse, const uint64_t *fine, int64_t stride, int64_t words,
                             const uint64_t *signs, const uint64_t *high, const uint64_t *low, const int64_t *rows,
                             int64_t chosen, uint32_t *distances)
{
    const int64_t others = words - COARSE;
    for (int64_t i = 0; i < chosen; i++) {
        const uint64_t *first = coarse + rows[i], *rest = fine + rows[i] * others;
        uint64_t heavy = 0, light = 0;
        if (i + AHEAD < chosen)
            __builtin_prefetch(fine + rows[i + AHEAD] * others);
        for (int64_t word = 0; word < COARSE; word++) {
            const uint64_t differ = first[word * stride] ^ signs[word];
            heavy += (uint64_t)__builtin_popcountll(differ & high[word]);
            light += (uint64_t)__builtin_popcountll(differ & low[word]);
        }
        for (int64_t word = COARSE; word < words; word++) {
            const uint64_t differ = rest[word - COARSE] ^ signs[word];
            heavy += (uint64_t)__builtin_popcountll(differ & high[word]);
            light += (uint64_t)__builtin_popcountll(differ & low[word]);
        }
        distances[i] = (uint32_t)(2 * heavy + light);
    }
}

/* The `rank`-th smallest value, counted from 1. */
static uint32_t at_rank(const uint32_t *values, int64_t count, int64_t rank, uint32_t *often, int64_t largest)
{
    uint32_t value = 0;
    memset(often, 0, (size_t)(largest + 1) * sizeof *often);
    for (int64_t i = 0; i < count; i++)
        often[values[i]]++;
    for (int64_t before = 0; (before += often[value]) < rank; value++)
        ;
    return value;
}

/* How far beyond a distance the noise reaches: `_slack` in vector_scoring.py. */
static inline double slack(double share, double squares, double deviations)
{
    return deviations * sqrt(squares * share * (share < 1.0 ? 1.0 - share : 0.0));
}

/* A Hadamard transform in place, of `size` values, a power of two. */
static void transform(double *values, int64_t size)
{
    for (int64_t half = 1; half < size; half *= 2)
        for (int64_t start = 0; start < size; start += 2 * half)
            for (int64_t i = start; i < start + half; i++) {
                const double one = values[i], other = values[i + half];
                values[i] = one + other;
                values[i + half] = one - other;
            }
}

/* A rotation in place: `rotate_query` in vector_codes.py. All sums are exact, so their order does not matter. */
void loom_turn(double *values, const float *flips, int64_t width, int64_t size, double steps, double step)
{
    for (int64_t round = 0; round < 2; round++) {
        for (int64_t i = 0; i < width; i++)
            values[i] *= flips[round * width + i];
        for (int64_t start = 0;; start = width - size) {
            transform(values + start, size);
            for (int64_t i = start; i < start + size; i++)
                values[i] = rint(values[i] * steps) * step;
            if (start == width - size)
                break;
        }
    }
}

/* The limits of a scan of codes: ScanLimits in kernels.py. */
typedef struct {
    int64_t rank, kept, scored; /* the rank that is measured from, and the most rows after each pass */
    double coarse_deviations, weighted_deviations;
} looks;

/* A query's bits, and their weights, 0 to 3, in two planes: `_levels` in vector_scoring.py. */
static void code_query(const float *query, int64_t words, uint64_t *signs, uint64_t *high, uint64_t *low)
{
    double sum = 0.0;
    for (int64_t i = 0; i < 64 * words; i++)
        sum += fabsf(query[i]);
    const float step = (float)(0.7 * (sum / (double)(64 * words)));
    for (int64_t word = 0; word < words; word++) {
        signs[word] = high[word] = low[word] = 0;
        for (int bit = 0; bit < 64; bit++) {
            const float value = query[64 * word + bit], times = step == 0.0f ? 1.0f : rintf(fabsf(value) / step);
            const uint64_t level = times < 3.0f ? (uint64_t)times : 3;
            signs[word] |= (uint64_t)(value > 0.0f) << bit;
            high[word] |= (level >> 1) << bit;
            low[word] |= (level & 1) << bit;
        }
    }
}

/* A range of rows. */
typedef struct {
    int64_t first, last;
} span;

/* The rows of some spans (ascending) that may be among the nearest, ascending, by two passes over their codes. Returns
 * their number. There is room for `kept` rows, and in `scratch` for the query's bits in three planes, for `kept` sums,
 * for `3 * 64 * words + 1` counts, and for a distance for each row of the spans. */
BODY int64_t rows_by_code_body(const uint64_t *coarse, const uint64_t *fine, int64_t stride, int64_t words,
                               const span *spans, int64_t span_count, const float *query, const looks *asked,
                               int64_t *rows, uint64_t *scratch)
{
    uint64_t *const signs = scratch, *const heavy = scratch + words, *const light = scratch + 2 * words;
    uint32_t *const sums = (uint32_t *)(scratch + 3 * words), *const often = sums + asked->kept;
    uint8_t *const distances = (uint8_t *)(often + 3 * 64 * words + 1);
    const double bits = COARSE * 64;
    code_query(query, words, signs, heavy, light);
    int64_t count = 0;
    for (int64_t i = 0; i < span_count; i++) {
        const int64_t size = spans[i].last - spans[i].first;
        coarse_distances(coarse + spans[i].first, stride, size, signs, distances + count);
        count += size;
    }
    int low = 0, high = COARSE * 64; /* find the least distance that `rank` rows are within */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (count_within(distances, count, (uint8_t)middle) < asked->rank)
            low = middle + 1;
        else
            high = middle;
    }
    int radius = (int)(low + slack(low / bits, bits, asked->coarse_deviations));
    while (radius > low && count_within(distances, count, (uint8_t)radius) > asked->kept)
        radius--;
    const int64_t near = rows_within(distances, count, (uint8_t)radius, asked->kept, rows);
    const span *within = spans;
    for (int64_t i = 0, before = 0; i < near; i++) { /* from places among all distances to rows */
        while (rows[i] - before >= within->last - within->first) {
            before += within->last - within->first;
            within++;
        }
        rows[i] += within->first - before;
    }
    weighted_distances(coarse, fine, stride, words, signs, heavy, light, rows, near, sums);
    double total = 0.0, squares = 0.0;
    for (int64_t word = 0; word < words; word++) {
        const int threes = __builtin_popcountll(heavy[word] & light[word]);
        const int twos = __builtin_popcountll(heavy[word]) - threes;
        const int ones = __builtin_popcountll(light[word]) - threes;
        total += 3 * threes + 2 * twos + ones;
        squares += 9 * threes + 4 * twos + ones;
    }
    const int64_t scored = asked->scored < near ? asked->scored : near;
    const double nth = at_rank(sums, near, asked->rank, often, 3 * 64 * words);
    const double last = at_rank(sums, near, scored, often, 3 * 64 * words);
    const double furthest = nth + slack(nth / total, squares, asked->weighted_deviations);
    int64_t found = 0;
    for (int64_t i = 0; i < near; i++)
        if (sums[i] <= furthest && sums[i] <= last)
            rows[found++] = rows[i];
    return found;
}

IN_EACH_WIDTH(int64_t, rows_by_code,
              (const uint64_t *coarse, const uint64_t *fine, int64_t stride, int64_t words, const span *spans,
               int64_t span_count, const float *query, const looks *asked, int64_t *rows, uint64_t *scratch),
              (coarse, fine, stride, words, spans, span_count, query, asked, rows, scratch))

typedef int16_t halves16 __attribute__((vector_size(32)));
typedef int32_t words16 __attribute__((vector_size(64)));
typedef float floats16 __attribute__((vector_size(64)));
typedef int16_t halves8 __attribute__((vector_size(16)));
typedef int32_t words8 __attribute__((vector_size(32)));
typedef float floats8 __attribute__((vector_size(32)));
typedef double doubles8 __attribute__((vector_size(64)));

/* Eight float16 as float64. Their bits, shifted into a float32, give a value that is too small by the factor 2^112.
 * Widening repeats the sign bit; only the topmost copy is kept. */
BODY void widen(const uint16_t *halves, int64_t count, doubles8 *values)
{
    halves8 eight = {0};
    memcpy(&eight, halves, (size_t)count * sizeof *halves);
    const words8 moved = (__builtin_convertvector(eight, words8) << 13) & (int32_t)0x8fffffff;
    *values = __builtin_convertvector((floats8)moved, doubles8) * 0x1p112;
}

/* Prefetch a row while others are processed. */
static inline void fetch(const uint16_t *halves, int64_t dimensions, const int64_t *rows, int64_t chosen, int64_t i)
{
    if (i < chosen)
        for (int64_t j = 0; j < dimensions; j += 32)
            __builtin_prefetch(halves + rows[i] * dimensions + j);
}

/* Products of float16 rows with a query in float32, summed in no particular order. The query was multiplied by 2^112,
 * the factor that the rows are too small by. */
BODY void near_products_body(const uint16_t *halves, int64_t dimensions, const int64_t *rows, int64_t chosen,
                             const float *query, float *products)
{
    for (int64_t i = 0; i < chosen; i++) {
        const uint16_t *row = halves + rows[i] * dimensions;
        floats16 product = {0};
        fetch(halves, dimensions, rows, chosen, i + AHEAD);
        for (int64_t j = 0; j < dimensions; j += 16) {
            const int64_t count = dimensions - j < 16 ? dimensions - j : 16;
            halves16 sixteen = {0};
            floats16 asked = {0};
            if (count == 16) {
                memcpy(&sixteen, row + j, sizeof sixteen);
                memcpy(&asked, query + j, sizeof asked);
            } else {
                memcpy(&sixteen, row + j, (size_t)count * sizeof *row);
                memcpy(&asked, query + j, (size_t)count * sizeof *query);
            }
            const words16 moved = (__builtin_convertvector(sixteen, words16) << 13) & (int32_t)0x8fffffff;
            product += (floats16)moved * asked;
        }
        products[i] = 0.0f;
        for (int lane = 0; lane < 16; lane++)
            products[i] += product[lane];
    }
}

IN_EACH_WIDTH(void, near_products,
              (const uint16_t *halves, int64_t dimensions, const int64_t *rows, int64_t chosen, const float *query,
               float *products),
              (halves, dimensions, rows, chosen, query, products))

/* Cosines of float16 rows and a query of unit length, in float64; 0 for a row of zeros. All partial sums are exact
 * (see `_QUERY_STEP` in vector_codes.py), so their order does not matter. */
BODY void cosines_body(const uint16_t *halves, int64_t dimensions, const int64_t *rows, int64_t chosen,
                       const double *query, double *cosines)
{
    for (int64_t i = 0; i < chosen; i++) {
        const uint16_t *row = halves + rows[i] * dimensions;
        doubles8 products = {0}, squares = {0};
        fetch(halves, dimensions, rows, chosen, i + AHEAD);
        for (int64_t j = 0; j < dimensions; j += 8) {
            const int64_t count = dimensions - j < 8 ? dimensions - j : 8;
            doubles8 values, asked = {0};
            if (count == 8) {
                widen(row + j, 8, &values);
                memcpy(&asked, query + j, sizeof asked);
            } else {
                widen(row + j, count, &values);
                memcpy(&asked, query + j, (size_t)count * sizeof *query);
            }
            products += values * asked;
            squares += values * values;
        }
        double product = 0.0, square = 0.0;
        for (int lane = 0; lane < 8; lane++) {
            product += products[lane];
            square += squares[lane];
        }
        const double cosine = product / sqrt(square == 0.0 ? 1.0 : square);
        cosines[i] = cosine > 1.0 ? 1.0 : cosine < -1.0 ? -1.0 : cosine;
    }
}

IN_EACH_WIDTH(void, cosines,
              (const uint16_t *halves, int64_t dimensions, const int64_t *rows, int64_t chosen, const double *query,
               double *cosines),
              (halves, dimensions, rows, chosen, query, cosines))

#include "program/places.h"

const char *places_word(int64_t layout) {
    return layout == PLACES_CONTIGUOUS ? "contiguous" : layout == PLACES_ZIGZAG ? "zigzag" : "striped";
}

int64_t places_step(int64_t layout) {
    return layout == PLACES_ZIGZAG ? 2 : MAX(layout, 1);
}

int64_t places_rows(int64_t layout, int64_t parts, int64_t tokens) {
    return round_up(divide_up(tokens, parts), places_step(layout));
}

struct places places_shared(int64_t layout, int64_t parts, int64_t ranks, int64_t tokens) {
    int64_t rows = places_rows(layout, parts, tokens);
    while (rows % ranks)
        rows += places_step(layout);
    return (struct places){layout, parts, rows};
}

int64_t place_of(const struct places *p, int64_t part, int64_t row) {
    if (p->layout == PLACES_CONTIGUOUS)
        return part * p->rows + row;
    if (p->layout == PLACES_ZIGZAG) {
        const int64_t half = p->rows / 2;
        return row < half ? part * half + row : (2 * p->parts - 1 - part) * half + row - half;
    }
    return (row / p->layout * p->parts + part) * p->layout + row % p->layout;
}

// How many of `count` neighbours from `first` on are below `place`.
static int64_t count_below(int64_t first, int64_t count, int64_t place) {
    return MIN(MAX(place - first, 0), count);
}

int64_t places_below(const struct places *p, int64_t part, int64_t place) {
    if (p->layout == PLACES_CONTIGUOUS)
        return count_below(part * p->rows, p->rows, place);
    if (p->layout == PLACES_ZIGZAG) {
        const int64_t half = p->rows / 2;
        return count_below(part * half, half, place) + count_below((2 * p->parts - 1 - part) * half, half, place);
    }
    const int64_t round = p->parts * p->layout, rounds = MIN(MAX(place, 0) / round, p->rows / p->layout);
    return MIN(rounds * p->layout + count_below(rounds * round + part * p->layout, p->layout, place), p->rows);
}

// How many rows of a part have places that are neighbours.
static int64_t neighbours_of(const struct places *p) {
    return p->layout == PLACES_CONTIGUOUS ? p->rows : p->layout == PLACES_ZIGZAG ? p->rows / 2 : p->layout;
}

// Of as many queries as keys, neighbours both, where the first query is `ahead` of the first key: the keys up to its
// own that each sees, in sum.
static int64_t pairs_up_to(int64_t ahead, int64_t count) {
    int64_t sum[2]; // over all queries before the first, and before the end, from where the first key is seen
    for (int i = 0; i < 2; i++) {
        const int64_t queries = MAX(ahead + i * count, 0), few = MIN(queries, count);
        sum[i] = few * (few + 1) / 2 + (queries - few) * count;
    }
    return sum[1] - sum[0];
}

static int64_t pairs_of_neighbours(int64_t ahead, int64_t count, int64_t window) {
    return pairs_up_to(ahead, count) - (window > 0 ? pairs_up_to(ahead - window, count) : 0);
}

// Where a part's first stripe is `ahead` of the other's: as many stripes as there are, less `later`, are so many
// stripes later than one of keys. From one later on they see all of it, while the window is long enough.
static int64_t pairs_of_stripes(const struct places *p, int64_t ahead, int64_t window) {
    const int64_t each = p->layout, stripes = p->rows / each, round = p->parts * each,
                  partly = window > 0 ? MIN(MAX((window - ahead - each) / round + 1, 1), stripes) : stripes;
    int64_t pairs = ((partly - 1) * stripes - partly * (partly - 1) / 2) * each * each, later = 0;
    do {
        pairs += (stripes - later) * pairs_of_neighbours(ahead + later * round, each, window);
        later = MAX(later + 1, partly);
    } while (later < stripes && ahead + later * round < window + each);
    return pairs;
}

int64_t places_pairs(const struct places *p, int64_t queries, int64_t keys, int64_t window) {
    const int64_t each = neighbours_of(p);
    int64_t pairs = 0;
    if (p->layout > 0)
        return pairs_of_stripes(p, (queries - keys) * each, window);
    for (int64_t q = 0; q < p->rows; q += each)
        for (int64_t k = 0; k < p->rows; k += each)
            pairs += pairs_of_neighbours(place_of(p, queries, q) - place_of(p, keys, k), each, window);
    return pairs;
}

// The keys that the first `count` tokens of a sequence see, in sum.
static int64_t seen_by_first(int64_t count, int64_t window) {
    const int64_t few = window > 0 ? MIN(count, window) : count;
    return few * (few + 1) / 2 + (count - few) * window;
}

int64_t places_seen(const struct places *p, int64_t queries, int64_t window) {
    const int64_t each = neighbours_of(p);
    int64_t pairs = 0;
    for (int64_t row = 0; row < p->rows; row += each) {
        const int64_t first = place_of(p, queries, row);
        pairs += seen_by_first(first + each, window) - seen_by_first(first, window);
    }
    return pairs;
}

// Whether queries of one part see a key of another: the first of the last neighbours among them does if any does. Those
// after it see nothing more of other parts. In stripes those before see no part that is not as far from it; in zigzag
// all parts are within reach, or none.
static bool places_meet(const struct places *p, int64_t queries, int64_t keys, int64_t window) {
    const int64_t place = place_of(p, queries, p->rows - neighbours_of(p));
    return places_below(p, keys, place) > (window > 0 ? places_below(p, keys, place - window + 1) : 0);
}

int64_t places_before(const struct places *p, int64_t own, int64_t distance, int64_t inner) {
    const int64_t ring = inner > 0 ? inner : p->parts, rings = p->parts / ring;
    return (own % ring + ring - distance % ring) % ring +
           ring * ((own / ring + rings - distance / ring % rings) % rings);
}

int64_t places_reach(const struct places *p, int64_t window) {
    for (int64_t distance = p->parts - 1; distance > 0; distance--)
        for (int64_t part = 0; part < p->parts; part++)
            if (places_meet(p, part, (part - distance + p->parts) % p->parts, window))
                return distance;
    return 0;
}

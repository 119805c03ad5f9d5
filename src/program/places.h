// Which tokens of a sequence the rows of ranks are that share it (context parallelism). Rows of a rank are in the order
// of their tokens. So those that lie in a range of places are neighbours.
//
//   contiguous   rank r has the r-th of P blocks
//   zigzag       of 2 P blocks the r-th and the r-th from the end: under a causal mask all ranks have the same work
//                (Llama Team, "The Llama 3 Herd of Models", arXiv 2407.21783, section 3.3.2)
//   striped      of stripes of w tokens every P-th (Brandon et al., "Striped Attention", arXiv 2311.09431)
#ifndef PROGRAM_PLACES_H
#define PROGRAM_PLACES_H

#include "base/base.h"

// An attribute of rows that attend over parts: one of these, or the width of stripes.
enum { PLACES_CONTIGUOUS = 0, PLACES_ZIGZAG = -1 };

struct places {
    int64_t layout;
    int64_t parts; // P, 1 or more
    int64_t rows;  // of each part: a multiple of places_step
};

// "contiguous", "zigzag" or "striped".
const char *places_word(int64_t layout);
// What the rows of a part are a multiple of.
int64_t places_step(int64_t layout);
// Rows of each part of a sequence of so many tokens: as few as it takes. The last places may be beyond the sequence.
int64_t places_rows(int64_t layout, int64_t parts, int64_t tokens);
// The same where `ranks` ranks share each part, and have equally many of its rows.
struct places places_shared(int64_t layout, int64_t parts, int64_t ranks, int64_t tokens);

// The place in the sequence of row `row` of part `part`.
int64_t place_of(const struct places *places, int64_t part, int64_t row);
// How many rows of the part have places below `place`.
int64_t places_below(const struct places *places, int64_t part, int64_t place);

// How many pairs of a query of one part and a key of another a causal mask allows in a sequence of one document, where
// a token sees `window` places, its own included (0: all up to its own).
int64_t places_pairs(const struct places *places, int64_t queries, int64_t keys, int64_t window);
// The same of a part's queries and the keys of all parts: the sum of places_pairs over these.
int64_t places_seen(const struct places *places, int64_t queries, int64_t window);
// The part that is `distance` before part `own`, wrapping around. Where parts lie in inner rings of `inner` neighbours
// each, 0: all in one, a distance i + inner * j is i in the inner ring and j from ring to ring, each of which wraps
// around by itself.
int64_t places_before(const struct places *places, int64_t own, int64_t distance, int64_t inner);

// The largest distance d < parts for which some part has a pair with the part d before it (wrapping around). Where
// parts are told apart by nothing but that distance, those further away need not meet.
int64_t places_reach(const struct places *places, int64_t window);

#endif

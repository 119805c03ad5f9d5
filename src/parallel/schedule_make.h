// What the makers of schedules share, for the files schedule*.c alone. A maker fills the lists of an empty table and is
// a pure function of the table's numbers and of the options, which schedule_create has completed and checked.
#ifndef PARALLEL_SCHEDULE_MAKE_H
#define PARALLEL_SCHEDULE_MAKE_H

#include "parallel/schedule.h"

#define SCHEDULE(maker, ...) void schedule_make_##maker(struct schedule *s, const struct schedule_options *o);
#include "parallel/schedules.def"
#undef SCHEDULE

// Two chunks placed there and back, holding at most `limit` chunks.
void schedule_make_v(struct schedule *s, const struct schedule_options *o, int limit);

// An empty table whose virtual stages go through the ranks to the last and back to the first, over and over.
void schedule_begin_there_and_back(struct schedule *s, int stages, int microbatches, int chunks);

// An empty table of the numbers and the placement of another.
struct schedule schedule_empty_like(const struct schedule *s);
// Adds the forwards in `order` to a rank's list, `ahead` of them alone and then with a backward behind each: of the
// same microbatches, and of the chunks counted from the last.
void schedule_add_alternating(struct schedule *s, int rank, const struct pass *order, int count, int ahead,
                              enum pass_kind backward);
// Exchanges the lists of two tables of the same numbers and placement.
void schedule_swap(struct schedule *a, struct schedule *b);

// ---- filling a plan (schedule_fill.c)

// A plan has the forwards and the backwards for the input of each rank in some order, each chunk's in the order of
// microbatches; weights' passes all, or none and leaves them to whoever fills it. A filler goes by the clock: a rank
// does the next pass of its plan as soon as that can be; while it cannot, it does one which the plan has later and
// which is ready, or the weights' pass that has waited longest; and when there is no room for the plan's next forward,
// weights' passes make it. What is done early never takes memory that the plan needs before, so that a plan which comes
// to an end within the limit does so whatever is done early.
struct fill_rank {
    double patience;    // a rank would rather wait than begin a weights' pass too long for the gap, up to this in all
    double overrun;     // how much longer than the gap an early pass of the plan may be, in its own length
    bool weights_first; // in a gap, when there is no room for a forward: a weights' pass rather than an early one
};

struct fill {
    struct schedule_times times;
    double limit;                 // (chunk, microbatch) that a rank may hold
    double weight_share;          // what counts of one between its backward for the input and its weights' pass
    const struct fill_rank *rank; // [stages]
    bool in_line; // all forwards of a rank stay in the plan's order, whatever their chunk, and all backwards
};

// A plan for the empty table: each rank's passes by a time. A microbatch's pass of a virtual stage is at
// when[virtual stage][forward, backward, weights: negative: not planned], the next one's `interval` later. Times grow
// along a microbatch's way, so that the plan comes to an end; how many forwards a rank is ahead of its backwards at
// most is returned.
int plan_by_time(struct schedule *plan, const int (*when)[3], int interval);

struct fill_cost {
    double most; // the cost of schedule_cost: INFINITY if the plan does not come to an end within the limit
    double sum;  // over ranks, of what `most` is the largest of
};

// Adds the passes to the empty lists of `filled`, which have no meaning where the plan does not come to an end.
struct fill_cost schedule_fill(const struct schedule *plan, const struct fill *how, struct schedule *filled);

// ---- searching plans and ways to fill them (schedule_search.c)

struct schedule_search {
    struct fill fill;
    double work;            // of each rank
    double bound;           // no schedule costs less
    double best_cost;       // INFINITY while there is none
    struct schedule best;   // filled
    struct fill_cost cost;  // where the search stands
    struct schedule plan;   // which gives it
    struct fill_rank *rank; // filled so: [stages]
    double passes_left;     // of what may be tried
};

// `like` is an empty table; a rank may hold `limit` of (chunk, microbatch).
void search_begin(struct schedule_search *s, const struct schedule *like, const struct schedule_options *o,
                  double limit);
// Fills each of some plans in two ways, at `most` so many of them, the best, in more, and changes each of these here
// and there as long as that helps. Releases the plans.
void search_plans(struct schedule_search *s, struct schedule *plan, size_t count, size_t most);
// The best goes to the empty table, if there is one.
bool search_end(struct schedule_search *s, struct schedule *out);

// ---- and then (schedule_polish.c)

// Of one chunk to a rank, with backward in two parts: moves passes, one at a time, as long as that makes it cheaper
// within the options' limit. Tries up to so many passes, as a search counts them; returns how many are left.
double schedule_polish(struct schedule *s, const struct schedule_options *o, double passes);

#endif

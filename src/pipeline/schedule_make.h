// What the makers of schedules share. For the files schedule*.c alone. A maker fills the lists of an empty table and is
// a pure function of the table's numbers and of the options, which schedule_create has completed and checked.
#ifndef PIPELINE_SCHEDULE_MAKE_H
#define PIPELINE_SCHEDULE_MAKE_H

#include "pipeline/schedule.h"

#define SCHEDULE(maker, ...) void schedule_make_##maker(struct schedule *s, const struct schedule_options *o);
#include "pipeline/schedules.def"
#undef SCHEDULE

// A schedule of two chunks, placed there and back, in which a rank holds at most `limit` of (chunk, microbatch).
void schedule_make_v(struct schedule *s, const struct schedule_options *o, int limit);

// An empty table whose virtual stages go through the ranks to the last and back to the first, over and over.
void schedule_begin_there_and_back(struct schedule *s, int stages, int microbatches, int chunks);

// An empty table with the numbers and the placement of another.
struct schedule schedule_empty_like(const struct schedule *s);
// Adds the forwards in `order[count]` to a rank's list: the first `ahead` alone, each further one followed by the next
// backward. Backwards go through the same microbatches in the same order, with chunks counted from the last.
void schedule_add_alternating(struct schedule *s, int rank, const struct pass *order, int count, int ahead,
                              enum pass_kind backward);
// Exchanges the lists of two tables of the same numbers and placement.
void schedule_swap(struct schedule *a, struct schedule *b);

// ---- filling a plan (schedule_fill.c)

// A plan has the forwards and the backwards for the input of each rank in some order, each chunk's in the order of
// microbatches; it has all weights' passes, or none, which leaves them to the filler. Filling goes by the clock. A rank
// does the next pass of its plan as soon as it is ready; in a gap before that it does a pass which the plan has later
// and which is ready, or the weights' pass that has waited longest; and when there is no room for the plan's next
// forward, it does weights' passes, which free some. A pass that is done early never takes memory that passes before it
// in the plan need: so early passes cannot keep a plan that fits into the limit from coming to its end.
struct fill_rank {
    double patience;    // for this long in all a rank waits rather than begin a weights' pass longer than the gap
    double overrun;     // by how much an early pass of the plan may be longer than the gap, in its own length
    bool weights_first; // in a gap, without room for a forward: a weights' pass rather than an early pass of the plan
};

struct fill {
    struct schedule_times times;
    double limit;                 // (chunk, microbatch) that a rank may hold
    double weight_share;          // as in schedule_options
    const struct fill_rank *rank; // [stages]
    bool in_line; // all forwards of a rank stay in the plan's order, whatever their chunk, and all backwards
};

// Fills the empty table with a plan in which each rank's passes are ordered by time. The passes of microbatch 0 of a
// virtual stage are at when[virtual stage][0, 1, 2: forward, backward, weights; a negative one is not planned], those
// of each next microbatch `interval` later. Times must grow along a microbatch's way, so that the plan comes to its
// end. Returns by how many forwards any rank is ahead of its backwards at most.
int plan_by_time(struct schedule *plan, const int (*when)[3], int interval);

struct fill_cost {
    double most; // the cost of schedule_cost: INFINITY if the plan does not come to its end within the limit
    double sum;  // over ranks, where `most` is the maximum
};

// Adds the passes to the empty lists of `filled`, which have no meaning where the plan does not come to its end.
struct fill_cost schedule_fill(const struct schedule *plan, const struct fill *how, struct schedule *filled);

// ---- searching plans and ways to fill them (schedule_search.c)

struct schedule_search {
    struct fill fill;
    double work;            // of each rank
    double bound;           // no schedule costs less
    double best_cost;       // INFINITY while nothing was found
    struct schedule best;   // filled
    struct fill_cost cost;  // of the plan where the search stands
    struct schedule plan;   // where the search stands
    struct fill_rank *rank; // [stages]: how that plan is filled
    double passes_left;     // that may be tried
};

// `like` is an empty table; a rank may hold `limit` of (chunk, microbatch).
void search_begin(struct schedule_search *s, const struct schedule *like, const struct schedule_options *o,
                  double limit);
// Fills each of plan[count] in two ways, then the best of them, at most `most`, in many, and changes each of those here
// and there as long as that helps. Releases the plans.
void search_plans(struct schedule_search *s, struct schedule *plan, size_t count, size_t most);
// Moves the best schedule to the empty table; false if there is none. Ends the search.
bool search_end(struct schedule_search *s, struct schedule *out);

// ---- and then (schedule_polish.c)

// For schedules of one chunk to a rank with backward in two parts: moves passes, one at a time, as long as that makes
// the schedule cheaper within the options' limit. May try `passes` passes, counted as in a search; returns how many of
// them are left.
double schedule_polish(struct schedule *s, const struct schedule_options *o, double passes);

#endif

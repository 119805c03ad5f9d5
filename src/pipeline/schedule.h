// Pipeline schedules: what each rank of a pipeline does, in which order, as a table made by a pure function. Includes
// base/ only; emits nothing and runs nothing: compile/ orders templates by it, sim/ and planner/ compare costs.
//
// A model is cut into stages x chunks *virtual stages*, which a microbatch passes in order. Each rank of the pipeline
// holds `chunks` of them. A *pass* is the forward or backward of one chunk for one microbatch; backward is one pass, or
// two: for the input (what the previous virtual stage waits for), and later for the weights (which nobody waits for).
//
// Text form, one line per rank from rank 0 on; `#` begins a comment, empty lines do not count:
//
//     placement 0 1 1 0                # rank of each virtual stage, first to last; may be left out with one chunk
//     F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0
//     F0.0 F0.1 F1.0 I0.1 F1.1 I0.0 W0.1 B1.1 W0.0 B1.0
//
// A pass is a letter, the microbatch, and with several chunks to a rank a dot and the chunk: F forward, B backward, I
// backward for the input alone, W for the weights. Chunks of one rank are numbered in the order of their virtual
// stages.
//
// Where the vocabulary is spread over the ranks (Yeung et al., "Balancing Pipeline Parallelism with Vocabulary
// Parallelism", 2024, with one barrier), each rank does four more passes for each microbatch, on its part of the
// vocabulary. They belong to no chunk. E, before the first virtual stage's forward, embeds. L, after the last virtual
// stage's forward, makes logits, loss and, together with the L of all other ranks, the gradient that the last backward
// begins with. T, some time later, makes the gradient of the head's weights; and G, after T and the first virtual
// stage's backward, the embedding's.
#ifndef PIPELINE_SCHEDULE_H
#define PIPELINE_SCHEDULE_H

#include "base/base.h"
#include "base/text.h"

enum pass_kind {
    PASS_FORWARD,         // F
    PASS_BACKWARD,        // B: for the input and the weights
    PASS_BACKWARD_INPUT,  // I
    PASS_BACKWARD_WEIGHT, // W
    PASS_EMBED,           // E: these four where the vocabulary is spread
    PASS_LOSS,            // L
    PASS_LOSS_WEIGHT,     // T
    PASS_EMBED_WEIGHT,    // G
    PASS_KINDS
};
// The letter of each kind.
#define PASS_LETTERS "FBIWELTG"

struct pass {
    enum pass_kind kind;
    int chunk, microbatch;
};

// Room for the text of one pass.
enum { PASS_TEXT = 32 };

// Passes of all ranks together.
#define SCHEDULE_PASSES_MAX ((size_t)1 << 24)
// Bytes of a schedule file.
#define SCHEDULE_BYTES_MAX ((size_t)1 << 28)

// Seconds, or any other unit, of one chunk and one microbatch.
struct schedule_times {
    double forward, backward_input, backward_weight; // B takes the sum of the last two
    double latency;                                  // from the end of a pass to its use by another rank
    double embed, loss, loss_weight, embed_weight;   // of one rank's part of the vocabulary
    // The part of `latency` for which a message keeps the link between its two ranks busy, so that the next one waits;
    // 0: any number of messages travel at once.
    double link;
};

// The time of all passes of a chunk, and of all passes on a rank's part of the vocabulary, for one microbatch.
static inline double schedule_chunk_time(const struct schedule_times *t) {
    return t->forward + t->backward_input + t->backward_weight;
}
static inline double schedule_vocabulary_time(const struct schedule_times *t) {
    return t->embed + t->loss + t->loss_weight + t->embed_weight;
}

// What a schedule is made from besides its numbers of stages and microbatches. Zero everywhere gives each schedule's
// defaults.
struct schedule_options {
    int chunks;           // of each rank; 0: the schedule's default
    int waves;            // hanayo only; 0: chunks / 2
    int activation_limit; // auto only: microbatches, counted over all chunks of a rank, that it may hold; 0: 2 * stages
    // auto only, in (0, 1]; 0: a half. What a microbatch counts for between its backward for the input and the one for
    // the weights. Qi et al., "Zero Bubble Pipeline Parallelism", 2024, count so: the first backward frees all that the
    // second does not need.
    double weight_share;
    // Times that zb-v, v-half, v-min, hanayo and auto are fitted to. All 0: F = B = W = 1 without latency.
    struct schedule_times times;
    int64_t search_passes; // passes that fitting may try, over all its trials; 0: 20 million, about 2 seconds
};

struct schedule_place {
    int rank, chunk;
};

struct schedule_rank {
    VEC(struct pass);
    int line; // of the text that it was read from; else 0
};

struct schedule {
    int stages;                      // ranks of the pipeline
    int chunks;                      // of each rank
    int microbatches;                // of one step
    bool vocabulary;                 // whether it is spread over the ranks
    struct schedule_place *place;    // of each virtual stage: [stages * chunks]
    int *virtual_stage;              // the reverse: [rank * chunks + chunk]
    struct schedule_rank *rank;      // [stages]
    int (*on_way)[2];                // schedule_count_on_way's, [stages * chunks], NULL: not counted
    struct schedule_options options; // of auto, completed; zero for all others
};

// ---- making one

// The defaults of schedule_options.
#define SCHEDULE_WEIGHT_SHARE .5
enum { SCHEDULE_SEARCH_PASSES = 20000000 };

// The schedule called `name`, one of schedules.def, verified; options NULL are zero everywhere. auto with two chunks is
// placed like interleaved or like zb-v, whichever is better, and is no worse than any of interleaved, zb-v, v-half and
// v-min that its limit admits.
// In every schedule each chunk does its forwards, and its backwards, in the order of microbatches: so sums over
// microbatches have the bits of one rank's, and messages between two ranks match in order.
// TRIREME_ERROR_USAGE: an unknown name, a number out of range, options that the schedule does not have.
trireme_status schedule_create(struct schedule *schedule, const char *name, int stages, int microbatches,
                               const struct schedule_options *options, trireme_error *error);
// The same, where `name` may also be the path of a file with a schedule's text, which must have these numbers (any
// number of chunks where options->chunks is 0). Messages about a file's text do not name the file: the caller does.
trireme_status schedule_load(struct schedule *schedule, const char *name, int stages, int microbatches,
                             const struct schedule_options *options, trireme_error *error);
// Puts the passes E, L, T and G of a spread vocabulary into a verified schedule that has none yet. Backwards are
// delayed until after the forwards of up to two more microbatches, so that all ranks have time to reach the loss. A
// rank then holds that many more microbatches, and, where a message takes as long as the passes of several, also those
// that begin while it travels. auto keeps to its activation limit: either the schedule itself is spread, or one that is
// made anew with a lower limit, whose search takes as long again.
void schedule_spread_vocabulary(struct schedule *schedule, const struct schedule_times *times);
// A deep copy.
struct schedule schedule_copy(const struct schedule *schedule);
void schedule_release(struct schedule *schedule);

enum schedule_properties { SCHEDULE_PLANNED = 1, SCHEDULE_GROUPS = 2, SCHEDULE_WAVES = 4, SCHEDULE_LIMIT = 8 };

// What holds of all schedules of one name: a row of schedules.def, where its columns are explained.
struct schedule_kind {
    const char *name;
    int chunks, step;
    bool there_and_back;
    unsigned properties; // enum schedule_properties
    const char *torch, *about;
};

// NULL where no schedule has this name; it may then be the path of a file.
const struct schedule_kind *schedule_kind(const char *name);
// Sets options->chunks, and for hanayo options->waves, where they are 0. Refuses numbers that the schedule does not
// have, as schedule_create does.
trireme_status schedule_complete_chunks(const struct schedule_kind *kind, struct schedule_options *options,
                                        trireme_error *error);
// All of them, in the table's order.
const struct schedule_kind *schedule_kinds(size_t *count);
// The names, separated by ", ".
const char *schedule_names(void);
// Appends a line about each, for people.
void schedules_help(struct text *out);

// For makers of schedules: an empty table. `ranks` has the rank of each virtual stage, every rank `chunks` times; with
// NULL, chunk c of rank i is virtual stage c * stages + i.
void schedule_begin(struct schedule *schedule, int stages, int microbatches, int chunks, const int *ranks);
void schedule_add(struct schedule *schedule, int rank, enum pass_kind kind, int chunk, int microbatch);

// ---- text

void schedule_print(const struct schedule *schedule, struct text *text);
// Reads and verifies. TRIREME_ERROR_CORRUPT names the line.
trireme_status schedule_parse(struct schedule *schedule, const char *text, size_t length, trireme_error *error);
// "F3", or "F3.1" with several chunks to a rank.
const char *pass_print(const struct schedule *schedule, struct pass pass, char text[PASS_TEXT]);

// ---- properties of a schedule

// Proves that every chunk does one forward of each microbatch, and after it one backward, whole or in its two parts in
// order; that with a spread vocabulary all ranks do E, L and G, which they do together, in the same order of
// microbatches; and that all ranks come to the end when each does its passes in order, each as soon as what it needs is
// there. A forward needs the forward of the virtual stage before, a backward the backward of the one after; messages
// are buffered without limit. E, L and G need those of all ranks for the microbatch before; L also needs the rank of
// the last virtual stage to reach its L, and G the rank of the first one its G. TRIREME_ERROR_CORRUPT names rank, pass
// and what is wrong or what the pass waits for.
trireme_status schedule_verify(const struct schedule *schedule, trireme_error *error);
// Messages are told apart by their order alone, and go between neighbours only: refuses (TRIREME_ERROR_USAGE) two ranks
// of which one sends messages in another order than the other takes them, and consecutive virtual stages on ranks that
// are not neighbours.
trireme_status schedule_check_messages(const struct schedule *schedule, trireme_error *error);

// The largest number of (chunk, microbatch) pairs whose forward has begun and whose backward, weights included, has not
// ended; the same for each chunk goes to of_chunk[chunks] unless that is NULL. The schedule is verified.
int schedule_in_flight(const struct schedule *schedule, int rank, int *of_chunk);

// The same in microbatches over all chunks of the rank, where a pair whose backward for the input has ended and whose
// backward for the weights has not counts as weight_share. With weight_share 1 it is schedule_in_flight / chunks.
double schedule_activations(const struct schedule *schedule, int rank, double weight_share);

// What microbatches hold slots for, and from which pass of a chunk to which.
enum slots_for {
    // From the forward to the end of the backward, weights included; the lowest free slot is taken.
    SLOTS_FOR_ACTIVATIONS,
    // Likewise from the forward to the end of the backward, for what another rank sends. There is one slot more, or as
    // many more as messages are on their way at a time where that was counted, and the slot is taken that has been free
    // the longest: so a message has somewhere to go before its forward begins. Where the rank itself does the virtual
    // stage before, slots are held from that one's forward on; in the first virtual stage of a spread vocabulary, from
    // E on; in both cases without more slots.
    SLOTS_FOR_INPUTS,
    // For what another rank sends for the backward: from the beginning of the backward to its end, weights included.
    // More slots, taken in turn, as for inputs.
    SLOTS_FOR_GRADIENTS,
    // Of a spread vocabulary, the same slots for all chunks: from L to T.
    SLOTS_FOR_LOSS,
    // The same, with one slot more, taken in turn as for inputs.
    SLOTS_FOR_LOSS_INPUTS,
    // Of a spread vocabulary: on the rank of the first virtual stage from its backward to G, on others for G alone.
    SLOTS_FOR_EMBED_GRADIENT,
};
// Sets on_way: for each virtual stage's forwards [0] and backwards [1], the most messages that are sent and not yet
// taken at any one time, if all passes are equally long. With room for that many, ranks that take their messages in
// another order than they need them do not wait for one another for ever. It counts only where one slot more than are
// held may be too few. One is enough with one chunk to a rank, in V schedules, and in rounds of as many microbatches as
// stages; it may not be for a schedule that was read from a text, or where the vocabulary is spread and ranks have
// several chunks. The schedule is verified; making, reading and spreading a schedule end with this.
void schedule_count_on_way(struct schedule *schedule);
// Whether backwards are in two parts.
bool schedule_splits_backward(const struct schedule *schedule);
// Whether the first and the last virtual stage are on different ranks.
static inline bool schedule_ends_apart(const struct schedule *schedule) {
    return schedule->place[0].rank != schedule->place[schedule->stages * schedule->chunks - 1].rank;
}
// Sets slot[microbatches], the slot of each microbatch, and returns how many slots there are. With forward_only there
// are no backwards: forwards give slots back, and L those of its inputs. The schedule is verified.
int schedule_slots(const struct schedule *schedule, int rank, int chunk, enum slots_for what, bool forward_only,
                   int *slot);

struct schedule_span {
    double start, end;
};

// What a rank computes in a step: microbatches * (chunks * (F + B + W) + E + L + T + G).
double schedule_work(const struct schedule *schedule, const struct schedule_times *times);

struct schedule_cost {
    double cost;                 // the largest over ranks of its last end minus its first start
    double bubble;               // 1 - schedule_work / cost
    struct schedule_span *rank;  // first start and last end: [stages]
    struct schedule_span **pass; // [stages][count of the rank]
    int ranks;                   // stages
};

// Every pass starts as soon as its rank is free and what it needs has come, over links that are busy as times->link
// says. No time is negative, and some time other than the latency is above zero. The schedule is verified.
void schedule_cost(const struct schedule *schedule, const struct schedule_times *times, struct schedule_cost *cost);
// The same for a schedule that is verified except that ranks may wait for one another for ever: then false, and there
// is nothing to release.
bool schedule_finishes(const struct schedule *schedule, const struct schedule_times *times, struct schedule_cost *cost);
void schedule_cost_release(struct schedule_cost *cost);

#endif

// Pipeline schedules: what each rank of a pipeline does, in which order, as a table made by a pure function. Includes
// base/ only; emits nothing and runs nothing: compile/ orders templates by it, sim/ and plan/ compare costs.
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
// Parallelism", 2024, with one barrier), each rank does four passes more of each microbatch, with its part of the
// tokens and of no chunk: E embeds, before the first virtual stage's forward; L, behind the last one's forward, makes
// logits, loss and the gradient that the last backward begins with, which all ranks' L make together; T, some time
// later, the gradient of the head's weights; and G, behind the first virtual stage's backward and T, the embedding's.
#ifndef PARALLEL_SCHEDULE_H
#define PARALLEL_SCHEDULE_H

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
// Of each kind, as above.
#define PASS_LETTERS "FBIWELTG"

struct pass {
    enum pass_kind kind;
    int chunk, microbatch;
};

// Room for one pass in words.
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
    double link; // of a message's latency what joins two ranks is busy with it alone; 0: any number goes at once
};

// All passes of a chunk, and all of a rank's part of the vocabulary, for one microbatch.
static inline double schedule_chunk_time(const struct schedule_times *t) {
    return t->forward + t->backward_input + t->backward_weight;
}
static inline double schedule_vocabulary_time(const struct schedule_times *t) {
    return t->embed + t->loss + t->loss_weight + t->embed_weight;
}

// What a schedule is made of besides its numbers. Zero everywhere is what each schedule has by itself.
struct schedule_options {
    int chunks;           // of each rank: 0: as many as the schedule has by itself
    int waves;            // of hanayo: 0: chunks / 2
    int activation_limit; // of auto: microbatches of a whole rank that may be held: 0: 2 * stages
    // Of auto: what counts of a microbatch between its backward for the input and that for the weights, above 0, at
    // most 1: 0: a half. Qi et al. count it thus: the backward for the input frees all that the weights' does not need.
    double weight_share;
    // Of zb-v, v-half, v-min, hanayo and auto, which are fitted to them. All 0: F = B = W = 1 without latency.
    struct schedule_times times;
    int64_t search_passes; // that fitting may try, those of all its trials together: 0: 20 million, about 2 seconds
};

struct schedule_place {
    int rank, chunk;
};

struct schedule_rank {
    VEC(struct pass);
    int line; // where a text had it, else 0
};

struct schedule {
    int stages;                      // ranks of the pipeline
    int chunks;                      // of each rank
    int microbatches;                // of one step
    bool vocabulary;                 // is spread over the ranks
    struct schedule_place *place;    // of each virtual stage: [stages * chunks]
    int *virtual_stage;              // the reverse: [rank * chunks + chunk]
    struct schedule_rank *rank;      // [stages]
    int (*on_way)[2];                // schedule_count_on_way's, [stages * chunks], NULL: not counted
    struct schedule_options options; // auto's, complete; of all others zero
};

// ---- making one

// What schedule_options have where they are 0.
#define SCHEDULE_WEIGHT_SHARE .5
enum { SCHEDULE_SEARCH_PASSES = 20000000 };

// The schedule called `name`, one of schedules.def, verified; options NULL are zero everywhere. auto of two chunks is
// placed as interleaved or as zb-v, whichever is better, and no worse than those and v-half and v-min where its limit
// admits them.
// In all, each chunk does the forwards and the backwards in the order of microbatches: sums over them are those of one
// rank, and messages between two ranks match in order.
// TRIREME_ERROR_USAGE: an unknown name, a number out of range, options that the schedule does not have.
trireme_status schedule_create(struct schedule *schedule, const char *name, int stages, int microbatches,
                               const struct schedule_options *options, trireme_error *error);
// `name` is one of the names or else the path of a text, which must have these numbers; chunks 0 are any. What is wrong
// with a text is said without its path, which who gave it names.
trireme_status schedule_load(struct schedule *schedule, const char *name, int stages, int microbatches,
                             const struct schedule_options *options, trireme_error *error);
// Puts the passes E, L, T and G of a spread vocabulary into a verified schedule, which has none yet. Backwards
// move behind the forwards of up to two microbatches more, so that all ranks have time to come to the loss: a rank
// holds so many more, and where a message takes as long as passes of several, those that begin meanwhile. auto keeps to
// its limit: what is spread is it, or one that leaves room for that, which takes as long a search again.
void schedule_spread_vocabulary(struct schedule *schedule, const struct schedule_times *times);
// A copy of its own.
struct schedule schedule_copy(const struct schedule *schedule);
void schedule_release(struct schedule *schedule);

enum schedule_properties { SCHEDULE_PLANNED = 1, SCHEDULE_GROUPS = 2, SCHEDULE_WAVES = 4, SCHEDULE_LIMIT = 8 };

// What holds of all schedules of one name: a row of schedules.def, which says what its columns are.
struct schedule_kind {
    const char *name;
    int chunks, step;
    bool there_and_back;
    unsigned properties; // enum schedule_properties
    const char *torch, *about;
};

// NULL where no schedule has the name, which then may be a file's.
const struct schedule_kind *schedule_kind(const char *name);
// Sets chunks, and of hanayo waves, where they are 0. Refuses those that the schedule does not have, as
// schedule_create.
trireme_status schedule_complete_chunks(const struct schedule_kind *kind, struct schedule_options *options,
                                        trireme_error *error);
// All of them, in the table's order.
const struct schedule_kind *schedule_kinds(size_t *count);
// The names, separated by ", ".
const char *schedule_names(void);
// A line for each.
void schedules_help(struct text *out);

// For makers of schedules: an empty table. `ranks` is the rank of each virtual stage, every rank `chunks` times; NULL
// is virtual stage c * stages + i in chunk c of rank i.
void schedule_begin(struct schedule *schedule, int stages, int microbatches, int chunks, const int *ranks);
void schedule_add(struct schedule *schedule, int rank, enum pass_kind kind, int chunk, int microbatch);

// ---- text

void schedule_print(const struct schedule *schedule, struct text *text);
// Reads and verifies. TRIREME_ERROR_CORRUPT names the line.
trireme_status schedule_parse(struct schedule *schedule, const char *text, size_t length, trireme_error *error);
// "F3", or "F3.1" with several chunks to a rank.
const char *pass_print(const struct schedule *schedule, struct pass pass, char text[PASS_TEXT]);

// ---- what holds of one

// Every chunk has one forward and behind it one backward, whole or in its two parts in order, of each microbatch; of a
// spread vocabulary all ranks do E, L and G, which they do together, in the same order of microbatches; and when each
// rank does its passes in order, each as soon as what it needs is there, all come to the end. A forward needs
// that of the virtual stage before, a backward that of the one behind; messages are buffered without limit. E, L and G
// need all ranks' of the microbatch before, and L and G that the rank of the last, or first, virtual stage comes to
// its. TRIREME_ERROR_CORRUPT names rank, pass and what is wrong or what it waits for.
trireme_status schedule_verify(const struct schedule *schedule, trireme_error *error);
// Messages are told apart by their order alone: refuses (TRIREME_ERROR_USAGE) two ranks that send and take them in
// another one, and virtual stages that follow one another on ranks that are no neighbours.
trireme_status schedule_check_messages(const struct schedule *schedule, trireme_error *error);

// The largest number of (chunk, microbatch) whose forward has begun and whose backward, weights included, has not
// ended; the same of each chunk goes to of_chunk[chunks] unless it is NULL. The schedule is verified.
int schedule_in_flight(const struct schedule *schedule, int rank, int *of_chunk);

// The same in microbatches of a whole rank, where one whose backward for the input has ended and the weights' has not
// counts for weight_share: 1 is schedule_in_flight / chunks.
double schedule_activations(const struct schedule *schedule, int rank, double weight_share);

// What microbatches hold slots of, of one chunk.
enum slots_for {
    SLOTS_FOR_ACTIVATIONS, // from the forward to the end of the backward, weights included; the lowest free slot first
    SLOTS_FOR_INPUTS,    // the same, but one more, and the one that has been free the longest: so that what comes from
                         // another rank has where to go before its forward begins. As many more as are on their way at
                         // a time where that was counted. Where the rank itself does the virtual stage before, from its
                         // forward on, and none more; where the vocabulary is spread, the first virtual stage's from E
    SLOTS_FOR_GRADIENTS, // of what comes from another rank for the backward: from its begin to its end, weights
                         // included, one more and in turn as for inputs
    SLOTS_FOR_LOSS,      // of a spread vocabulary, `chunk` aside: from L to T
    SLOTS_FOR_LOSS_INPUTS,    // the same, but one more, as for inputs
    SLOTS_FOR_EMBED_GRADIENT, // likewise: to G, from the backward of the first virtual stage on where the rank has it
};
// Counts how many messages to each virtual stage's forwards and backwards, on_way[virtual stage][0, 1], are sent and
// not yet taken at most, passes being as long as one another: with room for so many, ranks that take their messages in
// another order than they need them do not wait for each other for ever. It counts only where one more than are held
// may be too few: not with one chunk to a rank, in V schedules, and in rounds of as many microbatches as stages; but in
// any order that was read from a text, and wherever the passes of a vocabulary are spread over several chunks.
// The schedule is verified; making, reading or spreading one ends with it.
void schedule_count_on_way(struct schedule *schedule);
// Whether backwards are in two parts.
bool schedule_splits_backward(const struct schedule *schedule);
// The slot of each microbatch, slot[microbatches]; returns how many there are. With forward_only backwards are left
// out: forwards give slots back, and L those of its inputs. The schedule is verified.
int schedule_slots(const struct schedule *schedule, int rank, int chunk, enum slots_for what, bool forward_only,
                   int *slot);

struct schedule_span {
    double start, end;
};

// What a rank computes in a step: microbatches * (chunks * (F + B + W) + E + L + T + G).
double schedule_work(const struct schedule *schedule, const struct schedule_times *times);

struct schedule_cost {
    double cost;                 // largest over ranks of own last end minus own first start
    double bubble;               // 1 - schedule_work / cost
    struct schedule_span *rank;  // first start and last end: [stages]
    struct schedule_span **pass; // [stages][count of the rank]
    int ranks;                   // stages
};

// Every pass starts as soon as its rank is free and what it needs has come, over links that are busy as times->link
// says. Times are not negative and not all zero but for latency. The schedule is verified.
void schedule_cost(const struct schedule *schedule, const struct schedule_times *times, struct schedule_cost *cost);
// The same of one that is verified but for its end: false, and nothing to release, where ranks wait for one another.
bool schedule_finishes(const struct schedule *schedule, const struct schedule_times *times, struct schedule_cost *cost);
void schedule_cost_release(struct schedule_cost *cost);

#endif

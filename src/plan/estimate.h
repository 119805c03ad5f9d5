// Internal to plan/: seconds and bytes of a choice without its programs: from those of two and three layers on the same
// tensor ranks, the schedule's table for fewer microbatches, and what data parallel ranks communicate.
#ifndef PLAN_ESTIMATE_H
#define PLAN_ESTIMATE_H

#include "plan/plan.h"

enum { PROBE_NUMBERS = 9 };
// What a layer, and what is not layers (embedding and head), take in one microbatch.
struct probe_part {
    union {
        struct {
            double forward, backward, weight;                  // seconds; `weight` of the second
            double update;                                     // of the optimizer
            double parameters, gradients, states, activations; // bytes
            double units;                                      // that are gathered and reduced by themselves
        };
        double number[PROBE_NUMBERS]; // all of them
    };
};
_Static_assert(offsetof(struct probe_part, units) == (PROBE_NUMBERS - 1) * sizeof(double), "each has its number");

// Of a stage of a pipeline, in bytes.
struct probe_slot {
    bool possible;
    struct {
        double layer, rest; // of each layer, and of each chunk
    } held[2];              // by a microbatch after its forward; and, where weights' passes are apart, before that
    double message;         // between stages
    double scratch;         // beside all that
};

// Of tensor parallel ranks of one kind.
struct probe {
    int kind;
    int first; // rank: of those whose links take longest
    int tensor;
    bool sequence, overlap;
    int64_t micro_batch_size;
    enum config_recompute recompute;
    int64_t logits_rows;
    bool possible;
    struct probe_part layer, rest;
    struct probe_slot slot[2]; // of the first kind: the same for all
};

// In forwards of one chunk: for all of the few microbatches, and for each further one.
struct shape_seconds {
    double few, each;
};

// What messages add to that.
struct shape_wait {
    double latency, link; // as struct schedule_times has them
    double few, each;
};

struct shape_order {
    struct schedule schedule;
    double *messages; // [stages] that each rank has room for
    double *losses;   // [stages] microbatches whose logits each rank keeps at one time, of a spread vocabulary
    double idle;      // what the bubble adds, in times of F + B + W of one rank
    struct shape_seconds without; // messages
    VEC(struct shape_wait) waits; // those that were asked for
};

// A schedule for few microbatches.
struct shape {
    const char *name;
    int stages, microbatches, chunks;
    bool full; // recompute: backward takes a forward more
    bool possible;
    bool splits;                 // backwards, into inputs' and weights'
    struct shape_order order[2]; // with the vocabulary at the ends, and spread over the stages
};

// Between stages.
struct stage_links {
    int tensor, stages;
    struct route *route; // [stages]: from each to the next; NULL: no such mesh
    struct route ends;   // between the first and the last
};

// Ranks that compute alike, and have as much room.
struct rank_kind {
    int device;           // the cluster's type
    double slower;        // than others of that type, within a hundredth
    double room;          // bytes of each
    struct cluster plain; // the request's, had it nothing but such ranks; shares what it can
};

struct estimator {
    const struct plan_request *request;
    bool stages;     // whether there may be pipelines
    bool collecting; // what is looked for is noted, and filled later
    bool chooses_logits;
    double room; // bytes of the rank that has most room
    int *kind;   // [ranks]
    int *next;   // [ranks]: the first one behind that is of another kind
    VEC(struct rank_kind) kinds;
    struct config layout[2][3]; // by balanced, recompute
    VEC(struct probe) probes;
    VEC(struct shape) shapes;
    VEC(struct stage_links) links;
    trireme_error why; // of the last refusal
};

struct estimate {
    double seconds;
    double bytes; // of the rank that has least room left, as if all had that of the one that has most
};

// `chooses_logits`: how many are made at once, where the configuration leaves that open, and devices are no CPUs, whose
// caches hold few rows well.
void estimator_create(struct estimator *estimator, const struct plan_request *request, bool chooses_logits);
void estimator_release(struct estimator *estimator);
// Whether rows of logits may be chosen at all.
bool estimator_chooses_logits(const struct plan_request *request);
// In how many pieces a choice makes its logits; 1 where that is not chosen.
int logits_pieces(const struct estimator *estimator, const struct plan_choice *choice);
// Bytes of a rank's logits, and of the rows that they are made of, from the loss to its weights' turn where stages
// share the vocabulary: of all rows of so many microbatches, in however many pieces they are made.
double kept_logits(const struct estimator *estimator, const struct plan_choice *choice, double losses);
// The rows of each of so many pieces.
int64_t logits_rows(const struct estimator *estimator, const struct plan_choice *choice, int pieces);
// Of the request's ranks: their kinds.
void estimator_devices(struct estimator *estimator);
void estimator_devices_release(struct estimator *estimator);
// Fills all that was noted, on the request's threads.
void estimator_fill(struct estimator *estimator);
const struct probe *find_measured(struct estimator *estimator, const struct plan_choice *choice, int kind);
// The same for any number of rows of logits, from those that are measured.
struct probe find_probe(struct estimator *estimator, const struct plan_choice *choice, int kind);
// A shape that has its name and numbers.
void fill_shape(struct estimator *estimator, struct shape *shape);
void release_shape(struct shape *shape);
struct shape *find_shape(struct estimator *estimator, const struct plan_choice *choice, int microbatches);
// Forwards of one chunk that so many microbatches take longer where messages take `latency` of them, and `link` of them
// over the slowest link.
double shape_waiting(struct shape *shape, bool vocabulary, double latency, double link, int microbatches);
// Messages that a rank has room for: activations and gradients, one more than are held; and what it sends, once where
// pools are in parts, as they mostly are with several chunks or backwards in two parts.
double count_messages(const struct schedule *schedule, bool split, int rank);
// Of each virtual stage the first layer, and the number of all behind: as the user lists them, `auto`, or even. NULL:
// impossible. The caller frees.
int *first_layers(struct estimator *estimator, const struct plan_choice *choice, const struct shape *shape);
// The slot of a choice's stages.
const struct probe_slot *slot_of(const struct probe *probe, const struct shape *shape);

// The pipeline's part, the same whatever data parallel ranks do; and theirs.
struct pipe_estimate {
    double seconds;
    double forward, backward; // of one pass of the busiest rank
    double last_backward;     // that reductions at the end may hide behind
    int microbatches;
    double update;                        // seconds
    double parameters, gradients, states; // bytes, of the rank that has least room left
    double layer_parameters, layer_gradients;
    double layer_units; // of each layer
    double activations; // bytes
    double room;        // of that rank
    double layers;      // of the busiest rank
    double idle;        // what the bubble adds, in times of F + B + W of a rank with as many layers as are in the mean
    double waiting;     // seconds that the step's messages add
    double tied;        // bytes of gradients that the first and the last stage add up
    struct route ends;  // between these
};
// False: impossible (estimator->why). A choice that is mixed: as if all were in its mode.
bool estimate_pipe(struct estimator *estimator, const struct plan_choice *choice, struct pipe_estimate *out);
// The step's seconds, from those of the busiest rank, and of a rank in the mean, for a microbatch.
void pipe_fill(struct pipe_estimate *pipe, double busiest, double mean);
// What a rank takes for a microbatch.
struct load {
    double layers;
    double ends; // of embedding and head together
    double head;
    double messages; // that it has room for
    double losses;   // whose logits it keeps at one time
};
// Of a stage of a pipeline, with first_layer of each virtual stage.
struct load load_of_stage(const struct estimator *estimator, const struct shape *shape,
                          const struct plan_choice *choice, const int *first_layer, int rank);
// The first rank of the tensor parallel group whose links take longest, where groups have so many ranks.
int slowest_group(const struct estimator *estimator, int tensor);
// The kind of a stage's ranks on which a layer takes longest, by the probes of all kinds.
int slowest_kind(const struct estimator *estimator, const struct probe *of_kind, int stages, int stage);
// The least room of any of a stage's ranks.
double room_of_stage(const struct estimator *estimator, int stages, int stage);
// The layers of each virtual stage of a choice to `layers`, NULL where it is impossible; whether the stages have unlike
// devices, or groups on unlike links, so that what takes as long on all is not as much work. The caller frees.
bool stages_differ(const struct estimator *estimator, const struct plan_choice *choice, int *stages, int **layers);
// The most bytes that a rank's microbatches hold at one time. Without rests, of the layers alone.
double held_bytes(const struct shape *shape, const struct plan_choice *choice, const int *first_layer, int rank,
                  const struct probe_slot *slot, bool rests);

// Seconds of collectives on so many bytes.
struct data_links {
    const struct cluster *cluster;
    struct route shards, replicas, all;
    double loss; // of computing beside a transfer: a part of that
};
bool data_links_create(struct data_links *out, const struct plan_request *request, const struct plan_choice *choice,
                       trireme_error *error);
// What of so many bytes is left to a rank.
double state_bytes(const struct plan_choice *choice, double parameters, double gradients, double states);
// And of a layer that is gathered or reduced, beside that.
double passing_bytes(const struct plan_choice *choice, const struct pipe_estimate *pipe);
struct estimate estimate_data(const struct estimator *estimator, const struct pipe_estimate *pipe,
                              const struct data_links *links, const struct plan_choice *choice);

#endif

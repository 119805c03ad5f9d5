// Internal to planner/: estimates the seconds and bytes of a choice without its programs, from programs of two and
// three layers on the same tensor ranks (probes), the schedule's table for fewer microbatches (shapes), and what data
// parallel ranks communicate.
#ifndef PLANNER_ESTIMATE_H
#define PLANNER_ESTIMATE_H

#include "planner/planner.h"

enum { PROBE_NUMBERS = 9 };
// What a layer takes in one microbatch, or everything that is in no layer (embedding and head).
struct probe_part {
    union {
        struct {
            double forward, backward;                          // seconds
            double update;                                     // seconds of the optimizer, for what a rank keeps
            double update_whole;                               // and for whole tensors, whatever a rank keeps
            double parameters, gradients, states, activations; // bytes
            double units;                                      // how many are gathered and reduced separately
        };
        double number[PROBE_NUMBERS]; // all of them
    };
};
_Static_assert(offsetof(struct probe_part, units) == (PROBE_NUMBERS - 1) * sizeof(double), "each has its number");

// Bytes of a stage of a pipeline.
struct probe_slot {
    trireme_error *why; // it is impossible; NULL: it is not. The estimator's probe owns it
    struct {
        double layer, rest; // for each layer, and for each chunk besides
    } held[2];              // by a microbatch: after its forward; after its backward for the input, where it is apart
    double message;         // between stages
    double scratch;         // besides all that
};

// A measurement of tensor parallel ranks of one kind.
struct probe {
    int kind;
    int first; // the first rank of the group whose links take longest (slowest_group)
    int tensor;
    bool sequence, overlap;
    int64_t micro_batch_size;
    enum config_recompute recompute;
    int64_t logits_rows;
    trireme_error *why; // it is impossible; NULL: it is not. The estimator's probe owns it
    struct probe_part layer, rest;
    struct probe_slot slot[2]; // whole backwards, and backwards in two parts; of kind 0 alone: the same for all kinds
};

// Durations, in units of a chunk's forward: all of the shape's few microbatches, and each further one.
struct shape_seconds {
    double few, each;
};

// What messages of some latency add to that.
struct shape_wait {
    double latency, link; // as struct schedule_times has them
    double few, each;
};

struct shape_order {
    struct schedule schedule;
    double *messages; // [stages]: how many each rank has room for
    double *losses;   // [stages]: microbatches whose logits each rank keeps at one time, with a spread vocabulary
    double idle;      // what the bubble adds, in units of F + B + W of one rank
    struct shape_seconds without; // without messages
    VEC(struct shape_wait) waits; // those that were computed so far
};

// A schedule for few microbatches, from which estimates for many are made.
struct shape {
    const char *name;
    int stages, microbatches, chunks;
    bool full;                   // full recompute: backward takes one more forward
    trireme_error *why;          // it is impossible; NULL: it is not; owned
    bool splits;                 // whether backwards are in two parts
    struct shape_order order[2]; // with the vocabulary at the ends, and spread over the stages
};

// The links between stages.
struct stage_links {
    int tensor, stages;
    struct route *route; // [stages]: from each to the next; NULL: no such mesh
    struct route ends;   // between the first and the last
};

// Ranks that compute alike and have equal room.
struct rank_kind {
    int device;           // the cluster's type
    double slower;        // factor, as in struct straggler; those within a hundredth are one kind
    double room;          // bytes of each
    struct cluster plain; // the request's cluster as if all of its ranks were of this kind; shares memory with it
};

struct estimator {
    const struct plan_request *request;
    bool stages;     // whether there may be pipelines
    bool collecting; // probes and shapes that are looked for are only noted, and filled later by estimator_fill
    bool chooses_logits;
    double room; // bytes of the rank that has most room
    int *kind;   // [ranks]
    int *next;   // [ranks]: the first rank after this one that is of another kind
    VEC(struct rank_kind) kinds;
    struct config layout[2][RECOMPUTE_MODES]; // [balanced][recompute]: the request's configuration with these
    VEC(struct probe) probes;
    VEC(struct shape *) shapes; // each by itself: what was found stays where it is
    VEC(struct stage_links) links;
};

struct estimate {
    double seconds;
    double bytes; // of the rank with the least room left, scaled as if its room were estimator.room
};

// `chooses_logits`: whether to choose how many rows of logits are made at once. Takes effect only where the
// configuration leaves that open and devices are no CPUs: their caches hold few rows well.
void estimator_create(struct estimator *estimator, const struct plan_request *request, bool chooses_logits);
void estimator_release(struct estimator *estimator);
// Whether rows of logits may be chosen at all.
bool estimator_chooses_logits(const struct plan_request *request);
// In how many pieces a choice makes its logits; 1 where that is not chosen.
int logits_pieces(const struct estimator *estimator, const struct plan_choice *choice);
// Where stages share the vocabulary: bytes of the logits that a rank keeps from L to T (schedule.h), and of the rows
// that they are made of, for `losses` microbatches. All rows count, in however many pieces they are made.
double kept_logits(const struct estimator *estimator, const struct plan_choice *choice, double losses);
// How many rows of logits each piece has when there are `pieces`.
int64_t logits_rows(const struct estimator *estimator, const struct plan_choice *choice, int pieces);
// Finds the kinds of the request's ranks.
void estimator_devices(struct estimator *estimator);
void estimator_devices_release(struct estimator *estimator);
// Fills all probes and shapes that were noted (`collecting`), on the request's threads.
void estimator_fill(struct estimator *estimator);
// The probe of a choice with its number of rows of logits; measured if it was not yet. Valid until the next one is
// looked for.
const struct probe *find_measured(struct estimator *estimator, const struct plan_choice *choice, int kind);
// The same for any number of rows of logits, interpolated between those that are measured.
struct probe find_probe(struct estimator *estimator, const struct plan_choice *choice, int kind);
// Fills a shape that has its name and numbers.
void fill_shape(const struct estimator *estimator, struct shape *shape);
void release_shape(struct shape *shape);
// The shape for a choice of `microbatches`; filled if it was not yet. The estimator owns it.
struct shape *find_shape(struct estimator *estimator, const struct plan_choice *choice, int microbatches);
// How much longer a step of `microbatches` takes because of its messages, in units of a chunk's forward. In the same
// unit, `latency` is what a message takes on average, and `link` what it takes over the slowest link.
double shape_waiting(struct shape *shape, bool vocabulary, double latency, double link, int microbatches);
// How many messages a rank has room for: received activations and gradients, one more than are held; and sent ones,
// which have one place where pools are in parts, as they mostly are with several chunks or backwards in two parts.
double count_messages(const struct schedule *schedule, bool split, int rank);
// The first layer of each virtual stage, followed by the number of all layers: as the user or the choice lists them,
// `auto`, or even.
// NULL, with an error, where that is impossible. The caller frees.
int *first_layers(const struct estimator *estimator, const struct plan_choice *choice, const struct shape *shape,
                  trireme_error *error);
// The probe's slot for the shape's kind of backwards.
const struct probe_slot *slot_of(const struct probe *probe, const struct shape *shape);

// The part of an estimate that does not depend on how data parallel ranks share what they hold.
struct pipe_estimate {
    double seconds;
    double forward, backward; // seconds of one microbatch on the busiest rank
    double last_backward;     // seconds that reductions at the end may hide behind
    int microbatches;
    double update, update_whole;          // seconds
    double parameters, gradients, states; // bytes, of the rank with the least room left
    double layer_parameters, layer_gradients;
    double layer_units; // of each layer
    double activations; // bytes
    double room;        // of the rank with the least room left
    double layers;      // of the busiest rank
    double idle;        // what the bubble adds, in units of F + B + W of a rank with the mean number of layers
    double waiting;     // seconds that the step's messages add
    double tied;        // bytes of the tied gradient, which the first and the last stage add up
    struct route ends;  // between those two stages
};
// TRIREME_ERROR_USAGE where the choice is impossible, as all are while `collecting`. A mixed choice is estimated as if
// all layers were in its mode.
trireme_status estimate_pipe(struct estimator *estimator, const struct plan_choice *choice, struct pipe_estimate *out,
                             trireme_error *error);
// Sets pipe->seconds from the seconds of one microbatch on the busiest rank, and on a rank with the mean number of
// layers.
void pipe_fill(struct pipe_estimate *pipe, double busiest, double mean);
// What a rank has to do for a microbatch.
struct load {
    double layers;
    double ends;     // share of embedding and head together
    double head;     // share of the head
    double messages; // that it has room for
    double losses;   // microbatches whose logits it keeps at one time
};
// The load of a stage's ranks, where `first_layer` has the first layer of each virtual stage.
struct load load_of_stage(const struct estimator *estimator, const struct shape *shape,
                          const struct plan_choice *choice, const int *first_layer, int rank);
// The first rank of the tensor parallel group whose links take longest, where groups have `tensor` ranks.
int slowest_group(const struct estimator *estimator, int ranks);
// The kind, among those of a stage's ranks, on which a layer takes longest by the probes of all kinds.
int slowest_kind(const struct estimator *estimator, const struct probe *of_kind, int stages, int stage);
// The least room of any of a stage's ranks.
double room_of_stage(const struct estimator *estimator, int stages, int stage);
// Sets *layers to the layers of each of the choice's *stages virtual stages, NULL where it is impossible; the caller
// frees. Returns whether pipeline stages have unlike devices, or groups on unlike links, so that stages with equal work
// do not take equally long.
bool stages_differ(const struct estimator *estimator, const struct plan_choice *choice, int *stages, int **layers);
// The most bytes that a rank's microbatches hold at one time; without `rests`, those of layers alone.
double held_bytes(const struct shape *shape, const struct plan_choice *choice, const int *first_layer, int rank,
                  const struct probe_slot *slot, bool rests);

// What collectives of a choice's data parallel ranks go over.
struct data_links {
    const struct cluster *cluster;
    struct route shards, replicas, all;
    double loss; // the part of its rate that computing loses during a transfer
};
bool data_links_create(struct data_links *out, const struct plan_request *request, const struct plan_choice *choice,
                       trireme_error *error);
// Of these bytes (parameters, gradients, the optimizer's states), those that a rank keeps, as the choice shards them.
double choice_state_bytes(const struct plan_choice *choice, double parameters, double gradients, double states);
// Bytes of the layer that is being gathered or reduced, in addition to state_bytes.
double passing_bytes(const struct plan_choice *choice, const struct pipe_estimate *pipe);
// The whole estimate: the pipeline's, and what data parallel ranks add.
struct estimate estimate_data(const struct estimator *estimator, const struct pipe_estimate *pipe,
                              const struct data_links *links, const struct plan_choice *choice);

#endif

// What all ways of attending over the parts of sequences are made of: buffers that travel, and the instructions that
// make, send and use them. Internal to parallel/; context.c has the ways.
#ifndef PARALLEL_CONTEXT_PARTS_H
#define PARALLEL_CONTEXT_PARTS_H

#include "parallel/parallel.h"
#include "parallel/rewrite.h"

struct context {
    struct rewrite rewrite;
    struct program *program;
    enum config_context_parallel_method method;
    // The ring. Where there are several inner rings, that of the rank; `outer` is then that of those of all of them
    // which have the same place, and `rings` how many they are. Else `outer` is AXES_NONE and `rings` 1.
    axis_set group, outer;
    int ring, rings;               // ranks of the inner ring, and rings
    const struct instruction *row; // that is replaced
    struct places places;
    int64_t sequences, heads, kv_heads, width;
    const char *name; // of what its buffers are called after
    int set;
    // How many further steps an inner ring goes, and how many rounds of it there are. Where there is one ring, `steps`
    // is how many parts away the furthest keys are that some query sees.
    int steps, rounds;
};

// On what channel it goes: what travels; what travels from ring to ring; and what is made of it.
enum context_channel { CONTEXT_LOADS, CONTEXT_LOADS_AHEAD, CONTEXT_RESULTS };
int context_channel(struct program *program, enum context_channel channel);

// What goes from rank to rank: keys and values of a part, or queries, with what their backward reads. Each buffer
// travels as a whole, so there are as few messages as there are dtypes.
enum { LOAD_BUFFERS = 3 };
struct load {
    int buffers, buffer[LOAD_BUFFERS];
    struct operand k, v, q, starts, d_o, lse, delta;
};

// What is made for keys or queries, f32 or f64, in one buffer: of keys the gradients of keys (a) and values (b); of
// queries what they have seen (a) and its log-sum-exp (b), or their gradient (a).
struct sums {
    int buffer;
    struct operand a, b;
};

// ---- buffers; `step` NONE: there is one of the name

struct load load_of_keys(const struct context *context, const char *what, int step);
struct load load_of_queries(const struct context *context, const char *what, int step);
struct sums sums_of_keys(const struct context *context, const char *what, int step);
struct sums sums_of_queries(const struct context *context, const char *what, int step);
// The same of one part alone, which does not travel: two buffers, or one.
struct sums sums_at_home(const struct context *context, const char *what, const char *what_lse, int step);
// A number for each query and head.
struct operand context_numbers(const struct context *context, const char *what, int step);

// ---- instructions

// Whether the row is that of backward.
bool context_is_backward(const struct context *context);
// The row's own keys, and its own queries, whose delta is computed; where nothing is sent.
struct load context_own_keys(const struct context *context);
struct load context_own_queries(struct context *context);
// The same in memory of its own, to be sent.
struct load context_pack_keys(struct context *context);
struct load context_pack_queries(struct context *context);
// Sends buffers to the rank `distance` further on along a group, and receives others from as far back.
void context_swap(struct context *context, enum context_channel channel, axis_set group, int buffers, const int *out,
                  const int *in, int distance);
// The same where nothing wraps around: ranks that are nearer to the ends send nothing, or receive nothing.
void context_swap_open(struct context *context, enum context_channel channel, int buffers, const int *out,
                       const int *in, int distance);
// Lets the last instruction wait until all but the latest `lag` sends on the channel are done, so that no more memory
// than theirs is taken by what has been sent.
void context_await(struct context *context, enum context_channel channel, int lag);
// What queries see of keys: the parts that are so many before the rank's own. `before` NULL: nothing has been seen;
// sinks are taken in where the row has some and `sinks` is true.
void context_block(struct context *context, const struct load *queries, int queries_before, const struct load *keys,
                   int keys_before, bool sinks, const struct sums *before, const struct sums *made);
// The gradients of both. `before` NULL: dq begins with nothing.
void context_block_backward(struct context *context, const struct load *queries, int queries_before,
                            const struct load *keys, int keys_before, const struct sums *before,
                            const struct sums *made_queries, const struct sums *made_keys);
// `from` not 0: `other` has come from the rank at that distance, where there is one, and by an open message.
void context_merge(struct context *context, const struct sums *before, const struct sums *other, int from,
                   const struct sums *made);
void context_add(struct context *context, const struct sums *before, const struct sums *other, int from,
                 const struct sums *made);
// The row's outputs.
void context_end(struct context *context, const struct sums *seen);
void context_end_backward(struct context *context, const struct sums *of_queries, const struct sums *of_keys);

#endif

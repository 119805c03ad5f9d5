// The instructions of one microbatch, forward and backward, as a graph: which tensors they make and use, and what of
// them the loss depends on. Internal to program/.
#ifndef PROGRAM_GRADIENT_GRAPH_H
#define PROGRAM_GRADIENT_GRAPH_H

#include "program/footprint.h"
#include "program/routes.h"
#include "program/slices.h"

// An instruction.
struct node {
    // A copy; that of a forward node reads original values, not recomputed ones, and that of a backward node its own
    // rank's rows where it works on those of all ranks.
    struct instruction *instruction;
    int template, index;
    bool forward;  // makes a value of the forward pass (not once more)
    bool again;    // makes one once more
    bool backward; // contributes to gradients
    bool gathers;  // brings the rows of all data-parallel ranks together
    bool useful;   // the loss depends on it
    bool answered[OP_MAX_IN];
    int next_maker[OP_MAX_OUT], next_sum[OP_MAX_IN]; // behind this operand in the lists of struct tensor_state
};

struct tensor_state {
    bool wanted; // a parameter with a gradient, or depends on one
    bool useful; // the loss depends on it
    int uses, contributions;
    int identity_use;              // the last use by plain addition, NONE when there is none
    struct written parts;          // of its gradient that have been contributed
    int rows_of;                   // whose rows it has, those of all ranks of the group; NONE
    int first_passed, next_passed; // tensors whose gradient is this one's; of the one that this passes to
    // Outputs that write it, and inputs of useful nodes that enter a sum unchanged, in the order of nodes: the number
    // of the node, times OP_MAX_OUT or OP_MAX_IN, and that of the operand.
    int first_maker, first_sum;
};

struct gradient_graph {
    const struct program *program;
    const struct op_table *table;
    VEC(struct node) nodes;
    struct tensor_state *tensor; // [buffers]
    struct slices slices;
};

// Of the templates that a microbatch goes through.
void gradient_graph_create(struct gradient_graph *graph, const struct program *program, const struct op_table *table,
                           const struct route *route);
void gradient_graph_release(struct gradient_graph *graph);
// What a buffer holds the value of, once more or for the first time.
int graph_original(const struct gradient_graph *graph, int buffer);
// Whether a tensor has a gradient that somebody wants, itself or what it is a slice of.
bool graph_is_wanted(const struct gradient_graph *graph, int buffer);
// The sum that is a tensor's one use, whose gradient is the tensor's, too; NONE where there is no other such tensor.
int graph_passed_to(const struct gradient_graph *graph, int buffer);

// A buffer and everything that it is a slice of.
#define FOR_SELF_AND_PARENTS(graph, b, buffer) \
    for (int b = (buffer); b != NONE; b = (graph)->program->buffers.item[b].parent)

// Outputs that write a buffer, and its inputs of sums.
#define FOR_MAKERS(graph, m, buffer)                               \
    for (int m = (graph)->tensor[buffer].first_maker; (m) != NONE; \
         m = (graph)->nodes.item[(m) / OP_MAX_OUT].next_maker[(m) % OP_MAX_OUT])
#define FOR_SUMS(graph, s, buffer)                               \
    for (int s = (graph)->tensor[buffer].first_sum; (s) != NONE; \
         s = (graph)->nodes.item[(s) / OP_MAX_IN].next_sum[(s) % OP_MAX_IN])

#endif

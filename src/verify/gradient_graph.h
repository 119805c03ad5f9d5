// The instructions of one microbatch, forward and backward, as a graph: which tensors they make and use, and on which
// of them the loss depends. Internal to verify/.
#ifndef VERIFY_GRADIENT_GRAPH_H
#define VERIFY_GRADIENT_GRAPH_H

#include "program/footprint.h"
#include "program/routes.h"
#include "program/slices.h"
#include "verify/sets.h"

// An instruction.
struct node {
    // A copy. In a forward node it reads the original values, not recomputed ones; in a backward node that works on the
    // rows of all ranks it reads this rank's own rows.
    struct instruction *instruction;
    int template, index;
    bool forward;                                    // makes a value of the forward pass, for the first time
    bool again;                                      // makes such a value once more
    bool backward;                                   // contributes to gradients
    bool gathers;                                    // brings the rows of all data-parallel ranks together
    bool useful;                                     // the loss depends on it
    bool paired;                                     // what it is left out of, the instruction after it does
    int repeats;                                     // what a node that is `again` does once more, once it is known
    bool answered[OP_MAX_IN];                        // a backward instruction has answered this use
    int next_maker[OP_MAX_OUT], next_sum[OP_MAX_IN]; // what follows this operand in the lists of struct tensor_state
};

struct tensor_state {
    bool wanted;                   // a parameter with a gradient, or depends on one through the forward pass
    bool depends;                  // the same through whatever instructions
    bool useful;                   // the loss depends on it
    bool in_parts;                 // slices of it, or what it is a slice of, have uses too
    int uses, contributions;       // uses by useful nodes, of a wanted tensor; how many of them have been answered
    int identity_use;              // the last use of all of it by plain addition, NONE when there is none
    struct written parts;          // of its gradient that have been contributed
    int rows_of;                   // the buffer whose rows it holds from all ranks of a group; NONE
    int first_passed, next_passed; // the list of tensors that share its gradient (graph_passed_to); the next in its own
    // Heads of lists in the order of nodes: outputs that write the tensor, and inputs of useful nodes by which it
    // enters a sum unchanged. Each entry is the node's number times OP_MAX_OUT or OP_MAX_IN, plus the operand's; NONE.
    int first_maker, first_sum;
};

struct gradient_graph {
    const struct program *program;
    const struct op_table *table;
    const struct sets *sets; // each is one node, the row that it stands for, where its first instruction is
    VEC(struct node) nodes;
    struct tensor_state *tensor; // [buffers]
    struct slices slices;
};

// The graph of the templates that a microbatch goes through, in the order of `route`.
void gradient_graph_create(struct gradient_graph *graph, const struct program *program, const struct op_table *table,
                           const struct sets *sets, const struct route *route);
// Whether an input of a node has a gradient by that node. Of a loss only what it is the gradient of has.
bool graph_is_use(const struct gradient_graph *graph, const struct node *node, int input);
void gradient_graph_release(struct gradient_graph *graph);
// Whether a tensor, or one that it is a slice of, has a gradient that somebody wants.
bool graph_is_wanted(const struct gradient_graph *graph, int buffer);
// Whether the operand has all elements of its buffer.
bool graph_is_whole(const struct gradient_graph *graph, const struct operand *operand);
// Whether a tensor, one that it is a slice of, or a slice of it is made of parameters that have gradients.
bool graph_depends(const struct gradient_graph *graph, int buffer);
// Whether something that the loss depends on uses a tensor, one that it is a slice of, or a slice of it.
bool graph_is_used(const struct gradient_graph *graph, int buffer);
// The sum that is the tensor's only use and therefore has the same gradient; NONE where there is no such other tensor.
int graph_passed_to(const struct gradient_graph *graph, int buffer);

// A buffer and everything that it is a slice of.
#define FOR_SELF_AND_PARENTS(graph, b, buffer) \
    for (int b = (buffer); b != NONE; b = (graph)->program->buffers.item[b].parent)

// The entries of a buffer's two lists (struct tensor_state).
#define FOR_MAKERS(graph, m, buffer)                               \
    for (int m = (graph)->tensor[buffer].first_maker; (m) != NONE; \
         m = (graph)->nodes.item[(m) / OP_MAX_OUT].next_maker[(m) % OP_MAX_OUT])
#define FOR_SUMS(graph, s, buffer)                               \
    for (int s = (graph)->tensor[buffer].first_sum; (s) != NONE; \
         s = (graph)->nodes.item[(s) / OP_MAX_IN].next_sum[(s) % OP_MAX_IN])

#endif

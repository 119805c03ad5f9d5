// Training on a mesh of ranks, compared with one rank: the same model, values and batches, several steps with clipping,
// packed documents and masked targets; one data-parallel rank of eight has no target at all.
#ifndef SUPPORT_MESHES_H
#define SUPPORT_MESHES_H

#include "support/models.h"

#define AUTO_OF_TWO "auto of two chunks" // the schedule auto, two chunks to a rank
enum { MESH_STEPS = 5, MESH_RANKS = 8, SPEC_TEXT = 200 };

// One way to train. 0 and NULL are defaults; degrees of 0 are 1.
struct spec {
    int dp, fsdp, cp, tp, pp;
    // Islands average after every step. Then, for their reference too, there is no clipping, and the optimizer is SGD
    // without momentum: so the mean of what islands update is the update by the mean gradient.
    int island;
    bool plain; // one rank as that reference
    int zero;   // stage, with fsdp or cp
    int node;   // cp x fsdp is cut after so many ranks; 0: it is not cut
    // Bits of classes of units (enum parameter_class): sharded over the ranks before that cut alone; or not at all.
    unsigned inner, whole;
    // The layout of sequences whose keys or queries go from rank to rank, NULL: keys are gathered; how they do, NULL:
    // as in a ring; and how many neighbours exchange tokens for heads, without a ring all.
    const char *ring, *way;
    int exchange, inner_ring; // and of how many ranks inner rings are, 0: there is one ring
    bool no_sequence;         // tensor-parallel ranks hold all rows between layers
    bool overlap;             // tensor-parallel ranks exchange gradients beside products
    bool vocabulary;          // spread over the stages
    // A schedule's name, or one that specs.c writes to a file. With two microbatches at a time: "pairs"; "reversed",
    // with backwards in the opposite order; "crossed", with the first stage's forwards in the opposite order. With
    // three at a time: "split", weights' passes apart; "loop" and "wave", two chunks; "loop split" and "wave split",
    // both.
    const char *schedule;
    char layout[24];      // layers of each stage, "1,2"
    int micro_batch_size; // sequences, or about as many; 0: as suits the pipeline
    int prefetch;         // units; 0: what the plan chooses, -1: none
    int unit_layers;      // 0: one, -1: half of one
    int logits_rows;
    const char *recompute, *optimizer, *dtype, *reduce; // "selective", "lion", "f64" where NULL, "bf16"
    const char *full_layers, *selective_layers;         // of each stage, "1,0"
    const char *freeze;                                 // patterns of parameters that are not trained
    const char *lora;                                   // the layers that have adapters, which alone are trained
};

int spec_ranks(const struct spec *spec);
int spec_chunks(const struct spec *spec); // of each rank of the pipeline
// "dp 2 x fsdp 2 (zero 3) x tp 2 x pp 2 (gpipe 1,2)", followed by everything else that is not the default.
void spec_print(const struct spec *spec, char text[SPEC_TEXT]);
// Whether the model has enough heads and layers for it, and each rank a token. (A refusal for any other reason is a
// failure.)
bool spec_possible(const struct spec *spec, const struct model_config *model);

// How far two runs are apart: the maximum over all tensors and steps of max|a - b| / max(max|b|, floor), where the
// floor is the root mean square of all gradients for gradients, and the learning rate for parameters. For norms and
// losses, that of the evaluation included: |a - b| / |b|. Of islands, whose gradients are their own, parameters and
// losses alone are compared: the mean loss of all targets.
struct distance {
    double loss, gradient, parameter;
    char where[2][80]; // the worst gradient and parameter
};

// Trains and evaluates `model` as `spec` says and on one rank, whose results are kept for later calls. Every rank
// compares all that it holds; padding must be zero, and what no rank holds counts as infinitely far apart. Returns the
// error where the spec is refused.
trireme_status mesh_compare(const char *name, const struct model_config *model, const struct spec *spec,
                            struct distance *out, trireme_error *error);
// Only the losses of `steps` steps, at a learning rate for long runs.
trireme_status mesh_losses(const struct model_config *model, const struct spec *spec, int steps, double *losses,
                           trireme_error *error);
// Trains twice; *same becomes whether losses, norms and the whole state of each rank agree bit for bit.
trireme_status mesh_repeats(const struct model_config *model, const struct spec *spec, bool *same,
                            trireme_error *error);
// Writes the rank's part of a global batch where the engine's program finds it.
void mesh_fill(const struct engine *engine, enum program_kind kind, const struct batch *batch);
// Sets the rank's parameters, and their remainders, from whole ones.
void mesh_set(struct engine *engine, double *const *values);
// Frees the results of one rank that mesh_compare has kept.
void mesh_forget(void);

#endif

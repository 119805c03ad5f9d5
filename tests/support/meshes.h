// Training on a mesh of ranks, held against one rank: the same model, values and batches, several steps with clipping,
// packed documents and masked targets; one data-parallel rank of eight has no target at all.
#ifndef SUPPORT_MESHES_H
#define SUPPORT_MESHES_H

#include "support/models.h"

#define AUTO_OF_TWO "auto of two chunks" // the schedule auto, two chunks to a rank
enum { MESH_STEPS = 5, MESH_RANKS = 8, SPEC_TEXT = 200 };

// One way to train: 0 and NULL where nothing is said. Degrees of 0 are 1.
struct spec {
    int dp, fsdp, tp, pp;
    int zero;         // stage, with fsdp
    bool no_sequence; // tensor-parallel ranks hold all rows between layers
    bool overlap;     // what tensor-parallel ranks exchange, with products
    bool vocabulary;  // spread over the stages
    const char
        *schedule;   // a name, or a file with one line per stage, two microbatches at a time: "pairs"; "reversed",
                     // backwards in the other order; "crossed", the first stage's forwards in the other order; three
                     // at a time: "split", weights apart, "loop", "wave", two chunks, "loop split", "wave split"
    char layout[24]; // layers of each stage, "1,2"
    int micro_batch_size; // sequences, or about as many; 0: as suits the pipeline
    int prefetch;         // units; 0: what the plan chooses, -1: none
    int unit_layers;      // 0: one, -1: half of one
    int logits_rows;
    const char *recompute, *optimizer, *dtype, *reduce; // "selective", "lion", "f64" where NULL, "bf16"
    const char *full_layers, *selective_layers;         // of each stage, "1,0"
};

int spec_ranks(const struct spec *spec);
int spec_chunks(const struct spec *spec); // of each rank of the pipeline
// "dp 2 x fsdp 2 (zero 3) x tp 2 x pp 2 (gpipe 1,2)", and what else is not usual.
void spec_print(const struct spec *spec, char text[SPEC_TEXT]);
// Whether the model has enough heads and layers for it; other reasons to refuse it are failures.
bool spec_possible(const struct spec *spec, const struct model_config *model);

// How far two runs are apart, by the design's measure: the largest |a - b| of any tensor over the largest |b| in it, or
// if that is larger, over the root mean square of all gradients, or over the learning rate for parameters. Every step
// counts. Losses, evaluation's included, and norms: |a - b| over |b|.
struct distance {
    double loss, gradient, parameter;
    char where[2][80]; // the worst gradient and parameter
};

// Trains and evaluates `model` as `spec` says, and the same on one rank unless that is known from before. Every rank
// compares all that it holds; padding must be zero, and what nobody holds is infinitely far apart. Returns the refusal
// where there was one.
trireme_status mesh_compare(const char *name, const struct model_config *model, const struct spec *spec,
                            struct distance *out, trireme_error *error);
// Losses of `steps` steps at a learning rate for long runs, no more: on one rank if `spec` says so.
trireme_status mesh_losses(const struct model_config *model, const struct spec *spec, int steps, double *losses,
                           trireme_error *error);
// Trains twice: whether losses, norms and the whole state of each rank are the same, bit for bit.
trireme_status mesh_repeats(const struct model_config *model, const struct spec *spec, bool *same,
                            trireme_error *error);
// What mesh_compare knows of one rank.
void mesh_forget(void);

#endif

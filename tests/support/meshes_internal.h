// Internal to meshes.c and specs.c: what follows from a spec.
#ifndef SUPPORT_MESHES_INTERNAL_H
#define SUPPORT_MESHES_INTERNAL_H

#include "support/meshes.h"

// There are two shapes, so that each number up to eight divides the sequences or the rows of one of them. Where ranks
// share sequences, these are a token shorter, so that there is padding.
struct shape {
    int sequences, seq_len;
};

struct shape spec_shape(const struct spec *spec);
int64_t spec_layout(const struct spec *spec); // of sequences (program/places.h)
int spec_replicas(const struct spec *spec);   // how many ranks, or groups of them, have other sequences
// Sequences in a microbatch of each data-parallel rank.
int spec_micro_batch_size(const struct spec *spec, struct shape shape);
// If the spec's schedule is one for a file, writes it and returns the path, which the caller removes and frees; else
// NULL.
char *spec_write_schedule(const struct spec *spec, struct shape shape);

static inline int degree(int given) {
    return MAX(given, 1);
}

static inline const char *text_or(const char *given, const char *usual) {
    return given ? given : usual;
}

#endif

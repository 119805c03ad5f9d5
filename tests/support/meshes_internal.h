// Internal to meshes.c and specs.c: what a way to train asks for.
#ifndef SUPPORT_MESHES_INTERNAL_H
#define SUPPORT_MESHES_INTERNAL_H

#include "support/meshes.h"

// Two shapes, so that every number up to eight divides the sequences or is a divisor of their rows.
struct shape {
    int sequences, seq_len;
};

struct shape spec_shape(const struct spec *spec);
// Sequences in a microbatch of each data-parallel rank.
int spec_micro_batch_size(const struct spec *spec, struct shape shape);
// Where the schedule is one of files, writes it and returns its path, which the caller removes and frees; else NULL.
char *spec_write_schedule(const struct spec *spec, struct shape shape);

static inline int degree(int given) {
    return MAX(given, 1);
}

static inline const char *text_or(const char *given, const char *usual) {
    return given ? given : usual;
}

#endif

// Several sources of tokens, from which samples come in given proportions (data.mixture).
#ifndef DATA_MIXTURE_H
#define DATA_MIXTURE_H

#include "base/base.h"

enum { MIXTURE_SOURCES = 64 }; // most sources

struct mixture {
    int count;
    char *path[MIXTURE_SOURCES]; // of token files, as token_set_open takes them
    double weight[MIXTURE_SOURCES];
};

// Reads "0.7 text/wiki, 0.3 text/code": weights, which are positive and need not add up to 1, and paths without commas.
// USAGE says what is wrong. Nothing to release after an error.
trireme_status mixture_parse(const char *text, struct mixture *out, trireme_error *error);
void mixture_release(struct mixture *mixture);

// In what proportions samples come. Read-only once made.
struct mixture_shares {
    int count;
    // Of the samples that the sources before this one leave, so many in 2^62 come from it; all from the last one.
    uint64_t share[MIXTURE_SOURCES];
};

struct mixture_shares mixture_shares(const double *weight, int count);

// The part of all samples that comes from a source.
double mixture_part(const struct mixture_shares *shares, int source);

struct mixture_sample {
    int source;
    uint64_t number; // which one of that source's samples it is, from 0
};

// The source of sample k, k < 2^63. Of the first K samples, for every K, each source has its share of K, to within one
// for every source before it and one for itself; and it gives its samples in order, each once. A pure function.
struct mixture_sample mixture_sample(const struct mixture_shares *shares, uint64_t k);

#endif

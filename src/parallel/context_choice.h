// The way in which ranks attend that have parts of the same sequences, as a configuration means it.
#ifndef PARALLEL_CONTEXT_CHOICE_H
#define PARALLEL_CONTEXT_CHOICE_H

#include "parallel/parallel.h"

struct context_way {
    enum config_context_parallel_method name; // never `auto`
    int64_t layout;                           // program/places.h
    int64_t ulysses;                          // how many neighbours exchange tokens for heads; 1: none do
};

// What the keys say where `ranks` ranks share each sequence; under `auto` the way of context_ways that costs least on
// links that are all alike. A Ulysses degree that does not divide the ranks counts as 1.
struct context_way context_way_of(const struct config *config, const struct model_config *model, int64_t ranks);

enum { CONTEXT_WAYS_MAX = 64 };

// The ways among which `auto` chooses: those that the model, the tensor-parallel degree and a layout that is set allow.
// At least one.
int context_ways(const struct config *config, const struct model_config *model, int64_t ranks,
                 struct context_way ways[CONTEXT_WAYS_MAX]);

// Adds what `auto` has chosen, as in "context_parallel_method auto: ring, zigzag"; nothing where it was not asked.
void context_choice_print(const struct config *config, const struct parallel *parallel, struct text *out);

#endif

// What each way of context parallelism (parallelism.context_parallel_method) is: one table for the check of a
// configuration and for people.
#ifndef PARALLEL_CONTEXT_METHOD_H
#define PARALLEL_CONTEXT_METHOD_H

#include "base/text.h"
#include "config/config.h"

struct context_method {
    unsigned layouts;               // that it knows: sums of 1 << config_context_parallel_layout
    bool sinks;                     // whether it knows attention with sinks
    bool inner_rings;               // whether it knows rings within rings (context_parallel_inner_degree)
    const char *forward, *backward; // what travels between ranks
};

const struct context_method *context_method(enum config_context_parallel_method method);
bool context_method_knows(enum config_context_parallel_method method, enum config_context_parallel_layout layout);
// Adds the names of the layouts that it knows, the default first, as in "zigzag, contiguous, striped".
void context_method_layouts(struct text *out, enum config_context_parallel_method method);
// Adds the names of all methods with which a configuration may have the layout, as in "ring or hybrid".
void context_methods_with(struct text *out, enum config_context_parallel_layout layout);
// All methods, for people.
void context_methods_help(struct text *out);

#endif

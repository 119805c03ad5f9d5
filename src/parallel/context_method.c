#include "parallel/context_method.h"

enum {
    CONTIGUOUS = 1 << CONFIG_CONTEXT_PARALLEL_CONTIGUOUS,
    EVERY_LAYOUT = CONTIGUOUS | 1 << CONFIG_CONTEXT_PARALLEL_ZIGZAG | 1 << CONFIG_CONTEXT_PARALLEL_STRIPED
};

static const struct context_method METHODS[] = {
    [CONFIG_CONTEXT_PARALLEL_GATHER] = {CONTIGUOUS, .sinks = true, .forward = "keys and values, to all ranks",
                                        .backward = "their gradients, summed, to the ranks whose keys they are"},
    [CONFIG_CONTEXT_PARALLEL_RING] = {EVERY_LAYOUT, .sinks = true, .inner_rings = true,
                                      .forward = "keys and values, from rank to rank",
                                      .backward = "the same again, and behind them their gradients, in f32"},
    [CONFIG_CONTEXT_PARALLEL_ULYSSES] = {CONTIGUOUS,
                                         .forward = "tokens for heads: queries, keys and values; back again what they "
                                                    "make",
                                         .backward = "the gradients of these, the other way"},
    [CONFIG_CONTEXT_PARALLEL_HYBRID] = {EVERY_LAYOUT,
                                        .forward = "as ulysses among context_parallel_ulysses_degree neighbours, as "
                                                   "ring among groups of these",
                                        .backward = "likewise"},
    [CONFIG_CONTEXT_PARALLEL_BURST] = {EVERY_LAYOUT, .sinks = true, .inner_rings = true, .forward = "as ring",
                                       .backward =
                                           "queries and gradients of what they saw, from rank to rank; behind them "
                                           "the queries' gradients, in f32"},
    [CONFIG_CONTEXT_PARALLEL_TOKENRING] = {EVERY_LAYOUT, .sinks = true,
                                           .forward =
                                               "queries, from rank to rank; what they see, in f32, straight home",
                                           .backward = "as burst, but the queries' gradients straight home"},
    [CONFIG_CONTEXT_PARALLEL_LIGHTSEQ] = {CONTIGUOUS, .sinks = true,
                                          .forward = "keys and values to later ranks; queries of late ranks to early "
                                                     "ones, and what they see back",
                                          .backward = "likewise, and gradients back to the ranks whose they are"},
};

const struct context_method *context_method(enum config_context_parallel_method method) {
    CHECK(method < ARRAY_LENGTH(METHODS) && METHODS[method].layouts);
    return &METHODS[method];
}

bool context_method_knows(enum config_context_parallel_method method, enum config_context_parallel_layout layout) {
    return context_method(method)->layouts >> layout & 1;
}

void context_methods_with(struct text *out, enum config_context_parallel_layout layout) {
    size_t left = 0;
    for (size_t m = 0; m < ARRAY_LENGTH(METHODS); m++)
        left += context_method_knows((enum config_context_parallel_method)m, layout);
    for (size_t m = 0; m < ARRAY_LENGTH(METHODS); m++) {
        const enum config_context_parallel_method method = (enum config_context_parallel_method)m;
        if (context_method_knows(method, layout))
            text_add(out, "%s%s", config_context_parallel_method_word(method),
                     --left > 1  ? ", "
                     : left == 1 ? " or "
                                 : "");
    }
}

// The layout that a method has where none is given.
static enum config_context_parallel_layout default_layout(enum config_context_parallel_method method) {
    struct config config;
    trireme_error error;
    char *setting = mem_printf("parallelism.context_parallel_method=%s", config_context_parallel_method_word(method));
    const char *const settings[] = {"parallelism.context_parallel_degree=2", setting};
    CHECK(config_load(&config, NULL, settings, ARRAY_LENGTH(settings), &error) == TRIREME_OK);
    free(setting);
    const enum config_context_parallel_layout layout = config.parallelism.context_parallel_layout;
    config_release(&config);
    return layout;
}

void context_method_layouts(struct text *out, enum config_context_parallel_method method) {
    const enum config_context_parallel_layout first = default_layout(method);
    text_add(out, "%s", config_context_parallel_layout_word(first));
    for (unsigned layout = 0; context_method(method)->layouts >> layout; layout++)
        if (layout != first && context_method_knows(method, (enum config_context_parallel_layout)layout))
            text_add(out, ", %s", config_context_parallel_layout_word((enum config_context_parallel_layout)layout));
}

void context_methods_help(struct text *out) {
    text_add(out,
             "parallelism.context_parallel_method says how queries meet keys and values of other ranks. What follows:\n"
             "which layouts each knows (parallelism.context_parallel_layout), the first by default, and what\n"
             "travels between ranks for each layer.\n");
    for (size_t m = 0; m < ARRAY_LENGTH(METHODS); m++) {
        const enum config_context_parallel_method method = (enum config_context_parallel_method)m;
        text_add(out, "\n%s: ", config_context_parallel_method_word(method));
        context_method_layouts(out, method);
        text_add(out, "%s%s\n  forward   %s\n  backward  %s\n", METHODS[m].inner_rings ? "; inner rings" : "",
                 METHODS[m].sinks ? "" : "; not for models with sinks", METHODS[m].forward, METHODS[m].backward);
    }
    text_add(out, "\nauto: the one that costs least with the layout that is set, or with any\n");
}

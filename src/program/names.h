// Words of the text form, for whoever prints or reads it, and for traces.
#ifndef PROGRAM_NAMES_H
#define PROGRAM_NAMES_H

#include "program/program.h"

static const char *const KIND_WORDS[KIND_COUNT] = {
    [KIND_INPUT] = "input", [KIND_OUTPUT] = "output", [KIND_PARAM] = "param", [KIND_GRAD] = "grad",
    [KIND_OPTIM] = "optim", [KIND_CACHE] = "cache",   [KIND_ACT] = "act",     [KIND_WORK] = "work"};
static const char *const SCOPE_WORDS[SCOPE_COUNT] = {[SCOPE_STATE] = "state",
                                                     [SCOPE_STEP] = "step",
                                                     [SCOPE_MICROBATCH] = "microbatch",
                                                     [SCOPE_SLOT] = "slot",
                                                     [SCOPE_LOCAL] = "local"};
static const char *const PHASE_WORDS[PHASE_COUNT] = {[PHASE_INPUT] = "input",
                                                     [PHASE_FORWARD] = "forward",
                                                     [PHASE_BACKWARD] = "backward",
                                                     [PHASE_WEIGHT] = "weight",
                                                     [PHASE_OPTIMIZER] = "optimizer"};
// In the order of enum stream_property's bits.
static const char *const STREAM_WORDS[STREAM_PROPERTIES] = {"prompt", "bulk", "lingers", "apart", "sends", "receives"};
static const char *const WHEN_WORDS[WHEN_COUNT] = {
    [WHEN_ALWAYS] = "always", [WHEN_LAST] = "only_last", [WHEN_NOT_LAST] = "not_last"};
static const char *const ACCUMULATE_WORDS[] = {
    [ACCUMULATE_NO] = "no", [ACCUMULATE_YES] = "yes", [ACCUMULATE_AFTER_FIRST] = "after_first"};

#endif

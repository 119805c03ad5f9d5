// The streams of compiled programs by number, for programs that tests make by hand (test_streams) and for those that
// they change: what compile/ declares, of which a program may lack the last.
#ifndef SUPPORT_STREAMS_H
#define SUPPORT_STREAMS_H

#include "program/program.h"

enum {
    STREAM_TENSOR = STREAM_COMPUTE + 1,
    STREAM_GATHER,
    STREAM_REDUCE,
    STREAM_REPLICAS,
    STREAM_EMBED,
    STREAM_EMBED_GRADIENT,
    STREAM_HEAD,
    STREAM_LOSS,
    STREAM_MESSAGES,
    STREAM_COUNT = STREAM_MESSAGES + 8
};

// Declares them all.
static inline void test_streams(struct program *p) {
    static const char *const ENDS[4][2] = {{"to_next", "from_previous"},
                                           {"to_previous", "from_next"},
                                           {"gradient_to_next", "gradient_from_previous"},
                                           {"gradient_to_previous", "gradient_from_next"}};
    static const char *const EXCHANGES[] = {"embed", "embed_gradient", "head", "loss"};
    program_stream(p, "tensor", STREAM_PROMPT);
    program_stream(p, "gather", STREAM_BULK);
    program_stream(p, "reduce", STREAM_BULK);
    program_stream(p, "replicas", STREAM_BULK);
    for (int i = 0; i < 4; i++)
        program_stream(p, EXCHANGES[i], STREAM_LINGERS | STREAM_APART);
    for (int i = 0; i < 4; i++)
        program_channel(p, ENDS[i][0], ENDS[i][1], STREAM_LINGERS);
}

// The same in the text form.
#define TEST_STREAMS                                                                                               \
    "stream tensor prompt\nstream gather bulk\nstream reduce bulk\nstream replicas bulk\n"                         \
    "stream embed lingers apart\nstream embed_gradient lingers apart\nstream head lingers apart\n"                 \
    "stream loss lingers apart\nstream to_next lingers sends\nstream from_previous lingers receives\n"             \
    "stream to_previous lingers sends\nstream from_next lingers receives\nstream gradient_to_next lingers sends\n" \
    "stream gradient_from_previous lingers receives\nstream gradient_to_previous lingers sends\n"                  \
    "stream gradient_from_next lingers receives\n"

#endif

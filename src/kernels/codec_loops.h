// What encodes and decodes (codec/codec.h), fast: the same bits as the plain functions there, for every instruction
// set. Threads may share a vector by cutting it at blocks.
#ifndef KERNELS_CODEC_LOOPS_H
#define KERNELS_CODEC_LOOPS_H

#include "codec/codec.h"

// For the best instruction set.
const struct codec_loops *codec_loops(enum codec codec);

#endif

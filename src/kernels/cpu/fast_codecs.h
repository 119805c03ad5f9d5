// The loops of kernels/codec_loops.h, one copy per instruction set.
#ifndef KERNELS_CPU_FAST_CODECS_H
#define KERNELS_CPU_FAST_CODECS_H

#include "kernels/codec_loops.h"
#include "kernels/cpu/isa.h"

// codec_loops for a usable instruction set of the caller's choice.
const struct codec_loops *cpu_codec_loops_for(enum codec codec, enum isa isa);

#endif

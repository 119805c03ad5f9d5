// The kernels of cpu/, one row per op, each for f32 and bf16. An op without a row runs on ref/.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise.h"

static const struct kernel table[OP_COUNT] = {
    [OP_MATMUL] = {.run = ISA(cpu_matmul), .prepare = ISA(cpu_matmul_prepare)},
    [OP_MATMUL_DX] = {.run = ISA(cpu_matmul_dx), .prepare = ISA(cpu_matmul_dx_prepare)},
    [OP_MATMUL_DW] = {.run = ISA(cpu_matmul_dw), .prepare = ISA(cpu_matmul_dw_prepare)},
    [OP_ATTENTION] = {.run = ISA(cpu_attention), .prepare = ISA(cpu_attention_prepare)},
    [OP_ATTENTION_BWD] = {.run = ISA(cpu_attention_bwd), .prepare = ISA(cpu_attention_bwd_prepare)},
    [OP_CACHE_APPEND] = {.run = ISA(cpu_cache_append)},
    [OP_ATTENTION_CACHED] = {.run = ISA(cpu_attention_cached), .prepare = ISA(cpu_attention_cached_prepare)},
    [OP_EMBED] = {.run = ISA(cpu_embed)},
    [OP_ADD] = {.run = ISA(cpu_add)},
    [OP_ADD_BIAS] = {.run = ISA(cpu_add_bias)},
    [OP_LAYERNORM] = {.run = ISA(cpu_layernorm)},
    [OP_RMSNORM] = {.run = ISA(cpu_rmsnorm)},
    [OP_QKNORM] = {.run = ISA(cpu_qknorm)},
    [OP_ROPE] = {.run = ISA(cpu_rope)},
    [OP_KEEP_COLUMNS] = {.run = ISA(cpu_keep_columns)},
    [OP_GELU] = {.run = ISA(cpu_gelu)},
    [OP_SWIGLU] = {.run = ISA(cpu_swiglu)},
    [OP_CROSS_ENTROPY] = {.run = ISA(cpu_cross_entropy)},
    [OP_CROSS_ENTROPY_GRAD] = {.run = ISA(cpu_cross_entropy_grad)},
    [OP_LOGITS_MAX] = {.run = ISA(cpu_logits_max)},
    [OP_LOGITS_SUM] = {.run = ISA(cpu_logits_sum)},
    [OP_LOGITS_GRAD] = {.run = ISA(cpu_logits_grad)},
    [OP_FAN_OUT] = {.run = ISA(cpu_fan_out)},
    [OP_ZERO] = {.run = ISA(cpu_zero)},
    [OP_EMBED_DW] = {.run = ISA(cpu_embed_dw)},
    [OP_ADD_BIAS_DW] = {.run = ISA(cpu_add_bias_dw)},
    [OP_LAYERNORM_DX] = {.run = ISA(cpu_layernorm_dx)},
    [OP_LAYERNORM_DW] = {.run = ISA(cpu_layernorm_dw), .prepare = ISA(cpu_norm_prepare)},
    [OP_LAYERNORM_BWD] = {.run = ISA(cpu_layernorm_bwd), .prepare = ISA(cpu_norm_prepare)},
    [OP_RMSNORM_DX] = {.run = ISA(cpu_rmsnorm_dx)},
    [OP_RMSNORM_DW] = {.run = ISA(cpu_rmsnorm_dw), .prepare = ISA(cpu_norm_prepare)},
    [OP_RMSNORM_BWD] = {.run = ISA(cpu_rmsnorm_bwd), .prepare = ISA(cpu_norm_prepare)},
    [OP_QKNORM_DX] = {.run = ISA(cpu_qknorm_dx)},
    [OP_QKNORM_DW] = {.run = ISA(cpu_qknorm_dw), .prepare = ISA(cpu_qknorm_dw_prepare)},
    [OP_ROPE_DX] = {.run = ISA(cpu_rope_dx)},
    [OP_KEEP_COLUMNS_DX] = {.run = ISA(cpu_keep_columns)},
    [OP_GELU_DX] = {.run = ISA(cpu_gelu_dx)},
    [OP_SWIGLU_DX] = {.run = ISA(cpu_swiglu_dx)},
    [OP_SQUARE_SUM] = {.run = ISA(cpu_square_sum), .prepare = ISA(cpu_square_sum_prepare)},
    [OP_ADAMW] = {.run = ISA(cpu_adamw)},
    [OP_LION] = {.run = ISA(cpu_lion)},
    [OP_SGD] = {.run = ISA(cpu_sgd)},
};

const struct kernel *ISA(cpu_table)(enum dtype model) {
    return model == DTYPE_F32 || model == DTYPE_BF16 ? table : NULL;
}

// The pointwise kernels: norms, rotary embedding, activations, loss, embedding, optimizers, copies. Each serves f32 and
// bf16 models and gives the same bits for any number of threads. Sums over rows are kept per block of rows in
// workspace.
#ifndef KERNELS_CPU_POINTWISE_H
#define KERNELS_CPU_POINTWISE_H

#include "kernels/cpu/isa.h"

// attention_parts.c
void ISA_OTHERS(cpu_attention_pack)(const struct call *call);
void ISA_OTHERS(cpu_attention_pack_queries)(const struct call *call);
void ISA_OTHERS(cpu_attention_merge)(const struct call *call);
void ISA_OTHERS(cpu_attention_end)(const struct call *call);
void ISA_OTHERS(cpu_attention_delta)(const struct call *call);
void ISA_OTHERS(cpu_attention_add)(const struct call *call);
void ISA_OTHERS(cpu_attention_bwd_end)(const struct call *call);

// norm.c
void ISA_OTHERS(cpu_layernorm)(const struct call *call);
void ISA_OTHERS(cpu_layernorm_dx)(const struct call *call);
void ISA_OTHERS(cpu_layernorm_dw)(const struct call *call);
void ISA_OTHERS(cpu_layernorm_bwd)(const struct call *call);
void ISA_OTHERS(cpu_layernorm_heads)(const struct call *call);
void ISA_OTHERS(cpu_layernorm_heads_dx)(const struct call *call);
void ISA_OTHERS(cpu_layernorm_heads_dw)(const struct call *call);
trireme_status ISA_OTHERS(cpu_norm_heads_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                                  trireme_error *error);
void ISA_OTHERS(cpu_rmsnorm)(const struct call *call);
void ISA_OTHERS(cpu_rmsnorm_dx)(const struct call *call);
void ISA_OTHERS(cpu_rmsnorm_dw)(const struct call *call);
void ISA_OTHERS(cpu_rmsnorm_bwd)(const struct call *call);
// For the four that give dw.
trireme_status ISA_OTHERS(cpu_norm_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                            trireme_error *error);

// qknorm.c
void ISA_OTHERS(cpu_qknorm)(const struct call *call);
void ISA_OTHERS(cpu_qknorm_dx)(const struct call *call);
void ISA_OTHERS(cpu_qknorm_dw)(const struct call *call);
trireme_status ISA_OTHERS(cpu_qknorm_dw_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                                 trireme_error *error);

// gates.c
void ISA_OTHERS(cpu_log_sigmoid)(const struct call *call);
void ISA_OTHERS(cpu_log_sigmoid_dx)(const struct call *call);
void ISA_OTHERS(cpu_gated_rmsnorm)(const struct call *call);
void ISA_OTHERS(cpu_gated_rmsnorm_dx)(const struct call *call);
void ISA_OTHERS(cpu_gated_rmsnorm_dw)(const struct call *call);
trireme_status ISA_OTHERS(cpu_gated_rmsnorm_dw_prepare)(const struct call *call, void **prepared,
                                                        int64_t *workspace_bytes, trireme_error *error);

// linear_attention.c
void ISA_OTHERS(cpu_linear_attention)(const struct call *call);
void ISA_OTHERS(cpu_linear_attention_bwd)(const struct call *call);
trireme_status ISA_OTHERS(cpu_linear_attention_prepare)(const struct call *call, void **prepared,
                                                        int64_t *workspace_bytes, trireme_error *error);
trireme_status ISA_OTHERS(cpu_linear_attention_bwd_prepare)(const struct call *call, void **prepared,
                                                            int64_t *workspace_bytes, trireme_error *error);

void ISA_OTHERS(cpu_linear_block)(const struct call *call);
void ISA_OTHERS(cpu_linear_block_bwd)(const struct call *call);
void ISA_OTHERS(cpu_linear_cached)(const struct call *call);
void ISA_OTHERS(cpu_linear_join)(const struct call *call);
void ISA_OTHERS(cpu_linear_state)(const struct call *call);
void ISA_OTHERS(cpu_linear_state_bwd)(const struct call *call);
trireme_status ISA_OTHERS(cpu_linear_state_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                                    trireme_error *error);

// row_norm.c
void ISA_OTHERS(cpu_row_squares)(const struct call *call);
void ISA_OTHERS(cpu_row_squares_dx)(const struct call *call);
void ISA_OTHERS(cpu_row_norm)(const struct call *call);
void ISA_OTHERS(cpu_row_norm_dx)(const struct call *call);
void ISA_OTHERS(cpu_row_norm_dw)(const struct call *call);

// rope.c
void ISA_OTHERS(cpu_rope)(const struct call *call);
void ISA_OTHERS(cpu_rope_dx)(const struct call *call);

// activation.c
void ISA_OTHERS(cpu_add)(const struct call *call);
void ISA_OTHERS(cpu_gradient_sum)(const struct call *call);
void ISA_OTHERS(cpu_gradient_sum_dw)(const struct call *call);
void ISA_OTHERS(cpu_add_bias)(const struct call *call);
void ISA_OTHERS(cpu_add_bias_dw)(const struct call *call);
void ISA_OTHERS(cpu_gelu)(const struct call *call);
void ISA_OTHERS(cpu_gelu_dx)(const struct call *call);
void ISA_OTHERS(cpu_swiglu)(const struct call *call);
void ISA_OTHERS(cpu_swiglu_dx)(const struct call *call);
void ISA_OTHERS(cpu_geglu)(const struct call *call);
void ISA_OTHERS(cpu_geglu_dx)(const struct call *call);
void ISA_OTHERS(cpu_scale)(const struct call *call);
void ISA_OTHERS(cpu_softcap)(const struct call *call);
void ISA_OTHERS(cpu_softcap_dx)(const struct call *call);

// embed.c
void ISA_OTHERS(cpu_embed)(const struct call *call);
void ISA_OTHERS(cpu_embed_dw)(const struct call *call);

// loss.c
void ISA_OTHERS(cpu_cross_entropy)(const struct call *call);
void ISA_OTHERS(cpu_cross_entropy_grad)(const struct call *call);
void ISA_OTHERS(cpu_logits_max)(const struct call *call);
void ISA_OTHERS(cpu_logits_sum)(const struct call *call);
void ISA_OTHERS(cpu_logits_grad)(const struct call *call);
void ISA_OTHERS(cpu_logits_exp)(const struct call *call);
void ISA_OTHERS(cpu_logits_dx)(const struct call *call);

// copy.c
void ISA_OTHERS(cpu_fan_out)(const struct call *call);
void ISA_OTHERS(cpu_keep_columns)(const struct call *call);
void ISA_OTHERS(cpu_copy)(const struct call *call);
void ISA_OTHERS(cpu_zero)(const struct call *call);
void ISA_OTHERS(cpu_zero_columns)(const struct call *call);

// optimizer.c
void ISA_OTHERS(cpu_square_sum)(const struct call *call);
trireme_status ISA_OTHERS(cpu_square_sum_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                                  trireme_error *error);
void ISA_OTHERS(cpu_adamw)(const struct call *call);
void ISA_OTHERS(cpu_lion)(const struct call *call);
void ISA_OTHERS(cpu_sgd)(const struct call *call);
void ISA_OTHERS(cpu_scaled)(const struct call *call);
void ISA_OTHERS(cpu_muon_momentum)(const struct call *call);
void ISA_OTHERS(cpu_muon)(const struct call *call);

// average.c
void ISA_OTHERS(cpu_take)(const struct call *call);
void ISA_OTHERS(cpu_weigh)(const struct call *call);
void ISA_OTHERS(cpu_compress)(const struct call *call);
void ISA_OTHERS(cpu_weigh_codes)(const struct call *call);
void ISA_OTHERS(cpu_eager)(const struct call *call);
void ISA_OTHERS(cpu_outer_sgd)(const struct call *call);
void ISA_OTHERS(cpu_settle)(const struct call *call);
void ISA_OTHERS(cpu_keep)(const struct call *call);
void ISA_OTHERS(cpu_restore)(const struct call *call);
void ISA_OTHERS(cpu_adopt)(const struct call *call);
void ISA_OTHERS(cpu_weigh_squares)(const struct call *call);
void ISA_OTHERS(cpu_rescale)(const struct call *call);

#endif

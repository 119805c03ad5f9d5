// Matrix products of a linear layer: y = x w' + b + r, and its gradients.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"

static int64_t row_stride(const struct tensor *t) {
    return t->stride[0];
}

static bool is_bf16(const struct tensor *t) {
    return t->dtype == DTYPE_BF16;
}

static struct gemm product_start(const struct call *call) {
    const struct tensor *out = &call->out[0];
    return (struct gemm){
        .m = out->dim[0],
        .n = out->dim[1],
        .c = out->data,
        .c_row = row_stride(out),
        .bf16 = is_bf16(&call->in[0]),
        .bf16_out = is_bf16(out),
        .accumulate = call->accumulate,
        .threads = call->threads,
        .way = call->way,
        .workspace = call->workspace,
    };
}

// y[m,n] = sum_k x[m,k] w[n,k] + b[n] + r[m,n]
static struct gemm forward_product(const struct call *call) {
    const struct tensor *x = &call->in[0], *w = &call->in[1];
    struct gemm g = product_start(call);
    g.k = x->dim[1];
    g.a = (struct matrix){x->data, row_stride(x), 1};
    g.b = (struct matrix){w->data, 1, row_stride(w)};
    if (call->inputs > 2)
        g.bias = call->in[2].data;
    if (call->inputs > 3) {
        g.residual = call->in[3].data;
        g.residual_row = row_stride(&call->in[3]);
    }
    g.accumulate = false;
    return g;
}

// dx[m,k] = sum_n dy[m,n] w[n,k]
static struct gemm input_gradient_product(const struct call *call) {
    const struct tensor *dy = &call->in[0], *w = &call->in[1];
    struct gemm g = product_start(call);
    g.k = dy->dim[1];
    g.a = (struct matrix){dy->data, row_stride(dy), 1};
    g.b = (struct matrix){w->data, row_stride(w), 1};
    return g;
}

// dw[n,k] = sum_m dy[m,n] x[m,k]; db[n] = sum_m dy[m,n]
static struct gemm weight_gradient_product(const struct call *call) {
    const struct tensor *x = &call->in[0], *dy = &call->in[1];
    struct gemm g = product_start(call);
    g.k = x->dim[0];
    g.a = (struct matrix){dy->data, 1, row_stride(dy)};
    g.b = (struct matrix){x->data, row_stride(x), 1};
    if (call->outputs > 1)
        g.row_sums = call->out[1].data;
    return g;
}

void ISA(cpu_matmul)(const struct call *call) {
    struct gemm g = forward_product(call);
    if (g.m <= GEMM_FEW)
        ISA(gemm_few)(&g);
    else
        ISA(gemm_run)(&g);
}

void ISA(cpu_matmul_dx)(const struct call *call) {
    struct gemm g = input_gradient_product(call);
    ISA(gemm_run)(&g);
}

void ISA(cpu_matmul_dw)(const struct call *call) {
    struct gemm g = weight_gradient_product(call);
    ISA(gemm_run)(&g);
}

trireme_status ISA(cpu_matmul_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                       trireme_error *error) {
    (void)error;
    struct gemm g = forward_product(call);
    *prepared = NULL;
    *workspace_bytes = g.m <= GEMM_FEW ? 0 : ISA(gemm_workspace)(&g);
    return TRIREME_OK;
}

trireme_status ISA(cpu_matmul_dx_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                          trireme_error *error) {
    (void)error;
    struct gemm g = input_gradient_product(call);
    *prepared = NULL;
    *workspace_bytes = ISA(gemm_workspace)(&g);
    return TRIREME_OK;
}

trireme_status ISA(cpu_matmul_dw_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                          trireme_error *error) {
    (void)error;
    struct gemm g = weight_gradient_product(call);
    *prepared = NULL;
    *workspace_bytes = ISA(gemm_workspace)(&g);
    return TRIREME_OK;
}

unsigned ISA(cpu_matmul_ways)(const struct call *call) {
    struct gemm g = forward_product(call);
    return g.m <= GEMM_FEW ? 1U << WAY_RULE : ISA(gemm_ways)(&g);
}

unsigned ISA(cpu_matmul_dx_ways)(const struct call *call) {
    struct gemm g = input_gradient_product(call);
    return ISA(gemm_ways)(&g);
}

unsigned ISA(cpu_matmul_dw_ways)(const struct call *call) {
    struct gemm g = weight_gradient_product(call);
    return ISA(gemm_ways)(&g);
}

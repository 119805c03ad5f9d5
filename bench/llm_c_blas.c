// llm.c's two functions that multiply matrices, by a BLAS: bench/llm_c.py links this with an llm.c that has none.
// Shapes as there: inp (B,T,C), weight (OC,C), bias (OC), out (B,T,OC); backward adds to what gradients hold.
#include <cblas.h>
#include <stddef.h>
#include <string.h>

void matmul_forward(float *out, const float *inp, const float *weight, const float *bias, int B, int T, int C, int OC);
void matmul_backward(float *dinp, float *dweight, float *dbias, const float *dout, const float *inp,
                     const float *weight, int B, int T, int C, int OC);

void matmul_forward(float *out, const float *inp, const float *weight, const float *bias, int B, int T, int C, int OC) {
    int rows = B * T;
    if (bias)
        for (int row = 0; row < rows; row++)
            memcpy(out + (size_t)row * OC, bias, OC * sizeof *bias);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, OC, C, 1, inp, C, weight, C, bias != NULL, out, OC);
}

void matmul_backward(float *dinp, float *dweight, float *dbias, const float *dout, const float *inp,
                     const float *weight, int B, int T, int C, int OC) {
    int rows = B * T;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, C, OC, 1, dout, OC, weight, C, 1, dinp, C);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, OC, C, rows, 1, dout, OC, inp, C, 1, dweight, C);
    if (dbias)
        for (int row = 0; row < rows; row++)
            for (int o = 0; o < OC; o++)
                dbias[o] += dout[(size_t)row * OC + o];
}

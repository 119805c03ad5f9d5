// Times attention and gated linear attention of one width over the length of sequences, forward and backward: prints
// microseconds of one thread's processor time per token of each, and their ratio. 128 features: two heads of 64, and
// one head whose state is 64 x 128; heads are independent, so that wider layers take as much for each such group. As
// many tokens in all lengths, in one document each. The two take turns; the fastest of each counts, since others on the
// machine can only slow it down.
//
//   lengths [LONGEST]     default: 32768
#include <time.h>

#include "base/bf16.h"
#include "kernels/cpu/isa.h"

enum { TOKENS = 32768, SHORTEST = 64, OPS = 4 };
static const double ENOUGH = 1e9; // nanoseconds for each op and length

static double processor_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int64_t count_of(const struct tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->dim[i];
    return n;
}

// Reals lie between -0.5 and 0.5, decays between -0.1 and 0; a token's document begins at 0.
static struct tensor tensor_new(const struct op_operand *operand, const int64_t *extent, enum dtype model) {
    struct tensor t = {.dtype = operand->dtype == 'P'   ? model
                                : operand->dtype == 'A' ? DTYPE_F32
                                                        : DTYPE_I32,
                       .ndim = operand->ndim};
    int64_t stride = 1;
    for (int i = t.ndim - 1; i >= 0; i--) {
        t.dim[i] = extent[(int)operand->dim[i]];
        t.stride[i] = stride;
        stride *= t.dim[i];
    }
    t.data = mem_alloc((size_t)(stride * dtype_size(t.dtype)));
    const bool decays = strcmp(operand->name, "decay") == 0;
    for (int64_t i = 0; i < count_of(&t) && t.dtype != DTYPE_I32; i++) {
        const float x = (float)(i * 7919 % 10007) / 10007, value = decays ? -0.1f * x : x - 0.5f;
        if (t.dtype == DTYPE_BF16)
            ((uint16_t *)t.data)[i] = bf16_from_float(value);
        else
            ((float *)t.data)[i] = value;
    }
    return t;
}

static void call_make(struct call *call, const struct op_table *table, enum op op, int64_t length, enum dtype model,
                      const struct kernel *kernel) {
    const struct op_info *info = &table->op[op];
    const bool linear = op == OP_LINEAR_ATTENTION || op == OP_LINEAR_ATTENTION_BWD;
    int64_t extent[DIM_LETTERS] = {0};
    trireme_error error;
    extent['b'] = TOKENS / length;
    extent['t'] = extent['T'] = length;
    extent['h'] = extent['g'] = linear ? 1 : 2;
    extent['D'] = extent['K'] = 64;
    extent['V'] = 128;
    *call = (struct call){.op = op, .inputs = info->inputs, .outputs = info->outputs, .threads = 1};
    for (int i = 0; i < info->inputs; i++)
        if (!info->in[i].optional)
            call->in[i] = tensor_new(&info->in[i], extent, model);
    for (int i = 0; i < info->outputs; i++)
        if (!info->out[i].optional)
            call->out[i] = tensor_new(&info->out[i], extent, model);
    call->attribute[0].f = 0.125;
    if (kernel->prepare)
        CHECK(kernel->prepare(call, &call->prepared, &call->workspace_bytes, &error) == TRIREME_OK);
    call->workspace = mem_alloc((size_t)call->workspace_bytes);
}

static void call_free(struct call *call, const struct kernel *kernel) {
    for (int i = 0; i < call->inputs; i++)
        free(call->in[i].data);
    for (int i = 0; i < call->outputs; i++)
        free(call->out[i].data);
    free(call->workspace);
    if (kernel->release)
        kernel->release(call->prepared);
}

// Nanoseconds of each op at its fastest. A call of attention that takes very long is made once.
static void measure(const struct op_table *table, int64_t length, enum dtype model, double taken[OPS]) {
    static const enum op OP[OPS] = {OP_ATTENTION, OP_ATTENTION_BWD, OP_LINEAR_ATTENTION, OP_LINEAR_ATTENTION_BWD};
    struct kernel kernel[OPS];
    struct call call[OPS];
    double spent[OPS] = {0};
    for (int i = 0; i < OPS; i++) {
        kernel[i] = cpu_kernel_table_for(model, isa_best())[OP[i]];
        call_make(&call[i], table, OP[i], length, model, &kernel[i]);
        taken[i] = 1e30;
    }
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < OPS; i++) {
            if (spent[i] >= ENOUGH)
                continue;
            const double start = processor_time();
            kernel[i].run(&call[i]);
            const double running = processor_time() - start;
            spent[i] += running;
            taken[i] = MIN(taken[i], running);
            more |= spent[i] < ENOUGH;
        }
    }
    for (int i = 0; i < OPS; i++)
        call_free(&call[i], &kernel[i]);
}

int main(int argc, char **argv) {
    const int64_t longest = argc > 1 ? atoi(argv[1]) : TOKENS;
    struct op_table *table = op_table_create();
    printf("dtype,length,attention_forward_us,attention_backward_us,linear_forward_us,linear_backward_us,ratio\n");
    for (int m = 0; m < 2; m++)
        for (int64_t length = SHORTEST; length <= MIN(longest, (int64_t)TOKENS); length *= 2) {
            const enum dtype model = m ? DTYPE_BF16 : DTYPE_F32;
            double taken[OPS];
            measure(table, length, model, taken);
            printf("%s,%lld,%.3f,%.3f,%.3f,%.3f,%.2f\n", dtype_name(model), (long long)length, taken[0] / TOKENS * 1e-3,
                   taken[1] / TOKENS * 1e-3, taken[2] / TOKENS * 1e-3, taken[3] / TOKENS * 1e-3,
                   (taken[0] + taken[1]) / (taken[2] + taken[3]));
            fflush(stdout);
        }
    free(table);
    return 0;
}

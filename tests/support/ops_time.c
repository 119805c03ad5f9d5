// Times a kernel: the median of runs that fill a quarter of a second.
#include "base/clock.h"
#include "support/ops_internal.h"

enum { MOST_RUNS = 1000 };

static double flops_of(const struct op_table *table, const struct call *call) {
    struct operand in[OP_MAX_IN] = {0}, out[OP_MAX_OUT] = {0};
    struct instruction instruction = {
        .op = call->op, .inputs = call->inputs, .outputs = call->outputs, .in = in, .out = out};
    for (int i = 0; i < call->inputs; i++) {
        in[i].buffer = call->in[i].data ? 0 : NONE;
        in[i].ndim = call->in[i].ndim;
        memcpy(in[i].dim, call->in[i].dim, sizeof call->in[i].dim);
    }
    for (int i = 0; i < call->outputs; i++) {
        out[i].buffer = call->out[i].data ? 0 : NONE;
        out[i].ndim = call->out[i].ndim;
        memcpy(out[i].dim, call->out[i].dim, sizeof call->out[i].dim);
    }
    struct buffer any = {.extent = NONE};
    const struct program program = {.buffers = {.item = &any, .count = 1}};
    return instruction_flops(&program, table, &instruction);
}

trireme_status op_time(const struct op_table *table, const char *spec, const struct op_options *options,
                       const struct kernel *kernel, struct op_timing *timing, trireme_error *error) {
    struct op_instance instance = {0};
    trireme_status status = op_instance_create(&instance, table, spec, options, error);
    if (status == TRIREME_OK)
        status = op_instance_prepare(&instance, kernel, error);
    if (status == TRIREME_OK) {
        static const int64_t budget = 250000000;
        double *seconds = mem_alloc(MOST_RUNS * sizeof *seconds);
        int runs = 0;
        kernel->run(&instance.call); // touches the memory
        for (int64_t begin = clock_now(); runs < 3 || (runs < MOST_RUNS && clock_now() - begin < budget); runs++) {
            int64_t start = clock_now();
            kernel->run(&instance.call);
            seconds[runs] = (double)(clock_now() - start) * 1e-9;
        }
        sort_doubles(seconds, (size_t)runs);
        *timing = (struct op_timing){seconds[runs / 2], flops_of(table, &instance.call)};
        free(seconds);
        if (kernel->release && instance.call.prepared)
            kernel->release(instance.call.prepared);
    }
    op_instance_release(&instance);
    return status;
}

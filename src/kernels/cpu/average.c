// What islands do when they meet (ref_take and the two after it), with the same bits: in double, each element by
// itself.
#include "kernels/cpu/pointwise.h"

#include "kernels/bf16.h"
#include "kernels/cpu/rows.h"

struct average {
    bool bf16;
    const void *p;
    const uint16_t *rem;
    const float *value, *taken;
    void *p1;
    uint16_t *rem1;
    float *value1, *taken1;
    double by; // the weight; the total
};

static struct average average_of(const struct call *call) {
    const struct tensor *p = &call->in[0];
    return (struct average){.bf16 = p->dtype == DTYPE_BF16, .p = p->data, .rem = call->in[1].data};
}

static inline float average_master(const struct average *a, int64_t i, bool bf16) {
    return bf16 ? master_join(((const uint16_t *)a->p)[i], a->rem[i]) : ((const float *)a->p)[i];
}

static void take_elements(const void *args, int64_t from, int64_t to) {
    const struct average *a = args;
    for (int64_t i = from; i < to; i++)
        a->value1[i] = a->bf16 ? average_master(a, i, true) : average_master(a, i, false);
    if (a->taken1)
        memcpy(a->taken1 + from, a->value1 + from, (size_t)(to - from) * sizeof *a->taken1);
}

// in: p rem; out: value taken
void ISA(cpu_take)(const struct call *call) {
    struct average a = average_of(call);
    a.value1 = call->out[0].data;
    a.taken1 = call->out[1].data;
    run_split(call, call->in[0].dim[0], call->in[0].dim[0], take_elements, &a);
}

static void weigh_elements(const void *args, int64_t from, int64_t to) {
    const struct average *a = args;
    if (a->by == 0)
        memset(a->value1 + from, 0, (size_t)(to - from) * sizeof *a->value1);
    for (int64_t i = from; i < to && a->by != 0; i++)
        a->value1[i] = (float)(a->by * (double)a->value[i]);
}

// in: value weight; out: value1 total
void ISA(cpu_weigh)(const struct call *call) {
    const struct average a = {
        .value = call->in[0].data, .value1 = call->out[0].data, .by = *(const double *)call->in[1].data};
    run_split(call, call->in[0].dim[0], call->in[0].dim[0], weigh_elements, &a);
    if (call->out[1].data)
        *(double *)call->out[1].data = a.by;
}

static inline void settle_range(const struct average *a, int64_t from, int64_t to, bool bf16, bool taken) {
    for (int64_t i = from; i < to; i++) {
        const double x = (double)average_master(a, i, bf16), learnt = taken ? x - (double)a->taken[i] : 0;
        const float settled = (float)((double)a->value[i] / a->by + learnt);
        if (bf16)
            master_split(settled, (uint16_t *)a->p1 + i, a->rem1 + i);
        else
            ((float *)a->p1)[i] = settled;
    }
}

static void settle_elements(const void *args, int64_t from, int64_t to) {
    const struct average *a = args;
    if (a->bf16)
        a->taken ? settle_range(a, from, to, true, true) : settle_range(a, from, to, true, false);
    else
        a->taken ? settle_range(a, from, to, false, true) : settle_range(a, from, to, false, false);
}

// in: p rem value total taken; out: p1 rem1, which may be p and rem
void ISA(cpu_settle)(const struct call *call) {
    struct average a = average_of(call);
    const int64_t count = call->in[0].dim[0];
    a.value = call->in[2].data;
    a.by = *(const double *)call->in[3].data;
    a.taken = call->in[4].data;
    a.p1 = call->out[0].data;
    a.rem1 = call->out[1].data;
    if (a.by != 0) {
        run_split(call, count, count, settle_elements, &a);
        return;
    }
    if (a.p1 != a.p)
        memcpy(a.p1, a.p, (size_t)(count * dtype_size(call->in[0].dtype)));
    if (a.rem1 && a.rem1 != a.rem)
        memcpy(a.rem1, a.rem, (size_t)count * sizeof *a.rem1);
}

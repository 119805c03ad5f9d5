#include "run/traffic.h"

#include "launch/ranks.h"
#include "sim/exchanges.h"

#include <math.h>

trireme_status traffic_create(struct traffic *out, const struct engine *e, struct communicator *control,
                              trireme_error *error) {
    const size_t programs = e->programs.count;
    *out = (struct traffic){.sent = mem_alloc(programs * AXIS_COUNT * sizeof *out->sent),
                            .runs = mem_alloc(programs * sizeof *out->runs)};
    for (size_t i = 0; i < programs; i++)
        if (!program_evaluates(e->programs.item[i].compiled->spec.kind))
            program_sends(&e->programs.item[i].compiled->program, &out->sent[i * AXIS_COUNT]);
    return ranks_most(control, out->sent, (int64_t)programs * AXIS_COUNT, error);
}

void traffic_release(struct traffic *t) {
    free(t->sent);
    free(t->runs);
    *t = (struct traffic){0};
}

void traffic_take(struct traffic *t, const struct engine *e, int64_t sent[AXIS_COUNT]) {
    double sum[AXIS_COUNT] = {0};
    for (size_t i = 0; i < e->programs.count; i++) {
        const int64_t runs = e->programs.item[i].runs;
        for (int a = 0; a < AXIS_COUNT; a++)
            sum[a] += (double)(runs - t->runs[i]) * t->sent[i * AXIS_COUNT + (size_t)a];
        t->runs[i] = runs;
    }
    for (int a = 0; a < AXIS_COUNT; a++)
        sent[a] = llround(sum[a]);
}

// Chooses, by measurement, how a program's calls are run (kernels/choices.h).
#include "exec/executor.h"

struct frequent_calls {
    VEC(struct frequent_call);
};

// How many invocations an instruction runs in.
static int64_t choice_invocations(const struct program *program, int template, const struct instruction *instruction) {
    int64_t count = 0;
    for (size_t i = 0; i < program->schedule.count; i++) {
        const struct invocation *v = &program->schedule.item[i];
        count += v->template == template && !when_skips(instruction->when, v);
    }
    return count;
}

// The call as it is made most often: a template's first invocation may be the only one that does not accumulate.
static struct call usual_call(const struct executor *e, int template, const struct resolved *r) {
    struct call call;
    instruction_call(&call, e, r);
    int64_t adds = 0;
    for (size_t i = 0; i < e->program->schedule.count; i++) {
        const struct invocation *v = &e->program->schedule.item[i];
        adds += v->template == template && !when_skips(r->instruction->when, v) &&
                instruction_accumulates(r->instruction, v);
    }
    call.accumulate = 2 * adds > choice_invocations(e->program, template, r->instruction);
    return call;
}

trireme_status executor_measure(const struct executor *e, struct choices *choices, int64_t runs, trireme_error *error) {
    struct frequent_calls calls = {0};
    for (size_t t = 0; t < e->program->templates.count; t++)
        for (int i = 0; i < e->templates[t].count; i++) {
            const struct resolved *r = &e->templates[t].item[i];
            if (r->ways > 1U << WAY_RULE)
                VEC_PUSH(&calls, (struct frequent_call){usual_call(e, (int)t, r), r->run, r->ways,
                                                        choice_invocations(e->program, (int)t, r->instruction),
                                                        instruction_flops(e->program, e->table, r->instruction)});
        }
    kernels_pin(e->streams);
    trireme_status status = choices_measure(
        choices, e->table, calls.item, calls.count, runs,
        e->program->arena[SPACE_DEVICE].state_bytes + e->program->arena[SPACE_DEVICE].step_bytes, error);
    kernels_unpin(e->streams);
    VEC_RELEASE(&calls);
    return status;
}

void executor_choose(struct executor *e, const struct choices *choices) {
    for (size_t t = 0; t < e->program->templates.count; t++)
        for (int i = 0; i < e->templates[t].count; i++) {
            struct resolved *r = &e->templates[t].item[i];
            if (r->ways > 1U << WAY_RULE) {
                const struct call call = usual_call(e, (int)t, r);
                r->way = (uint8_t)choices_way(choices, e->table, &call, r->ways);
            }
        }
}

double executor_saves(const struct executor *e, const struct choices *choices) {
    double seconds = 0;
    for (size_t t = 0; t < e->program->templates.count; t++)
        for (int i = 0; i < e->templates[t].count; i++) {
            const struct resolved *r = &e->templates[t].item[i];
            const struct call call = usual_call(e, (int)t, r);
            const struct choice *c = call.way != WAY_RULE ? choices_find(choices, e->table, &call) : NULL;
            if (c)
                seconds += (double)choice_invocations(e->program, (int)t, r->instruction) *
                           (c->seconds[WAY_RULE] - c->seconds[c->way]);
        }
    return seconds;
}

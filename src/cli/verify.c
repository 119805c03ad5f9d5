#include "base/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "train/synthetic.h"

// Compiling verifies: what comes back has been proved.
static trireme_status verify(const struct config *config, bool json, struct text *out, trireme_error *error) {
    struct model_config model;
    struct engine e;
    TRY(synthetic_model(&model, config, error));
    TRY(engine_compile(&e, config, &model, ENGINE_TRAIN, 0, error));
    const struct program *programs[] = {&e.train.program, &e.evaluate.program};
    static const char *const PROVED[] = {"memory, loss, gradients and update", "memory and loss"};
    if (json) {
        json_begin_object(out, NULL);
        json_begin_array(out, "programs");
    }
    for (size_t i = 0; i < ARRAY_LENGTH(programs); i++) {
        const struct program *p = programs[i];
        int64_t begin = clock_now();
        trireme_status status = program_verify(p, e.ops, error);
        double seconds = 1e-9 * (double)(clock_now() - begin);
        if (status != TRIREME_OK) {
            engine_release(&e);
            return status;
        }
        if (json) {
            json_begin_object(out, NULL);
            json_add_string(out, "program", p->name);
            json_add_boolean(out, "sound", true);
            json_add_integer(out, "instructions", program_length(p));
            json_add_integer(out, "buffers", (int64_t)p->buffers.count);
            json_add_number(out, "seconds", seconds);
            json_end_object(out);
        } else {
            text_add(out, "%s: sound. %lld instructions in %zu templates over %zu buffers; %s proved in %.1f ms\n",
                     p->name, (long long)program_length(p), p->templates.count, p->buffers.count, PROVED[i],
                     1e3 * seconds);
        }
    }
    if (json) {
        json_end_array(out);
        json_end_object(out);
        text_add(out, "\n");
    }
    engine_release(&e);
    return TRIREME_OK;
}

trireme_status command_verify(const struct arguments *a, trireme_error *error) {
    TRY(arguments_expect(a, 0, 1, error));
    struct config config;
    TRY(arguments_config(a, a->operands.count ? a->operands.item[0] : NULL, NULL, &config, error));
    struct text out = {0};
    trireme_status status = verify(&config, a->json, &out, error);
    if (status == TRIREME_OK)
        status = print_text(&out, error);
    text_release(&out);
    config_release(&config);
    return status;
}

// trireme verify CONFIG.yaml: proves the programs of a run.
#include "base/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "engine/stages.h"
#include "measure/synthetic.h"

// What was proved of one kind of program (train, evaluate), over all stages.
struct proof {
    const char *name;
    int64_t instructions; // of one step of all stages
    int64_t buffers;
};

static trireme_status verify_prove(const struct stages *stages, bool train, struct proof *out, trireme_error *error) {
    TRY(stages_verify(stages, train, error));
    *out = (struct proof){.name = stages_program(stages, 0, train)->name};
    for (int stage = 0; stage < stages->count; stage++) {
        out->instructions += program_length(stages_program(stages, stage, train));
        out->buffers += (int64_t)stages_program(stages, stage, train)->buffers.count;
    }
    return TRIREME_OK;
}

static void verify_print_json(const struct stages *stages, const struct proof *proof, struct text *out) {
    json_begin_object(out, NULL);
    json_add_string(out, "program", proof->name);
    json_add_boolean(out, "sound", true);
    json_add_integer(out, "ranks", stages->ranks);
    json_add_integer(out, "programs", stages->count);
    json_add_integer(out, "instructions", proof->instructions);
    json_add_integer(out, "buffers", proof->buffers);
    json_end_object(out);
}

static void print_line(const struct stages *stages, const struct proof *proof, bool train, struct text *out) {
    text_add(out, "%s: sound", proof->name);
    if (stages->ranks > 1)
        text_add(out, " on %d ranks, in %s", stages->ranks, counted(stages->count, "program").text);
    text_add(out, ". %lld instructions over %lld buffers; memory, %s%s proved\n", (long long)proof->instructions,
             (long long)proof->buffers, train ? "loss, gradients and update" : "loss",
             stages->ranks > 1 ? ", placements and groups" : "");
}

static trireme_status verify(const struct config *config, bool json, struct text *out, trireme_error *error) {
    struct model_config model;
    struct stages stages;
    const int64_t begin = clock_now();
    TRY(synthetic_model(&model, config, error));
    progress_line("compiling the programs of all stages");
    TRY(stages_compile(&stages, config, &model, ENGINE_TRAIN, NULL, error));
    progress_clear();
    if (json) {
        json_begin_object(out, NULL);
        json_begin_array(out, "programs");
    }
    trireme_status status = TRIREME_OK;
    for (int train = 1; train >= 0 && status == TRIREME_OK; train--) {
        struct proof proof;
        status = verify_prove(&stages, train, &proof, error);
        if (status == TRIREME_OK && json)
            verify_print_json(&stages, &proof, out);
        else if (status == TRIREME_OK)
            print_line(&stages, &proof, train, out);
    }
    const double seconds = 1e-9 * (double)(clock_now() - begin);
    if (json) {
        json_end_array(out);
        json_add_number(out, "seconds", seconds);
        json_end_object(out);
        text_add(out, "\n");
    } else {
        text_add(out, "compiled and proved in %.3g s\n", seconds);
    }
    stages_release(&stages);
    return status;
}

trireme_status command_verify(const struct arguments *a, trireme_error *error) {
    TRY(arguments_expect(a, 0, 1, error));
    struct config config;
    TRY(arguments_config(a, a->operands.count ? a->operands.item[0] : NULL, "parallelism", &config, error));
    struct text out = {0};
    trireme_status status = verify(&config, a->json, &out, error);
    if (status == TRIREME_OK)
        status = print_text(&out, error);
    text_release(&out);
    config_release(&config);
    return status;
}

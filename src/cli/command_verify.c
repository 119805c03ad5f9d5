// trireme verify CONFIG.yaml: proves the programs of a run.
#include "base/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "compile/stages.h"
#include "measure/synthetic.h"

// What was proved of one kind of program (train, evaluate), over all stages.
struct proof {
    const char *name;
    int64_t instructions; // of one step of all stages
    int64_t buffers;
};

static struct proof proof_of(const struct stages *stages, int number) {
    struct proof proof = {.name = stage_program(&stages->stage[0], number)->program.name};
    for (int stage = 0; stage < stages->count; stage++) {
        const struct program *p = &stage_program(&stages->stage[stage], number)->program;
        proof.instructions += program_length(p);
        proof.buffers += (int64_t)p->buffers.count;
    }
    return proof;
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

static void print_line(const struct stages *stages, const struct proof *proof, const struct compiled *first,
                       struct text *out) {
    text_add(out, "%s: sound", proof->name);
    if (stages->ranks > 1)
        text_add(out, " on %d ranks, in %s", stages->ranks, counted(stages->count, "program").text);
    text_add(out, ". %lld instructions over %lld buffers; memory, %s%s proved\n", (long long)proof->instructions,
             (long long)proof->buffers,
             first->spec.kind == PROGRAM_TRAIN ? "loss, gradients and update"
             : first->loss != NONE             ? "loss"
                                               : "values",
             stages->ranks > 1 ? ", placements and groups" : "");
}

static trireme_status verify(const struct config *config, bool json, struct text *out, trireme_error *error) {
    struct model_config model;
    struct stages stages;
    const int64_t begin = clock_now();
    TRY(synthetic_model(&model, config, error));
    progress_line("compiling the programs of all stages");
    TRY(stages_create(&stages, config, &model, NULL, TRAIN_AND_EVALUATE, NULL, error));
    trireme_status status = stages_compile(&stages, EVERY_STAGE, error);
    progress_clear();
    if (status == TRIREME_OK)
        status = stages_verify(&stages, error);
    if (status != TRIREME_OK) {
        stages_release(&stages);
        return status;
    }
    if (json) {
        json_begin_object(out, NULL);
        json_begin_array(out, "programs");
    }
    for (size_t i = 0; i < stages.specs.count; i++) {
        const struct proof proof = proof_of(&stages, (int)i);
        if (json)
            verify_print_json(&stages, &proof, out);
        else
            print_line(&stages, &proof, stage_program(&stages.stage[0], (int)i), out);
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
    return TRIREME_OK;
}

trireme_status command_verify(const struct arguments *a, trireme_error *error) {
    TRY(arguments_expect(a, 0, 1, error));
    struct config config;
    TRY(arguments_config(a, a->operands.count ? a->operands.item[0] : NULL, &config, error));
    struct text out = {0};
    trireme_status status = verify(&config, a->json, &out, error);
    if (status == TRIREME_OK)
        status = print_text(&out, error);
    text_release(&out);
    config_release(&config);
    return status;
}

// The memory plan takes hardly more than the most bytes that live at any instruction, for real models, dtypes, modes of
// recomputation and meshes.
#include "compile/stages.h"
#include "engine/engine.h"
#include "measure/synthetic.h"
#include "memory/memory_plan.h"
#include "support/models.h"
#include "support/mutant.h"
#include "support/sanitized.h"

static const double ALLOWED = .02;

struct shape {
    const char *preset;
    int micro_batch_size, seq_len;
};

static const struct shape SHAPES[] = {
    {"gpt2-124m", 4, 1024},      {"gpt2-124m", 1, 256}, {"gpt2-355m", 2, 1024},  {"llama-5m", 8, 256},
    {"tinyllama-1.1b", 1, 2048}, {"llama-42m", 4, 512}, {"qwen3-0.6b", 2, 1024},
};

// Degrees of tensor and pipeline parallelism and of shards, with the ZeRO stage.
struct layout {
    int tp, pp, fsdp, zero;
    const char *schedule; // NULL: 1f1b
    int chunks;
    bool vocabulary; // spread over all stages
};

static const struct layout LAYOUTS[] = {
    {.tp = 1, .pp = 1, .fsdp = 1, .zero = 1}, {.tp = 1, .pp = 1, .fsdp = 4, .zero = 3},
    {.tp = 1, .pp = 1, .fsdp = 2, .zero = 2}, {.tp = 2, .pp = 1, .fsdp = 1, .zero = 1},
    {.tp = 1, .pp = 2, .fsdp = 1, .zero = 1}, {.tp = 1, .pp = 4, .fsdp = 1, .zero = 1},
    {.tp = 2, .pp = 1, .fsdp = 2, .zero = 3}, {.tp = 1, .pp = 2, .fsdp = 2, .zero = 3},
};

// The waste of the stage that wastes most.
static double worst_stage(const struct stages *stages) {
    double worst = 0;
    for (int i = 0; i < stages->count; i++) {
        const struct program *p = stages_program(stages, i, PROGRAM_TRAIN);
        struct memory_profile profile;
        program_memory_profile(p, stages->options.ops, &profile);
        int64_t live = profile.moments.item[profile.peak].live;
        memory_profile_release(&profile);
        assert_true(p->arena[SPACE_DEVICE].step_bytes >= live);
        worst = MAX(worst, (double)(p->arena[SPACE_DEVICE].step_bytes - live) / (double)live);
    }
    return worst;
}

// Planned anew: in any room a plan is found that fits, if without one it does; if not, the same as without.
static void assert_found_in_rooms(const struct stages *stages) {
    static const double ROOMS[] = {.99, 1, 1.005, 1.01};
    for (int i = 0; i < stages->count; i++) {
        struct program p = mutant_copy(stages_program(stages, i, PROGRAM_TRAIN));
        trireme_error error = {0};
        assert_ok(program_plan(&p, stages->options.ops, NULL, &error), &error);
        int64_t least = p.arena[SPACE_DEVICE].step_bytes;
        for (size_t r = 0; r < ARRAY_LENGTH(ROOMS); r++) {
            int64_t room = (int64_t)(ROOMS[r] * (double)least);
            assert_ok(program_plan(&p, stages->options.ops,
                                   &(struct plan_aim){.room = p.arena[SPACE_DEVICE].state_bytes + room}, &error),
                      &error);
            assert_true(room < least ? p.arena[SPACE_DEVICE].step_bytes == least
                                     : p.arena[SPACE_DEVICE].step_bytes <= room);
        }
        assert_ok(program_plan(&p, stages->options.ops, &(struct plan_aim){.hurried = true}, &error), &error);
        assert_true(p.arena[SPACE_DEVICE].step_bytes >= least &&
                    (p.hurried || p.arena[SPACE_DEVICE].step_bytes == least));
        assert_true(!program_shrink(&p, stages->options.ops, 0) || p.arena[SPACE_DEVICE].step_bytes == least);
        mutant_release(&p);
    }
}

static double waste_of(const struct shape *shape, const struct layout *layout, int microbatches, const char *dtype,
                       const char *mode, bool rooms) {
    char text[13][64];
    const char *settings[ARRAY_LENGTH(text)];
    snprintf(text[0], sizeof text[0], "model.preset=%s", shape->preset);
    snprintf(text[1], sizeof text[1], "training.seq_len=%d", shape->seq_len);
    snprintf(text[2], sizeof text[2], "training.micro_batch_size=%d", shape->micro_batch_size);
    snprintf(text[3], sizeof text[3], "training.global_batch_size=%d",
             microbatches * layout->fsdp * shape->micro_batch_size);
    snprintf(text[4], sizeof text[4], "training.dtype=%s", dtype);
    snprintf(text[5], sizeof text[5], "activation_checkpoint.mode=%s", mode);
    snprintf(text[6], sizeof text[6], "parallelism.tensor_parallel_degree=%d", layout->tp);
    snprintf(text[7], sizeof text[7], "parallelism.pipeline_parallel_degree=%d", layout->pp);
    snprintf(text[8], sizeof text[8], "parallelism.pipeline_parallel_schedule=%s",
             layout->schedule ? layout->schedule : "1f1b");
    snprintf(text[9], sizeof text[9], "parallelism.pipeline_parallel_chunks=%d", layout->chunks);
    snprintf(text[10], sizeof text[10], "parallelism.vocabulary_parallel=%s", layout->vocabulary ? "true" : "false");
    snprintf(text[11], sizeof text[11], "parallelism.data_parallel_shard_degree=%d", layout->fsdp);
    snprintf(text[12], sizeof text[12], "parallelism.zero_stage=%d", layout->zero);
    size_t count = layout->fsdp > 1 ? 13 : 11;
    for (size_t i = 0; i < count; i++)
        settings[i] = text[i];
    trireme_error error = {0};
    struct config config;
    struct model_config model;
    struct stages stages;
    assert_ok(config_load(&config, NULL, settings, count, &error), &error);
    assert_ok(synthetic_model(&model, &config, &error), &error);
    assert_ok(stages_create(&stages, &config, &model, NULL, TRAIN_AND_EVALUATE, NULL, &error), &error);
    assert_ok(stages_compile(&stages, EVERY_STAGE, &error), &error);
    double waste = worst_stage(&stages);
    if (rooms)
        assert_found_in_rooms(&stages);
    stages_release(&stages);
    config_release(&config);
    return waste;
}

static void hardly_any(void **unused) {
    (void)unused;
    static const char *const DTYPES[] = {"f32", "bf16"}, *const MODES[] = {"none", "selective", "full"};
    double sum = 0;
    int plans = 0;
    for (size_t s = 0; s < ARRAY_LENGTH(SHAPES); s += SANITIZED ? 7 : 1)
        for (size_t l = 0; l < ARRAY_LENGTH(LAYOUTS); l++)
            for (size_t d = 0; d < ARRAY_LENGTH(DTYPES); d++)
                for (size_t m = 0; m < ARRAY_LENGTH(MODES); m++) {
                    const struct layout *at = &LAYOUTS[l];
                    double waste = waste_of(&SHAPES[s], at, 8, DTYPES[d], MODES[m], false);
                    if (waste >= ALLOWED)
                        fail_msg("%s %dx%d, tp %d pp %d fsdp %d zero %d, %s, recompute %s: %.2f%% waste",
                                 SHAPES[s].preset, SHAPES[s].micro_batch_size, SHAPES[s].seq_len, at->tp, at->pp,
                                 at->fsdp, at->zero, DTYPES[d], MODES[m], 100 * waste);
                    sum += waste;
                    plans++;
                }
    print_message("%d plans, %.3f%% on average\n", plans, 100 * sum / plans);
}

// Schedules under which microbatches hold different amounts at different times. The last stage of gpt2 has logits that
// are much larger than a layer's activations.
// How large workspaces are depends on the instruction set, and with them the waste: of the plan with the most
// allocations it is 2.2% with AVX2.
static void hardly_any_by_schedule(void **unused) {
    (void)unused;
    static const struct {
        struct shape shape;
        struct layout layout;
        int microbatches;
        const char *mode;
        double allowed;
    } PLANS[] = {
        {{"llama-42m", 1, 512}, {1, 4, 1, 1, "zb-h1", 0, false}, 16, "none", ALLOWED},
        {{"llama-42m", 1, 512}, {1, 4, 1, 1, "zb-h2", 0, false}, 16, "selective", ALLOWED},
        {{"llama-42m", 1, 512}, {1, 4, 1, 1, "zb-v", 0, false}, 16, "full", ALLOWED},
        {{"llama-42m", 1, 512}, {1, 4, 1, 1, "v-half", 0, false}, 16, "none", ALLOWED},
        {{"llama-42m", 1, 512}, {1, 4, 1, 1, "v-min", 0, false}, 16, "selective", ALLOWED},
        {{"llama-42m", 1, 512}, {1, 4, 1, 1, "auto", 1, false}, 16, "full", ALLOWED},
        {{"llama-42m", 1, 512}, {1, 4, 1, 1, "auto", 2, false}, 16, "none", ALLOWED},
        {{"llama-42m", 1, 512}, {1, 4, 2, 2, "zb-v", 0, false}, 16, "selective", ALLOWED},
        {{"llama-42m", 1, 512}, {2, 4, 1, 1, "v-half", 0, false}, 16, "full", ALLOWED},
        {{"llama-42m", 1, 512}, {1, 2, 1, 1, "v-min", 0, false}, 16, "none", ALLOWED},
        {{"llama-42m", 1, 512}, {1, 4, 1, 1, "interleaved", 2, false}, 16, "selective", ALLOWED},
        {{"gpt2-124m", 1, 1024}, {1, 4, 1, 1, "zb-h1", 0, false}, 16, "full", ALLOWED},
        {{"gpt2-124m", 1, 1024}, {1, 4, 1, 1, "zb-v", 0, false}, 16, "none", ALLOWED},
        {{"gpt2-124m", 1, 1024}, {1, 4, 1, 1, "v-min", 0, false}, 16, "selective", ALLOWED},
        {{"gpt2-124m", 1, 1024}, {1, 4, 2, 2, "zb-v", 0, false}, 16, "full", ALLOWED},
        {{"llama-42m", 4, 512}, {1, 4, 2, 3, "v-min", 0, true}, 8, "full", ALLOWED},
        {{"llama-15m", 8, 256}, {1, 2, 2, 3, "interleaved", 3, true}, 24, "full", ALLOWED},
        {{"gpt2-124m", 2, 1024}, {1, 2, 2, 2, "v-min", 0, false}, 32, "none", .03}, // many allocations
        {{"llama-42m", 1, 512}, {1, 4, 1, 1, "zb-v", 0, false}, 1500, "none", .05}, // allocations are placed in blocks
    };
    double sum = 0;
    int plans = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(PLANS); i += SANITIZED ? 8 : 1) {
        const struct layout *at = &PLANS[i].layout;
        double waste = waste_of(&PLANS[i].shape, at, PLANS[i].microbatches, "f32", PLANS[i].mode, true);
        if (waste >= PLANS[i].allowed)
            fail_msg("%s, %s of %d chunks, tp %d pp %d fsdp %d, recompute %s: %.2f%% waste", PLANS[i].shape.preset,
                     at->schedule, at->chunks, at->tp, at->pp, at->fsdp, PLANS[i].mode, 100 * waste);
        sum += waste;
        plans++;
    }
    print_message("%d plans, %.3f%% on average\n", plans, 100 * sum / plans);
    assert_true(sum < ALLOWED * plans);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(hardly_any), cmocka_unit_test(hardly_any_by_schedule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

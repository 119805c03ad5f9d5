// The verifier accepts the programs of every plan.
#include "compile/stages.h"
#include "support/models.h"
#include "support/sanitized.h"

// ---- plans

struct plan {
    int dp, fsdp, tp, pp, zero;
    bool sequence;
};

struct settings {
    char text[16][96];
    const char *item[17];
    size_t count;
};

static void set(struct settings *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Replaces what was set for the same key.
static void set(struct settings *s, const char *format, ...) {
    char text[sizeof s->text[0]];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t at = 0, key = strcspn(text, "=") + 1;
    while (at < s->count && strncmp(s->text[at], text, key) != 0)
        at++;
    assert_true(at < ARRAY_LENGTH(s->text));
    strcpy(s->text[at], text);
    s->item[at] = s->text[at];
    s->count = MAX(s->count, at + 1);
}

static void settings_of(struct settings *s, struct plan plan, const char *const *more) {
    s->count = 0;
    set(s, "training.dtype=f64");
    set(s, "training.seq_len=8");
    set(s, "training.global_batch_size=%d", 8 * plan.dp * plan.fsdp);
    set(s, "training.micro_batch_size=2");
    set(s, "training.threads=1");
    set(s, "parallelism.data_parallel_replicate_degree=%d", plan.dp);
    set(s, "parallelism.data_parallel_shard_degree=%d", plan.fsdp);
    set(s, "parallelism.zero_stage=%d", plan.zero ? plan.zero : 1);
    set(s, "parallelism.tensor_parallel_degree=%d", plan.tp);
    set(s, "parallelism.sequence_parallel=%s", plan.sequence ? "true" : "false");
    set(s, "parallelism.pipeline_parallel_degree=%d", plan.pp);
    for (; more && *more; more++)
        set(s, "%s", *more);
}

// Compiling proves each program by itself; then they are proved together.
static void accept(const struct model_config *model, struct plan plan, const char *const *more) {
    struct settings s;
    settings_of(&s, plan, more);
    trireme_error error = {0};
    struct config config;
    struct stages stages = {0};
    assert_ok(config_load(&config, NULL, s.item, s.count, &error), &error);
    trireme_status status = stages_create(&stages, &config, model, NULL, TRAIN_AND_EVALUATE, NULL, &error);
    if (status == TRIREME_OK)
        status = stages_compile(&stages, EVERY_STAGE, &error);
    if (status == TRIREME_OK)
        status = stages_verify(&stages, &error);
    if (status != TRIREME_OK) {
        for (size_t i = 5; i < s.count; i++)
            print_error("%s ", s.item[i]);
        fail_msg("%s", error.message);
    }
    stages_release(&stages);
    config_release(&config);
}

// Plans in which dims of extent one could be mistaken for others, and programs with more in them.
static void every_variant(void **unused) {
    (void)unused;
    static const char *const MORE[][4] = {
        {"training.seq_len=1", "training.micro_batch_size=8", "training.global_batch_size=64"},
        {"training.micro_batch_size=1"},
        {"training.logits_rows=3"},
        {"training.logits_rows=1", "activation_checkpoint.mode=full"},
        {"activation_checkpoint.mode=selective", "optimizer.name=lion"},
        {"parallelism.tensor_parallel_overlap=true", "activation_checkpoint.mode=selective"},
        {"training.dtype=bf16", "optimizer.name=sgd", "parallelism.reduce_dtype=bf16"},
        {"training.dtype=f32", "parallelism.reduce_dtype=bf16", "parallelism.data_parallel_prefetch=2"},
    };
    static const struct plan PLANS[] = {
        {2, 2, 1, 2, 3, false}, {1, 2, 2, 2, 2, true}, {1, 1, 4, 2, 0, true},
        {1, 1, 4, 2, 0, false}, {2, 1, 2, 1, 0, true}, {1, 2, 2, 1, 1, false},
    };
    for (int which = 0; which < SMALL_COUNT; which++) {
        struct model_config model;
        small_config(&model, small_models[which].json);
        model.num_hidden_layers = 3;
        for (size_t i = 0; i < ARRAY_LENGTH(MORE); i++)
            for (size_t k = 0; k < ARRAY_LENGTH(PLANS); k++)
                if (PLANS[k].tp <= model.num_attention_heads)
                    accept(&model, PLANS[k], (const char *const[]){MORE[i][0], MORE[i][1], MORE[i][2], NULL});
    }
}

static void every_plan(void **unused) {
    (void)unused;
    int plans = 0;
    for (int which = 0; which < SMALL_COUNT; which += SANITIZED ? 3 : 1) {
        struct model_config model;
        small_config(&model, small_models[which].json);
        model.num_hidden_layers = 3;
        for (int dp = 1; dp <= 8; dp++)
            for (int fsdp = 1; dp * fsdp <= 8; fsdp++)
                for (int tp = 1; dp * fsdp * tp <= 8 && tp <= model.num_attention_heads; tp++)
                    for (int pp = 1; dp * fsdp * tp * pp <= 8 && pp <= 3; pp++)
                        for (int zero = fsdp > 1 ? 1 : 0; zero <= (fsdp > 1 ? 3 : 0); zero++)
                            for (int sp = 0; sp <= (tp > 1); sp++) {
                                if (sp && 16 % tp)
                                    continue;
                                accept(&model, (struct plan){dp, fsdp, tp, pp, zero, sp}, NULL);
                                plans++;
                            }
    }
    print_message("%d plans\n", plans);
}

// Ranks that take their messages in another order than they need them have room for all that are on their way. With
// room for only one more than are held, they would wait for ever.
static void messages_have_room(void **unused) {
    (void)unused;
    static const struct {
        const char *schedule;
        int stages, chunks, microbatches;
        bool limited; // to fewer microbatches than stages
    } SEARCHED[] = {
        {"hanayo", 14, 4, 64, false},  {"interleaved", 20, 5, 48, false}, {"auto", 5, 3, 5, true},
        {"auto", 6, 3, 7, true},       {"auto", 7, 3, 11, true},          {"auto", 7, 4, 11, true},
        {"hanayo", 32, 2, 220, false},
    };
    struct model_config model;
    small_config(&model, small_models[SMALL_LLAMA].json);
    for (size_t i = 0; i < ARRAY_LENGTH(SEARCHED) - SANITIZED; i++) {
        const int stages = SEARCHED[i].stages;
        char batch[64], schedule[64], chunks[64], limit[64];
        snprintf(batch, sizeof batch, "training.global_batch_size=%d", SEARCHED[i].microbatches);
        snprintf(schedule, sizeof schedule, "parallelism.pipeline_parallel_schedule=%s", SEARCHED[i].schedule);
        snprintf(chunks, sizeof chunks, "parallelism.pipeline_parallel_chunks=%d", SEARCHED[i].chunks);
        snprintf(limit, sizeof limit, "parallelism.pipeline_parallel_activation_limit=%d", stages - 1);
        const char *const more[] = {batch,  "training.micro_batch_size=1",      schedule,
                                    chunks, SEARCHED[i].limited ? limit : NULL, NULL};
        model.num_hidden_layers = stages * SEARCHED[i].chunks;
        accept(&model, (struct plan){1, 1, 1, stages, 0, false}, more);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_plan), cmocka_unit_test(every_variant),
                                       cmocka_unit_test(messages_have_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Tests of src/config/: which key is suggested for an unknown name.
#include "config/key.h"
#include "support/test.h"

static void what_is_meant_is_told(void **state) {
    (void)state;
    const struct {
        const char *name, *told; // after "unknown key"
    } cases[] = {
        // If the section is right, the suggestion is from it.
        {"run.dir", "; use run.directory: text (path)"},
        {"data.dir", "; use data.path: text (path)"},
        {"run.name", "; the section has run.directory"},
        {"run.freq", "; the section has run.directory"},
        {"data.mode", "; the section has data.path, data.mixture, data.split, ... (`trireme help data` has "
                      "all)"},
        {"checkpoint.directory", "; use run.directory: text (path)"},
        {"training.lr", "; use optimizer.lr: a number from 0 to 1000"},
        {"optimizer.lrr", "; the nearest is optimizer.lr: a number from 0 to 1000"},
        {"model.seps", "; the section has model.preset, model.config, model.init_from, ... (`trireme help model` has "
                       "all)"},
        {"training.learing_rate", "; the nearest is optimizer.lr: a number from 0 to 1000"},
        {"validaton.frq", "; the nearest is validation.freq: a whole number from 0 to 1000000000 (steps)"},
        {"optimzer.lr", "; use optimizer.lr: a number from 0 to 1000"},
        // A section may be joined to its key, or be meant itself.
        {"training-steps", "; use training.steps: a whole number from 1 to 1000000000 (steps)"},
        {"optimizer_lr", "; use optimizer.lr: a number from 0 to 1000"},
        {"training.training_steps", "; the section has training.steps, training.seq_len, training.global_batch_size, "
                                    "... (`trireme help training` has all)"},
        {"optimiser", "; the nearest is the section optimizer (`trireme help optimizer` has its keys)"},
        {"parallel", "; the nearest is the section parallelism (`trireme help parallelism` has its keys)"},
        // Words of other systems, whose spelling says too little.
        {"lr-decay-samples", "; use lr_scheduler.decay_steps: a whole number from 0 to 1000000000 (steps)"},
        {"num_train_epochs", "; use training.steps: a whole number from 1 to 1000000000 (steps)"},
        {"float8.enable", "; use training.dtype: one of f32, bf16, f64"},
        {"normalization", "; use model.family: one of auto, gpt2, llama"},
        {"training.compile", "; every step is compiled and its attention fused"},
        {"use-flash-attn", "; every step is compiled and its attention fused"},
        {"num_samples", "; use generate.samples: a whole number from 1 to 65536 (texts)"},
        {"exit-interval", "; a signal saves and ends a run (man trireme, train)"},
        // Words of schedules alone, and of plans.
        {"chunks", "; use parallelism.pipeline_parallel_chunks: a whole number from 0 to 65536 (chunks)"},
        {"stages", "; use parallelism.pipeline_parallel_degree: a whole number from -1 to 1048576 (ranks)"},
        {"layout", "; use parallelism.pipeline_parallel_layout: text (layers)"},
        {"vocabulary", "; use parallelism.vocabulary_parallel: true or false"},
        {"microbatch", "; use training.micro_batch_size: a whole number from 0 to 16777216 (sequences)"},
        {"gbs", "; use training.global_batch_size: a whole number from 1 to 16777216 (sequences)"},
        {"batch", "; use training.global_batch_size or training.micro_batch_size"},
        {"nodes",
         "; a cluster's file has nodes, and devices=N takes its first N devices (trireme help simulate, plan)"},
        {"waves", "; a wave is two of parallelism.pipeline_parallel_chunks"},
        // Names with little in common are not near.
        {"n", "; `trireme help config` lists all keys"},
        {"dir", "; `trireme help config` lists all keys"},
        {"colour", "; `trireme help config` lists all keys"},
        {"top-kk", "; the nearest is generate.top_k: a whole number from 0 to 16777216 (tokens)"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        trireme_error error = {0};
        char *expected = mem_printf("%s: unknown key%s", cases[i].name, cases[i].told);
        assert_int_equal(key_refuse_unknown_full("", cases[i].name, &error), TRIREME_ERROR_USAGE);
        assert_string_equal(error.message, expected);
        free(expected);
    }
}

static void a_section_is_no_key(void **state) {
    (void)state;
    trireme_error error = {0};
    assert_int_equal(key_refuse_unknown("here", "", "model", "gpt2-124m", &error), TRIREME_ERROR_USAGE);
    assert_string_equal(error.message, "here: model: is a section, given gpt2-124m; its keys are model.preset, "
                                       "model.config, model.init_from, ... (`trireme help model` has all)");
    assert_int_equal(key_refuse_unknown_full("", "run", &error), TRIREME_ERROR_USAGE);
    assert_string_equal(error.message, "run: is a section; its keys are run.directory");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_meant_is_told),
        cmocka_unit_test(a_section_is_no_key),
    };
    return cmocka_run_group_tests_name("config_nearest", tests, NULL, NULL);
}

// Checkpoints of twelve meshes, each loaded on all of them. test_checkpoint_meshes.c does less in less time.
#include "support/checkpoint.h"
#include "support/checkpoint_meshes.h"
#include "support/sanitized.h"

static void a_gpt2(void **state) {
    checkpoint_meshes_check(*state, KEPT_GPT2, true);
}

static void a_llama_with_muon(void **state) {
    checkpoint_meshes_check(*state, KEPT_LLAMA_MUON, true);
}

static void a_llama_in_f32(void **state) {
    checkpoint_meshes_check(*state, KEPT_LLAMA_F32, true);
}

static void a_gpt2_in_bf16(void **state) {
    checkpoint_meshes_check(*state, KEPT_GPT2_BF16, true);
}

static void islands(void **state) {
    checkpoint_meshes_check(*state, KEPT_ISLANDS, true);
}

static void islands_amid_an_exchange(void **state) {
    checkpoint_meshes_check(*state, KEPT_ISLANDS_SETTLES, true);
}

// With `all` (make equal) every kind of state; else those that differ most. The rest is in run.checkpoint_meshes.
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {IN_FOLDER(a_gpt2), IN_FOLDER(a_gpt2_in_bf16),
                                       IN_FOLDER(islands_amid_an_exchange)},
                            others[] = {IN_FOLDER(a_llama_with_muon), IN_FOLDER(a_llama_in_f32), IN_FOLDER(islands)};
    const bool all = argc > 1 && strcmp(argv[1], "all") == 0;
    if (SANITIZED)
        return 77; // the short form shows what sanitizers find
    return cmocka_run_group_tests_name("checkpoint_all_meshes", tests, NULL, NULL) +
           (all ? cmocka_run_group_tests_name("checkpoint_all_meshes", others, NULL, NULL) : 0);
}

// Checkpoints of twelve meshes go on on the same mesh, bit for bit, and on one other. test_checkpoint_all_meshes.c
// loads each on each.
#include "support/checkpoint.h"
#include "support/checkpoint_meshes.h"

static void a_gpt2(void **state) {
    checkpoint_meshes_check(*state, KEPT_GPT2, false);
}

static void a_llama_with_muon(void **state) {
    checkpoint_meshes_check(*state, KEPT_LLAMA_MUON, false);
}

static void a_llama_in_f32(void **state) {
    checkpoint_meshes_check(*state, KEPT_LLAMA_F32, false);
}

static void a_gpt2_in_bf16(void **state) {
    checkpoint_meshes_check(*state, KEPT_GPT2_BF16, false);
}

static void islands(void **state) {
    checkpoint_meshes_check(*state, KEPT_ISLANDS, false);
}

static void islands_amid_an_exchange(void **state) {
    checkpoint_meshes_check(*state, KEPT_ISLANDS_SETTLES, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_gpt2),         IN_FOLDER(a_llama_with_muon), IN_FOLDER(a_llama_in_f32),
        IN_FOLDER(a_gpt2_in_bf16), IN_FOLDER(islands),           IN_FOLDER(islands_amid_an_exchange),
    };
    return cmocka_run_group_tests_name("checkpoint_meshes", tests, NULL, NULL);
}

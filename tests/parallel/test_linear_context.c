// What ranks that share sequences send for a layer of linear attention: the state of each head, and what is left of
// each of its rows, to all others; once in forward and once in backward, however long sequences are.
#include "support/fleet.h"
#include "support/test.h"

#include "sim/exchanges.h"

enum { SEQUENCES = 2, LAYERS = 3, HEADS = 2, KEYS = 4, VALUES = 8 };

// The bytes that a rank sends along cp for the sets of one pass, over a step.
static double sent_for_sets(const struct program *of, enum phase phase) {
    struct program p = mutant_copy(of);
    for (size_t t = 0; t < p.templates.count; t++) {
        size_t kept = 0;
        struct template *all = &p.templates.item[t];
        for (size_t i = 0; i < all->instructions.count; i++)
            if (all->instructions.item[i].set && all->instructions.item[i].phase == phase)
                all->instructions.item[kept++] = all->instructions.item[i];
        all->instructions.count = kept;
    }
    double sent[AXIS_COUNT];
    program_sends(&p, sent);
    mutant_release(&p);
    return sent[AXIS_CP];
}

static void check_bytes(int ranks, int seq_len, bool again) {
    char *keys[] = {mem_printf("parallelism.context_parallel_degree=%d", ranks),
                    mem_printf("training.seq_len=%d", seq_len),
                    mem_printf("activation_checkpoint.mode=%s", again ? "full" : "none")};
    struct fleet f;
    fleet_create(&f, "states",
                 (const char *const[]){"model.family=llama", "model.hidden_size=16", "model.num_attention_heads=2",
                                       "model.vocab_size=32", "model.num_hidden_layers=3",
                                       "model.layer_types=linear_attention", "training.global_batch_size=4",
                                       "training.micro_batch_size=2", "training.threads=1", "training.dtype=bf16",
                                       keys[0], keys[1], keys[2], NULL});
    const double microbatches = 2, state = KEYS * VALUES + KEYS,
                 expected = microbatches * LAYERS * (ranks - 1) * SEQUENCES * HEADS * state * 4;
    assert_true(sent_for_sets(fleet_program(&f, 0), PHASE_FORWARD) == expected);
    assert_true(sent_for_sets(fleet_program(&f, 0), PHASE_BACKWARD) == expected);
    fleet_release(&f);
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++)
        free(keys[i]);
}

static void bytes_of_states(void **unused) {
    (void)unused;
    check_bytes(2, 16, false);
    check_bytes(2, 160, false);
    check_bytes(3, 31, false);
    check_bytes(8, 64, false);
    check_bytes(4, 64, true); // attention is not done again
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_of_states)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

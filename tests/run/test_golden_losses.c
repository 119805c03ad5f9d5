// A fixed configuration, seed and text give these losses on the reference kernels, to the bit, on every machine:
// through tokens, sampling, initial weights, forward, backward and the optimizer. A change that is meant to alter the
// arithmetic replaces the table by what the failing test prints, and says so.
#include "support/checkpoint.h"

#include "run/train.h"

enum { STEPS = 8 };

static const char TEXT[] = "The trireme has three banks of oars. They pull in time or they foul each other.\n"
                           "A hull is light, long and narrow; a crew of one hundred and seventy rows it.\n"
                           "When the piper stops, the blades trail, and the ship runs on by her own way.\n"
                           "She is hauled ashore at night to dry, for a wet hull is a slow one.\n"
                           "Her bronze ram strikes at the waterline, and then she backs away.\n";

struct golden {
    const char *name;
    const char *overrides[8];
    double loss[STEPS];
};

static const struct golden GOLDEN[] = {
    {"gpt2 f32",
     {"model.family=gpt2", "training.dtype=f32"},
     {0x1.6268638p+2, 0x1.51882b28p+2, 0x1.3a31311p+2, 0x1.1ff4dd98p+2, 0x1.1055369p+2, 0x1.fd2e2d3p+1, 0x1.dd4b4afp+1,
      0x1.d0fbd89p+1}},
    {"llama f32",
     {"model.family=llama", "model.num_key_value_heads=2", "training.dtype=f32"},
     {0x1.62800728p+2, 0x1.5e22caf8p+2, 0x1.523624d8p+2, 0x1.3590c648p+2, 0x1.2667eb4p+2, 0x1.156a1a34p+2,
      0x1.07c9dd9cp+2, 0x1.01df041p+2}},
    {"qwen3-like bf16, lion",
     {"model.family=llama", "model.num_key_value_heads=2", "model.qk_norm=true", "training.dtype=bf16",
      "optimizer.name=lion", "optimizer.lr=2e-3"},
     {0x1.62f8a5b8p+2, 0x1.623ab648p+2, 0x1.5d042248p+2, 0x1.56755068p+2, 0x1.526c9ap+2, 0x1.4d6037dp+2, 0x1.48ca7b9p+2,
      0x1.468fe2fp+2}},
    {"gpt2 f64, recomputed",
     {"model.family=gpt2", "training.dtype=f64", "activation_checkpoint.mode=full"},
     {0x1.6268637c877f7p+2, 0x1.51882b309aa58p+2, 0x1.3a313122ccb8ep+2, 0x1.1ff4dd82b2d6ep+2, 0x1.1055368f84d42p+2,
      0x1.fd2e2d534942ap+1, 0x1.dd4b4b3276ee6p+1, 0x1.d0fbd8c3066e1p+1}},
};

static double found[STEPS];

static void stepped(void *user, const struct train_step *step) {
    (void)user;
    found[step->step - 1] = step->loss;
}

static void train(const char *folder, const struct golden *golden) {
    trireme_error error = {0};
    prepare_text(folder, TEXT);
    char *path = mem_printf("data.path=%s/tokens", folder), *directory = mem_printf("run.directory=%s/run", folder);
    const char *overrides[32] = {path,
                                 directory,
                                 "training.kernels=reference",
                                 "training.steps=8",
                                 "training.seq_len=16",
                                 "training.global_batch_size=4",
                                 "training.micro_batch_size=2",
                                 "training.seed=1234",
                                 "training.threads=1",
                                 "model.num_hidden_layers=2",
                                 "model.hidden_size=32",
                                 "model.num_attention_heads=4",
                                 "lr_scheduler.warmup_steps=2"};
    size_t count = 0;
    bool has_lr = false;
    while (overrides[count])
        count++;
    for (size_t i = 0; i < ARRAY_LENGTH(golden->overrides) && golden->overrides[i]; i++) {
        has_lr = has_lr || strncmp(golden->overrides[i], "optimizer.lr=", 13) == 0;
        overrides[count++] = golden->overrides[i];
    }
    if (!has_lr)
        overrides[count++] = "optimizer.lr=1e-2";
    struct config config;
    assert_ok(config_load(&config, NULL, overrides, count, &error), &error);
    struct train_callbacks callbacks = {.stepped = stepped};
    struct train_result done;
    assert_ok(train_run(&config, &callbacks, &done, &error), &error);
    config_release(&config);
    free(path);
    free(directory);
}

static size_t current; // of GOLDEN; cmocka's state is the folder

static void test_trace(void **state) {
    const struct golden *golden = &GOLDEN[current++];
    train(*state, golden);
    if (memcmp(found, golden->loss, sizeof found) == 0)
        return;
    struct text text = {0};
    for (int i = 0; i < STEPS; i++)
        text_add(&text, "%s%a", i ? ", " : "", found[i]);
    print_error("%s: the losses are now {%s}\n", golden->name, text.text);
    text_release(&text);
    fail();
}

int main(void) {
    struct CMUnitTest tests[ARRAY_LENGTH(GOLDEN)];
    for (size_t i = 0; i < ARRAY_LENGTH(GOLDEN); i++)
        tests[i] = (struct CMUnitTest){GOLDEN[i].name, test_trace, folder_create, folder_remove, NULL};
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}

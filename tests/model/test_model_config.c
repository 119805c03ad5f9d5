// Model configurations: presets, reading and writing config.json, keys.
#include "test_model.h"

#include "model/lora.h"

#include <math.h>

// ---- presets

// Parameters as Hugging Face counts the published weights, and what their config.json says that changes no count.
static const struct {
    const char *name;
    int64_t total, heads, kv_heads, positions;
    double theta, eps;
    int64_t window, factor, bos, eos; // 0: no window, no scaling of rotary embeddings
} published[] = {
    {"gpt2-124m", 124439808, 12, 12, 1024, 0, 1e-5, 0, 0, 50256, 50256},
    {"gpt2-355m", 354823168, 16, 16, 1024, 0, 1e-5, 0, 0, 50256, 50256},
    {"gpt2-774m", 774030080, 20, 20, 1024, 0, 1e-5, 0, 0, 50256, 50256},
    {"gpt2-1558m", 1557611200, 25, 25, 1024, 0, 1e-5, 0, 0, 50256, 50256},
    {"tinyllama-1.1b", 1100048384, 32, 4, 2048, 10000, 1e-5, 0, 0, 1, 2},
    {"llama2-7b", 6738415616, 32, 32, 4096, 10000, 1e-5, 0, 0, 1, 2},
    {"llama2-13b", 13015864320, 40, 40, 4096, 10000, 1e-5, 0, 0, 1, 2},
    {"llama2-70b", 68976648192, 64, 8, 4096, 10000, 1e-5, 0, 0, 1, 2},
    {"llama3-8b", 8030261248, 32, 8, 8192, 5e5, 1e-5, 0, 0, 128000, 128001},
    {"llama3-70b", 70553706496, 64, 8, 8192, 5e5, 1e-5, 0, 0, 128000, 128001},
    {"llama3.1-8b", 8030261248, 32, 8, 131072, 5e5, 1e-5, 0, 8, 128000, 128001},
    {"llama3.1-70b", 70553706496, 64, 8, 131072, 5e5, 1e-5, 0, 8, 128000, 128001},
    {"llama3.1-405b", 405853388800, 128, 8, 131072, 5e5, 1e-5, 0, 8, 128000, 128001},
    {"llama3.2-1b", 1235814400, 32, 8, 131072, 5e5, 1e-5, 0, 32, 128000, 128001},
    {"llama3.2-3b", 3212749824, 24, 8, 131072, 5e5, 1e-5, 0, 32, 128000, 128001},
    {"mistral-7b", 7241732096, 32, 8, 32768, 10000, 1e-5, 4096, 0, 1, 2},
    {"qwen2-0.5b", 494032768, 14, 2, 131072, 1e6, 1e-6, 0, 0, 151643, 151643},
    {"qwen2-1.5b", 1543714304, 12, 2, 131072, 1e6, 1e-6, 0, 0, 151643, 151643},
    {"qwen2-7b", 7615616512, 28, 4, 131072, 1e6, 1e-6, 0, 0, 151643, 151643},
    {"qwen2.5-0.5b", 494032768, 14, 2, 32768, 1e6, 1e-6, 0, 0, 151643, 151643},
    {"qwen2.5-1.5b", 1543714304, 12, 2, 131072, 1e6, 1e-6, 0, 0, 151643, 151643},
    {"qwen2.5-3b", 3085938688, 16, 2, 32768, 1e6, 1e-6, 0, 0, 151643, 151643},
    {"qwen2.5-7b", 7615616512, 28, 4, 131072, 1e6, 1e-6, 0, 0, 151643, 151643},
    {"qwen3-0.6b", 596049920, 16, 8, 40960, 1e6, 1e-6, 0, 0, 151643, 151645},
    {"qwen3-1.7b", 1720574976, 16, 8, 40960, 1e6, 1e-6, 0, 0, 151643, 151645},
    {"qwen3-4b", 4022468096, 32, 8, 40960, 1e6, 1e-6, 0, 0, 151643, 151645},
    {"qwen3-8b", 8190735360, 32, 8, 40960, 1e6, 1e-6, 0, 0, 151643, 151645},
};

static void presets_have_the_published_sizes(void **state) {
    (void)state;
    trireme_error error = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(published); i++) {
        struct model_config c;
        assert_ok(model_config_preset(&c, published[i].name, &error), &error);
        assert_ok(model_config_check(&c, &error), &error);
        struct parameter_table table;
        parameter_table_create(&table, &c);
        if (table.total != published[i].total)
            fail_msg("%s: %lld parameters, published are %lld", published[i].name, (long long)table.total,
                     (long long)published[i].total);
        parameter_table_release(&table);
    }
}

static void presets_have_the_published_values(void **state) {
    (void)state;
    trireme_error error = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(published); i++) {
        struct model_config c;
        assert_ok(model_config_preset(&c, published[i].name, &error), &error);
        const struct {
            const char *name;
            double ours, theirs;
        } value[] = {
            {"heads", (double)c.num_attention_heads, (double)published[i].heads},
            {"key-value heads", (double)c.num_key_value_heads, (double)published[i].kv_heads},
            {"positions", (double)c.max_position_embeddings, (double)published[i].positions},
            {"rope_theta", c.rope[0].theta, published[i].theta},
            {"norm_eps", c.norm_eps, published[i].eps},
            {"sliding_window", (double)model_sliding_window(&c), (double)published[i].window},
            {"rope_scaling", c.rope[0].scaling, published[i].factor ? ROPE_SCALING_LLAMA3 : ROPE_SCALING_NONE},
            {"rope_factor", c.rope[0].factor, (double)published[i].factor},
            {"low_freq_factor", c.rope[0].low_freq_factor, published[i].factor ? 1 : 0},
            {"high_freq_factor", c.rope[0].high_freq_factor, published[i].factor ? 4 : 0},
            {"original positions", (double)c.rope[0].original, published[i].factor ? 8192 : 0},
            {"bos_token_id", (double)c.bos_token_id, (double)published[i].bos},
            {"eos_token_id", (double)c.eos_token_id, (double)published[i].eos},
        };
        for (size_t k = 0; k < ARRAY_LENGTH(value); k++)
            if (value[k].ours != value[k].theirs)
                fail_msg("%s: %s %.15g, published is %.15g", published[i].name, value[k].name, value[k].ours,
                         value[k].theirs);
    }
}

static void small_presets_take_any_vocabulary(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double total;
    } small[] = {{"llama-5m", 5e6}, {"llama-15m", 15e6}, {"llama-42m", 42e6}};
    for (size_t i = 0; i < ARRAY_LENGTH(small); i++) {
        struct model_config c;
        trireme_error error = {0};
        assert_ok(model_config_preset(&c, small[i].name, &error), &error);
        assert_int_equal(c.vocab_size, 0);
        c.vocab_size = c.padded_vocab_size = 256;
        assert_ok(model_config_check(&c, &error), &error);
        struct parameter_table table;
        parameter_table_create(&table, &c);
        assert_true(fabs((double)table.total / small[i].total - 1) < 0.05);
        parameter_table_release(&table);
    }
}

static void unknown_preset_names_the_nearest(void **state) {
    (void)state;
    struct model_config c;
    trireme_error error = {0};
    assert_says(model_config_preset(&c, "lama3.1-8b", &error), &error, "nearest is llama3.1-8b");
    assert_says(model_config_preset(&c, "qwen3", &error), &error, "nearest is qwen3-0.6b");
    // The names that other programs use.
    assert_says(model_config_preset(&c, "meta-llama/Llama-3.2-1B", &error), &error, "nearest is llama3.2-1b");
    assert_says(model_config_preset(&c, "TinyLlama/TinyLlama_v1.1", &error), &error, "nearest is tinyllama-1.1b");
    assert_says(model_config_preset(&c, "Llama-3-8B-Instruct", &error), &error, "nearest is llama3-8b;");
    assert_says(model_config_preset(&c, "openai-community/gpt2-xl", &error), &error, "nearest is gpt2-124m");
    assert_says(model_config_preset(&c, "bert-base", &error), &error, "called \"bert-base\"; all are");
    assert_says(model_config_preset(&c, "owner/", &error), &error, "called \"owner/\"; all are");
    // Names that are not near are not suggested.
    static const char *const FAR[] = {"", "nomodel", "falcon-40b"};
    for (size_t i = 0; i < ARRAY_LENGTH(FAR); i++) {
        char says[64];
        snprintf(says, sizeof says, "no model is called \"%s\"; all are in", FAR[i]);
        assert_says(model_config_preset(&c, FAR[i], &error), &error, says);
    }
}

static void help_lists_every_preset(void **state) {
    (void)state;
    struct text help = {0};
    model_presets_help(&help);
    for (size_t i = 0; i < ARRAY_LENGTH(published); i++)
        assert_non_null(strstr(help.text, published[i].name));
    assert_non_null(strstr(help.text, "124.4 M"));
    assert_non_null(strstr(help.text, "405.85 B"));
    text_release(&help);
}

// ---- config.json

static void what_is_written_reads_back(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(published); i++) {
        struct model_config c;
        trireme_error error = {0};
        assert_ok(model_config_preset(&c, published[i].name, &error), &error);
        struct text json = {0};
        model_config_write(&c, "bfloat16", &json);
        assert_non_null(strstr(json.text, "\"torch_dtype\": \"bfloat16\""));
        struct model_config again = parsed(json.text);
        assert_same(&c, &again);
        text_release(&json);
    }
}

static void rare_mixtures_survive_writing(void **state) {
    (void)state;
    static const char *const jsons[] = {
        LLAMA ",\"attention_bias\":true,\"mlp_bias\":true,\"tie_word_embeddings\":true}",
        LLAMA ",\"head_dim\":32,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}}",
        QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":7,\"max_window_layers\":0}",
        GPT2 ",\"bias\":false,\"activation_function\":\"gelu\",\"n_inner\":40,\"eos_token_id\":3}",
        GPT2 ",\"tie_word_embeddings\":false,\"layer_norm_epsilon\":1.23456789e-7}",
        "{\"model_type\":\"mistral\"," SHAPE ",\"head_dim\":6}",
        "{\"model_type\":\"qwen3\"," SHAPE ",\"head_dim\":6,\"attention_bias\":true}",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(jsons); i++) {
        struct model_config c = parsed(jsons[i]);
        struct text json = {0};
        model_config_write(&c, "float32", &json);
        struct model_config again = parsed(json.text);
        assert_same(&c, &again);
        text_release(&json);
    }
}

static void both_spellings_of_rope_are_read(void **state) {
    (void)state;
    struct model_config old =
        parsed(LLAMA ",\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
                     "\"low_freq_factor\":1,\"high_freq_factor\":4,"
                     "\"original_max_position_embeddings\":8192}}");
    struct model_config new =
        parsed(LLAMA ",\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":500000.0,\"factor\":8,"
                     "\"low_freq_factor\":1,\"high_freq_factor\":4,"
                     "\"original_max_position_embeddings\":8192}}");
    assert_same(&old, &new);
    assert_true(old.rope[0].theta == 500000 && old.rope[0].scaling == ROPE_SCALING_LLAMA3 && old.rope[0].factor == 8);
    struct model_config plain =
        parsed(LLAMA ",\"rope_scaling\":null,\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5}}");
    assert_true(plain.rope[0].theta == 500000 && plain.rope[0].scaling == ROPE_SCALING_NONE);
    // Both, as some tools write them for readers of either version: equal in all that both say.
    struct model_config both =
        parsed(LLAMA ",\"rope_theta\":500000.0,\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8.0,"
                     "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":8192},"
                     "\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":500000.0,\"factor\":8,"
                     "\"low_freq_factor\":1.0,\"high_freq_factor\":4,"
                     "\"original_max_position_embeddings\":8192}}");
    assert_same(&old, &both);
}

static void absent_members_mean_what_transformers_takes(void **state) {
    (void)state;
    struct model_config llama = parsed(LLAMA "}");
    assert_true(llama.norm_eps == 1e-6 && llama.rope[0].theta == 10000 && llama.head_dim == 16 &&
                !llama.tie_word_embeddings);
    assert_true(llama.bos_token_id == 1 && llama.eos_token_id == 2 && llama.initializer_range == 0.02);
    struct model_config gpt2 = parsed(GPT2 "}");
    assert_true(gpt2.tie_word_embeddings && gpt2.bias && gpt2.intermediate_size == 64 && gpt2.norm_eps == 1e-5);
    assert_int_equal(gpt2.activation, ACTIVATION_GELU_TANH);
    assert_int_equal(gpt2.eos_token_id, -1); // 50256 is not in this vocabulary
    const struct model_config synonym = parsed(GPT2 ",\"activation_function\":\"gelu_pytorch_tanh\"}");
    assert_int_equal(synonym.activation, ACTIVATION_GELU_TANH);
    struct model_config qwen2 = parsed(QWEN2 "}");
    assert_true(qwen2.attention_bias && !qwen2.attention_output_bias && model_sliding_window(&qwen2) == 0);
    assert_int_equal(qwen2.bos_token_id, -1);
    const struct model_config many = parsed(LLAMA ",\"eos_token_id\":[1000000,7,8,9]}");
    assert_true(many.eos_token_id == 7 && many.more_eos == 2 && many.more_eos_token_id[1] == 9);
    struct text again = {0};
    model_config_write(&many, "float32", &again);
    const struct model_config read = parsed(again.text);
    assert_true(read.eos_token_id == 7 && read.more_eos == 2 && read.more_eos_token_id[0] == 8);
    text_release(&again);
    // Rotary embeddings that nothing changes, in the words of version 5.
    assert_int_equal(parsed(LLAMA ",\"rope_parameters\":{\"rope_theta\":500},\"rope_scaling\":{}}").rope[0].theta, 500);
}

static void unsupported_configurations_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *json, *says;
    } refused[] = {
        {"{}", "neither"},
        {"[1]", "config.json"},
        {"{\"architectures\":[\"MixtralForCausalLM\"]}",
         "architecture \"MixtralForCausalLM\" is not supported; supported are"},
        {"{\"model_type\":\"bert\"}", "\"bert\""},
        {"{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"gpt2\"}", "\"model_type\" says \"gpt2\""},
        {LLAMA ",\"quantization_config\":{\"bits\":4}}", "\"quantization_config\""},
        {LLAMA ",\"rope_scaling\":{\"rope_type\":\"ntk\",\"factor\":4}}", "\"rope_scaling\": scaling of type \"ntk\""},
        {LLAMA ",\"rope_parameters\":{\"rope_type\":\"proportional\",\"factor\":4}}",
         "\"rope_parameters\": scaling of type \"proportional\""},
        {LLAMA ",\"rope_scaling\":{\"factor\":4}}", "rope_type"},
        {LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":4}}", "low_freq_factor"},
        {LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":4,\"low_freq_factor\":4,\"high_freq_factor\":4,"
               "\"original_max_position_embeddings\":8}}",
         "low_freq_factor 4 must be"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
               "\"rope_parameters\":{\"rope_type\":\"default\"}}",
         "has both \"rope_scaling\" and \"rope_parameters\", which differ"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
               "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4}}",
         "has both \"rope_scaling\" and \"rope_parameters\", which differ"},
        {LLAMA ",\"original_max_position_embeddings\":16,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":4,"
               "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":8}}",
         "two unlike \"original_max_position_embeddings\""},
        {LLAMA ",\"partial_rotary_factor\":0.5}", "\"partial_rotary_factor\": 0.5"},
        {LLAMA ",\"hidden_act\":\"relu\"}", "\"hidden_act\": \"relu\" is not supported"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,\"intermediate_size\":96,"
         "\"num_attention_heads\":6,\"vocab_size\":100,\"max_position_embeddings\":512}",
         "num_attention_heads 6 does not divide hidden_size 64"},
        {LLAMA ",\"head_dim\":15}", "head_dim 15 is odd"},
        {LLAMA ",\"rms_norm_eps\":0}", "rms_norm_eps"},
        {LLAMA ",\"rope_theta\":0.5}", "rope_theta 0.5"},
        {QWEN2 ",\"layer_types\":[\"full_attention\",\"linear_attention\"]}", "\"linear_attention\" is not supported"},
        {QWEN2 ",\"layer_types\":[\"full_attention\"]}", "lists 1 layer,"},
        {"{\"model_type\":\"qwen3\"," SHAPE "}", "head_dim"},
        {"{\"model_type\":\"mistral\",\"num_hidden_layers\":2,\"hidden_size\":64,\"intermediate_size\":96,"
         "\"num_attention_heads\":4,\"vocab_size\":100,\"max_position_embeddings\":512}",
         "\"num_key_value_heads\" is missing"},
        {GPT2 ",\"activation_function\":\"relu\"}", "\"activation_function\": \"relu\""},
        {GPT2 ",\"scale_attn_weights\":false}", "\"scale_attn_weights\""},
        {GPT2 ",\"scale_attn_by_inverse_layer_idx\":true}", "\"scale_attn_by_inverse_layer_idx\""},
        {GPT2 ",\"eos_token_id\":\"</s>\"}", "\"eos_token_id\": expected a token's number"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":3,\"n_embd\":16,\"n_positions\":8,\"vocab_size\":9}",
         "num_attention_heads 3 does not divide hidden_size 16"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":2,\"n_embd\":16,\"n_positions\":8}", "vocab_size"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":2,\"n_embd\":2147483646,\"n_positions\":8,\"vocab_size\":"
         "9}",
         "hidden_size 2147483646 is out of range"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":-2,\"n_head\":2,\"n_embd\":16,\"n_positions\":8,\"vocab_size\":9}",
         "n_layer"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(refused); i++) {
        struct model_config c;
        trireme_error error = {0};
        const char *json = refused[i].json;
        assert_says(model_config_parse(&c, json, strlen(json), "config.json", &error), &error, refused[i].says);
        assert_non_null(strstr(error.message, "config.json"));
        assert_null(strchr(error.message, '\n'));
    }
}

// ---- keys

static void keys_override_a_preset(void **state) {
    (void)state;
    struct model_config c;
    trireme_error error = {0};
    assert_ok(resolve(&c, "model.preset=llama3.1-8b model.num_hidden_layers=2 model.vocab_size=300", 256, &error),
              &error);
    assert_true(c.num_hidden_layers == 2 && c.hidden_size == 4096 && c.vocab_size == 300 && c.padded_vocab_size == 320);
    assert_true(c.bos_token_id == -1 && c.eos_token_id == -1 && c.rope[0].scaling == ROPE_SCALING_LLAMA3);
    assert_ok(resolve(&c, "model.preset=llama-5m model.num_attention_heads=8 model.attention_bias=true", 257, &error),
              &error);
    assert_true(c.vocab_size == 257 && c.head_dim == 32 && c.num_key_value_heads == 8);
    assert_string_equal(model_architecture(&c), "Qwen2ForCausalLM");
    assert_ok(resolve(&c, "model.preset=llama-5m model.qk_norm=true model.attention_bias=true model.rope_theta=5e5",
                      256, &error),
              &error);
    assert_string_equal(model_architecture(&c), "Qwen3ForCausalLM");
    assert_true(c.attention_output_bias && c.rope[0].theta == 500000);
    assert_ok(resolve(&c, "model.preset=qwen2-0.5b model.attention_bias=false", 256, &error), &error);
    assert_string_equal(model_architecture(&c), "LlamaForCausalLM");
    assert_ok(resolve(&c, "model.preset=llama-5m model.hidden_size=192", 256, &error), &error);
    assert_true(c.head_dim == 48 && c.intermediate_size == 512);
}

// Whatever the file or the keys began with.
static void the_architecture_is_one_that_has_it_all(void **state) {
    (void)state;
    trireme_error error = {0};
    struct model_config c = parsed(QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":7,\"max_window_layers\":0}");
    c.attention_bias = false; // which leaves the window
    assert_string_equal(model_architecture(&c), "MistralForCausalLM");
    // Heads that together are wider than the model.
    assert_ok(resolve(&c,
                      "model.family=llama model.num_hidden_layers=1 model.hidden_size=64 model.num_attention_heads=6 "
                      "model.head_dim=16",
                      256, &error),
              &error);
    assert_string_equal(model_architecture(&c), "MistralForCausalLM");
    c = parsed(LLAMA ",\"mlp_bias\":true}");
    c.qk_norm = true;
    assert_null(model_architecture(&c));
    assert_says(model_config_check(&c, &error), &error, "qk_norm true, mlp_bias true");
}

// A model that is given fewer tokens than it had.
static void an_end_outside_the_vocabulary_gives_way_to_another(void **state) {
    (void)state;
    struct model_config c;
    trireme_error error = {0};
    FILE *file = tmpfile();
    assert_true(file && fputs(LLAMA ",\"bos_token_id\":60,\"eos_token_id\":[60,70,20,90]}", file) >= 0);
    assert_int_equal(fflush(file), 0);
    char *keys = mem_printf("model.config=/dev/fd/%d model.vocab_size=60 training.seq_len=64", fileno(file));
    assert_ok(resolve(&c, keys, 60, &error), &error);
    assert_true(c.bos_token_id == -1 && c.eos_token_id == 20 && c.more_eos == 0);
    free(keys);
    fclose(file);
}

static void a_family_and_sizes_make_a_model(void **state) {
    (void)state;
    struct model_config c;
    trireme_error error = {0};
    assert_ok(resolve(&c,
                      "model.family=gpt2 model.num_hidden_layers=4 model.hidden_size=128 model.num_attention_heads=4 "
                      "model.bias=false training.seq_len=64",
                      65, &error),
              &error);
    assert_true(c.vocab_size == 65 && c.padded_vocab_size == 128 && c.max_position_embeddings == 64 &&
                c.head_dim == 32);
    assert_true(c.intermediate_size == 512 && !c.bias && c.tie_word_embeddings);
    assert_string_equal(model_architecture(&c), "GPT2LMHeadModel");
    assert_ok(resolve(&c,
                      "model.family=llama model.num_hidden_layers=1 model.hidden_size=192 model.num_attention_heads=6 "
                      "model.num_key_value_heads=2",
                      256, &error),
              &error);
    assert_true(c.intermediate_size == 512 && c.num_key_value_heads == 2 && !c.tie_word_embeddings &&
                c.rope[0].theta == 10000);
}

static void impossible_keys_are_refused(void **state) {
    (void)state;
    static const struct refused_keys refused[] = {
        {"training.steps=1", "no model is named"},
        {"model.family=gpt2 model.hidden_size=64", "needs model.num_hidden_layers"},
        {"model.preset=llama-5m model.hidden_size=250",
         "model.hidden_size: given 250, which num_attention_heads 4 does not divide"},
        {"model.preset=llama-5m model.num_key_value_heads=3",
         "settings: model: num_key_value_heads 3 does not divide num_attention_heads 4"},
        {"model.preset=llama-5m model.bias=true", "model.bias"},
        {"model.preset=llama-5m model.activation=gelu", "activation gelu"},
        {"model.preset=gpt2-124m model.activation=swiglu", "activation swiglu"},
        {"model.preset=gpt2-124m model.qk_norm=true", "model.qk_norm"},
        {"model.preset=gpt2-124m model.rope_theta=10000", "model.rope_theta"},
        {"model.preset=gpt2-124m model.attention_bias=false", "model.attention_bias"},
        {"model.preset=gpt2-124m model.num_key_value_heads=2", "num_key_value_heads 2"},
        {"model.preset=gpt2-124m model.head_dim=32", "head_dim 32"},
        {"model.preset=llama-5m model.vocab_size=100", "at least 256"},
        {"model.preset=gpt2-124m training.seq_len=2048", "has 1024 positions"},
        {"model.preset=gpt3", "nearest is gpt3-1.7b"},
        {"model.config=/nonexistent/config.json", "/nonexistent/config.json"},
    };
    assert_keys_refused(refused, ARRAY_LENGTH(refused));
}

static void a_vocabulary_must_come_from_somewhere(void **state) {
    (void)state;
    struct model_config c;
    trireme_error error = {0};
    assert_says(resolve(&c, "model.preset=llama-5m", 0, &error), &error, "model.vocab_size");
    assert_ok(resolve(&c, "model.preset=llama-5m model.vocab_size=300", 0, &error), &error);
    assert_ok(resolve(&c, "model.preset=gpt2-124m", 0, &error), &error);
    assert_int_equal(c.vocab_size, 50257);
}

static void the_first_difference_is_named(void **state) {
    (void)state;
    struct model_config a = parsed(LLAMA "}"), b = a;
    trireme_error error = {0};
    assert_ok(model_config_compare(&a, &b, true, &error), &error);
    b.intermediate_size = 128;
    assert_says(model_config_compare(&a, &b, false, &error), &error, "their intermediate_size is 96, the model's 128");
    b = a;
    b.rope[0].theta = 5e5;
    assert_ok(model_config_compare(&a, &b, false, &error), &error);
    assert_says(model_config_compare(&a, &b, true, &error), &error, "rope_theta is 10000, the model's 500000");
    b = parsed(QWEN2 "}");
    assert_says(model_config_compare(&a, &b, false, &error), &error,
                "theirs is LlamaForCausalLM, the model's Qwen2ForCausalLM");
    a = b = parsed(GPT2 "}");
    b.activation = ACTIVATION_GELU;
    assert_says(model_config_compare(&a, &b, false, &error), &error, "their activation is gelu_tanh, the model's gelu");
}

// A difference in one field: refused if `exact`, else only where the weights do not fit because of it.
static void assert_difference(const struct model_config *a, const struct model_config *b, const char *field,
                              bool weights_fit) {
    char says[64];
    trireme_error error = {0};
    snprintf(says, sizeof says, "their %s is ", field);
    assert_says(model_config_compare(a, b, true, &error), &error, says);
    if (weights_fit)
        assert_ok(model_config_compare(a, b, false, &error), &error);
    else
        assert_says(model_config_compare(a, b, false, &error), &error, says);
}

static void every_field_is_compared(void **state) {
    (void)state;
    struct model_config a = parsed("{\"model_type\":\"mistral\"," SHAPE "}"), b;
    const struct model_config gpt2 = parsed(GPT2 "}");
#define CHANGE_NAMED(of, field, name, to, weights_fit) \
    b = of, b.field = to, assert_difference(&of, &b, name, weights_fit)
#define CHANGE(of, field, to, weights_fit) CHANGE_NAMED(of, field, #field, to, weights_fit)
#define CHANGE_ROPE(of, field, to) CHANGE_NAMED(of, rope[0].field, "rope_" #field, to, true)
    CHANGE(a, num_hidden_layers, 3, false);
    CHANGE(a, hidden_size, 128, false);
    CHANGE(a, num_attention_heads, 8, false);
    CHANGE(a, num_key_value_heads, 4, false);
    CHANGE(a, head_dim, 8, false);
    CHANGE(a, intermediate_size, 97, false);
    CHANGE(a, vocab_size, 101, true);
    CHANGE(a, tie_word_embeddings, true, false);
    CHANGE(gpt2, bias, false, false);
    CHANGE(gpt2, max_position_embeddings, 16, false); // they are learned
    CHANGE(a, max_position_embeddings, 256, true);
    trireme_error error = {0};
    b = a, b.max_position_embeddings = 1024; // rotary positions go on
    assert_ok(model_config_compare(&a, &b, true, &error), &error);
    b = a, b.kind[0].sliding_window = 8, assert_difference(&a, &b, "sliding_window", true);
    CHANGE(a, norm_eps, 1e-5, true);
    CHANGE_ROPE(a, theta, 5e5);
    CHANGE_ROPE(a, scaling, ROPE_SCALING_LINEAR);
    CHANGE_ROPE(a, factor, 8);
    CHANGE_ROPE(a, low_freq_factor, 1);
    CHANGE_ROPE(a, high_freq_factor, 4);
    CHANGE_NAMED(a, rope[0].original, "rope_original_max_position_embeddings", 8192, true);
    const struct model_config yarn = parsed(LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}}");
    CHANGE_ROPE(yarn, attention_factor, 1.5);
    CHANGE_ROPE(yarn, beta_fast, 16);
    CHANGE_ROPE(yarn, beta_slow, 2);
    CHANGE_ROPE(yarn, mscale, 1);
    CHANGE_ROPE(yarn, mscale_all_dim, 1);
    CHANGE_ROPE(yarn, untruncated, true);
    CHANGE_NAMED(yarn, rope[0].short_factor[1], "rope_short_factor", 2, true);
    CHANGE_NAMED(yarn, rope[0].long_factor[1], "rope_long_factor", 2, true);
    const struct model_config gemma = parsed("{\"model_type\":\"gemma3_text\"," SHAPE ",\"head_dim\":16}");
    CHANGE_NAMED(gemma, attention_scalar, "query_pre_attn_scalar", 64, true);
    CHANGE_NAMED(gemma, attention_cap, "attn_logit_softcapping", 50, true);
    CHANGE_NAMED(gemma, logits_cap, "final_logit_softcapping", 30, true);
    CHANGE_NAMED(gemma, rope[1].theta, "rope_local_base_freq", 20000, true);
    const struct model_config neox = parsed("{\"model_type\":\"gpt_neox\",\"num_hidden_layers\":2,\"hidden_size\":64,"
                                            "\"intermediate_size\":96,\"num_attention_heads\":4,\"vocab_size\":100,"
                                            "\"max_position_embeddings\":512}");
    CHANGE(neox, parallel_residual, false, true);
    CHANGE(neox, partial_rotary_factor, 0.5, true);
    const struct model_config smollm = parsed("{\"model_type\":\"smollm3\"," SHAPE "}");
    b = smollm, b.kind[0].rope = NONE;
    assert_difference(&smollm, &b, "number of layers with rotary positions", false);
#undef CHANGE
#undef CHANGE_ROPE
#undef CHANGE_NAMED
}

// Differences that model_config_compare refuses only if `exact`.
static void other_meanings_are_all_named(void **state) {
    (void)state;
    struct model_config a, b;
    trireme_error error = {0};
    struct text said = {0};
    assert_ok(model_config_preset(&a, "llama3.1-8b", &error), &error);
    model_config_meanings(&a, &a, &said);
    assert_int_equal(said.length, 0);
    b = a;
    b.rope[0].low_freq_factor = 2;
    b.rope[0].high_freq_factor = 8;
    b.rope[0].original = 4096;
    model_config_meanings(&a, &b, &said);
    assert_string_equal(said.text, "rope_low_freq_factor 2 (theirs: 1), rope_high_freq_factor 8 (theirs: 4), "
                                   "rope_original_max_position_embeddings 4096 (theirs: 8192)");
    text_release(&said);
    b = a;
    b.rope[0].scaling = ROPE_SCALING_LINEAR;
    model_config_meanings(&a, &b, &said);
    assert_string_equal(said.text, "rope_scaling linear (theirs: llama3)");
    text_release(&said);
}

static void the_ends_of_another_model_are_taken(void **state) {
    (void)state;
    struct model_config c = parsed(LLAMA "}");
    const struct model_config other = parsed(LLAMA ",\"bos_token_id\":11,\"eos_token_id\":[12,13,14]}");
    model_config_take_ends(&c, &other);
    assert_true(c.bos_token_id == 11 && c.eos_token_id == 12 && c.more_eos == 2);
    assert_true(c.more_eos_token_id[0] == 13 && c.more_eos_token_id[1] == 14);
}

// ---- adapter_config.json

#define PEFT "{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 4, \"target_modules\": "

static trireme_status adapted(struct model_config *c, const char *json, trireme_error *error) {
    struct lora_file file;
    TRY(lora_file_parse(&file, json, strlen(json), "adapter_config.json", "", error));
    const trireme_status status = lora_file_take(&file, "adapter_config.json", c, error);
    lora_file_release(&file);
    return status;
}

static void adapters_are_read_back(void **state) {
    (void)state;
    struct model_config c = parsed(LLAMA "}"), again = c;
    trireme_error error = {0};
    struct text text = {0};
    assert_ok(adapted(&c,
                      PEFT "[\"v_proj\", \"layers.1.mlp.up_proj\", \"q_proj\", \"v_proj\"], \"use_rslora\": true, "
                           "\"base_model_name_or_path\": \"a/base\", \"lora_dropout\": 0.1, \"revision\": \"x\", "
                           "\"rank_pattern\": {}, \"use_dora\": false, \"layers_to_transform\": null}",
                      &error),
              &error);
    assert_string_equal(c.lora.targets, "layers.1.mlp.up_proj,q_proj,v_proj");
    assert_string_equal(c.lora.base, "a/base");
    assert_true(c.lora.rank == 8 && c.lora.rslora && fabs(lora_scale(&c.lora, 8, 4) - 4 / sqrt(8)) < 1e-15);
    lora_write(&c, &text);
    assert_ok(adapted(&again, text.text, &error), &error);
    assert_ok(model_config_compare(&c, &again, true, &error), &error);
    assert_string_equal(again.lora.base, "a/base");
    text_release(&text);
    assert_ok(adapted(&c, PEFT "\"all-linear\"}", &error), &error);
    assert_string_equal(c.lora.targets, "down_proj,gate_proj,k_proj,o_proj,q_proj,up_proj,v_proj");
    assert_true(lora_scale(&c.lora, 8, 4) == 0.5 && *c.lora.base == 0);
    struct model_config gpt2 = parsed(GPT2 "}");
    assert_ok(adapted(&gpt2, PEFT "\"all-linear\"}", &error), &error);
    assert_string_equal(gpt2.lora.targets, "c_attn,c_fc,c_proj");
    lora_write(&gpt2, &text);
    assert_non_null(strstr(text.text, "\"fan_in_fan_out\":true"));
    text_release(&text);
}

// What PEFT chooses, as lists of names.
static void layers_are_chosen_as_peft_does(void **state) {
    (void)state;
#define ALL_NAMES "[\"q_proj\", \"v_proj\"]"
    static const struct {
        const char *json, *targets, *others;
    } OF[] = {
        {PEFT "\".*\\\\.1\\\\..*(up|gate)_proj\"}", "model.layers.1.mlp.gate_proj,model.layers.1.mlp.up_proj", NULL},
        {PEFT "\"(?i).*\\\\.[QV]_proj\"}", "self_attn.q_proj,self_attn.v_proj", NULL},
        {PEFT "\"all-linear\", \"exclude_modules\": [\"mlp.up_proj\", \"self_attn.k_proj\"]}",
         "mlp.down_proj,mlp.gate_proj,self_attn.o_proj,self_attn.q_proj,self_attn.v_proj", NULL},
        {PEFT ALL_NAMES ", \"exclude_modules\": \".*q.*\"}", "self_attn.v_proj", NULL},
        {PEFT ALL_NAMES ", \"layers_to_transform\": 0}",
         "model.layers.0.self_attn.q_proj,model.layers.0.self_attn.v_proj", NULL},
        {PEFT ALL_NAMES ", \"layers_to_transform\": [1], \"layers_pattern\": \"layers\"}",
         "model.layers.1.self_attn.q_proj,model.layers.1.self_attn.v_proj", NULL},
        {PEFT ALL_NAMES ", \"layers_to_transform\": []}", "q_proj,v_proj", NULL},
        // The first pattern counts; what is not chosen, and what is as elsewhere, is no exception.
        {PEFT ALL_NAMES ", \"rank_pattern\": {\"layers.1.self_attn.q_proj\": 2, \"q_proj\": 3, \"down_proj\": 5}, "
                        "\"alpha_pattern\": {\"(q|v)_proj\": 4, \".*0.*v_proj\": 7}}",
         "q_proj,v_proj", "model.layers.0.self_attn.q_proj 3 4\nmodel.layers.1.self_attn.q_proj 2 4\n"},
        {PEFT "[\"v_proj\"], \"alpha_pattern\": {\"0.self_attn.v_proj\": 0.5}}", "v_proj",
         "model.layers.0.self_attn.v_proj 8 0.5\n"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(OF); i++) {
        struct model_config c = parsed(LLAMA "}"), again = c;
        trireme_error error = {0};
        struct text text = {0};
        assert_ok(adapted(&c, OF[i].json, &error), &error);
        assert_string_equal(c.lora.targets, OF[i].targets);
        assert_string_equal(c.lora.others ?: "", OF[i].others ?: "");
        lora_write(&c, &text);
        assert_ok(adapted(&again, text.text, &error), &error);
        assert_ok(model_config_compare(&c, &again, true, &error), &error);
        assert_string_equal(again.lora.others ?: "", c.lora.others ?: "");
        text_release(&text);
    }
}

static void other_adapters_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *json, *says;
    } OF[] = {
        {"[]", "adapter_config.json: expected an object"},
        {"{\"r\": 8", "adapter_config.json: line 1"},
        {PEFT "[\"v_proj\"], \"use_dora\": true}", "\"use_dora\": true is not supported"},
        {PEFT "[\"v_proj\"], \"modules_to_save\": [\"lm_head\"]}", "\"modules_to_save\": [\"lm_head\"] is not"},
        {PEFT "[\"v_proj\"], \"rank_pattern\": {\"q_proj\": 0}}", "rank_pattern: \"q_proj\" cannot be a rank of less"},
        {PEFT "[\"v_proj\"], \"alpha_pattern\": {\"q_proj\": \"x\"}}", "alpha_pattern: \"q_proj\" cannot be"},
        {PEFT "[\"v_proj\"], \"rank_pattern\": [1]}", "\"rank_pattern\": [1] is not what PEFT has there"},
        {PEFT "[\"v_proj\"], \"rank_pattern\": {\"(q_proj\": 1}}", "missing closing parenthesis"},
        {PEFT "\"(a+)+x|((.*)*)*y\"}", "takes too long"},
        {PEFT "\"q_proj\"}", "no layer is chosen; they are called model.layers.0.self_attn.q_proj and so on"},
        {PEFT "\".*q_proj\", \"layers_to_transform\": [1]}", "\"target_modules\" must be a list then"},
        {PEFT "[\"q_proj\"], \"layers_to_transform\": 0, \"layers_pattern\": \"h\"}", "are called \"layers\""},
        {PEFT "[\"v_proj\"], \"trainable_token_indices\": [1]}", "\"trainable_token_indices\": [1] is not supported"},
        {PEFT "[\"v_proj\"], \"bias\": \"all\"}", "\"bias\": \"all\" is not supported: \"none\" is"},
        {PEFT "[\"v_proj\"], \"peft_type\": \"IA3\"}", "peft_type"},
        {"{\"peft_type\": \"IA3\"}", "\"peft_type\": \"IA3\" is not supported: \"LORA\" is"},
        {PEFT "[\"v_proj\"], \"init_lora_weights\": \"pissa\"}", "\"init_lora_weights\": \"pissa\" is not supported"},
        {PEFT "[\"zz\"]}", "\"target_modules\": no layer is called \"zz\"; a block of this model has self_attn.q_proj"},
        {PEFT "[\"lm_head\"]}", "no layer is called \"lm_head\""},
        {PEFT "[\"proj\"]}", "no layer is called \"proj\""},
        {PEFT "[\"layers.2.self_attn.q_proj\"]}", "no layer is called \"layers.2.self_attn.q_proj\""},
        {PEFT "[]}", "no layer is named"},
        {PEFT "[3]}", "\"target_modules\": expected names of layers"},
        {PEFT "[\"q_proj,v_proj\"]}", "\"target_modules\": expected names of layers"},
        {PEFT "null}", "\"target_modules\": a list of names or a pattern is expected"},
        {"{\"r\": 0, \"lora_alpha\": 1}", "\"r\" must be an integer from 1 to 65536, found 0"},
        {"{\"r\": 8}", "lora_alpha"},
        {"{\"r\": 8, \"lora_alpha\": -1}", "\"lora_alpha\" must be a positive number"},
        {PEFT "[\"v_proj\"], \"base_model_name_or_path\": 3}", "base_model_name_or_path"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(OF); i++) {
        struct model_config c = parsed(LLAMA "}");
        trireme_error error = {0};
        assert_says(adapted(&c, OF[i].json, &error), &error, OF[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_have_the_published_sizes),
        cmocka_unit_test(presets_have_the_published_values),
        cmocka_unit_test(small_presets_take_any_vocabulary),
        cmocka_unit_test(unknown_preset_names_the_nearest),
        cmocka_unit_test(help_lists_every_preset),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(rare_mixtures_survive_writing),
        cmocka_unit_test(both_spellings_of_rope_are_read),
        cmocka_unit_test(absent_members_mean_what_transformers_takes),
        cmocka_unit_test(unsupported_configurations_are_refused),
        cmocka_unit_test(keys_override_a_preset),
        cmocka_unit_test(the_architecture_is_one_that_has_it_all),
        cmocka_unit_test(an_end_outside_the_vocabulary_gives_way_to_another),
        cmocka_unit_test(a_family_and_sizes_make_a_model),
        cmocka_unit_test(impossible_keys_are_refused),
        cmocka_unit_test(a_vocabulary_must_come_from_somewhere),
        cmocka_unit_test(the_first_difference_is_named),
        cmocka_unit_test(every_field_is_compared),
        cmocka_unit_test(other_meanings_are_all_named),
        cmocka_unit_test(the_ends_of_another_model_are_taken),
        cmocka_unit_test(adapters_are_read_back),
        cmocka_unit_test(layers_are_chosen_as_peft_does),
        cmocka_unit_test(other_adapters_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

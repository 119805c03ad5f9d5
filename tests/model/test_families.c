// Configurations as they are in the wild: of every family, in the words of either version of transformers, of base
// models and of models with images; what is kept of them, and what is refused.
#include "test_model.h"

#include "base/json.h"

#define MHA                                                                                          \
    "\"num_hidden_layers\":2,\"hidden_size\":64,\"intermediate_size\":96,\"num_attention_heads\":4," \
    "\"vocab_size\":100,\"max_position_embeddings\":512"
#define FACTORS "\"short_factor\":[1,1,1,1,1,1,1,1],\"long_factor\":[2,2,2,2,2,2,2,2]"

// The same model as transformers 4 and 5 write it.
static const struct {
    const char *four, *five;
} SPELLINGS[] = {
    {LLAMA ",\"rope_theta\":500,\"rope_scaling\":null}",
     LLAMA ",\"rope_parameters\":{\"rope_theta\":500,\"rope_type\":\"default\"}}"},
    {LLAMA ",\"rope_theta\":500,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}", LLAMA
     ",\"dtype\":\"bfloat16\",\"rope_parameters\":{\"rope_theta\":500,\"rope_type\":\"dynamic\",\"factor\":2.0}}"},
    {"{\"model_type\":\"gemma3_text\"," SHAPE ",\"head_dim\":16,\"rope_local_base_freq\":300,\"rope_theta\":700,"
     "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0},\"sliding_window_pattern\":2}",
     "{\"model_type\":\"gemma3_text\"," SHAPE
     ",\"head_dim\":16,\"layer_types\":[\"sliding_attention\",\"full_attention\"],"
     "\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":300},"
     "\"full_attention\":{\"rope_type\":\"linear\",\"rope_theta\":700,\"factor\":8.0}}}"},
    {"{\"model_type\":\"phi3\"," SHAPE ",\"partial_rotary_factor\":1.0,\"original_max_position_embeddings\":64,"
     "\"rope_scaling\":{\"type\":\"su\"," FACTORS "}}",
     "{\"model_type\":\"phi3\"," SHAPE ",\"rope_parameters\":{\"rope_type\":\"longrope\",\"rope_theta\":10000,"
     "\"partial_rotary_factor\":1.0,\"original_max_position_embeddings\":64," FACTORS "}}"},
    {"{\"model_type\":\"gpt_neox\"," MHA ",\"rotary_pct\":0.5,\"rotary_emb_base\":500}",
     "{\"model_type\":\"gpt_neox\"," MHA ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500,"
     "\"partial_rotary_factor\":0.5}}"},
    {"{\"model_type\":\"qwen2\"," SHAPE "}",
     "{\"model_type\":\"qwen2\"," SHAPE ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\","
     "\"rope_theta\":10000}}}"},
    {LLAMA "}", "{\"architectures\":[\"LlamaModel\"]," SHAPE "}"},
    {GPT2 "}", "{\"architectures\":[\"GPT2Model\"],\"n_layer\":2,\"n_head\":2,\"n_embd\":16,\"n_positions\":8,"
               "\"vocab_size\":9}"},
    {LLAMA ",\"tie_word_embeddings\":true,\"eos_token_id\":[2,7]}",
     "{\"architectures\":[\"LlavaForConditionalGeneration\"],\"model_type\":\"llava\",\"tie_word_embeddings\":true,"
     "\"eos_token_id\":[2,7],\"vision_config\":{},\"text_config\":{\"model_type\":\"llama\"," SHAPE "}}"},
};

static void both_versions_are_read_alike(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(SPELLINGS); i++) {
        const struct model_config four = parsed(SPELLINGS[i].four), five = parsed(SPELLINGS[i].five);
        assert_same(&four, &five);
        assert_int_equal(four.more_eos, five.more_eos);
        for (int64_t k = 0; k < four.num_hidden_layers; k++)
            assert_int_equal(model_layer(&four, k)->rope, model_layer(&five, k)->rope);
        struct text json = {0};
        model_config_write(&five, "float32", &json);
        const struct model_config again = parsed(json.text);
        assert_same(&four, &again);
        text_release(&json);
    }
}

// The published configuration of a small model with images leaves out what its class has as defaults.
static void defaults_of_models_with_images_are_known(void **state) {
    (void)state;
    const struct model_config c =
        parsed("{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"model_type\":\"gemma3\","
               "\"eos_token_id\":[1,106],\"text_config\":{\"hidden_size\":2560,"
               "\"intermediate_size\":10240,\"model_type\":\"gemma3_text\","
               "\"num_hidden_layers\":34,\"rope_scaling\":{\"factor\":8.0,"
               "\"rope_type\":\"linear\"},\"sliding_window\":1024},\"vision_config\":{}}");
    assert_string_equal(model_architecture(&c), "Gemma3ForCausalLM");
    assert_true(c.vocab_size == 262208 && c.num_attention_heads == 8 && c.num_key_value_heads == 4 &&
                c.head_dim == 256);
    assert_true(c.tie_word_embeddings && c.rope[0].theta == 1e6 && c.rope[1].theta == 1e4 && c.rope[0].factor == 8);
    assert_true(c.eos_token_id == 1 && c.more_eos_token_id[0] == 106);
    for (int64_t i = 0; i < c.num_hidden_layers; i++) {
        const bool full = i % 6 == 5;
        assert_int_equal(model_layer(&c, i)->sliding_window, full ? 0 : 1024);
        assert_int_equal(model_layer(&c, i)->rope, full ? 0 : 1);
    }
}

#define GLA                                                                                                 \
    "{\"model_type\":\"gla\",\"num_hidden_layers\":4,\"hidden_size\":96,\"vocab_size\":100,\"max_position_" \
    "embeddings\":64"

// What flash-linear-attention's configuration leaves out, and layers with softmax attention among the others.
static void linear_attention_is_read_and_written(void **state) {
    (void)state;
    const struct model_config plain = parsed(GLA "}"),
                              mixed = parsed(GLA ",\"num_heads\":6,\"expand_k\":0.63,\"hidden_ratio\":null,"
                                                 "\"intermediate_size\":40,\"attn\":{\"layers\":[3,1],\"num_heads\":8,"
                                                 "\"num_kv_heads\":2,\"window_size\":9,\"rope_theta\":500}}");
    assert_string_equal(model_architecture(&plain), "GLAForCausalLM");
    assert_true(plain.linear.heads == 4 && plain.linear.key_dim == 12 && plain.linear.value_dim == 24);
    assert_true(plain.intermediate_size == 256 && plain.norm_eps == 1e-6 && plain.eos_token_id == 2);
    assert_true(mixed.linear.heads == 6 && mixed.linear.key_dim == 10 && mixed.linear.value_dim == 16);
    assert_true(mixed.num_attention_heads == 8 && mixed.num_key_value_heads == 2 && mixed.head_dim == 12);
    assert_true(mixed.intermediate_size == 40 && mixed.rope[0].theta == 500);
    for (int64_t i = 0; i < 4; i++) {
        assert_int_equal(model_layer(&plain, i)->mixer, MIXER_LINEAR_ATTENTION);
        assert_int_equal(model_layer(&mixed, i)->mixer, i % 2 ? MIXER_ATTENTION : MIXER_LINEAR_ATTENTION);
        assert_int_equal(model_layer(&mixed, i)->sliding_window, i % 2 ? 9 : 0);
    }
    assert_true(model_is_recurrent(&mixed));
    for (int which = 0; which < 2; which++) {
        const struct model_config *c = which ? &mixed : &plain;
        struct text json = {0}, types = {0}, types_again = {0};
        model_config_write(c, "float32", &json);
        const struct model_config again = parsed(json.text);
        assert_same(c, &again);
        model_layer_types(c, &types), model_layer_types(&again, &types_again);
        assert_string_equal(types.text, types_again.text);
        assert_non_null(strstr(json.text, "\"hidden_act\": \"swish\""));
        assert_int_equal(strstr(json.text, "\"attn\": null") != NULL, !which);
        text_release(&json), text_release(&types), text_release(&types_again);
    }
}

static void what_changes_nothing_is_kept(void **state) {
    (void)state;
    const struct model_config c =
        parsed(GPT2 ",\"n_ctx\":8,\"pad_token_id\":3,\"task_specific_params\":{\"text\":{\"max_length\":50}},"
                    "\"attn_pdrop\":0.1,\"torch_dtype\":\"float16\",\"transformers_version\":\"4.40.0\"}");
    struct text json = {0};
    model_config_write(&c, "bfloat16", &json);
    json_t *root;
    trireme_error error = {0};
    assert_ok(json_parse(json.text, json.length, "config.json", &root, &error), &error);
    assert_int_equal(json_integer_value(json_object_get(root, "n_ctx")), 8);
    assert_int_equal(json_integer_value(json_object_get(root, "pad_token_id")), 3);
    assert_true(json_is_object(json_object_get(json_object_get(root, "task_specific_params"), "text")));
    assert_string_equal(json_string_value(json_object_get(root, "transformers_version")), "4.40.0");
    assert_string_equal(json_string_value(json_object_get(root, "torch_dtype")), "bfloat16");
    json_decref(root);
    // Read and written once more, it is the same file; and the same model as without.
    const struct model_config again = parsed(json.text);
    struct text second = {0};
    model_config_write(&again, "bfloat16", &second);
    assert_string_equal(json.text, second.text);
    char with[CHECKSUM_HEX], without[CHECKSUM_HEX];
    const struct model_config plain = parsed(GPT2 "}");
    model_config_identify(&c, with);
    model_config_identify(&plain, without);
    assert_string_equal(with, without);
    text_release(&json);
    text_release(&second);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *json, *says;
    } REFUSED[] = {
        {LLAMA
         ",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e4},\"sliding_attention\":{\"rope_theta\":1e5}}}",
         "differ between types of layers"},
        {"{\"model_type\":\"phi3\"," SHAPE ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],"
         "\"long_factor\":[1]}}",
         "has 1 factors for 8 pairs"},
        {"{\"model_type\":\"phi3\"," SHAPE ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":"
         "[1,1,1,1,1,1,1,0],\"long_factor\":[1,1,1,1,1,1,1,1]}}",
         "expected a positive number, found 0"},
        {LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\"}}", "\"factor\" is missing"},
        {LLAMA ",\"qk_layernorm\":true}", "\"qk_layernorm\": true is not supported"},
        {LLAMA ",\"use_parallel_residual\":true}", "\"use_parallel_residual\""},
        {"{\"model_type\":\"granite_swa\"," SHAPE ",\"residual_multiplier\":0.5}",
         "\"residual_multiplier\": 0.5 is not supported: 1 is"},
        {"{\"model_type\":\"granite_swa\"," SHAPE ",\"layer_rope_theta\":[10000,500]}",
         "\"layer_rope_theta\": layers with another than the rest"},
        {"{\"model_type\":\"stablelm\"," SHAPE ",\"partial_rotary_factor\":0.01}", "cannot be rotated"},
        {"{\"model_type\":\"gemma2\"," SHAPE ",\"head_dim\":16,\"use_bidirectional_attention\":true}", "bidirectional"},
        {"{\"model_type\":\"gemma2\"," SHAPE ",\"head_dim\":16,\"attention_bias\":true}", "\"attention_bias\""},
        {"{\"model_type\":\"gemma3_text\"," SHAPE ",\"head_dim\":16,\"attn_logit_softcapping\":-1}",
         "attn_logit_softcapping"},
        {"{\"model_type\":\"gpt_neox\"," SHAPE ",\"hidden_act\":\"silu\"}",
         "\"hidden_act\": \"silu\" is not supported"},
        {"{\"model_type\":\"smollm3\"," SHAPE ",\"no_rope_layers\":[1]}", "lists 1 layers"},
        {GLA ",\"use_short_conv\":true}", "\"use_short_conv\": true is not supported: false is"},
        {GLA ",\"hidden_act\":\"silu\"}", "\"hidden_act\": \"silu\" is not supported"},
        {GLA ",\"num_kv_heads\":2}", "\"num_kv_heads\": 2 is not supported"},
        {GLA ",\"num_heads\":5,\"attn\":{\"layers\":[1],\"num_heads\":2}}",
         "\"expand_k\": num_heads 5 does not divide 48"},
        {GLA ",\"attn\":{\"layers\":[4],\"num_heads\":2}}", "expected the number of a layer, found 4"},
        {GLA ",\"attn\":{\"layers\":[1]}}", "\"num_heads\""},
        {GLA ",\"attn\":{\"layers\":[1],\"num_heads\":2,\"qkv_bias\":true}}", "\"qkv_bias\": true is not supported"},
        {"{\"model_type\":\"x\",\"text_config\":{\"model_type\":\"bert\"}}", "\"text_config\": architecture \"bert\""},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(REFUSED); i++) {
        struct model_config c;
        trireme_error error = {0};
        assert_says(model_config_parse(&c, REFUSED[i].json, strlen(REFUSED[i].json), "config.json", &error), &error,
                    REFUSED[i].says);
        assert_non_null(strstr(error.message, "config.json"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_versions_are_read_alike), cmocka_unit_test(defaults_of_models_with_images_are_known),
        cmocka_unit_test(linear_attention_is_read_and_written), cmocka_unit_test(what_changes_nothing_is_kept),
        cmocka_unit_test(what_cannot_be_is_refused)};
    return cmocka_run_group_tests_name("families", tests, NULL, NULL);
}

// Sliding windows that differ from layer to layer: in config.json, in keys, in what is compared and counted.
#include "test_model.h"

#define SHAPE_OF(layers)                                                                                       \
    "\"num_hidden_layers\":" #layers ",\"hidden_size\":64,\"intermediate_size\":96,\"num_attention_heads\":4," \
    "\"num_key_value_heads\":2,\"vocab_size\":100,\"max_position_embeddings\":512"
#define QWEN2_OF(layers) "{\"model_type\":\"qwen2\"," SHAPE_OF(layers)
#define SWITCHED(layers) QWEN2_OF(layers) ",\"use_sliding_window\":true,\"sliding_window\":8"
#define S "\"sliding_attention\""
#define F "\"full_attention\""

// The windows of all layers, as model.layer_types says them.
static void assert_types(const struct model_config *c, int64_t window, const char *types) {
    struct text text = {0};
    model_layer_types(c, &text);
    assert_string_equal(text.text, types);
    assert_int_equal(model_sliding_window(c), window);
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        assert_true(model_layer(c, i)->sliding_window == 0 || model_layer(c, i)->sliding_window == window);
    text_release(&text);
}

// ---- config.json

static void both_ways_of_saying_it_are_read(void **state) {
    (void)state;
    static const struct {
        const char *json;
        int64_t window;
        const char *types;
    } read[] = {
        {"{\"model_type\":\"mistral\"," SHAPE "}", 4096, "sliding_attention"},
        {"{\"model_type\":\"mistral\"," SHAPE ",\"sliding_window\":null}", 0, "full_attention"},
        {"{\"model_type\":\"mistral\"," SHAPE ",\"sliding_window\":7}", 7, "sliding_attention"},
        {LLAMA ",\"sliding_window\":7,\"layer_types\":[" S "," S "]}", 0, "full_attention"}, // not Llama's
        {QWEN2_OF(4) ",\"sliding_window\":8,\"max_window_layers\":1}", 0, "full_attention"},
        {SWITCHED(4) "}", 0, "full_attention"}, // from layer 28 on
        {SWITCHED(30) "}", 8, "28 full_attention, 2 sliding_attention"},
        {SWITCHED(4) ",\"max_window_layers\":0}", 8, "sliding_attention"},
        {SWITCHED(4) ",\"max_window_layers\":3}", 8, "3 full_attention, sliding_attention"},
        {SWITCHED(4) ",\"max_window_layers\":4}", 0, "full_attention"},
        {QWEN2_OF(4) ",\"use_sliding_window\":true,\"max_window_layers\":2}", 4096,
         "2 full_attention, 2 sliding_attention"},
        {QWEN2_OF(4) ",\"use_sliding_window\":true,\"sliding_window\":null,\"max_window_layers\":2}", 0,
         "full_attention"},
        {SWITCHED(2) ",\"layer_types\":[" S "," S "]}", 8, "sliding_attention"},
        {SWITCHED(2) ",\"layer_types\":[" F "," F "]}", 0, "full_attention"},
        {QWEN2_OF(2) ",\"layer_types\":[" F "," F "]}", 0, "full_attention"},
        // The list counts, not the number of layers.
        {SWITCHED(6) ",\"max_window_layers\":1,\"layer_types\":[" S "," S "," F "," S "," S "," F "]}", 8,
         "2 sliding_attention, full_attention"},
        {SWITCHED(5) ",\"layer_types\":[" S "," S "," F "," S "," S "]}", 8, "2 sliding_attention, full_attention"},
        {SWITCHED(4) ",\"layer_types\":[" F "," S "," S "," F "]}", 8, "full_attention, 2 sliding_attention"},
        {"{\"model_type\":\"ministral\"," SHAPE "}", 4096, "sliding_attention"},
        {"{\"model_type\":\"ministral\"," SHAPE ",\"sliding_window\":7,\"layer_types\":[" F "," S "]}", 7,
         "full_attention, sliding_attention"},
        {SWITCHED(5) ",\"max_window_layers\":2,\"layer_types\":null}", 8, "2 full_attention, 3 sliding_attention"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(read); i++) {
        struct model_config c = parsed(read[i].json);
        assert_types(&c, read[i].window, read[i].types);
    }
}

static void inconsistent_windows_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *json, *says;
    } refused[] = {
        {SWITCHED(2) ",\"layer_types\":[" F ",\"linear_attention\"]}",
         "\"layer_types\": \"linear_attention\" is not supported; supported are \"sliding_attention\" and "
         "\"full_attention\""},
        {SWITCHED(2) ",\"layer_types\":[" F ",3]}", "\"layer_types\": 3 is not supported"},
        {SWITCHED(2) ",\"layer_types\":[" F "]}", "\"layer_types\" lists 1 layer, \"num_hidden_layers\" says 2"},
        {SWITCHED(2) ",\"layer_types\":[" F "," S "," F "]}",
         "\"layer_types\" lists 3 layers, \"num_hidden_layers\" says 2"},
        {SWITCHED(2) ",\"layer_types\":" S "}", "\"layer_types\""},
        {QWEN2_OF(2) ",\"sliding_window\":8,\"layer_types\":[" F "," S "]}",
         "has \"sliding_attention\", but \"use_sliding_window\" is not true"},
        {QWEN2_OF(2) ",\"use_sliding_window\":true,\"sliding_window\":null,\"layer_types\":[" F "," S "]}",
         "has \"sliding_attention\", but \"sliding_window\" is null"},
        {"{\"model_type\":\"ministral\"," SHAPE ",\"sliding_window\":null,\"layer_types\":[" F "," S "]}",
         "has \"sliding_attention\", but \"sliding_window\" is null"},
        {SWITCHED(2) ",\"max_window_layers\":-1}", "max_window_layers"},
        {QWEN2_OF(2) ",\"use_sliding_window\":true,\"sliding_window\":0}", "sliding_window"},
        {SWITCHED(1025) ",\"max_window_layers\":1024}", "unlike layers are supported in models of at most 1024 layers"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(refused); i++) {
        struct model_config c;
        trireme_error error = {0};
        const char *json = refused[i].json;
        assert_says(model_config_parse(&c, json, strlen(json), "config.json", &error), &error, refused[i].says);
        assert_non_null(strstr(error.message, "config.json"));
    }
    // As deep as one likes if all are alike.
    struct model_config deep = parsed(SWITCHED(1025) ",\"max_window_layers\":0}");
    assert_types(&deep, 8, "sliding_attention");
    assert_int_equal(model_layers_of_kind(&deep, 0), 1025);
}

static void windows_survive_writing(void **state) {
    (void)state;
    static const struct {
        const char *json, *says, *silent; // members that are written, and one that is not
    } written[] = {
        {SWITCHED(4) ",\"max_window_layers\":0}",
         "\"sliding_window\": 8,\n  \"use_sliding_window\": true,\n  \"max_window_layers\": 0,", "layer_types"},
        {QWEN2_OF(4) "}", "\"sliding_window\": null,\n  \"use_sliding_window\": false,\n  \"max_window_layers\": 4,",
         "layer_types"},
        // Whoever does not know the list takes the number of layers.
        {SWITCHED(3) ",\"max_window_layers\":1}",
         "\"use_sliding_window\": true,\n  \"max_window_layers\": 1,\n  \"layer_types\": [", NULL},
        {"{\"model_type\":\"qwen3\"," SHAPE_OF(4) ",\"head_dim\":8,\"use_sliding_window\":true,\"sliding_window\":8,"
                                                  "\"layer_types\":[" S "," F "," S "," S "]}",
         "\"max_window_layers\": 2,", NULL},
        {SWITCHED(3) ",\"layer_types\":[" S "," F "," F "]}", "\"max_window_layers\": 3,", NULL},
        {"{\"model_type\":\"mistral\"," SHAPE ",\"sliding_window\":8}", "\"sliding_window\": 8,", "max_window_layers"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(written); i++) {
        struct model_config c = parsed(written[i].json);
        struct text json = {0}, types = {0};
        model_config_write(&c, "float32", &json);
        assert_non_null(strstr(json.text, written[i].says));
        assert_true(!written[i].silent || !strstr(json.text, written[i].silent));
        struct model_config again = parsed(json.text);
        assert_same(&c, &again);
        model_layer_types(&c, &types);
        assert_types(&again, 8 * (model_sliding_window(&c) != 0), types.text);
        text_release(&json);
        text_release(&types);
    }
}

static void windows_are_of_the_models_identity(void **state) {
    (void)state;
    static const char *const jsons[] = {
        SWITCHED(4) "}",
        SWITCHED(4) ",\"max_window_layers\":0}",
        SWITCHED(4) ",\"max_window_layers\":2}",
        SWITCHED(4) ",\"layer_types\":[" F "," S "," S "," F "]}",
        SWITCHED(4) ",\"layer_types\":[" S "," F "," S "," F "]}",
    };
    char hex[ARRAY_LENGTH(jsons)][CHECKSUM_HEX];
    for (size_t i = 0; i < ARRAY_LENGTH(jsons); i++) {
        struct model_config c = parsed(jsons[i]);
        model_config_identify(&c, hex[i]);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(hex[i], hex[j]);
    }
}

// ---- keys

#define QWEN3_KEYS "model.preset=qwen3-0.6b model.vocab_size=300 model.num_hidden_layers="

static void keys_say_which_layers(void **state) {
    (void)state;
    static const struct {
        const char *keys;
        int64_t window;
        const char *types;
    } said[] = {
        {QWEN3_KEYS "5", 0, "full_attention"},
        {QWEN3_KEYS "5 model.sliding_window=16", 16, "sliding_attention"},
        {QWEN3_KEYS "5 model.sliding_window=16 model.max_window_layers=2", 16, "2 full_attention, 3 sliding_attention"},
        {QWEN3_KEYS "8 model.sliding_window=16 model.layer_types=3+sliding_attention,+full_attention", 16,
         "3 sliding_attention, full_attention"},
        {QWEN3_KEYS "5 model.sliding_window=16 model.layer_types=sliding_attention,full_attention", 16,
         "sliding_attention, full_attention"},
        {QWEN3_KEYS "3 model.sliding_window=16 model.layer_types=full_attention+,+2+sliding_attention+", 16,
         "full_attention, 2 sliding_attention"},
        {QWEN3_KEYS "2 model.layer_types=full_attention", 0, "full_attention"},
        {QWEN3_KEYS "2 model.max_window_layers=2", 0, "full_attention"},
        {"model.preset=mistral-7b", 4096, "sliding_attention"},
        {"model.preset=mistral-7b model.num_hidden_layers=40", 4096, "sliding_attention"},
        {"model.preset=mistral-7b model.num_hidden_layers=40 model.sliding_window=99", 99, "sliding_attention"},
        {"model.preset=mistral-7b model.layer_types=full_attention", 0, "full_attention"},
        {"model.preset=mistral-7b model.attention_bias=true model.layer_types=full_attention,sliding_attention", 4096,
         "full_attention, sliding_attention"},
        {"model.family=llama model.num_hidden_layers=4 model.hidden_size=64 model.num_attention_heads=4 "
         "model.qk_norm=true model.sliding_window=9 model.max_window_layers=1",
         9, "full_attention, 3 sliding_attention"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(said); i++) {
        struct model_config c;
        trireme_error error = {0};
        assert_ok(resolve(&c, said[i].keys, 256, &error), &error);
        assert_types(&c, said[i].window, said[i].types);
    }
}

static void impossible_keys_are_refused(void **state) {
    (void)state;
    static const struct refused_keys refused[] = {
        {QWEN3_KEYS "4 model.layer_types=sliding_attention",
         "settings: model.layer_types: given sliding_attention, but no model.sliding_window says how far"},
        {QWEN3_KEYS "4 model.max_window_layers=2", "model.max_window_layers: given 2, but no model.sliding_window"},
        {QWEN3_KEYS "4 model.sliding_window=8 model.max_window_layers=5",
         "model.max_window_layers: given 5, but the model has 4 layers"},
        {QWEN3_KEYS "4 model.sliding_window=8 model.max_window_layers=1 model.layer_types=full_attention",
         "but model.layer_types says it, too"},
        {QWEN3_KEYS "4 model.sliding_window=8 model.layer_types=full_attention",
         "model.sliding_window: given 8, but no layer has a window"},
        {QWEN3_KEYS "4 model.sliding_window=8 model.layer_types=4+sliding_attention,full_attention",
         "which are more than the model's 4 layers"},
        {QWEN3_KEYS "4 model.sliding_window=8 model.layer_types=99999999999999999999+sliding_attention",
         "which are more than the model's 4 layers"},
        {QWEN3_KEYS "4 model.layer_types=2+linear_attention,+full_attention model.linear_attention_heads=64",
         "no architecture of Hugging Face mixes"},
        {QWEN3_KEYS "4 model.sliding_window=8 model.layer_types=sliding",
         "expected sliding_attention, full_attention and"},
        {QWEN3_KEYS "4 model.sliding_window=8 model.layer_types=0+sliding_attention",
         "expected sliding_attention, full_attention and"},
        {QWEN3_KEYS "4 model.sliding_window=8 model.layer_types=sliding_attention,",
         "expected sliding_attention, full_attention and"},
        {QWEN3_KEYS "4 model.sliding_window=8 model.layer_types=,sliding_attention",
         "expected sliding_attention, full_attention and"},
        {QWEN3_KEYS "4 model.sliding_window=8 model.layer_types=sliding_attention+full_attention",
         "expected sliding_attention, full_attention and"},
        {"model.preset=gpt2-124m model.sliding_window=8", "model.sliding_window: given 8, which GPT-2 does not have"},
        {"model.preset=gpt2-124m model.layer_types=full_attention", "which GPT-2 does not have"},
        {QWEN3_KEYS "2000 model.sliding_window=8 model.max_window_layers=1",
         "model.max_window_layers: given 1, but unlike layers are supported in models of at most 1024 layers"},
    };
    assert_keys_refused(refused, ARRAY_LENGTH(refused));
}

static void another_depth_needs_other_types(void **state) {
    (void)state;
    struct model_config c;
    trireme_error error = {0};
    FILE *file = tmpfile();
    assert_true(file && fputs(SWITCHED(4) ",\"layer_types\":[" S "," F "," F "," S "]}", file) >= 0);
    assert_int_equal(fflush(file), 0);
    char *same = mem_printf("model.config=/dev/fd/%d training.seq_len=64 model.sliding_window=5", fileno(file));
    char *deeper = mem_printf("model.config=/dev/fd/%d training.seq_len=64 model.num_hidden_layers=6", fileno(file));
    char *said = mem_printf("%s model.max_window_layers=5", deeper);
    assert_ok(resolve(&c, same, 100, &error), &error);
    assert_types(&c, 5, "sliding_attention, 2 full_attention");
    assert_says(resolve(&c, deeper, 100, &error), &error,
                "model.num_hidden_layers: given 6, but only some of the 4 layers that the model has otherwise");
    assert_ok(resolve(&c, said, 100, &error), &error);
    assert_types(&c, 8, "5 full_attention, sliding_attention");
    free(same), free(deeper), free(said);
    fclose(file);
}

static void the_architecture_is_one_that_lists_layers(void **state) {
    (void)state;
    struct model_config c;
    trireme_error error = {0};
    const char *keys = "model.preset=llama-5m model.sliding_window=8 model.max_window_layers=2";
    assert_ok(resolve(&c, keys, 256, &error), &error);
    assert_string_equal(model_architecture(&c), "MinistralForCausalLM");
    assert_types(&c, 8, "2 full_attention, 4 sliding_attention");
    struct text json = {0};
    model_config_write(&c, "float32", &json);
    assert_null(strstr(json.text, "max_window_layers"));
    struct model_config again = parsed(json.text);
    assert_same(&c, &again);
    text_release(&json);
    c.mlp_bias = true;
    assert_null(model_architecture(&c));
    assert_says(model_config_check(&c, &error), &error,
                "mlp_bias true, sliding_window 8, layer_types \"2 full_attention, 4 sliding_attention\", head_dim");
}

// ---- kinds

static void kinds_are_numbered_as_layers_first_have_them(void **state) {
    (void)state;
    struct model_config c = parsed(SWITCHED(5) ",\"layer_types\":[" S "," F "," F "," S "," F "]}");
    assert_int_equal(model_layer_kinds(&c), 2);
    assert_true(c.kind[0].sliding_window == 8 && c.kind[1].sliding_window == 0);
    assert_true(model_layers_of_kind(&c, 0) == 2 && model_layers_of_kind(&c, 1) == 3);
    trireme_error error = {0};
    struct layer_kind many[LAYER_KINDS + 1] = {0};
    for (int i = 0; i <= LAYER_KINDS; i++)
        many[i].sliding_window = i;
    c.num_hidden_layers = LAYER_KINDS;
    assert_ok(model_layers_set(&c, many, LAYER_KINDS, &error), &error);
    assert_int_equal(model_layer_kinds(&c), LAYER_KINDS);
    c.num_hidden_layers = LAYER_KINDS + 1;
    assert_says(model_layers_set(&c, many, LAYER_KINDS + 1, &error), &error, "more than 8 kinds of layers");
    assert_says(model_config_check(&c, &error), &error, "sliding_window 1 cannot be: other layers have one of 7");
}

static void windows_are_compared(void **state) {
    (void)state;
    struct model_config a = parsed(SWITCHED(4) ",\"max_window_layers\":2}"), b = parsed(SWITCHED(4) "}");
    trireme_error error = {0};
    struct text said = {0};
    assert_ok(model_config_compare(&a, &b, false, &error), &error);
    assert_says(model_config_compare(&a, &b, true, &error), &error, "their sliding_window is 8, the model's 0");
    b = parsed(SWITCHED(4) ",\"layer_types\":[" S "," F "," S "," F "]}");
    assert_ok(model_config_compare(&a, &b, false, &error), &error);
    assert_says(model_config_compare(&a, &b, true, &error), &error,
                "their layer_types is 2 full_attention, 2 sliding_attention, the model's sliding_attention, "
                "full_attention");
    b.norm_eps = 1e-3;
    model_config_meanings(&a, &b, &said);
    assert_string_equal(said.text, "layer_types sliding_attention, full_attention (theirs: 2 full_attention, "
                                   "2 sliding_attention), norm_eps 0.001 (theirs: 1e-06)");
    text_release(&said);
}

static void each_layer_counts_by_its_window(void **state) {
    (void)state;
    struct model_config full = parsed(SWITCHED(5) "}"), all = parsed(SWITCHED(5) ",\"max_window_layers\":0}"),
                        some = parsed(SWITCHED(5) ",\"layer_types\":[" S "," F "," F "," S "," F "]}");
    double of_window = model_flops(&full, 1, 100) - model_flops(&all, 1, 100);
    assert_true(of_window == 5 * 12 * 64.0 * (100 - 8));
    assert_true(model_flops(&full, 3, 100) - model_flops(&some, 3, 100) == 3 * of_window * 2 / 5);
    assert_true(model_flops(&some, 1, 8) == model_flops(&full, 1, 8));
    assert_true(model_layers_flops(&some, 1, 100) == model_flops(&some, 1, 100) - 6 * 64 * 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways_of_saying_it_are_read),
        cmocka_unit_test(inconsistent_windows_are_refused),
        cmocka_unit_test(windows_survive_writing),
        cmocka_unit_test(windows_are_of_the_models_identity),
        cmocka_unit_test(keys_say_which_layers),
        cmocka_unit_test(impossible_keys_are_refused),
        cmocka_unit_test(another_depth_needs_other_types),
        cmocka_unit_test(the_architecture_is_one_that_lists_layers),
        cmocka_unit_test(kinds_are_numbered_as_layers_first_have_them),
        cmocka_unit_test(windows_are_compared),
        cmocka_unit_test(each_layer_counts_by_its_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

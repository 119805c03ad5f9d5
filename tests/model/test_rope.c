// The table of rotary embeddings for every scaling, against frequencies and attention factors that `transformers`
// computes, in f32 (tools/reference/rope_vectors.py).
#include "test_model.h"

#include <math.h>

enum { PAIRS = 8, POSITIONS = 4 };

#define LONGROPE                                                              \
    "\"rope_type\": \"longrope\", \"original_max_position_embeddings\": 16, " \
    "\"short_factor\": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7], "            \
    "\"long_factor\": [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]"

static const struct {
    const char *scaling;
    int64_t length;
    double factor, frequency[PAIRS];
} THEIRS[] = {
    {"\"rope_type\": \"linear\", \"factor\": 3.0",
     64,
     1,
     {0.333333343, 0.153287753, 0.0704914108, 0.0324164145, 0.0149071207, 0.00685523776, 0.00315247197, 0.00144970615}},
    {"\"rope_type\": \"dynamic\", \"factor\": 3.0",
     64,
     1,
     {1, 0.459863275, 0.21147424, 0.0972492471, 0.0447213612, 0.0205657128, 0.0094574159, 0.00434911856}},
    {"\"rope_type\": \"dynamic\", \"factor\": 3.0",
     100,
     1,
     {1, 0.399294436, 0.159436047, 0.0636619255, 0.0254198518, 0.0101500051, 0.00405284064, 0.00161827658}},
    {"\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
     "\"original_max_position_embeddings\": 32",
     64,
     1,
     {1, 0.237489685, 0.0311854575, 0.0121561559, 0.00559017016, 0.0025707141, 0.00118217699, 0.000543639821}},
    {"\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 16",
     64,
     1.13862944,
     {1, 0.287414551, 0.05286856, 0.0243123118, 0.0111803403, 0.00514142821, 0.00236435398, 0.00108727964}},
    {"\"rope_type\": \"yarn\", \"factor\": 4.0, \"beta_fast\": 4.0, \"beta_slow\": 0.5, \"mscale\": 1.5, "
     "\"mscale_all_dim\": 0.7, \"truncate\": false, \"original_max_position_embeddings\": 32",
     64,
     1.10109339,
     {1, 0.371084481, 0.11139711, 0.0243123118, 0.0111803403, 0.00514142821, 0.00236435398, 0.00108727964}},
    {"\"rope_type\": \"yarn\", \"factor\": 2.0, \"attention_factor\": 1.3, \"original_max_position_embeddings\": 32",
     64,
     1.3,
     {1, 0.383219391, 0.140982836, 0.0486246236, 0.0223606806, 0.0102828564, 0.00472870795, 0.00217455928}},
    {"\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 2000",
     64,
     1.13862944,
     {1, 0.459863275, 0.21147424, 0.0850930884, 0.03354102, 0.0128535703, 0.00472870748, 0.00163091952}},
    {LONGROPE,
     16,
     1.22474487,
     {1, 0.418057501, 0.176228538, 0.0748071149, 0.0319438279, 0.0137104746, 0.00591088459, 0.00255830493}},
    {LONGROPE,
     17,
     1.22474487,
     {0.5, 0.153287768, 0.05286856, 0.0194498487, 0.0074535599, 0.00293795904, 0.00118217699, 0.000483235344}},
    {LONGROPE ", \"attention_factor\": 1.2",
     17,
     1.2,
     {0.5, 0.153287768, 0.05286856, 0.0194498487, 0.0074535599, 0.00293795904, 0.00118217699, 0.000483235344}},
    {LONGROPE ", \"factor\": 8.0",
     17,
     1.32287566,
     {0.5, 0.153287768, 0.05286856, 0.0194498487, 0.0074535599, 0.00293795904, 0.00118217699, 0.000483235344}},
};

static struct model_config scaled(const char *scaling) {
    char *json = mem_printf("{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,"
                            "\"intermediate_size\":96,\"num_attention_heads\":4,\"vocab_size\":100,"
                            "\"max_position_embeddings\":64,\"rope_theta\":500,\"rope_scaling\":{%s}}",
                            scaling);
    const struct model_config c = parsed(json);
    free(json);
    return c;
}

static void tables_are_those_of_transformers(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(THEIRS); i++) {
        const struct model_config c = scaled(THEIRS[i].scaling);
        double table[POSITIONS][2 * PAIRS];
        rope_table(&c, 0, POSITIONS, THEIRS[i].length, table[0]);
        for (int p = 0; p < POSITIONS; p++)
            for (int k = 0; k < PAIRS; k++) {
                const double angle = p * THEIRS[i].frequency[k], factor = THEIRS[i].factor;
                if (fabs(table[p][k] - factor * cos(angle)) > 2e-6 ||
                    fabs(table[p][PAIRS + k] - factor * sin(angle)) > 2e-6)
                    fail_msg("%s, %lld tokens: pair %d at position %d", THEIRS[i].scaling, (long long)THEIRS[i].length,
                             k, p);
            }
    }
}

// What is written reads back to the same table.
static void scalings_survive_writing(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(THEIRS); i++) {
        const struct model_config c = scaled(THEIRS[i].scaling);
        struct text json = {0};
        model_config_write(&c, "float32", &json);
        const struct model_config again = parsed(json.text);
        assert_same(&c, &again);
        text_release(&json);
    }
}

static void part_of_a_head_is_turned(void **state) {
    (void)state;
    const struct model_config c = parsed("{\"model_type\":\"stablelm\"," SHAPE
                                         ",\"rope_parameters\":{\"rope_theta\":500,\"partial_rotary_factor\":0.5}}");
    assert_int_equal(model_rotary_dim(&c), c.head_dim / 2);
    double table[2][PAIRS];
    rope_table(&c, 0, 2, 2, table[0]);
    for (int k = 0; k < PAIRS / 2; k++) // of the turned part's width, not of the head's
        assert_true(fabs(table[1][k] - cos(pow(500, -k / 4.0))) < 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tables_are_those_of_transformers),
                                       cmocka_unit_test(scalings_survive_writing),
                                       cmocka_unit_test(part_of_a_head_is_turned)};
    return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}

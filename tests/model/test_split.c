// Parameters split over tensor ranks: together the ranks hold every element of the whole model as often as its class
// says.
#include "support/models.h"

#include "model/split.h"

static void config_of(struct model_config *c, int64_t heads, int64_t kv_heads, int64_t inner, int64_t vocab) {
    char json[600];
    snprintf(json, sizeof json,
             "{\"architectures\": [\"Qwen3ForCausalLM\"], \"num_hidden_layers\": 2, \"hidden_size\": 16, "
             "\"intermediate_size\": %lld, \"num_attention_heads\": %lld, \"num_key_value_heads\": %lld, "
             "\"head_dim\": 4, \"max_position_embeddings\": 32, \"vocab_size\": %lld, \"rms_norm_eps\": 1e-6, "
             "\"rope_theta\": 10000.0, \"attention_bias\": true, \"tie_word_embeddings\": false}",
             (long long)inner, (long long)heads, (long long)kv_heads, (long long)vocab);
    small_config(c, json);
}

static int expected_copies(const struct parameter *p, const struct model_split *split) {
    return p->split == CLASS_SPLIT ? 1 : p->split == CLASS_KV ? split->copies : split->ranks;
}

static void check_split(const struct model_config *c, int ranks, bool sequence) {
    struct model_split split;
    trireme_error error = {0};
    assert_ok(model_split_create(&split, c, ranks, sequence, &error), &error);
    struct parameter_table whole, first;
    parameter_table_create(&whole, c);
    parameter_table_split(&first, &whole, c, &split, 0, 0, NULL, false, NULL);
    int **held = mem_alloc(whole.parameters.count * sizeof *held);
    assert_int_equal(parameter_find(&whole, "layers.2.mlp.up.weight"), NONE); // there are 2 layers
    for (size_t i = 0; i < whole.parameters.count; i++) {
        const struct parameter *p = &whole.parameters.item[i];
        assert_int_equal(parameter_find(&whole, p->name), i);
        held[i] = mem_alloc((size_t)parameter_count(p) * sizeof **held);
    }
    for (int rank = 0; rank < ranks; rank++) {
        struct parameter_table table;
        parameter_table_split(&table, &whole, c, &split, rank, rank, NULL, false, NULL);
        assert_int_equal(table.parameters.count, first.parameters.count);
        int listed = 0;
        for (int u = 0; u < (int)table.units.count; u++)
            FOR_UNIT(&table, i, u)
                assert_true(i == listed++ && table.parameters.item[i].unit == u);
        assert_int_equal(listed, table.parameters.count);
        for (size_t i = 0; i < table.parameters.count; i++) {
            const struct parameter *p = &table.parameters.item[i], *w = &whole.parameters.item[p->whole];
            // Programs are the same on every rank.
            assert_string_equal(p->name, first.parameters.item[i].name);
            assert_int_equal(parameter_find(&table, p->name), i);
            assert_memory_equal(p->dim, first.parameters.item[i].dim, sizeof p->dim);
            assert_int_equal(p->unit, first.parameters.item[i].unit);
            for (int r = 0; r < p->regions; r++) {
                const struct parameter_region *region = &p->region[r];
                assert_true(region->row + region->rows <= p->dim[0] && region->column + region->columns <= p->dim[1]);
                assert_true(region->whole_row + region->rows <= parameter_rows(w));
                for (int64_t row = 0; row < region->rows; row++)
                    for (int64_t k = 0; k < region->columns; k++)
                        held[p->whole][(region->whole_row + row) * w->dim[1] + region->whole_column + k] +=
                            1000 / expected_copies(p, &split);
            }
        }
        parameter_table_release(&table);
    }
    for (size_t i = 0; i < whole.parameters.count; i++) {
        const struct parameter *p = &whole.parameters.item[i];
        for (int64_t k = 0; k < parameter_rows(p) * p->dim[1]; k++)
            if (held[i][k] < 990 || held[i][k] > 1000)
                fail_msg("%d ranks, %s[%lld]: held %d thousandths of once", ranks, p->name, (long long)k, held[i][k]);
        free(held[i]);
    }
    free(held);
    parameter_table_release(&first);
    parameter_table_release(&whole);
}

static void every_element_is_held(void **state) {
    (void)state;
    static const int64_t SHAPES[][4] = {
        // heads, key-value heads, columns, vocabulary
        {8, 8, 32, 64},  {8, 2, 24, 50},  {6, 3, 20, 67},  {5, 1, 17, 33},
        {8, 4, 8, 1000}, {9, 3, 11, 130}, {12, 2, 13, 99},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(SHAPES); i++) {
        struct model_config c;
        config_of(&c, SHAPES[i][0], SHAPES[i][1], SHAPES[i][2], SHAPES[i][3]);
        for (int ranks = 1; ranks <= 8; ranks++)
            if (ranks <= SHAPES[i][0] && ranks <= SHAPES[i][2])
                for (int sequence = 0; sequence < (ranks > 1 ? 2 : 1); sequence++)
                    check_split(&c, ranks, sequence == 1);
    }
}

static const struct parameter_piece *piece_of(const struct parameter *whole, const struct parameter_matrix *m) {
    assert_int_equal(whole->pieces, whole->whole_matrices);
    assert_in_range(m->number, 0, whole->pieces - 1);
    return &whole->piece[m->number];
}

// Each matrix of Hugging Face's is one matrix of what a rank has, of which all ranks have as many rows or columns.
static void check_matrices(const struct model_config *c, int ranks) {
    struct model_split split;
    trireme_error error = {0};
    assert_ok(model_split_create(&split, c, ranks, false, &error), &error);
    struct parameter_table whole;
    parameter_table_create(&whole, c);
    int pieces = 0, matrices = 0;
    for (size_t i = 0; i < whole.parameters.count; i++)
        pieces += whole.parameters.item[i].ndim == 2 ? whole.parameters.item[i].pieces : 0;
    for (int rank = 0; rank < ranks; rank++) {
        struct parameter_table table;
        parameter_table_split(&table, &whole, c, &split, rank, rank, NULL, false, NULL);
        for (size_t i = 0; i < table.parameters.count; i++) {
            const struct parameter *p = &table.parameters.item[i], *w = &whole.parameters.item[p->whole];
            int64_t rows = 0;
            if (p->ndim == 1)
                continue;
            for (int k = 0; k < p->matrices; k++, matrices++) {
                const struct parameter_matrix *m = &p->matrix[k];
                const struct parameter_piece *piece = piece_of(w, m);
                assert_int_equal(m->row, rows);
                assert_int_equal(m->whole_rows, piece->rows);
                assert_int_equal(m->whole_columns, w->dim[1]);
                rows += m->rows;
                for (int r = 0; r < p->regions; r++) {
                    const struct parameter_region *region = &p->region[r];
                    const bool inside = region->row >= m->row && region->row + region->rows <= m->row + m->rows;
                    if (p->regions > 1 || p->matrices == 1)
                        assert_int_equal(inside, region->whole_row >= piece->row &&
                                                     region->whole_row < piece->row + piece->rows);
                }
            }
            if (!w->is_vocabulary)
                assert_int_equal(rows, p->dim[0]);
        }
        parameter_table_release(&table);
    }
    assert_int_equal(matrices, pieces * ranks);
    parameter_table_release(&whole);
}

static void matrices_of_hugging_face(void **state) {
    (void)state;
    struct model_config c;
    for (int ranks = 1; ranks <= 5; ranks++) {
        config_of(&c, 6, 2, 24, 50);
        check_matrices(&c, ranks);
        small_config(&c, "{\"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 2, \"n_embd\": 15, \"n_head\": 5, "
                         "\"n_inner\": 22, \"n_positions\": 40, \"vocab_size\": 53}");
        check_matrices(&c, ranks);
    }
}

// Parameters that are to be apart never share a unit; those that are not keep the unit's name.
static void parameters_apart(void **state) {
    (void)state;
    struct model_config c;
    config_of(&c, 8, 2, 24, 50);
    struct parameter_table whole;
    parameter_table_create(&whole, &c);
    int *apart = mem_alloc(whole.parameters.count * sizeof *apart);
    for (size_t i = 0; i < whole.parameters.count; i++)
        apart[i] = whole.parameters.item[i].ndim == 1 || whole.parameters.item[i].is_vocabulary;
    for (int ranks = 1; ranks <= 4; ranks++) {
        struct model_split split;
        trireme_error error = {0};
        assert_ok(model_split_create(&split, &c, ranks, true, &error), &error);
        struct parameter_table table;
        parameter_table_split(&table, &whole, &c, &split, 0, 0, NULL, false, apart);
        int alone = 0;
        for (int u = 0; u < (int)table.units.count; u++) {
            const int first = apart[table.parameters.item[table.first[u]].whole];
            const bool rest = strstr(table.units.item[u], ".rest") != NULL;
            FOR_UNIT(&table, i, u) {
                assert_int_equal(table.parameters.item[i].apart, first);
                assert_int_equal(apart[table.parameters.item[i].whole], first);
            }
            assert_int_equal(rest, first && strncmp(table.units.item[u], "layers.", 7) == 0);
            alone += rest;
            for (int v = 0; v < u; v++)
                assert_string_not_equal(table.units.item[u], table.units.item[v]);
        }
        assert_true(alone >= 2);
        parameter_table_release(&table);
    }
    free(apart);
    parameter_table_release(&whole);
}

// Two key-value heads on four ranks: the three query heads of each are dealt out to the two ranks that hold it.
static void query_heads_stay_with_their_key_value_head(void **state) {
    (void)state;
    static const int HEADS[] = {2, 1, 2, 1};
    struct model_config c;
    config_of(&c, 6, 2, 24, 50);
    struct model_split split;
    trireme_error error = {0};
    assert_ok(model_split_create(&split, &c, ARRAY_LENGTH(HEADS), false, &error), &error);
    for (size_t rank = 0; rank < ARRAY_LENGTH(HEADS); rank++)
        assert_int_equal(model_split_heads(&split, &c, (int)rank), HEADS[rank]);
}

// To the window's elements in a whole of so many columns, the first of them at `to`.
static void give(const struct parameter *p, struct parameter_span held, const struct parameter_window *window,
                 const int32_t *from, int32_t *to, int64_t width) {
    struct parameter_runs runs = parameter_runs(p, held, window);
    for (struct parameter_run run; parameter_next(&runs, &run);)
        for (int64_t k = 0; k < run.count; k++) {
            const int64_t at = run.window + k;
            to[at / window->columns * width + at % window->columns] = from[run.held + k];
        }
}

// Values that are taken in pieces of any length and given back are unchanged.
static void take_and_give(void **state) {
    (void)state;
    struct model_config c;
    config_of(&c, 6, 3, 20, 67);
    struct model_split split;
    trireme_error error = {0};
    assert_ok(model_split_create(&split, &c, 4, true, &error), &error);
    struct parameter_table whole;
    parameter_table_create(&whole, &c);
    for (size_t i = 0; i < whole.parameters.count; i++) {
        const struct parameter *w = &whole.parameters.item[i];
        int64_t count = w->dim[0] * w->dim[1];
        int32_t *values = mem_alloc((size_t)count * sizeof *values), *back = mem_alloc((size_t)count * sizeof *back);
        for (int64_t k = 0; k < parameter_rows(w) * w->dim[1]; k++)
            values[k] = (int32_t)k + 1;
        // Four that tile it, of odd sizes where there is room for them.
        enum { WINDOWS = 4 };
        const int64_t width = w->dim[1], rows = MIN(3, w->dim[0]), columns = MIN(5, width);
        const struct parameter_window window[WINDOWS] = {{0, rows, 0, columns},
                                                         {0, rows, columns, width - columns},
                                                         {rows, w->dim[0] - rows, 0, columns},
                                                         {rows, w->dim[0] - rows, columns, width - columns}};
        for (int rank = 0; rank < 4; rank++) {
            struct parameter_table table;
            parameter_table_split(&table, &whole, &c, &split, rank, rank, NULL, false, NULL);
            for (size_t j = 0; j < table.parameters.count; j++) {
                const struct parameter *p = &table.parameters.item[j];
                int64_t all = p->dim[0] * p->dim[1], step = 7 + (int64_t)j;
                int32_t *part = mem_alloc((size_t)step * sizeof *part);
                for (int64_t at = 0; p->whole == (int)i && at < all; at += step) {
                    struct parameter_span held = {at, MIN(at + step, all)};
                    memset(part, 0, (size_t)step * sizeof *part);
                    for (int64_t from = 0, pace = 5 + (int64_t)i; from < count; from += pace) {
                        struct parameter_span given = {from, MIN(from + pace, count)};
                        parameter_take(p, w, given, values + from, held, part, sizeof *part);
                    }
                    for (int v = 0; v < WINDOWS; v++)
                        give(p, held, &window[v], part, back + window[v].row * width + window[v].column, width);
                }
                free(part);
            }
            parameter_table_release(&table);
        }
        assert_memory_equal(values, back, (size_t)count * sizeof *values);
        free(values);
        free(back);
    }
    parameter_table_release(&whole);
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        int heads, columns, tokens;
        const char *few;
    } MODEL[] = {{4, 24, 50, "of 4 heads"}, {6, 4, 50, "of 4 MLP columns"}, {6, 24, 4, "of 4 tokens"}};
    for (size_t i = 0; i < ARRAY_LENGTH(MODEL); i++) {
        struct model_config c;
        config_of(&c, MODEL[i].heads, 2, MODEL[i].columns, MODEL[i].tokens);
        struct model_split split;
        trireme_error error = {0};
        assert_int_equal(model_split_create(&split, &c, 5, true, &error), TRIREME_ERROR_USAGE);
        assert_non_null(strstr(error.message, MODEL[i].few));
        assert_non_null(strstr(error.message, "cannot be split over 5 ranks"));
    }
    struct model_config c;
    struct model_split split;
    trireme_error error = {0};
    config_of(&c, 4, 2, 24, 1);
    assert_int_equal(model_split_create(&split, &c, 1, true, &error), TRIREME_OK);
    assert_int_equal(model_split_spread_vocabulary(&split, &c, 3, &error), TRIREME_ERROR_USAGE);
    assert_string_equal(error.message, "1 token cannot be spread over 3 ranks");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_held), cmocka_unit_test(matrices_of_hugging_face),
        cmocka_unit_test(parameters_apart),      cmocka_unit_test(query_heads_stay_with_their_key_value_head),
        cmocka_unit_test(take_and_give),         cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("split", tests, NULL, NULL);
}

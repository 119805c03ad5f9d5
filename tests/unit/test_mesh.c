// The arrangement of ranks: coordinates, groups, printing.
#include "mesh/mesh.h"
#include "support/test.h"

static const struct mesh meshes[] = {
    {.degree = {1, 1, 1, 1, 1, 1}}, {.degree = {1, 2, 1, 1, 1, 1}}, {.degree = {2, 3, 1, 1, 1, 1}},
    {.degree = {1, 2, 2, 3, 2, 2}}, {.degree = {2, 2, 2, 2, 2, 2}}, {.degree = {1, 8, 1, 1, 4, 3}},
    {.degree = {1, 1, 5, 1, 1, 7}},
};

static void tensor_ranks_are_neighbours_then_data_then_stages(void **state) {
    (void)state;
    struct mesh mesh = mesh_single();
    mesh.degree[AXIS_TP] = 2;
    mesh.degree[AXIS_FSDP] = 3;
    mesh.degree[AXIS_PP] = 2;
    assert_int_equal(mesh_ranks(&mesh), 12);
    for (int rank = 0; rank < 12; rank++) {
        assert_int_equal(mesh_coordinate(&mesh, rank, AXIS_TP), rank % 2);
        assert_int_equal(mesh_coordinate(&mesh, rank, AXIS_FSDP), rank / 2 % 3);
        assert_int_equal(mesh_coordinate(&mesh, rank, AXIS_PP), rank / 6);
        assert_int_equal(mesh_coordinate(&mesh, rank, AXIS_DP), 0);
    }
    assert_int_equal(mesh_index(&mesh, 9, AXES_TENSOR), 1);
    assert_int_equal(mesh_index(&mesh, 9, AXES_DATA), 1);
    assert_int_equal(mesh_member(&mesh, 9, AXES(AXIS_PP), 0), 3);
    assert_int_equal(mesh_member(&mesh, 9, AXES_DATA, 2), 11);
    int pair[2];
    assert_int_equal(mesh_members(&mesh, 9, AXES(AXIS_PP), 1, pair), 2); // around the end
    assert_int_equal(pair[0], 3);
    assert_int_equal(pair[1], 9);
    // Tensor innermost, so index 3 of tp+fsdp is tp 1, fsdp 1.
    assert_int_equal(mesh_member(&mesh, 6, AXES_TENSOR | AXES_DATA, 3), 9);
}

static void groups_partition_the_ranks(void **state) {
    (void)state;
    for (size_t m = 0; m < ARRAY_LENGTH(meshes); m++)
        for (axis_set group = AXES_NONE; group <= AXES_ALL; group++) {
            const struct mesh *mesh = &meshes[m];
            int size = mesh_group_size(mesh, group);
            for (int rank = 0; rank < mesh_ranks(mesh); rank++) {
                int index = mesh_index(mesh, rank, group), members[96];
                assert_in_range(index, 0, size - 1);
                assert_int_equal(mesh_members(mesh, rank, group, 0, members), size);
                assert_int_equal(mesh_member(mesh, rank, group, index), rank);
                for (int i = 0; i < size; i++) {
                    int other = mesh_member(mesh, rank, group, i);
                    assert_in_range(other, 0, mesh_ranks(mesh) - 1);
                    assert_int_equal(members[i], other);
                    assert_true(i == 0 || other > members[i - 1]);
                    assert_int_equal(mesh_index(mesh, other, group), i);
                    assert_int_equal(mesh_member(mesh, other, group, index), rank);
                    for (int a = 0; a < AXIS_COUNT; a++)
                        if (!(group & AXES(a)))
                            assert_int_equal(mesh_coordinate(mesh, other, (enum axis)a),
                                             mesh_coordinate(mesh, rank, (enum axis)a));
                }
            }
        }
}

static void the_group_of_all_axes_counts_like_the_ranks(void **state) {
    (void)state;
    for (size_t m = 0; m < ARRAY_LENGTH(meshes); m++)
        for (int rank = 0; rank < mesh_ranks(&meshes[m]); rank++) {
            assert_int_equal(mesh_index(&meshes[m], rank, AXES_ALL), rank);
            assert_int_equal(mesh_member(&meshes[m], 0, AXES_ALL, rank), rank);
        }
}

static void axes_of_degree_one_are_absent(void **state) {
    (void)state;
    struct mesh one = mesh_single();
    assert_int_equal(mesh_ranks(&one), 1);
    assert_int_equal(mesh_present(&one, AXES_ALL), AXES_NONE);
    assert_int_equal(mesh_present(&meshes[3], AXES_ALL), AXES_ALL & ~AXES(AXIS_KV));
    assert_int_equal(mesh_present(&meshes[3], AXES_TENSOR), AXES(AXIS_TP));
}

// Ranks with parts of the same sequences are nearer than those with other sequences.
static void parts_of_sequences_are_neighbours(void **state) {
    (void)state;
    assert_int_equal(AXES_PARTS, AXES(AXIS_CP));
    assert_int_equal(AXES_SHARD, AXES(AXIS_CP) | AXES(AXIS_FSDP));
    assert_int_equal(AXES_SEQUENCES, AXES(AXIS_FSDP) | AXES(AXIS_DP));
    struct mesh mesh = mesh_single();
    mesh.degree[AXIS_TP] = mesh.degree[AXIS_FSDP] = 2;
    mesh.degree[AXIS_CP] = 3;
    assert_int_equal(mesh_index(&mesh, 8, AXES_PARTS), 1);
    assert_int_equal(mesh_index(&mesh, 8, AXES_SHARD), 4);
}

static void sets_of_axes_survive_printing(void **state) {
    (void)state;
    char text[AXES_TEXT];
    for (axis_set set = 1; set <= AXES_ALL; set++) {
        axis_set parsed = AXES_NONE;
        assert_true(strlen(axes_print(set, text)) < AXES_TEXT);
        assert_true(axes_parse(text, strlen(text), &parsed));
        assert_int_equal(parsed, set);
    }
    assert_string_equal(axes_print(AXES_NONE, text), "none");
    assert_string_equal(axes_print(AXES_DATA, text), "cp+fsdp+dp");
    const char *const refused[] = {"", "none", "dp+", "+dp", "dp+dp", "dpp", "tp,dp", "d", "TP"};
    for (size_t i = 0; i < ARRAY_LENGTH(refused); i++) {
        axis_set parsed = 77;
        assert_false(axes_parse(refused[i], strlen(refused[i]), &parsed));
        assert_int_equal(parsed, 77);
    }
    axis_set parsed;
    assert_true(axes_parse("tp+dpx", 5, &parsed));
    assert_int_equal(parsed, AXES(AXIS_TP) | AXES(AXIS_DP));
}

static void a_mesh_prints_what_is_split(void **state) {
    (void)state;
    const char *const expected[] = {"one rank", "tp 2", "tp 3 x kv 2", "pp 2 x dp 2 x fsdp 3 x cp 2 x tp 2"};
    for (size_t m = 0; m < ARRAY_LENGTH(expected); m++) {
        char *text = mesh_print(&meshes[m]);
        assert_string_equal(text, expected[m]);
        free(text);
    }
}

static void ranks_are_named_by_number_or_all(void **state) {
    (void)state;
    static const struct {
        const char *text, *named; // NULL: refused
    } CASES[] = {{"all", "1111"}, {"0", "1000"}, {"3", "0001"},  {"2,0", "1010"},
                 {"1,1", "0100"}, {"4", NULL},   {"-1", NULL},   {"", NULL},
                 {"1,", NULL},    {",1", NULL},  {"1 ,2", NULL}, {"all,1", NULL},
                 {"0x1", NULL},   {"one", NULL}, {"1, 2", NULL}, {"99999999999999999999", NULL}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        bool *named = ranks_parse(CASES[i].text, 4);
        if (!named != !CASES[i].named)
            fail_msg("\"%s\" is %s", CASES[i].text, named ? "not refused" : "refused");
        for (int rank = 0; named && rank < 4; rank++)
            assert_int_equal(named[rank], CASES[i].named[rank] == '1');
        free(named);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor_ranks_are_neighbours_then_data_then_stages),
        cmocka_unit_test(groups_partition_the_ranks),
        cmocka_unit_test(the_group_of_all_axes_counts_like_the_ranks),
        cmocka_unit_test(axes_of_degree_one_are_absent),
        cmocka_unit_test(parts_of_sequences_are_neighbours),
        cmocka_unit_test(sets_of_axes_survive_printing),
        cmocka_unit_test(a_mesh_prints_what_is_split),
        cmocka_unit_test(ranks_are_named_by_number_or_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

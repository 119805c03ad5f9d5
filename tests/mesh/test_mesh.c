// The arrangement of ranks: coordinates, groups, printing.
#include "mesh/mesh.h"
#include "support/checkpoint.h"

// The first factors of all axes.
enum {
    AXES_UNCUT = AXES(AXIS_KV) | AXES(AXIS_TP) | AXES(AXIS_CP) | AXES(AXIS_FSDP) | AXES(AXIS_DP) | AXES(AXIS_PP) |
                 AXES(AXIS_ISLAND)
};

static struct mesh mesh_of(int kv, int tp, int cp, int fsdp, int dp, int pp) {
    struct mesh mesh = mesh_single();
    mesh.degree[AXIS_KV] = kv;
    mesh.degree[AXIS_TP] = tp;
    mesh.degree[AXIS_CP] = cp;
    mesh.degree[AXIS_FSDP] = fsdp;
    mesh.degree[AXIS_DP] = dp;
    mesh.degree[AXIS_PP] = pp;
    return mesh;
}

static void cut(struct mesh *mesh, axis_set group, int ranks) {
    trireme_error error = {0};
    assert_ok(mesh_cut(mesh, group, ranks, &error), &error);
}

static struct mesh meshes[8];

static int make_meshes(void **state) {
    (void)state;
    meshes[0] = mesh_single();
    meshes[1] = mesh_of(1, 2, 1, 1, 1, 1);
    meshes[2] = mesh_of(2, 3, 1, 1, 1, 1);
    meshes[3] = mesh_of(1, 2, 2, 3, 2, 2);
    meshes[3].degree[AXIS_ISLAND] = 2;
    meshes[4] = mesh_of(2, 2, 2, 2, 2, 2);
    meshes[5] = mesh_of(1, 8, 1, 1, 4, 3);
    meshes[6] = mesh_of(1, 1, 5, 1, 1, 7);
    meshes[7] = mesh_of(1, 2, 1, 6, 1, 2);
    cut(&meshes[7], AXES_FSDP, 3);
    return 0;
}

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
            if (group & ~AXES_UNCUT & ~mesh_present(mesh, AXES_ALL))
                continue;
            int size = mesh_group_size(mesh, group);
            for (int rank = 0; rank < mesh_ranks(mesh); rank++) {
                int index = mesh_index(mesh, rank, group), members[192];
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
    assert_int_equal(mesh_present(&meshes[3], AXES_ALL), AXES_UNCUT & ~AXES_KV);
    assert_int_equal(mesh_present(&meshes[3], AXES_TENSOR), AXES(AXIS_TP));
}

// Islands are outermost, and have other sequences of the batch, but nothing that gradients are summed over.
static void islands_are_whole_meshes_one_after_the_other(void **state) {
    (void)state;
    assert_int_equal(AXES_ISLAND, AXES(AXIS_ISLAND));
    assert_int_equal(AXES_BATCH, AXES_FSDP | AXES_DP | AXES_ISLAND);
    assert_int_equal(AXES_DATA & AXES_ISLAND, AXES_NONE);
    struct mesh mesh = mesh_single();
    mesh.degree[AXIS_TP] = mesh.degree[AXIS_FSDP] = mesh.degree[AXIS_PP] = mesh.degree[AXIS_ISLAND] = 2;
    for (int rank = 0; rank < 16; rank++) {
        assert_int_equal(mesh_coordinate(&mesh, rank, AXIS_ISLAND), rank / 8);
        assert_int_equal(mesh_index(&mesh, rank, AXES_BATCH), rank / 2 % 2 + 2 * (rank / 8));
    }
}

// Ranks with parts of the same sequences are nearer than those with other sequences.
static void parts_of_sequences_are_neighbours(void **state) {
    (void)state;
    assert_int_equal(AXES_PARTS, AXES_CP);
    assert_int_equal(AXES_SHARD, AXES_CP | AXES_FSDP);
    assert_int_equal(AXES_SEQUENCES, AXES_FSDP | AXES_DP);
    struct mesh mesh = mesh_single();
    mesh.degree[AXIS_TP] = mesh.degree[AXIS_FSDP] = 2;
    mesh.degree[AXIS_CP] = 3;
    assert_int_equal(mesh_index(&mesh, 8, AXES_PARTS), 1);
    assert_int_equal(mesh_index(&mesh, 8, AXES_SHARD), 4);
}

// ---- cuts

static void assert_cut_refused(struct mesh mesh, axis_set group, int ranks, const char *expected) {
    trireme_error error = {0};
    const struct mesh before = mesh;
    assert_int_equal(mesh_cut(&mesh, group, ranks, &error), TRIREME_ERROR_USAGE);
    assert_string_equal(error.message, expected);
    assert_memory_equal(&mesh, &before, sizeof mesh);
}

// Ranks of a node: the inner factor of fsdp. No rank moves.
static void an_axis_is_cut_into_factors(void **state) {
    (void)state;
    const struct mesh whole = mesh_of(1, 2, 3, 12, 2, 2);
    struct mesh mesh = whole;
    cut(&mesh, AXES_FSDP, 6);
    cut(&mesh, AXES_FSDP, 6); // is there
    assert_int_equal(mesh.degree[AXIS_FSDP], 6);
    assert_int_equal(mesh.degree[AXIS_FSDP_1], 2);
    cut(&mesh, AXES_FSDP, 2); // what was outside moves outwards
    assert_int_equal(mesh.degree[AXIS_FSDP], 2);
    assert_int_equal(mesh.degree[AXIS_FSDP_1], 3);
    assert_int_equal(mesh.degree[AXIS_FSDP_2], 2);
    assert_int_equal(mesh_between(&mesh, AXES_FSDP, 1, 2), AXES(AXIS_FSDP));
    assert_int_equal(mesh_between(&mesh, AXES_FSDP, 2, 6), AXES(AXIS_FSDP_1));
    assert_int_equal(mesh_between(&mesh, AXES_FSDP, 1, 12), AXES(AXIS_FSDP) | AXES(AXIS_FSDP_1) | AXES(AXIS_FSDP_2));
    cut(&mesh, AXES_CP | AXES_FSDP, 3);
    for (int rank = 0; rank < mesh_ranks(&whole); rank++) {
        const axis_set node = mesh_between(&mesh, AXES_FSDP, 1, 6);
        assert_int_equal(mesh_index(&mesh, rank, AXES_FSDP), mesh_coordinate(&whole, rank, AXIS_FSDP));
        assert_int_equal(mesh_index(&mesh, rank, node), mesh_coordinate(&whole, rank, AXIS_FSDP) % 6);
        assert_int_equal(mesh_index(&mesh, rank, AXES_DATA), mesh_index(&whole, rank, AXES_DATA));
        assert_int_equal(mesh_index(&mesh, rank, AXES_PP), mesh_coordinate(&whole, rank, AXIS_PP));
    }
}

// Experts: consecutive ranks of a stage as tensor parts of experts, other experts, and their replicas, whatever the
// dense layers' axes are; checked against arithmetic on the numbers of ranks.
static void ranks_have_a_second_factorisation(void **state) {
    (void)state;
    static const struct {
        int dense[6], etp, ep; // kv, tp, cp, fsdp, dp, pp
    } FOLDS[] = {
        {{1, 2, 1, 2, 1, 1}, 1, 4},  {{1, 2, 1, 4, 1, 2}, 1, 2},  {{1, 4, 2, 4, 1, 2}, 2, 8},
        {{1, 4, 2, 4, 1, 1}, 1, 32}, {{4, 2, 1, 8, 2, 1}, 2, 16}, {{1, 8, 1, 4, 1, 1}, 2, 2},
        {{1, 2, 8, 1, 1, 1}, 1, 8},  {{1, 1, 1, 24, 2, 1}, 2, 6}, {{1, 2, 3, 4, 5, 2}, 2, 12},
        {{1, 1, 1, 1, 16, 2}, 2, 4}, {{1, 2, 2, 2, 2, 3}, 16, 1}, {{1, 2, 2, 2, 2, 3}, 1, 1},
    };
    const axis_set stage = AXES_ALL & ~AXES_STAGE;
    for (size_t f = 0; f < ARRAY_LENGTH(FOLDS); f++) {
        const int *d = FOLDS[f].dense, etp = FOLDS[f].etp, experts = etp * FOLDS[f].ep;
        const struct mesh dense = mesh_of(d[0], d[1], d[2], d[3], d[4], d[5]);
        struct mesh mesh = dense;
        cut(&mesh, stage, etp);
        cut(&mesh, stage, experts);
        const int size = mesh_group_size(&mesh, stage);
        const axis_set of[] = {mesh_between(&mesh, stage, 1, etp), mesh_between(&mesh, stage, etp, experts),
                               mesh_between(&mesh, stage, experts, size)};
        assert_int_equal(of[0] | of[1] | of[2], mesh_present(&mesh, stage));
        for (int rank = 0; rank < mesh_ranks(&mesh); rank++) {
            assert_int_equal(mesh_index(&mesh, rank, of[0]), rank % etp);
            assert_int_equal(mesh_index(&mesh, rank, of[1]), rank / etp % FOLDS[f].ep);
            assert_int_equal(mesh_index(&mesh, rank, of[2]), rank % size / experts);
            for (int a = 0; a < AXIS_COUNT; a++)
                if (axis_factors((enum axis)a))
                    assert_int_equal(mesh_index(&mesh, rank, axis_factors((enum axis)a)),
                                     mesh_coordinate(&dense, rank, (enum axis)a));
        }
    }
}

static void cuts_that_no_factors_make_are_refused(void **state) {
    (void)state;
    const axis_set stage = AXES_ALL & ~AXES_STAGE;
    assert_cut_refused(
        mesh_of(1, 2, 3, 1, 1, 2), stage, 3,
        "but 3 ranks are no product of factors of pp 2 x cp 3 x tp 2, from the innermost on: 2 and 6 are");
    assert_cut_refused(mesh_of(1, 4, 1, 6, 1, 1), stage, 16,
                       "but 16 ranks are no product of factors of fsdp 6 x tp 4, from the innermost on: 12 and 24 are");
    assert_cut_refused(mesh_of(1, 4, 1, 6, 1, 1), AXES_FSDP, 4,
                       "but 4 ranks are no product of factors of fsdp 6 x tp 4, from the innermost on: 3 and 6 are");
    assert_cut_refused(mesh_of(1, 4, 1, 6, 1, 1), stage, 48,
                       "but fsdp 6 x tp 4 has no group of 48 ranks: 24 is the most");
    assert_cut_refused(mesh_of(1, 4, 1, 6, 1, 4), AXES_PP, 2,
                       "but 2 ranks cut pp of pp 4 x fsdp 6 x tp 4 once more than it has factors");
    struct mesh mesh = mesh_of(1, 16, 1, 1, 1, 1);
    cut(&mesh, AXES_TP, 8);
    cut(&mesh, AXES_TP, 2);
    assert_cut_refused(mesh, AXES_TP, 4, "but 4 ranks cut tp.1 of tp 16 (2 x 4 x 2) once more than it has factors");
}

static void sets_of_axes_survive_printing(void **state) {
    (void)state;
    char text[AXES_TEXT];
    for (axis_set set = 1; set <= AXES_ALL; set++) {
        axis_set parsed = AXES_NONE;
        if (set & ~AXES_UNCUT & ~AXES_FSDP)
            continue;
        assert_true(strlen(axes_print(set, text)) < AXES_TEXT);
        assert_true(axes_parse(text, strlen(text), &parsed));
        assert_int_equal(parsed, set);
    }
    assert_string_equal(axes_print(AXES_NONE, text), "none");
    assert_string_equal(axes_print(AXES_DATA & AXES_UNCUT, text), "cp+fsdp+dp");
    assert_string_equal(axes_print(AXES_FSDP, text), "fsdp+fsdp.1+fsdp.2+fsdp.3");
    assert_true(strlen(axes_print(AXES_ALL, text)) + 8 < AXES_TEXT);
    const char *const refused[] = {"",    "none",  "dp+", "fsdp.0", "fsdp.4", "pp.1", "fsdp.",
                                   "+dp", "dp+dp", "dpp", "tp,dp",  "d",      "TP"};
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
    const char *const expected[] = {[0] = "one rank",
                                    [1] = "tp 2",
                                    [2] = "tp 3 x kv 2",
                                    [3] = "island 2 x pp 2 x dp 2 x fsdp 3 x cp 2 x tp 2",
                                    [7] = "pp 2 x fsdp 6 (2 x 3) x tp 2"};
    for (size_t m = 0; m < ARRAY_LENGTH(expected); m++) {
        if (!expected[m])
            continue;
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
        cmocka_unit_test(an_axis_is_cut_into_factors),
        cmocka_unit_test(ranks_have_a_second_factorisation),
        cmocka_unit_test(cuts_that_no_factors_make_are_refused),
        cmocka_unit_test(islands_are_whole_meshes_one_after_the_other),
        cmocka_unit_test(sets_of_axes_survive_printing),
        cmocka_unit_test(a_mesh_prints_what_is_split),
        cmocka_unit_test(ranks_are_named_by_number_or_all),
    };
    return cmocka_run_group_tests(tests, make_meshes, NULL);
}

// How ranks are shown: coordinates, groups, neighbours; folded where there are many; as a picture.
#include "base/json.h"
#include "mesh/mesh_view.h"
#include "support/checkpoint.h"

static struct mesh_view view_of(int tp, int fsdp, int pp) {
    struct mesh_view v = {.mesh = mesh_single()};
    v.mesh.degree[AXIS_TP] = tp;
    v.mesh.degree[AXIS_FSDP] = fsdp;
    v.mesh.degree[AXIS_PP] = pp;
    v.stage = mem_alloc((size_t)pp * sizeof *v.stage);
    for (int s = 0; s < pp; s++)
        v.stage[s] = (struct mesh_stage){mem_printf("%d", s), s > 0, s + 1 < pp};
    return v;
}

static void cut(struct mesh_view *v, axis_set group, int ranks) {
    trireme_error error = {0};
    assert_ok(mesh_cut(&v->mesh, group, ranks, &error), &error);
}

static void assert_has(const struct text *text, const char *words) {
    if (!strstr(text->text, words))
        fail_msg("\"%s\" is not in\n%s", words, text->text);
}

static void ranks_are_printed_as_ranges(void **state) {
    (void)state;
    static const struct {
        int rank[8], count, most;
        const char *text;
    } CASES[] = {{{5}, 1, 4, "5"},
                 {{0, 1}, 2, 4, "0,1"},
                 {{0, 1, 2, 3}, 4, 4, "0-3"},
                 {{0, 2, 4, 6}, 4, 4, "0,2,4,6"},
                 {{0, 1, 2, 8, 9, 10}, 6, 4, "0-2,8-10"},
                 {{0, 8, 16, 24, 32}, 5, 4, "0,8,...,32"},
                 {{0, 8, 16, 24, 32}, 5, 0, "0,8,16,24,32"}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct text out = {0};
        ranks_print(CASES[i].rank, CASES[i].count, CASES[i].most, &out);
        assert_string_equal(out.text, CASES[i].text);
        text_release(&out);
    }
}

static void each_rank_has_a_line(void **state) {
    (void)state;
    struct mesh_view v = view_of(2, 2, 2);
    struct text out = {0};
    mesh_view_print(&v, MESH_ALL_RANKS, &out);
    assert_has(&out, " rank tp fsdp pp before  after  layers\n");
    assert_has(&out, "\n    5  1    0  1      1      -  1\n");
    assert_has(&out, "\n    2  0    1  0      -      6  0\n");
    assert_has(&out, "\ntp: 4 groups of 2 ranks, which have parts of each layer: 0,1 2,3 4,5 6,7\n");
    assert_has(&out, "\nfsdp: 4 groups of 2 ranks, which have other sequences: 0,2 1,3 4,6 5,7\n");
    text_release(&out);
    mesh_view_release(&v);
}

// A product is a group, and so is each of its factors; what programs and parameters name comes once.
static void groups_are_axes_factors_and_products(void **state) {
    (void)state;
    struct mesh_view v = view_of(2, 8, 1);
    cut(&v, AXES_FSDP, 4);
    VEC_PUSH(&v.uses, ((struct mesh_use){AXES_TP | AXES_FSDP, "train", "all_reduce", 3, 4096}));
    VEC_PUSH(&v.uses, ((struct mesh_use){AXES(AXIS_FSDP), "train", "all_gather", 1, 8}));
    VEC_PUSH(&v.units, ((struct mesh_units){"embed", 2, AXES_TP, AXES(AXIS_FSDP_1), AXES_FSDP}));
    axis_set group[MESH_GROUPS_MAX];
    const axis_set expected[] = {AXES(AXIS_TP), AXES(AXIS_FSDP) | AXES(AXIS_FSDP_1), AXES(AXIS_FSDP), AXES(AXIS_FSDP_1),
                                 AXES(AXIS_TP) | AXES(AXIS_FSDP) | AXES(AXIS_FSDP_1)};
    assert_int_equal(mesh_view_groups(&v, group), ARRAY_LENGTH(expected));
    for (size_t i = 0; i < ARRAY_LENGTH(expected); i++)
        assert_int_equal(group[i], expected[i]);
    struct text out = {0};
    mesh_view_print(&v, MESH_ALL_RANKS, &out);
    assert_has(&out, "\nfsdp: 4 groups of 4 ranks, which have other sequences: 0,2,4,6 1,3,5,7 8,10,12,14 9,11,13,15\n"
                     "    train: all_gather 1 time, 8 B\n");
    assert_has(&out, "\nfsdp.1: 8 groups of 2 ranks, which have other sequences: 0,8 1,9");
    assert_has(&out, "    train: all_reduce 3 times, 4.1 kB\n");
    assert_has(&out, "\nembed and 2 like it: tp; fsdp.1; fsdp+fsdp.1\n");
    text_release(&out);
    mesh_view_release(&v);
}

static void many_ranks_share_lines(void **state) {
    (void)state;
    struct mesh_view v = view_of(8, 64, 8);
    struct text out = {0};
    mesh_view_print(&v, MESH_ALL_RANKS, &out);
    int lines = 0;
    for (const char *c = out.text; *c; c++)
        lines += *c == '\n';
    assert_true(lines < 80);
    assert_has(&out, "\n     0-511 0-7  0-63   0         -  512-1023  0\n");
    assert_has(&out, " 0-7 8-15 16-23 ... 4088-4095\n");
    text_release(&out);
    // One rank has its groups whole, and who is beside it in each.
    mesh_view_print(&v, 513, &out);
    assert_has(&out, "rank 513 of 4096 ranks (pp 8 x fsdp 64 x tp 8): tp 1, fsdp 0, pp 1, layers 1\n");
    assert_has(&out, "before it in the pipeline: rank 1\nafter it in the pipeline: rank 1025\n");
    assert_has(&out, "tp: number 1 of 8, between 512 and 514: 512-519\n");
    assert_has(&out, "pp: number 1 of 8, between 1 and 1025: 1,513,1025,1537,2049,2561,3073,3585\n");
    text_release(&out);
    mesh_view_release(&v);
}

static void json_has_every_rank(void **state) {
    (void)state;
    struct mesh_view v = view_of(2, 64, 2);
    v.node = mem_alloc(256 * sizeof *v.node);
    v.device = mem_alloc(256 * sizeof *v.device);
    for (int r = 0; r < 256; r++) {
        v.device[r] = r;
        v.node[r] = r / 8;
    }
    struct text out = {0};
    mesh_view_print_json(&v, MESH_ALL_RANKS, &out);
    json_t *json;
    trireme_error error = {0};
    assert_ok(json_parse(out.text, out.length, "view", &json, &error), &error);
    const json_t *ranks = json_object_get(json, "ranks"), *rank = json_array_get(ranks, 131);
    assert_int_equal(json_array_size(ranks), 256);
    assert_int_equal(json_integer_value(json_object_get(rank, "node")), 16);
    assert_int_equal(json_integer_value(json_object_get(rank, "before")), 3);
    assert_null(json_object_get(rank, "after"));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(rank, "coordinates"), "fsdp")), 1);
    const json_t *tensor = json_array_get(json_object_get(json, "groups"), 0);
    assert_int_equal(json_array_size(json_object_get(tensor, "members")), 128);
    assert_int_equal(json_integer_value(json_array_get(json_array_get(json_object_get(tensor, "members"), 65), 1)),
                     131);
    json_decref(json);
    text_release(&out);
    mesh_view_release(&v);
}

static int count_of(const char *text, const char *words) {
    int count = 0;
    for (const char *at = strstr(text, words); at; at = strstr(at + 1, words))
        count++;
    return count;
}

// A cell for each rank in each panel; with many ranks so few cells that their numbers can be read, the last rank's
// among them.
static void a_picture_has_a_panel_for_each_group(void **state) {
    (void)state;
    struct mesh_view v = view_of(2, 2, 2);
    struct text out = {0};
    mesh_view_draw(&v, MESH_ALL_RANKS, "a < b", &out);
    assert_has(&out, "a &lt; b");
    assert_int_equal(count_of(out.text, ">7</text>"), 3);
    assert_int_equal(count_of(out.text, "stage 1"), 3);
    assert_has(&out, "pp: 4 groups of 2");
    assert_null(strstr(out.text, ">...</text>"));
    // Ranks of a group have one colour: the two tensor ranks 6 and 7, and no other of the panel.
    const char *six = strstr(out.text, ">6</text>"), *seven = strstr(out.text, ">7</text>");
    char colours[2][16] = {"", ""};
    const char *const cells[] = {six, seven};
    for (int i = 0; i < 2; i++) {
        const char *fill = cells[i];
        while (strncmp(fill, "fill=\"#", 7) != 0 || strncmp(fill, "fill=\"#fff\"", 11) == 0)
            fill--;
        snprintf(colours[i], sizeof colours[i], "%.6s", fill + 7);
    }
    assert_string_equal(colours[0], colours[1]);
    text_release(&out);
    mesh_view_release(&v);
    v = view_of(8, 16, 4);
    mesh_view_draw(&v, MESH_ALL_RANKS, "512", &out);
    assert_int_equal(count_of(out.text, ">511</text>"), 3);
    assert_has(&out, ">...</text>");
    assert_true(count_of(out.text, "text-anchor=\"middle\"") <= 3 * 256);
    text_release(&out);
    mesh_view_release(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_printed_as_ranges),
        cmocka_unit_test(each_rank_has_a_line),
        cmocka_unit_test(groups_are_axes_factors_and_products),
        cmocka_unit_test(many_ranks_share_lines),
        cmocka_unit_test(json_has_every_rank),
        cmocka_unit_test(a_picture_has_a_panel_for_each_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

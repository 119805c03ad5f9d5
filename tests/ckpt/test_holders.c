// Which ranks have what: of thousands of ranks and a model of many layers, in little memory, and each element once.
#include "support/models.h"

#include "ckpt/holders.h"
#include "support/checkpoint.h"

enum { TENSOR = 8, RANKS = 4096, KINDS = 3 };

#define LLAMA                                                                                              \
    "{\"model_type\":\"llama\",\"num_hidden_layers\":126,\"hidden_size\":64,\"intermediate_size\":160,"    \
    "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"vocab_size\":256,\"max_position_embeddings\":" \
    "64,\"tie_word_embeddings\":false}"

struct wide {
    struct model_config config;
    struct parameter_table table, local[TENSOR];
    struct mesh mesh;
    VEC(struct holding) all;
};

// A rank has of each parameter what lies in its part of the parameter's unit, which is cut into equal ones; of moments
// so; of parameters too, or all.
static void wide_hold(struct wide *w, int rank, bool whole_parameters) {
    const int tensor = mesh_coordinate(&w->mesh, rank, AXIS_TP), shards = w->mesh.degree[AXIS_FSDP],
              shard = mesh_coordinate(&w->mesh, rank, AXIS_FSDP);
    const struct parameter_table *local = &w->local[tensor];
    for (size_t i = 0, next; i < local->parameters.count; i = next) {
        int64_t unit = 0, at = 0;
        for (next = i;
             next < local->parameters.count && local->parameters.item[next].unit == local->parameters.item[i].unit;
             next++)
            unit += parameter_count(&local->parameters.item[next]);
        for (size_t k = i; k < next; k++) {
            const struct parameter *p = &local->parameters.item[k];
            const int64_t count = parameter_count(p);
            for (int kind = 0; kind < KINDS; kind++) {
                const bool whole = kind == 0 && whole_parameters;
                const int64_t begin = whole ? 0 : MAX(unit * shard / shards - at, 0),
                              end = whole ? count : MIN(unit * (shard + 1) / shards - at, count);
                const axis_set same =
                    AXES(AXIS_DP) | (p->split == CLASS_WHOLE ? AXES(AXIS_TP) : 0) | (whole ? AXES(AXIS_FSDP) : 0);
                struct holding h = {.group = kind,
                                    .rank = rank,
                                    .number = p->whole,
                                    .same = mesh_present(&w->mesh, same),
                                    .held = {begin, end},
                                    .columns = p->dim[1],
                                    .regions = p->regions};
                memcpy(h.region, p->region, sizeof h.region);
                if (begin < end)
                    VEC_PUSH(&w->all, h);
            }
            at += count;
        }
    }
}

static void wide_create(struct wide *w, int replicas, bool whole_parameters) {
    struct model_split split;
    trireme_error error = {0};
    *w = (struct wide){.mesh = mesh_single()};
    small_config(&w->config, LLAMA);
    parameter_table_create(&w->table, &w->config);
    w->mesh.degree[AXIS_TP] = TENSOR;
    w->mesh.degree[AXIS_FSDP] = RANKS / TENSOR / replicas;
    w->mesh.degree[AXIS_DP] = replicas;
    assert_ok(model_split_create(&split, &w->config, TENSOR, false, &error), &error);
    for (int t = 0; t < TENSOR; t++)
        parameter_table_split(&w->local[t], &w->table, &w->config, &split, t, t, NULL, false, NULL);
    for (int rank = 0; rank < RANKS; rank++)
        wide_hold(w, rank, whole_parameters);
}

static void wide_release(struct wide *w) {
    for (int t = 0; t < TENSOR; t++)
        parameter_table_release(&w->local[t]);
    parameter_table_release(&w->table);
    VEC_RELEASE(&w->all);
}

// Each element of a parameter is in one part, and each part's ranks are those that have it.
static void assert_complete(const struct wide *w, const struct holders *h, int group, size_t number) {
    const struct parameter *p = &w->table.parameters.item[number];
    const struct parameter_window window = {0, p->dim[0], 0, p->dim[1]};
    char *times = mem_alloc((size_t)parameter_count(p));
    size_t count;
    const struct holder_part *part = holders_of(h, group, number, &count);
    for (size_t i = 0; i < count; i++) {
        struct parameter local;
        struct parameter_runs runs = holders_runs(h, &part[i], &window, &local);
        for (struct parameter_run run; parameter_next(&runs, &run);)
            for (int64_t k = 0; k < run.count; k++)
                times[run.window + k]++;
    }
    for (int64_t k = 0; k < parameter_rows(p) * p->dim[1]; k++)
        assert_int_equal(times[k], 1);
    free(times);
}

static bool is_there(const struct holders *h, const struct holding *holding) {
    size_t count;
    const struct holder_part *part = holders_of(h, holding->group, (size_t)holding->number, &count);
    const size_t size = (size_t)mesh_group_size(&h->mesh, holding->same),
                 turn = (size_t)mesh_index(&h->mesh, holding->rank, holding->same);
    for (size_t i = 0; i < count; i++)
        if (part[i].held.begin == holding->held.begin && part[i].held.end == holding->held.end &&
            holders_rank(h, &part[i], turn) == holding->rank && holders_rank(h, &part[i], turn + size) == holding->rank)
            return true;
    return false;
}

static void thousands_of_ranks(void **state) {
    enum { CHECKED = 997, MOST_BYTES = 16 << 20 };
    static const struct {
        int replicas;
        bool whole_parameters;
    } MESHES[] = {{1, false}, {16, true}, {RANKS / TENSOR, true}};
    (void)state;
    for (size_t k = 0; k < ARRAY_LENGTH(MESHES); k++) {
        struct wide w;
        struct holders h;
        wide_create(&w, MESHES[k].replicas, MESHES[k].whole_parameters);
        holders_create(&h, &w.mesh, KINDS, w.table.parameters.count, w.all.item, w.all.count);
        print_message("shards have %d replicas: %zu parts of ranks, as told %.1f MB; kept in %.1f MB, %zu lists\n",
                      MESHES[k].replicas, w.all.count, 1e-6 * (double)(w.all.count * sizeof *w.all.item),
                      1e-6 * (double)holders_bytes(&h), h.list.count);
        assert_int_equal(h.list.count, MESHES[k].whole_parameters && w.mesh.degree[AXIS_FSDP] > 1 ? 2 : 1);
        assert_true(holders_bytes(&h) < MOST_BYTES);
        for (size_t number = 0; number < w.table.parameters.count; number += 10)
            for (int group = 0; group < KINDS; group++)
                assert_complete(&w, &h, group, number);
        for (size_t i = 0; i < w.all.count; i += CHECKED)
            assert_true(is_there(&h, &w.all.item[i]));
        holders_release(&h);
        wide_release(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(thousands_of_ranks)};
    return cmocka_run_group_tests_name("holders", tests, NULL, NULL);
}

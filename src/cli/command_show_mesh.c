// trireme show mesh CONFIG [cluster=CLUSTER] [svg=FILE]: how ranks are arranged.
#include "cli/command_show.h"

#include "compile/stages.h"
#include "measure/synthetic.h"
#include "mesh/mesh_view.h"
#include "sim/exchanges.h"
#include "sim/topology.h"

static const struct command_key MESH_KEYS[SHOW_MESH_KEYS] = {
    [SHOW_MESH_CLUSTER] = {"cluster", COMMAND_KEY_TEXT, "the name of a cluster, or the path of one", 0, 0, ""},
    [SHOW_MESH_DEVICES] = {"devices", COMMAND_KEY_INTEGER, "devices of the cluster", 1, 1048576, DEVICES_SYNONYMS},
    [SHOW_MESH_SVG] = {"svg", COMMAND_KEY_OUTPUT, "the path of a picture to be written", 0, 0, ""},
};

// The layers of a stage: of each of its chunks in turn.
static char *layers_of(const struct parallel *plan, int64_t layers, int stage) {
    if (!plan->schedule)
        return mem_printf("0-%lld", (long long)layers - 1);
    struct text words = {0};
    for (int c = 0; c < plan->schedule->chunks; c++) {
        const int part = plan->schedule->virtual_stage[stage * plan->schedule->chunks + c];
        const int first = plan->first_layer[part], end = plan->first_layer[part + 1];
        if (first == end)
            continue;
        text_add(&words, "%s%d", words.length ? ", " : "", first);
        if (end - first > 1)
            text_add(&words, "-%d", end - 1);
    }
    return words.length ? words.text : mem_strdup("none");
}

static void view_stages(struct mesh_view *v, const struct stages *s) {
    v->stage = mem_alloc((size_t)s->count * sizeof *v->stage);
    for (int i = 0; i < s->count; i++) {
        v->stage[i].layers = layers_of(&s->plan, s->model.num_hidden_layers, i);
        for (size_t k = 0; k < s->specs.count; k++) {
            const struct program *p = &s->stage[i].programs.item[k]->program;
            v->stage[i].before |= exchanges_reach(p, -1);
            v->stage[i].after |= exchanges_reach(p, 1);
        }
    }
}

static void view_uses(struct mesh_view *v, const struct stages *s) {
    for (size_t k = 0; k < s->specs.count; k++) {
        struct exchanges exchanges = {0};
        for (int i = 0; i < s->count; i++)
            exchanges_add(&exchanges, &s->stage[i].programs.item[k]->program);
        for (size_t i = 0; i < exchanges.count; i++) {
            const struct exchange *t = &exchanges.item[i];
            VEC_PUSH(&v->uses, ((struct mesh_use){t->group, program_kinds[s->specs.item[k].kind].name,
                                                  s->options.ops->op[t->op].name, t->count, t->bytes}));
        }
        VEC_RELEASE(&exchanges);
    }
}

static void view_unit(struct mesh_view *v, const char *name, const struct unit_axes *axes) {
    for (size_t i = 0; i < v->units.count; i++) {
        struct mesh_units *u = &v->units.item[i];
        if (u->split == axes->split && u->terms == axes->terms && u->shards == axes->shards) {
            u->others++;
            return;
        }
    }
    VEC_PUSH(&v->units, ((struct mesh_units){name, 0, axes->split, axes->terms, axes->shards}));
}

static void view_units(struct mesh_view *v, const struct stages *s) {
    for (int i = 0; i < s->count; i++) {
        const struct model_units *units = &s->stage[i].state.units;
        for (int u = 0; u < units->units; u++)
            view_unit(v, units->table->units.item[u], &units->axes[u]);
    }
}

// Where ranks are on a cluster, in the order in which they take its devices.
static trireme_status view_machines(struct mesh_view *v, const struct command_value *values, const struct op_table *ops,
                                    trireme_error *error) {
    const int ranks = mesh_ranks(&v->mesh);
    struct cluster cluster;
    int each;
    TRY(cluster_load(&cluster, ops, values[SHOW_MESH_CLUSTER].given, error));
    trireme_status status = TRIREME_OK;
    if (values[SHOW_MESH_DEVICES].given)
        status = cluster_resize(&cluster, (int)values[SHOW_MESH_DEVICES].integer, error);
    if (status == TRIREME_OK)
        status = topology_check(&cluster, &v->mesh, &each, error);
    if (status == TRIREME_OK) {
        v->node = mem_alloc((size_t)ranks * sizeof *v->node);
        v->device = mem_alloc((size_t)ranks * sizeof *v->device);
    }
    for (int r = 0; r < ranks && status == TRIREME_OK; r++) {
        v->device[r] = topology_device(&cluster, r, each);
        v->node[r] = cluster_node(&cluster, v->device[r]);
    }
    cluster_release(&cluster);
    return status;
}

static trireme_status view_print(const struct mesh_view *v, const struct command_value *values, int rank, bool json,
                                 trireme_error *error) {
    struct text out = {0}, svg = {0};
    trireme_status status = TRIREME_OK;
    if (values[SHOW_MESH_SVG].given) {
        char *mesh = mesh_print(&v->mesh);
        mesh_view_draw(v, rank, mesh, &svg);
        status = file_write_atomic(values[SHOW_MESH_SVG].given, svg.text, svg.length, error);
        free(mesh);
    }
    (json ? mesh_view_print_json : mesh_view_print)(v, rank, &out);
    if (status == TRIREME_OK)
        status = print_text(&out, error);
    text_release(&out);
    text_release(&svg);
    return status;
}

static trireme_status show_mesh(const struct config *config, const struct command_value *values, bool json,
                                trireme_error *error) {
    struct model_config model;
    struct stages stages;
    TRY(synthetic_model(&model, config, error));
    TRY(stages_create(&stages, config, &model, NULL, TRAIN_AND_EVALUATE, &(struct stages_options){.unproved = true},
                      error));
    struct mesh_view view = {.mesh = stages.plan.mesh};
    const int rank = show_is_given(config, "show.rank") ? (int)config->show.rank : MESH_ALL_RANKS;
    trireme_status status = rank == MESH_ALL_RANKS ? TRIREME_OK : show_check_rank(config, stages.ranks, error);
    if (status == TRIREME_OK && values[SHOW_MESH_CLUSTER].given)
        status = view_machines(&view, values, stages.options.ops, error);
    if (status == TRIREME_OK)
        status = stages_compile(&stages, EVERY_STAGE, error);
    if (status == TRIREME_OK) {
        view_stages(&view, &stages);
        view_uses(&view, &stages);
        view_units(&view, &stages);
        status = view_print(&view, values, rank, json, error);
    }
    mesh_view_release(&view);
    stages_release(&stages);
    return status;
}

static trireme_status show_mesh_of(const struct arguments *a, const struct command_value *values,
                                   const struct arguments *rest, trireme_error *error) {
    struct config config;
    TRY(arguments_expect(rest, 1, 2, error));
    TRY(command_keys_refuse_meant(rest, MESH_KEYS, SHOW_MESH_KEYS, error));
    if (values[SHOW_MESH_DEVICES].given && !values[SHOW_MESH_CLUSTER].given)
        FAIL(TRIREME_ERROR_USAGE, "devices= is a number of devices of cluster=CLUSTER, which is missing");
    TRY(command_keys_check_outputs(MESH_KEYS, SHOW_MESH_KEYS, values, error));
    TRY(arguments_config(rest, rest->operands.count > 1 ? rest->operands.item[1] : NULL, &config, error));
    trireme_status status = show_mesh(&config, values, a->json, error);
    config_release(&config);
    return status;
}

trireme_status command_show_mesh(const struct arguments *a, trireme_error *error) {
    struct command_value values[SHOW_MESH_KEYS] = {0};
    struct arguments rest;
    TRY(command_keys_read(a, MESH_KEYS, SHOW_MESH_KEYS, values, &rest, error));
    trireme_status status = show_mesh_of(a, values, &rest, error);
    arguments_release(&rest);
    return status;
}

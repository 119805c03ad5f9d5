#include "cli/command_calibrate.h"

#include "cli/keys.h"
#include "launch/processes.h"
#include "measure/calibrate.h"
#include "sim/fit.h"

enum calibrate_key {
    CALIBRATE_OUT,
    CALIBRATE_STEPS,
    CALIBRATE_MODELS,
    CALIBRATE_FROM,
    CALIBRATE_CLUSTER,
    CALIBRATE_KEYS
};
enum { IMPORT_BYTES_MAX = 1 << 26 };

static const struct command_key KEYS[CALIBRATE_KEYS] = {
    [CALIBRATE_OUT] = {"out", COMMAND_KEY_OUTPUT, "the path of a cluster file to be written", 0, 0, "save output"},
    [CALIBRATE_FROM] = {"from", COMMAND_KEY_TEXTS, "files of another machine's figures", 0, 0, ""},
    [CALIBRATE_CLUSTER] = {"cluster", COMMAND_KEY_TEXT, "the cluster that they are of, a name or a file", 0, 0, ""},
    [CALIBRATE_MODELS] = {"models", COMMAND_KEY_INTEGER, "models that are measured, the smallest one first", 1,
                          CALIBRATE_SHAPES, ""},
    [CALIBRATE_STEPS] = {"steps", COMMAND_KEY_INTEGER, "steps that are measured of each model", 1, 1000, ""},
};

static void command_say(const char *what, int done, int of) {
    progress_line("measuring %s, %d of %d", what, done + 1, of);
}

static trireme_status write_cluster(const struct cluster *cluster, const struct op_table *ops, const char *path,
                                    trireme_error *error) {
    struct text text = {0};
    cluster_print(cluster, ops, &text);
    trireme_status status = TRIREME_OK;
    if (path) {
        status = file_write_atomic(path, text.text, text.length, error);
        text_release(&text);
        text_add(&text, "%s is written: trireme simulate CONFIG.yaml cluster=%s\n", path, path);
    }
    if (status == TRIREME_OK)
        status = print_text(&text, error);
    text_release(&text);
    return status;
}

// Refuses a cluster whose file could not be read back.
static trireme_status check_readable(const struct cluster *cluster, const struct op_table *ops, trireme_error *error) {
    struct text text = {0};
    struct cluster again;
    cluster_print(cluster, ops, &text);
    trireme_status status = cluster_parse(&again, ops, "its cluster", text.text, text.length, error);
    if (status == TRIREME_OK)
        cluster_release(&again);
    text_release(&text);
    return status;
}

static trireme_status import_file(struct cluster *cluster, const struct op_table *ops, const char *path,
                                  trireme_error *error) {
    char *text;
    size_t length;
    TRY(file_read_named(path, IMPORT_BYTES_MAX, &text, &length, error));
    trireme_status status = fit_import(cluster, ops, path, text, length, error);
    free(text);
    TRY(status);
    status = check_readable(cluster, ops, error);
    return status == TRIREME_OK ? status
                                : error_prefix(error, status, "%s: its figures make no possible cluster", path);
}

// `paths` have commas between them.
static trireme_status import_files(struct cluster *cluster, const struct op_table *ops, const char *paths,
                                   trireme_error *error) {
    trireme_status status = TRIREME_OK;
    for (const char *at = paths; *at && status == TRIREME_OK;) {
        size_t length = strcspn(at, ",");
        char *path = mem_printf("%.*s", (int)length, at);
        status = import_file(cluster, ops, path, error);
        free(path);
        at += length + (at[length] == ',');
    }
    return status;
}

// A cluster with the figures of some files in place of its own.
static trireme_status calibrate_import(struct cluster *out, const struct op_table *ops,
                                       const struct command_value *values, trireme_error *error) {
    if (!values[CALIBRATE_CLUSTER].given)
        FAIL(TRIREME_ERROR_USAGE,
             "cluster is missing: the one to whose peaks, memory and nodes from= adds its figures");
    TRY(cluster_load(out, ops, values[CALIBRATE_CLUSTER].given, error));
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < values[CALIBRATE_FROM].all.count && status == TRIREME_OK; i++)
        status = import_files(out, ops, values[CALIBRATE_FROM].all.item[i], error);
    if (status != TRIREME_OK)
        cluster_release(out);
    return status;
}

// ---- under a launcher

struct links_work {
    struct cluster cluster;
    struct op_table *ops;
    const char *base;
    int ranks;
};

static trireme_status prepare_links(void *user, trireme_error *error) {
    struct links_work *w = user;
    return cluster_load(&w->cluster, w->ops, w->base, error);
}

static trireme_status command_measure_links(void *user, const struct member *member, trireme_error *error) {
    struct links_work *w = user;
    return calibrate_processes(&w->cluster, member, w->ranks, error);
}

static trireme_status calibrate_links(const struct launcher *launcher, struct op_table *ops,
                                      const struct command_value *values, trireme_error *error) {
    struct links_work w = {.ops = ops, .base = values[CALIBRATE_CLUSTER].given, .ranks = launcher->ranks};
    if (!w.base || values[CALIBRATE_FROM].given)
        return processes_refuse(launcher,
                                error_set(error, TRIREME_ERROR_USAGE,
                                          "as several processes it only measures their links: calibrate without %s "
                                          "first, and give the resulting file by cluster=",
                                          launcher->name),
                                error);
    struct config config;
    TRY(config_load(&config, NULL, NULL, 0, error));
    const struct processes_work work = {&w, prepare_links, NULL, command_measure_links};
    trireme_status status = processes_run(launcher, 300, &config, &work, error);
    if (status == TRIREME_OK && launcher->rank == 0)
        status = write_cluster(&w.cluster, ops, values[CALIBRATE_OUT].given, error);
    cluster_release(&w.cluster);
    config_release(&config);
    return status;
}

// Refuses models= and steps= where no models are measured; `why` says what is done instead.
static trireme_status check_counts(const struct command_value *values, const char *why, trireme_error *error) {
    static const int COUNTS[] = {CALIBRATE_MODELS, CALIBRATE_STEPS};
    for (size_t i = 0; i < ARRAY_LENGTH(COUNTS); i++)
        if (values[COUNTS[i]].given)
            FAIL(TRIREME_ERROR_USAGE, "%s=%.20s: %s measures no models", KEYS[COUNTS[i]].name, values[COUNTS[i]].given,
                 why);
    return TRIREME_OK;
}

static trireme_status calibrate_run(const struct command_value *values, trireme_error *error) {
    struct launcher launcher = launcher_find();
    trireme_status status = TRIREME_OK;
    if (launcher.ranks < 2 && values[CALIBRATE_OUT].given)
        TRY(check_output(KEYS[CALIBRATE_OUT].name, values[CALIBRATE_OUT].given, error));
    if (launcher.ranks > 1 || values[CALIBRATE_FROM].given)
        status = check_counts(values, launcher.ranks > 1 ? launcher.name : "from=", error);
    if (status != TRIREME_OK)
        return launcher.ranks > 1 ? processes_refuse(&launcher, status, error) : status;
    struct op_table *ops = op_table_create();
    if (launcher.ranks > 1) {
        status = calibrate_links(&launcher, ops, values, error);
        free(ops);
        return status;
    }
    struct calibrate_options options = {.steps = (int)values[CALIBRATE_STEPS].integer,
                                        .models = (int)values[CALIBRATE_MODELS].integer,
                                        .say = command_say};
    struct cluster cluster;
    if (values[CALIBRATE_FROM].given)
        status = calibrate_import(&cluster, ops, values, error);
    else if (values[CALIBRATE_CLUSTER].given)
        status = error_set(error, TRIREME_ERROR_USAGE,
                           "cluster=%.80s is for from=FILE; without that, this machine is measured",
                           values[CALIBRATE_CLUSTER].given);
    else
        status = calibrate(&cluster, ops, &options, error);
    progress_clear();
    if (status == TRIREME_OK) {
        status = write_cluster(&cluster, ops, values[CALIBRATE_OUT].given, error);
        if (status == TRIREME_OK && values[CALIBRATE_OUT].given && !values[CALIBRATE_FROM].given)
            fprintf(stderr, "%s\n", cluster.about);
        cluster_release(&cluster);
    }
    free(ops);
    return status;
}

trireme_status bench_calibrate(const struct arguments *a, trireme_error *error) {
    struct command_value values[CALIBRATE_KEYS] = {0};
    struct arguments rest;
    TRY(command_keys_read(a, KEYS, CALIBRATE_KEYS, values, &rest, error));
    trireme_status status = TRIREME_OK;
    if (rest.operands.count > 1)
        status = error_set(error, TRIREME_ERROR_USAGE,
                           "unexpected \"%.80s\"; usage: trireme bench calibrate [out=FILE]", rest.operands.item[1]);
    rest.operands.count = 0;
    if (status == TRIREME_OK && a->json)
        status = error_set(error, TRIREME_ERROR_USAGE, "a cluster's file is text: leave --json out");
    if (status == TRIREME_OK)
        status = command_keys_refuse_rest(&rest, KEYS, CALIBRATE_KEYS, "of bench calibrate", error);
    arguments_release(&rest);
    if (status != TRIREME_OK) {
        command_values_release(values, CALIBRATE_KEYS);
        return arguments_refuse(a, status, error);
    }
    status = calibrate_run(values, error);
    command_values_release(values, CALIBRATE_KEYS);
    return status;
}

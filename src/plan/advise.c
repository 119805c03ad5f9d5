#include "plan/plan.h"
#include "sim/shipped.h"

#include <inttypes.h>

enum { SEQ_LEN_LEAST = 128 };

static bool fits(const struct plan_request *r) {
    struct plan_request quick = *r;
    struct plan_result result;
    trireme_error why = {0};
    quick.only_fit = true;
    quick.progress = NULL;
    if (plan_search(&result, &quick, &why) != TRIREME_OK)
        return false;
    bool found = result.fits;
    plan_result_release(&result);
    return found;
}

// With one key of the configuration at another value.
static bool fits_with(const struct plan_request *r, const char *key, const char *value) {
    struct plan_request changed = *r;
    struct config config;
    trireme_error none;
    config_copy(&config, r->config);
    changed.config = &config;
    bool found = config_set(&config, key, value, "advice", &none) == TRIREME_OK && fits(&changed);
    config_release(&config);
    return found;
}

static void try_key(struct text *out, const struct plan_request *r, const char *key, const char *value) {
    if (fits_with(r, key, value))
        text_add(out, "fits with %s=%s\n", key, value);
}

static void try_lengths(struct text *out, const struct plan_request *r) {
    for (int64_t length = r->config->training.seq_len / 2; length >= SEQ_LEN_LEAST; length /= 2) {
        char value[32];
        snprintf(value, sizeof value, "%" PRId64, length);
        if (fits_with(r, "training.seq_len", value)) {
            text_add(out, "fits with training.seq_len=%s\n", value);
            return;
        }
    }
}

static void try_devices(struct text *out, const struct plan_request *r) {
    struct plan_request more = *r;
    for (int64_t ranks = 2 * (int64_t)r->ranks; ranks <= r->cluster->total_devices; ranks *= 2) {
        more.ranks = (int)ranks;
        if (fits(&more)) {
            text_add(out, "fits with devices=%d\n", more.ranks);
            return;
        }
    }
}

static int64_t memory_of(const struct cluster *c) {
    return c->devices.item[c->groups.item[0].device].memory;
}

static void try_clusters(struct text *out, const struct plan_request *r) {
    for (const struct shipped_cluster *s = shipped_clusters; s->name; s++) {
        struct plan_request other = *r;
        struct cluster cluster;
        trireme_error none;
        if (cluster_load(&cluster, r->ops, s->name, &none) != TRIREME_OK)
            continue;
        other.cluster = &cluster;
        bool computes = cluster.devices.item[cluster.groups.item[0].device].peak[options_dtype(r->config)] > 0;
        if (computes && memory_of(&cluster) > memory_of(r->cluster) && cluster.total_devices >= r->ranks &&
            fits(&other))
            text_add(out, "fits with cluster=%s\n", s->name);
        cluster_release(&cluster);
    }
}

void plan_advise(struct text *out, const struct plan_request *r) {
    const struct config *c = r->config;
    if (config_is_set(c, "training.micro_batch_size") && c->training.micro_batch_size > 1)
        try_key(out, r, "training.micro_batch_size", "1");
    if (config_is_set(c, "activation_checkpoint.mode") && c->activation_checkpoint.mode != CONFIG_RECOMPUTE_FULL)
        try_key(out, r, "activation_checkpoint.mode", "full");
    if (config_is_set(c, "parallelism.zero_stage") && c->parallelism.zero_stage < 3)
        try_key(out, r, "parallelism.zero_stage", "3");
    if (c->training.dtype != CONFIG_DTYPE_BF16 &&
        r->cluster->devices.item[r->cluster->groups.item[0].device].peak[DTYPE_BF16] > 0)
        try_key(out, r, "training.dtype", "bf16");
    try_lengths(out, r);
    try_devices(out, r);
    try_clusters(out, r);
}

#include "support/spread.h"

#include "base/rng.h"
#include "ckpt/model_files.h"
#include "ckpt/state_files.h"
#include "support/checkpoint.h"

void spread_create(struct spread *s, const char *json, enum dtype dtype) {
    static const int GROUPS[SPREAD_GROUPS] = {0, 1};
    *s = (struct spread){.dtype = {dtype, DTYPE_F32}};
    for (int g = 0; g < SPREAD_GROUPS; g++)
        s->values[g] = (struct save_values){.dtype = s->dtype[g], .terms = 1, .group = &GROUPS[g]};
    small_config(&s->config, json);
    parameter_table_create(&s->table, &s->config);
    for (int g = 0; g < SPREAD_GROUPS; g++) {
        s->whole[g] = mem_alloc(s->table.parameters.count * sizeof *s->whole[g]);
        for (size_t i = 0; i < s->table.parameters.count; i++) {
            const int64_t bytes = parameter_count(&s->table.parameters.item[i]) * dtype_size(s->dtype[g]);
            s->whole[g][i] = mem_alloc((size_t)bytes);
            for (int64_t k = 0; k < bytes; k++) // any bits
                s->whole[g][i][k] = (char)(int)(256 * rng_uniform((uint64_t)g, i, (uint64_t)k));
        }
    }
}

static void spread_forget(struct spread *s) {
    for (size_t i = 0; i < s->parts.count; i++)
        free(s->parts.item[i]);
    VEC_RELEASE(&s->parts);
    VEC_RELEASE(&s->held);
}

void spread_release(struct spread *s) {
    spread_forget(s);
    for (int g = 0; g < SPREAD_GROUPS; g++) {
        for (size_t i = 0; i < s->table.parameters.count; i++)
            free(s->whole[g][i]);
        free(s->whole[g]);
    }
    parameter_table_release(&s->table);
}

// Along these, ranks have the same of a local parameter.
static axis_set spread_same(const struct spread *s, const struct parameter *p) {
    const bool whole = p->split == CLASS_WHOLE || p->split == CLASS_SHARE;
    const axis_set tensor = whole ? AXES(AXIS_KV) | AXES(AXIS_TP) : p->split == CLASS_KV ? AXES(AXIS_KV) : AXES_NONE;
    return mesh_present(&s->mesh, tensor | AXES(AXIS_DP));
}

// What rank `r` has of a local parameter: part `shard` of its elements in a row, as shards of units are.
static void hold(struct spread *s, int rank, int shard, const struct parameter *p) {
    const struct parameter *whole = &s->table.parameters.item[p->whole];
    const int64_t count = parameter_count(p);
    const struct parameter_span span = {count * shard / s->shards, count * (shard + 1) / s->shards};
    if (span.begin == span.end)
        return;
    for (int g = 0; g < SPREAD_GROUPS; g++) {
        const int64_t size = dtype_size(s->dtype[g]);
        char *data = mem_alloc((size_t)((span.end - span.begin) * size));
        parameter_take(p, whole, (struct parameter_span){0, parameter_count(whole)}, s->whole[g][p->whole], span, data,
                       size);
        VEC_PUSH(&s->parts, data);
        struct holding h = {.group = g,
                            .rank = rank,
                            .number = p->whole,
                            .same = spread_same(s, p),
                            .held = span,
                            .columns = p->dim[1],
                            .regions = p->regions,
                            .data = data};
        memcpy(h.region, p->region, sizeof p->region);
        VEC_PUSH(&s->held, h);
    }
}

void spread_over(struct spread *s, int tensor, int shards, int replicas) {
    spread_forget(s);
    struct model_split split;
    trireme_error error = {0};
    s->tensor = tensor, s->shards = shards, s->replicas = replicas, s->ranks = tensor * shards * replicas;
    s->mesh = mesh_single();
    assert_ok(model_split_create(&split, &s->config, tensor, false, &error), &error);
    s->mesh.degree[AXIS_KV] = split.copies;
    s->mesh.degree[AXIS_TP] = tensor / split.copies;
    s->mesh.degree[AXIS_FSDP] = shards;
    s->mesh.degree[AXIS_DP] = replicas;
    for (int rank = 0; rank < s->ranks; rank++) {
        struct parameter_table local;
        parameter_table_split(&local, &s->table, &s->config, &split, rank % tensor, rank % tensor, NULL, false, NULL);
        for (size_t i = 0; i < local.parameters.count; i++)
            hold(s, rank, rank / tensor % shards, &local.parameters.item[i]);
        parameter_table_release(&local);
    }
}

void spread_image(const struct spread *s, struct image *image) {
    trireme_error error = {0};
    *image = (struct image){0};
    // Shards of few bytes: several files.
    assert_ok(model_files_declare(image_add(image, "model", 9000), &s->config, &s->table, s->dtype[0], 0, 0, &error),
              &error);
    assert_ok(state_files_declare(image_add(image, STATE_STEM, 0), &s->table, "adamw.m", s->dtype[1], NULL, 1, &error),
              &error);
    assert_ok(image_place(image, &error), &error);
}

void spread_holders(const struct spread *s, struct holders *out) {
    holders_create(out, &s->mesh, SPREAD_GROUPS, s->table.parameters.count, s->held.item, s->held.count);
}

void spread_own(const struct spread *s, int rank, struct holdings *out) {
    VEC(struct holding) own = {0};
    for (size_t i = 0; i < s->held.count; i++)
        if (s->held.item[i].rank == rank)
            VEC_PUSH(&own, s->held.item[i]);
    holdings_create(out, SPREAD_GROUPS, s->table.parameters.count, own.item, own.count);
    VEC_RELEASE(&own);
}

char *spread_files(const struct spread *s, const struct image *image, int64_t block_bytes, size_t *bytes) {
    struct holders holders;
    struct holdings *own = mem_alloc((size_t)s->ranks * sizeof *own);
    spread_holders(s, &holders);
    struct save_plan *plan = mem_alloc((size_t)s->ranks * sizeof *plan);
    int64_t *share = mem_alloc((size_t)s->ranks * sizeof *share),
            *written = mem_alloc((size_t)s->ranks * sizeof *written);
    for (int r = 0; r < s->ranks; r++) {
        spread_own(s, r, &own[r]);
        save_plan_create(&plan[r], image, &holders, &own[r], s->values, r, block_bytes);
    }
    *bytes = 0;
    for (size_t i = 0; i < image_files(image); i++)
        *bytes += image_file(image, i)->bytes;
    char *out = mem_alloc(*bytes), *to = out;
    for (size_t b = 0; b < plan->block.count; b++) {
        const struct save_block *block = &plan->block.item[b];
        const int64_t total = save_shares(plan, b, share);
        char *given = mem_alloc((size_t)total + 1), *at = given;
        assert_true(share[block->writer] > 0 || total == 0);
        written[block->writer] += block->bytes;
        for (int r = 0; r < s->ranks; at += share[r++]) {
            assert_int_equal(plan[r].block.item[b].writer, block->writer);
            assert_int_equal(plan[r].block.item[b].give, share[r]);
            if (plan[r].block.item[b].whole)
                continue;
            assert_int_equal(plan[r].block.item[b].packed, share[r]);
            assert_true(share[r] <= plan[r].most_packed);
            save_pack(&plan[r], b, at);
        }
        const struct save_plan *writer = &plan[block->writer];
        memset(to, 0xa5, (size_t)block->bytes);
        if (writer->block.item[b].whole) {
            assert_int_equal(share[block->writer], total);
            assert_true(writer->block.item[b].packed == block->bytes && block->bytes <= writer->most_packed);
            save_pack(writer, b, to);
        } else {
            assert_true(total <= writer->most_taken);
            save_unpack(writer, b, given, to);
        }
        to += block->bytes;
        free(given);
    }
    // With many blocks all ranks write about as much.
    for (int r = 0; r < s->ranks && plan->block.count > 20 * (size_t)s->ranks; r++)
        assert_true(written[r] > (int64_t)*bytes / s->ranks / 3);
    for (int r = 0; r < s->ranks; r++) {
        save_plan_release(&plan[r]);
        holdings_release(&own[r]);
    }
    free(own);
    free(plan);
    free(share);
    free(written);
    holders_release(&holders);
    return out;
}

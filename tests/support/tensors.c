#include "support/tensors.h"
#include "support/test.h"

#include "base/xxh3.h"
#include "ckpt/output.h"
#include "ckpt/save_plan.h"

#include <sys/stat.h>

static void tensors_ok(trireme_status status, const trireme_error *error) {
    if (status != TRIREME_OK)
        fail_msg("%s", error->message);
}

static void record_blocks(struct directory *record, const char *name, const struct text *content, uint64_t bytes) {
    struct checksum_file file = {.name = (char *)name, .bytes = content->length, .block_bytes = bytes};
    for (uint64_t at = 0; at < content->length; at += bytes)
        VEC_PUSH(&file.block, xxh3_of(content->text + at, (size_t)MIN(bytes, content->length - at)));
    directory_record(record, &file);
    VEC_RELEASE(&file.block);
}

static trireme_status index_write(const struct safetensors_layout *layout, const char *folder, trireme_error *error) {
    char *name = mem_printf("%s.safetensors.index.json", layout->stem);
    struct text index = {0};
    safetensors_layout_index(layout, &index);
    trireme_status status = output_write(folder, name, index.text, index.length, error);
    text_release(&index);
    free(name);
    return status;
}

static trireme_status content_write(const char *folder, const char *name, struct text *content,
                                    struct directory *record, uint64_t block_bytes, trireme_error *error) {
    trireme_status status = output_write(folder, name, content->text, content->length, error);
    if (status == TRIREME_OK && record)
        record_blocks(record, name, content, block_bytes);
    text_release(content);
    return status;
}

void tensors_declare(struct safetensors_layout *layout, const char *stem, uint64_t shard_bytes,
                     const struct sample_tensor *tensor, size_t count) {
    trireme_error error = {0};
    safetensors_layout_create(layout, stem, shard_bytes);
    for (size_t i = 0; i < count; i++)
        tensors_ok(safetensors_layout_declare(layout, tensor[i].name, tensor[i].dtype, tensor[i].ndim, tensor[i].shape,
                                              &error),
                   &error);
}

trireme_status tensors_write(struct safetensors_layout *layout, const char *folder, const struct sample_tensor *tensor,
                             struct directory *record, uint64_t block_bytes, trireme_error *error) {
    trireme_status status = safetensors_layout_place(layout, error);
    for (size_t i = 0; i < layout->file.count && status == TRIREME_OK; i++) {
        struct text content = {0};
        text_add_bytes(&content, layout->file.item[i].header.text, layout->file.item[i].header.length);
        for (size_t k = 0; k < layout->tensor.count; k++)
            if (layout->tensor.item[k].file == i)
                text_add_bytes(&content, tensor[layout->tensor.item[k].number].data, layout->tensor.item[k].bytes);
        status = content_write(folder, layout->file.item[i].name, &content, record, block_bytes, error);
    }
    if (status == TRIREME_OK && layout->file.count > 1)
        status = index_write(layout, folder, error);
    safetensors_layout_release(layout);
    return status;
}

// Writes the files of an image, as one rank that has all of its groups.
static void image_write(struct directory *directory, const struct image *image, const struct holdings *own,
                        const struct save_values *values) {
    const struct mesh mesh = mesh_single();
    struct save_plan plan;
    struct holders holders;
    trireme_error error = {0};
    for (size_t i = 0; i < image->set.count; i++)
        tensors_ok(index_write(&image->set.item[i].layout, directory_path(directory), &error), &error);
    holders_create(&holders, &mesh, own->groups, own->parameters, own->item, own->count);
    save_plan_create(&plan, image, &holders, own, values, 0, SAVE_BLOCK_BYTES);
    for (size_t b = 0; b < plan.block.count;) {
        const size_t file = plan.block.item[b].file;
        struct text content = {0};
        for (; b < plan.block.count && plan.block.item[b].file == file; b++) {
            const size_t bytes = (size_t)plan.block.item[b].bytes;
            char *block = mem_alloc(bytes), *given = mem_alloc((size_t)plan.block.item[b].give + 1);
            save_pack(&plan, b, plan.block.item[b].whole ? block : given);
            if (!plan.block.item[b].whole)
                save_unpack(&plan, b, given, block);
            text_add_bytes(&content, block, bytes);
            free(block);
            free(given);
        }
        tensors_ok(content_write(directory_path(directory), image_file(image, file)->name, &content, directory,
                                 SAVE_BLOCK_BYTES, &error),
                   &error);
    }
    save_plan_release(&plan);
    holders_release(&holders);
}

void model_write(struct directory *directory, const struct model_config *config, const struct parameter_table *table,
                 enum dtype dtype, void *const *data, uint64_t shard_bytes) {
    static const int GROUP[] = {0};
    const struct save_values values = {.dtype = dtype, .terms = 1, .group = GROUP};
    trireme_error error = {0};
    struct image image = {0};
    tensors_ok(model_files_write_config(directory, config, dtype, &error), &error);
    struct holdings own = holdings_of_whole(table, data);
    struct image_set *set = image_add(&image, model_files_stem(config), shard_bytes);
    tensors_ok(model_files_declare(set, config, table, dtype, 0, 0, &error), &error);
    tensors_ok(image_place(&image, &error), &error);
    image_write(directory, &image, &own, &values);
    image_release(&image);
    holdings_release(&own);
}

static void group_hold(struct holdings *out, const struct parameter_table *table, const struct sample_group *group,
                       size_t groups) {
    VEC(struct holding) all = {0};
    for (size_t g = 0; g < groups; g++) {
        struct holdings one = holdings_of_whole(table, group[g].data);
        for (size_t i = 0; i < one.count; i++) {
            one.item[i].group = (int32_t)g;
            VEC_PUSH(&all, one.item[i]);
        }
        holdings_release(&one);
    }
    holdings_create(out, (int)groups, table->parameters.count, all.item, all.count);
    VEC_RELEASE(&all);
}

void state_write(struct directory *directory, const struct parameter_table *table, const struct sample_group *group,
                 size_t groups, const struct state_progress *progress) {
    trireme_error error = {0};
    struct image image = {0};
    struct holdings own;
    struct save_values *values = mem_alloc(groups * sizeof *values);
    int *number = mem_alloc(groups * sizeof *number);
    char *folder = mem_printf("%s/" STATE_FOLDER, directory_path(directory));
    assert_int_equal(mkdir(folder, 0777), 0);
    group_hold(&own, table, group, groups);
    struct image_set *set = image_add(&image, STATE_STEM, 0);
    for (size_t g = 0; g < groups; g++) {
        number[g] = (int)g;
        values[g] = (struct save_values){.dtype = group[g].dtype, .terms = 1, .group = &number[g]};
        tensors_ok(state_files_declare(set, table, group[g].name, group[g].dtype, group[g].has, (int)g, &error),
                   &error);
    }
    tensors_ok(image_place(&image, &error), &error);
    image_write(directory, &image, &own, values);
    tensors_ok(state_files_write_progress(directory_path(directory), progress, &error), &error);
    image_release(&image);
    holdings_release(&own);
    free(values);
    free(number);
    free(folder);
}

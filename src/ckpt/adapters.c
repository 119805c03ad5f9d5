#include "ckpt/adapters.h"

#include "ckpt/convert.h"
#include "ckpt/model_files.h"
#include "model/lora.h"

struct adapters {
    struct model_config model;
    struct safetensors *files;
};

trireme_status adapters_open(const char *path, const char *base, struct adapters **out, trireme_error *error) {
    struct adapters *a = mem_alloc(sizeof *a);
    trireme_status status = model_config_read_on(&a->model, path, base, error);
    if (status == TRIREME_OK && a->model.lora.rank == 0)
        status = error_set(error, TRIREME_ERROR_USAGE, "%s holds no " LORA_CONFIG ", so it has no adapters", path);
    if (status == TRIREME_OK)
        status = model_files_open_adapters(path, &a->model, &a->files, error);
    if (status == TRIREME_OK)
        *out = a;
    else
        adapters_close(a);
    return status;
}

const char *adapters_base(const struct adapters *a) {
    return a->model.lora.base;
}

const struct model_config *adapters_model(const struct adapters *a) {
    return &a->model;
}

size_t adapters_count(const struct adapters *a) {
    return a->files->tensor.count / 2;
}

void adapters_close(struct adapters *a) {
    safetensors_close(a->files);
    free(a);
}

// The factor of the layer whose weights are the tensor `name`, which files of GPT-2 may call without "transformer.".
static const struct safetensors_tensor *find_factor(const struct adapters *a, const char *name, const char *factor) {
    const int module = (int)strlen(name) - (int)strlen(".weight");
    const char *const prefix[] = {"", model_tensor_base(&a->model)};
    const struct safetensors_tensor *t = NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(prefix) && !t && text_ends(name, ".weight"); i++) {
        char *theirs = mem_printf(LORA_PREFIX "%s%.*s.%s.weight", prefix[i], module, name, factor);
        t = safetensors_find(a->files, theirs);
        free(theirs);
    }
    return t;
}

// A matrix of a file, or its transpose.
static trireme_status read_factor(struct adapters *a, const struct safetensors_tensor *t, bool transposed, double **out,
                                  trireme_error *error) {
    const int64_t rows = t->shape[0], columns = t->shape[1], count = rows * columns;
    void *raw = mem_alloc(t->bytes);
    double *lies = mem_alloc((size_t)count * sizeof *lies);
    trireme_status status = safetensors_read(a->files, t, 0, t->bytes, raw, error);
    if (status == TRIREME_OK)
        convert_decode(t->dtype, raw, count, lies);
    free(raw);
    *out = lies;
    if (status != TRIREME_OK || !transposed)
        return status;
    *out = mem_alloc((size_t)count * sizeof **out);
    for (int64_t i = 0; i < count; i++)
        (*out)[i % columns * rows + i / columns] = lies[i];
    free(lies);
    return status;
}

trireme_status adapter_sum_read(struct adapters *adapters, const char *name, struct adapter_sum *out,
                                trireme_error *error) {
    const struct safetensors_tensor *a = find_factor(adapters, name, "lora_A"),
                                    *b = find_factor(adapters, name, "lora_B");
    const bool transposed = model_tensors_transposed(&adapters->model);
    *out = (struct adapter_sum){0};
    if (!a || !b)
        return TRIREME_OK;
    out->rank = a->shape[0];
    out->rows = transposed ? a->shape[1] : b->shape[0];
    out->columns = transposed ? b->shape[0] : a->shape[1];
    char *module = mem_printf("%.*s", (int)(strlen(a->name) - strlen(LORA_PREFIX) - strlen(".lora_A.weight")),
                              a->name + strlen(LORA_PREFIX));
    lora_rank_of(&adapters->model.lora, module, &out->scale);
    free(module);
    trireme_status status = read_factor(adapters, transposed ? a : b, transposed, &out->left, error);
    if (status == TRIREME_OK)
        status = read_factor(adapters, transposed ? b : a, transposed, &out->right, error);
    if (status != TRIREME_OK)
        adapter_sum_release(out);
    return status;
}

void adapter_sum_add(const struct adapter_sum *s, int64_t first, int64_t count, double *values) {
    const int64_t end = s->left ? first + count : first;
    for (int64_t at = first; at < end;) {
        const int64_t row = at / s->columns, column = at % s->columns, run = MIN(s->columns - column, end - at);
        for (int64_t k = 0; k < s->rank; k++) {
            const double factor = s->scale * s->left[row * s->rank + k], *right = s->right + k * s->columns + column;
            for (int64_t i = 0; i < run; i++)
                values[at - first + i] += factor * right[i];
        }
        at += run;
    }
}

void adapter_sum_release(struct adapter_sum *s) {
    free(s->left);
    free(s->right);
    *s = (struct adapter_sum){0};
}

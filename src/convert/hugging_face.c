#include "convert/hugging_face.h"

#include "base/json.h"
#include "ckpt/convert.h"
#include "ckpt/directory.h"
#include "ckpt/output.h"
#include "ckpt/safetensors_layout.h"
#include "model/model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char CONFIG[] = "config.json", INDEX_END[] = ".safetensors.index.json";
enum { CONFIG_LIMIT = 16 << 20, COPY_BYTES = 1 << 20 };

// Endings of files of weights, which a new directory has none of but its own.
static const char *const WEIGHTS[] = {".safetensors", INDEX_END,         ".bin", ".pt",      ".pth",
                                      ".ckpt",        ".gguf",           ".h5",  ".msgpack", ".onnx",
                                      ".onnx_data",   ".bin.index.json", ".npz"};

static bool is_of_weights(const char *name) {
    for (size_t i = 0; i < ARRAY_LENGTH(WEIGHTS); i++)
        if (text_ends(name, WEIGHTS[i]))
            return true;
    return false;
}

// The first file of weights by name that a directory has, NULL if it has none; the caller frees.
static char *find_weights(const char *directory) {
    DIR *dir = opendir(directory);
    char *first = NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (is_of_weights(entry->d_name) && (!first || strcmp(entry->d_name, first) < 0)) {
            free(first);
            first = mem_strdup(entry->d_name);
        }
    if (dir)
        closedir(dir);
    return first;
}

trireme_status hugging_face_open(const char *directory, struct safetensors **out, trireme_error *error) {
    char *single = mem_printf("%s/model.safetensors", directory),
         *index = mem_printf("%s/model%s", directory, INDEX_END);
    const bool missing = file_missing(single) && file_missing(index);
    free(single);
    free(index);
    char *other = missing ? find_weights(directory) : NULL;
    if (!other)
        return safetensors_open(directory, out, error);
    char *path = mem_printf("%s/%s", directory, other);
    trireme_status status = model_refuse_weights(path, error);
    if (status == TRIREME_OK)
        status = error_set(error, TRIREME_ERROR_USAGE,
                           "%s holds %s, and no model.safetensors: save the model with transformers' save_pretrained, "
                           "and give the directory",
                           directory, other);
    free(path);
    free(other);
    return status;
}

// ---- weights

// A dtype that somebody has packed numbers into, with scales in other tensors.
static bool is_quantized(enum safetensors_dtype dtype) {
    return dtype >= SAFETENSORS_F8_E5M2;
}

static enum safetensors_dtype stored_dtype(enum stored stored) {
    return stored == STORED_F32 ? SAFETENSORS_F32 : stored == STORED_F16 ? SAFETENSORS_F16 : SAFETENSORS_BF16;
}

// What is written, and of what.
struct rewriting {
    struct safetensors_layout layout;
    const struct safetensors *files;
    const struct safetensors_tensor **order;
    const struct conversion_options *options;
    const struct hugging_face_beside *beside;
    struct directory *directory;
    struct conversion_watch *watch;
};

static bool is_turned(const struct rewriting *r, const struct safetensors_tensor *t) {
    return t->ndim == 2 && r->beside->turns && r->beside->turns(t->name);
}

static trireme_status declare_one(struct rewriting *r, const struct safetensors_tensor *t, trireme_error *error) {
    const struct conversion_options *options = r->options;
    const int64_t turned[] = {t->shape[1], t->shape[0]};
    char name[JSON_EXCERPT_BYTES];
    if (!options->keeps && is_quantized(t->dtype))
        FAIL(TRIREME_ERROR_USAGE, "%s: tensor %s is of dtype %s, whose scales are not known: keep the dtype",
             safetensors_path(r->files, t), json_excerpt(t->name, name), safetensors_dtype_name(t->dtype));
    if (options->keeps && t->dtype == SAFETENSORS_F64 && conversion_sum(options, r->files, t))
        FAIL(TRIREME_ERROR_USAGE, "%s: tensor %s is of dtype F64, in which sums are not kept: give dtype=f32",
             safetensors_path(r->files, t), json_excerpt(t->name, name));
    const bool becomes = !options->keeps && convert_readable(t->dtype);
    return safetensors_layout_declare(&r->layout, t->name, becomes ? stored_dtype(options->stored) : t->dtype, t->ndim,
                                      is_turned(r, t) ? turned : t->shape, error);
}

static int compare_places(const void *a, const void *b) {
    const struct safetensors_tensor *const *x = a, *const *y = b;
    return COMPARE((*x)->file, (*y)->file) ?: COMPARE((*x)->position, (*y)->position);
}

// The tensors, in the order in which they lie in the files; the caller frees.
static const struct safetensors_tensor **tensors_in_order(const struct safetensors *files) {
    const struct safetensors_tensor **order = mem_alloc((files->tensor.count + 1) * sizeof *order);
    for (size_t i = 0; i < files->tensor.count; i++)
        order[i] = &files->tensor.item[i];
    qsort(order, files->tensor.count, sizeof *order, compare_places);
    return order;
}

// Tensors have the numbers that they have in `order`.
static trireme_status declare_all(struct rewriting *r, trireme_error *error) {
    const struct safetensors *files = r->files;
    for (size_t i = 0; i < files->metadata.count; i++)
        safetensors_layout_metadata(&r->layout, files->metadata.item[i].key, files->metadata.item[i].value);
    safetensors_layout_metadata(&r->layout, "format", "pt");
    for (size_t i = 0; i < files->tensor.count; i++)
        TRY(declare_one(r, r->order[i], error));
    return safetensors_layout_place(&r->layout, error);
}

static void file_tensors(const struct rewriting *r, size_t file, struct conversion_tensors *out) {
    for (size_t i = 0; i < r->layout.tensor.count; i++) {
        const struct safetensors_declared *d = &r->layout.tensor.item[i];
        const struct safetensors_tensor *from = r->order[d->number];
        if (d->file != file)
            continue;
        const bool turned = is_turned(r, from);
        const int64_t numbers = (int64_t)(8 * from->bytes / safetensors_dtype_bits(from->dtype));
        VEC_PUSH(out, (struct conversion_tensor){.name = from->name,
                                                 .from = from,
                                                 .path = safetensors_path(r->files, from),
                                                 .copied = d->dtype == from->dtype && !turned,
                                                 .rows = turned ? from->shape[1] : numbers,
                                                 .columns = turned ? from->shape[0] : 1,
                                                 .order = turned ? ROWS_TRANSPOSED : ROWS_IN_ORDER,
                                                 .stored = stored_like(d->dtype),
                                                 .position = d->position});
    }
}

static trireme_status write_shard(const struct rewriting *r, size_t number, trireme_error *error) {
    const struct safetensors_planned *planned = &r->layout.file.item[number];
    char *path = mem_printf("%s/%s", directory_path(r->directory), planned->name);
    struct conversion_tensors tensors = {0};
    struct new_file file;
    trireme_status status = new_file_begin(&file, path, error);
    free(path);
    TRY(status);
    file_tensors(r, number, &tensors);
    conversion_add_sums(r->options, r->files, &tensors);
    status = new_file_add(&file, planned->header.text, planned->header.length, 0, error);
    if (status == TRIREME_OK)
        status = conversion_write(r->files, &tensors, file.file, file.temporary, r->watch, error);
    if (status == TRIREME_OK)
        status = new_file_end(&file, error);
    else
        new_file_abort(&file);
    VEC_RELEASE(&tensors);
    return status;
}

static trireme_status write_weights(const struct rewriting *r, trireme_error *error) {
    for (size_t i = 0; i < r->layout.file.count; i++)
        TRY(write_shard(r, i, error));
    if (r->layout.file.count == 1)
        return TRIREME_OK;
    struct text index = {0};
    char *name = mem_printf("model%s", INDEX_END);
    safetensors_layout_index(&r->layout, &index);
    trireme_status status = output_write(directory_path(r->directory), name, index.text, index.length, error);
    text_release(&index);
    free(name);
    return status;
}

// ---- what lies beside

// Both words for the dtype, of transformers 4 and 5, where they stand.
static void set_dtype(json_t *object, const char *word) {
    static const char *const KEYS[] = {"dtype", "torch_dtype"};
    for (size_t i = 0; i < ARRAY_LENGTH(KEYS); i++)
        if (json_object_get(object, KEYS[i]))
            json_object_set_new(object, KEYS[i], json_string(word));
}

static trireme_status config_make(const struct hugging_face_beside *beside, const struct conversion_options *options,
                                  struct text *out, trireme_error *error) {
    static const char *const WORDS[] = {"float32", "float16", "bfloat16"};
    char *path = mem_printf("%s/%s", beside->directory ?: "", CONFIG), *bytes = NULL;
    size_t length;
    json_t *root = NULL;
    trireme_status status = TRIREME_OK;
    if (beside->config)
        text_add_bytes(out, beside->config->text, beside->config->length);
    else
        status = file_read(path, CONFIG_LIMIT, &bytes, &length, error);
    if (bytes)
        text_add_bytes(out, bytes, length);
    if (status == TRIREME_OK)
        status = json_parse(out->text ? out->text : "", out->length, path, &root, error);
    if (status == TRIREME_OK && !options->keeps) {
        const char *word = WORDS[options->stored];
        if (!json_object_get(root, "dtype") && !json_object_get(root, "torch_dtype"))
            json_object_set_new(root, "torch_dtype", json_string(word));
        set_dtype(root, word);
        set_dtype(json_object_get(root, "text_config"), word);
        out->length = 0;
        json_print(out, root);
    }
    json_decref(root);
    free(bytes);
    free(path);
    return status;
}

static trireme_status copy_file(const char *from, const char *name, const char *to, trireme_error *error) {
    struct output *output;
    int file;
    TRY(file_open(from, &file, error));
    trireme_status status = output_create(to, name, 0, &output, error);
    char *block = mem_alloc(COPY_BYTES);
    bool more = status == TRIREME_OK;
    while (more) {
        const ssize_t n = read(file, block, COPY_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            status = error_set(error, TRIREME_ERROR_IO, "%s: cannot read: %s", from, strerror(errno));
        else if (n > 0)
            status = output_add(output, block, (size_t)n, error);
        more = n > 0 && status == TRIREME_OK;
        if (!more && status != TRIREME_OK)
            output_abort(output);
    }
    if (status == TRIREME_OK) {
        struct checksum_file sums = {0};
        status = output_finish(output, &sums, error);
        if (status == TRIREME_OK)
            checksum_file_release(&sums);
    }
    free(block);
    close(file);
    return status;
}

static trireme_status copy_beside(const char *from, const char *to, trireme_error *error) {
    DIR *dir = opendir(from);
    if (!dir)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", from, strerror(errno));
    trireme_status status = TRIREME_OK;
    for (struct dirent *entry; status == TRIREME_OK && (entry = readdir(dir));) {
        const char *name = entry->d_name;
        char *path = mem_printf("%s/%s", from, name);
        struct stat info;
        if (*name != '.' && strcmp(name, CONFIG) != 0 && strcmp(name, MANIFEST_NAME) != 0 && !is_of_weights(name) &&
            stat(path, &info) == 0 && S_ISREG(info.st_mode))
            status = copy_file(path, name, to, error);
        free(path);
    }
    closedir(dir);
    return status;
}

static trireme_status write_beside(const struct hugging_face_beside *beside, const char *to,
                                   const struct conversion_options *options, trireme_error *error) {
    struct text config = {0};
    trireme_status status = config_make(beside, options, &config, error);
    if (status == TRIREME_OK)
        status = output_write(to, CONFIG, config.text, config.length, error);
    text_release(&config);
    if (status == TRIREME_OK && beside->directory)
        status = copy_beside(beside->directory, to, error);
    return status;
}

// Whether nothing is there, or an empty directory.
static bool is_free(const char *path) {
    struct stat info;
    DIR *dir = opendir(path);
    if (!dir)
        return lstat(path, &info) != 0;
    int entries = 0;
    while (entries <= 2 && readdir(dir))
        entries++;
    closedir(dir);
    return entries <= 2;
}

trireme_status hugging_face_write(const struct safetensors *files, const struct hugging_face_beside *beside,
                                  const char *out, const struct conversion_options *options,
                                  struct conversion_watch *watch, trireme_error *error) {
    if (!options->keeps && options->stored == STORED_Q8_0)
        FAIL(TRIREME_ERROR_USAGE, "dtype=q8_0 is for a .gguf file alone");
    if (!is_free(out))
        FAIL(TRIREME_ERROR_USAGE, "%s exists: name another directory, or remove it", out);
    struct rewriting r = {
        .files = files, .order = tensors_in_order(files), .options = options, .beside = beside, .watch = watch};
    safetensors_layout_create(&r.layout, "model", options->shard_bytes);
    trireme_status status = declare_all(&r, error);
    if (status == TRIREME_OK)
        status = directory_begin(out, DIRECTORY_REFUSE, &r.directory, error);
    if (status == TRIREME_OK)
        status = write_weights(&r, error);
    if (status == TRIREME_OK)
        status = write_beside(beside, directory_path(r.directory), options, error);
    if (status == TRIREME_OK)
        status = directory_commit(r.directory, error);
    else
        directory_abort(r.directory);
    safetensors_layout_release(&r.layout);
    free(r.order);
    return status;
}

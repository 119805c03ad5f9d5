#include "convert/llmc_file.h"

#include "base/json.h"
#include "ckpt/model_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC = 20240326, VERSION_F32 = 3, VERSION_BF16 = 5, HEADER_NUMBERS = 256, VOCABULARY_MULTIPLE = 128 };
enum { EXTENT_MOST = 1 << 24 };      // so that no product of three overflows
static const double NORM_EPS = 1e-5; // which llm.c has in its code

struct llmc_header {
    int32_t magic, version, positions, vocabulary, layers, heads, width, padded_vocabulary;
    int32_t zeros[HEADER_NUMBERS - 8];
};

// The kinds of tensors in the file's order. Extents are multiples of the width; 0: a vector has no columns.
static const struct llmc_kind {
    const char *name; // of Hugging Face, behind "transformer." or "transformer.h.N."
    bool of_layers;
    int rows, columns;
} KINDS[] = {
    {"wte.weight", false, 0, 1}, // of these two the rows are others
    {"wpe.weight", false, 0, 1},        {"ln_1.weight", true, 1, 0},      {"ln_1.bias", true, 1, 0},
    {"attn.c_attn.weight", true, 3, 1}, {"attn.c_attn.bias", true, 3, 0}, {"attn.c_proj.weight", true, 1, 1},
    {"attn.c_proj.bias", true, 1, 0},   {"ln_2.weight", true, 1, 0},      {"ln_2.bias", true, 1, 0},
    {"mlp.c_fc.weight", true, 4, 1},    {"mlp.c_fc.bias", true, 4, 0},    {"mlp.c_proj.weight", true, 1, 4},
    {"mlp.c_proj.bias", true, 1, 0},    {"ln_f.weight", false, 1, 0},     {"ln_f.bias", false, 1, 0},
};

static char *kind_name(const struct llmc_kind *kind, int layer) {
    return kind->of_layers ? mem_printf("transformer.h.%d.%s", layer, kind->name)
                           : mem_printf("transformer.%s", kind->name);
}

// Rows in the file, and those of them that are no padding.
static int64_t kind_rows(const struct llmc_kind *kind, const struct llmc_header *h, int64_t *used) {
    const bool tokens = kind == &KINDS[0];
    const int64_t rows = tokens              ? h->padded_vocabulary
                         : kind == &KINDS[1] ? h->positions
                                             : (int64_t)kind->rows * h->width;
    *used = tokens ? h->vocabulary : rows;
    return rows;
}

static int64_t kind_columns(const struct llmc_kind *kind, const struct llmc_header *h) {
    return kind->columns ? (int64_t)kind->columns * h->width : 1;
}

static uint64_t header_file_bytes(const struct llmc_header *h) {
    unsigned __int128 numbers = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(KINDS); i++) {
        int64_t used;
        const unsigned __int128 one =
            (unsigned __int128)kind_rows(&KINDS[i], h, &used) * (uint64_t)kind_columns(&KINDS[i], h);
        numbers += one * (uint64_t)(KINDS[i].of_layers ? h->layers : 1);
    }
    numbers = numbers * (h->version == VERSION_F32 ? 4 : 2) + sizeof *h;
    return numbers > INT64_MAX ? UINT64_MAX : (uint64_t)numbers;
}

// ---- reading

bool llmc_file_is(const char *path) {
    int32_t first = 0;
    FILE *file = fopen(path, "rb");
    const bool read = file && fread(&first, sizeof first, 1, file) == 1;
    if (file)
        fclose(file);
    return read && first == MAGIC;
}

static trireme_status header_check(const struct llmc_header *h, const char *path, uint64_t bytes,
                                   trireme_error *error) {
    const int32_t extents[] = {h->positions, h->vocabulary, h->layers, h->heads, h->width, h->padded_vocabulary};
    if (h->version != VERSION_F32 && h->version != VERSION_BF16)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: a model of llm.c of version %d; 3 (f32) and 5 (bf16) of GPT-2 are read", path,
             h->version);
    for (size_t i = 0; i < ARRAY_LENGTH(extents); i++)
        if (extents[i] < 1 || extents[i] > EXTENT_MOST)
            FAIL(TRIREME_ERROR_CORRUPT, "%s: number %zu of its header is %d, expected 1 to %d", path, i + 2, extents[i],
                 EXTENT_MOST);
    if (h->width % h->heads || h->padded_vocabulary < h->vocabulary)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: its header says width %d, heads %d, vocabulary %d, padded to %d", path,
             h->width, h->heads, h->vocabulary, h->padded_vocabulary);
    if (header_file_bytes(h) != bytes)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: has %" PRIu64 " bytes, where its header says %" PRIu64, path, bytes,
             header_file_bytes(h));
    return TRIREME_OK;
}

static int compare_names(const void *a, const void *b) {
    const struct safetensors_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static void add_tensors(struct safetensors *s, const struct llmc_header *h) {
    const bool wide = h->version == VERSION_F32;
    const uint64_t size = wide ? 4 : 2;
    uint64_t position = sizeof *h;
    for (size_t i = 0; i < ARRAY_LENGTH(KINDS); i++)
        for (int layer = 0; layer < (KINDS[i].of_layers ? h->layers : 1); layer++) {
            int64_t used;
            const int64_t rows = kind_rows(&KINDS[i], h, &used), columns = kind_columns(&KINDS[i], h);
            VEC_PUSH(&s->tensor, (struct safetensors_tensor){.name = kind_name(&KINDS[i], layer),
                                                             .dtype = wide ? SAFETENSORS_F32 : SAFETENSORS_BF16,
                                                             .ndim = KINDS[i].columns ? 2 : 1,
                                                             .shape = {used, columns},
                                                             .data = (const char *)s->file.item[0].map + position,
                                                             .bytes = (uint64_t)(used * columns) * size,
                                                             .position = position});
            position += (uint64_t)(rows * columns) * size;
        }
    VEC_SORT(&s->tensor, compare_names);
}

static void add_config(const struct llmc_header *h, struct text *out) {
    json_t *root = json_pack("{s[s] ss si si si si si si ss sf sb ss}", "architectures", "GPT2LMHeadModel",
                             "model_type", "gpt2", "vocab_size", h->vocabulary, "n_positions", h->positions, "n_ctx",
                             h->positions, "n_embd", h->width, "n_layer", h->layers, "n_head", h->heads,
                             "activation_function", "gelu_new", "layer_norm_epsilon", NORM_EPS, "tie_word_embeddings",
                             1, "torch_dtype", h->version == VERSION_F32 ? "float32" : "bfloat16");
    json_print(out, root);
    json_decref(root);
}

trireme_status llmc_file_open(const char *path, struct safetensors **out, struct text *config, trireme_error *error) {
    struct llmc_header h;
    struct stat info;
    void *map = NULL;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    trireme_status status = TRIREME_OK;
    if (fstat(file, &info) != 0 || pread(file, &h, sizeof h, 0) != (ssize_t)sizeof h)
        status = error_set(error, TRIREME_ERROR_CORRUPT, "%s: ends within its header of %zu bytes", path, sizeof h);
    if (status == TRIREME_OK)
        status = header_check(&h, path, (uint64_t)info.st_size, error);
    if (status == TRIREME_OK && (map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0)) == MAP_FAILED)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot map: %s", path, strerror(errno));
    close(file);
    TRY(status);
    struct safetensors *s = mem_alloc(sizeof *s);
    s->mapped = true;
    s->open = -1;
    VEC_PUSH(&s->file, (struct safetensors_file){mem_strdup(path), map, (uint64_t)info.st_size, (uint64_t)info.st_dev,
                                                 (uint64_t)info.st_ino});
    add_tensors(s, &h);
    add_config(&h, config);
    *out = s;
    return TRIREME_OK;
}

bool llmc_file_turns(const char *name) {
    return text_ends(name, "c_attn.weight") || text_ends(name, "c_proj.weight") || text_ends(name, "c_fc.weight");
}

// ---- writing

static trireme_status check_model(const struct model_config *c, const char *directory, trireme_error *error) {
    const char *what = c->family != FAMILY_GPT2                     ? "is no GPT-2"
                       : !c->tie_word_embeddings                    ? "has a head apart from its embedding"
                       : c->activation != ACTIVATION_GELU_TANH      ? "has another activation than gelu_new"
                       : c->norm_eps != NORM_EPS                    ? "has another layer_norm_epsilon than 1e-5"
                       : c->intermediate_size != 4 * c->hidden_size ? "has an MLP that is not 4 times as wide"
                                                                    : NULL;
    if (what)
        FAIL(TRIREME_ERROR_USAGE, "%s %s, and llm.c has only such models", directory, what);
    return TRIREME_OK;
}

static const struct model_tensor *find_tensor(const struct model_tensors *tensors, const char *name) {
    for (size_t i = 0; i < tensors->count; i++)
        if (strcmp(tensors->item[i].name, name) == 0)
            return &tensors->item[i];
    return NULL;
}

static void place_tensors(const struct llmc_header *h, const struct safetensors *files,
                          const struct model_tensors *tensors, struct conversion_tensors *out) {
    const enum stored stored = h->version == VERSION_F32 ? STORED_F32 : STORED_BF16;
    uint64_t position = sizeof *h;
    for (size_t i = 0; i < ARRAY_LENGTH(KINDS); i++)
        for (int layer = 0; layer < (KINDS[i].of_layers ? h->layers : 1); layer++) {
            int64_t used;
            const int64_t rows = kind_rows(&KINDS[i], h, &used), columns = kind_columns(&KINDS[i], h);
            char *name = kind_name(&KINDS[i], layer);
            const struct model_tensor *t = find_tensor(tensors, name);
            free(name);
            CHECK(t);
            if (t->tensor) // zeros are what the file has where nothing is written
                VEC_PUSH(out, (struct conversion_tensor){.name = t->name,
                                                         .from = t->tensor,
                                                         .path = safetensors_path(files, t->tensor),
                                                         .rows = rows,
                                                         .columns = columns,
                                                         .order = t->transposed ? ROWS_TRANSPOSED : ROWS_IN_ORDER,
                                                         .stored = stored,
                                                         .position = position});
            position += stored_bytes(stored, rows * columns);
        }
}

static trireme_status write_file(const struct llmc_header *h, const struct safetensors *files,
                                 const struct conversion_tensors *tensors, const char *out,
                                 struct conversion_watch *watch, trireme_error *error) {
    struct new_file file;
    TRY(new_file_begin(&file, out, error));
    trireme_status status = new_file_add(&file, h, sizeof *h, 0, error);
    if (status == TRIREME_OK)
        status = conversion_write(files, tensors, file.file, file.temporary, watch, error);
    if (status == TRIREME_OK)
        status = new_file_size(&file, header_file_bytes(h), error);
    if (status == TRIREME_OK)
        return new_file_end(&file, error);
    new_file_abort(&file);
    return status;
}

trireme_status llmc_file_write(const char *directory, struct safetensors *files, const char *out,
                               const struct conversion_options *options, struct conversion_watch *watch,
                               trireme_error *error) {
    struct model_config c;
    struct model_tensors tensors;
    TRY(model_config_read(&c, directory, error));
    TRY(check_model(&c, directory, error));
    TRY(model_files_find(directory, files, &c, &tensors, error));
    const enum stored stored = options->keeps ? stored_like(tensors.item[0].tensor->dtype) : options->stored;
    const struct llmc_header h = {.magic = MAGIC,
                                  .version = stored == STORED_F32 ? VERSION_F32 : VERSION_BF16,
                                  .positions = (int32_t)c.max_position_embeddings,
                                  .vocabulary = (int32_t)c.vocab_size,
                                  .layers = (int32_t)c.num_hidden_layers,
                                  .heads = (int32_t)c.num_attention_heads,
                                  .width = (int32_t)c.hidden_size,
                                  .padded_vocabulary = (int32_t)round_up(c.vocab_size, VOCABULARY_MULTIPLE)};
    struct conversion_tensors placed = {0};
    trireme_status status = TRIREME_OK;
    if (stored != STORED_F32 && stored != STORED_BF16)
        status = error_set(error, TRIREME_ERROR_USAGE, "%s: llm.c has f32 and bf16: give dtype=f32 or dtype=bf16", out);
    if (status == TRIREME_OK) {
        place_tensors(&h, files, &tensors, &placed);
        conversion_add_sums(options, files, &placed);
        status = write_file(&h, files, &placed, out, watch, error);
    }
    VEC_RELEASE(&placed);
    model_tensors_release(&tensors);
    return status;
}

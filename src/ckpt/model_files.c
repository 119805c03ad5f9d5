#include "ckpt/model_files.h"

#include "base/json.h"
#include "ckpt/convert.h"
#include "ckpt/output.h"
#include "ckpt/tensor_reader.h"
#include "model/lora.h"

#define BASE_KEY "base" // in the metadata of adapters: model_files_identify of the model that they adapt

// What a tensor in the files is: a piece of parameter `number` of the table.
struct source {
    const struct parameter *parameter;
    const struct parameter_piece *piece;
    size_t number;
    bool zero; // a bias that this GPT-2 does not have and transformers expects
};

struct sources {
    VEC(struct source) item;
    struct parameter_table zeros; // the model's table with biases, where the model has none
};

static void add_sources(struct sources *sources, const struct parameter_table *table, bool adapters, bool zero) {
    for (size_t i = 0; i < table->parameters.count; i++) {
        const struct parameter *p = &table->parameters.item[i];
        bool bias = p->ndim == 1 && p->init == INIT_ZERO;
        for (int j = 0; j < p->pieces && p->adapter == adapters && (bias || !zero); j++)
            VEC_PUSH(&sources->item, (struct source){.parameter = p, .piece = &p->piece[j], .number = i, .zero = zero});
    }
}

// Those of the model, or of its adapters.
static void sources_create(struct sources *sources, const struct model_config *config,
                           const struct parameter_table *table, bool adapters) {
    *sources = (struct sources){0};
    add_sources(sources, table, adapters, false);
    if (adapters || config->family != FAMILY_GPT2 || config->bias)
        return;
    struct model_config with = *config;
    with.bias = true;
    parameter_table_create(&sources->zeros, &with);
    add_sources(sources, &sources->zeros, false, true);
}

static void sources_release(struct sources *sources) {
    VEC_RELEASE(&sources->item);
    parameter_table_release(&sources->zeros);
}

static void file_shape(const struct source *source, int64_t shape[2]) {
    int64_t rows = source->piece->rows, columns = source->parameter->dim[1];
    shape[0] = source->piece->transposed ? columns : rows;
    shape[1] = source->piece->transposed ? rows : columns;
}

static struct image_source source_image(const struct source *source) {
    return (struct image_source){.number = source->number,
                                 .row = source->piece->row,
                                 .rows = source->piece->rows,
                                 .columns = source->parameter->dim[1],
                                 .transposed = source->piece->transposed,
                                 .heads = source->piece->heads,
                                 .zero = source->zero};
}

// ---- saving

trireme_status model_files_write_config(struct directory *directory, const struct model_config *config,
                                        enum dtype dtype, trireme_error *error) {
    struct text text = {0};
    model_config_write(config, dtype == DTYPE_F64 ? "float64" : dtype == DTYPE_BF16 ? "bfloat16" : "float32", &text);
    struct output *output;
    struct checksum_file file = {0};
    trireme_status status = output_create(directory_path(directory), "config.json", text.length, &output, error);
    if (status == TRIREME_OK) {
        status = output_add(output, text.text, text.length, error);
        if (status == TRIREME_OK)
            status = output_finish(output, &file, error);
        else
            output_abort(output);
    }
    if (status == TRIREME_OK) {
        // Identifies the model as it is read back: what the file does not say is not part of it.
        struct model_config written;
        trireme_error none;
        if (model_config_parse(&written, text.text, text.length, "config.json", &none) == TRIREME_OK)
            model_config_identify(&written, file.model);
        directory_record(directory, &file);
        checksum_file_release(&file);
    }
    text_release(&text);
    if (status == TRIREME_OK && config->lora.rank > 0) {
        lora_write(config, &text);
        status = output_write(directory_path(directory), LORA_CONFIG, text.text, text.length, error);
        text_release(&text);
    }
    return status;
}

const char *model_files_stem(const struct model_config *config) {
    return config->lora.rank > 0 ? "adapter_model" : "model";
}

trireme_status model_files_declare(struct image_set *set, const struct model_config *config,
                                   const struct parameter_table *table, enum dtype dtype, int group, int frozen,
                                   trireme_error *error) {
    struct sources sources;
    trireme_status status = TRIREME_OK;
    char base[CHECKSUM_HEX] = "";
    sources_create(&sources, config, table, config->lora.rank > 0);
    safetensors_layout_metadata(&set->layout, "format", "pt");
    if (config->lora.rank > 0 && config->lora.base)
        model_files_identify(config->lora.base, base);
    if (*base)
        safetensors_layout_metadata(&set->layout, BASE_KEY, base);
    for (size_t i = 0; i < sources.item.count && status == TRIREME_OK; i++) {
        const struct source *source = &sources.item.item[i];
        struct image_source what = source_image(source);
        what.group = source->parameter->frozen ? frozen : group;
        what.size = (int)dtype_size(dtype);
        int64_t shape[2];
        file_shape(source, shape);
        status = image_declare(set, source->piece->name, convert_stored(dtype), source->parameter->ndim, shape, &what,
                               error);
    }
    sources_release(&sources);
    return status;
}

// ---- finding the tensors

#define HEAD "lm_head.weight"

// What the names of tensors begin with in files, in place of what is theirs in `transformers`: nothing in those of a
// model without a head; something more in those of a model with images, whose other tensors are left out.
static const struct file_prefix {
    const char *base; // in place of the architecture's
    const char *all;  // before names that do not begin with that
    bool wrapped;
} PREFIXES[] = {{NULL, "", false},
                {"", "", false},
                {"language_model.model.", "language_model.", true},
                {"model.language_model.", "", true}};

// A directory that is being matched with a model: which tensor each source is, and which tensors have been met.
struct match {
    const char *path;
    const struct model_config *config;
    struct safetensors *files;
    const struct sources *sources;
    int64_t vocab_size; // in the files
    const struct file_prefix *prefix;
    const struct safetensors_tensor **tensor; // [sources]
    bool *met;                                // [tensors of the files]
};

static const struct safetensors_tensor *find_named(const struct match *m, const struct file_prefix *prefix,
                                                   const char *name) {
    const char *base = model_tensor_base(m->config);
    const size_t length = strlen(base);
    const bool based = strncmp(name, base, length) == 0;
    char *theirs = mem_printf("%s%s", based ? prefix->base ?: base : prefix->all, based ? name + length : name);
    const struct safetensors_tensor *t = safetensors_find(m->files, theirs);
    free(theirs);
    return t;
}

// The prefix with which the files have the first of the tensors, the embedding.
static const struct file_prefix *find_prefix(const struct match *m) {
    for (size_t i = 0; i < ARRAY_LENGTH(PREFIXES); i++)
        if (find_named(m, &PREFIXES[i], m->sources->item.item[0].piece->name))
            return &PREFIXES[i];
    return PREFIXES;
}

// GPT-NeoX's head is "embed_out" in files of transformers 4.
static const struct safetensors_tensor *find_tensor(const struct match *m, const struct source *source) {
    const struct safetensors_tensor *t = find_named(m, m->prefix, source->piece->name);
    // Where the two are tied, files may hold either.
    const bool embedding = parameter_is_token_embedding(source->parameter);
    if (!t && source->parameter->is_vocabulary && (!embedding || m->config->tie_word_embeddings))
        t = find_named(m, m->prefix, HEAD);
    return t;
}

static trireme_status match_sources(struct match *m, trireme_error *error) {
    size_t missing = 0, first_missing = 0;
    for (size_t i = 0; i < m->sources->item.count; i++) {
        const struct source *source = &m->sources->item.item[i];
        const struct safetensors_tensor *t = m->tensor[i] = find_tensor(m, source);
        if (!t) {
            if (!source->zero && missing++ == 0)
                first_missing = i;
            continue;
        }
        m->met[t - m->files->tensor.item] = true;
    }
    if (missing == 0)
        return TRIREME_OK;
    const char *name = m->sources->item.item[first_missing].piece->name;
    if (missing == 1)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: tensor \"%s\" is missing", m->path, name);
    FAIL(TRIREME_ERROR_CORRUPT, "%s: tensor \"%s\" is missing, and %zu more", m->path, name, missing - 1);
}

// Numbers [first, first + count) of a tensor.
static trireme_status read_numbers(struct safetensors *files, const struct safetensors_tensor *t, int64_t first,
                                   int64_t count, double *out, trireme_error *error) {
    const uint64_t stored = safetensors_dtype_bits(t->dtype) / 8, bytes = (uint64_t)count * stored;
    void *raw = mem_alloc(bytes);
    trireme_status status = safetensors_read(files, t, (uint64_t)first * stored, bytes, raw, error);
    if (status == TRIREME_OK)
        convert_decode(t->dtype, raw, count, out);
    free(raw);
    return status;
}

static trireme_status check_zeros(const struct match *m, const struct safetensors_tensor *t, int64_t count,
                                  trireme_error *error) {
    double *value = mem_alloc((size_t)count * sizeof *value);
    trireme_status status = read_numbers(m->files, t, 0, count, value, error);
    for (int64_t i = 0; i < count && status == TRIREME_OK; i++)
        if (value[i] != 0)
            status = error_set(error, TRIREME_ERROR_CORRUPT,
                               "%s: tensor \"%s\": expected zeros, as config.json says \"bias\": false, found %g",
                               safetensors_path(m->files, t), t->name, value[i]);
    free(value);
    return status;
}

static trireme_status model_check_shapes(const struct match *m, trireme_error *error) {
    for (size_t i = 0; i < m->sources->item.count; i++) {
        const struct source *source = &m->sources->item.item[i];
        const struct safetensors_tensor *t = m->tensor[i];
        int64_t shape[2];
        file_shape(source, shape);
        if (!t)
            continue;
        if (source->parameter->is_vocabulary && t->ndim > 0)
            shape[0] += m->vocab_size - m->config->vocab_size;
        if (!convert_readable(t->dtype))
            FAIL(TRIREME_ERROR_CORRUPT, "%s: tensor %s: of dtype %s; models of F32, BF16, F16 and F64 are read",
                 safetensors_path(m->files, t), t->name, safetensors_dtype_name(t->dtype));
        TRY(safetensors_expect(m->files, t, t->dtype, source->parameter->ndim, shape, error));
        if (source->zero)
            TRY(check_zeros(m, t, shape[0], error));
    }
    return TRIREME_OK;
}

static bool is_buffer(const struct model_config *config, const char *name) {
    static const char *const ENDS[] = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"};
    if (config->family == FAMILY_GPT2)
        return text_ends(name, ".attn.bias") || text_ends(name, ".attn.masked_bias");
    for (size_t i = 0; i < ARRAY_LENGTH(ENDS); i++)
        if (text_ends(name, ENDS[i]))
            return true;
    return false;
}

static trireme_status check_tied_head(const struct match *m, const struct safetensors_tensor *head,
                                      trireme_error *error) {
    enum { PIECE = 1 << 20 };
    const struct safetensors_tensor *embed = m->tensor[0]; // the table's first
    bool same = embed->dtype == head->dtype && embed->bytes == head->bytes;
    char *pieces = mem_alloc(2 * PIECE);
    trireme_status status = TRIREME_OK;
    for (uint64_t done = 0; done < embed->bytes && same && status == TRIREME_OK; done += PIECE) {
        const uint64_t now = MIN((uint64_t)PIECE, embed->bytes - done);
        status = safetensors_read(m->files, embed, done, now, pieces, error);
        if (status == TRIREME_OK)
            status = safetensors_read(m->files, head, done, now, pieces + PIECE, error);
        same = status != TRIREME_OK || memcmp(pieces, pieces + PIECE, now) == 0;
    }
    free(pieces);
    TRY(status);
    if (same)
        return TRIREME_OK;
    FAIL(TRIREME_ERROR_CORRUPT,
         "%s: tensor \"lm_head.weight\" differs from the embedding, but \"tie_word_embeddings\" says that they are one",
         safetensors_path(m->files, head));
}

static trireme_status check_unexpected(const struct match *m, trireme_error *error) {
    for (size_t i = 0; i < m->files->tensor.count; i++) {
        const struct safetensors_tensor *t = &m->files->tensor.item[i];
        const bool head = t == find_named(m, m->prefix, HEAD);
        if (m->met[i] || is_buffer(m->config, t->name) || (m->prefix->wrapped && !head))
            continue;
        if (head && m->config->tie_word_embeddings) {
            TRY(check_tied_head(m, t, error));
            continue;
        }
        char name[JSON_EXCERPT_BYTES];
        FAIL(TRIREME_ERROR_CORRUPT, "%s: tensor %s is unexpected: the model has none of that name",
             safetensors_path(m->files, t), json_excerpt(t->name, name));
    }
    return TRIREME_OK;
}

// Matches a directory's files, whose vocabulary may have another size, with a model; to be followed by match_release.
static trireme_status match_make(struct match *m, const char *path, struct safetensors *files,
                                 const struct model_config *config, int64_t vocab_size, const struct sources *sources,
                                 trireme_error *error) {
    *m = (struct match){.path = path, .config = config, .files = files, .sources = sources, .vocab_size = vocab_size};
    m->prefix = find_prefix(m);
    m->tensor = mem_alloc(sources->item.count * sizeof *m->tensor);
    m->met = mem_alloc(files->tensor.count * sizeof *m->met);
    TRY(match_sources(m, error));
    TRY(model_check_shapes(m, error));
    return check_unexpected(m, error);
}

static void match_release(struct match *m) {
    free(m->tensor);
    free(m->met);
}

// ---- loading

// The mean of the rows of a tensor.
static trireme_status mean_row(const struct match *m, const struct safetensors_tensor *t, int64_t rows, int64_t columns,
                               double *out, trireme_error *error) {
    enum { NUMBERS = 1 << 16 };
    const int64_t most = MAX(1, NUMBERS / columns);
    double *piece = mem_alloc((size_t)(most * columns) * sizeof *piece);
    trireme_status status = TRIREME_OK;
    for (int64_t row = 0; row < rows && status == TRIREME_OK; row += most) {
        const int64_t count = MIN(rows - row, most) * columns;
        status = read_numbers(m->files, t, row * columns, count, piece, error);
        for (int64_t i = 0; i < count && status == TRIREME_OK; i++)
            out[i % columns] += piece[i];
    }
    for (int64_t i = 0; i < columns; i++)
        out[i] /= (double)rows;
    free(piece);
    return status;
}

// A vocabulary of another size: the rows that both have, and new ones.
static trireme_status load_resized(const struct match *m, const struct safetensors_tensor *t,
                                   const struct image_source *whole, struct tensor_reader *reader,
                                   const struct parameter_values *values, const struct parameter_values *remainders,
                                   trireme_error *error) {
    const int64_t columns = whole->columns, kept = MIN(m->vocab_size, whole->rows);
    struct image_source part = *whole;
    struct safetensors_tensor taken = *t;
    CHECK(!whole->transposed && whole->row == 0);
    part.rows = kept;
    taken.bytes = t->bytes / (uint64_t)m->vocab_size * (uint64_t)kept;
    TRY(tensor_reader_take(reader, &taken, &part, values, remainders, error));
    if (kept == whole->rows)
        return TRIREME_OK;
    double *mean = mem_alloc((size_t)columns * sizeof *mean);
    const trireme_status status = mean_row(m, t, kept, columns, mean, error);
    part.row = kept;
    part.rows = whole->rows - kept;
    if (status == TRIREME_OK)
        tensor_reader_fill(reader, &part, mean, values, remainders);
    free(mean);
    return status;
}

// The pieces of one parameter, which are sources [first, first + pieces).
static trireme_status load_parameter(const struct match *m, size_t first, struct tensor_reader *reader,
                                     const struct parameter_values *values, const struct parameter_values *remainders,
                                     trireme_error *error) {
    const struct source *source = &m->sources->item.item[first];
    parameter_values_clear_padding(values, source->number, source->parameter);
    if (remainders) // tensors may have none
        parameter_values_clear(remainders, source->number);
    for (int i = 0; i < source->parameter->pieces; i++) {
        const struct image_source piece = source_image(&source[i]);
        if (source->parameter->is_vocabulary && m->vocab_size != m->config->vocab_size) {
            TRY(load_resized(m, m->tensor[first + (size_t)i], &piece, reader, values, remainders, error));
            continue;
        }
        TRY(tensor_reader_take(reader, m->tensor[first + (size_t)i], &piece, values, remainders, error));
    }
    return TRIREME_OK;
}

static trireme_status load_matched(const struct match *m, const struct parameter_values *values,
                                   const struct parameter_values *remainders, const struct checksum_watch *watch,
                                   trireme_error *error) {
    struct tensor_reader reader;
    trireme_status status = TRIREME_OK;
    tensor_reader_create(&reader, m->files, watch);
    reader.finite = true;
    for (size_t i = 0; i < m->sources->item.count && status == TRIREME_OK;
         i += (size_t)m->sources->item.item[i].parameter->pieces) {
        if (m->sources->item.item[i].zero)
            break; // they come after all others
        status = load_parameter(m, i, &reader, values, remainders, error);
    }
    tensor_reader_release(&reader);
    return status;
}

trireme_status model_files_check(const char *path, const struct model_config *config, bool exact,
                                 trireme_error *error) {
    struct model_config stored;
    TRY(model_config_read_on(&stored, path, config->lora.base ?: "", error));
    trireme_status status = model_config_compare(&stored, config, exact, error);
    return status == TRIREME_OK ? status : error_prefix(error, status, "%s", path);
}

// Fills the model's own parameters, or its adapters, from files with a vocabulary of that size.
static trireme_status load_files(const char *path, const struct model_config *config, int64_t vocab_size,
                                 const struct parameter_table *table, bool adapters,
                                 const struct parameter_values *values, const struct parameter_values *remainders,
                                 const struct checksum_watch *watch, trireme_error *error) {
    struct safetensors *files;
    struct sources sources;
    struct match match;
    TRY(safetensors_open(path, &files, error));
    sources_create(&sources, config, table, adapters);
    trireme_status status = match_make(&match, path, files, config, vocab_size, &sources, error);
    if (status == TRIREME_OK)
        status = load_matched(&match, values, remainders, watch, error);
    match_release(&match);
    sources_release(&sources);
    safetensors_close(files);
    return status;
}

// The file of a directory's adapters. The caller frees it.
static trireme_status find_adapters(const char *path, char **out, trireme_error *error) {
    char *file = mem_printf("%s/" LORA_WEIGHTS, path);
    if (!file_missing(file)) {
        *out = file;
        return TRIREME_OK;
    }
    free(file);
    FAIL(TRIREME_ERROR_CORRUPT, "%s: holds no " LORA_WEIGHTS ": adapters in other files are saved anew with PEFT",
         path);
}

trireme_status model_files_load(const char *path, const struct model_config *config,
                                const struct parameter_table *table, const struct parameter_values *values,
                                const struct parameter_values *remainders, bool exact,
                                const struct checksum_watch *watch, trireme_error *error) {
    CHECK(!remainders || values->dtype == DTYPE_BF16);
    const bool adapted = config->lora.rank > 0 && lora_is_directory(path);
    char *adapters = NULL;
    struct model_config stored;
    if (adapted)
        TRY(lora_check_base(path, config->lora.base, error));
    TRY(model_files_check(path, config, exact, error));
    TRY(model_config_read_on(&stored, path, config->lora.base ?: "", error));
    if (adapted)
        TRY(find_adapters(path, &adapters, error));
    // Beside adapters the model is rounded, as it is when a run goes on.
    trireme_status status = load_files(adapted ? config->lora.base : path, config, stored.vocab_size, table, false,
                                       values, config->lora.rank > 0 ? NULL : remainders, watch, error);
    if (status == TRIREME_OK && adapted)
        status = load_files(adapters, config, stored.vocab_size, table, true, values, remainders, watch, error);
    free(adapters);
    return status;
}

trireme_status model_files_open_adapters(const char *path, const struct model_config *config, struct safetensors **out,
                                         trireme_error *error) {
    char *file = NULL;
    struct parameter_table table;
    struct sources sources;
    struct match match;
    TRY(find_adapters(path, &file, error));
    trireme_status status = safetensors_open(file, out, error);
    if (status == TRIREME_OK) {
        parameter_table_create(&table, config);
        sources_create(&sources, config, &table, true);
        status = match_make(&match, file, *out, config, config->vocab_size, &sources, error);
        match_release(&match);
        sources_release(&sources);
        parameter_table_release(&table);
        if (status != TRIREME_OK)
            safetensors_close(*out);
    }
    free(file);
    return status;
}

trireme_status model_files_check_base(const char *path, const struct model_config *config, trireme_error *error) {
    char *adapters = NULL, base[CHECKSUM_HEX];
    struct safetensors *files;
    if (config->lora.rank == 0)
        return TRIREME_OK;
    TRY(find_adapters(path, &adapters, error));
    trireme_status status = safetensors_open(adapters, &files, error);
    free(adapters);
    TRY(status);
    const char *trained = safetensors_metadata(files, BASE_KEY);
    model_files_identify(config->lora.base, base);
    if (trained && *base && strcmp(trained, base) != 0)
        status = error_set(error, TRIREME_ERROR_USAGE,
                           "%s: its adapters were trained on other weights than those in %s: give the directory of the "
                           "model as lora.base_model",
                           path, config->lora.base);
    safetensors_close(files);
    return status;
}

trireme_status model_files_find(const char *path, struct safetensors *files, const struct model_config *config,
                                struct model_tensors *out, trireme_error *error) {
    struct parameter_table table;
    struct sources sources;
    struct match match;
    parameter_table_create(&table, config);
    sources_create(&sources, config, &table, false);
    trireme_status status = match_make(&match, path, files, config, config->vocab_size, &sources, error);
    *out = (struct model_tensors){0};
    for (size_t i = 0; i < sources.item.count && status == TRIREME_OK; i++) {
        const struct source *source = &sources.item.item[i];
        int64_t shape[2];
        file_shape(source, shape);
        VEC_PUSH(out, (struct model_tensor){.name = mem_strdup(source->piece->name),
                                            .tensor = match.tensor[i],
                                            .rows = shape[0],
                                            .columns = source->parameter->ndim == 1 ? 1 : shape[1],
                                            .ndim = source->parameter->ndim,
                                            .transposed = source->piece->transposed,
                                            .heads = source->piece->heads});
    }
    match_release(&match);
    sources_release(&sources);
    parameter_table_release(&table);
    return status;
}

void model_tensors_release(struct model_tensors *tensors) {
    for (size_t i = 0; i < tensors->count; i++)
        free(tensors->item[i].name);
    VEC_RELEASE(tensors);
}

void model_files_identify(const char *path, char hex[CHECKSUM_HEX]) {
    enum { SAMPLE = 4096 };
    struct safetensors *files;
    trireme_error ignored;
    *hex = 0;
    if (safetensors_open(path, &files, &ignored) != TRIREME_OK)
        return;
    struct checksum sum;
    bool readable = true;
    checksum_begin(&sum);
    for (size_t i = 0; i < files->tensor.count; i++) {
        const struct safetensors_tensor *t = &files->tensor.item[i];
        char type[SAFETENSORS_TYPE_TEXT];
        safetensors_type_text(t->dtype, t->ndim, t->shape, type);
        checksum_add(&sum, t->name, strlen(t->name) + 1);
        checksum_add(&sum, type, strlen(type) + 1);
        char sample[SAMPLE];
        const uint64_t bytes = MIN(t->bytes, (uint64_t)SAMPLE);
        readable &= safetensors_read(files, t, 0, bytes, sample, &ignored) == TRIREME_OK;
        checksum_add(&sum, sample, readable ? bytes : 0);
    }
    checksum_end(&sum, hex);
    if (!readable)
        *hex = 0;
    safetensors_close(files);
}

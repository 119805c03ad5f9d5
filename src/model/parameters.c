// The table of a model's parameters: our names and Hugging Face's, shapes, and initial values.
#include "base/math.h"
#include "base/rng.h"
#include "model/layer.h"

#include <fnmatch.h>
#include <math.h>

// ---- what parts declare their parameters with

// Alike parameters of a unit stand together.
enum { ORDER_MATRIX, ORDER_NORM, ORDER_VECTOR };

static int order_of(const struct parameter *p) {
    return p->decayed ? ORDER_MATRIX : p->of_stream ? ORDER_NORM : ORDER_VECTOR;
}

static struct parameter *builder_add(struct builder *b, const char *name, int ndim, int64_t rows, int64_t columns,
                                     parameter_rule *rule) {
    VEC_PUSH(&b->table->parameters, (struct parameter){.name = mem_printf("%s%s", b->prefix, name),
                                                       .ndim = ndim,
                                                       .dim = {rows, columns},
                                                       .unit = (int)b->table->units.count - 1,
                                                       .part = b->part,
                                                       .decayed = ndim == 2,
                                                       .init = INIT_ZERO,
                                                       .rule = rule});
    return &b->table->parameters.item[b->table->parameters.count - 1];
}

void builder_piece(struct builder *b, struct parameter *p, const char *name, int64_t rows, bool transposed) {
    int64_t row = parameter_rows(p);
    p->piece = mem_resize(p->piece, (size_t)(p->pieces + 1) * sizeof *p->piece);
    p->piece[p->pieces++] = (struct parameter_piece){
        .name = mem_printf("%s%s", b->hf_prefix, name), .row = row, .rows = rows, .transposed = transposed};
    b->table->total += rows * p->dim[1];
    if (p->ndim == 2 || row == 0) // a vector is one, whatever it is in files
        builder_matrix_from(p, row);
}

void builder_matrix_from(struct parameter *p, int64_t row) {
    CHECK(p->whole_matrices < (int)ARRAY_LENGTH(p->matrix_row));
    p->matrix_row[p->whole_matrices++] = row;
}

struct parameter *builder_matrix(struct builder *b, const char *name, int64_t rows, int64_t columns, double std,
                                 parameter_rule *rule) {
    struct parameter *p = builder_add(b, name, 2, rows, columns, rule);
    p->init = INIT_NORMAL;
    p->std = std;
    return p;
}

struct parameter_piece *builder_tensor(struct builder *b, struct parameter *p, const char *stem, int64_t rows) {
    char *name = mem_printf("%s%s", stem, strrchr(p->name, '.'));
    builder_piece(b, p, name, rows, p->ndim == 2 && architecture_names(b->config)->transposed);
    free(name);
    return &p->piece[p->pieces - 1];
}

void builder_single(struct builder *b, struct parameter *p, const char *hf) {
    builder_piece(b, p, hf, p->dim[0], false);
}

struct parameter *builder_vector(struct builder *b, const char *name, const char *hf, int64_t n,
                                 enum parameter_init init, parameter_rule *rule) {
    struct parameter *p = builder_add(b, name, 1, n, 1, rule);
    p->init = init;
    if (hf)
        builder_single(b, p, hf);
    return p;
}

void builder_norm(struct builder *b, const char *name, const char *hf) {
    const struct model_config *c = b->config;
    char *ours = mem_printf("%s.weight", name), *theirs = mem_printf("%s.weight", hf);
    const enum parameter_init init = c->form.norm == NORM_RMS_PLUS_ONE ? INIT_ZERO : INIT_ONE;
    builder_vector(b, ours, theirs, c->hidden_size, init, NULL)->of_stream = true;
    free(ours), free(theirs);
    if (c->form.norm != NORM_LAYER || !c->bias)
        return;
    ours = mem_printf("%s.bias", name), theirs = mem_printf("%s.bias", hf);
    builder_vector(b, ours, theirs, c->hidden_size, INIT_ZERO, NULL);
    free(ours), free(theirs);
}

double builder_std(const struct builder *b) {
    return b->config->initializer_range;
}

double builder_residual_std(const struct builder *b) {
    const struct model_config *c = b->config;
    // Radford et al. 2019: what is added to the residual stream begins smaller, by the root of the number of additions.
    return c->family == FAMILY_GPT2 ? c->initializer_range / sqrt((double)LAYER_PARTS * (double)c->num_hidden_layers)
                                    : c->initializer_range;
}

// ---- the table

static void begin_unit(struct builder *b, char *name, const char *prefix, const char *hf_prefix) {
    VEC_PUSH(&b->table->units, name);
    b->prefix = prefix;
    b->hf_prefix = hf_prefix;
}

// Puts the parameters from `first` on into the order of their kinds, stably.
static void order_unit(struct parameter_table *table, size_t first) {
    struct parameter *item = table->parameters.item;
    for (size_t i = first + 1; i < table->parameters.count; i++) {
        struct parameter p = item[i];
        size_t at = i;
        for (; at > first && order_of(&item[at - 1]) > order_of(&p); at--)
            item[at] = item[at - 1];
        item[at] = p;
    }
}

static void add_layer(struct builder *b, int64_t layer) {
    const size_t first = b->table->parameters.count;
    const struct tensor_names *names = architecture_names(b->config);
    char *prefix = mem_printf("layers.%lld.", (long long)layer);
    char *hf_prefix = mem_printf("%s%s%lld.", names->base, names->layers, (long long)layer);
    begin_unit(b, mem_printf("layers.%lld", (long long)layer), prefix, hf_prefix);
    b->kind = model_layer(b->config, layer);
    for (b->part = 0; b->part < LAYER_PARTS; b->part++)
        model_layer_part(b->kind, b->part)->parameters(b);
    order_unit(b->table, first);
    b->kind = NULL;
    b->part = 0;
    free(prefix);
    free(hf_prefix);
}

void parameter_table_create(struct parameter_table *table, const struct model_config *config) {
    *table = (struct parameter_table){0};
    struct builder b = {.table = table, .config = config};
    begin_unit(&b, mem_strdup("embed"), "", architecture_names(config)->base);
    embedding_part.parameters(&b);
    for (int64_t layer = 0; layer < config->num_hidden_layers; layer++)
        add_layer(&b, layer);
    begin_unit(&b, mem_strdup("head"), "", "");
    head_part.parameters(&b);
    for (size_t i = 0; i < table->parameters.count; i++) {
        struct parameter *p = &table->parameters.item[i];
        p->whole = (int)i;
        p->section = p->unit;
        p->split = CLASS_WHOLE;
        p->regions = 1;
        p->frozen = config->lora.rank > 0 && !p->adapter;
        table->frozen |= p->frozen;
        p->region[0] = (struct parameter_region){.rows = parameter_rows(p), .columns = p->dim[1]};
    }
    for (int k = 1; k < model_layer_kinds(config); k++)
        table->unlike |= config->kind[k].mixer != config->kind[0].mixer ||
                         config->kind[k].feed_forward != config->kind[0].feed_forward;
    parameter_table_index(table);
}

// ---- what is not trained

bool parameter_unit_frozen(const struct parameter_table *table, int unit) {
    return table->parameters.item[table->first[unit]].frozen;
}

enum { FREEZE_PATTERN = 256 };

// How many of the names of a parameter a pattern matches: ours counts for all of them.
static int freeze_matches(const struct parameter *p, const char *pattern) {
    int matches = 0;
    if (fnmatch(pattern, p->name, 0) == 0)
        return p->pieces;
    for (int i = 0; i < p->pieces; i++)
        matches += fnmatch(pattern, p->piece[i].name, 0) == 0;
    return matches;
}

// Takes the next pattern off *rest, without blanks around it; false: there is none.
static bool freeze_next(const char **rest, char pattern[FREEZE_PATTERN]) {
    const char *begin = *rest + strspn(*rest, " ,"), *end = begin + strcspn(begin, ",");
    *rest = end;
    while (end > begin && end[-1] == ' ')
        end--;
    snprintf(pattern, FREEZE_PATTERN, "%.*s", (int)(end - begin), begin);
    return end > begin;
}

trireme_status parameter_table_freeze(struct parameter_table *table, const char *patterns, trireme_error *error) {
    const size_t count = table->parameters.count;
    int *matched = mem_alloc(count * sizeof *matched);
    char pattern[FREEZE_PATTERN];
    trireme_status status = TRIREME_OK;
    for (const char *rest = patterns; status == TRIREME_OK && freeze_next(&rest, pattern);) {
        bool any = false;
        for (size_t i = 0; i < count; i++) {
            const int matches = freeze_matches(&table->parameters.item[i], pattern);
            matched[i] = MIN(matched[i] + matches, MAX(table->parameters.item[i].pieces, 1));
            any |= matches > 0;
        }
        if (!any)
            status = error_set(error, TRIREME_ERROR_USAGE, "%s: no tensor of the model has such a name", pattern);
    }
    size_t frozen = 0;
    for (size_t i = 0; i < count && status == TRIREME_OK; i++) {
        struct parameter *p = &table->parameters.item[i];
        p->frozen |= matched[i] > 0;
        frozen += p->frozen;
        if (matched[i] > 0 && matched[i] < p->pieces)
            status = error_set(error, TRIREME_ERROR_USAGE,
                               "%s is trained as one with its neighbours (%s): freeze all of them, or none",
                               p->piece[0].name, p->name);
    }
    free(matched);
    table->frozen = frozen > 0;
    if (status == TRIREME_OK && frozen == count && count > 0)
        status = error_set(error, TRIREME_ERROR_USAGE, "nothing is left to train");
    return status;
}

int64_t parameter_table_trained(const struct parameter_table *table) {
    int64_t sum = 0;
    for (size_t i = 0; i < table->parameters.count; i++) {
        const struct parameter *p = &table->parameters.item[i];
        sum += p->frozen ? 0 : parameter_rows(p) * p->dim[1];
    }
    return sum;
}

static int parameters_compare_names(const void *a, const void *b, void *table) {
    const struct parameter *parameter = ((const struct parameter_table *)table)->parameters.item;
    return strcmp(parameter[*(const int *)a].name, parameter[*(const int *)b].name);
}

void parameter_table_index(struct parameter_table *table) {
    size_t count = table->parameters.count;
    table->by_name = mem_alloc(count * sizeof *table->by_name);
    for (size_t i = 0; i < count; i++)
        table->by_name[i] = (int)i;
    qsort_r(table->by_name, count, sizeof *table->by_name, parameters_compare_names, table);
    table->first = mem_alloc((table->units.count + 1) * sizeof *table->first);
    size_t at = 0;
    for (size_t u = 0; u <= table->units.count; u++) {
        table->first[u] = (int)at;
        while (at < count && table->parameters.item[at].unit == (int)u)
            at++;
    }
    CHECK(at == count);
}

int parameter_find(const struct parameter_table *table, const char *name) {
    const struct parameter *all = table->parameters.item;
    size_t count = table->parameters.count;
    size_t at = PARTITION_POINT(i, count, strcmp(all[table->by_name[i]].name, name) < 0);
    return at < count && strcmp(all[table->by_name[at]].name, name) == 0 ? table->by_name[at] : NONE;
}

void parameter_table_release(struct parameter_table *table) {
    for (size_t i = 0; i < table->parameters.count; i++) {
        struct parameter *p = &table->parameters.item[i];
        for (int j = 0; j < p->pieces; j++)
            free(p->piece[j].name);
        free(p->piece);
        free(p->name);
    }
    for (size_t i = 0; i < table->units.count; i++)
        free(table->units.item[i]);
    free(table->by_name);
    free(table->first);
    table->by_name = table->first = NULL;
    VEC_RELEASE(&table->parameters);
    VEC_RELEASE(&table->units);
}

int parameter_embedding(const struct parameter_table *table) {
    for (size_t i = 0; i < table->parameters.count; i++)
        if (parameter_is_token_embedding(&table->parameters.item[i]))
            return (int)i;
    return NONE;
}

int64_t parameter_rows(const struct parameter *parameter) {
    if (parameter->pieces == 0)
        return 0;
    const struct parameter_piece *last = &parameter->piece[parameter->pieces - 1];
    return last->row + last->rows;
}

// ---- initial values

// Pair `index` of the stream: two numbers from [-1, 1), or two independent normal ones (Box and Muller 1958).
static void initial_pair(enum parameter_init init, uint64_t seed, uint64_t stream, uint64_t index, double out[2]) {
    double uniform[2], sine, cosine;
    rng_uniform_pair(seed, stream, index, uniform);
    if (init == INIT_UNIFORM) {
        out[0] = 2 * uniform[0] - 1;
        out[1] = 2 * uniform[1] - 1;
        return;
    }
    double length = sqrt(-2 * math_log(1 - uniform[0])); // of (0, 1]
    math_sin_cos(2 * M_PI * uniform[1], &sine, &cosine);
    out[0] = length * cosine;
    out[1] = length * sine;
}

void parameter_initial_range(const struct parameter *parameter, uint64_t seed, int64_t first, int64_t count,
                             double *out) {
    int64_t end = parameter_rows(parameter) * parameter->dim[1]; // of what is not padding
    CHECK(first >= 0 && count >= 0 && first + count <= parameter_count(parameter));
    uint64_t stream = rng_stream(parameter->name);
    for (int64_t i = 0; i < count;) {
        int64_t index = first + i;
        if (index >= end || parameter->init == INIT_ZERO || parameter->init == INIT_ONE) {
            out[i++] = index < end && parameter->init == INIT_ONE ? 1 : 0;
            continue;
        }
        double pair[2];
        initial_pair(parameter->init, seed, stream, (uint64_t)index / 2, pair);
        for (int64_t j = index % 2; j < 2 && i < count && index < end; j++, i++, index++)
            out[i] = parameter->std * pair[j];
    }
}

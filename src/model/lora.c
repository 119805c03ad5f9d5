#include "model/lora.h"
#include "model/layer.h"

#include <math.h>

double lora_scale(const struct lora *lora, int64_t rank, double alpha) {
    return alpha / (lora->rslora ? sqrt((double)rank) : (double)rank);
}

// ---- which layers

int lora_next(const char **rest, const char **name) {
    const char *begin = *rest + strspn(*rest, " ,"), *end = begin + strcspn(begin, ",");
    *rest = end;
    while (end > begin && end[-1] == ' ')
        end--;
    *name = begin;
    return (int)(end - begin);
}

bool lora_names(const char *name, int length, const char *module) {
    const size_t all = strlen(module), n = (size_t)length;
    return n <= all && memcmp(module + all - n, name, n) == 0 && (n == all || module[all - n - 1] == '.');
}

bool lora_adapts(const struct lora *lora, const char *module) {
    const char *name;
    for (const char *rest = lora->targets; true;) {
        const int length = lora_next(&rest, &name);
        if (length == 0 || lora_names(name, length, module))
            return length > 0;
    }
}

int64_t lora_rank_of(const struct lora *lora, const char *module, double *scale) {
    long long rank = lora->rank;
    double alpha = lora->alpha;
    const size_t length = strlen(module);
    for (const char *line = lora->others; line && *line; line += strcspn(line, "\n") + 1)
        if (strncmp(line, module, length) == 0 && line[length] == ' ') {
            char *end;
            rank = strtoll(line + length, &end, 10);
            alpha = strtod(end, NULL);
            break;
        }
    *scale = lora_scale(lora, rank, alpha);
    return lora_adapts(lora, module) ? rank : 0;
}

int lora_stems(const struct model_config *c, const char *stem[LORA_STEMS]) {
    const struct tensor_names *names = architecture_names(c);
    const char *const all[LORA_STEMS] = {names->qkv[0], names->qkv[1], names->qkv[2], names->out,
                                         names->up[0],  names->up[1],  names->down};
    int count = 0;
    for (int i = 0; i < LORA_STEMS; i++)
        if (all[i])
            stem[count++] = all[i];
    return count;
}

static bool lora_is_there(const struct model_config *c, const char *name, int length) {
    const struct tensor_names *names = architecture_names(c);
    const char *stem[LORA_STEMS];
    const int stems = lora_stems(c, stem);
    bool is = false;
    for (long long layer = 0; layer < c->num_hidden_layers && !is; layer++)
        for (int i = 0; i < stems && !is; i++) {
            char *module = mem_printf("%s%s%lld.%s", names->base, names->layers, layer, stem[i]);
            is = lora_names(name, length, module);
            free(module);
        }
    return is;
}

static trireme_status refuse_target(const struct model_config *c, const char *name, int length, trireme_error *error) {
    const char *stem[LORA_STEMS];
    struct text there = {0};
    const int stems = lora_stems(c, stem);
    for (int i = 0; i < stems; i++)
        text_add(&there, "%s%s", i ? ", " : "", stem[i]);
    error_set(error, TRIREME_ERROR_USAGE, "no layer is called \"%.*s\"; a block of this model has %s", MIN(length, 80),
              name, there.text);
    text_release(&there);
    return TRIREME_ERROR_USAGE;
}

struct name_list {
    VEC(char *);
};

// What comes behind the last point of each layer's name.
static void add_all_names(const struct model_config *c, struct name_list *out) {
    const char *stem[LORA_STEMS];
    const int stems = lora_stems(c, stem);
    for (int i = 0; i < stems; i++)
        VEC_PUSH(out, mem_strdup(strrchr(stem[i], '.') + 1));
}

static trireme_status add_names(const struct model_config *c, const char *list, struct name_list *out,
                                trireme_error *error) {
    const char *name;
    for (const char *rest = list; true;) {
        const int length = lora_next(&rest, &name);
        if (length == 0)
            break;
        if (!lora_is_there(c, name, length))
            return refuse_target(c, name, length, error);
        VEC_PUSH(out, mem_printf("%.*s", length, name));
    }
    if (out->count == 0)
        FAIL(TRIREME_ERROR_USAGE, "no layer is named");
    return TRIREME_OK;
}

void lora_keep_targets(struct model_config *c, char **name, size_t count) {
    struct text sorted = {0};
    qsort(name, count, sizeof *name, text_compare);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(name[i], name[i - 1]) != 0)
            text_add(&sorted, "%s%s", i ? "," : "", name[i]);
    c->lora.targets = reader_keep(&sorted);
}

trireme_status lora_set_targets(struct model_config *c, const char *list, trireme_error *error) {
    struct name_list names = {0};
    trireme_status status = TRIREME_OK;
    if (strcmp(list, "all-linear") == 0)
        add_all_names(c, &names);
    else
        status = add_names(c, list, &names, error);
    if (status == TRIREME_OK)
        lora_keep_targets(c, names.item, names.count);
    for (size_t i = 0; i < names.count; i++)
        free(names.item[i]);
    VEC_RELEASE(&names);
    return status;
}

// ---- the user's keys

// Refuses a key that was set to something else than what the adapters of the weights have.
static trireme_status lora_same(const struct config *keys, const char *key, bool same, trireme_error *error) {
    if (!config_is_set(keys, key) || same)
        return TRIREME_OK;
    return config_refuse(keys, key, error, "but the adapters in %s are others: leave it out, or merge these first",
                         keys->model.init_from);
}

// An object of a key that is JSON; NULL where it is not set.
static trireme_status lora_patterns(const struct config *keys, const char *key, const char *text, json_t **out,
                                    trireme_error *error) {
    trireme_error why;
    *out = NULL;
    if (!*text)
        return TRIREME_OK;
    if (json_parse(text, strlen(text), key, out, &why) != TRIREME_OK || !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return config_refuse(keys, key, error, "expected patterns and numbers, as in {\"down_proj\": 16}");
    }
    return TRIREME_OK;
}

// Takes over which layers the keys choose. A text that is no list of names is a regular expression.
static trireme_status lora_take(struct model_config *c, const struct config *keys, trireme_error *error) {
    const struct config_lora *k = &keys->lora;
    json_t *ranks, *alphas = NULL;
    TRY(lora_patterns(keys, "lora.rank_pattern", k->rank_pattern, &ranks, error));
    trireme_status status = lora_patterns(keys, "lora.alpha_pattern", k->alpha_pattern, &alphas, error);
    if (status == TRIREME_OK) {
        const struct lora_choice choice = {.targets = k->target_modules,
                                           .expression = strpbrk(k->target_modules, "*+?[](){}|^$\\") != NULL,
                                           .ranks = ranks,
                                           .alphas = alphas,
                                           .strict = true};
        status = lora_choose(c, &choice, error);
        if (status != TRIREME_OK)
            status = error_prefix(error, status, "%s: lora.target_modules", config_origin(keys, "lora.target_modules"));
    }
    json_decref(ranks);
    json_decref(alphas);
    return status;
}

static bool same_others(const struct lora *a, const struct lora *b) {
    return strcmp(a->others ?: "", b->others ?: "") == 0;
}

static trireme_status lora_compare(const struct model_config *c, const struct config *keys, trireme_error *error) {
    const struct config_lora *k = &keys->lora;
    struct model_config asked = *c;
    TRY(lora_take(&asked, keys, error));
    TRY(lora_same(keys, "lora.rank", k->rank == c->lora.rank, error));
    TRY(lora_same(keys, "lora.alpha", k->alpha == 0 || k->alpha == c->lora.alpha, error));
    TRY(lora_same(keys, "lora.use_rslora", k->use_rslora == c->lora.rslora, error));
    TRY(lora_same(keys, "lora.rank_pattern", same_others(&asked.lora, &c->lora), error));
    TRY(lora_same(keys, "lora.alpha_pattern", same_others(&asked.lora, &c->lora), error));
    return lora_same(keys, "lora.target_modules", strcmp(asked.lora.targets, c->lora.targets) == 0, error);
}

trireme_status lora_override(struct model_config *c, const struct config *keys, trireme_error *error) {
    const struct config_lora *k = &keys->lora;
    const char *from = keys->model.init_from;
    if (c->lora.rank == 0 && *from && lora_is_directory(from)) { // where other keys give the model's sizes
        struct lora_file file;
        TRY(lora_file_read(&file, from, k->base_model, error));
        char *where = mem_printf("%s/" LORA_CONFIG, from);
        const trireme_status status = lora_file_take(&file, where, c, error);
        free(where);
        lora_file_release(&file);
        TRY(status);
    }
    if (c->lora.rank > 0)
        return lora_compare(c, keys, error);
    if (k->rank == 0)
        return TRIREME_OK;
    c->lora.rank = k->rank;
    c->lora.alpha = k->alpha > 0 ? k->alpha : 2 * (double)k->rank;
    c->lora.rslora = k->use_rslora;
    return lora_take(c, keys, error);
}

// ---- parameters

static struct parameter *add_factor(struct builder *b, const char *name, const char *stem, const char *ours,
                                    const char *theirs, int64_t rows, int64_t columns, parameter_rule *rule) {
    char *full = mem_printf("%s.%s", name, ours), *tensor = mem_printf("%s.%s.weight", stem, theirs);
    struct builder peft = *b;
    char *prefix = mem_printf(LORA_PREFIX "%s", b->hf_prefix);
    peft.hf_prefix = prefix;
    struct parameter *p = builder_matrix(&peft, full, rows, columns, 1 / sqrt((double)columns), rule);
    builder_piece(&peft, p, tensor, rows, false);
    p->adapter = true;
    free(full), free(tensor), free(prefix);
    return p;
}

void builder_adapter(struct builder *b, const char *name, const char *stem, int64_t rows, int64_t columns,
                     int64_t heads, parameter_rule *split_a, parameter_rule *split_b) {
    const struct lora *lora = &b->config->lora;
    if (lora->rank == 0)
        return;
    char *module = mem_printf("%s%s", b->hf_prefix, stem);
    double scale;
    const int64_t rank = lora_rank_of(lora, module, &scale);
    if (rank > 0) {
        add_factor(b, name, stem, "lora_a", "lora_A", rank, columns, split_a)->init = INIT_UNIFORM;
        struct parameter *p = add_factor(b, name, stem, "lora_b", "lora_B", rows, rank, split_b);
        p->init = INIT_ZERO;
        p->scale = scale;
        p->piece[0].heads = heads;
    }
    free(module);
}

// ---- the forward pass

static struct operand lora_factor(const struct emitter *e, int layer, const char *name, const char *factor) {
    char *full = mem_printf("%s.%s", name, factor);
    const struct operand w = emit_parameter(e, layer, full);
    free(full);
    return w;
}

// x A^T, [rows of x, rank].
static int emit_low(struct emitter *e, int layer, const char *name, int x, struct operand a, const char *suffix) {
    char *result = mem_printf("%s.%s", name, suffix);
    const int low = emit_new_activation(e, layer, result, e->program->buffers.item[x].dim[0], a.dim[0]);
    free(result);
    emit_product(e, layer, emit_whole_operand(e, x), a, operand_none(), operand_none(), emit_whole_operand(e, low));
    return low;
}

static int emit_scaled(struct emitter *e, int layer, const char *name, int low) {
    char *result = mem_printf("%s.scaled", name), *factor = mem_printf("layers.%d.%s.lora_b", layer, name);
    const double scale = e->table->parameters.item[parameter_find(e->table, factor)].scale;
    const struct buffer b = e->program->buffers.item[low];
    const int scaled = emit_new_activation(e, layer, result, b.dim[0], b.dim[1]);
    const struct operand in = emit_whole_operand(e, low), out = emit_whole_operand(e, scaled);
    free(result), free(factor);
    emit_forward(e, OP_SCALE, layer, 1, &in, 1, &out,
                 (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(SCALE, factor)] = {.f = scale}});
    return scaled;
}

int emit_adapters(struct emitter *e, int layer, const char *part, int x, const struct emit_band *band, int bands) {
    bool any = false;
    int64_t columns = 0;
    for (int i = 0; i < bands; columns += band[i++].columns)
        any |= lora_factor(e, layer, band[i].b, "lora_b").buffer != NONE;
    if (!any)
        return NONE;
    char *result = mem_printf("%s.adapters", part);
    const int64_t rows = e->program->buffers.item[x].dim[0];
    const int y = emit_new_activation(e, layer, result, rows, columns);
    free(result);
    int64_t at = 0;
    for (int i = 0; i < bands; at += band[i++].columns) {
        const struct operand b = lora_factor(e, layer, band[i].b, "lora_b"), to = {.buffer = y,
                                                                                   .offset = at,
                                                                                   .ndim = 2,
                                                                                   .dim = {rows, band[i].columns},
                                                                                   .stride = {columns, 1}};
        if (b.buffer == NONE) {
            emit_forward(e, OP_ZERO_COLUMNS, layer, 0, NULL, 1, &to, NULL);
            continue;
        }
        const int low = emit_low(e, layer, band[i].b, x, lora_factor(e, layer, band[i].a, "lora_a"), "low");
        emit_product(e, layer, emit_whole_operand(e, emit_scaled(e, layer, band[i].b, low)), b, operand_none(),
                     operand_none(), to);
    }
    return y;
}

int emit_adapter_out(struct emitter *e, int layer, const char *part, int x, int residual) {
    const struct operand b = lora_factor(e, layer, part, "lora_b");
    if (b.buffer == NONE)
        return residual;
    char *low_name = mem_printf("%s.low", part), *result = mem_printf("%s.adapter", part);
    int low = emit_low(e, layer, part, x, lora_factor(e, layer, part, "lora_a"), emit_is_split(e) ? "low.part" : "low");
    if (emit_is_split(e))
        low = emit_leave(e, layer, low_name, low);
    const int scaled = emit_scaled(e, layer, part, low);
    const int y = emit_new_activation(e, layer, result, e->program->buffers.item[low].dim[0], b.dim[0]);
    free(low_name), free(result);
    emit_product(e, layer, emit_whole_operand(e, scaled), b, operand_none(), emit_whole_operand(e, residual),
                 emit_whole_operand(e, y));
    return y;
}

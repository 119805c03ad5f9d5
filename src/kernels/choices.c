#include "kernels/choices.h"

#include "base/amount.h"
#include "base/json.h"
#include "base/utf8.h"
#include "kernels/cpu/isa.h"

enum { CHOICES_VERSION = 1 };

const char *kernel_way_name(enum kernel_way way) {
    static const char *const NAME[KERNEL_WAYS] = {"rule",         "by_rows",      "by_columns",
                                                  "small_blocks", "large_blocks", "narrow"};
    return NAME[way];
}

// ---- the texts that a choice is known by

static void add_tensor(struct text *out, const struct tensor *t) {
    if (!t->data) {
        text_add(out, " -");
        return;
    }
    text_add(out, " %s[", dtype_name(t->dtype));
    bool dense = true;
    int64_t elements = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        dense &= t->stride[d] == elements;
        elements *= t->dim[d];
    }
    for (int d = 0; d < t->ndim; d++)
        text_add(out, "%s%lld", d ? "," : "", (long long)t->dim[d]);
    for (int d = 0; d < t->ndim && !dense; d++)
        text_add(out, "%s%lld", d ? "," : "; ", (long long)t->stride[d]);
    text_add(out, "]");
}

char *choices_call(const struct op_table *table, const struct call *call) {
    struct text out = {0};
    text_add(&out, "%s", table->op[call->op].name);
    for (int i = 0; i < call->inputs; i++)
        add_tensor(&out, &call->in[i]);
    text_add(&out, " ->");
    for (int i = 0; i < call->outputs; i++)
        add_tensor(&out, &call->out[i]);
    text_add(&out, "%s, %s", call->accumulate ? ", accumulate" : "", counted(call->threads, "thread").text);
    return out.text;
}

// The processor's name as the system gives it, and the instruction set that the kernels use.
static char *choices_processor(void) {
    static const char NAME[] = "model name";
    char *line = NULL, *out = NULL;
    size_t capacity = 0;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && !out && getline(&line, &capacity, file) > 0) {
        const char *value = strchr(line, ':');
        if (strncmp(line, NAME, sizeof NAME - 1) == 0 && value && utf8_is_valid(line)) {
            value += 1 + strspn(value + 1, " \t");
            out = mem_printf("%.*s, %s", (int)strcspn(value, "\n"), value, isa_name(isa_best()));
        }
    }
    if (file)
        fclose(file);
    free(line);
    return out ? out : mem_strdup(isa_name(isa_best()));
}

// ---- the table

void choices_create(struct choices *choices) {
    *choices = (struct choices){.on = choices_processor()};
}

static void choices_forget(struct choices *choices, size_t from) {
    while (choices->item.count > from) {
        struct choice *last = &choices->item.item[--choices->item.count];
        free(last->call);
        free(last->on);
    }
}

void choices_release(struct choices *choices) {
    choices_forget(choices, 0);
    VEC_RELEASE(&choices->item);
    free(choices->on);
    *choices = (struct choices){0};
}

const struct choice *choices_find(const struct choices *choices, const struct op_table *table,
                                  const struct call *call) {
    const struct choice *found = NULL;
    char *text = choices_call(table, call);
    for (size_t i = 0; i < choices->item.count && !found; i++) {
        const struct choice *c = &choices->item.item[i];
        if (strcmp(c->call, text) == 0 && strcmp(c->on, choices->on) == 0)
            found = c;
    }
    free(text);
    return found;
}

enum kernel_way choices_way(const struct choices *choices, const struct op_table *table, const struct call *call,
                            unsigned ways) {
    const struct choice *found = choices_find(choices, table, call);
    return found && ways >> found->way & 1 ? found->way : WAY_RULE;
}

// ---- files

void choices_print(const struct choices *choices, struct text *out) {
    json_begin_object(out, NULL);
    json_add_integer(out, "version", CHOICES_VERSION);
    json_begin_array(out, "kernels");
    for (size_t i = 0; i < choices->item.count; i++) {
        const struct choice *c = &choices->item.item[i];
        json_begin_object(out, NULL);
        json_add_string(out, "call", c->call);
        json_add_string(out, "on", c->on);
        json_add_string(out, "way", kernel_way_name(c->way));
        json_begin_object(out, "seconds");
        for (enum kernel_way way = WAY_RULE; way < KERNEL_WAYS; way++)
            if (c->seconds[way] > 0)
                json_add_number(out, kernel_way_name(way), c->seconds[way]);
        json_end_object(out);
        json_end_object(out);
    }
    json_end_array(out);
    json_end_object(out);
    text_add(out, "\n");
}

static trireme_status read_way(const char *where, const char *name, enum kernel_way *out, trireme_error *error) {
    for (enum kernel_way way = WAY_RULE; way < KERNEL_WAYS; way++)
        if (strcmp(name, kernel_way_name(way)) == 0) {
            *out = way;
            return TRIREME_OK;
        }
    char excerpt[JSON_EXCERPT_BYTES];
    FAIL(TRIREME_ERROR_CORRUPT, "%s: \"way\" is %s, which no kernel has", where, json_excerpt(name, excerpt));
}

static trireme_status read_choice(struct choices *choices, const json_t *entry, const char *where,
                                  trireme_error *error) {
    const char *call, *on, *way;
    const json_t *seconds;
    struct choice c = {0};
    if (!json_is_object(entry))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"kernels\" holds what is no object", where);
    TRY(json_read_string(entry, where, "call", JSON_REQUIRED, &call, error));
    TRY(json_read_string(entry, where, "on", JSON_REQUIRED, &on, error));
    TRY(json_read_string(entry, where, "way", JSON_REQUIRED, &way, error));
    TRY(read_way(where, way, &c.way, error));
    TRY(json_read_object(entry, where, "seconds", JSON_REQUIRED, &seconds, error));
    for (enum kernel_way w = WAY_RULE; w < KERNEL_WAYS; w++)
        TRY(json_read_number(seconds, where, kernel_way_name(w), JSON_OPTIONAL, 0, 1e9, &c.seconds[w], error));
    c.call = mem_strdup(call);
    c.on = mem_strdup(on);
    VEC_PUSH(&choices->item, c);
    return TRIREME_OK;
}

static trireme_status read_choices(struct choices *choices, const json_t *root, const char *where,
                                   trireme_error *error) {
    int64_t version;
    const json_t *entries, *entry;
    size_t i;
    TRY(json_read_integer(root, where, "version", JSON_REQUIRED, CHOICES_VERSION, CHOICES_VERSION, &version, error));
    TRY(json_read_array(root, where, "kernels", JSON_REQUIRED, &entries, error));
    json_array_foreach(entries, i, entry) TRY(read_choice(choices, entry, where, error));
    return TRIREME_OK;
}

trireme_status choices_parse(struct choices *choices, const char *text, size_t length, const char *where,
                             trireme_error *error) {
    json_t *root;
    const size_t had = choices->item.count;
    TRY(json_parse(text, length, where, &root, error));
    trireme_status status = read_choices(choices, root, where, error);
    json_decref(root);
    if (status != TRIREME_OK)
        choices_forget(choices, had);
    return status;
}

// Which layers have adapters, and of what rank, as PEFT's adapter_config.json says it: names, regular expressions,
// layers by number, exceptions. What is chosen becomes a list of names, and a list of exceptions by name, so that
// nothing else knows expressions.
//
// PEFT matches with Python's `re`; PCRE2 has what patterns of names use in the same form. They may be hostile: the time
// for all of them is bounded.
#include "base/clock.h"
#include "model/layer.h"
#include "model/lora.h"

#include <float.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { STEPS_MAX = 10000 };                  // back, in one match
static const int64_t TIME_MOST = 2000000000; // for all matches, in nanoseconds

// A layer that may have an adapter.
struct module {
    char *name; // as files call it: "model.layers.3.self_attn.q_proj"
    int64_t layer;
    bool chosen, ranked, weighed; // the last two: a pattern has given it a rank, or an alpha
    int64_t rank;
    double alpha;
};

struct choosing {
    const struct lora_choice *choice;
    struct model_config *model;
    VEC(struct module) modules; // layer by layer
    const char *stem[LORA_STEMS];
    int stems;
    int64_t begun;
    trireme_error *error;
};

static void modules_create(struct choosing *c) {
    const struct tensor_names *names = architecture_names(c->model);
    const struct lora *lora = &c->model->lora;
    c->stems = lora_stems(c->model, c->stem);
    for (int64_t layer = 0; layer < c->model->num_hidden_layers; layer++)
        for (int i = 0; i < c->stems; i++) {
            char *name = mem_printf("%s%s%lld.%s", names->base, names->layers, (long long)layer, c->stem[i]);
            VEC_PUSH(&c->modules,
                     (struct module){.name = name, .layer = layer, .rank = lora->rank, .alpha = lora->alpha});
        }
}

static void modules_release(struct choosing *c) {
    for (size_t i = 0; i < c->modules.count; i++)
        free(c->modules.item[i].name);
    VEC_RELEASE(&c->modules);
}

// ---- regular expressions

// Calls `found` for each layer whose whole name matches.
static trireme_status for_matches(const struct choosing *c, const char *pattern,
                                  void (*found)(struct module *module, const void *what), const void *what,
                                  int64_t *count) {
    trireme_error *error = c->error;
    char reason[128], excerpt[JSON_EXCERPT_BYTES];
    int refusal;
    PCRE2_SIZE at;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_BACKSLASH_C, &refusal, &at, NULL);
    if (!code) {
        pcre2_get_error_message(refusal, (PCRE2_UCHAR *)reason, sizeof reason);
        FAIL(TRIREME_ERROR_USAGE, "pattern %s: %s", json_excerpt(pattern, excerpt), reason);
    }
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    pcre2_set_match_limit(context, STEPS_MAX);
    bool late = false;
    *count = 0;
    for (size_t i = 0; i < c->modules.count && !late; i++) {
        struct module *m = &c->modules.item[i];
        const int result = pcre2_match(code, (PCRE2_SPTR)m->name, strlen(m->name), 0, 0, data, context);
        late = (result < 0 && result != PCRE2_ERROR_NOMATCH) || clock_thread() - c->begun > TIME_MOST;
        if (result >= 0) {
            found(m, what);
            ++*count;
        }
    }
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    if (late)
        FAIL(TRIREME_ERROR_USAGE, "pattern %s: takes too long", json_excerpt(pattern, excerpt));
    return TRIREME_OK;
}

// ---- which

static void module_choose(struct module *m, const void *unused) {
    (void)unused;
    m->chosen = true;
}

static void module_exclude(struct module *m, const void *unused) {
    (void)unused;
    m->chosen = false;
}

static bool names_list(const json_t *list, const char *module) {
    const json_t *one;
    size_t i;
    bool named = false;
    json_array_foreach((json_t *)list, i, one) named |=
        json_is_string(one) && lora_names(json_string_value(one), (int)json_string_length(one), module);
    return named;
}

static bool numbers_list(const json_t *list, int64_t layer) {
    const json_t *one;
    size_t i;
    bool listed = json_is_integer(list) && json_integer_value(list) == layer;
    json_array_foreach((json_t *)list, i, one) listed |= json_is_integer(one) && json_integer_value(one) == layer;
    return listed;
}

static trireme_status choose_layers(const struct choosing *c) {
    trireme_error *error = c->error;
    const struct lora_choice *choice = c->choice;
    int64_t count = 0;
    if (choice->expression)
        TRY(for_matches(c, choice->targets, module_choose, NULL, &count));
    for (size_t i = 0; i < c->modules.count; i++) {
        struct module *m = &c->modules.item[i];
        if (!choice->expression)
            m->chosen = lora_adapts(&c->model->lora, m->name);
        m->chosen = m->chosen && !names_list(choice->exclude, m->name) &&
                    (!choice->layers || numbers_list(choice->layers, m->layer));
    }
    if (json_is_string(choice->exclude))
        TRY(for_matches(c, json_string_value(choice->exclude), module_exclude, NULL, &count));
    count = 0;
    for (size_t i = 0; i < c->modules.count; i++)
        count += c->modules.item[i].chosen;
    if (count == 0)
        FAIL(TRIREME_ERROR_USAGE, "no layer is chosen; they are called %s and so on", c->modules.item[0].name);
    return TRIREME_OK;
}

// The names of what is chosen: that of a layer in a block where all blocks have it.
static void keep_chosen(const struct choosing *c) {
    VEC(char *) names = {0};
    for (int s = 0; s < c->stems; s++) {
        bool all = true;
        for (size_t i = (size_t)s; i < c->modules.count; i += (size_t)c->stems)
            all &= c->modules.item[i].chosen;
        if (all)
            VEC_PUSH(&names, (char *)(uintptr_t)c->stem[s]);
        for (size_t i = (size_t)s; i < c->modules.count && !all; i += (size_t)c->stems)
            if (c->modules.item[i].chosen)
                VEC_PUSH(&names, c->modules.item[i].name);
    }
    lora_keep_targets(c->model, names.item, names.count);
    VEC_RELEASE(&names);
}

// ---- of what rank

// PEFT takes the first pattern that a name ends as.
static void module_rank(struct module *m, const void *rank) {
    if (!m->ranked)
        m->rank = *(const int64_t *)rank;
    m->ranked = true;
}

static void module_weigh(struct module *m, const void *alpha) {
    if (!m->weighed)
        m->alpha = *(const double *)alpha;
    m->weighed = true;
}

static trireme_status match_exceptions(const struct choosing *c, const char *member, const json_t *patterns) {
    trireme_error *error = c->error;
    const bool ranks = patterns == c->choice->ranks;
    const char *key;
    json_t *value;
    char excerpt[JSON_EXCERPT_BYTES];
    json_object_foreach((json_t *)patterns, key, value) {
        const int64_t rank = json_integer_value(value);
        const double alpha = json_number_value(value);
        int64_t count;
        if (ranks ? rank < 1 || rank > LORA_RANK_MAX : !(alpha >= DBL_MIN && alpha <= 1e6))
            FAIL(TRIREME_ERROR_USAGE, "%s: %s cannot be %s", member, json_excerpt(key, excerpt),
                 ranks ? "a rank of less than 1, or more than 65536" : "anything but a positive number");
        char *pattern = mem_printf("(?:.*\\.)?(?:%s)", key);
        trireme_status status = for_matches(c, pattern, ranks ? module_rank : module_weigh,
                                            ranks ? (const void *)&rank : (const void *)&alpha, &count);
        free(pattern);
        TRY(status);
        if (count == 0 && c->choice->strict)
            FAIL(TRIREME_ERROR_USAGE, "%s: no layer is called %s", member, json_excerpt(key, excerpt));
    }
    return TRIREME_OK;
}

static void list_exceptions(const struct choosing *c, struct text *out) {
    const struct lora *lora = &c->model->lora;
    for (size_t i = 0; i < c->modules.count; i++) {
        const struct module *m = &c->modules.item[i];
        if (m->chosen && (m->rank != lora->rank || m->alpha != lora->alpha))
            text_add(out, "%s %lld %.17g\n", m->name, (long long)m->rank, m->alpha);
    }
}

static trireme_status choose_all(struct choosing *c) {
    const struct lora_choice *choice = c->choice;
    struct lora *lora = &c->model->lora;
    struct text others = {0};
    TRY(choose_layers(c));
    TRY(match_exceptions(c, "rank_pattern", choice->ranks));
    TRY(match_exceptions(c, "alpha_pattern", choice->alphas));
    if (choice->expression || choice->exclude || choice->layers)
        keep_chosen(c);
    list_exceptions(c, &others);
    lora->others = others.length ? reader_keep(&others) : NULL;
    return TRIREME_OK;
}

trireme_status lora_choose(struct model_config *model, const struct lora_choice *choice, trireme_error *error) {
    struct choosing c = {.choice = choice, .model = model, .begun = clock_thread(), .error = error};
    model->lora.others = NULL;
    if (!choice->expression)
        TRY(lora_set_targets(model, choice->targets, error));
    if (!choice->expression && !choice->exclude && !choice->layers && !choice->ranks && !choice->alphas)
        return TRIREME_OK;
    modules_create(&c);
    const trireme_status status = choose_all(&c);
    modules_release(&c);
    return status;
}

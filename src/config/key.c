#include "config/key.h"

#include "base/utf8.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>

#define ENUM(tag, values)                                   \
    static const char *const tag##_words[] = {values NULL}; \
    const char *tag##_word(enum tag value) {                \
        return tag##_words[value];                          \
    }
#define VALUE(constant, word) #word,
#include "config/keys.def"

#define FROM(a) .least = a,
#define ABOVE(a) .least = a, .above_least = true,
#define TO(b) .most = b,
#define BELOW(b) .most = b, .below_most = true,
#define ROW(type_, section_, name_, initial_, unit_, help_, synonyms_)                                      \
    .section = #section_, .name = #name_, .type = type_, .offset = offsetof(struct config, section_.name_), \
    .initial = initial_, .unit = unit_, .help = help_, .synonyms = synonyms_

const struct key key_table[CONFIG_KEY_COUNT] = {
#define INTEGER(section, name, initial, limits, unit, help, synonyms) \
    {ROW(KEY_INTEGER, section, name, #initial, unit, help, synonyms), .bounds = {limits}},
#define REAL(section, name, initial, limits, unit, help, synonyms) \
    {ROW(KEY_REAL, section, name, #initial, unit, help, synonyms), .bounds = {limits}},
#define SWITCH(section, name, initial, help, synonyms) {ROW(KEY_SWITCH, section, name, #initial, "", help, synonyms)},
#define CHOICE(section, name, tag, initial, help, synonyms) \
    {ROW(KEY_CHOICE, section, name, #initial, "", help, synonyms), .words = tag##_words},
#define TEXT(section, name, initial, unit, help, synonyms) \
    {ROW(KEY_TEXT, section, name, initial, unit, help, synonyms)},
#define PATH(section, name, initial, unit, help, synonyms) \
    {ROW(KEY_TEXT, section, name, initial, unit, help, synonyms), .is_path = true},
#define FRACTIONS(section, name, length, initial, unit, help, synonyms) \
    {ROW(KEY_FRACTIONS, section, name, initial, unit, help, synonyms), .count = length},
#include "config/keys.def"
};

const struct key_section key_sections[] = {
#define SECTION(tag, section, help) {#section, help, false},
#define LATER_SECTION(tag, section, help) {#section, help, TURN_LATER},
#define COMMAND_SECTION(tag, section, help) {#section, help, TURN_COMMAND},
#include "config/keys.def"
    {NULL, NULL, false}};

const struct key_default key_defaults[] = {
#define WHERE(section, name, initial, of, word) {#section, #name, #initial, #of, #word},
#include "config/keys.def"
    {0}};

const struct key_condition key_conditions[] = {
#define ONLY(section, name, of, words) {#section, #name, of, words},
#include "config/keys.def"
    {0}};

const struct key *key_find(const char *section, const char *name) {
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++)
        if (strcmp(key_table[i].section, section) == 0 && strcmp(key_table[i].name, name) == 0)
            return &key_table[i];
    return NULL;
}

const struct key *key_find_full(const char *full) {
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++) {
        size_t length = strlen(key_table[i].section);
        if (strncmp(full, key_table[i].section, length) == 0 && full[length] == '.' &&
            strcmp(full + length + 1, key_table[i].name) == 0)
            return &key_table[i];
    }
    return NULL;
}

static enum section_turn key_turn(const struct key *key) {
    return key_section_find(key->section)->turn;
}

const struct key *key_find_bare(const char *name) {
    const struct key *found[TURNS] = {NULL};
    bool many[TURNS] = {false};
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++) {
        if (strcmp(key_table[i].name, name) != 0)
            continue;
        const enum section_turn turn = key_turn(&key_table[i]);
        many[turn] = found[turn] != NULL;
        found[turn] = &key_table[i];
    }
    int turn = 0;
    while (turn < TURN_COMMAND && !found[turn])
        turn++;
    return many[turn] ? NULL : found[turn];
}

const struct key_section *key_section_find(const char *name) {
    for (const struct key_section *section = key_sections; section->name; section++)
        if (strcmp(section->name, name) == 0)
            return section;
    return NULL;
}

// Bounds are whole numbers, or short enough for %g.
static void bound_add(struct text *out, double bound) {
    text_add(out, fabs(bound) < 0x1p53 && bound == trunc(bound) ? "%.0f" : "%g", bound);
}

static void range_add(struct text *out, const struct key_bounds *bounds) {
    if (!bounds->above_least && !bounds->below_most) {
        text_add(out, "from ");
        bound_add(out, bounds->least);
        text_add(out, " to ");
        bound_add(out, bounds->most);
        return;
    }
    text_add(out, bounds->above_least ? "above " : "from ");
    bound_add(out, bounds->least);
    text_add(out, bounds->below_most ? ", below " : ", up to ");
    bound_add(out, bounds->most);
}

void key_accepts(struct text *out, const struct key *key) {
    switch (key->type) {
    case KEY_INTEGER:
    case KEY_REAL:
        text_add(out, key->type == KEY_INTEGER ? "a whole number " : "a number ");
        range_add(out, &key->bounds);
        break;
    case KEY_SWITCH:
        text_add(out, "true or false");
        break;
    case KEY_CHOICE:
        for (const char *const *word = key->words; *word; word++)
            text_add(out, "%s%s", word == key->words ? "one of " : ", ", *word);
        break;
    case KEY_TEXT:
        text_add(out, "text");
        break;
    case KEY_FRACTIONS:
        text_add(out, "a list of %zu fractions that sum to 1, as [0.9, 0.1]", key->count);
        break;
    }
    if (*key->unit)
        text_add(out, " (%s)", key->unit);
}

const char *key_excerpt(const char *text, char buffer[KEY_EXCERPT]) {
    size_t length = 0;
    for (const char *s = text; *s;) {
        if (length + 6 + sizeof "..." > KEY_EXCERPT) { // what a character takes at most
            strcpy(buffer + length, "...");
            return buffer;
        }
        uint32_t code;
        size_t bytes = utf8_decode(s, UTF8_BYTES_MAX, &code);
        if (bytes == 0) {
            length += (size_t)sprintf(buffer + length, "\\x%02x", (unsigned char)*s);
        } else if (utf8_is_hidden(code)) {
            length += (size_t)sprintf(buffer + length, code < 0x80 ? "\\x%02" PRIx32 : "\\u%04" PRIx32, code);
        } else {
            memcpy(buffer + length, s, bytes);
            length += bytes;
        }
        s += MAX(bytes, 1);
    }
    buffer[length] = '\0';
    return buffer;
}

// Lower case, '-' as '_'. False: too long for any key.
static bool key_normalise(const char *name, char out[KEY_NAME]) {
    size_t length = strlen(name);
    if (length >= KEY_NAME)
        return false;
    for (size_t i = 0; i <= length; i++)
        out[i] = name[i] == '-' ? '_' : (char)tolower((unsigned char)name[i]);
    return true;
}

bool key_synonym_next(const char **rest, char out[KEY_NAME]) {
    *rest += strspn(*rest, " ");
    size_t length = strcspn(*rest, " ");
    CHECK(length < KEY_NAME);
    memcpy(out, *rest, length);
    out[length] = '\0';
    *rest += length;
    return length > 0;
}

static bool has_synonym(const struct key *key, const char *name, const char *full) {
    char synonym[KEY_NAME];
    for (const char *rest = key->synonyms; key_synonym_next(&rest, synonym);)
        if (strcmp(synonym, name) == 0 || strcmp(synonym, full) == 0)
            return true;
    return false;
}

// Where a name stands, compared with a key: in its section, in no known section, or in another section.
enum place { PLACE_HERE, PLACE_NOWHERE, PLACE_ELSEWHERE };

// How many characters of a name may be wrong. Short names are near one another by chance, and so is a name in one
// section to keys of other sections.
static size_t misspelt_most(const char *name, enum place place) {
    size_t length = strlen(name);
    if (length < (place == PLACE_ELSEWHERE ? 5 : 3))
        return 0;
    if (place == PLACE_HERE)
        return length < 5 ? 1 : text_misspelt_distance(name);
    return MAX((size_t)1, length / 4);
}

// Whether a name may be a key, or one of its synonyms, misspelt.
static bool key_is_near(const struct key *key, const char *name, enum place place) {
    enum { SYNONYM_LENGTH = 5 }; // of those that are looked at: "dim" and "dir" have nothing in common
    size_t most = misspelt_most(name, place);
    bool near = most > 0 && text_distance(name, key->name) <= most;
    char synonym[KEY_NAME];
    for (const char *rest = key->synonyms; most > 0 && !near && key_synonym_next(&rest, synonym);)
        near = strlen(synonym) >= SYNONYM_LENGTH && text_distance(name, synonym) <= most;
    return near;
}

// How far a name is from a key: by the spelling of section and key together, or of the key alone in another section.
static size_t key_distance(const struct key *key, const char *name, const char *full) {
    char *own = mem_printf("%s.%s", key->section, key->name);
    size_t best = text_distance(full, own);
    free(own);
    best = MIN(best, text_distance(name, key->name) + 1);
    char synonym[KEY_NAME];
    for (const char *rest = key->synonyms; key_synonym_next(&rest, synonym);)
        best = MIN(best, text_distance(name, synonym) + 1);
    return best;
}

struct candidates {
    const struct key *key[CONFIG_KEY_COUNT];
    size_t count;
    bool nearest; // found by distance alone
};

// From the surest reading of a wrong name to the vaguest.
enum reading { READING_SPELLING, READING_SYNONYM_IN_SECTION, READING_SYNONYM, READING_OTHER_SECTION, READING_COUNT };

// Names that mean something else in every section.
static const char GENERAL_NAMES[] = "name path mode freq config";

// training_steps, for training.steps.
static bool is_joined(const struct key *key, const char *section, const char *name) {
    const size_t length = strlen(key->section);
    return !*section && strncmp(name, key->section, length) == 0 && name[length] == '_' &&
           strcmp(name + length + 1, key->name) == 0;
}

static bool key_is_meant(const struct key *key, enum reading reading, const char *section, const char *name,
                         const char *full) {
    bool same_section = strcmp(key->section, section) == 0, same_name = strcmp(key->name, name) == 0, meant;
    switch (reading) {
    case READING_SPELLING:
        return (same_section && same_name) || is_joined(key, section, name);
    case READING_SYNONYM_IN_SECTION: {
        char *joined = mem_printf("%s_%s", section, name); // run.dir, as in run_dir
        meant = same_section && (has_synonym(key, name, full) || has_synonym(key, joined, joined));
        free(joined);
        return meant;
    }
    case READING_SYNONYM:
        return has_synonym(key, name, full);
    default:
        return same_name && !(key_section_find(section) && text_lists(GENERAL_NAMES, name));
    }
}

// What other systems have keys for and Trireme has not, by their names for it. These names are answered before any
// search for a key of similar spelling.
static const struct {
    const char *answer, *names;
} absent_table[] = {
    {"GPUs are not supported", "device device_type cuda gpu gpus"},
    {"communication runs beside computing wherever the program allows",
     "overlap_grad_reduce overlap_param_gather overlap_p2p_communication overlap_comm"},
    {"all batches have the same size", "rampup_batch_size batch_size_rampup"},
    {"a run waits for its checkpoints, which are in training.dtype", "async_mode async_save export_dtype"},
    {"metrics.jsonl and TensorBoard's tb/, both in run.directory, are the only logs",
     "wandb wandb_log wandb_project enable_wandb tensorboard_dir tensorboard_log_dir save_tb_folder"},
    {"the same command resumes the run in run.directory", "resume auto_resume resume_from resume_from_checkpoint"},
    {"inputs are named without a key", "input inputs input_file input_files"},
    {"a configuration file is named without a key", "config config_file job_config_file config_yaml yaml_cfg"},
    {"trireme eval measures a model", "eval_only skip_train"},
    {"every step is compiled and its attention fused",
     "compile torch_compile use_flash_attn use_flash_attention flash_attn flash_attention attn_implementation"
     " attention_backend transformer_impl use_fused_kernels"},
    {"mpirun or srun starts processes (man trireme, train)",
     "backend distributed_backend ddp_backend nnodes node_rank nproc_per_node local_rank master_addr master_port"},
    {"a cluster's file has nodes, and devices=N takes its first N devices (trireme help simulate, plan)",
     "nodes num_nodes n_nodes"},
    {"a wave is two of parallelism.pipeline_parallel_chunks", "waves num_waves"},
    {"all weights are trained, in training.dtype", "lora use_lora lora_rank peft qlora load_in_4bit load_in_8bit"},
    {"a signal saves and ends a run (man trireme, train)", "exit_duration_in_mins exit_interval exit_signal_handler"},
    {"initial weights are those of the family", "init_method_std initializer_range init_std"},
    {"mixture of experts is not supported",
     "expert_parallel_degree expert_parallel_size expert_model_parallel_size expert_parallel ep ep_size"
     " expert_tensor_parallel_degree expert_tensor_parallel_size etp num_experts num_moe_experts num_local_experts"
     " n_routed_experts num_experts_per_tok moe_router_topk moe_intermediate_size moe_ffn_hidden_size"},
};

// The answer to this normalised name. NULL: there is none.
static const char *absent_find(const char *name) {
    for (size_t i = 0; i < ARRAY_LENGTH(absent_table); i++)
        if (text_lists(absent_table[i].names, name))
            return absent_table[i].answer;
    return NULL;
}

// The nearest key; of this section alone, if the name stands there.
static void nearest_find(struct candidates *found, const char *section, const char *name, const char *full,
                         enum place place) {
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++) {
        const struct key *key = &key_table[i];
        const bool as_section = place == PLACE_NOWHERE && key_section_find(key->name); // which is rather meant
        if ((place == PLACE_HERE && strcmp(key->section, section) != 0) || as_section || !key_is_near(key, name, place))
            continue;
        size_t distance = key_distance(key, name, full);
        if (distance < best) {
            best = distance;
            found->key[0] = key;
            found->count = 1;
            found->nearest = true;
        }
    }
}

// The keys that may be meant by section.name, both normalised.
static void candidates_find(struct candidates *found, const char *section, const char *name) {
    char *full = mem_printf("%s.%s", section, name);
    for (int reading = 0; reading < READING_COUNT && found->count == 0; reading++)
        for (size_t i = 0; i < CONFIG_KEY_COUNT; i++)
            if (key_is_meant(&key_table[i], (enum reading)reading, section, name, full)) {
                // What few runs have is not meant where something else may be.
                if (found->count && key_turn(&key_table[i]) == TURN_LATER && key_turn(found->key[0]) == TURN_FIRST)
                    continue;
                found->key[found->count++] = &key_table[i];
            }
    bool in_section = key_section_find(section) != NULL;
    if (found->count == 0 && in_section)
        nearest_find(found, section, name, full, PLACE_HERE);
    if (found->count == 0)
        nearest_find(found, section, name, full, in_section ? PLACE_ELSEWHERE : PLACE_NOWHERE);
    free(full);
}

// "run.directory"; "model.preset, model.config, model.init_from, ... (`trireme help model` has all)".
static void section_keys_add(struct text *out, const char *section) {
    enum { SHOWN = 3 };
    size_t count = 0;
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++)
        if (strcmp(key_table[i].section, section) == 0 && count++ < SHOWN)
            text_add(out, "%s%s.%s", count > 1 ? ", " : "", section, key_table[i].name);
    if (count > SHOWN)
        text_add(out, ", ... (`trireme help %s` has all)", section);
}

// Of a normalised name. NULL: none is near.
static const char *section_nearest(const char *name) {
    size_t count = 0;
    while (key_sections[count].name)
        count++;
    return text_nearest(name, &key_sections[0].name, count, sizeof key_sections[0]);
}

// What can be said about a name that is no key.
struct answer {
    struct candidates found;
    const char *absent;
    const struct key_section *whole, *inside; // the section that the name is; the one that it stands in
    const char *section;                      // the section that it may be, misspelt, if nothing else is found
};

static void answer_find(struct answer *a, const char *section, const char *name) {
    char section_own[KEY_NAME], name_own[KEY_NAME];
    *a = (struct answer){.found = {.count = 0}};
    if (!key_normalise(section, section_own) || !key_normalise(name, name_own))
        return;
    a->absent = absent_find(name_own);
    a->inside = key_section_find(section_own);
    a->whole = *section ? NULL : key_section_find(name_own);
    if (!a->absent && !a->whole)
        candidates_find(&a->found, section_own, name_own);
    if (!*section && !a->absent && !a->whole && a->found.count == 0)
        a->section = section_nearest(name_own);
}

const struct key *key_alone(const char *name) {
    const struct key *key = key_find_bare(name);
    return key && key_turn(key) != TURN_COMMAND && !absent_find(name) ? key : NULL;
}

bool config_answers(const char *name) {
    struct answer a;
    answer_find(&a, "", name);
    return a.absent || a.whole || a.found.count > 0;
}

trireme_status key_refuse_unknown(const char *where, const char *section, const char *name, const char *value,
                                  trireme_error *error) {
    struct answer a;
    answer_find(&a, section, name);
    const struct candidates *found = &a.found;
    char excerpt[KEY_EXCERPT];
    struct text message = {0};
    if (*section)
        text_add(&message, "%s.", key_excerpt(section, excerpt));
    text_add(&message, "%s: %s", key_excerpt(name, excerpt), a.whole ? "is a section" : "unknown key");
    if (value)
        text_add(&message, ", given %s", value);
    for (size_t i = 0; i < found->count; i++) {
        const char *before = found->nearest ? "; the nearest is " : "; use ";
        text_add(&message, "%s%s.%s", i == 0 ? before : " or ", found->key[i]->section, found->key[i]->name);
    }
    if (found->count == 1) {
        text_add(&message, ": ");
        key_accepts(&message, found->key[0]);
    }
    if (a.absent) {
        text_add(&message, "; %s", a.absent);
    } else if (a.whole || (a.inside && found->count == 0)) {
        text_add(&message, a.whole ? "; its keys are " : "; the section has ");
        section_keys_add(&message, a.whole ? a.whole->name : a.inside->name);
    } else if (a.section) {
        text_add(&message, "; the nearest is the section %s (`trireme help %s` has its keys)", a.section, a.section);
    } else if (found->count == 0) {
        text_add(&message, "; `trireme help config` lists all keys");
    }
    trireme_status status = error_set(error, TRIREME_ERROR_USAGE, "%s%s%s", where, *where ? ": " : "", message.text);
    text_release(&message);
    return status;
}

trireme_status key_refuse_unknown_full(const char *where, const char *full, trireme_error *error) {
    char *section = mem_strdup(full), *dot = strchr(section, '.');
    if (dot)
        *dot = '\0';
    trireme_status status = key_refuse_unknown(where, dot ? section : "", dot ? dot + 1 : section, NULL, error);
    free(section);
    return status;
}

trireme_status key_refuse_section(const char *where, const char *name, trireme_error *error) {
    char excerpt[KEY_EXCERPT], own[KEY_NAME];
    const char *nearest = key_normalise(name, own) ? section_nearest(own) : NULL;
    struct text message = {0};
    text_add(&message, "%s: unknown section", key_excerpt(name, excerpt));
    if (nearest)
        text_add(&message, "; the nearest is %s", nearest);
    else
        for (const struct key_section *section = key_sections; section->name; section++)
            text_add(&message, "%s%s", section == key_sections ? "; there are " : ", ", section->name);
    trireme_status status = error_set(error, TRIREME_ERROR_USAGE, "%s: %s", where, message.text);
    text_release(&message);
    return status;
}

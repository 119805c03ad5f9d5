#include "program/ops.h"

#include <ctype.h>

static const struct {
    const char *name;
    int64_t size;
} DTYPES[DTYPE_COUNT] = {
    [DTYPE_F32] = {"f32", 4}, [DTYPE_BF16] = {"bf16", 2}, [DTYPE_F64] = {"f64", 8},
    [DTYPE_I32] = {"i32", 4}, [DTYPE_U16] = {"u16", 2},   [DTYPE_U8] = {"u8", 1},
};

int64_t dtype_size(enum dtype dtype) {
    return DTYPES[dtype].size;
}

const char *dtype_name(enum dtype dtype) {
    return DTYPES[dtype].name;
}

bool dtype_parse(const char *name, enum dtype *out) {
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (strcmp(DTYPES[i].name, name) == 0) {
            *out = (enum dtype)i;
            return true;
        }
    return false;
}

bool dtype_is_real(enum dtype dtype) {
    return dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F64;
}

enum dtype dtype_accumulate(enum dtype model) {
    return model == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
}

// ---- reading the rows of ops.def

static const struct row {
    const char *name, *signature, *adjoint, *attributes, *flops, *inplace;
    bool communication;
} ROWS[OP_COUNT] = {
#define OP(id, name, signature, adjoint, attributes, flops, inplace, kernel) \
    [OP_##id] = {name, signature, adjoint, attributes, flops, inplace, false},
#define COMMUNICATION(id, name, signature, adjoint, attributes, inplace, call, takes, gives, moves, times, like) \
    [OP_##id] = {name, signature, adjoint, attributes, "", inplace, true},
#include "program/ops.def"
#undef OP
};

const struct op_traffic op_traffic[OP_COUNT] = {
#define OP(id, name, signature, adjoint, attributes, flops, inplace, kernel)
#define COMMUNICATION(id, name, signature, adjoint, attributes, inplace, call, takes, gives, moves, times, like) \
    [OP_##id] = {CALL_##call, HOLDING_##takes, HOLDING_##gives, MOVES_##moves, times, OP_##like},
#include "program/ops.def"
#undef OP
};

int op_wire(enum op op) {
    int number = 0;
    for (const char *s = op_traffic[op].call ? ROWS[op].attributes : ""; *s; s += strcspn(s, " "), number++) {
        s += *s == ' ';
        if (strncmp(s, "wire:", 5) == 0)
            return number;
    }
    return -1;
}

static const char *skip_spaces(const char *s) {
    while (*s == ' ')
        s++;
    return s;
}

static const char *ops_expect(const char *s, char c) {
    CHECK(*s == c);
    return s + 1;
}

static const char *ops_read_word(const char *s, char *word, size_t size) {
    size_t n = 0;
    while (isalnum((unsigned char)*s) || *s == '_') {
        CHECK(n + 1 < size);
        word[n++] = *s++;
    }
    CHECK(n > 0);
    word[n] = 0;
    return s;
}

// name:D[a,b]?+ or name:D[@a]?+ or name:D[a,b]=m
static const char *read_operand(const char *s, struct op_operand *operand) {
    s = ops_read_word(s, operand->name, sizeof operand->name);
    s = ops_expect(s, ':');
    CHECK(strchr("PASIUBX", *s) != NULL);
    operand->dtype = *s++;
    s = ops_expect(s, '[');
    if (*s == '@') {
        CHECK(islower((unsigned char)s[1]) && s[2] == ']');
        operand->begins = s[1];
        operand->dim[operand->ndim++] = '1';
        s += 2;
    }
    while (*s != ']') {
        CHECK(operand->ndim < OP_MAX_DIMS && (isalpha((unsigned char)*s) || *s == '1'));
        operand->dim[operand->ndim] = *s++;
        if (*s == '~') {
            CHECK(islower((unsigned char)s[1]));
            operand->follows[operand->ndim] = s[1];
            s += 2;
        } else if (*s == '^') {
            CHECK(islower((unsigned char)s[1]) && islower((unsigned char)s[-1]));
            operand->belongs[operand->ndim] = s[1];
            s += 2;
        }
        operand->ndim++;
        if (*s == ',')
            s++;
    }
    s++;
    if (*s == '?') {
        operand->optional = true;
        s++;
    }
    if (*s == '+') {
        operand->adds = true;
        s++;
    }
    if (*s == '=') {
        CHECK(islower((unsigned char)s[1]) && operand->dtype == 'I' && !operand->optional);
        operand->counts = s[1];
        s += 2;
    }
    return skip_spaces(s);
}

static const char TOGETHER[] = "together=";

static void read_signature(const char *s, struct op_info *info) {
    while (strncmp(s, "->", 2) != 0) {
        CHECK(info->inputs < OP_MAX_IN);
        s = read_operand(s, &info->in[info->inputs++]);
    }
    s = skip_spaces(s + 2);
    while (*s && *s != ';') {
        CHECK(info->outputs < OP_MAX_OUT);
        s = read_operand(s, &info->out[info->outputs++]);
    }
    info->conditions = *s ? skip_spaces(s + 1) : s;
    if (strncmp(info->conditions, TOGETHER, strlen(TOGETHER)) == 0) {
        info->together = info->conditions[strlen(TOGETHER)];
        CHECK(islower((unsigned char)info->together));
        info->conditions = skip_spaces(info->conditions + strlen(TOGETHER) + 1);
    }
}

// +i0'
static const char *read_reference(const char *s, struct op_reference *reference) {
    if (*s == '+') {
        reference->pass = true;
        s++;
    }
    CHECK(*s == 'i' || *s == 'o');
    reference->output = *s++ == 'o';
    CHECK(isdigit((unsigned char)*s));
    reference->index = *s++ - '0';
    if (*s == '\'') {
        reference->gradient = true;
        s++;
    }
    return skip_spaces(s);
}

static const char *ops_read_op(const char *s, enum op *out) {
    char name[OP_NAME];
    s = ops_read_word(s, name, sizeof name);
    for (*out = 0; *out < OP_COUNT; (*out)++)
        if (strcmp(ROWS[*out].name, name) == 0)
            break;
    CHECK(*out < OP_COUNT);
    return s;
}

// embed: i0 o0' -> i1'
static void read_transposed(const char *s, struct op_info *info) {
    s = ops_read_op(s, &info->forward);
    CHECK(*s == ':');
    info->transposes = true;
    s = skip_spaces(s + 1);
    for (int i = 0; i < info->inputs; i++)
        s = read_reference(s, &info->reads[i]);
    CHECK(strncmp(s, "->", 2) == 0);
    s = skip_spaces(s + 2);
    for (int i = 0; i < info->outputs; i++)
        s = read_reference(s, &info->contributes[i]);
    CHECK(*s == 0);
}

// The input that an update or derivation makes its output of: "update i2 of F".
static const char *read_gradient_input(const char *s, struct op_info *info) {
    struct op_reference reference = {0};
    s = read_reference(skip_spaces(s), &reference);
    CHECK(!reference.output && reference.index < info->inputs);
    info->gradient = (int8_t)reference.index;
    if (strncmp(s, "of ", 3) == 0)
        return ops_read_op(s + 3, &info->derived_by);
    info->same = strcmp(s, "same") == 0;
    return info->same ? s + strlen(s) : s;
}

// i0 i1
static const char *read_identities(const char *s, struct op_info *info) {
    while (*s && *s != ';') {
        struct op_reference reference = {0};
        s = read_reference(s, &reference);
        CHECK(!reference.output && reference.index < info->inputs);
        info->identity[reference.index] = true;
    }
    return s;
}

// A role's word and what follows it; false where the column does not begin with one.
static bool read_role(const char *s, struct op_info *info) {
    static const struct {
        const char *word;
        enum op_role role;
    } ROLES[] = {
        {"loss", ROLE_LOSS},         {"count", ROLE_COUNT},        {"scale", ROLE_SCALE},       {"total", ROLE_TOTAL},
        {"norm", ROLE_NORM},         {"clip", ROLE_CLIP},          {"norm_sum", ROLE_NORM_SUM}, {"aid", ROLE_AID},
        {"update", ROLE_UPDATE},     {"derive", ROLE_DERIVE},      {"zero", ROLE_ZERO},         {"sum", ROLE_SUM},
        {"transfer", ROLE_TRANSFER}, {"encode", ROLE_ENCODE},      {"decode", ROLE_DECODE},     {"take", ROLE_TAKE},
        {"compress", ROLE_COMPRESS}, {"weigh", ROLE_WEIGH},        {"settle", ROLE_SETTLE},     {"eager", ROLE_EAGER},
        {"outer", ROLE_OUTER},       {"staleness", ROLE_STALENESS}};
    const size_t length = strcspn(s, " ");
    for (size_t i = 0; i < ARRAY_LENGTH(ROLES); i++) {
        if (strlen(ROLES[i].word) != length || memcmp(s, ROLES[i].word, length) != 0)
            continue;
        info->role = ROLES[i].role;
        s += length;
        if (info->role == ROLE_UPDATE || info->role == ROLE_DERIVE)
            s = read_gradient_input(s, info);
        if (info->role == ROLE_AID && strcmp(s, " max") == 0) {
            info->maximum = true;
            s += strlen(s);
        } else if (info->role == ROLE_AID && strncmp(s, " =", 2) == 0) {
            s = read_identities(skip_spaces(s + 2), info);
        }
        if (info->role == ROLE_ENCODE)
            s = ops_read_op(skip_spaces(s), &info->decoder);
        if (strcmp(s, " exact") == 0 && (info->role == ROLE_ENCODE || info->role == ROLE_DECODE)) {
            info->exact = true;
            s += strlen(s);
        }
        for (int k = 0; k < info->inputs && info->role == ROLE_SUM; k++)
            info->identity[k] = true;
        CHECK(*s == 0);
        return true;
    }
    return false;
}

static void read_adjoint(const char *s, bool communication, struct op_info *info) {
    info->role = communication ? ROLE_COMMUNICATION : ROLE_FORWARD;
    info->gradient = -1;
    info->derived_by = OP_COUNT;
    info->tallies = strcmp(s, "extent") == 0;
    if (*s == 0 || info->tallies || read_role(s, info))
        return;
    if (*s == '=') {
        s = read_identities(skip_spaces(s + 1), info);
        if (*s == 0)
            return;
        s = skip_spaces(s + 1);
    }
    if (!communication)
        info->role = ROLE_BACKWARD;
    read_transposed(s, info);
}

// 2mnk+mn as matmul
static void read_flops(const char *s, const struct op_table *table, struct op_info *info) {
    size_t length = strcspn(s, " ");
    CHECK(length < sizeof info->flops);
    memcpy(info->flops, s, length);
    info->like = info->role == ROLE_BACKWARD ? info->forward : info->op;
    if (s[length]) {
        CHECK(strncmp(s + length, " as ", 4) == 0);
        s = ops_read_op(s + length + 4, &info->like);
        CHECK(*s == 0 && info->like != info->op);
    }
    CHECK(info->like <= info->op); // earlier rows have been read already
    info->family = info->op == OP_MATMUL      ? FAMILY_MATMUL
                   : info->op == OP_ATTENTION ? FAMILY_ATTENTION
                   : info->like == info->op   ? FAMILY_REST
                                              : table->op[info->like].family;
}

static void read_attributes(const char *s, struct op_info *info) {
    while (*s) {
        CHECK(info->attributes < OP_MAX_ATTRIBUTES);
        struct op_attribute *attribute = &info->attribute[info->attributes++];
        s = ops_read_word(s, attribute->name, sizeof attribute->name);
        s = ops_expect(s, ':');
        CHECK(*s == 'i' || *s == 'f');
        attribute->is_float = *s++ == 'f';
        attribute->optional = *s == '?';
        s += attribute->optional;
        s = skip_spaces(s);
    }
}

static void find_meanings(struct op_info *info) {
    static const char *const NAMES[MEANINGS] = {
#define MEANING(id, name) [MEANING_##id] = name,
        OP_MEANINGS(MEANING)
#undef MEANING
    };
    for (int m = 0; m < MEANINGS; m++) {
        info->input_of[m] = info->output_of[m] = -1;
        for (int i = 0; i < info->inputs; i++)
            if (strcmp(info->in[i].name, NAMES[m]) == 0)
                info->input_of[m] = (int8_t)i;
        for (int o = 0; o < info->outputs; o++)
            if (strcmp(info->out[o].name, NAMES[m]) == 0)
                info->output_of[m] = (int8_t)o;
    }
}

// An update writes only what it reads, in place, and sums.
static void check_update_row(const struct op_info *info) {
    const bool updates = info->role == ROLE_UPDATE || info->role == ROLE_OUTER || info->role == ROLE_SETTLE;
    for (int o = 0; o < info->outputs && updates; o++)
        CHECK(info->inplace[o] >= 0 || info->out[o].adds);
    CHECK(info->role != ROLE_UPDATE || info->input_of[MEANING_PARAMETER] >= 0);
}

static void read_inplace(const char *s, struct op_info *info) {
    for (int i = 0; i < OP_MAX_OUT; i++)
        info->inplace[i] = -1;
    while (*s) {
        CHECK(s[0] == 'o' && isdigit((unsigned char)s[1]) && s[2] == '=' && s[3] == 'i' &&
              isdigit((unsigned char)s[4]));
        info->inplace[s[1] - '0'] = (int8_t)(s[4] - '0');
        s = skip_spaces(s + 5);
    }
}

// What the names in a row's conditions stand for.
struct meaning {
    const struct op_info *info;
    const int64_t *extent;
    const union attribute *attribute;
};

int op_attribute_find(const struct op_info *info, const char *name) {
    for (int i = 0; i < info->attributes; i++)
        if (strcmp(info->attribute[i].name, name) == 0)
            return i;
    return -1;
}

// A number, a letter's extent, an attribute.
static const char *read_factor(const char *s, const struct meaning *of, int64_t *value) {
    char word[16];
    s = ops_read_word(s, word, sizeof word);
    if (isdigit((unsigned char)word[0])) {
        char *end;
        *value = strtoll(word, &end, 10);
        CHECK(*end == 0);
        return s;
    }
    if (word[1] == 0) {
        *value = of->extent[(unsigned char)word[0]];
        CHECK(*value >= 1); // the letter is one of an operand that is always there
        return s;
    }
    int i = op_attribute_find(of->info, word);
    CHECK(i >= 0 && !of->info->attribute[i].is_float);
    *value = of->attribute[i].i;
    return s;
}

// A sum of products. One that overflows meets no condition.
static const char *read_side(const char *s, const struct meaning *of, int64_t *sum, bool *fits) {
    *sum = 0;
    for (bool more = true; more; s += more) {
        int64_t product = 1, factor;
        do {
            s = read_factor(s + (*s == '*'), of, &factor);
            *fits &= !__builtin_mul_overflow(product, factor, &product);
        } while (*s == '*');
        *fits &= !__builtin_add_overflow(*sum, product, sum);
        more = *s == '+';
    }
    return s;
}

// 1<=vocab<=V
static const char *read_condition(const char *s, const struct meaning *of, bool *fits) {
    int64_t left, right;
    *fits = true;
    s = read_side(s, of, &left, fits);
    do {
        const char relation = *s;
        CHECK(relation == '=' || relation == '|' || strncmp(s, "<=", 2) == 0);
        s = read_side(s + (relation == '<' ? 2 : 1), of, &right, fits);
        *fits &= relation == '=' ? left == right : relation == '<' ? left <= right : left > 0 && right % left == 0;
        left = right;
    } while (*s && *s != ' ');
    return s;
}

bool op_fits(const struct op_info *info, const int64_t extent[DIM_LETTERS], const union attribute *attribute,
             char broken[OP_CONDITION_TEXT]) {
    const struct meaning of = {info, extent, attribute};
    for (const char *s = info->conditions, *end; *s; s = skip_spaces(end)) {
        bool fits;
        end = read_condition(s, &of, &fits);
        if (!fits) {
            snprintf(broken, OP_CONDITION_TEXT, "%.*s", (int)(end - s), s);
            return false;
        }
    }
    return true;
}

// Finds malformed conditions, by reading each once.
static void check_conditions(const struct op_info *info) {
    int64_t extent[DIM_LETTERS] = {0};
    const union attribute none[OP_MAX_ATTRIBUTES] = {{0}};
    for (int i = 0; i < info->inputs + info->outputs; i++) {
        const struct op_operand *operand = op_operand_at(info, i);
        for (int k = 0; k < operand->ndim && !operand->optional; k++)
            extent[(unsigned char)operand->dim[k]] = 1;
    }
    const struct meaning of = {info, extent, none};
    bool fits;
    for (const char *s = info->conditions; *s; s = skip_spaces(s))
        s = read_condition(s, &of, &fits);
}

static unsigned contributed_inputs(const struct op_info *info) {
    unsigned set = 0;
    for (int i = 0; i < info->outputs; i++)
        set |= 1u << info->contributes[i].index;
    return set;
}

static void find_fused(struct op_table *table) {
    for (int a = 0; a < OP_COUNT; a++)
        for (int b = 0; b < OP_COUNT; b++) {
            struct op_info *whole = &table->op[a], *part = &table->op[b];
            if (whole->role != ROLE_BACKWARD || part->role != ROLE_BACKWARD || whole->forward != part->forward)
                continue;
            unsigned all = contributed_inputs(whole), some = contributed_inputs(part);
            if (all != some && (all & some) == some)
                whole->fused = true;
        }
}

struct op_table *op_table_create(void) {
    struct op_table *table = mem_alloc(sizeof *table);
    for (int op = 0; op < OP_COUNT; op++) {
        struct op_info *info = &table->op[op];
        info->op = (enum op)op;
        info->name = ROWS[op].name;
        read_signature(ROWS[op].signature, info);
        read_adjoint(ROWS[op].adjoint, ROWS[op].communication, info);
        read_flops(ROWS[op].flops, table, info);
        read_attributes(ROWS[op].attributes, info);
        read_inplace(ROWS[op].inplace, info);
        find_meanings(info);
        check_update_row(info);
        check_conditions(info);
    }
    find_fused(table);
    return table;
}

enum op op_find(const struct op_table *table, const char *name) {
    for (int op = 0; op < OP_COUNT; op++)
        if (strcmp(table->op[op].name, name) == 0)
            return (enum op)op;
    return OP_COUNT;
}

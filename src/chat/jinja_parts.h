// What a parsed template is made of, and the values that it is rendered with. Private to the files named jinja*.
#ifndef CHAT_JINJA_PARTS_H
#define CHAT_JINJA_PARTS_H

#include "chat/jinja.h"

// ---- memory that is freed at once

struct arena {
    VEC(char *) blocks;
    size_t used, room; // of the last block
    size_t total;
};
void *arena_add(struct arena *a, size_t bytes); // zeroed
void arena_release(struct arena *a);

// ---- values: none is changed once it is made, but for namespaces

enum jinja_type {
    JINJA_ABSENT, // of an argument that is not given
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOLEAN,
    JINJA_INTEGER,
    JINJA_REAL,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_CALLABLE, // a function or a method of which only the name is used
};

struct jinja_value {
    enum jinja_type type;
    bool tuple;   // of a list: Python prints it otherwise
    size_t count; // bytes of a string, elements of a list, members of a dict
    union {
        bool boolean;
        int64_t integer;
        double real;
        const char *string; // of JINJA_UNDEFINED the name of what is not there
        const struct jinja_value *item;
        const struct jinja_member *member;
        struct jinja_scope *space;
        const struct jinja_loop *loop;
        const struct jinja_macro *macro;
    };
};
struct jinja_member {
    struct jinja_value key, value;
};

// ---- the tree

struct jinja_word {
    const char *text;
    size_t length;
};
static inline bool jinja_word_is(struct jinja_word w, const char *word) {
    return w.length == strlen(word) && memcmp(w.text, word, w.length) == 0;
}

enum jinja_kind {
    // Statements. `item`: what it has several of.
    NODE_BODY,       // item
    NODE_TEXT,       // value
    NODE_PRINT,      // a
    NODE_IF,         // a, then b, else c
    NODE_FOR,        // item: names; over a, those with b, the body c, else d
    NODE_SET,        // item: targets; to a
    NODE_SET_BLOCK,  // item: one target; to what the body a writes
    NODE_MACRO,      // word; item: parameters, each a NODE_KEYWORD whose default is a; the body b
    NODE_GENERATION, // a
    NODE_BREAK,
    NODE_CONTINUE,
    // Expressions.
    NODE_CONSTANT, // value
    NODE_NAME,     // word
    NODE_MEMBER,   // a.word
    NODE_ITEM,     // a[b]
    NODE_SLICE,    // a[b:c:d]
    NODE_CALL,     // a(item)
    NODE_METHOD,   // a.method(item)
    NODE_FILTER,   // a | filter(item)
    NODE_TEST,     // a is test(item)
    NODE_KEYWORD,  // word=a, an argument
    NODE_LIST,     // item
    NODE_TUPLE,    // item
    NODE_DICT,     // item: keys and values in turns
    NODE_NOT,      // a
    NODE_NEGATE,   // a
    NODE_AND,      // a, b
    NODE_OR,       // a, b
    NODE_CHOICE,   // a if b else c
    NODE_OPERATE,  // a op b
    NODE_COMPARE,  // item: operands, each but the first a NODE_OPERATE whose op compares the one before with its a
};

enum jinja_operator {
    OP_ADD,
    OP_SUBTRACT,
    OP_MULTIPLY,
    OP_DIVIDE,
    OP_FLOOR,
    OP_MODULO,
    OP_CONCATENATE,
    OP_EQUAL,
    OP_UNEQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_IN,
    OP_NOT_IN,
};

struct jinja_node {
    enum jinja_kind kind;
    int line;
    enum jinja_operator op;
    struct jinja_word word;
    struct jinja_value value;
    const struct jinja_callable *callable;
    struct jinja_node *a, *b, *c, *d, **item;
    size_t count;
};

struct jinja {
    char *where;
    struct arena arena;
    struct jinja_node *body;
    bool marks_generation;
};

// ---- rendering

struct jinja_scope {
    struct jinja_scope *above; // NULL: the outermost
    struct jinja_variable {
        struct jinja_word name;
        struct jinja_value value;
        struct jinja_variable *next;
    } * first;
};

struct jinja_loop {
    const struct jinja_value *item;
    size_t index, count;
};

struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; // in which it was made
};

struct jinja_run {
    const struct jinja *template;
    trireme_error *error;
    struct arena arena;
    struct text *to;          // where text goes
    struct jinja_output *out; // NULL: inside a macro or a block that is set
    int64_t work;             // that is left
    int depth;
    int line;
    enum { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;
};

// Takes so much of the work that a rendering may do: bytes, steps. Fails where none is left.
trireme_status jinja_work(struct jinja_run *r, size_t amount);
// Goes one level deeper into expressions, macros or values, of which there are only so many; r->depth-- goes back.
trireme_status jinja_enter(struct jinja_run *r);
trireme_status jinja_refuse(const struct jinja_run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline struct jinja_value jinja_boolean(bool b) {
    return (struct jinja_value){.type = JINJA_BOOLEAN, .boolean = b};
}
static inline struct jinja_value jinja_integer(int64_t i) {
    return (struct jinja_value){.type = JINJA_INTEGER, .integer = i};
}
static inline struct jinja_value jinja_borrow(const char *bytes, size_t length) {
    return (struct jinja_value){.type = JINJA_STRING, .string = bytes, .count = length};
}
static inline struct jinja_value jinja_items(const struct jinja_value *item, size_t count) {
    return (struct jinja_value){.type = JINJA_LIST, .item = item, .count = count};
}
// A copy of a text, which is released.
struct jinja_value jinja_take(struct jinja_run *r, struct text *text);
// The values of a JSON tree, whose strings are borrowed.
trireme_status jinja_of_json(struct jinja_run *r, const json_t *tree, struct jinja_value *out);

bool jinja_is_true(const struct jinja_value *v);
bool jinja_is_number(const struct jinja_value *v); // booleans are, too
double jinja_real(const struct jinja_value *v);
const char *jinja_type_name(const struct jinja_value *v);
trireme_status jinja_equal(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b, bool *out);
// -1, 0, 1 of numbers, strings or lists; refuses others.
trireme_status jinja_compare(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b, int *out);
// The member of a dict; NULL: none.
trireme_status jinja_find(struct jinja_run *r, const struct jinja_value *dict, const struct jinja_value *key,
                          const struct jinja_value **out);
// The elements of what can be gone through: a list's, a dict's keys, a string's characters.
trireme_status jinja_elements(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value **item,
                              size_t *count);
trireme_status jinja_length(struct jinja_run *r, const struct jinja_value *v, size_t *out);
// Appends what Python's str() makes of it.
trireme_status jinja_print(struct jinja_run *r, const struct jinja_value *v, struct text *out);
// a.word: a member, or what a loop or a namespace has.
trireme_status jinja_member(struct jinja_run *r, const struct jinja_value *v, struct jinja_word name,
                            struct jinja_value *out);
// a[b]
trireme_status jinja_item(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *index,
                          struct jinja_value *out);
// a[b:c:d]; JINJA_NONE where one is not given.
trireme_status jinja_slice(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value part[3],
                           struct jinja_value *out);
trireme_status jinja_operate(struct jinja_run *r, enum jinja_operator op, const struct jinja_value *a,
                             const struct jinja_value *b, struct jinja_value *out);

// ---- filters, tests, functions and methods

enum { JINJA_ARGUMENTS = 6 };

// given[0] is what a filter, a test or a method is applied to.
struct jinja_callable {
    const char *name;
    const char *parameters; // names after given[0], separated by spaces; those after a '/' may be absent
    trireme_status (*call)(struct jinja_run *r, const struct jinja_value *given, struct jinja_value *out);
};
// NULL: there is none of that name.
const struct jinja_callable *jinja_filter(struct jinja_word name);
const struct jinja_callable *jinja_test(struct jinja_word name);
const struct jinja_callable *jinja_function(struct jinja_word name);
const struct jinja_callable *jinja_method(struct jinja_word name);
struct jinja_dump {
    int64_t indent; // of each level; -1: all on one line
    struct jinja_value between, after_key;
    bool ascii, sorts;
};
// Appends JSON as Python's json.dumps writes it.
trireme_status jinja_add_json(struct jinja_run *r, const struct jinja_value *v, const struct jinja_dump *how,
                              int64_t level, struct text *out);
// The members of a dict in order of their keys, as text; `folds`: capitals count as small letters.
trireme_status jinja_sorted(struct jinja_run *r, const struct jinja_value *dict, bool folds,
                            const struct jinja_member **out);
// Appends a string in small letters.
trireme_status jinja_add_lower(struct jinja_run *r, const char *bytes, size_t length, struct text *out);
// Appends a number as Python's repr() writes it.
void jinja_print_real(double real, struct text *out);

#endif

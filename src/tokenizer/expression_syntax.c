// A recursive descent over Oniguruma's grammar that writes PCRE2's syntax as it goes. A character class is the only
// thing that is rearranged: PCRE2 10.42 knows neither classes within classes nor intersections, so a class becomes a
// bracket of what can stand in one, beside alternatives for the rest, and `A && B` becomes (?=A)B.
#include "tokenizer/expression_syntax.h"

#include "base/json.h"
#include "base/utf8.h"

struct syntax_reader {
    const char *text;
    size_t length, at;
    int depth;
    trireme_error *error;
};

// What a class matches, in PCRE2's syntax.
struct class_parts {
    struct text items;  // what may stand in brackets
    struct text others; // alternatives that may not, each after a '|'
};

// White_Space, which is neither PCRE2's \s (that has U+180E) nor its \p{Z} (that lacks tabs and line ends).
#define SPACE_ITEMS \
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WORD_ITEMS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
// Outside of classes Oniguruma looks below U+0100 into an older table, which has the numbers of Latin-1, too.
#define WORD "[" WORD_ITEMS "\\xb2\\xb3\\xb9\\xbc-\\xbe]"
#define NOT_WORD "[^" WORD_ITEMS "\\xb2\\xb3\\xb9\\xbc-\\xbe]"
#define HEX_ITEMS "0-9a-fA-F"
#define ANY "(?s:.)"

// Names of sets of characters, lower case and without blanks, '-' and '_', as Oniguruma compares them.
static const struct named_set {
    const char *name, *items;
    bool bracket; // has this meaning in [:name:], too
} SETS[] = {
    {"alnum", "\\p{Alphabetic}\\p{Nd}", true},
    {"alpha", "\\p{Alphabetic}", true},
    {"ascii", "\\x00-\\x7f", true},
    {"blank", "\\p{Zs}\\x09", true},
    {"cntrl", "\\p{Cc}", true},
    {"digit", "\\p{Nd}", true},
    {"lower", "\\p{Lowercase}", true},
    {"space", SPACE_ITEMS, true},
    {"upper", "\\p{Uppercase}", true},
    {"word", WORD_ITEMS, true},
    {"xdigit", HEX_ITEMS, true},
    {"punct", "\\p{P}", false},
    {"posixpunct", "\\p{P}\\p{S}", false},
    {"any", "\\x00-\\x{10ffff}", false},
    {"assigned", "\\P{Cn}", false},
    {"whitespace", SPACE_ITEMS, false},
    {"casedletter", "\\p{L&}", false},
    {"lc", "\\p{L&}", false},
    {"other", "\\p{C}", false},
    {"control", "\\p{Cc}", false},
    {"format", "\\p{Cf}", false},
    {"unassigned", "\\p{Cn}", false},
    {"privateuse", "\\p{Co}", false},
    {"letter", "\\p{L}", false},
    {"lowercaseletter", "\\p{Ll}", false},
    {"modifierletter", "\\p{Lm}", false},
    {"otherletter", "\\p{Lo}", false},
    {"titlecaseletter", "\\p{Lt}", false},
    {"uppercaseletter", "\\p{Lu}", false},
    {"mark", "\\p{M}", false},
    {"combiningmark", "\\p{M}", false},
    {"spacingmark", "\\p{Mc}", false},
    {"enclosingmark", "\\p{Me}", false},
    {"nonspacingmark", "\\p{Mn}", false},
    {"number", "\\p{N}", false},
    {"decimalnumber", "\\p{Nd}", false},
    {"letternumber", "\\p{Nl}", false},
    {"othernumber", "\\p{No}", false},
    {"punctuation", "\\p{P}", false},
    {"connectorpunctuation", "\\p{Pc}", false},
    {"dashpunctuation", "\\p{Pd}", false},
    {"closepunctuation", "\\p{Pe}", false},
    {"finalpunctuation", "\\p{Pf}", false},
    {"initialpunctuation", "\\p{Pi}", false},
    {"otherpunctuation", "\\p{Po}", false},
    {"openpunctuation", "\\p{Ps}", false},
    {"symbol", "\\p{S}", false},
    {"currencysymbol", "\\p{Sc}", false},
    {"modifiersymbol", "\\p{Sk}", false},
    {"mathsymbol", "\\p{Sm}", false},
    {"othersymbol", "\\p{So}", false},
    {"separator", "\\p{Z}", false},
    {"lineseparator", "\\p{Zl}", false},
    {"paragraphseparator", "\\p{Zp}", false},
    {"spaceseparator", "\\p{Zs}", false},
};
// General categories and properties of characters that both libraries call by one name; other names are scripts.
static const char SAME[] =
    "c cc cf cn co cs l ll lm lo lt lu m mc me mn n nd nl no p pc pd pe pf pi po ps s sc sk sm so z "
    "zl zp zs alphabetic lowercase uppercase emoji emojipresentation emojimodifier "
    "extendedpictographic ideographic dash math joincontrol diacritic quotationmark";

__attribute__((format(printf, 3, 4))) static trireme_status syntax_refuse(struct syntax_reader *r, size_t at,
                                                                          const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *what = mem_vprintf(format, args);
    va_end(args);
    error_set(r->error, TRIREME_ERROR_USAGE, "byte %zu: %s", at, what);
    free(what);
    return TRIREME_ERROR_USAGE;
}

static bool syntax_ends(const struct syntax_reader *r) {
    return r->at == r->length;
}

static bool syntax_looks(const struct syntax_reader *r, const char *word) {
    size_t n = strlen(word);
    return r->length - r->at >= n && memcmp(r->text + r->at, word, n) == 0;
}

static bool syntax_takes(struct syntax_reader *r, const char *word) {
    bool there = syntax_looks(r, word);
    if (there)
        r->at += strlen(word);
    return there;
}

static uint32_t syntax_character(struct syntax_reader *r) {
    uint32_t code = 0;
    size_t bytes = utf8_decode(r->text + r->at, r->length - r->at, &code);
    CHECK(bytes > 0);
    r->at += bytes;
    return code;
}

static trireme_status syntax_descend(struct syntax_reader *r) {
    if (++r->depth > EXPRESSION_DEPTH_MAX)
        return syntax_refuse(r, r->at, "nested deeper than %d levels", EXPRESSION_DEPTH_MAX);
    return TRIREME_OK;
}

static void add_code(struct text *out, uint32_t code) {
    text_add(out, "\\x{%x}", code);
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Reads up to `most` digits of a number to the base 8 or 16; false if there is none, or it is no code point.
static bool syntax_number(struct syntax_reader *r, int base, int most, uint32_t *out) {
    uint64_t value = 0;
    int digits = 0;
    while (digits < most && !syntax_ends(r)) {
        char c = r->text[r->at];
        if (base == 8 ? c < '0' || c > '7' : !is_hex(c))
            break;
        value = value * (uint64_t)base + (uint64_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        r->at++, digits++;
    }
    *out = (uint32_t)value;
    return digits > 0 && value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
}

// ---- sets of characters: properties, brackets, escapes such as \s

static const struct named_set *find_set(const char *name) {
    for (size_t i = 0; i < ARRAY_LENGTH(SETS); i++)
        if (strcmp(SETS[i].name, name) == 0)
            return &SETS[i];
    return NULL;
}

// Adds a set of characters, given by what may stand in brackets, or all others.
static void parts_add(struct class_parts *parts, const char *items, bool negated) {
    if (negated)
        text_add(&parts->others, "|[^%s]", items);
    else
        text_add(&parts->items, "%s", items);
}

// After \p or \P.
static trireme_status syntax_property(struct syntax_reader *r, bool negated, struct class_parts *parts) {
    size_t start = r->at, length = 0;
    char name[64];
    bool plain = syntax_takes(r, "{");
    if (syntax_takes(r, "^"))
        negated = !negated;
    for (; plain && !syntax_ends(r) && r->text[r->at] != '}'; r->at++) {
        char c = r->text[r->at];
        if (c >= 'A' && c <= 'Z')
            c |= 0x20;
        plain = length + 1 < sizeof name && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr(" -_", c));
        if (plain && !strchr(" -_", c))
            name[length++] = c;
    }
    name[length] = 0;
    if (!plain || !length || !syntax_takes(r, "}"))
        return syntax_refuse(r, start, "\\p must be followed by the name of a property, as in \\p{L}");
    const struct named_set *set = find_set(name);
    if (set)
        parts_add(parts, set->items, negated);
    else
        text_add(&parts->items, "\\%c{%s%s}", negated ? 'P' : 'p', text_lists(SAME, name) ? "" : "sc:", name);
    return TRIREME_OK;
}

// A set by a letter after a backslash, inside a class or outside. *known is false where the letter is none.
static trireme_status syntax_set_escape(struct syntax_reader *r, struct class_parts *parts, bool *known) {
    static const struct {
        char letter;
        bool negated;
        const char *items;
    } ESCAPES[] = {
        {'s', false, SPACE_ITEMS}, {'S', true, SPACE_ITEMS}, {'w', false, WORD_ITEMS}, {'W', true, WORD_ITEMS},
        {'d', false, "\\p{Nd}"},   {'D', true, "\\p{Nd}"},   {'h', false, HEX_ITEMS},  {'H', true, HEX_ITEMS},
    };
    char letter = r->text[r->at];
    *known = true;
    if (letter == 'p' || letter == 'P') {
        r->at++;
        return syntax_property(r, letter == 'P', parts);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(ESCAPES); i++)
        if (ESCAPES[i].letter == letter) {
            r->at++;
            parts_add(parts, ESCAPES[i].items, ESCAPES[i].negated);
            return TRIREME_OK;
        }
    *known = false;
    return TRIREME_OK;
}

// A character by an escape, inside a class or outside; the backslash is taken.
static trireme_status syntax_character_escape(struct syntax_reader *r, uint32_t *code) {
    static const struct {
        char letter;
        uint8_t code;
    } ESCAPES[] = {{'t', 9}, {'n', 10}, {'v', 11}, {'f', 12}, {'r', 13}, {'a', 7}, {'e', 27}};
    size_t start = r->at - 1;
    char letter = r->text[r->at];
    for (size_t i = 0; i < ARRAY_LENGTH(ESCAPES); i++)
        if (ESCAPES[i].letter == letter) {
            r->at++;
            *code = ESCAPES[i].code;
            return TRIREME_OK;
        }
    bool sound = true, ascii_only = false;
    if (syntax_takes(r, "x{"))
        sound = syntax_number(r, 16, 8, code) && syntax_takes(r, "}");
    else if (syntax_takes(r, "x"))
        sound = syntax_number(r, 16, 2, code), ascii_only = true;
    else if (syntax_takes(r, "u"))
        sound = syntax_number(r, 16, 4, code);
    else if (syntax_looks(r, "0"))
        sound = syntax_number(r, 8, 3, code), ascii_only = true;
    else if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '1' && letter <= '9'))
        return syntax_refuse(r, start, "\\%c is not known", letter);
    else
        *code = syntax_character(r);
    if (!sound || (ascii_only && *code > 0x7F)) // bytes of a character, one by one
        return syntax_refuse(r, start, "the escape stands for no character");
    return TRIREME_OK;
}

// ---- classes

static trireme_status syntax_class(struct syntax_reader *r, struct class_parts *parts);

static trireme_status syntax_posix_bracket(struct syntax_reader *r, struct class_parts *parts, bool *known) {
    size_t start = r->at;
    *known = false;
    if (!syntax_takes(r, "[:"))
        return TRIREME_OK;
    bool negated = syntax_takes(r, "^");
    const char *name = r->text + r->at, *end = memchr(name, ':', r->length - r->at);
    if (!end || end + 1 == r->text + r->length || end[1] != ']' || end - name > 10) {
        r->at = start;
        return TRIREME_OK;
    }
    char word[16];
    memcpy(word, name, (size_t)(end - name));
    word[end - name] = 0;
    bool punctuation = strcmp(word, "punct") == 0;
    const struct named_set *set = find_set(punctuation ? "posixpunct" : word);
    if (!set || (!set->bracket && !punctuation))
        return syntax_refuse(r, start, "[:%s:] is not known", word);
    r->at = (size_t)(end + 2 - r->text);
    parts_add(parts, set->items, negated);
    *known = true;
    return TRIREME_OK;
}

// A character of a class, or the end of a range.
static trireme_status syntax_class_character(struct syntax_reader *r, uint32_t *code) {
    if (!syntax_takes(r, "\\")) {
        *code = syntax_character(r);
        return TRIREME_OK;
    }
    if (syntax_ends(r))
        return syntax_refuse(r, r->at, "ends after a backslash");
    if (syntax_takes(r, "b")) {
        *code = 8;
        return TRIREME_OK;
    }
    return syntax_character_escape(r, code);
}

static trireme_status syntax_class_item(struct syntax_reader *r, struct class_parts *parts) {
    bool known = false;
    if (syntax_looks(r, "[")) {
        TRY(syntax_posix_bracket(r, parts, &known));
        if (known)
            return TRIREME_OK;
        r->at++;
        return syntax_class(r, parts);
    }
    if (syntax_looks(r, "\\") && r->at + 1 < r->length) {
        r->at++;
        TRY(syntax_set_escape(r, parts, &known));
        if (known)
            return TRIREME_OK;
        r->at--;
    }
    uint32_t first, last;
    size_t start = r->at;
    TRY(syntax_class_character(r, &first));
    add_code(&parts->items, first);
    static const char *const NO_RANGES[] = {"-]", "-&&"}; // there a hyphen stands for itself
    bool range = syntax_looks(r, "-");
    for (size_t i = 0; i < ARRAY_LENGTH(NO_RANGES); i++)
        range = range && !syntax_looks(r, NO_RANGES[i]);
    if (!range)
        return TRIREME_OK;
    r->at++;
    if (syntax_ends(r) || syntax_looks(r, "["))
        return syntax_refuse(r, start, "the range does not end");
    TRY(syntax_class_character(r, &last));
    if (last < first)
        return syntax_refuse(r, start, "the range is empty");
    text_add_bytes(&parts->items, "-", 1);
    add_code(&parts->items, last);
    return TRIREME_OK;
}

// Appends what matches one character of `parts`.
static void parts_write(const struct class_parts *parts, struct text *out) {
    const char *others = parts->others.length ? parts->others.text : NULL;
    if (parts->items.length && others)
        text_add(out, "(?:[%s]%s)", parts->items.text, others);
    else if (others)
        text_add(out, "(?:%s)", others + 1);
    else if (parts->items.length)
        text_add(out, "[%s]", parts->items.text);
    else
        text_add(out, "(?!)");
}

static void parts_release(struct class_parts *parts) {
    text_release(&parts->items);
    text_release(&parts->others);
}

// Reads the inside of a class up to its ']' into *last, what stands behind the last "&&"; what stands before each of
// them is appended to *before, as (?=...).
static trireme_status syntax_class_inside(struct syntax_reader *r, struct class_parts *last, struct text *before) {
    size_t start = r->at;
    while (!syntax_looks(r, "]")) {
        if (syntax_ends(r))
            return syntax_refuse(r, start - 1, "[ without ]");
        if (syntax_takes(r, "&&")) {
            text_add(before, "(?=");
            parts_write(last, before);
            text_add(before, ")");
            parts_release(last);
        } else
            TRY(syntax_class_item(r, last));
    }
    if (r->at == start)
        return syntax_refuse(r, start - 1, "the class is empty");
    r->at++;
    return TRIREME_OK;
}

// Reads a class, whose '[' is taken, and adds it to `parts`.
static trireme_status syntax_class(struct syntax_reader *r, struct class_parts *parts) {
    TRY(syntax_descend(r));
    bool negated = syntax_takes(r, "^");
    struct class_parts own = {0};
    struct text before = {0}, whole = {0};
    trireme_status status = syntax_class_inside(r, &own, &before);
    if (status == TRIREME_OK && !before.length && !own.others.length)
        parts_add(parts, own.items.text, negated);
    else if (status == TRIREME_OK) {
        text_add(&whole, "%s", before.length ? before.text : "");
        parts_write(&own, &whole);
        if (negated)
            text_add(&parts->others, "|(?!%s)" ANY, whole.text);
        else
            text_add(&parts->others, "|%s", whole.text);
    }
    parts_release(&own);
    text_release(&before);
    text_release(&whole);
    r->depth--;
    return status;
}

// ---- repetitions

// {n}, {n,}, {,n}, {n,m}; false where it is none of these: then the brace stands for itself.
static bool syntax_interval(struct syntax_reader *r, int *least, int *most) {
    enum { TOO_MANY = 1000000 }; // for PCRE2
    int bound[2] = {-1, -1}, i = 0;
    size_t at = r->at + 1;
    for (; at < r->length && r->text[at] != '}'; at++) {
        char c = r->text[at];
        if (c == ',' && i == 0)
            i = 1;
        else if (c >= '0' && c <= '9')
            bound[i] = MIN(MAX(bound[i], 0) * 10 + c - '0', TOO_MANY);
        else
            return false;
    }
    if (at >= r->length || (bound[0] < 0 && bound[1] < 0))
        return false;
    r->at = at + 1;
    *least = MAX(bound[0], 0);
    *most = i == 0 ? *least : bound[1];
    return true;
}

// Puts the end of *out, from `start`, into a group.
static void group_from(struct text *out, size_t start) {
    static const char OPEN[] = "(?:";
    text_add_bytes(out, OPEN, 3);
    memmove(out->text + start + 3, out->text + start, out->length - 3 - start);
    memcpy(out->text + start, OPEN, 3);
    text_add_bytes(out, ")", 1);
}

// What repeats the atom that begins at `start` of *out.
static trireme_status syntax_repetitions(struct syntax_reader *r, size_t start, struct text *out) {
    for (int repetitions = 0; !syntax_ends(r); repetitions++) {
        char c = r->text[r->at];
        int least = 0, most = -1;
        bool interval = c == '{' && syntax_interval(r, &least, &most);
        if (!interval && c != '?' && c != '*' && c != '+')
            break;
        if (repetitions == EXPRESSION_DEPTH_MAX)
            return syntax_refuse(r, r->at, "more than %d repetitions of repetitions", EXPRESSION_DEPTH_MAX);
        if (repetitions)
            group_from(out, start);
        if (!interval) {
            r->at++;
            text_add_bytes(out, &c, 1);
            if (syntax_takes(r, "?"))
                text_add_bytes(out, "?", 1);
            else if (syntax_takes(r, "+"))
                text_add_bytes(out, "+", 1);
            continue;
        }
        const bool possessive = most >= 0 && least > most;
        if (most < 0)
            text_add(out, "{%d,}", least);
        else
            text_add(out, "{%d,%d}%s", MIN(least, most), MAX(least, most), possessive ? "+" : "");
        if (possessive)
            continue;
        if (least != most && syntax_takes(r, "?"))
            text_add_bytes(out, "?", 1);
    }
    return TRIREME_OK;
}

// ---- groups and atoms

static trireme_status syntax_alternatives(struct syntax_reader *r, struct text *out);

// Options after "(?", up to ':' or ')': written as PCRE2 calls them.
static trireme_status syntax_options(struct syntax_reader *r, struct text *out) {
    size_t start = r->at;
    text_add(out, "(?");
    for (; !syntax_ends(r) && r->text[r->at] != ':' && r->text[r->at] != ')'; r->at++) {
        char c = r->text[r->at];
        if (c != 'i' && c != 'm' && c != '-')
            return syntax_refuse(r, start, "(?%c is not known", c >= ' ' && c < 0x7F ? c : '?');
        if (c == 'm') // a dot matches line ends
            c = 's';
        text_add_bytes(out, &c, 1);
    }
    if (syntax_ends(r))
        return syntax_refuse(r, start, "( without )");
    text_add_bytes(out, ":", 1);
    return TRIREME_OK;
}

static trireme_status syntax_group_end(struct syntax_reader *r, size_t start, struct text *out) {
    if (!syntax_takes(r, ")"))
        return syntax_refuse(r, start, "( without )");
    text_add_bytes(out, ")", 1);
    r->depth--;
    return TRIREME_OK;
}

// Reads a group, whose '(' is taken. *isolated: it was an option that holds for the rest of the group around, which has
// been read, too.
static trireme_status syntax_group(struct syntax_reader *r, struct text *out, bool *isolated) {
    static const char *const OPENINGS[] = {"?:", "?=", "?!", "?<=", "?<!", "?>"};
    size_t start = r->at - 1;
    TRY(syntax_descend(r));
    for (size_t i = 0; i < ARRAY_LENGTH(OPENINGS); i++)
        if (syntax_takes(r, OPENINGS[i])) {
            text_add(out, "(%s", OPENINGS[i]);
            TRY(syntax_alternatives(r, out));
            return syntax_group_end(r, start, out);
        }
    if (syntax_takes(r, "?#")) {
        while (!syntax_ends(r) && !syntax_looks(r, ")"))
            r->at++;
        text_add(out, "(?:");
        return syntax_group_end(r, start, out);
    }
    if (!syntax_takes(r, "?")) {
        text_add(out, "(?:"); // nothing refers to it
        TRY(syntax_alternatives(r, out));
        return syntax_group_end(r, start, out);
    }
    TRY(syntax_options(r, out));
    *isolated = r->text[r->at++] == ')';
    TRY(syntax_alternatives(r, out));
    if (!*isolated)
        return syntax_group_end(r, start, out);
    text_add_bytes(out, ")", 1);
    r->depth--;
    return TRIREME_OK;
}

// After a backslash, outside of classes.
static trireme_status syntax_escape(struct syntax_reader *r, struct text *out) {
    static const struct {
        char letter;
        const char *written;
    } ATOMS[] = {
        {'w', WORD},
        {'W', NOT_WORD},
        {'b', "(?:(?<=" WORD ")(?!" WORD ")|(?<!" WORD ")(?=" WORD "))"},
        {'B', "(?:(?<=" WORD ")(?=" WORD ")|(?<!" WORD ")(?!" WORD "))"},
        {'A', "\\A"},
        {'z', "\\z"},
        {'Z', "\\Z"},
        {'R', "\\R"},
        {'N', "[^\\n]"},
        {'O', ANY},
    };
    if (syntax_ends(r))
        return syntax_refuse(r, r->at, "ends after a backslash");
    for (size_t i = 0; i < ARRAY_LENGTH(ATOMS); i++)
        if (r->text[r->at] == ATOMS[i].letter) {
            r->at++;
            text_add(out, "%s", ATOMS[i].written);
            return TRIREME_OK;
        }
    struct class_parts parts = {0};
    bool known = false;
    trireme_status status = syntax_set_escape(r, &parts, &known);
    if (status == TRIREME_OK && known)
        parts_write(&parts, out);
    parts_release(&parts);
    if (status != TRIREME_OK || known)
        return status;
    uint32_t code;
    TRY(syntax_character_escape(r, &code));
    add_code(out, code);
    return TRIREME_OK;
}

static trireme_status syntax_atom(struct syntax_reader *r, struct text *out, bool *isolated) {
    size_t start = r->at;
    uint32_t code = syntax_character(r);
    switch (code) {
    case '(':
        return syntax_group(r, out, isolated);
    case '[': {
        struct class_parts parts = {0};
        trireme_status status = syntax_class(r, &parts);
        if (status == TRIREME_OK)
            parts_write(&parts, out);
        parts_release(&parts);
        return status;
    }
    case '\\':
        return syntax_escape(r, out);
    case '.':
        text_add(out, ".");
        return TRIREME_OK;
    case '^':
    case '$':
        text_add(out, "(?m:%c)", (int)code);
        return TRIREME_OK;
    case '?':
    case '*':
    case '+':
        return syntax_refuse(r, start, "'%c' follows nothing that it could repeat", (int)code);
    default:
        add_code(out, code);
        return TRIREME_OK;
    }
}

// Reads up to the ')' that ends the group around, or the end.
static trireme_status syntax_alternatives(struct syntax_reader *r, struct text *out) {
    while (!syntax_ends(r) && !syntax_looks(r, ")")) {
        if (syntax_takes(r, "|")) {
            text_add_bytes(out, "|", 1);
            continue;
        }
        size_t start = out->length;
        bool isolated = false;
        TRY(syntax_atom(r, out, &isolated));
        if (isolated)
            break;
        TRY(syntax_repetitions(r, start, out));
    }
    return TRIREME_OK;
}

trireme_status expression_translate(const char *pattern, size_t length, struct text *out, trireme_error *error) {
    struct syntax_reader r = {.text = pattern, .length = length, .error = error};
    if (length > EXPRESSION_BYTES_MAX)
        return syntax_refuse(&r, 0, "it has %zu bytes, more than %d", length, EXPRESSION_BYTES_MAX);
    if (utf8_prefix(pattern, length) != length)
        return syntax_refuse(&r, utf8_prefix(pattern, length), "not UTF-8");
    TRY(syntax_alternatives(&r, out));
    if (!syntax_ends(&r))
        return syntax_refuse(&r, r.at, ") without (");
    return TRIREME_OK;
}

#include "tokenizer/expression.h"

#include "base/clock.h"
#include "base/json.h"
#include "tokenizer/expression_syntax.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    STEPS_MAX = 10000000,     // back, in one attempt: Oniguruma's limit, too
    HEAP_MAX_KIB = 64 * 1024, // of one match
    JIT_STACK_LEAST = 64 * 1024,
    JIT_STACK_MOST = 8 * 1024 * 1024,
    CODE_MAX = 8 * 1024 * 1024, // bytes that a pattern may compile to
};
// Processor time for a text: so much, and so much for each byte.
static const int64_t TIME_LEAST = 1000000000, TIME_OF_BYTE = 1000;
// Between two looks at the clock a search begins at so many places at most. A pattern that reads to the end of the text
// from every place of it takes the square of its length.
enum { PLACES_BETWEEN_LOOKS = 64 };

struct expression {
    pcre2_code *code;
    bool compiled; // to machine code; else it is interpreted
    char excerpt[JSON_EXCERPT_BYTES];
};

struct expression_memory {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; // NULL where there is no JIT
};

static void *expression_allocate(size_t bytes, void *unused) {
    (void)unused;
    return mem_resize(NULL, bytes);
}

static void expression_release(void *p, void *unused) {
    (void)unused;
    free(p);
}

trireme_status expression_create(struct expression **out, const char *pattern, size_t length, trireme_error *error) {
    char excerpt[JSON_EXCERPT_BYTES], reason[128];
    json_excerpt_bytes(pattern, length, excerpt);
    struct text translated = {0};
    trireme_status status = expression_translate(pattern, length, &translated, error);
    if (status != TRIREME_OK) {
        text_release(&translated);
        return error_prefix(error, status, "pattern %s", excerpt);
    }
    pcre2_general_context *general = pcre2_general_context_create(expression_allocate, expression_release, NULL);
    pcre2_compile_context *context = pcre2_compile_context_create(general);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_bsr(context, PCRE2_BSR_UNICODE);
    pcre2_set_parens_nest_limit(context, 4 * EXPRESSION_DEPTH_MAX);
    int refusal;
    PCRE2_SIZE at;
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_USE_OFFSET_LIMIT | PCRE2_NEVER_BACKSLASH_C;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)(translated.text ? translated.text : ""), translated.length, options,
                                     &refusal, &at, context);
    size_t size = 0;
    if (code)
        pcre2_pattern_info(code, PCRE2_INFO_SIZE, &size);
    else
        pcre2_get_error_message(refusal, (PCRE2_UCHAR *)reason, sizeof reason);
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    text_release(&translated);
    if (!code)
        FAIL(TRIREME_ERROR_USAGE, "pattern %s: %s", excerpt, reason);
    if (size > CODE_MAX) {
        pcre2_code_free(code);
        FAIL(TRIREME_ERROR_USAGE, "pattern %s: it repeats too much", excerpt);
    }
    struct expression *e = mem_alloc(sizeof *e);
    e->compiled = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
    e->code = code;
    memcpy(e->excerpt, excerpt, sizeof excerpt);
    *out = e;
    return TRIREME_OK;
}

void expression_free(struct expression *e) {
    if (!e)
        return;
    pcre2_code_free(e->code);
    free(e);
}

struct expression_memory *expression_memory_create(void) {
    struct expression_memory *memory = mem_alloc(sizeof *memory);
    pcre2_general_context *general = pcre2_general_context_create(expression_allocate, expression_release, NULL);
    memory->data = pcre2_match_data_create(1, general);
    memory->context = pcre2_match_context_create(general);
    memory->stack = pcre2_jit_stack_create(JIT_STACK_LEAST, JIT_STACK_MOST, general);
    if (memory->stack)
        pcre2_jit_stack_assign(memory->context, NULL, memory->stack);
    pcre2_set_match_limit(memory->context, STEPS_MAX);
    pcre2_set_depth_limit(memory->context, STEPS_MAX);
    pcre2_set_heap_limit(memory->context, HEAP_MAX_KIB);
    pcre2_general_context_free(general);
    return memory;
}

void expression_memory_free(struct expression_memory *memory) {
    if (!memory)
        return;
    pcre2_match_data_free(memory->data);
    pcre2_match_context_free(memory->context);
    pcre2_jit_stack_free(memory->stack);
    free(memory);
}

// Searches for the first match that begins at or after `at` and not behind `limit`: PCRE2's return value.
static int expression_search(const struct expression *e, struct expression_memory *memory, const char *text,
                             size_t length, size_t at, size_t limit) {
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    pcre2_set_offset_limit(memory->context, limit);
    if (e->compiled) {
        int found = pcre2_jit_match(e->code, subject, length, at, PCRE2_NO_UTF_CHECK, memory->data, memory->context);
        if (found != PCRE2_ERROR_JIT_STACKLIMIT)
            return found;
    }
    // The interpreter's stack is the heap.
    return pcre2_match(e->code, subject, length, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, memory->data, memory->context);
}

static trireme_status refuse_search(const struct expression *e, int found, size_t at, trireme_error *error) {
    char reason[128];
    if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_DEPTHLIMIT || found == PCRE2_ERROR_HEAPLIMIT)
        FAIL(TRIREME_ERROR_USAGE, "pattern %s: takes too long at byte %zu of the text", e->excerpt, at);
    pcre2_get_error_message(found, (PCRE2_UCHAR *)reason, sizeof reason);
    FAIL(TRIREME_ERROR_USAGE, "pattern %s: at byte %zu of the text: %s", e->excerpt, at, reason);
}

// The start of the character behind the one at `at`.
static size_t character_after(const char *text, size_t length, size_t at) {
    for (at++; at < length && ((unsigned char)text[at] & 0xC0) == 0x80;)
        at++;
    return at;
}

struct stop_watch {
    int64_t time;                // allowed, of the processor
    int64_t begun, thread_begun; // 0: not yet
    size_t places;               // since the last look
};

// Whether the time is over, after a search that began at so many places. Only when a clock that is cheap to read says
// so is the time of the processor asked for.
static bool stop_watch_expired(struct stop_watch *w, size_t places) {
    w->places += places;
    if (w->places < PLACES_BETWEEN_LOOKS)
        return false;
    w->places = 0;
    int64_t now = clock_now();
    if (!w->begun) {
        w->begun = now;
        w->thread_begun = clock_thread();
    }
    return now - w->begun > w->time && clock_thread() - w->thread_begun > w->time;
}

trireme_status expression_find(const struct expression *e, struct expression_memory *memory, const char *text,
                               size_t length, struct spans *out, trireme_error *error) {
    if (!length)
        return TRIREME_OK;
    const PCRE2_SIZE *match = pcre2_get_ovector_pointer(memory->data);
    struct stop_watch watch = {.time = TIME_LEAST + TIME_OF_BYTE * (int64_t)length};
    size_t at = 0, done = 0;
    bool first = true;
    while (at <= length) {
        size_t limit = MIN(length, at + PLACES_BETWEEN_LOOKS);
        int found = expression_search(e, memory, text, length, at, limit);
        if (found < 0 && found != PCRE2_ERROR_NOMATCH)
            return refuse_search(e, found, at, error);
        if (stop_watch_expired(&watch, found == PCRE2_ERROR_NOMATCH ? PLACES_BETWEEN_LOOKS : match[0] - at + 1))
            return refuse_search(e, PCRE2_ERROR_MATCHLIMIT, at, error);
        if (found == PCRE2_ERROR_NOMATCH) {
            if (limit == length)
                break;
            at = character_after(text, length, limit);
            continue;
        }
        size_t start = match[0], end = match[1];
        if (start == end && !first && end == done) {
            at = character_after(text, length, at);
            continue;
        }
        if (start > done)
            spans_add(out, start, false);
        spans_add(out, end, true);
        at = done = end;
        first = false;
    }
    if (done < length)
        spans_add(out, length, false);
    return TRIREME_OK;
}

char *expression_unicode_version(void) {
    char version[24] = "";
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    return mem_strdup(version);
}

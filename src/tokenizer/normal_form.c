// A text is taken apart before characters of ASCII: these neither change nor combine with what stands before them. What
// lies between is decomposed, its marks are put in order, and for a composed form utf8proc composes it. The order is
// our own because utf8proc's takes the square of a run of marks.
#include "tokenizer/normal_form.h"

#include "tokenizer/text_work_parts.h"
#include "tokenizer/unicode.h"

#include <utf8proc.h>

enum { MARKS_INSERTED = 16 }; // a run of marks that is sorted by insertion

static const utf8proc_option_t FORM_OPTIONS[] = {
    [NORMAL_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
    [NORMAL_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
    [NORMAL_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
    [NORMAL_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
};

static unsigned combining_class(int32_t code) {
    return utf8proc_get_property(code)->combining_class & 0xFF;
}

// Sorts marks by combining class; equal ones keep their order.
static void sort_marks(int32_t *mark, size_t count) {
    if (count <= MARKS_INSERTED) {
        for (size_t i = 1; i < count; i++) {
            int32_t code = mark[i];
            size_t at = i;
            for (; at > 0 && combining_class(mark[at - 1]) > combining_class(code); at--)
                mark[at] = mark[at - 1];
            mark[at] = code;
        }
        return;
    }
    size_t start[257] = {0};
    int32_t *sorted = mem_alloc(count * sizeof *sorted);
    for (size_t i = 0; i < count; i++)
        start[combining_class(mark[i]) + 1]++;
    for (int c = 0; c < 256; c++)
        start[c + 1] += start[c];
    for (size_t i = 0; i < count; i++)
        sorted[start[combining_class(mark[i])]++] = mark[i];
    memcpy(mark, sorted, count * sizeof *sorted);
    free(sorted);
}

static void order_marks(int32_t *code, size_t count) {
    for (size_t i = 0, end; i < count; i = end) {
        end = i + 1;
        if (code[i] < 0x300 || !combining_class(code[i]))
            continue;
        while (end < count && combining_class(code[end]))
            end++;
        if (end - i > 1)
            sort_marks(code + i, end - i);
    }
}

static void add_normal_run(enum normal_form form, struct text_work *work, const char *text, size_t length,
                           struct text *out) {
    const utf8proc_option_t options = FORM_OPTIONS[form];
    work->codes.count = 0;
    int last_class = UTF8PROC_BOUNDCLASS_START; // of grapheme clusters, which are not asked for
    for (size_t at = 0, bytes; at < length; at += bytes) {
        enum { LONGEST = 32 }; // decomposition: U+FDFA has 18
        int32_t code = (int32_t)unicode_decode(text + at, &bytes);
        VEC_RESERVE(&work->codes, work->codes.count + LONGEST);
        int32_t *to = work->codes.item + work->codes.count;
        utf8proc_ssize_t made = utf8proc_decompose_char(code, to, LONGEST, options, &last_class);
        CHECK(made >= 0 && made <= LONGEST);
        work->codes.count += (size_t)made;
    }
    order_marks(work->codes.item, work->codes.count);
    utf8proc_ssize_t count = utf8proc_normalize_utf32(work->codes.item, (utf8proc_ssize_t)work->codes.count, options);
    for (utf8proc_ssize_t i = 0; i < count; i++)
        unicode_add(out, (uint32_t)work->codes.item[i]);
}

void normal_form_add(enum normal_form form, struct text_work *work, const char *text, size_t length, struct text *out) {
    for (size_t at = 0; at < length;) {
        size_t ascii = unicode_ascii_prefix(text + at, length - at);
        if (ascii == length - at) {
            text_add_bytes(out, text + at, ascii);
            return;
        }
        if (ascii > 1)
            text_add_bytes(out, text + at, ascii - 1);
        at += ascii ? ascii - 1 : 0;
        size_t end = at + 1;
        while (end < length && (unsigned char)text[end] >= 0x80)
            end++;
        add_normal_run(form, work, text + at, end - at, out);
        at = end;
    }
}

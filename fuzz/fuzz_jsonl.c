// Reads arbitrary bytes as .txt or .jsonl (the first byte chooses) with several block sizes: all must agree, what is
// accepted is UTF-8, and a .txt comes out as it went in.
#include "data/documents.h"

#include "base/text.h"
#include "base/utf8.h"

#include <sys/mman.h>
#include <unistd.h>

struct collected {
    struct text text; // documents, each ended by 0xFF, which no UTF-8 holds
    size_t read;
    struct utf8_checker utf8;
};

static trireme_status add(void *user, const char *bytes, size_t length, trireme_error *error) {
    (void)error;
    struct collected *c = user;
    CHECK(length > 0 && utf8_check(&c->utf8, bytes, length));
    text_add_bytes(&c->text, bytes, length);
    return TRIREME_OK;
}

static trireme_status end(void *user, trireme_error *error) {
    (void)error;
    struct collected *c = user;
    CHECK(utf8_finish(&c->utf8));
    text_add_bytes(&c->text, "\xFF", 1);
    return TRIREME_OK;
}

// A chat counts as a document.
static trireme_status chat(void *user, const char *json, size_t length, int64_t line, trireme_error *error) {
    CHECK(length > 1 && json[0] == '{' && json[length - 1] == '}' && line > 0);
    TRY(add(user, json, length, error));
    return end(user, error);
}

static trireme_status advance(void *user, size_t bytes, trireme_error *error) {
    (void)error;
    ((struct collected *)user)->read += bytes;
    return TRIREME_OK;
}

// gzip, Zstandard.
static bool is_packed(const uint8_t *data, size_t size) {
    return (size >= 2 && memcmp(data, "\x1f\x8b", 2) == 0) || (size >= 4 && memcmp(data, "\x28\xb5\x2f\xfd", 4) == 0);
}

static bool is_damaged(const trireme_error *error) {
    return strstr(error->message, " is damaged at byte ");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1)
        return 0;
    int fd = memfd_create("input", 0);
    CHECK(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)size - 1);
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct document_file file = {
        .path = path, .format = data[0] % 2 ? DOCUMENT_TEXT : DOCUMENT_LINES, .bytes = (int64_t)size - 1};
    static const size_t blocks[] = {1 << 16, 1, 5};
    struct collected first = {0};
    trireme_error first_error = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(blocks); i++) {
        struct collected c = {0};
        struct document_sink sink = {.user = &c, .add = add, .end = end, .advance = advance, .chat = chat};
        struct document_options options = {.block_bytes = blocks[i], .line_limit = 5000};
        trireme_error error = {0};
        trireme_status status = document_file_read(&file, &options, &sink, &error);
        CHECK(status == error.status && !strchr(error.message, '\n'));
        CHECK(status != TRIREME_OK || c.read == size - 1);
        // All of a text but a byte order mark before it, and the mark of its end.
        const size_t mark = size > 3 && memcmp(data + 1, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
        if (status == TRIREME_OK && file.format == DOCUMENT_TEXT && !is_packed(data + 1, size - 1))
            CHECK(c.text.length == size - mark && memcmp(c.text.text, data + 1 + mark, size - 1 - mark) == 0);
        if (i == 0) {
            first = c;
            first_error = error;
            continue;
        }
        // Where reading fails, blocks that end elsewhere may have handed on more or less of the text before. Of an
        // archive that is damaged, a library that may unpack less at a time gives some text more before it says so,
        // and that text may be refused first.
        const bool damaged = is_damaged(&error) || is_damaged(&first_error);
        CHECK(damaged ? *error.message && *first_error.message : strcmp(error.message, first_error.message) == 0);
        if (status == TRIREME_OK && c.text.length)
            CHECK(c.text.length == first.text.length && memcmp(c.text.text, first.text.text, c.text.length) == 0);
        text_release(&c.text);
    }
    text_release(&first.text);
    close(fd);
    return 0;
}

#include "data/documents.h"

#include "base/json.h"
#include "base/json_line.h"
#include "base/utf8.h"
#include "data/unpacker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIRECTORY_DEPTH = 64, BLOCK_BYTES = 1 << 20, LINE_LIMIT = 1 << 30, POLL_MILLISECONDS = 200 };
enum { FIRST_BYTES = 4 };

// ---- finding files

// Whether name[0, length) ends so, in capitals or not, after at least one character; *length: without it.
static bool name_ends(const char *name, size_t *length, const char *ending) {
    const size_t end = strlen(ending);
    const bool has = *length > end && strncasecmp(name + *length - end, ending, end) == 0;
    *length -= has ? end : 0;
    return has;
}

// By the ending of its name, before that of a packed file.
static bool format_of(const char *path, enum document_format *format) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t length = strlen(name);
    if (!name_ends(name, &length, ".gz") && !name_ends(name, &length, ".zst"))
        name_ends(name, &length, ".zstd");
    *format = name_ends(name, &length, ".txt") ? DOCUMENT_TEXT : DOCUMENT_LINES;
    return *format == DOCUMENT_TEXT || name_ends(name, &length, ".jsonl");
}

static void add_file(struct document_files *files, const char *path, enum document_format format, int64_t bytes) {
    struct document_file file = {.path = mem_strdup(path), .format = format, .bytes = bytes};
    VEC_PUSH(files, file);
    files->bytes += bytes;
}

// Counts a file that is left out by the ending of its name, or by its name where it has none.
static void pass_over(struct document_files *files, const char *name) {
    const char *dot = strrchr(name, '.'), *ending = dot ? dot : name;
    for (size_t i = 0; i < files->others.count; i++)
        if (strcasecmp(files->others.item[i].ending, ending) == 0) {
            files->others.item[i].count++;
            return;
        }
    VEC_PUSH(&files->others, (struct document_others){mem_strdup(ending), 1});
}

void document_files_describe_others(const struct document_files *files, struct text *out) {
    enum { LISTED = 6 };
    int64_t rest = 0;
    for (size_t i = 0; i < files->others.count; i++) {
        const struct document_others *others = &files->others.item[i];
        if (i >= LISTED) {
            rest += others->count;
            continue;
        }
        text_add(out, "%s%lld ", i ? ", " : "", (long long)others->count);
        text_add_line(out, others->ending);
    }
    if (rest)
        text_add(out, ", %lld with other endings", (long long)rest);
}

struct names {
    VEC(char *);
};

static void names_release(struct names *names) {
    for (size_t i = 0; i < names->count; i++)
        free(names->item[i]);
    VEC_RELEASE(names);
}

static trireme_status list_directory(const char *path, struct names *names, trireme_error *error) {
    DIR *directory = opendir(path);
    if (!directory)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    struct dirent *entry;
    while (errno = 0, (entry = readdir(directory)))
        if (entry->d_name[0] != '.')
            VEC_PUSH(names, mem_strdup(entry->d_name));
    int reason = errno;
    closedir(directory);
    if (reason)
        FAIL(TRIREME_ERROR_IO, "%s: cannot list: %s", path, strerror(reason));
    VEC_SORT(names, text_compare);
    return TRIREME_OK;
}

// A directory that is being listed, and the one in which it was found.
struct visited {
    const struct visited *above;
    dev_t device;
    ino_t inode;
    int depth;
};

static trireme_status check_visit(const char *path, const struct visited *visit, trireme_error *error) {
    if (visit->depth > DIRECTORY_DEPTH)
        FAIL(TRIREME_ERROR_USAGE, "%s: more than %d directories deep", path, DIRECTORY_DEPTH);
    for (const struct visited *v = visit->above; v; v = v->above)
        if (v->device == visit->device && v->inode == visit->inode)
            FAIL(TRIREME_ERROR_USAGE, "%s: is a symbolic link that leads back to a directory above it", path);
    return TRIREME_OK;
}

static trireme_status add_directory(struct document_files *files, const char *path, const struct stat *self,
                                    const struct visited *above, trireme_error *error) {
    struct visited visit = {above, self->st_dev, self->st_ino, above ? above->depth + 1 : 1};
    TRY(check_visit(path, &visit, error));
    struct names names = {0};
    trireme_status status = list_directory(path, &names, error);
    for (size_t i = 0; i < names.count && status == TRIREME_OK; i++) {
        const char *between = path[strlen(path) - 1] == '/' ? "" : "/";
        char *inside = mem_printf("%s%s%s", path, between, names.item[i]);
        struct stat info = {0};
        enum document_format format;
        // A dangling link matters only if its name is that of a text file.
        if (stat(inside, &info) != 0 && (errno != ENOENT || format_of(inside, &format)))
            status = error_set(error, TRIREME_ERROR_IO, "%s: cannot examine: %s", inside, strerror(errno));
        else if (S_ISDIR(info.st_mode))
            status = add_directory(files, inside, &info, &visit, error);
        else if (S_ISREG(info.st_mode) && format_of(inside, &format))
            add_file(files, inside, format, info.st_size);
        else if (S_ISREG(info.st_mode))
            pass_over(files, names.item[i]);
        free(inside);
    }
    names_release(&names);
    return status;
}

trireme_status document_files_add(struct document_files *files, const char *path, trireme_error *error) {
    struct stat info;
    enum document_format format;
    if (strcmp(path, "-") == 0 && files->stream)
        FAIL(TRIREME_ERROR_USAGE, "standard input (-) is there once: it cannot be read again");
    if (strcmp(path, "-") == 0) {
        add_file(files, "standard input", DOCUMENT_STREAM, 0);
        files->stream = true;
        return TRIREME_OK;
    }
    if (!*path || stat(path, &info) != 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: cannot open: %s", *path ? path : "\"\"",
             *path ? strerror(errno) : "the name is empty");
    if (S_ISDIR(info.st_mode)) {
        size_t before = files->count;
        TRY(add_directory(files, path, &info, NULL, error));
        if (files->count > before)
            return TRIREME_OK;
        struct text others = {0};
        document_files_describe_others(files, &others);
        error_set(error, TRIREME_ERROR_USAGE, "%s: there is no .txt or .jsonl below this directory%s%s", path,
                  others.length ? "; there are " : "", others.length ? others.text : "");
        text_release(&others);
        return TRIREME_ERROR_USAGE;
    }
    if (!S_ISREG(info.st_mode))
        FAIL(TRIREME_ERROR_USAGE, "%s: is neither a regular file nor a directory; - is standard input", path);
    if (!format_of(path, &format))
        FAIL(TRIREME_ERROR_USAGE,
             "%s: expected a name that ends in .txt (one document) or .jsonl (one a line), perhaps with .gz or .zst "
             "behind, or - for what another program writes",
             path);
    if (info.st_size == 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: is empty", path);
    add_file(files, path, format, info.st_size);
    return TRIREME_OK;
}

void document_files_release(struct document_files *files) {
    for (size_t i = 0; i < files->count; i++)
        free(files->item[i].path);
    VEC_RELEASE(files);
    for (size_t i = 0; i < files->others.count; i++)
        free(files->others.item[i].ending);
    VEC_RELEASE(&files->others);
    files->bytes = 0;
    files->stream = false;
}

// ---- reading

struct reader {
    const char *path, *field;
    size_t line_limit, block;
    const struct document_sink *sink;
    int fd;
    bool stream;
    struct unpacker *unpacker;
    int64_t position;        // bytes read from the file
    char first[FIRST_BYTES]; // the first of them
    struct text sensed;      // the first of a stream, which tell its format
    size_t sensed_taken;
    char *buffer;
    size_t capacity;
    int64_t line, line_start; // number, from 1, and byte offset of the current line
    struct document_bad_lines *bad_lines;
    bool passes_over; // the current line is too long: what is left of it is not looked at
};

// Waits for input. The writer may take any time, and meanwhile reading can be cancelled.
static trireme_status wait_for_stream(const struct reader *r, trireme_error *error) {
    struct pollfd stream = {.fd = r->fd, .events = POLLIN};
    for (int n; (n = poll(&stream, 1, POLL_MILLISECONDS)) <= 0 && (n == 0 || errno == EINTR);)
        TRY(r->sink->advance(r->sink->user, 0, error));
    return TRIREME_OK;
}

// Reads up to `want` bytes of the file, as they are, to `at`; *got = 0 at its end.
static trireme_status documents_read_packed(void *user, char *at, size_t want, size_t *got, trireme_error *error) {
    struct reader *r = user;
    ssize_t n;
    if (r->stream)
        TRY(wait_for_stream(r, error));
    do
        n = read(r->fd, at, want);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot read at byte %" PRId64 ": %s", r->path, r->position, strerror(errno));
    *got = (size_t)n;
    for (ssize_t i = 0; i < n && r->position + i < FIRST_BYTES; i++)
        r->first[r->position + i] = at[i];
    r->position += n;
    return n ? r->sink->advance(r->sink->user, (size_t)n, error) : TRIREME_OK;
}

// Reads up to `want` bytes of text to `at`; *got = 0 at its end.
static trireme_status read_some(struct reader *r, char *at, size_t want, size_t *got, trireme_error *error) {
    if (r->sensed_taken == r->sensed.length)
        return unpacker_read(r->unpacker, at, want, got, error);
    *got = MIN(want, r->sensed.length - r->sensed_taken);
    memcpy(at, r->sensed.text + r->sensed_taken, *got);
    r->sensed_taken += *got;
    return TRIREME_OK;
}

// The program that turns a file which begins with these bytes into text, such as a decompressor; of a stream, the bytes
// that have arrived.
static const char *documents_converter(const struct reader *r) {
    char first[FIRST_BYTES] = "";
    if (pread(r->fd, first, sizeof first, 0) < 0)
        memcpy(first, r->first, sizeof first);
    static const struct {
        const char *first, *program;
    } PACKED[] = {{"\xFD"
                   "7zX",
                   "unxz"},
                  {"BZh", "bunzip2"},
                  {"PK\x03\x04", "unzip"}};
    for (size_t i = 0; i < ARRAY_LENGTH(PACKED); i++)
        if (memcmp(first, PACKED[i].first, strlen(PACKED[i].first)) == 0)
            return PACKED[i].program;
    return "iconv";
}

static trireme_status refuse_encoding(const struct reader *r, const struct utf8_checker *utf8, bool cut,
                                      trireme_error *error) {
    char line[40] = "";
    if (r->line)
        snprintf(line, sizeof line, " (line %" PRId64 ")", r->line);
    FAIL(TRIREME_ERROR_CORRUPT, "%s: not UTF-8 at byte %" PRId64 "%s: %s; convert the text first, with %s for example",
         r->path, utf8->start, line, cut ? "the last character is cut off" : "no character begins with these bytes",
         documents_converter(r));
}

static trireme_status read_text(struct reader *r, trireme_error *error) {
    struct utf8_checker utf8 = {0};
    size_t mark = 0; // bytes of the mark found so far
    bool begun = false;
    for (;;) {
        size_t got, skip = 0;
        TRY(read_some(r, r->buffer, r->block, &got, error));
        if (got == 0)
            break;
        if (!utf8_check(&utf8, r->buffer, got))
            return refuse_encoding(r, &utf8, false, error);
        while (!begun && skip < got && mark < UTF8_MARK_BYTES && r->buffer[skip] == UTF8_MARK[mark])
            mark++, skip++;
        if (skip == got)
            continue;
        // Bytes that began like the mark and then differ are text.
        if (!begun && mark < UTF8_MARK_BYTES && mark)
            TRY(r->sink->add(r->sink->user, UTF8_MARK, mark, error));
        begun = true;
        TRY(r->sink->add(r->sink->user, r->buffer + skip, got - skip, error));
    }
    if (!utf8_finish(&utf8))
        return refuse_encoding(r, &utf8, true, error);
    return r->sink->end(r->sink->user, error);
}

static trireme_status refuse_line(const struct reader *r, trireme_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static trireme_status refuse_line(const struct reader *r, trireme_error *error, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *what = mem_vprintf(format, args);
    va_end(args);
    error_set(error, TRIREME_ERROR_CORRUPT, "%s line %" PRId64 ": %s", r->path, r->line, what);
    free(what);
    return TRIREME_ERROR_CORRUPT;
}

// What a value is, as a message may say it.
static const char *value_name(struct json_part value, char buffer[JSON_EXCERPT_BYTES]) {
    enum { SHORT = 40 };
    bool plain = value.length <= SHORT;
    for (size_t i = 0; i < value.length && plain; i++)
        plain = value.text[i] >= ' ' && value.text[i] <= '~';
    if (*value.text == '"')
        return json_excerpt_bytes(value.text + 1, value.length - 2, buffer);
    if (!plain || *value.text == '{')
        return *value.text == '{' ? "an object" : *value.text == '[' ? "an array" : "a number";
    snprintf(buffer, JSON_EXCERPT_BYTES, "%.*s", (int)value.length, value.text);
    return buffer;
}

// What a line has: a text, which json_string_read can read, or a chat; a blank one neither.
struct line_content {
    struct json_part text, chat;
};

// Whether an object is a chat.
static bool line_is_chat(const struct reader *r, struct json_part object) {
    struct json_wanted wanted[] = {
        {.key = "messages"}, {.key = "conversations"}, {.key = "prompt"}, {.key = "completion"}};
    return r->sink->chat &&
           json_line_find_members(object.text, object.length, 0, wanted, ARRAY_LENGTH(wanted), NULL) == TRIREME_OK &&
           (wanted[0].found || wanted[1].found || (wanted[2].found && wanted[3].found));
}

static trireme_status find_content(const struct reader *r, const char *line, size_t length, int64_t begin,
                                   struct line_content *out, trireme_error *error) {
    char excerpt[JSON_EXCERPT_BYTES];
    struct json_line found;
    trireme_status status = json_line_find(line, length, begin, r->field, &found, error);
    if (status != TRIREME_OK)
        return error_prefix(error, status, "%s line %" PRId64, r->path, r->line);
    if (*found.whole.text != '{')
        return refuse_line(r, error, "expected a JSON object such as {\"%s\": \"...\"}, found %s", r->field,
                           value_name(found.whole, excerpt));
    if (found.found == 0 && line_is_chat(r, found.whole)) {
        out->chat = found.whole;
        return TRIREME_OK;
    }
    if (found.found == 0)
        return refuse_line(r, error, "there is no field \"%s\" (data.text_field names it); the first of %zu is %s",
                           r->field, found.members, found.members ? value_name(found.first, excerpt) : "none");
    if (found.found > 1)
        return refuse_line(r, error, "the field \"%s\" is there %zu times", r->field, found.found);
    if (*found.value.text != '"')
        return refuse_line(r, error, "the field \"%s\" must be a string, found %s", r->field,
                           value_name(found.value, excerpt));
    status = json_string_check(found.value, begin + (found.value.text - line), error);
    if (status != TRIREME_OK)
        return error_prefix(error, status, "%s line %" PRId64, r->path, r->line);
    out->text = found.value;
    return TRIREME_OK;
}

static trireme_status documents_add_text(const struct reader *r, struct json_part text, trireme_error *error) {
    char bytes[4096];
    for (size_t count; (count = json_string_read(&text, bytes, sizeof bytes));)
        for (size_t done = 0; done < count;) {
            const size_t piece = MIN(count - done, r->block);
            TRY(r->sink->add(r->sink->user, bytes + done, piece, error));
            done += piece;
        }
    return r->sink->end(r->sink->user, error);
}

static bool is_blank(const char *line, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (!strchr(" \t\r\n", line[i]) || !line[i])
            return false;
    return true;
}

static trireme_status documents_read_line(const struct reader *r, const char *line, size_t length,
                                          struct line_content *out, trireme_error *error) {
    int64_t begin = r->line_start;
    struct utf8_checker utf8 = {.position = begin};
    bool good = utf8_check(&utf8, line, length);
    *out = (struct line_content){0};
    if (!good || !utf8_finish(&utf8))
        return refuse_encoding(r, &utf8, good, error);
    size_t mark = r->line_start == 0 ? utf8_mark(line, length) : 0;
    line += mark, length -= mark, begin += (int64_t)mark;
    return is_blank(line, length) ? TRIREME_OK : find_content(r, line, length, begin, out, error);
}

// Counts a bad line, where they are counted; else fails with what is wrong with it, which `status` and *error say.
static trireme_status leave_out(const struct reader *r, trireme_status status, const trireme_error *why,
                                trireme_error *error) {
    if (!r->bad_lines) {
        *error = *why;
        return status;
    }
    if (r->bad_lines->count++ == 0)
        r->bad_lines->first = *why;
    return TRIREME_OK;
}

static trireme_status take_line(struct reader *r, const char *line, size_t length, trireme_error *error) {
    struct line_content content;
    trireme_error why;
    if (r->passes_over) {
        r->passes_over = false;
        return TRIREME_OK;
    }
    trireme_status status = documents_read_line(r, line, length, &content, &why);
    if (status != TRIREME_OK)
        return leave_out(r, status, &why, error);
    if (content.chat.text)
        return r->sink->chat(r->sink->user, content.chat.text, content.chat.length, r->line, error);
    return content.text.text ? documents_add_text(r, content.text, error) : TRIREME_OK;
}

// Room for the longest line and its end; a line that fills it is too long.
static size_t line_room(const struct reader *r) {
    return r->line_limit + 1;
}

static trireme_status grow_buffer(struct reader *r, trireme_error *error) {
    const size_t most = line_room(r);
    size_t capacity = MIN(2 * r->capacity, most);
    char *bigger = realloc(r->buffer, capacity);
    if (!bigger)
        FAIL(TRIREME_ERROR_MEMORY, "%s line %" PRId64 ": no memory for a line of more than %zu bytes", r->path, r->line,
             r->capacity);
    r->buffer = bigger;
    r->capacity = capacity;
    return TRIREME_OK;
}

// A line that is too long is not kept.
static trireme_status refuse_long(struct reader *r, trireme_error *error) {
    trireme_error why;
    if (r->passes_over)
        return TRIREME_OK;
    r->passes_over = true;
    return leave_out(r, refuse_line(r, &why, "is longer than %zu bytes", r->line_limit), &why, error);
}

static trireme_status read_lines(struct reader *r, trireme_error *error) {
    size_t used = 0; // bytes in the buffer: the beginning of a line
    r->line = 1;
    for (;;) {
        if (used == line_room(r)) {
            TRY(refuse_long(r, error));
            r->line_start += (int64_t)used;
            used = 0;
        }
        if (used == r->capacity)
            TRY(grow_buffer(r, error));
        size_t got, begin = 0, searched = used;
        TRY(read_some(r, r->buffer + used, r->capacity - used, &got, error));
        used += got;
        char *end;
        while ((end = memchr(r->buffer + searched, '\n', used - searched))) {
            size_t length = (size_t)(end - (r->buffer + begin));
            TRY(take_line(r, r->buffer + begin, length, error));
            r->line++;
            r->line_start += (int64_t)length + 1;
            begin = searched = begin + length + 1;
        }
        if (got == 0)
            return used ? take_line(r, r->buffer, used, error) : TRIREME_OK;
        memmove(r->buffer, r->buffer + begin, used - begin);
        used -= begin;
    }
}

// Looks at the beginning of a stream, which read_some then returns again: as far as the first byte that is not blank,
// for [ as far as the second one, at most the length of a block.
static trireme_status sense_format(struct reader *r, enum document_format *format, trireme_error *error) {
    struct text seen = {0};
    char first[2] = "";
    size_t got = 1, at = 0, found = 0;
    while (got && found < (first[0] == '[' ? 2 : 1) && seen.length < r->block) {
        trireme_status status = read_some(r, r->buffer, r->block - seen.length, &got, error);
        if (status != TRIREME_OK) {
            text_release(&seen);
            return status;
        }
        text_add_bytes(&seen, r->buffer, got);
        if (seen.length < UTF8_MARK_BYTES && got)
            continue;
        for (at = MAX(at, utf8_mark(seen.text, seen.length)); at < seen.length && found < 2; at++)
            if (!is_blank(seen.text + at, 1))
                first[found++] = seen.text[at];
    }
    r->sensed = seen;
    *format = first[0] == '{' ? DOCUMENT_LINES : DOCUMENT_TEXT;
    if (first[0] == '[' && first[1] == '{')
        FAIL(TRIREME_ERROR_USAGE,
             "%s: begins like a JSON array of objects: give one object a line, as `jq -c '.[]'` writes them (text that "
             "only looks so goes into a .txt file)",
             r->path);
    return TRIREME_OK;
}

trireme_status document_file_read(const struct document_file *file, const struct document_options *options,
                                  const struct document_sink *sink, trireme_error *error) {
    struct reader r = {
        .path = file->path,
        .field = options->field ? options->field : "text",
        .line_limit = options->line_limit ? options->line_limit : LINE_LIMIT,
        .block = options->block_bytes ? options->block_bytes : BLOCK_BYTES,
        .sink = sink,
        .stream = file->format == DOCUMENT_STREAM,
        .bad_lines = options->bad_lines,
    };
    r.fd = r.stream ? dup(STDIN_FILENO) : open(file->path, O_RDONLY | O_CLOEXEC);
    if (r.fd < 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", file->path, strerror(errno));
    posix_fadvise(r.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    r.capacity = MIN(r.block, r.line_limit + 1);
    r.buffer = mem_alloc(r.capacity);
    r.unpacker = unpacker_create(r.path, (struct unpacker_source){&r, documents_read_packed});
    r.block = r.capacity;
    enum document_format format = file->format;
    trireme_status status = r.stream ? sense_format(&r, &format, error) : TRIREME_OK;
    if (status == TRIREME_OK)
        status = format == DOCUMENT_TEXT ? read_text(&r, error) : read_lines(&r, error);
    text_release(&r.sensed);
    unpacker_free(r.unpacker);
    free(r.buffer);
    close(r.fd);
    return status;
}

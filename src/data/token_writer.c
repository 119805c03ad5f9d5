#include "data/token_writer.h"

#include "base/xxh3.h"
#include "data/token_files.h"
#include "data/token_journal.h"
#include "data/token_shard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = BLOCK_BYTES, UINT16_VOCAB_LIMIT = 65500 }; // a full buffer is a block

// A file that is written from its beginning to its end under a temporary name.
struct draft {
    char *path;      // its final name
    char *temporary; // path.tmp
    int fd;          // -1: not open
    bool committed;  // it has its final name
    bool stays;      // under its temporary one
    int64_t written; // bytes that the kernel has taken
    size_t used;     // bytes in the buffer
    uint8_t *buffer;
    VEC(uint64_t) sums; // XXH3 of every piece that was written: of every block, if only full buffers are
};

struct token_writer {
    struct draft draft[TOKEN_FILES];
    char *prefix;
    bool locked;                        // no other writer is at work
    char *made;                         // the topmost directory that did not exist before, or NULL
    const struct tokenizer_files *kept; // NULL: none
    int32_t vocab_size, sequence_limit;
    int width;
    int64_t tokens, sequences, documents;
    int32_t sequence_length; // tokens in the sequence in progress
    int64_t document_tokens; // tokens in the document in progress
    struct text
        continued; // a bit for each sequence, up to the last one that does not begin a document: whether it is such
};

// ---- drafts

// `keeps`: what is in the file, which another writer may have left.
static trireme_status draft_open(struct draft *d, bool keeps, trireme_error *error) {
    for (;;) {
        d->fd = open(d->temporary, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (d->fd < 0)
            FAIL(TRIREME_ERROR_IO, "%s: cannot create: %s", d->temporary, strerror(errno));
        // A file system without locks leaves it to the user that nobody else writes there.
        if (flock(d->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            close(d->fd);
            d->fd = -1;
            FAIL(TRIREME_ERROR_BUSY, "%s: another process is writing it; wait for it to end", d->temporary);
        }
        // Another writer may have put the file in place or removed it between our open and our lock.
        struct stat locked, named;
        bool same = fstat(d->fd, &locked) == 0 && lstat(d->temporary, &named) == 0 && locked.st_ino == named.st_ino &&
                    locked.st_dev == named.st_dev;
        const bool is_file = same && S_ISREG(locked.st_mode);
        if (is_file && (keeps || ftruncate(d->fd, 0) == 0))
            break;
        if (same)
            error_set(error, TRIREME_ERROR_IO, "%s: cannot empty: %s", d->temporary,
                      is_file ? strerror(errno) : "not a regular file");
        if (is_file) // ours, by the lock: nothing of it may be kept
            unlink(d->temporary);
        close(d->fd);
        d->fd = -1;
        if (same)
            return TRIREME_ERROR_IO;
    }
    d->buffer = mem_alloc(BUFFER_BYTES);
    return TRIREME_OK;
}

static trireme_status draft_flush(struct draft *d, trireme_error *error) {
    size_t put = file_write(d->fd, d->buffer, d->used);
    d->written += (int64_t)put;
    if (d->used)
        VEC_PUSH(&d->sums, block_sum(xxh3_of(d->buffer, d->used)));
    if (put < d->used)
        FAIL(TRIREME_ERROR_IO, "%s: cannot write %zu bytes at byte %" PRId64 ": %s; nothing was kept", d->temporary,
             d->used - put, d->written, strerror(errno));
    d->used = 0;
    return TRIREME_OK;
}

// Makes all bytes survive, those in the buffer too, which stays as it is.
static trireme_status draft_save(const struct draft *d, trireme_error *error) {
    if (pwrite(d->fd, d->buffer, d->used, d->written) != (ssize_t)d->used || fsync(d->fd) != 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot save %zu bytes at byte %" PRId64 ": %s", d->temporary, d->used, d->written,
             strerror(errno));
    return TRIREME_OK;
}

// Takes up a file of at least `bytes` bytes that was saved so.
static bool draft_take_up(struct draft *d, int64_t bytes) {
    struct stat info;
    if (fstat(d->fd, &info) != 0 || info.st_size < bytes || ftruncate(d->fd, bytes) != 0)
        return false;
    for (int64_t at = 0; at < bytes; at += (int64_t)d->used) {
        d->used = (size_t)MIN(bytes - at, (int64_t)BUFFER_BYTES);
        if (pread(d->fd, d->buffer, d->used, at) != (ssize_t)d->used)
            return false;
        if (d->used == BUFFER_BYTES && at + BUFFER_BYTES < bytes) {
            VEC_PUSH(&d->sums, block_sum(xxh3_of(d->buffer, d->used)));
            d->written += BUFFER_BYTES;
        }
    }
    return lseek(d->fd, d->written, SEEK_SET) == d->written;
}

static trireme_status draft_add(struct draft *d, const void *bytes, size_t length, trireme_error *error) {
    const uint8_t *p = bytes;
    while (length) {
        if (d->used == BUFFER_BYTES)
            TRY(draft_flush(d, error));
        size_t n = MIN(length, BUFFER_BYTES - d->used);
        memcpy(d->buffer + d->used, p, n);
        d->used += n;
        p += n;
        length -= n;
    }
    return TRIREME_OK;
}

static trireme_status draft_sync(struct draft *d, trireme_error *error) {
    TRY(draft_flush(d, error));
    if (fsync(d->fd) != 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot sync: %s; nothing was kept", d->temporary, strerror(errno));
    return TRIREME_OK;
}

static void draft_release(struct draft *d) {
    if (d->fd >= 0) {
        if (!d->committed && !d->stays)
            unlink(d->temporary);
        close(d->fd);
    }
    VEC_RELEASE(&d->sums);
    free(d->buffer);
    free(d->temporary);
    free(d->path);
}

// ---- what may be overwritten

static bool begins_with_magic(const char *path) {
    char magic[MEGATRON_MAGIC_BYTES];
    int file;
    if (file_open(path, &file, NULL) != TRIREME_OK)
        return false;
    const bool ours =
        read(file, magic, sizeof magic) == sizeof magic && memcmp(magic, MEGATRON_MAGIC, sizeof magic) == 0;
    close(file);
    return ours;
}

// Whether the file that a draft is to replace, which exists, is what `prepare` writes there.
static bool is_ours(const struct token_writer *w, enum token_file file) {
    const struct draft *draft = &w->draft[file], *index = &w->draft[TOKEN_FILE_INDEX];
    if (file == TOKEN_FILE_MANIFEST)
        return token_manifest_recognise(draft->path);
    if (file == TOKEN_FILE_SUMS)
        return sums_list_recognise(draft->path);
    if (file == TOKEN_FILE_TOKENIZER)
        return tokenizer_files_recognise(draft->path);
    // A .bin does not say what it is. The index beside it does, or the temporary index of a writer that was killed
    // while it put the files in place.
    return begins_with_magic(index->path) || (file == TOKEN_FILE_BIN && begins_with_magic(index->temporary));
}

static trireme_status check_target(const struct token_writer *w, trireme_error *error) {
    static const char *const WHAT[TOKEN_FILES] = {[TOKEN_FILE_BIN] = "part of Megatron's .bin/.idx pair",
                                                  [TOKEN_FILE_SUMS] = "a list of checksums",
                                                  [TOKEN_FILE_MANIFEST] = "a manifest of token files",
                                                  [TOKEN_FILE_TOKENIZER] = "a directory of a tokenizer's files",
                                                  [TOKEN_FILE_INDEX] = "part of Megatron's .bin/.idx pair"};
    struct stat info;
    for (enum token_file file = 0; file < TOKEN_FILES; file++) {
        const char *path = w->draft[file].path;
        if (lstat(path, &info) != 0) {
            if (errno != ENOENT)
                FAIL(TRIREME_ERROR_IO, "%s: cannot examine: %s", path, strerror(errno));
            continue;
        }
        if (!is_ours(w, file) || (file == TOKEN_FILE_TOKENIZER ? !S_ISDIR(info.st_mode) : !S_ISREG(info.st_mode)))
            FAIL(TRIREME_ERROR_USAGE,
                 "%s: is in the way and not %s; it is left as it is, choose another data.path or remove it", path,
                 WHAT[file]);
    }
    return TRIREME_OK;
}

// Makes the directories of w->prefix, remembering the first that was missing.
static trireme_status make_directories(struct token_writer *w, trireme_error *error) {
    char *path = mem_strdup(w->prefix);
    trireme_status status = TRIREME_OK;
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0777) == 0) {
            if (!w->made)
                w->made = mem_strdup(path);
        } else if (errno != EEXIST) {
            status = error_set(error, TRIREME_ERROR_IO, "%s: cannot create the directory: %s", path, strerror(errno));
            break;
        }
        *slash = '/';
    }
    free(path);
    return status;
}

// Removes the directories that this writer made, from the bottom up, as far as they are empty.
static void remove_directories(const struct token_writer *w) {
    if (!w->made)
        return;
    char *path = mem_strdup(w->prefix);
    for (char *slash = strrchr(path, '/'); slash && slash > path; slash = strrchr(path, '/')) {
        *slash = '\0';
        if (strlen(path) < strlen(w->made) || rmdir(path) != 0)
            break;
    }
    free(path);
}

// ---- the writer

static void writer_release(struct token_writer *w) {
    for (enum token_file file = 0; file < TOKEN_FILES; file++)
        draft_release(&w->draft[file]);
    remove_directories(w);
    text_release(&w->continued);
    free(w->prefix);
    free(w->made);
    free(w);
}

void token_writer_discard(struct token_writer *w) {
    if (!w)
        return;
    if (w->locked)
        token_journal_remove(w->prefix);
    writer_release(w);
}

void token_writer_leave(struct token_writer *w) {
    w->draft[TOKEN_FILE_BIN].stays = w->draft[TOKEN_FILE_INDEX].stays = true;
    writer_release(w);
}

static struct draft draft_named(const char *prefix, enum token_file file) {
    return (struct draft){
        .path = token_file_path(prefix, file, ""),
        .temporary = token_file_path(prefix, file, ".tmp"),
        .fd = -1,
    };
}

// `keeps`: the tokens and their index that another writer may have left.
static trireme_status writer_open(struct token_writer *w, bool keeps, trireme_error *error) {
    TRY(token_files_mend(w->prefix, true, error));
    TRY(make_directories(w, error));
    TRY(check_target(w, error));
    for (enum token_file file = 0; file < TOKEN_FILES; file++)
        if (file != TOKEN_FILE_TOKENIZER)
            TRY(draft_open(&w->draft[file], keeps && (file == TOKEN_FILE_BIN || file == TOKEN_FILE_INDEX), error));
    w->locked = true;
    token_files_tidy(w->prefix); // no other writer is at work now
    token_file_remove(w->prefix, TOKEN_FILE_TOKENIZER, ".tmp");
    return TRIREME_OK;
}

static struct token_writer *writer_named(const char *prefix, int32_t vocab_size, int32_t sequence_limit) {
    struct token_writer *w = mem_alloc(sizeof *w);
    w->prefix = token_prefix(prefix);
    for (enum token_file file = 0; file < TOKEN_FILES; file++)
        w->draft[file] = draft_named(w->prefix, file);
    w->vocab_size = vocab_size;
    w->sequence_limit = sequence_limit ? sequence_limit : INT32_MAX;
    w->width = vocab_size < UINT16_VOCAB_LIMIT ? 2 : 4;
    return w;
}

static bool writer_take_up(struct token_writer *w, const struct token_journal *j) {
    static const uint8_t NO_HEADER[MEGATRON_HEADER_BYTES];
    struct draft *index = &w->draft[TOKEN_FILE_INDEX];
    if (j->bytes != j->tokens * w->width || j->index != MEGATRON_HEADER_BYTES + 4 * j->sequences ||
        j->sequence_length > w->sequence_limit || j->document_tokens < j->sequence_length ||
        !draft_take_up(&w->draft[TOKEN_FILE_BIN], j->bytes) || !draft_take_up(index, j->index))
        return false;
    // It may have been filled in.
    if (index->written == 0)
        memcpy(index->buffer, NO_HEADER, sizeof NO_HEADER);
    else if (pwrite(index->fd, NO_HEADER, sizeof NO_HEADER, 0) != (ssize_t)sizeof NO_HEADER)
        return false;
    w->tokens = j->tokens;
    w->sequences = j->sequences;
    w->documents = j->documents;
    w->sequence_length = (int32_t)j->sequence_length;
    w->document_tokens = j->document_tokens;
    text_add_bytes(&w->continued, j->continued.text ? j->continued.text : "", j->continued.length);
    return true;
}

static trireme_status writer_begin(struct token_writer *w, trireme_error *error) {
    static const uint8_t NO_HEADER[MEGATRON_HEADER_BYTES];
    // The header is filled in at the very end, so that a half-written index never looks whole.
    return draft_add(&w->draft[TOKEN_FILE_INDEX], NO_HEADER, sizeof NO_HEADER, error);
}

trireme_status token_writer_create(const char *prefix, int32_t vocab_size, int32_t sequence_limit,
                                   struct token_writer **out, trireme_error *error) {
    CHECK(vocab_size > 0 && sequence_limit >= 0);
    size_t length = strlen(prefix);
    if (length == 0 || prefix[length - 1] == '/')
        FAIL(TRIREME_ERROR_USAGE, "data.path \"%s\": expected a prefix of file names, such as data/text", prefix);
    struct token_writer *w = writer_named(prefix, vocab_size, sequence_limit);
    trireme_status status = writer_open(w, false, error);
    if (status == TRIREME_OK) {
        token_journal_remove(w->prefix);
        status = writer_begin(w, error);
    }
    if (status == TRIREME_OK)
        *out = w;
    else
        token_writer_discard(w);
    return status;
}

trireme_status token_writer_go_on(const char *prefix, int32_t vocab_size, int32_t sequence_limit, const char *of,
                                  struct token_writer **out, json_t **position, trireme_error *error) {
    struct token_journal journal;
    *position = NULL;
    char *named = token_prefix(prefix);
    bool found = token_journal_read(named, of, &journal);
    free(named);
    if (found) {
        struct token_writer *w = writer_named(prefix, vocab_size, sequence_limit);
        trireme_status status = writer_open(w, true, error);
        found = status == TRIREME_OK && writer_take_up(w, &journal);
        if (found) {
            *out = w;
            *position = json_incref(journal.position);
        } else {
            token_writer_discard(w);
        }
        token_journal_release(&journal);
        TRY(status);
    }
    return found ? TRIREME_OK : token_writer_create(prefix, vocab_size, sequence_limit, out, error);
}

trireme_status token_writer_save(struct token_writer *w, const char *of, json_t *position, trireme_error *error) {
    struct draft *bin = &w->draft[TOKEN_FILE_BIN], *index = &w->draft[TOKEN_FILE_INDEX];
    TRY(draft_save(bin, error));
    TRY(draft_save(index, error));
    struct token_journal journal = {.of = (char *)of,
                                    .bytes = bin->written + (int64_t)bin->used,
                                    .index = index->written + (int64_t)index->used,
                                    .tokens = w->tokens,
                                    .sequences = w->sequences,
                                    .documents = w->documents,
                                    .sequence_length = w->sequence_length,
                                    .document_tokens = w->document_tokens,
                                    .continued = w->continued,
                                    .position = position};
    return token_journal_write(w->prefix, &journal, error);
}

static trireme_status end_sequence(struct token_writer *w, trireme_error *error) {
    TRY(draft_add(&w->draft[TOKEN_FILE_INDEX], &w->sequence_length, sizeof w->sequence_length, error));
    w->sequences++;
    w->sequence_length = 0;
    return TRIREME_OK;
}

// Ends the sequence in progress, after which its document goes on.
static trireme_status sequence_continue(struct token_writer *w, trireme_error *error) {
    TRY(end_sequence(w, error));
    while (w->continued.length <= (size_t)w->sequences / 8)
        text_add_bytes(&w->continued, "", 1);
    w->continued.text[w->sequences / 8] |= (char)(1 << w->sequences % 8);
    return TRIREME_OK;
}

static bool sequence_is_continued(const struct token_writer *w, int64_t sequence) {
    return (size_t)sequence / 8 < w->continued.length && w->continued.text[sequence / 8] >> sequence % 8 & 1;
}

trireme_status token_writer_turn(struct token_writer *w, trireme_error *error) {
    return sequence_continue(w, error);
}

trireme_status token_writer_add(struct token_writer *w, const int32_t *tokens, size_t count, trireme_error *error) {
    struct draft *d = &w->draft[TOKEN_FILE_BIN];
    while (count) {
        if (w->sequence_length == w->sequence_limit) {
            TRY(sequence_continue(w, error));
            TRY(sequence_continue(w, error));
        }
        if (d->used == BUFFER_BYTES)
            TRY(draft_flush(d, error));
        // The buffer's size is a multiple of every width, so whole tokens always fit.
        size_t n = MIN(count, (size_t)(w->sequence_limit - w->sequence_length));
        n = MIN(n, (BUFFER_BYTES - d->used) / (size_t)w->width);
        for (size_t i = 0; i < n; i++) {
            CHECK(tokens[i] >= 0 && tokens[i] < w->vocab_size);
            uint16_t narrow = (uint16_t)tokens[i];
            memcpy(d->buffer + d->used, w->width == 2 ? (const void *)&narrow : &tokens[i], (size_t)w->width);
            d->used += (size_t)w->width;
        }
        w->sequence_length += (int32_t)n;
        w->document_tokens += (int64_t)n;
        w->tokens += (int64_t)n;
        tokens += n;
        count -= n;
    }
    return TRIREME_OK;
}

trireme_status token_writer_end_document(struct token_writer *w, trireme_error *error) {
    if (w->document_tokens == 0)
        return TRIREME_OK;
    TRY(end_sequence(w, error));
    w->document_tokens = 0;
    w->documents++;
    return TRIREME_OK;
}

int64_t token_writer_tokens(const struct token_writer *w) {
    return w->tokens;
}

int64_t token_writer_documents(const struct token_writer *w) {
    return w->documents;
}

// Reads the lengths back from the index and appends the pointers that follow from them.
static trireme_status add_pointers(struct token_writer *w, trireme_error *error) {
    int32_t length[4096];
    int64_t pointer = 0;
    for (int64_t done = 0; done < w->sequences;) {
        int64_t count = MIN((int64_t)ARRAY_LENGTH(length), w->sequences - done);
        size_t bytes = (size_t)count * sizeof *length;
        ssize_t n = pread(w->draft[TOKEN_FILE_INDEX].fd, length, bytes, MEGATRON_HEADER_BYTES + 4 * done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)bytes)
            FAIL(TRIREME_ERROR_IO, "%s: cannot read %zu bytes back: %s; nothing was kept",
                 w->draft[TOKEN_FILE_INDEX].temporary, bytes, n < 0 ? strerror(errno) : "the file was cut short");
        for (int64_t i = 0; i < count; i++) {
            TRY(draft_add(&w->draft[TOKEN_FILE_INDEX], &pointer, sizeof pointer, error));
            pointer += (int64_t)length[i] * w->width;
        }
        done += count;
    }
    return TRIREME_OK;
}

static trireme_status finish_index(struct token_writer *w, trireme_error *error) {
    TRY(draft_flush(&w->draft[TOKEN_FILE_INDEX], error));
    TRY(add_pointers(w, error));
    for (int64_t sequence = 0; sequence <= w->sequences; sequence++)
        if (!sequence_is_continued(w, sequence))
            TRY(draft_add(&w->draft[TOKEN_FILE_INDEX], &sequence, sizeof sequence, error));
    uint8_t header[MEGATRON_HEADER_BYTES];
    int64_t version = MEGATRON_VERSION, entries = w->documents + 1;
    memcpy(header, MEGATRON_MAGIC, MEGATRON_MAGIC_BYTES);
    memcpy(header + 9, &version, 8);
    header[17] = w->width == 2 ? TOKEN_U16 : TOKEN_I32;
    memcpy(header + 18, &w->sequences, 8);
    memcpy(header + 26, &entries, 8);
    TRY(draft_flush(&w->draft[TOKEN_FILE_INDEX], error));
    if (pwrite(w->draft[TOKEN_FILE_INDEX].fd, header, sizeof header, 0) != (ssize_t)sizeof header)
        FAIL(TRIREME_ERROR_IO, "%s: cannot write the header: %s; nothing was kept",
             w->draft[TOKEN_FILE_INDEX].temporary, strerror(errno));
    return draft_sync(&w->draft[TOKEN_FILE_INDEX], error);
}

static trireme_status finish_manifest(struct token_writer *w, const struct token_manifest *manifest,
                                      trireme_error *error) {
    struct draft *draft = &w->draft[TOKEN_FILE_MANIFEST];
    struct text json = {0};
    token_manifest_print(manifest, &json);
    trireme_status status = draft_add(draft, json.text, json.length, error);
    text_release(&json);
    TRY(status);
    return draft_sync(draft, error);
}

// The index is not written from its beginning to its end, so it is read once more.
static trireme_status sum_index(struct token_writer *w, struct block_sums *sums, trireme_error *error) {
    const struct draft *draft = &w->draft[TOKEN_FILE_INDEX];
    for (int64_t block = 0; block < sums->count; block++) {
        const int64_t begin = block_begin(block), bytes = block_end(sums, block) - begin;
        if (pread(draft->fd, draft->buffer, (size_t)bytes, begin) != bytes)
            FAIL(TRIREME_ERROR_IO, "%s: cannot read %" PRId64 " bytes back: %s; nothing was kept", draft->temporary,
                 bytes, strerror(errno));
        sums->sum[block] = block_sum(xxh3_of(draft->buffer, (size_t)bytes));
    }
    return TRIREME_OK;
}

static trireme_status finish_sums(struct token_writer *w, trireme_error *error) {
    struct draft *draft = &w->draft[TOKEN_FILE_SUMS];
    const struct draft *bin = &w->draft[TOKEN_FILE_BIN];
    struct block_sums tokens = block_sums_create(bin->written),
                      index = block_sums_create(w->draft[TOKEN_FILE_INDEX].written);
    struct sums_list list = {0};
    struct text json = {0};
    CHECK((int64_t)bin->sums.count == tokens.count);
    for (int64_t i = 0; i < tokens.count; i++)
        tokens.sum[i] = bin->sums.item[i];
    sums_list_add(&list, "bin", tokens, 0);
    sums_list_add(&list, "idx", index, 0);
    trireme_status status = sum_index(w, &index, error);
    if (status == TRIREME_OK) {
        sums_list_print(&list, &json);
        status = draft_add(draft, json.text, json.length, error);
    }
    text_release(&json);
    sums_list_release(&list);
    TRY(status);
    return draft_sync(draft, error);
}

void token_writer_keep(struct token_writer *w, const struct tokenizer_files *files) {
    w->kept = files;
}

static trireme_status finish_tokenizer(struct token_writer *w, trireme_error *error) {
    const char *path = w->draft[TOKEN_FILE_TOKENIZER].temporary;
    if (!w->kept)
        return TRIREME_OK;
    if (mkdir(path, 0777) != 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot create the directory: %s; nothing was kept", path, strerror(errno));
    trireme_status status = tokenizer_files_write(w->kept, path, error);
    if (status == TRIREME_OK)
        status = file_sync_directory(path, error);
    if (status != TRIREME_OK)
        token_file_remove(w->prefix, TOKEN_FILE_TOKENIZER, ".tmp");
    return status;
}

static trireme_status writer_finish(struct token_writer *w, const struct token_manifest *manifest,
                                    trireme_error *error) {
    CHECK(w->document_tokens == 0);
    if (w->documents == 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: there is no document to write", w->prefix);
    TRY(draft_sync(&w->draft[TOKEN_FILE_BIN], error));
    TRY(finish_index(w, error));
    TRY(finish_sums(w, error));
    if (manifest)
        TRY(finish_manifest(w, manifest, error));
    TRY(finish_tokenizer(w, error));
    const bool has[TOKEN_FILES] = {[TOKEN_FILE_BIN] = true,
                                   [TOKEN_FILE_SUMS] = true,
                                   [TOKEN_FILE_MANIFEST] = manifest,
                                   [TOKEN_FILE_TOKENIZER] = w->kept,
                                   [TOKEN_FILE_INDEX] = true};
    trireme_status status = token_files_replace(w->prefix, has, error);
    if (status != TRIREME_OK)
        token_file_remove(w->prefix, TOKEN_FILE_TOKENIZER, ".tmp");
    TRY(status);
    for (enum token_file file = 0; file < TOKEN_FILES; file++)
        w->draft[file].committed = has[file];
    return TRIREME_OK;
}

trireme_status token_writer_finish(struct token_writer *w, const struct token_manifest *manifest,
                                   trireme_error *error) {
    trireme_status status = writer_finish(w, manifest, error);
    token_writer_discard(w);
    return status;
}

#include "data/token_files.h"

#include "base/text.h"
#include "tokenizer/tokenizer_files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

const char *const TOKEN_FILE_ENDING[TOKEN_FILES] = {
    [TOKEN_FILE_BIN] = ".bin",       [TOKEN_FILE_SUMS] = ".sums",
    [TOKEN_FILE_MANIFEST] = ".json", [TOKEN_FILE_TOKENIZER] = ".tokenizer",
    [TOKEN_FILE_INDEX] = ".idx",
};

char *token_file_path(const char *prefix, enum token_file file, const char *more) {
    return mem_printf("%s%s%s", prefix, TOKEN_FILE_ENDING[file], more);
}

static bool token_file_missing(const char *prefix, enum token_file file, const char *more) {
    char *path = token_file_path(prefix, file, more);
    const bool missing = file_missing(path);
    free(path);
    return missing;
}

static trireme_status token_file_rename(const char *prefix, enum token_file file, const char *from, const char *to,
                                        trireme_error *error) {
    char *old = token_file_path(prefix, file, from), *new = token_file_path(prefix, file, to);
    trireme_status status = TRIREME_OK;
    if (rename(old, new) != 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot rename to %s: %s", old, new, strerror(errno));
    free(old);
    free(new);
    return status;
}

void token_file_remove(const char *prefix, enum token_file file, const char *more) {
    char *path = token_file_path(prefix, file, more);
    if (file == TOKEN_FILE_TOKENIZER)
        tokenizer_files_remove(path);
    else
        unlink(path);
    free(path);
}

static trireme_status token_file_set_aside(const char *prefix, enum token_file file, trireme_error *error) {
    return token_file_missing(prefix, file, "") ? TRIREME_OK : token_file_rename(prefix, file, "", ".old", error);
}

// Puts the old files back; where there was none, the new one gets its temporary name back. The index comes last.
static trireme_status token_files_restore(const char *prefix, trireme_error *error) {
    const bool had = !token_file_missing(prefix, TOKEN_FILE_INDEX, ".old");
    for (enum token_file file = 0; file < TOKEN_FILES; file++) {
        const bool old = !token_file_missing(prefix, file, ".old");
        // A directory does not take the place of another one.
        if (old && file == TOKEN_FILE_TOKENIZER && !token_file_missing(prefix, file, ""))
            TRY(token_file_rename(prefix, file, "", ".tmp", error));
        if (old)
            TRY(token_file_rename(prefix, file, ".old", "", error));
        else if (token_file_missing(prefix, file, ".tmp") && !token_file_missing(prefix, file, "") &&
                 !(had && file == TOKEN_FILE_BIN)) // an index had tokens, which are still in place
            TRY(token_file_rename(prefix, file, "", ".tmp", error));
    }
    return TRIREME_OK;
}

static trireme_status token_files_place(const char *prefix, const bool has[TOKEN_FILES], trireme_error *error) {
    TRY(token_file_set_aside(prefix, TOKEN_FILE_INDEX, error));
    for (enum token_file file = 0; file < TOKEN_FILES; file++) {
        if (file != TOKEN_FILE_INDEX)
            TRY(token_file_set_aside(prefix, file, error));
        if (has[file])
            TRY(token_file_rename(prefix, file, ".tmp", "", error));
    }
    return file_sync_directory(prefix, error);
}

trireme_status token_files_replace(const char *prefix, const bool has[TOKEN_FILES], trireme_error *error) {
    trireme_error why;
    trireme_status status = token_files_place(prefix, has, error);
    if (status != TRIREME_OK && token_files_restore(prefix, &why) != TRIREME_OK)
        FAIL(status, "%s; nor can the old files be put back (%s): they are called *.old", error->message, why.message);
    if (status == TRIREME_OK)
        token_files_tidy(prefix);
    return status;
}

void token_files_tidy(const char *prefix) {
    for (enum token_file file = 0; file < TOKEN_FILES; file++)
        token_file_remove(prefix, file, ".old");
}

// Whether a process holds the lock on a new index (token_writer.c), which is called so until it is in place. Where
// there are no locks nobody can tell.
static bool replacement_goes_on(const char *prefix, bool trusting) {
    char *path = token_file_path(prefix, TOKEN_FILE_INDEX, ".tmp");
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    free(path);
    const bool held = file >= 0 && flock(file, LOCK_SH | LOCK_NB) != 0 && (errno == EWOULDBLOCK || !trusting);
    if (file >= 0)
        close(file);
    return held;
}

trireme_status token_files_mend(const char *prefix, bool trusting, trireme_error *error) {
    if (!token_file_missing(prefix, TOKEN_FILE_INDEX, "") || token_file_missing(prefix, TOKEN_FILE_INDEX, ".old"))
        return TRIREME_OK;
    if (replacement_goes_on(prefix, trusting))
        FAIL(TRIREME_ERROR_BUSY,
             "%s.idx: `trireme prepare` is replacing it, or was cut short where files cannot be locked: try again in a "
             "moment, or prepare again",
             prefix);
    // It may have come to its end meanwhile.
    if (!token_file_missing(prefix, TOKEN_FILE_INDEX, ""))
        return TRIREME_OK;
    trireme_status status = token_files_restore(prefix, error);
    if (status != TRIREME_OK)
        error_prefix(error, status, "%s.idx: `trireme prepare` was cut short and left the old files as *.old", prefix);
    return status;
}

#include "tokenizer/tokenizer_files.h"

#include <dirent.h>
#include <unistd.h>

enum { FILE_LIMIT = 256 << 20 };

static const char *const NAMES[] = {"tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
                                    "added_tokens.json", "tokenizer.model",       "vocab.json",
                                    "merges.txt",        TOKENIZER_CHAT_TEMPLATE, "generation_config.json",
                                    "tekken.json",       TOKENIZER_SOURCE,        TOKENIZER_PATTERN};

trireme_status tokenizer_files_read(struct tokenizer_files *out, const char *directory, trireme_error *error) {
    trireme_status status = TRIREME_OK;
    *out = (struct tokenizer_files){0};
    for (size_t i = 0; i < ARRAY_LENGTH(NAMES) && status == TRIREME_OK; i++) {
        char *path = mem_printf("%s/%s", directory, NAMES[i]), *bytes;
        size_t length;
        if (!file_missing(path)) {
            status = file_read(path, FILE_LIMIT, &bytes, &length, error);
            if (status == TRIREME_OK)
                tokenizer_files_add(out, NAMES[i], bytes, length);
        }
        free(path);
    }
    if (status != TRIREME_OK)
        tokenizer_files_release(out);
    return status;
}

void tokenizer_files_add(struct tokenizer_files *files, const char *name, char *bytes, size_t length) {
    const struct tokenizer_file file = {name, bytes, length};
    for (size_t i = 0; i < files->files.count; i++)
        if (strcmp(files->files.item[i].name, name) == 0) {
            free(files->files.item[i].bytes);
            files->files.item[i] = file;
            return;
        }
    VEC_PUSH(&files->files, file);
}

trireme_status tokenizer_files_write(const struct tokenizer_files *files, const char *directory, trireme_error *error) {
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < files->files.count && status == TRIREME_OK; i++) {
        const struct tokenizer_file *file = &files->files.item[i];
        char *path = mem_printf("%s/%s", directory, file->name);
        status = file_write_atomic(path, file->bytes, file->length, error);
        free(path);
    }
    return status;
}

bool tokenizer_files_recognise(const char *directory) {
    DIR *d = opendir(directory);
    bool all = d != NULL;
    for (struct dirent *entry; d && all && (entry = readdir(d));) {
        bool known = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        for (size_t i = 0; i < ARRAY_LENGTH(NAMES) && !known; i++) {
            const size_t length = strlen(NAMES[i]);
            known = strncmp(entry->d_name, NAMES[i], length) == 0 &&
                    (!entry->d_name[length] || strcmp(entry->d_name + length, ".tmp") == 0);
        }
        all = known;
    }
    if (d)
        closedir(d);
    return all;
}

void tokenizer_files_remove(const char *directory) {
    static const char *const ENDINGS[] = {"", ".tmp"};
    if (file_missing(directory))
        return;
    for (size_t i = 0; i < ARRAY_LENGTH(NAMES); i++)
        for (size_t k = 0; k < ARRAY_LENGTH(ENDINGS); k++) {
            char *path = mem_printf("%s/%s%s", directory, NAMES[i], ENDINGS[k]);
            unlink(path);
            free(path);
        }
    rmdir(directory);
}

void tokenizer_files_release(struct tokenizer_files *files) {
    for (size_t i = 0; i < files->files.count; i++)
        free(files->files.item[i].bytes);
    VEC_RELEASE(&files->files);
}

#include "data/token_set.h"

#include "base/parallel_for.h"
#include "base/xxh3.h"
#include "data/token_files.h"
#include "data/token_manifest.h"
#include "data/token_shard.h"

#include <errno.h>
#include <glob.h>
#include <sys/stat.h>

struct token_set {
    VEC(struct token_shard) shards;
    VEC(int64_t) starts;  // first token of each shard
    VEC(int64_t) sources; // first token of each source
    int64_t tokens;
    int bare; // bytes of each token in files that have nothing else; 0: files say what they are
};

static bool has_suffix(const char *path, const char *suffix) {
    return strlen(path) > strlen(suffix) && text_ends(path, suffix);
}

char *token_prefix(const char *path) {
    bool suffix = has_suffix(path, ".bin") || has_suffix(path, ".idx");
    return mem_printf("%.*s", (int)(strlen(path) - (suffix ? 4 : 0)), path);
}

static trireme_status add_shard(struct token_set *set, const char *path, trireme_error *error) {
    struct token_shard shard;
    struct token_manifest manifest;
    bool found = false;
    TRY(token_shard_open(&shard, path, set->bare, error));
    trireme_status status = set->bare ? TRIREME_OK : token_manifest_read(path, shard.tokens, &manifest, &found, error);
    if (status != TRIREME_OK) {
        token_shard_release(&shard);
        return status;
    }
    shard.masked = found && manifest.masked;
    VEC_PUSH(&set->shards, shard);
    VEC_PUSH(&set->starts, set->tokens);
    if (__builtin_add_overflow(set->tokens, shard.tokens, &set->tokens))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: the token files together hold more than 2^63 tokens", path);
    return TRIREME_OK;
}

static trireme_status add_glob(struct token_set *set, const char *pattern, trireme_error *error) {
    glob_t found = {0};
    int rc = glob(pattern, GLOB_NOSORT | GLOB_ERR, NULL, &found);
    trireme_status status = TRIREME_OK;
    if (rc == GLOB_NOMATCH || (rc == GLOB_ABORTED && errno == ENOENT))
        status = error_set(error, TRIREME_ERROR_USAGE, "%s: no file matches this pattern", pattern);
    else if (rc != 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot list the files of this pattern", pattern);
    // The order must not depend on the locale, as glob's own does.
    if (found.gl_pathc)
        qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, text_compare);
    for (size_t i = 0; i < found.gl_pathc && status == TRIREME_OK; i++) {
        char *prefix = token_prefix(found.gl_pathv[i]);
        status = token_files_mend(prefix, false, error);
        free(prefix);
        if (status == TRIREME_OK && has_suffix(found.gl_pathv[i], ".bin"))
            status = add_shard(set, found.gl_pathv[i], error);
        else if (status == TRIREME_OK)
            status =
                error_set(error, TRIREME_ERROR_USAGE, "%s: matches %s, which is not a .bin; let the pattern end so",
                          pattern, found.gl_pathv[i]);
    }
    globfree(&found);
    return status;
}

// If it is not a regular file, token_shard_open says what it is.
static bool is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

static trireme_status set_add_path(struct token_set *set, const char *path, trireme_error *error) {
    static const char *const BARE[] = {[2] = "uint16:", [4] = "uint32:"};
    set->bare = 0;
    for (int width = 2; width <= 4; width += 2)
        if (strncmp(path, BARE[width], strlen(BARE[width])) == 0) {
            set->bare = width;
            path += strlen(BARE[width]);
        }
    char *prefix = token_prefix(path), *bin = mem_printf("%s.bin", prefix);
    trireme_status status = token_files_mend(prefix, false, error);
    if (status != TRIREME_OK)
        ; // nothing can be opened
    else if (is_file(bin))
        status = add_shard(set, bin, error);
    else if (is_file(path) && !has_suffix(path, ".idx"))
        status = add_shard(set, path, error);
    else if (strpbrk(path, "*?["))
        status = add_glob(set, path, error);
    else if (!file_missing(bin))
        status = add_shard(set, bin, error); // says what is wrong
    else
        status = error_set(error, TRIREME_ERROR_USAGE,
                           "%s: no such file, so there are no tokens at %s; make them with `trireme prepare INPUT "
                           "--data.path=%s`, or by the model's tokenizer, or give llm.c's shards as a pattern",
                           bin, path, prefix);
    free(bin);
    free(prefix);
    return status;
}

// The first shard that names the tokenizer of its tokens, or NULL. llm.c's shards do; for Megatron's pairs manifests do
// (token_manifest.h).
static const struct token_shard *first_of_tokenizer(const struct token_set *set) {
    for (size_t i = 0; i < set->shards.count; i++)
        if (set->shards.item[i].tokenizer)
            return &set->shards.item[i];
    return NULL;
}

trireme_status token_set_same_tokenizer(const struct token_set *a, const struct token_set *b, trireme_error *error) {
    const struct token_shard *first = first_of_tokenizer(a);
    for (size_t i = 0; i < b->shards.count && first; i++) {
        const struct token_shard *shard = &b->shards.item[i];
        if (shard->tokenizer && strcmp(shard->tokenizer, first->tokenizer) != 0)
            FAIL(TRIREME_ERROR_USAGE, "%s holds tokens of %s, but %s those of %s: a run has tokens of one tokenizer",
                 first->bin.path, first->tokenizer, shard->bin.path, shard->tokenizer);
    }
    return TRIREME_OK;
}

const char *token_set_tokenizer(const struct token_set *set) {
    const struct token_shard *first = first_of_tokenizer(set);
    return first ? first->tokenizer : NULL;
}

// Lets what is read of small sets stay in memory.
static void keep_small(struct token_set *set) {
    enum { SMALL = 1 << 23 };
    int64_t bytes = 0;
    for (size_t i = 0; i < set->shards.count && bytes <= SMALL; i++)
        bytes += set->shards.item[i].bin.bytes + set->shards.item[i].index.bytes;
    for (size_t i = 0; i < set->shards.count; i++)
        set->shards.item[i].bin.stays = set->shards.item[i].index.stays = bytes <= SMALL;
}

trireme_status token_set_open(const char *path, struct token_set **out, trireme_error *error) {
    return token_set_open_sources(&path, 1, out, error);
}

trireme_status token_set_open_sources(const char *const *path, int count, struct token_set **out,
                                      trireme_error *error) {
    struct token_set *set = mem_alloc(sizeof *set);
    trireme_status status = TRIREME_OK;
    for (int i = 0; i < count && status == TRIREME_OK; i++) {
        VEC_PUSH(&set->sources, set->tokens);
        status = set_add_path(set, path[i], error);
    }
    keep_small(set);
    if (status == TRIREME_OK)
        status = token_set_same_tokenizer(set, set, error);
    if (status == TRIREME_OK)
        *out = set;
    else
        token_set_close(set);
    return status;
}

void token_set_close(struct token_set *set) {
    if (!set)
        return;
    for (size_t i = 0; i < set->shards.count; i++)
        token_shard_release(&set->shards.item[i]);
    VEC_RELEASE(&set->shards);
    VEC_RELEASE(&set->starts);
    VEC_RELEASE(&set->sources);
    free(set);
}

int64_t token_set_tokens(const struct token_set *set) {
    return set->tokens;
}

int token_set_sources(const struct token_set *set) {
    return (int)set->sources.count;
}

int64_t token_set_source(const struct token_set *set, int source) {
    return (size_t)source < set->sources.count ? set->sources.item[source] : set->tokens;
}

size_t token_set_shards(const struct token_set *set) {
    return set->shards.count;
}

const char *token_set_shard_path(const struct token_set *set, size_t shard) {
    return set->shards.item[shard].bin.path;
}

int64_t token_set_shard_tokens(const struct token_set *set, size_t shard) {
    return set->shards.item[shard].tokens;
}

// ---- what is in the files

// The i-th file of a set: of each shard the tokens, then the index, which may be absent.
static struct token_mapping *set_file(const struct token_set *set, size_t i) {
    struct token_shard *shard = &set->shards.item[i / 2];
    return i % 2 == 0 ? &shard->bin : shard->index.data ? &shard->index : NULL;
}

trireme_status token_set_check_unchanged(struct token_set *set, trireme_error *error) {
    for (size_t i = 0; i < 2 * set->shards.count; i++)
        if (set_file(set, i))
            TRY(mapping_check_unchanged(set_file(set, i), error));
    return TRIREME_OK;
}

bool token_set_is_known(const struct token_set *set) {
    for (size_t i = 0; i < 2 * set->shards.count; i++)
        if (set_file(set, i) && !block_sums_known(&set_file(set, i)->sums))
            return false;
    return true;
}

void token_set_learn(const struct token_set *set, const atomic_bool *stop) {
    trireme_error ignored;
    for (size_t i = 0; i < 2 * set->shards.count; i++) {
        const struct token_mapping *file = set_file(set, i);
        uint64_t sum;
        for (int64_t b = 0; file && b < file->sums.count && !*stop; b++)
            if (mapping_sum(file, b, &sum, &ignored) != TRIREME_OK)
                break;
    }
}

int64_t token_set_known_blocks(const struct token_set *set) {
    int64_t known = 0;
    for (size_t i = 0; i < 2 * set->shards.count; i++)
        for (int64_t b = 0; set_file(set, i) && b < set_file(set, i)->sums.count; b++)
            known += set_file(set, i)->sums.sum[b] != 0;
    return known;
}

// Adds to the checksum every `apart`-th block of a file, counted over all files of tokens; *number: of its first block.
static trireme_status add_file_sum(const struct token_mapping *file, int64_t apart, int64_t *number, struct xxh3 *xxh3,
                                   trireme_error *error) {
    xxh3_add(xxh3, &file->bytes, sizeof file->bytes);
    for (int64_t b = 0; b < file->sums.count; b++, ++*number) {
        uint64_t sum;
        if (*number % apart)
            continue;
        TRY(mapping_sum(file, b, &sum, error));
        xxh3_add(xxh3, &sum, sizeof sum);
    }
    return TRIREME_OK;
}

trireme_status token_set_checksum(const struct token_set *set, bool all, uint64_t *out, trireme_error *error) {
    enum { SOME = 128 }; // blocks that take little time to read, from any disk
    int64_t blocks = 0, number = 0, none = 0;
    for (size_t s = 0; s < set->shards.count; s++)
        blocks += set->shards.item[s].bin.sums.count;
    const int64_t apart = all ? 1 : divide_up(blocks, SOME);
    struct xxh3 xxh3 = xxh3_begin();
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < 2 * set->shards.count && status == TRIREME_OK; i++)
        if (set_file(set, i))
            status = add_file_sum(set_file(set, i), i % 2 ? 1 : apart, i % 2 ? &none : &number, &xxh3, error);
    *out = xxh3_end(&xxh3);
    return status;
}

void token_set_list(const struct token_set *set, struct sums_list *out) {
    for (size_t i = 0; i < 2 * set->shards.count; i++) {
        const struct token_mapping *file = set_file(set, i);
        if (file)
            sums_list_add(out, file->path, block_sums_copy(&file->sums), file->modified);
    }
}

// Appends to *differs the first block that is another than the list says of this file.
static trireme_status compare_file(struct token_mapping *file, const struct sums_file *then, void (*read)(void *user),
                                   void *user, struct text *differs, trireme_error *error) {
    if (then->sums.bytes != file->bytes) {
        text_add(differs, "%s has %lld bytes, before %lld", file->path, (long long)file->bytes,
                 (long long)then->sums.bytes);
        return TRIREME_OK;
    }
    for (int64_t b = 0; b < file->sums.count; b++) {
        const uint64_t before = then->sums.sum[b];
        uint64_t now = file->sums.sum[b];
        if (before && !now && read && then->modified != file->modified) {
            TRY(mapping_sum(file, b, &now, error));
            read(user);
        }
        if (before && now && before != now) {
            text_add(differs, "bytes %lld to %lld of %s are others than before", (long long)block_begin(b),
                     (long long)block_end(&file->sums, b), file->path);
            return TRIREME_OK;
        }
    }
    return TRIREME_OK;
}

trireme_status token_set_compare(struct token_set *set, const struct sums_list *list, const char *path,
                                 void (*read)(void *user), void *user, struct text *differs, trireme_error *error) {
    const size_t before = differs->length;
    size_t files = 0, at = 0;
    for (size_t i = 0; i < 2 * set->shards.count; i++)
        files += set_file(set, i) != NULL;
    for (size_t i = 0; i < 2 * set->shards.count && at < list->count && differs->length == before; i++)
        if (set_file(set, i))
            TRY(compare_file(set_file(set, i), &list->item[at++], read, user, differs, error));
    if (differs->length == before && files != list->count)
        text_add(differs, "there are %zu files of tokens, before %zu", files, list->count);
    at = 0;
    for (size_t i = 0; i < 2 * set->shards.count && differs->length == before; i++)
        if (set_file(set, i))
            mapping_expect(set_file(set, i), &list->item[at++].sums, path);
    return TRIREME_OK;
}

// ---- reading

// The shard that holds token `position`.
static size_t find_shard(const struct token_set *set, int64_t position) {
    return PARTITION_POINT(i, set->shards.count, set->starts.item[i] <= position) - 1;
}

trireme_status token_set_read(const struct token_set *set, int64_t begin, int64_t end, int32_t vocab_size, int32_t *out,
                              trireme_error *error) {
    CHECK(begin >= 0 && begin <= end && end <= set->tokens);
    for (size_t s = find_shard(set, begin); begin < end; s++) {
        const struct token_shard *shard = &set->shards.item[s];
        int64_t start = set->starts.item[s], stop = MIN(end, start + shard->tokens);
        TRY(token_shard_read(shard, begin - start, stop - start, vocab_size, out, error));
        out += stop - begin;
        begin = stop;
    }
    return TRIREME_OK;
}

enum { CHECK_TOKENS = 1 << 16, CHECK_PIECE = 1 << 22, CHECK_AT_ONCE = 64 };

struct set_check {
    const struct token_set *set;
    int64_t begin; // of the first piece
    int32_t vocab_size;
};

static trireme_status check_piece(void *argument, int i, trireme_error *error) {
    const struct set_check *c = argument;
    const int64_t begin = c->begin + (int64_t)i * CHECK_PIECE, end = MIN(c->set->tokens, begin + CHECK_PIECE);
    int32_t *tokens = mem_alloc(CHECK_TOKENS * sizeof *tokens);
    trireme_status status = TRIREME_OK;
    for (int64_t at = begin; at < end && status == TRIREME_OK; at += CHECK_TOKENS)
        status = token_set_read(c->set, at, MIN(end, at + CHECK_TOKENS), c->vocab_size, tokens, error);
    free(tokens);
    return status;
}

trireme_status token_set_check(const struct token_set *set, int32_t vocab_size, void (*more)(void *user), void *user,
                               trireme_error *error) {
    bool fits = true;
    for (size_t i = 0; i < set->shards.count; i++) {
        const int width = set->shards.item[i].width;
        fits &= width <= 2 && vocab_size >= 1 << 8 * width;
    }
    struct set_check check = {.set = set, .vocab_size = vocab_size};
    for (; !fits && check.begin < set->tokens; check.begin += (int64_t)CHECK_AT_ONCE * CHECK_PIECE) {
        const int64_t pieces = divide_up(set->tokens - check.begin, CHECK_PIECE);
        TRY(parallel_try(usable_cores(), (int)MIN(pieces, CHECK_AT_ONCE), check_piece, &check, error));
        if (more)
            more(user);
    }
    return TRIREME_OK;
}

// What is told of a shard that begins at `start`: documents, or masked runs.
struct shard_visit {
    bool (*each)(void *user, int64_t position);
    bool (*each_run)(void *user, int64_t begin, int64_t end);
    void *user;
    int64_t start;
    bool more;
};

static bool visit_in_shard(void *user, int64_t position) {
    struct shard_visit *v = user;
    v->more = v->each(v->user, v->start + position);
    return v->more;
}

static bool visit_run_in_shard(void *user, int64_t begin, int64_t end) {
    struct shard_visit *v = user;
    v->more = v->each_run(v->user, v->start + begin, v->start + end);
    return v->more;
}

// Visits the shards that have tokens of [from, limit), as long as *visit wants more.
static trireme_status visit_shards(const struct token_set *set, int64_t from, int64_t limit, struct shard_visit *visit,
                                   trireme_error *error) {
    CHECK(from >= 0 && limit <= set->tokens);
    visit->more = true;
    for (size_t s = find_shard(set, from); from < limit && visit->more; s++) {
        const struct token_shard *shard = &set->shards.item[s];
        visit->start = set->starts.item[s];
        const int64_t begin = from - visit->start, end = MIN(limit - visit->start, shard->tokens);
        TRY(visit->each ? token_shard_documents(shard, begin, end, visit_in_shard, visit, error)
                        : token_shard_masked(shard, begin, end, visit_run_in_shard, visit, error));
        from = visit->start + end;
    }
    return TRIREME_OK;
}

trireme_status token_set_documents(const struct token_set *set, int64_t from, int64_t limit,
                                   bool (*each)(void *user, int64_t position), void *user, trireme_error *error) {
    return visit_shards(set, from, limit, &(struct shard_visit){.each = each, .user = user}, error);
}

trireme_status token_set_masked(const struct token_set *set, int64_t from, int64_t limit,
                                bool (*each)(void *user, int64_t begin, int64_t end), void *user,
                                trireme_error *error) {
    return visit_shards(set, from, limit, &(struct shard_visit){.each_run = each, .user = user}, error);
}

bool token_set_is_masked(const struct token_set *set) {
    for (size_t s = 0; s < set->shards.count; s++)
        if (set->shards.item[s].masked)
            return true;
    return false;
}

static bool take_first(void *user, int64_t position) {
    *(int64_t *)user = position;
    return false;
}

trireme_status token_set_next_document(const struct token_set *set, int64_t from, int64_t limit, int64_t *out,
                                       trireme_error *error) {
    int64_t first = limit;
    TRY(token_set_documents(set, from, limit, take_first, &first, error));
    *out = first;
    return TRIREME_OK;
}

bool token_set_delimited(const struct token_set *set, int64_t position) {
    return set->shards.item[find_shard(set, position)].delimiter >= 0;
}

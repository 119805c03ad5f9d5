#include "data/token_shard.h"

#include "base/text.h"

#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { LLMC_HEADER_BYTES = 1024 };

static const struct llmc_format {
    int32_t magic, version;
    int width;
    int32_t delimiter;
    const char *tokenizer;
} llmc_formats[] = {
    {20240520, 1, 2, 50256, "GPT-2"},    // <|endoftext|>
    {20240801, 7, 4, 128000, "Llama 3"}, // <|begin_of_text|>
};

static int32_t load_i32(const uint8_t *p) {
    int32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static int64_t load_i64(const uint8_t *p) {
    int64_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

void token_shard_release(struct token_shard *shard) {
    mapping_release(&shard->bin);
    mapping_release(&shard->index);
}

// ---- Megatron

static int64_t length_offset(int64_t sequence) {
    return MEGATRON_HEADER_BYTES + 4 * sequence;
}

static int64_t pointer_offset(const struct token_shard *shard, int64_t sequence) {
    return MEGATRON_HEADER_BYTES + 4 * shard->sequences + 8 * sequence;
}

static int64_t document_offset(const struct token_shard *shard, int64_t document) {
    return MEGATRON_HEADER_BYTES + 12 * shard->sequences + 8 * document;
}

// Refuses the index because of the value at byte `at`.
static trireme_status index_refuse(const struct token_shard *shard, int64_t at, const char *what, int64_t found,
                                   int64_t expected, trireme_error *error) {
    FAIL(TRIREME_ERROR_CORRUPT, "%s byte %" PRId64 ": %s is %" PRId64 ", expected %" PRId64, shard->index.path, at,
         what, found, expected);
}

// Sets *end to the byte of .bin after the last token of a sequence; checks its length and pointer. 0 <= sequence < S.
static trireme_status sequence_end(const struct token_shard *shard, int64_t sequence, int64_t *end,
                                   trireme_error *error) {
    int64_t at = length_offset(sequence);
    int32_t length = load_i32(shard->index.data + at);
    if (length < 0)
        FAIL(TRIREME_ERROR_CORRUPT, "%s byte %" PRId64 ": the length of sequence %" PRId64 " is negative (%d)",
             shard->index.path, at, sequence, length);
    int64_t pointer = load_i64(shard->index.data + pointer_offset(shard, sequence));
    // The bound keeps the sum below from overflowing; callers compare it with the size of .bin.
    if (pointer < 0 || pointer > INT64_MAX / 2 || pointer % shard->width != 0)
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s byte %" PRId64 ": sequence %" PRId64 " begins at byte %" PRId64 " of %s, expected a multiple of %d",
             shard->index.path, pointer_offset(shard, sequence), sequence, pointer, shard->bin.path, shard->width);
    *end = pointer + (int64_t)length * shard->width;
    return TRIREME_OK;
}

// First token of a document, 0 <= document <= documents.
static trireme_status document_start(const struct token_shard *shard, int64_t document, int64_t *start,
                                     trireme_error *error) {
    int64_t at = document_offset(shard, document), sequence = load_i64(shard->index.data + at);
    if (sequence < 0 || sequence > shard->sequences)
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s byte %" PRId64 ": document %" PRId64 " begins with sequence %" PRId64 ", expected 0 to %" PRId64,
             shard->index.path, at, document, sequence, shard->sequences);
    int64_t previous_end = 0;
    if (sequence > 0)
        TRY(sequence_end(shard, sequence - 1, &previous_end, error));
    if (sequence < shard->sequences) {
        int64_t pointer = load_i64(shard->index.data + pointer_offset(shard, sequence));
        if (pointer != previous_end)
            return index_refuse(shard, pointer_offset(shard, sequence), "the pointer to a sequence", pointer,
                                previous_end, error);
    }
    if (previous_end > shard->bin.bytes)
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s byte %" PRId64 ": sequence %" PRId64 " ends at byte %" PRId64 " of %s, which has %" PRId64,
             shard->index.path, length_offset(sequence - 1), sequence - 1, previous_end, shard->bin.path,
             shard->bin.bytes);
    *start = previous_end / shard->width;
    return TRIREME_OK;
}

// Reads from the index alone the dtype of tokens and the numbers of sequences and documents.
static trireme_status megatron_header(struct token_shard *shard, trireme_error *error) {
    const struct token_mapping *index = &shard->index;
    if (index->bytes < MEGATRON_HEADER_BYTES)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %" PRId64 " bytes, too short for the header of %d bytes", index->path,
             index->bytes, MEGATRON_HEADER_BYTES);
    if (memcmp(index->data, MEGATRON_MAGIC, MEGATRON_MAGIC_BYTES) != 0)
        FAIL(TRIREME_ERROR_CORRUPT, "%s byte 0: not a Megatron index: expected the 9 bytes MMIDIDX\\0\\0", index->path);
    int64_t version = load_i64(index->data + 9);
    if (version != MEGATRON_VERSION)
        return index_refuse(shard, 9, "the version", version, MEGATRON_VERSION, error);
    switch (index->data[17]) {
    case TOKEN_U8:
        shard->width = 1;
        break;
    case TOKEN_U16:
        shard->width = 2;
        break;
    case TOKEN_I32:
        shard->width = 4;
        break;
    case TOKEN_I64:
        shard->width = 8;
        break;
    default:
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s byte 17: dtype code %d holds no tokens: expected 8 (uint16), 4 (int32), 1 (uint8) or 5 (int64)",
             index->path, index->data[17]);
    }
    int64_t sequences = load_i64(index->data + 18), entries = load_i64(index->data + 26);
    // Neither count may be so large that the sum below overflows.
    int64_t most = (index->bytes - MEGATRON_HEADER_BYTES) / 8;
    bool sane = sequences >= 0 && sequences <= most && entries >= 0 && entries <= most;
    if (!sane || index->bytes != MEGATRON_HEADER_BYTES + 12 * sequences + 8 * entries)
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s: %" PRId64 " bytes, but its header tells of %" PRId64 " sequences and %" PRId64
             " document entries, expected 34 + 12 x sequences + 8 x entries = %.0f bytes: truncated, or not text",
             index->path, index->bytes, sequences, entries, 34.0 + 12.0 * (double)sequences + 8.0 * (double)entries);
    if (sequences == 0 || entries < 2)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: holds no document (%" PRId64 " sequences, %" PRId64 " document entries)",
             index->path, sequences, entries);
    shard->sequences = sequences;
    shard->documents = entries - 1;
    return TRIREME_OK;
}

// How much of an index is looked at before what was read of it is given back, bytes.
enum { INDEX_AT_ONCE = 1 << 22 };

// Checks that sequences lie one after another: a wrong length would end the run when its document is reached, or end
// documents where none ends.
static trireme_status shard_check_sequences(const struct token_shard *shard, trireme_error *error) {
    const struct token_mapping *index = &shard->index;
    int64_t end = 0;
    for (int64_t i = 0; i < shard->sequences; i++) {
        const int64_t at = pointer_offset(shard, i), pointer = load_i64(index->data + at);
        if (pointer != end)
            return index_refuse(shard, at, "the pointer to a sequence", pointer, end, error);
        TRY(sequence_end(shard, i, &end, error));
        if (i % (INDEX_AT_ONCE / 8) == 0) {
            mapping_give_back(index, MAX(0, length_offset(i) - INDEX_AT_ONCE), INDEX_AT_ONCE);
            mapping_give_back(index, MAX(0, at - INDEX_AT_ONCE), INDEX_AT_ONCE);
        }
    }
    return TRIREME_OK;
}

// Checks the order of documents in an index whose ends are right: bisection would find wrong documents in a wrong
// order.
static trireme_status shard_check_order(const struct token_shard *shard, trireme_error *error) {
    const struct token_mapping *index = &shard->index;
    int64_t begin = document_offset(shard, 0), previous = 0;
    for (int64_t at = begin; at < index->bytes; at += 8) {
        int64_t sequence = load_i64(index->data + at);
        if (sequence < previous)
            FAIL(TRIREME_ERROR_CORRUPT,
                 "%s byte %" PRId64 ": document %" PRId64 " begins with sequence %" PRId64
                 ", but the one before it with %" PRId64,
                 index->path, at, (at - begin) / 8, sequence, previous);
        previous = sequence;
        if ((at - begin) % INDEX_AT_ONCE == 0)
            mapping_give_back(index, MAX(0, at - INDEX_AT_ONCE), INDEX_AT_ONCE);
    }
    return TRIREME_OK;
}

// Checks all entries, one after another.
static trireme_status shard_check_entries(const struct token_shard *shard, trireme_error *error) {
    const struct token_mapping *index = &shard->index;
    madvise((void *)index->data, (size_t)index->bytes, MADV_SEQUENTIAL);
    trireme_status status = shard_check_sequences(shard, error);
    if (status == TRIREME_OK)
        status = shard_check_order(shard, error);
    madvise((void *)index->data, (size_t)index->bytes, MADV_RANDOM);
    return status;
}

static trireme_status megatron_check(struct token_shard *shard, trireme_error *error) {
    const struct token_mapping *index = &shard->index;
    TRY(megatron_header(shard, error));
    if (shard->bin.bytes % shard->width != 0)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %" PRId64 " bytes, expected a multiple of %d (the width of a token)",
             shard->bin.path, shard->bin.bytes, shard->width);
    int64_t end, at = pointer_offset(shard, 0), first = load_i64(index->data + at);
    if (first != 0)
        return index_refuse(shard, at, "the pointer to sequence 0", first, 0, error);
    TRY(sequence_end(shard, shard->sequences - 1, &end, error));
    if (end != shard->bin.bytes)
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s: %" PRId64 " bytes, but %s tells of %" PRId64 ": truncated, or the two are not a pair",
             shard->bin.path, shard->bin.bytes, index->path, end);
    first = load_i64(index->data + document_offset(shard, 0));
    if (first != 0)
        return index_refuse(shard, document_offset(shard, 0), "the first document's sequence", first, 0, error);
    int64_t last = load_i64(index->data + document_offset(shard, shard->documents));
    if (last != shard->sequences)
        return index_refuse(shard, document_offset(shard, shard->documents), "the end of the document index", last,
                            shard->sequences, error);
    TRY(shard_check_entries(shard, error));
    shard->tokens = shard->bin.bytes / shard->width;
    return TRIREME_OK;
}

// ---- llm.c

static trireme_status llmc_check(struct token_shard *shard, trireme_error *error) {
    const struct token_mapping *bin = &shard->bin;
    if (bin->bytes < LLMC_HEADER_BYTES)
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s: not a token file: there is no .idx beside it (Megatron's pair), and its %" PRId64
             " bytes are too short for the header of %d bytes (llm.c); `trireme prepare` makes token files of text",
             bin->path, bin->bytes, LLMC_HEADER_BYTES);
    int32_t magic = load_i32(bin->data);
    const struct llmc_format *format = NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(llmc_formats); i++)
        if (llmc_formats[i].magic == magic)
            format = &llmc_formats[i];
    if (!format)
        FAIL(
            TRIREME_ERROR_CORRUPT,
            "%s: not a token file: there is no .idx beside it (Megatron's pair), and its first 4 bytes are %d, "
            "expected %d or %d (llm.c); of tokens alone, as nanoGPT writes them, say so: data.path=uint16:%s; `trireme "
            "prepare` makes token files of text",
            bin->path, magic, llmc_formats[0].magic, llmc_formats[1].magic, bin->path);
    int32_t version = load_i32(bin->data + 4), tokens = load_i32(bin->data + 8);
    if (version != format->version)
        FAIL(TRIREME_ERROR_CORRUPT, "%s byte 4: the version is %d, expected %d", bin->path, version, format->version);
    int64_t expected = LLMC_HEADER_BYTES + (int64_t)tokens * format->width;
    if (tokens <= 0)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: its header (byte 8) tells of %d tokens, expected 1 or more", bin->path,
             tokens);
    if (bin->bytes != expected)
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s: %" PRId64 " bytes, but its header (byte 8) tells of %d tokens of %d bytes, expected %" PRId64
             " bytes",
             bin->path, bin->bytes, tokens, format->width, expected);
    shard->offset = LLMC_HEADER_BYTES;
    shard->tokens = tokens;
    shard->width = format->width;
    shard->delimiter = format->delimiter;
    shard->tokenizer = format->tokenizer;
    return TRIREME_OK;
}

// ---- tokens alone

static trireme_status bare_check(struct token_shard *shard, int width, bool has_index, trireme_error *error) {
    const struct token_mapping *bin = &shard->bin;
    if (has_index)
        FAIL(TRIREME_ERROR_USAGE,
             "%s: has an index beside it, and is no file of tokens alone: leave out uint%d:", bin->path, 8 * width);
    if (bin->bytes % width != 0 || bin->bytes == 0)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %" PRId64 " bytes, expected tokens of %d bytes each", bin->path, bin->bytes,
             width);
    shard->tokens = bin->bytes / width;
    shard->width = width;
    return TRIREME_OK;
}

// ---- all formats

// Takes what a list of checksums says of a file, whose name there is its ending.
static trireme_status shard_expect(struct token_mapping *m, const struct sums_list *list, const char *ending,
                                   const char *path, trireme_error *error) {
    const struct sums_file *file = m->data ? sums_list_find(list, ending) : NULL;
    if (!m->data)
        return TRIREME_OK;
    if (!file || file->sums.bytes != m->bytes)
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s: %" PRId64 " bytes, but %s tells of %" PRId64 ": damaged, or made by another program since: prepare "
             "the text again, or remove %s if the tokens are right",
             m->path, m->bytes, path, file ? file->sums.bytes : 0, path);
    mapping_expect(m, &file->sums, path);
    return TRIREME_OK;
}

// Reads PREFIX.sums, if there is one, and checks all of the index.
static trireme_status shard_open_sums(struct token_shard *shard, int stem, trireme_error *error) {
    char *path = mem_printf("%.*s.sums", stem, shard->bin.path);
    struct sums_list list;
    bool found;
    trireme_status status = sums_list_read(&list, path, &found, error);
    if (status == TRIREME_OK && found)
        status = shard_expect(&shard->bin, &list, "bin", path, error);
    if (status == TRIREME_OK && found)
        status = shard_expect(&shard->index, &list, "idx", path, error);
    sums_list_release(&list);
    free(path);
    TRY(status);
    return shard->index.data ? mapping_verify(&shard->index, 0, shard->index.bytes, error) : TRIREME_OK;
}

trireme_status token_shard_open(struct token_shard *out, const char *path, int bare, trireme_error *error) {
    struct token_shard shard = {.delimiter = -1};
    trireme_status status = mapping_open(&shard.bin, mem_strdup(path), error);
    if (status != TRIREME_OK)
        goto fail;
    const int stem = (int)(strlen(path) - (text_ends(path, ".bin") ? strlen(".bin") : 0));
    char *index = mem_printf("%.*s.idx", stem, path);
    struct stat info;
    const bool has_index = stat(index, &info) == 0;
    if (has_index && !bare) {
        status = mapping_open(&shard.index, index, error);
        if (status == TRIREME_OK)
            status = megatron_check(&shard, error);
    } else {
        free(index);
        status = bare ? bare_check(&shard, bare, has_index, error) : llmc_check(&shard, error);
    }
    if (status == TRIREME_OK)
        status = shard_open_sums(&shard, stem, error);
    if (status != TRIREME_OK)
        goto fail;
    // Of many files, the pages that were looked at would add up.
    mapping_give_back(&shard.bin, 0, shard.bin.bytes);
    mapping_give_back(&shard.index, 0, shard.index.bytes);
    *out = shard;
    return TRIREME_OK;
fail:
    token_shard_release(&shard);
    return status;
}

// Starts reading tokens [begin, end), and checks the blocks that they are in.
static trireme_status shard_need(const struct token_shard *shard, int64_t begin, int64_t end, trireme_error *error) {
    const int64_t from = shard->offset + begin * shard->width, to = shard->offset + end * shard->width;
    mapping_will_need(&shard->bin, from, to);
    return mapping_verify(&shard->bin, from, to, error);
}

enum { READ_BYTES = 1 << 14 };

// Converts `count` tokens of type T at p; `worst` becomes the largest, so that one comparison afterwards checks all.
#define READ_TOKENS(T)                                               \
    for (int64_t i = 0; i < count; i++) {                            \
        T token;                                                     \
        memcpy(&token, p + i * (int64_t)sizeof token, sizeof token); \
        worst = MAX(worst, token);                                   \
        out[i] = (int32_t)token;                                     \
    }

static uint64_t shard_convert(const uint8_t *p, int width, int64_t count, int32_t *out) {
    uint64_t worst = 0;
    if (width == 1)
        READ_TOKENS(uint8_t)
    else if (width == 2)
        READ_TOKENS(uint16_t)
    else if (width == 4)
        READ_TOKENS(uint32_t)
    else
        READ_TOKENS(uint64_t)
    return worst;
}

static uint64_t load_token(const uint8_t *p, int width) {
    uint64_t token = 0;
    memcpy(&token, p, (size_t)width);
    return token;
}

trireme_status token_shard_read(const struct token_shard *shard, int64_t begin, int64_t end, int32_t vocab_size,
                                int32_t *out, trireme_error *error) {
    CHECK(begin >= 0 && begin <= end && end <= shard->tokens);
    const int width = shard->width;
    uint8_t bytes[READ_BYTES];
    int64_t at = begin, count = 0;
    uint64_t worst = 0;
    TRY(mapping_check(&shard->index, error)); // where the caller looks for the row's documents next
    TRY(mapping_check(&shard->bin, error));
    TRY(shard_need(shard, begin, end, error));
    for (; at < end && worst < (uint64_t)vocab_size; at += count) {
        count = MIN(end - at, READ_BYTES / width);
        const int64_t from = shard->offset + at * width;
        TRY(mapping_copy(&shard->bin, from, from + count * width, bytes, error));
        worst = shard_convert(bytes, width, count, &out[at - begin]);
    }
    mapping_give_back(&shard->bin, shard->offset + begin * width, (end - begin) * width);
    if (begin == end || worst < (uint64_t)vocab_size)
        return TRIREME_OK;
    const uint8_t *p = bytes;
    int64_t position = at - count;
    for (; load_token(p, width) < (uint64_t)vocab_size; p += width)
        position++;
    // Negative values of the signed types were read as huge ones.
    uint64_t token = load_token(p, width);
    bool negative = shard->index.data && shard->width >= 4 && token >> (8 * shard->width - 1);
    char text[32];
    if (negative)
        snprintf(text, sizeof text, "%" PRId64, shard->width == 4 ? (int32_t)token : (int64_t)token);
    else
        snprintf(text, sizeof text, "%" PRIu64, token);
    FAIL(TRIREME_ERROR_CORRUPT,
         "%s: token %s at position %" PRId64 " (byte %" PRId64 ") is outside of the vocabulary of %d: "
         "was it made with another tokenizer?",
         shard->bin.path, text, position, shard->offset + position * shard->width, vocab_size);
}

static int64_t llmc_find(const struct token_shard *shard, int64_t from, int64_t limit) {
    const uint8_t *p = shard->bin.data + shard->offset;
    if (shard->width == 2) {
        for (int64_t i = from; i < limit; i++) {
            uint16_t token;
            memcpy(&token, p + 2 * i, sizeof token);
            if (token == shard->delimiter)
                return i;
        }
    } else {
        for (int64_t i = from; i < limit; i++)
            if (load_i32(p + 4 * i) == shard->delimiter)
                return i;
    }
    return limit;
}

// How many tokens or documents are looked at before what was read of them is given back.
enum { PIECE = 1 << 18 };

static trireme_status llmc_documents(const struct token_shard *shard, int64_t from, int64_t limit,
                                     bool (*each)(void *user, int64_t position), void *user, trireme_error *error) {
    bool more = true;
    for (int64_t end; from < limit && more; from = end) {
        end = MIN(limit, from + PIECE);
        TRY(shard_need(shard, from, end, error));
        int64_t at = llmc_find(shard, from, end);
        while (at < end && (more = each(user, at)))
            at = llmc_find(shard, at + 1, end);
        mapping_give_back(&shard->bin, shard->offset + from * shard->width, (end - from) * shard->width);
    }
    return TRIREME_OK;
}

// *out: the first document that does not begin before token `from`, or the number of documents.
static trireme_status document_search(const struct token_shard *shard, int64_t from, int64_t *out,
                                      trireme_error *error) {
    // Invariant: documents before `low` begin before `from`, document `high` does not (or is the end).
    int64_t low = 0, high = shard->documents, start = 0;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        TRY(document_start(shard, middle, &start, error));
        if (start < from)
            low = middle + 1;
        else
            high = middle;
    }
    *out = low;
    return TRIREME_OK;
}

static trireme_status megatron_documents(const struct token_shard *shard, int64_t from, int64_t limit,
                                         bool (*each)(void *user, int64_t position), void *user, trireme_error *error) {
    int64_t low, start = 0;
    TRY(document_search(shard, from, &low, error));
    bool more = true;
    for (int64_t last = -1; low < shard->documents && more; low++) {
        TRY(document_start(shard, low, &start, error));
        if (start < from || start < last)
            FAIL(TRIREME_ERROR_CORRUPT,
                 "%s byte %" PRId64 ": document %" PRId64
                 " begins before the one before it: the file was changed while it was read",
                 shard->index.path, document_offset(shard, low), low);
        if (start >= limit)
            break;
        more = start == last || each(user, start); // empty documents begin where the next one does
        last = start;
        if (low % PIECE == 0)
            mapping_give_back(&shard->index, 0, shard->index.bytes);
    }
    mapping_give_back(&shard->index, 0, shard->index.bytes);
    return TRIREME_OK;
}

trireme_status token_shard_documents(const struct token_shard *shard, int64_t from, int64_t limit,
                                     bool (*each)(void *user, int64_t position), void *user, trireme_error *error) {
    CHECK(from >= 0 && limit <= shard->tokens);
    if (from >= limit)
        return TRIREME_OK;
    if (shard->index.data)
        return megatron_documents(shard, from, limit, each, user, error);
    if (shard->delimiter < 0) {
        if (from == 0)
            each(user, 0);
        return TRIREME_OK;
    }
    return llmc_documents(shard, from, limit, each, user, error);
}

// Whether a sequence of a document that begins with sequence `first` is only read.
static bool sequence_is_masked(int64_t sequence, int64_t first) {
    return (sequence - first) % 2 != 0;
}

trireme_status token_shard_masked(const struct token_shard *shard, int64_t from, int64_t limit,
                                  bool (*each)(void *user, int64_t begin, int64_t end), void *user,
                                  trireme_error *error) {
    CHECK(from >= 0 && limit <= shard->tokens);
    if (!shard->masked || !shard->index.data || from >= limit)
        return TRIREME_OK;
    int64_t document, start, end;
    TRY(document_search(shard, from + 1, &document, error));
    document--;
    TRY(document_start(shard, document, &start, error));
    int64_t first = load_i64(shard->index.data + document_offset(shard, document)), sequence = first;
    for (bool more = true; more && start < limit && sequence < shard->sequences; sequence++) {
        while (document + 1 < shard->documents &&
               load_i64(shard->index.data + document_offset(shard, document + 1)) <= sequence)
            first = load_i64(shard->index.data + document_offset(shard, ++document));
        TRY(sequence_end(shard, sequence, &end, error));
        end /= shard->width;
        if (end > from && end > start && sequence_is_masked(sequence, first))
            more = each(user, MAX(start, from), MIN(end, limit));
        start = end;
    }
    mapping_give_back(&shard->index, 0, shard->index.bytes);
    return TRIREME_OK;
}

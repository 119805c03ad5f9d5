#include "data/prepare.h"

#include "data/token_writer.h"
#include "tokenizer/encoder.h"

static const size_t DOCUMENT_MAX = (size_t)1 << 30; // bytes; a tokenizer takes a document at once

struct preparation {
    const struct prepare_options *options;
    struct token_writer *writer;
    struct encoder *encoder;
    bool pieces;              // pieces of a document are encoded by themselves: tokens are bytes
    struct text document;     // in progress, else
    struct token_list tokens; // of a piece, or a document
    int64_t done, total;      // bytes of input; total is 0 where it is not known
    int64_t text_bytes, document_bytes, empty_documents;
    struct document_bad_lines bad_lines;
};

static trireme_status prepare_encode(struct preparation *p, const char *bytes, size_t length,
                                     enum encoder_specials specials, trireme_error *error) {
    p->tokens.count = 0;
    TRY(encoder_encode(p->encoder, bytes, length, specials, &p->tokens, error));
    return token_writer_add(p->writer, p->tokens.item, p->tokens.count, error);
}

static trireme_status prepare_add_piece(void *user, const char *bytes, size_t length, trireme_error *error) {
    struct preparation *p = user;
    p->document_bytes += (int64_t)length;
    if (p->pieces)
        return prepare_encode(p, bytes, length, ENCODER_TEXT_ALONE, error);
    if (p->document.length + length > DOCUMENT_MAX)
        FAIL(TRIREME_ERROR_USAGE, "a document is longer than 1 GiB: cut it into several");
    text_add_bytes(&p->document, bytes, length);
    return TRIREME_OK;
}

static trireme_status end_document(void *user, trireme_error *error) {
    struct preparation *p = user;
    if (p->document_bytes == 0)
        p->empty_documents++;
    else if (!p->pieces)
        TRY(prepare_encode(p, p->document.text, p->document.length, ENCODER_DOCUMENT, error));
    p->document.length = 0;
    p->text_bytes += p->document_bytes;
    p->document_bytes = 0;
    return token_writer_end_document(p->writer, error);
}

static trireme_status check_cancel(const struct preparation *p, trireme_error *error) {
    if (p->options->cancel && *p->options->cancel)
        FAIL(TRIREME_ERROR_INTERRUPTED, "%s: interrupted, nothing was written", p->options->prefix);
    return TRIREME_OK;
}

static trireme_status prepare_advance(void *user, size_t bytes, trireme_error *error) {
    struct preparation *p = user;
    TRY(check_cancel(p, error));
    // A file that grows while it is read must not take the progress beyond its end.
    p->done += (int64_t)bytes;
    if (p->total)
        p->done = MIN(p->done, p->total);
    if (p->options->progress)
        p->options->progress(p->options->user, p->done, p->total);
    return TRIREME_OK;
}

static trireme_status read_files(struct preparation *p, const struct document_files *files, trireme_error *error) {
    struct document_sink sink = {.user = p, .add = prepare_add_piece, .end = end_document, .advance = prepare_advance};
    struct document_options options = p->options->documents;
    options.bad_lines = p->options->skips_bad_lines ? &p->bad_lines : NULL;
    for (size_t i = 0; i < files->count; i++)
        TRY(document_file_read(&files->item[i], &options, &sink, error));
    TRY(check_cancel(p, error));
    if (p->text_bytes == 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: the input holds no text (files: %zu, documents: %lld, all empty%s%s)",
             files->item[0].path, files->count, (long long)p->empty_documents,
             p->bad_lines.count ? "; bad lines were left out, the first: " : "", p->bad_lines.first.message);
    return TRIREME_OK;
}

trireme_status prepare_tokens(const struct prepare_options *options, struct prepare_result *out, trireme_error *error) {
    struct preparation p = {.options = options, .pieces = strcmp(tokenizer_kind(options->tokenizer), "bytes") == 0};
    struct document_files files = {0};
    struct prepare_result result = {0};
    trireme_status status = TRIREME_OK;
    if (options->input_count == 0)
        FAIL(TRIREME_ERROR_USAGE,
             "there is no input: name .txt or .jsonl files, directories of them, or - for standard input");
    p.encoder = encoder_create(options->tokenizer);
    for (size_t i = 0; i < options->input_count && status == TRIREME_OK; i++)
        status = document_files_add(&files, options->inputs[i], error);
    if (status != TRIREME_OK)
        goto release_files;
    p.total = files.stream ? 0 : files.bytes;
    status = token_writer_create(options->prefix, tokenizer_vocab_size(options->tokenizer), 0, &p.writer, error);
    if (status != TRIREME_OK)
        goto release_files;
    status = read_files(&p, &files, error);
    if (status != TRIREME_OK) {
        token_writer_discard(p.writer);
        goto release_tokens;
    }
    struct token_manifest *m = &result.manifest;
    snprintf(m->tokenizer_kind, sizeof m->tokenizer_kind, "%s", tokenizer_kind(options->tokenizer));
    tokenizer_checksum(options->tokenizer, m->tokenizer_checksum);
    m->vocab_size = tokenizer_vocab_size(options->tokenizer);
    m->tokens = token_writer_tokens(p.writer);
    m->documents = token_writer_documents(p.writer);
    m->text_bytes = p.text_bytes;
    result.files = (int64_t)files.count;
    result.empty_documents = p.empty_documents;
    result.bad_lines = p.bad_lines;
    struct tokenizer_files kept = tokenizer_files(options->tokenizer);
    if (!p.pieces)
        token_writer_keep(p.writer, &kept);
    status = token_writer_finish(p.writer, m, error);
    tokenizer_files_release(&kept);
    if (status != TRIREME_OK)
        goto release_tokens;
    struct text others = {0};
    document_files_describe_others(&files, &others);
    snprintf(result.passed_over, sizeof result.passed_over, "%s", others.length ? others.text : "");
    text_release(&others);
    *out = result;
release_tokens:
    VEC_RELEASE(&p.tokens);
    text_release(&p.document);
release_files:
    encoder_free(p.encoder);
    document_files_release(&files);
    return status;
}

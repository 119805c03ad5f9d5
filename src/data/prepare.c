#include "data/prepare.h"

#include "data/token_writer.h"

struct preparation {
    const struct prepare_options *options;
    struct token_writer *writer;
    struct token_list tokens; // of one piece
    int64_t done, total;      // bytes of input; total is 0 where it is not known
    int64_t text_bytes, document_bytes, empty_documents;
    struct document_bad_lines bad_lines;
};

static trireme_status prepare_add_piece(void *user, const char *bytes, size_t length, trireme_error *error) {
    struct preparation *p = user;
    // A byte tokenizer gives the same tokens wherever a document is cut into pieces.
    p->tokens.count = 0;
    tokenizer_encode(p->options->tokenizer, bytes, length, &p->tokens);
    p->document_bytes += (int64_t)length;
    return token_writer_add(p->writer, p->tokens.item, p->tokens.count, error);
}

static trireme_status end_document(void *user, trireme_error *error) {
    struct preparation *p = user;
    if (p->document_bytes == 0)
        p->empty_documents++;
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
    struct preparation p = {.options = options};
    struct document_files files = {0};
    struct prepare_result result = {0};
    trireme_status status = TRIREME_OK;
    if (options->input_count == 0)
        FAIL(TRIREME_ERROR_USAGE,
             "there is no input: name .txt or .jsonl files, directories of them, or - for standard input");
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
    status = token_writer_finish(p.writer, m, error);
    if (status != TRIREME_OK)
        goto release_tokens;
    struct text others = {0};
    document_files_describe_others(&files, &others);
    snprintf(result.passed_over, sizeof result.passed_over, "%s", others.length ? others.text : "");
    text_release(&others);
    *out = result;
release_tokens:
    VEC_RELEASE(&p.tokens);
release_files:
    document_files_release(&files);
    return status;
}

// The caller's thread reads text into jobs: some documents, or a part of a long one. Threads encode jobs, and the
// caller's thread writes their tokens in the order of the text (base/ordered_work.h).
//
// A job knows the position in the input behind it. With what was written up to there, that is all that is needed to go
// on: files before it are passed over, and of the file it is in, documents are read and dropped up to it.
//
// A chat is a document whose text is a line of JSON: the thread that encodes it makes the text that models see of it,
// and notes which tokens are answers.
#include "data/prepare.h"

#include "base/build.h"
#include "base/clock.h"
#include "base/ordered_work.h"
#include "base/parallel_for.h"
#include "chat/chat.h"
#include "data/token_writer.h"
#include "tokenizer/encoder.h"

#include <sys/stat.h>

static const size_t DOCUMENT_MAX = (size_t)1 << 30; // bytes of a document that cannot be cut
static const size_t JOB_BYTES = 256 << 10;
static const int64_t SAVE_AFTER = 10000000000; // nanoseconds
enum { THREADS_MOST = 32 };                    // more would wait for the one that reads

// Where the reader is, and what it has counted up to there.
struct prepare_position {
    int64_t file;      // that is being read
    int64_t documents; // that have ended in it
    int64_t bytes;     // taken of the document in progress
    int64_t text_bytes, empty_documents;
    struct document_bad_lines bad_lines; // before this file
};

// Of the chats that were written.
struct prepare_chats {
    int64_t count, answer_tokens, without_answers, text_bytes;
    struct document_bad_lines bad;
};

struct prepare_part {
    size_t end, tokens_end; // of its text and tokens, in those of the job
    struct encoder_part of; // a document
    int64_t file, line;     // line 0: it is no chat
    int64_t document;       // of a text: which one of its file, from 1 on
    bool left_out;          // a chat that was bad
};

struct prepare_job {
    struct text text;
    VEC(struct prepare_part) parts;
    struct token_list tokens;
    VEC(bool) answer; // of each token of the chats
    struct document_bad_lines bad;
    int64_t chat_bytes; // of the text that chats became
    struct prepare_position after;
    trireme_status status;
    trireme_error error;
};

struct preparation {
    const struct prepare_options *options;
    char of[CHECKSUM_HEX]; // what the tokens are made of; empty where nothing is saved
    struct token_writer *writer;
    const struct document_files *files;
    struct chat_template *template; // NULL until there is a chat
    struct encoder **encoder;       // [threads]
    struct chat_work {
        struct chat_text text;
        struct chat_tokens tokens;
    } * chat_work;         // [threads]
    struct encoder *seams; // of the reader
    struct ordered_work *work;
    int slots;
    struct prepare_job *jobs, *job; // [slots]; the one being filled
    size_t job_bytes, next_cut;     // bytes in the job at which a seam is looked for
    bool begun;                     // the document in progress has parts in earlier jobs
    int64_t document_bytes;         // of the document in progress
    struct text rest;               // behind a seam
    struct prepare_position at, from, written;
    int64_t saved_at;
    int64_t done, total; // bytes of input; total is 0 where it is not known
    struct document_bad_lines bad_lines;
    struct prepare_chats chats;
};

// ---- jobs

// Appends the tokens of a chat.
static trireme_status job_encode_chat(struct preparation *p, int thread, struct prepare_job *job, const char *line,
                                      size_t length, trireme_error *error) {
    struct chat_work *w = &p->chat_work[thread];
    json_t *chat;
    TRY(json_parse(line, length, "the chat", &chat, error));
    trireme_status status = chat_render_line(p->template, chat, &w->text, error);
    json_decref(chat);
    TRY(status);
    TRY(chat_encode(p->encoder[thread], &w->text, &w->tokens, error));
    token_list_append(&job->tokens, w->tokens.tokens.item, w->tokens.tokens.count);
    for (size_t i = 0; i < w->tokens.answer.count; i++)
        VEC_PUSH(&job->answer, w->tokens.answer.item[i]);
    job->chat_bytes += (int64_t)w->text.text.length;
    return TRIREME_OK;
}

// A chat that is bad ends the work, or is left out.
static trireme_status job_take_chat(struct preparation *p, int thread, struct prepare_job *job,
                                    struct prepare_part *part, size_t begin, trireme_error *error) {
    trireme_error why;
    trireme_status status = job_encode_chat(p, thread, job, job->text.text + begin, part->end - begin, &why);
    if (status == TRIREME_OK)
        return TRIREME_OK;
    error_prefix(&why, status, "%s line %lld", p->files->item[part->file].path, (long long)part->line);
    if (!p->options->skips_bad_lines)
        return error_repeat(error, &why);
    if (job->bad.count++ == 0)
        job->bad.first = why;
    part->left_out = true;
    return TRIREME_OK;
}

static void job_encode(void *user, int thread, int slot) {
    struct preparation *p = user;
    struct prepare_job *job = &p->jobs[slot];
    job->status = TRIREME_OK;
    job->tokens.count = job->answer.count = 0;
    job->bad.count = job->chat_bytes = 0;
    size_t begin = 0;
    for (size_t i = 0; i < job->parts.count && job->status == TRIREME_OK; i++) {
        struct prepare_part *part = &job->parts.item[i];
        if (part->line) {
            job->status = job_take_chat(p, thread, job, part, begin, &job->error);
        } else {
            job->status = encoder_encode_part(p->encoder[thread], job->text.text + begin, part->end - begin, part->of,
                                              ENCODER_DOCUMENT, &job->tokens, &job->error);
            if (job->status != TRIREME_OK)
                error_prefix(&job->error, job->status, "%s: document %lld", p->files->item[part->file].path,
                             (long long)part->document);
        }
        part->tokens_end = job->tokens.count;
        begin = part->end;
    }
}

static trireme_status prepare_save(struct preparation *p, trireme_error *error) {
    const struct prepare_position *at = &p->written;
    json_t *bad = json_string(at->bad_lines.first.message) ?: json_string(""),
           *bad_chat = json_string(p->chats.bad.first.message) ?: json_string("");
    json_t *position =
        json_pack("{sI sI sI sI sI sI so sI sI sI sI sI so}", "file", at->file, "documents", at->documents, "bytes",
                  at->bytes, "text_bytes", at->text_bytes, "empty_documents", at->empty_documents, "bad_lines",
                  at->bad_lines.count, "message", bad, "chats", p->chats.count, "answer_tokens", p->chats.answer_tokens,
                  "without_answers", p->chats.without_answers, "chat_bytes", p->chats.text_bytes, "bad_chats",
                  p->chats.bad.count, "chat_message", bad_chat);
    const trireme_status status = token_writer_save(p->writer, p->of, position, error);
    json_decref(position);
    p->saved_at = clock_now();
    return status;
}

// Writes a chat, whose runs of tokens are answers and others in turns. A document begins with what is predicted.
static trireme_status chat_write(struct preparation *p, const int32_t *token, const bool *answer, size_t count,
                                 trireme_error *error) {
    bool predicted = true, any = false;
    for (size_t begin = 0, end; begin < count; begin = end) {
        for (end = begin; end < count && answer[end] == answer[begin];)
            end++;
        if (answer[begin] != predicted)
            TRY(token_writer_turn(p->writer, error));
        predicted = answer[begin];
        any |= predicted;
        p->chats.answer_tokens += predicted ? (int64_t)(end - begin) : 0;
        TRY(token_writer_add(p->writer, token + begin, end - begin, error));
    }
    p->chats.count++;
    p->chats.without_answers += !any;
    return TRIREME_OK;
}

static void bad_lines_add(struct document_bad_lines *to, const struct document_bad_lines *more) {
    if (to->count == 0 && more->count > 0)
        to->first = more->first;
    to->count += more->count;
}

static struct document_bad_lines all_bad_lines(const struct preparation *p) {
    struct document_bad_lines all = p->bad_lines;
    bad_lines_add(&all, &p->chats.bad);
    return all;
}

static trireme_status job_write(void *user, int slot, trireme_error *error) {
    struct preparation *p = user;
    struct prepare_job *job = &p->jobs[slot];
    if (job->status != TRIREME_OK)
        return error_repeat(error, &job->error);
    size_t begin = 0, answer = 0;
    p->chats.text_bytes += job->chat_bytes;
    if (job->bad.count)
        bad_lines_add(&p->chats.bad, &job->bad);
    for (size_t i = 0; i < job->parts.count; i++) {
        const struct prepare_part *part = &job->parts.item[i];
        const size_t count = part->tokens_end - begin;
        if (part->left_out)
            continue;
        if (part->line) {
            TRY(chat_write(p, job->tokens.item + begin, job->answer.item + answer, count, error));
            answer += count;
        } else {
            TRY(token_writer_add(p->writer, job->tokens.item + begin, count, error));
        }
        if (part->of.ends)
            TRY(token_writer_end_document(p->writer, error));
        begin = part->tokens_end;
    }
    p->written = job->after;
    const int64_t after = p->options->save_after ? p->options->save_after : SAVE_AFTER;
    return *p->of && clock_now() - p->saved_at >= after ? prepare_save(p, error) : TRIREME_OK;
}

static trireme_status job_next(struct preparation *p, trireme_error *error) {
    int slot;
    TRY(ordered_work_next(p->work, &slot, error));
    p->job = &p->jobs[slot];
    p->job->text.length = p->job->parts.count = 0;
    p->next_cut = p->job_bytes;
    return TRIREME_OK;
}

static size_t job_parts_end(const struct prepare_job *job) {
    return job->parts.count ? job->parts.item[job->parts.count - 1].end : 0;
}

// Hands over the parts of the job. Text behind them begins the next one.
static trireme_status job_submit(struct preparation *p, trireme_error *error) {
    const size_t end = job_parts_end(p->job);
    p->rest.length = 0;
    if (p->job->text.length > end)
        text_add_bytes(&p->rest, p->job->text.text + end, p->job->text.length - end);
    p->job->after = p->at;
    ordered_work_start(p->work);
    TRY(job_next(p, error));
    text_add_bytes(&p->job->text, p->rest.text ? p->rest.text : "", p->rest.length);
    return TRIREME_OK;
}

// The text behind the last part, up to `end`, is a part of the document in progress.
static void job_add_part(struct preparation *p, size_t end, bool ends) {
    const int64_t bytes = (int64_t)(end - job_parts_end(p->job));
    VEC_PUSH(&p->job->parts, (struct prepare_part){.end = end,
                                                   .of = {.begins = !p->begun, .ends = ends},
                                                   .file = p->at.file,
                                                   .document = p->at.documents + !ends});
    p->begun = !ends;
    p->at.bytes = ends ? 0 : p->at.bytes + bytes;
    p->at.text_bytes += bytes;
}

// A job has become long within a document: its part of it ends at a seam. Where there is none, the document goes on by
// itself.
static trireme_status job_cut(struct preparation *p, trireme_error *error) {
    const size_t begin = job_parts_end(p->job), length = p->job->text.length - begin;
    const size_t seam = encoder_seam(p->seams, p->job->text.text + begin, length);
    if (seam)
        job_add_part(p, begin + seam, false);
    if (p->job->parts.count)
        return job_submit(p, error);
    if (length > DOCUMENT_MAX)
        FAIL(TRIREME_ERROR_USAGE,
             "a document is longer than 1 GiB, and there is no place in it where this tokenizer lets it be encoded in "
             "parts: cut it into several documents");
    p->next_cut = p->job->text.length + p->job_bytes;
    return TRIREME_OK;
}

// ---- reading

// Whether what is read was written by an earlier run. Drops what is of it from the piece.
static bool prepare_passes(const struct preparation *p, const char **bytes, size_t *length) {
    if (p->at.file != p->from.file || p->at.documents > p->from.documents)
        return false;
    if (p->at.documents < p->from.documents)
        return true;
    const int64_t written = p->from.bytes - p->document_bytes;
    const size_t dropped = written > 0 ? (size_t)MIN(written, (int64_t)*length) : 0;
    *bytes += dropped;
    *length -= dropped;
    return false;
}

static trireme_status prepare_add_piece(void *user, const char *bytes, size_t length, trireme_error *error) {
    struct preparation *p = user;
    const int64_t whole = (int64_t)length;
    const bool passes = prepare_passes(p, &bytes, &length);
    p->document_bytes += whole;
    if (passes || length == 0)
        return TRIREME_OK;
    text_add_bytes(&p->job->text, bytes, length);
    return p->job->text.length >= p->next_cut ? job_cut(p, error) : TRIREME_OK;
}

static trireme_status end_document(void *user, trireme_error *error) {
    struct preparation *p = user;
    const bool passes = p->at.file == p->from.file && p->at.documents < p->from.documents;
    p->at.documents++;
    if (!passes && p->document_bytes)
        job_add_part(p, p->job->text.length, true);
    else if (!passes)
        p->at.empty_documents++;
    p->document_bytes = 0;
    return p->job->text.length >= p->job_bytes ? job_submit(p, error) : TRIREME_OK;
}

static trireme_status prepare_template(struct preparation *p, trireme_error *error) {
    const char *name = p->options->chat_template ? p->options->chat_template : "";
    return p->template ? TRIREME_OK : chat_template_create(p->options->tokenizer, name, &p->template, error);
}

static trireme_status prepare_add_chat(void *user, const char *json, size_t length, int64_t line,
                                       trireme_error *error) {
    struct preparation *p = user;
    TRY(prepare_template(p, error));
    const bool passes = prepare_passes(p, &json, &length);
    p->at.documents++;
    if (passes)
        return TRIREME_OK;
    text_add_bytes(&p->job->text, json, length);
    VEC_PUSH(&p->job->parts,
             (struct prepare_part){
                 .end = p->job->text.length, .of = {.begins = true, .ends = true}, .line = line, .file = p->at.file});
    return p->job->text.length >= p->job_bytes ? job_submit(p, error) : TRIREME_OK;
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
    struct document_sink sink = {
        .user = p, .add = prepare_add_piece, .end = end_document, .advance = prepare_advance, .chat = prepare_add_chat};
    struct document_options options = p->options->documents;
    options.bad_lines = p->options->skips_bad_lines ? &p->bad_lines : NULL;
    p->begun = p->from.bytes > 0;
    TRY(job_next(p, error));
    for (size_t i = 0; i < files->count; i++) {
        const struct document_file *file = &files->item[i];
        if ((int64_t)i < p->from.file) {
            p->done += file->bytes;
            continue;
        }
        p->at.file = (int64_t)i;
        p->at.documents = 0;
        p->at.bad_lines = p->bad_lines;
        TRY(document_file_read(file, &options, &sink, error));
    }
    TRY(check_cancel(p, error));
    TRY(job_submit(p, error));
    TRY(ordered_work_finish(p->work, error));
    const struct document_bad_lines bad = all_bad_lines(p);
    if (p->at.text_bytes == 0 && p->chats.count == 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: the input holds no text (files: %zu, documents: %lld, all empty%s%s)",
             files->item[0].path, files->count, (long long)p->at.empty_documents,
             bad.count ? "; bad lines were left out, the first: " : "", bad.first.message);
    return TRIREME_OK;
}

// ---- the whole

// What the tokens depend on; nothing where the input cannot be read again.
static void prepare_identify(struct preparation *p, const struct document_files *files) {
    const struct prepare_options *o = p->options;
    char hex[CHECKSUM_HEX];
    struct text json = {0};
    struct stat template = {0};
    if (files->stream)
        return;
    tokenizer_checksum(o->tokenizer, hex);
    json_begin_array(&json, NULL);
    json_add_string(&json, NULL, TRIREME_VERSION);
    json_add_string(&json, NULL, hex);
    json_add_string(&json, NULL, o->documents.field ? o->documents.field : "text");
    json_add_boolean(&json, NULL, o->skips_bad_lines);
    json_add_path(&json, NULL, o->chat_template ? o->chat_template : "");
    json_add_string(&json, NULL, tokenizer_chat_template(o->tokenizer) ?: "");
    if (o->chat_template && stat(o->chat_template, &template) == 0)
        json_add_integer(&json, NULL, template.st_mtim.tv_sec * 1000000000 + template.st_mtim.tv_nsec);
    for (size_t i = 0; i < files->count; i++) {
        struct stat info = {0};
        stat(files->item[i].path, &info);
        json_add_path(&json, NULL, files->item[i].path);
        json_add_integer(&json, NULL, info.st_size);
        json_add_integer(&json, NULL, info.st_mtim.tv_sec);
        json_add_integer(&json, NULL, info.st_mtim.tv_nsec);
    }
    json_end_array(&json);
    checksum_of(json.text, json.length, p->of);
    text_release(&json);
}

// Reads what prepare_save has written.
static trireme_status prepare_take_up(struct preparation *p, const json_t *position, trireme_error *error) {
    const char *message, *chat_message;
    const struct {
        const char *name;
        int64_t *value;
    } members[] = {{"file", &p->from.file},
                   {"documents", &p->from.documents},
                   {"bytes", &p->from.bytes},
                   {"text_bytes", &p->from.text_bytes},
                   {"empty_documents", &p->from.empty_documents},
                   {"bad_lines", &p->bad_lines.count},
                   {"chats", &p->chats.count},
                   {"answer_tokens", &p->chats.answer_tokens},
                   {"without_answers", &p->chats.without_answers},
                   {"chat_bytes", &p->chats.text_bytes},
                   {"bad_chats", &p->chats.bad.count}};
    for (size_t i = 0; i < ARRAY_LENGTH(members); i++)
        TRY(json_read_integer(position, p->options->prefix, members[i].name, JSON_REQUIRED, 0, INT64_MAX,
                              members[i].value, error));
    TRY(json_read_string(position, p->options->prefix, "message", JSON_REQUIRED, &message, error));
    TRY(json_read_string(position, p->options->prefix, "chat_message", JSON_REQUIRED, &chat_message, error));
    error_set(&p->bad_lines.first, TRIREME_ERROR_CORRUPT, "%s", message);
    error_set(&p->chats.bad.first, TRIREME_ERROR_CORRUPT, "%s", chat_message);
    p->at = p->from;
    p->at.documents = 0;
    p->written = p->from;
    p->written.bad_lines = p->bad_lines;
    return TRIREME_OK;
}

static trireme_status prepare_begin(struct preparation *p, const struct document_files *files, int64_t *resumed,
                                    trireme_error *error) {
    const struct prepare_options *o = p->options;
    const int32_t vocab_size = tokenizer_vocab_size(o->tokenizer);
    json_t *position = NULL;
    prepare_identify(p, files);
    if (*p->of)
        TRY(token_writer_go_on(o->prefix, vocab_size, 0, p->of, &p->writer, &position, error));
    else
        TRY(token_writer_create(o->prefix, vocab_size, 0, &p->writer, error));
    trireme_status status = position ? prepare_take_up(p, position, error) : TRIREME_OK;
    json_decref(position);
    *resumed = token_writer_tokens(p->writer);
    p->saved_at = clock_now();
    return status;
}

static void prepare_start_work(struct preparation *p) {
    const int threads = p->options->threads ? p->options->threads : MIN(usable_cores(), THREADS_MOST);
    p->slots = 2 * threads + 2;
    p->jobs = mem_alloc((size_t)p->slots * sizeof *p->jobs);
    p->encoder = mem_alloc((size_t)threads * sizeof *p->encoder);
    for (int i = 0; i < threads; i++)
        p->encoder[i] = encoder_create(p->options->tokenizer);
    p->chat_work = mem_alloc((size_t)threads * sizeof *p->chat_work);
    p->seams = encoder_create(p->options->tokenizer);
    p->job_bytes = p->options->job_bytes ? p->options->job_bytes : JOB_BYTES;
    p->work = ordered_work_create(&(struct ordered_work_options){
        .threads = threads, .slots = p->slots, .work = job_encode, .end = job_write, .user = p});
}

static void prepare_end_work(struct preparation *p) {
    ordered_work_free(p->work);
    for (int i = 0; i < p->slots; i++) {
        text_release(&p->jobs[i].text);
        VEC_RELEASE(&p->jobs[i].parts);
        VEC_RELEASE(&p->jobs[i].tokens);
        VEC_RELEASE(&p->jobs[i].answer);
    }
    for (int i = 0; i < (p->slots - 2) / 2; i++) {
        encoder_free(p->encoder[i]);
        chat_text_release(&p->chat_work[i].text);
        chat_tokens_release(&p->chat_work[i].tokens);
    }
    free(p->encoder);
    free(p->chat_work);
    chat_template_free(p->template);
    free(p->jobs);
    encoder_free(p->seams);
    text_release(&p->rest);
}

// The files of the tokenizer, with the template that was named for the chats there are: models know chats as it has
// them.
static trireme_status prepare_tokenizer_files(struct preparation *p, struct tokenizer_files *out,
                                              trireme_error *error) {
    const char *named = p->options->chat_template;
    const bool templates = p->chats.count > 0 && named && *named;
    if (templates)
        TRY(prepare_template(p, error));
    *out = tokenizer_files(p->options->tokenizer);
    if (templates) {
        const char *text = chat_template_text(p->template);
        tokenizer_files_add(out, TOKENIZER_CHAT_TEMPLATE, mem_strdup(text), strlen(text));
    }
    return TRIREME_OK;
}

static trireme_status prepare_finish(struct preparation *p, struct prepare_result *result, trireme_error *error) {
    const struct tokenizer *t = p->options->tokenizer;
    struct token_manifest *m = &result->manifest;
    snprintf(m->tokenizer_kind, sizeof m->tokenizer_kind, "%s", tokenizer_kind(t));
    tokenizer_checksum(t, m->tokenizer_checksum);
    m->vocab_size = tokenizer_vocab_size(t);
    m->tokens = token_writer_tokens(p->writer);
    m->documents = token_writer_documents(p->writer);
    m->text_bytes = p->at.text_bytes + p->chats.text_bytes;
    m->masked = p->chats.count > 0;
    result->chats = p->chats.count;
    result->answer_tokens = p->chats.answer_tokens;
    result->chats_without_answers = p->chats.without_answers;
    result->empty_documents = p->at.empty_documents;
    result->bad_lines = all_bad_lines(p);
    struct tokenizer_files kept;
    TRY(prepare_tokenizer_files(p, &kept, error));
    if (strcmp(tokenizer_kind(t), "bytes") != 0)
        token_writer_keep(p->writer, &kept);
    const trireme_status status = token_writer_finish(p->writer, m, error);
    tokenizer_files_release(&kept);
    return status;
}

// After a failure. What was written before an interruption is kept, where the input can be read again.
static trireme_status prepare_give_up(struct preparation *p, trireme_status status, trireme_error *error) {
    trireme_error why;
    if (status != TRIREME_ERROR_INTERRUPTED || !*p->of || token_writer_tokens(p->writer) == 0 ||
        prepare_save(p, &why) != TRIREME_OK) {
        token_writer_discard(p->writer);
        return status;
    }
    const int64_t tokens = token_writer_tokens(p->writer);
    token_writer_leave(p->writer);
    FAIL(status, "%s: interrupted after %lld tokens; the same command goes on from there", p->options->prefix,
         (long long)tokens);
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
    p.files = &files;
    p.total = files.stream ? 0 : files.bytes;
    status = prepare_begin(&p, &files, &result.resumed_tokens, error);
    if (status != TRIREME_OK) {
        token_writer_discard(p.writer);
        goto release_files;
    }
    prepare_start_work(&p);
    status = read_files(&p, &files, error);
    if (status == TRIREME_OK)
        status = prepare_finish(&p, &result, error);
    else
        status = prepare_give_up(&p, status, error);
    prepare_end_work(&p);
    if (status != TRIREME_OK)
        goto release_files;
    result.files = (int64_t)files.count;
    struct text others = {0};
    document_files_describe_others(&files, &others);
    snprintf(result.passed_over, sizeof result.passed_over, "%s", others.length ? others.text : "");
    text_release(&others);
    *out = result;
release_files:
    document_files_release(&files);
    return status;
}

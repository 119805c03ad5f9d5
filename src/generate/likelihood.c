#include "generate/likelihood.h"

#include "base/utf8.h"
#include "run/checkpoint.h"

#include <math.h>

// The programs: tokens that are only read, and tokens after each of which the next is judged, many or a few.
enum { READ, JUDGE, JUDGE_FEW, PROGRAMS };
enum { READ_ROWS = 64, JUDGE_ROWS = 64, FEW_ROWS = 8 };

// ---- opening

static trireme_status likelihood_load(struct likelihood *l, const struct config *config, const char *directory,
                                      trireme_error *error) {
    static const struct decoding_program SHAPES[PROGRAMS] = {
        [READ] = {READ_ROWS, false}, [JUDGE] = {JUDGE_ROWS, true}, [JUDGE_FEW] = {FEW_ROWS, true}};
    struct model_config model;
    TRY(checkpoint_load_tokenizer(&l->tokenizer, directory, config->lora.base_model, error));
    TRY(model_config_read_on(&model, directory, config->lora.base_model, error));
    l->encoder = encoder_create(l->tokenizer);
    l->context = model.max_position_embeddings;
    if (config_is_set(config, "training.seq_len")) {
        if (config->training.seq_len > l->context)
            return config_refuse(config, "training.seq_len", error, "but the model has %lld positions",
                                 (long long)l->context);
        l->context = config->training.seq_len;
    }
    TRY(decoding_open(&l->decoding, config, directory, 1, l->context, SHAPES, PROGRAMS, error));
    l->logits = mem_alloc((size_t)model.vocab_size * sizeof *l->logits);
    return TRIREME_OK;
}

trireme_status likelihood_open(struct likelihood *l, const struct config *config, const char *path,
                               trireme_error *error) {
    char *directory;
    int hold;
    TRY(checkpoint_resolve(path, &directory, &hold, error));
    trireme_status status = likelihood_load(l, config, directory, error);
    directory_let_go(hold);
    free(directory);
    return status;
}

void likelihood_release(struct likelihood *l) {
    decoding_release(&l->decoding);
    encoder_free(l->encoder);
    tokenizer_free(l->tokenizer);
    free(l->logits);
    VEC_RELEASE(&l->fed);
    VEC_RELEASE(&l->whole);
    VEC_RELEASE(&l->cut);
    *l = (struct likelihood){0};
}

// ---- tokens

static void likelihood_add(struct likelihood *l, int32_t token, struct likelihood_sum *sum) {
    double greatest = -INFINITY, total = 0;
    const int64_t vocab_size = l->decoding.model.vocab_size;
    int64_t best = 0;
    for (int64_t i = 0; i < vocab_size; i++)
        if (l->logits[i] > greatest) {
            greatest = l->logits[i];
            best = i;
        }
    for (int64_t i = 0; i < vocab_size; i++)
        total += exp(l->logits[i] - greatest);
    sum->log += l->logits[token] - greatest - log(total);
    sum->greedy = sum->greedy && token == best;
}

trireme_status likelihood_of(struct likelihood *l, const int32_t *tokens, size_t count, size_t from,
                             struct likelihood_sum *out, trireme_error *error) {
    *out = (struct likelihood_sum){.greedy = true};
    TRY(decoding_check(&l->decoding, tokens, count, error));
    const size_t over = (int64_t)count > l->context + 1 ? count - (size_t)(l->context + 1) : 0;
    if (from <= over)
        FAIL(TRIREME_ERROR_USAGE, "%zu tokens are to be judged at once, and the model takes %lld", count - from,
             (long long)l->context);
    tokens += over;
    count -= over;
    from -= over;
    // The last token is not fed. What is judged is fed anew, for its logits.
    size_t at = 0;
    while (at < MIN(l->fed.count, from - 1) && l->fed.item[at] == tokens[at])
        at++;
    at = (size_t)decoding_resume(&l->decoding, 0, (int64_t)at);
    l->fed.count = at;
    VEC_RESERVE(&l->fed, count);
    while (at < count - 1) {
        const bool judges = at >= from - 1;
        const size_t left = (judges ? count : from) - 1 - at;
        const size_t program = !judges ? READ : left > FEW_ROWS ? JUDGE : JUDGE_FEW;
        const size_t n = MIN(left, (size_t)(!judges ? READ_ROWS : left > FEW_ROWS ? JUDGE_ROWS : FEW_ROWS));
        const struct decoding_part part = {tokens + at, (int64_t)at, (int64_t)n};
        TRY(decoding_run(&l->decoding, program, &part, error));
        for (size_t i = 0; i < n && judges; i++) {
            TRY(decoding_logits(&l->decoding, program, (int64_t)i, l->logits, error));
            likelihood_add(l, tokens[at + i + 1], out);
        }
        memcpy(l->fed.item + at, tokens + at, n * sizeof *tokens);
        at += n;
        l->fed.count = at;
    }
    return TRIREME_OK;
}

// ---- texts

// Whether Python's str.isspace holds.
static bool is_blank(uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// How many bytes of a text are left without the blanks at its end.
static size_t trimmed(const struct text *t) {
    size_t end = t->length;
    while (end > 0) {
        size_t at = end - 1;
        while (at > 0 && ((unsigned char)t->text[at] & 0xC0) == 0x80)
            at--;
        uint32_t code;
        if (utf8_decode(t->text + at, end - at, &code) != end - at || !is_blank(code))
            break;
        end = at;
    }
    return end;
}

static int64_t count_words(const struct text *t) {
    int64_t words = 1;
    bool blank = false;
    for (size_t at = 0; at < t->length;) {
        uint32_t code = 0;
        const size_t n = utf8_decode(t->text + at, t->length - at, &code);
        const bool is = n > 0 && is_blank(code);
        words += is && !blank;
        blank = is;
        at += MAX(n, (size_t)1);
    }
    return words;
}

// The token that stands before a text with nothing before it.
static trireme_status likelihood_prefix(const struct likelihood *l, int32_t *out, trireme_error *error) {
    *out = tokenizer_bos(l->tokenizer) >= 0 ? tokenizer_bos(l->tokenizer) : tokenizer_eos(l->tokenizer);
    if (*out < 0)
        FAIL(TRIREME_ERROR_USAGE, "nothing stands before the text, and the tokenizer has no token that begins or ends "
                                  "texts, behind which it could be judged");
    return TRIREME_OK;
}

// Encodes a text, with special tokens unless it begins with the one that begins texts.
static trireme_status likelihood_encode(struct likelihood *l, const char *text, size_t length, struct token_list *out,
                                        trireme_error *error) {
    struct text begins = {0};
    trireme_error none;
    int32_t prefix;
    bool begun = likelihood_prefix(l, &prefix, &none) == TRIREME_OK &&
                 tokenizer_decode(l->tokenizer, &prefix, 1, true, &begins, &none) == TRIREME_OK && begins.length > 0 &&
                 begins.length <= length && memcmp(begins.text, text, begins.length) == 0;
    text_release(&begins);
    out->count = 0;
    return encoder_encode(l->encoder, text, length, begun ? ENCODER_TEXT_ALONE : ENCODER_SPECIALS, out, error);
}

static trireme_status likelihood_encode_pair(struct likelihood *l, const struct text *context, const struct text *text,
                                             size_t *from, trireme_error *error) {
    struct text both = {0};
    text_add_bytes(&both, context->text ? context->text : "", context->length);
    text_add_bytes(&both, text->text ? text->text : "", text->length);
    const size_t before = trimmed(context);
    trireme_status status = likelihood_encode(l, both.text, both.length, &l->whole, error);
    if (status == TRIREME_OK)
        status = likelihood_encode(l, both.text, before, &l->cut, error);
    text_release(&both);
    TRY(status);
    // The tokens of the first text are those that it has alone, even where the two have others.
    *from = l->cut.count;
    for (size_t i = 0; i < MIN(l->cut.count, l->whole.count); i++)
        l->whole.item[i] = l->cut.item[i];
    return TRIREME_OK;
}

trireme_status likelihood_after(struct likelihood *l, const struct text *context, const struct text *text,
                                struct likelihood_sum *out, trireme_error *error) {
    size_t from = 0;
    if (context->length > 0) {
        TRY(likelihood_encode_pair(l, context, text, &from, error));
    } else {
        l->whole.count = 0;
        TRY(encoder_encode(l->encoder, text->text ? text->text : "", text->length, ENCODER_TEXT_ALONE, &l->whole,
                           error));
    }
    if (l->whole.count <= from)
        FAIL(TRIREME_ERROR_USAGE, "a text that is to be judged has no token of its own");
    if (from == 0) {
        int32_t prefix;
        TRY(likelihood_prefix(l, &prefix, error));
        if (l->whole.item[0] != prefix) {
            VEC_RESERVE(&l->whole, l->whole.count + 1);
            memmove(l->whole.item + 1, l->whole.item, l->whole.count * sizeof *l->whole.item);
            l->whole.item[0] = prefix;
            l->whole.count++;
        }
        from = 1;
    }
    if (l->whole.count <= from)
        FAIL(TRIREME_ERROR_USAGE, "a text that is to be judged has no token of its own");
    return likelihood_of(l, l->whole.item, l->whole.count, from, out, error);
}

trireme_status likelihood_of_text(struct likelihood *l, const struct text *text, struct text_likelihood *out,
                                  trireme_error *error) {
    int32_t prefix;
    *out = (struct text_likelihood){.bytes = (int64_t)text->length, .words = count_words(text)};
    TRY(likelihood_prefix(l, &prefix, error));
    TRY(likelihood_encode(l, text->text ? text->text : "", text->length, &l->cut, error));
    l->whole.count = 0;
    VEC_PUSH(&l->whole, prefix);
    token_list_append(&l->whole, l->cut.item, l->cut.count);
    for (size_t done = 1; done < l->whole.count;) {
        struct likelihood_sum sum;
        const size_t end = MIN(done + (size_t)l->context, l->whole.count);
        const size_t first = end > (size_t)l->context + 1 ? end - (size_t)l->context - 1 : 0;
        TRY(likelihood_of(l, l->whole.item + first, end - first, done - first, &sum, error));
        out->log += sum.log;
        done = end;
    }
    out->tokens = (int64_t)l->cut.count;
    return TRIREME_OK;
}

// trireme tokenizer encode|decode|show: text to token ids and back. Training is in command_tokenizer_train.c.
#include "base/json.h"
#include "cli/cli.h"
#include "cli/standard_input.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/encoder.h"
#include "tokenizer/expression.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/unicode.h"

#include <unistd.h>

static const size_t INPUT_MAX = (size_t)1 << 30; // bytes of a text, or of the ids of one

// ---- texts from standard input

// What is done with each of them.
struct tokenizer_call {
    const struct arguments *arguments;
    const struct tokenizer *tokenizer;
    struct encoder *encoder;
    struct token_list tokens;
    struct text out;
};

// A result, with the end of a line, which text for others than people does not get.
static trireme_status call_print(struct tokenizer_call *call, bool bytes, trireme_error *error) {
    const bool raw = bytes && !call->arguments->json;
    if (!raw || call->arguments->lines || isatty(STDOUT_FILENO))
        text_add_bytes(&call->out, "\n", 1);
    const trireme_status status =
        raw && !isatty(STDOUT_FILENO) ? print_bytes(&call->out, error) : print_text(&call->out, error);
    call->out.length = 0;
    return status;
}

// Appends an id and, before it, a space where `apart`. printf would take a third of the time that encoding takes.
static void add_id(struct text *out, int32_t id, bool apart) {
    char digits[12], *at = digits + sizeof digits;
    for (; id >= 10; id /= 10)
        *--at = (char)('0' + id % 10);
    *--at = (char)('0' + id);
    if (apart)
        *--at = ' ';
    text_add_bytes(out, at, (size_t)(digits + sizeof digits - at));
}

static trireme_status encode_text(void *user, const char *text, size_t length, trireme_error *error) {
    struct tokenizer_call *call = user;
    const enum encoder_specials specials = call->arguments->special ? ENCODER_SPECIALS : ENCODER_TEXT_ALONE;
    call->tokens.count = 0;
    TRY(encoder_encode(call->encoder, text, length, specials, &call->tokens, error));
    if (call->arguments->json) {
        json_begin_object(&call->out, NULL);
        json_begin_array(&call->out, "ids");
        for (size_t i = 0; i < call->tokens.count; i++)
            json_add_integer(&call->out, NULL, call->tokens.item[i]);
        json_end_array(&call->out);
        json_end_object(&call->out);
    }
    for (size_t i = 0; i < call->tokens.count && !call->arguments->json; i++)
        add_id(&call->out, call->tokens.item[i], i > 0);
    return call_print(call, false, error);
}

static trireme_status read_ids(struct token_list *out, const char *text, size_t length, trireme_error *error) {
    char excerpt[JSON_EXCERPT_BYTES];
    for (size_t at = 0; at < length;) {
        const size_t begin = at;
        int64_t id = 0;
        if (strchr(" \t\r\n", text[at]) && text[at]) {
            at++;
            continue;
        }
        while (at < length && text[at] >= '0' && text[at] <= '9' && id <= INT32_MAX)
            id = 10 * id + (text[at++] - '0');
        if (at == begin || id > INT32_MAX || (at < length && (!text[at] || !strchr(" \t\r\n", text[at]))))
            FAIL(TRIREME_ERROR_USAGE, "byte %zu: expected a token id, found %s", begin,
                 json_excerpt_bytes(text + begin, MIN(length - begin, 16), excerpt));
        VEC_PUSH(out, (int32_t)id);
    }
    return TRIREME_OK;
}

static trireme_status decode_text(void *user, const char *text, size_t length, trireme_error *error) {
    struct tokenizer_call *call = user;
    struct text decoded = {0};
    call->tokens.count = 0;
    TRY(read_ids(&call->tokens, text, length, error));
    TRY(tokenizer_decode(call->tokenizer, call->tokens.item, call->tokens.count, call->arguments->special, &decoded,
                         error));
    if (call->arguments->json) {
        json_begin_object(&call->out, NULL);
        json_add_text(&call->out, "text", &decoded);
        json_end_object(&call->out);
    } else {
        text_add_bytes(&call->out, decoded.text, decoded.length);
    }
    text_release(&decoded);
    return call_print(call, true, error);
}

static trireme_status call_run(const struct arguments *a, const struct tokenizer *t, standard_input_work *work,
                               trireme_error *error) {
    struct tokenizer_call call = {.arguments = a, .tokenizer = t, .encoder = encoder_create(t)};
    trireme_status status = (a->lines ? standard_input_lines : standard_input_whole)(INPUT_MAX, work, &call, error);
    encoder_free(call.encoder);
    VEC_RELEASE(&call.tokens);
    text_release(&call.out);
    return status;
}

static trireme_status tokenizer_run_encode(const struct arguments *a, const struct tokenizer *t, trireme_error *error) {
    return call_run(a, t, encode_text, error);
}

static trireme_status tokenizer_run_decode(const struct arguments *a, const struct tokenizer *t, trireme_error *error) {
    return call_run(a, t, decode_text, error);
}

// ---- show

enum { SPECIALS_SHOWN = 20 };
static const char *const STEPS[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};

static void show_step(struct text *out, const char *name, const json_t *step) {
    static const char *const INSIDE[] = {"normalizers", "pretokenizers", "processors", "decoders"};
    if (!step || json_is_null(step)) {
        text_add(out, "%s: none\n", name);
        return;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(INSIDE); i++) {
        const json_t *parts = json_object_get(step, INSIDE[i]);
        for (size_t k = 0; k < json_array_size(parts); k++)
            show_step(out, name, json_array_get(parts, k));
        if (parts)
            return;
    }
    text_add(out, "%s: %s", name, json_string_value(json_object_get(step, "type")) ?: "");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)step, key, value) {
        char excerpt[JSON_EXCERPT_BYTES];
        if (strcmp(key, "type") != 0 && json_is_object(value) && json_object_size(value) == 1)
            value = json_object_iter_value(json_object_iter(value)); // {"Regex": "..."}
        if (strcmp(key, "type") != 0)
            text_add(out, ", %s %s", key, json_excerpt_value(value, excerpt));
    }
    text_add(out, "\n");
}

static struct token_bytes shown_token(const struct tokenizer *t, int32_t id) {
    const struct added_token *added = added_tokens_find_id(tokenizer_added(t), id);
    return added ? (struct token_bytes){added->content, (uint32_t)added->length}
                 : token_table_token(tokenizer_parts_of(t)->tokens, id);
}

static void show_end(struct text *out, const struct tokenizer *t, const char *name, int32_t id) {
    char excerpt[JSON_EXCERPT_BYTES];
    const struct token_bytes token = shown_token(t, id);
    if (id < 0)
        text_add(out, "%s: none\n", name);
    else
        text_add(out, "%s: %d %s\n", name, id, json_excerpt_bytes(token.bytes, token.length, excerpt));
}

static void show_added(struct text *out, const struct tokenizer *t) {
    const struct added_tokens *added = tokenizer_added(t);
    char excerpt[JSON_EXCERPT_BYTES];
    const size_t count = added_tokens_count(added);
    for (size_t i = 0; i < MIN(count, (size_t)SPECIALS_SHOWN); i++) {
        const struct added_token *token = added_tokens_at(added, i);
        text_add(out, "%s: %d %s%s%s%s%s\n", token->special ? "special" : "added", token->id,
                 json_excerpt(token->content, excerpt), token->single_word ? ", single word" : "",
                 token->lstrip ? ", takes spaces before it" : "", token->rstrip ? ", takes spaces after it" : "",
                 token->normalized ? ", normalized" : "");
    }
    if (count > SPECIALS_SHOWN)
        text_add(out, "... and %zu more, which --json lists\n", count - SPECIALS_SHOWN);
}

static void show_text(struct text *out, const struct tokenizer *t, const char *checksum, const char *patterns) {
    const struct tokenizer_parts *parts = tokenizer_parts_of(t);
    const struct token_template *template = tokenizer_template(t);
    text_add(out, "%s: ids below %d, %s of the model", tokenizer_kind(t), tokenizer_vocab_size(t),
             counted(token_table_count(parts->tokens), "token").text);
    if (parts->merges.count)
        text_add(out, ", %s", counted((int64_t)parts->merges.count, "merge").text);
    text_add(out, ", %zu added\n", added_tokens_count(tokenizer_added(t)));
    show_end(out, t, "bos", tokenizer_bos(t));
    show_end(out, t, "eos", tokenizer_eos(t));
    text_add(out, "template:");
    for (size_t i = 0; i < template->steps.count; i++) {
        const struct token_bytes token = shown_token(t, template->steps.item[i]);
        if (template->steps.item[i] == TEMPLATE_TEXT)
            text_add(out, " TEXT");
        else
            text_add(out, " %.*s", (int)token.length, token.bytes);
    }
    text_add(out, "\n");
    for (size_t i = 0; i < ARRAY_LENGTH(STEPS); i++)
        show_step(out, STEPS[i], json_object_get(parts->description, STEPS[i]));
    show_added(out, t);
    text_add(out, "chat template: %s\n", tokenizer_chat_template(t) ? "yes" : "none");
    text_add(out, "checksum: %s\nUnicode %s, in patterns %s\n", checksum, unicode_version(), patterns);
}

static void show_json(struct text *out, const struct tokenizer *t, const char *checksum, const char *patterns) {
    const struct tokenizer_parts *parts = tokenizer_parts_of(t);
    const struct added_tokens *added = tokenizer_added(t);
    json_begin_object(out, NULL);
    json_add_string(out, "kind", tokenizer_kind(t));
    json_add_integer(out, "vocab_size", tokenizer_vocab_size(t));
    json_add_integer(out, "tokens", token_table_count(parts->tokens));
    json_add_integer(out, "merges", (int64_t)parts->merges.count);
    json_add_integer(out, "bos_token_id", tokenizer_bos(t));
    json_add_integer(out, "eos_token_id", tokenizer_eos(t));
    json_begin_array(out, "added_tokens");
    for (size_t i = 0; i < added_tokens_count(added); i++) {
        const struct added_token *token = added_tokens_at(added, i);
        json_begin_object(out, NULL);
        json_add_integer(out, "id", token->id);
        json_add_string(out, "content", token->content);
        json_add_boolean(out, "special", token->special);
        json_end_object(out);
    }
    json_end_array(out);
    for (size_t i = 0; i < ARRAY_LENGTH(STEPS); i++) {
        const json_t *step = json_object_get(parts->description, STEPS[i]);
        json_add_value(out, STEPS[i], step ? step : json_null());
    }
    json_add_boolean(out, "chat_template", tokenizer_chat_template(t) != NULL);
    json_add_string(out, "checksum", checksum);
    json_add_string(out, "unicode", unicode_version());
    json_add_string(out, "unicode_of_patterns", patterns);
    json_end_object(out);
    text_add(out, "\n");
}

static trireme_status tokenizer_run_show(const struct arguments *a, const struct tokenizer *t, trireme_error *error) {
    struct text out = {0};
    char checksum[CHECKSUM_HEX];
    if (a->lines || a->special)
        FAIL(TRIREME_ERROR_USAGE, "unexpected \"%s\": tokenizer show takes only --json",
             a->lines ? "--lines" : "--special");
    char *patterns = expression_unicode_version();
    tokenizer_checksum(t, checksum);
    (a->json ? show_json : show_text)(&out, t, checksum, patterns);
    trireme_status status = print_text(&out, error);
    text_release(&out);
    free(patterns);
    return status;
}

struct tokenizer_part {
    const char *name;
    trireme_status (*run)(const struct arguments *arguments, const struct tokenizer *tokenizer, trireme_error *error);
};

static trireme_status part_run(const struct tokenizer_part *part, const struct arguments *a, trireme_error *error) {
    struct config config;
    struct tokenizer *t = NULL;
    char reader[32];
    TRY(arguments_expect(a, 2, 2, error));
    TRY(arguments_config(a, NULL, &config, error));
    snprintf(reader, sizeof reader, "tokenizer %s", part->name);
    trireme_status status = config_expect(&config, "tokenizer.pattern", reader, error);
    if (status == TRIREME_OK)
        status = arguments_tokenizer(a->operands.item[1], &config, &t, error);
    if (status == TRIREME_OK)
        status = part->run(a, t, error);
    tokenizer_free(t);
    config_release(&config);
    return status;
}

trireme_status command_tokenizer(const struct arguments *a, trireme_error *error) {
    static const struct tokenizer_part PARTS[] = {
        {"encode", tokenizer_run_encode}, {"decode", tokenizer_run_decode}, {"show", tokenizer_run_show}};
    TRY(arguments_expect(a, 1, SIZE_MAX, error));
    const char *what = a->operands.item[0];
    if (strcmp(what, "train") == 0)
        return command_tokenizer_train(a, error);
    if (strcmp(what, "chat") == 0)
        return command_tokenizer_chat(a, error);
    for (size_t i = 0; i < ARRAY_LENGTH(PARTS); i++)
        if (strcmp(PARTS[i].name, what) == 0)
            return part_run(&PARTS[i], a, error);
    FAIL(TRIREME_ERROR_USAGE, "what to do with a tokenizer is encode, decode, show, chat or train, not \"%s\"", what);
}

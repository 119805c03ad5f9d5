// What a chat becomes: text, tokens, and which tokens are answers.
#include "chat/chat.h"
#include "chat/chat_families.h"
#include "support/test.h"

#include <unistd.h>

static trireme_error error;

static json_t *parse(const char *json) {
    json_t *tree;
    if (json_parse(json, strlen(json), "the test", &tree, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    return tree;
}

// A tokenizer of bytes, with BOS "<s>", EOS "</s>" and a special token "<|im_end|>", which takes the blanks behind it.
static struct tokenizer *make_tokenizer_with(bool specials, const char *processor) {
    json_t *config = parse("{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    struct text json = {0};
    struct tokenizer_parts parts;
    struct tokenizer *t = NULL;
    text_add(&json, "{\"version\": \"1.0\", \"added_tokens\": [");
    static const char *const TOKENS[] = {"<s>", "</s>", "<|im_end|>"};
    for (int i = 0; i < (specials ? 3 : 2); i++)
        text_add(&json,
                 "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, \"rstrip\": %s, "
                 "\"normalized\": false, \"special\": true}",
                 i ? ", " : "", 98 + i, TOKENS[i], i == 2 ? "true" : "false");
    text_add(&json,
             "], \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": "
             "\"_\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"_\"}]}, "
             "\"pre_tokenizer\": null, \"post_processor\": %s, \"decoder\": null, \"model\": {\"type\": "
             "\"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": null, "
             "\"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, \"vocab\": {",
             processor);
    for (int c = 0; c < 95; c++)
        text_add(&json, "\"%s%c\": %d, ", c + 32 == '"' || c + 32 == '\\' ? "\\" : "", c + 32, c);
    text_add(&json, "\"\\n\": 95, \"\\n\\n\": 96, \"_y\": 97}, \"merges\": [[\"\\n\", \"\\n\"], [\"_\", \"y\"]]}}");
    if (tokenizer_parts_parse(&parts, json.text, json.length, "t", &error) != TRIREME_OK ||
        tokenizer_create(&t, &parts, config, "t", &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    json_decref(config);
    text_release(&json);
    return t;
}

static struct tokenizer *make_tokenizer(bool specials) {
    return make_tokenizer_with(specials, "null");
}

static struct chat_template *template_of(const struct tokenizer *t, const char *name) {
    struct chat_template *c;
    if (chat_template_create(t, name, &c, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    return c;
}

// The text with its answers in {}.
static char *shown(const struct chat_text *text) {
    struct text out = {0};
    size_t at = 0;
    for (size_t i = 0; i < text->answers.count; i++) {
        const struct chat_span span = text->answers.item[i];
        text_add(&out, "%.*s{%.*s}", (int)(span.begin - at), text->text.text + at, (int)(span.end - span.begin),
                 text->text.text + span.begin);
        at = span.end;
    }
    text_add(&out, "%.*s", (int)(text->text.length - at), text->text.text + at);
    return out.text;
}

static void assert_line(const struct tokenizer *t, const char *name, const char *line, const char *expected) {
    struct chat_template *c = template_of(t, name);
    struct chat_text text = {0};
    json_t *tree = parse(line);
    if (chat_render_line(c, tree, &text, &error) != TRIREME_OK)
        fail_msg("%s: %s", name, error.message);
    char *got = shown(&text);
    assert_string_equal(got, expected);
    free(got);
    chat_text_release(&text);
    json_decref(tree);
    chat_template_free(c);
}

#define TWO_ROUNDS                                                                                             \
    "{\"messages\": [{\"role\": \"system\", \"content\": \"be\"}, {\"role\": \"user\", \"content\": \"hi\"}, " \
    "{\"role\": \"assistant\", \"content\": \"yo\"}, {\"role\": \"user\", \"content\": \"a?\"}, {\"role\": "   \
    "\"assistant\", \"content\": \"b!\", \"tool_calls\": null}]}"

// How the families write chats: their model cards, and for gemma, llama3, phi3 and qwen their templates in `trl`.
static void test_families(void **state) {
    (void)state;
    static const struct {
        const char *name, *text;
    } FAMILIES[] = {
        {"chatml", "<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
                   "{yo<|im_end|>\n}<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\n{b!<|im_end|>\n}"},
        {"gemma", "<s><start_of_turn>user\nbe\n\nhi<end_of_turn>\n<start_of_turn>model\n{yo<end_of_turn>\n}"
                  "<start_of_turn>user\na?<end_of_turn>\n<start_of_turn>model\n{b!<end_of_turn>\n}"},
        {"llama2", "<s>[INST] <<SYS>>\nbe\n<</SYS>>\n\nhi [/INST]{ yo </s>}<s>[INST] a? [/INST]{ b! </s>}"},
        {"llama3", "<s><|start_header_id|>system<|end_header_id|>\n\nbe<|eot_id|><|start_header_id|>user"
                   "<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n{yo<|eot_id|>}"
                   "<|start_header_id|>user<|end_header_id|>\n\na?<|eot_id|><|start_header_id|>assistant"
                   "<|end_header_id|>\n\n{b!<|eot_id|>}"},
        {"mistral", "<s>[INST] be\n\nhi [/INST]{ yo</s>}[INST] a? [/INST]{ b!</s>}"},
        {"olmo2", "<s><|system|>\nbe\n<|user|>\nhi\n<|assistant|>\n{yo</s>}\n<|user|>\na?\n<|assistant|>\n{b!</s>}"},
        {"phi3", "<|system|>\nbe<|end|>\n<|user|>\nhi<|end|>\n<|assistant|>\n{yo<|end|>\n}<|user|>\na?<|end|>\n"
                 "<|assistant|>\n{b!<|end|>\n}{</s>}"},
        {"phi4", "<|im_start|>system<|im_sep|>be<|im_end|><|im_start|>user<|im_sep|>hi<|im_end|><|im_start|>assistant"
                 "<|im_sep|>{yo<|im_end|>}<|im_start|>user<|im_sep|>a?<|im_end|><|im_start|>assistant<|im_sep|>"
                 "{b!<|im_end|>}"},
        {"qwen2.5", "<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
                    "{yo<|im_end|>\n}<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\n{b!<|im_end|>\n}"},
        {"qwen3", "<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
                  "{yo<|im_end|>\n}<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\n"
                  "{<think>\n\n</think>\n\nb!<|im_end|>\n}"},
        {"zephyr", "<|system|>\nbe</s>\n<|user|>\nhi</s>\n<|assistant|>\n{yo</s>\n}<|user|>\na?</s>\n<|assistant|>\n"
                   "{b!</s>\n}"},
    };
    struct tokenizer *t = make_tokenizer(true);
    struct text names = {0}, tested = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(FAMILIES); i++) {
        assert_line(t, FAMILIES[i].name, TWO_ROUNDS, FAMILIES[i].text);
        text_add(&tested, "%s%s", i ? ", " : "", FAMILIES[i].name);
    }
    chat_families_list(&names);
    assert_string_equal(names.text, tested.text);
    text_release(&names);
    text_release(&tested);
    tokenizer_free(t);
}

static const char *write_template(const char *text) {
    static char path[100];
    snprintf(path, sizeof path, "/tmp/trireme-template-%d.jinja", (int)getpid());
    assert_int_equal(file_write_atomic(path, text, strlen(text), &error), TRIREME_OK);
    return path;
}

// A family's template without its marks tells the same answers: what a message adds to the prompt before it.
static void test_answers_without_marks(void **state) {
    (void)state;
    static const char *const NAMES[] = {"chatml", "gemma", "llama2", "llama3", "mistral", "olmo2", "phi4", "zephyr"};
    struct tokenizer *t = make_tokenizer(true);
    json_t *tree = parse(TWO_ROUNDS);
    for (size_t i = 0; i < ARRAY_LENGTH(NAMES); i++) {
        struct text without = {0};
        const char *at = chat_family(NAMES[i]);
        for (const char *mark; (mark = strstr(at, "{%- generation %}")); at = mark + 17)
            text_add(&without, "%.*s", (int)(mark - at), at);
        text_add(&without, "%s", at);
        for (char *mark; (mark = strstr(without.text, "{%- endgeneration %}"));)
            memmove(mark, mark + 20, strlen(mark + 20) + 1);
        struct chat_template *marked = template_of(t, NAMES[i]);
        struct chat_text text = {0};
        assert_int_equal(chat_render_line(marked, tree, &text, &error), TRIREME_OK);
        char *expected = shown(&text);
        assert_line(t, write_template(without.text), TWO_ROUNDS, expected);
        free(expected);
        text_release(&without);
        chat_text_release(&text);
        chat_template_free(marked);
    }
    // What ends the chat, and not the answer, does not count to one that others follow.
    assert_line(t,
                write_template("{% for m in messages %}{{ m.role ~ ':' ~ m.content ~ ';' }}{% endfor %}"
                               "{% if add_generation_prompt %}assistant:{% else %}{{ eos_token }}{% endif %}"),
                TWO_ROUNDS, "system:be;user:hi;assistant:{yo;}user:a?;assistant:{b!;</s>}");
    // Nor does it matter that an answer is written otherwise when no more follows, or what ends it by itself.
    assert_line(t,
                write_template("{% for m in messages %}{{ '<' + m.role + '>' + ('()' if loop.last and m.role == "
                               "'assistant' else '') + m.content }}"
                               "{{ '.' }}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"),
                TWO_ROUNDS, "<system>be.\n<user>hi.\n<assistant>{yo.\n}<user>a?.\n<assistant>{()b!.\n}");
    // A prompt that begins a thought, which answers lack, or have had.
    const char *thinks = write_template(
        "{% for m in messages %}{% if m.role == 'assistant' %}<A>{{ m.content.split('</think>')[-1] }}<E>{% else %}"
        "<U>{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<A><think>{% endif %}");
    assert_line(t, thinks, TWO_ROUNDS, "<U>be<U>hi<A>{yo<E>}<U>a?<A>{b!<E>}");
    assert_line(t, thinks,
                "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
                "\"<think>hm</think><b>\"}, {\"role\": \"assistant\", \"content\": \"\"}]}",
                "<U>a<A>{<b><E>}<A>{<E>}");
    assert_line(t, thinks,
                "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"completion\": [{\"role\": "
                "\"assistant\", \"content\": \"b\"}]}",
                "<U>a<A>{b<E>}");
    json_decref(tree);
    tokenizer_free(t);
}

static void assert_line_refused(const struct tokenizer *t, const char *name, const char *line, const char *message) {
    struct chat_template *c = template_of(t, name);
    struct chat_text text = {0};
    json_t *tree = parse(line);
    assert_int_equal(chat_render_line(c, tree, &text, &error), TRIREME_ERROR_USAGE);
    assert_string_equal(error.message, message);
    chat_text_release(&text);
    json_decref(tree);
    chat_template_free(c);
}

// Messages as ShareGPT has them are those that others have.
static void test_sharegpt(void **state) {
    (void)state;
    struct tokenizer *t = make_tokenizer(true);
    const char *line =
        "{\"id\": 1, \"messages\": null, \"conversations\": [{\"from\": \"system\", \"value\": \"be\"}, "
        "{\"from\": \"human\", \"value\": \"hi\", \"role\": null}, {\"from\": \"gpt\", \"value\": \"yo\"}, "
        "{\"from\": \"tool\", \"value\": \"42\"}, {\"from\": \"user\", \"value\": \"a?\"}, "
        "{\"from\": \"assistant\", \"value\": \"b!\", \"weight\": 1}]}";
    assert_line(t,
                write_template("{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.from }}{{ m.value }};"
                               "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"),
                line, "system:be;user:hi;assistant:{yo;}tool:42;user:a?;assistant:{b!;}");
    assert_line(t, "chatml", "{\"conversations\": [{\"role\": \"user\", \"content\": \"hi\", \"from\": \"me\"}]}",
                "<|im_start|>user\nhi<|im_end|>\n");
    assert_line(t, "chatml",
                "{\"prompt\": [{\"from\": \"human\", \"value\": \"a\"}], \"completion\": [{\"from\": \"gpt\", "
                "\"value\": \"d\"}]}",
                "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n{d<|im_end|>\n}");
    assert_line_refused(t, "chatml", "{\"conversations\": {\"from\": 1}}",
                        "\"conversations\" must be an array, found an object");
    assert_line_refused(t, "chatml",
                        "{\"conversations\": [{\"from\": \"human\", \"value\": \"\"}, {\"from\": \"bing\"}]}",
                        "message 2 is \"from\" \"bing\": expected human, gpt, system or tool");
    assert_line_refused(t, "chatml", "{\"conversations\": [{\"from\": [], \"value\": \"\"}]}",
                        "message 1 is \"from\" []: expected human, gpt, system or tool");
    assert_line_refused(t, "chatml", "{\"conversations\": [{\"from\": \"gpt\", \"value\": 3}]}",
                        "message 1 has a \"from\" and no text as its \"value\"");
    tokenizer_free(t);
}

static void test_refused(void **state) {
    (void)state;
    struct tokenizer *t = make_tokenizer(true);
    struct chat_template *c;
    assert_line_refused(t, "chatml", "{\"messages\": []}", "there is no message");
    assert_line_refused(t, "chatml", "{\"messages\": \"hi\"}", "\"messages\" must be an array, found \"hi\"");
    assert_line_refused(t, "chatml", "{\"messages\": [{\"content\": \"hi\"}]}",
                        "message 1 is no object with a \"role\": an object");
    assert_line_refused(t, "chatml", "{\"messages\": [{\"role\": \"user\"}]}",
                        "the chat template chatml line 1: \"content\" is undefined");
    assert_line_refused(t, "gemma", "{\"messages\": [{\"role\": \"tool\", \"content\": \"\"}]}",
                        "the chat template gemma line 1: the chat is refused: \"the role tool is not part of this "
                        "format\"");
    assert_line_refused(t, "chatml", "{\"prompt\": \"a\", \"completion\": []}",
                        "expected \"messages\", \"conversations\", or \"prompt\" and \"completion\", both text or both "
                        "messages");
    assert_line_refused(t, "", TWO_ROUNDS,
                        "the tokenizer has no chat template: name one with data.chat_template, a file with one in "
                        "Jinja, or one of chatml, gemma, llama2, llama3, mistral, olmo2, phi3, phi4, qwen2.5, qwen3, "
                        "zephyr");
    assert_line_refused(t, write_template("{% for m in messages %}{{ m.content if loop.last else '-' }}{% endfor %}"),
                        TWO_ROUNDS,
                        "the template writes what comes before the answer in message 3 otherwise when more follows, so "
                        "that it cannot be told from the rest: use a template with {% generation %}, or name its "
                        "family with data.chat_template");
    assert_int_equal(chat_template_create(t, "lama3", &c, &error), TRIREME_ERROR_USAGE);
    assert_string_equal(error.message,
                        "there is no chat template \"lama3\" (did you mean llama3?): expected a file with one in "
                        "Jinja, or one of chatml, gemma, llama2, llama3, mistral, olmo2, phi3, phi4, qwen2.5, qwen3, "
                        "zephyr");
    tokenizer_free(t);
}

static void test_prompt_and_completion(void **state) {
    (void)state;
    struct tokenizer *t = make_tokenizer(true);
    assert_line(t, "", "{\"prompt\": \"a b\", \"completion\": \" c\"}", "a b{ c}");
    assert_line(t, "chatml",
                "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
                "\"b\"}, {\"role\": \"user\", \"content\": \"c\"}], \"completion\": [{\"role\": \"assistant\", "
                "\"content\": \"d\"}]}",
                "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
                "<|im_start|>assistant\n{d<|im_end|>\n}");
    tokenizer_free(t);
}

static void test_tools(void **state) {
    (void)state;
    struct tokenizer *t = make_tokenizer(true);
    const char *name = write_template("{% for t in tools or [] %}{{ t.name }};{% endfor %}{{ messages[0].content }}");
    assert_line(t, name, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"name\": \"f\"}]}",
                "f;a");
    assert_line(t, name, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": null}", "a");
    // As JSON in a text, too.
    assert_line(t, name,
                "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": \"[{\\\"name\\\": "
                "\\\"f\\\"}]\"}",
                "f;a");
    assert_line_refused(t, name, "{\"messages\": [], \"tools\": {\"name\": \"f\"}}",
                        "\"tools\" must be an array, found an object");
    assert_line_refused(t, name, "{\"messages\": [], \"tools\": \"{}\"}",
                        "\"tools\" must be an array, found an object");
    tokenizer_free(t);
}

static void test_prompt(void **state) {
    (void)state;
    struct tokenizer *t = make_tokenizer(true);
    struct chat_template *c = template_of(t, "chatml");
    struct chat_text text = {0};
    json_t *messages = parse("[{\"role\": \"user\", \"content\": \"a\"}]");
    assert_int_equal(chat_render(c, messages, NULL, true, &text, &error), TRIREME_OK);
    assert_string_equal(text.text.text, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
    assert_int_equal(text.answers.count, 0);
    json_decref(messages);
    chat_text_release(&text);
    chat_template_free(c);
    tokenizer_free(t);
}

// The tokens of a line, those of answers with a + before them.
static void assert_tokens(const struct tokenizer *t, const char *name, const char *line, const char *expected) {
    struct chat_template *c = template_of(t, name);
    struct encoder *e = encoder_create(t);
    struct chat_text text = {0};
    struct chat_tokens tokens = {0};
    struct text got = {0};
    json_t *tree = parse(line);
    assert_int_equal(chat_render_line(c, tree, &text, &error), TRIREME_OK);
    assert_int_equal(chat_encode(e, &text, &tokens, &error), TRIREME_OK);
    assert_int_equal(tokens.answer.count, tokens.tokens.count);
    for (size_t i = 0; i < tokens.tokens.count; i++) {
        struct text token = {0};
        assert_int_equal(tokenizer_decode(t, &tokens.tokens.item[i], 1, true, &token, &error), TRIREME_OK);
        text_add(&got, "%s%s%s", i ? " " : "", tokens.answer.item[i] ? "+" : "", token.text);
        text_release(&token);
    }
    assert_string_equal(got.text, expected);
    text_release(&got);
    json_decref(tree);
    chat_text_release(&text);
    chat_tokens_release(&tokens);
    encoder_free(e);
    chat_template_free(c);
}

// A token counts to an answer where any of its text does. Here the normalizer puts a character in front of what follows
// a special token, and "\n\n" and "_y" are tokens.
static void test_tokens(void **state) {
    (void)state;
    struct tokenizer *t = make_tokenizer(true), *plain = make_tokenizer(false);
    const char *line =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": "
        "\"\\n y\"}, {\"role\": \"user\", \"content\": \"y\"}]}";
    const char *name = write_template("{% for m in messages %}{{ m.role[0] }}\n{% if m.role == 'assistant' %}"
                                      "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}"
                                      "{{ m.content }}<|im_end|>{% endif %}{% endfor %}");
    // trim_blocks takes no line end here: {{ }} is no block.
    assert_tokens(t, name, line, "_ u \n q <|im_end|> _ a +\n\n +_y +<|im_end|> _ u \n y <|im_end|>");
    assert_tokens(plain, name, line,
                  "_ u \n q < | i m _ e n d | > a +\n\n +_y +< +| +i +m +_ +e +n +d +| +> u \n y < | i m _ e n d | >");
    assert_tokens(t, "", "{\"prompt\": \"a y\", \"completion\": \"y\"}", "_ a _y +y +</s>");
    tokenizer_free(t);
    tokenizer_free(plain);
}

// The token that ends a turn counts with the blanks that it takes, but where offsets are trimmed; as
// apply_chat_template has it, one counts, too, that reaches over an answer which is empty.
static void test_ends(void **state) {
    (void)state;
    struct tokenizer *t = make_tokenizer(true),
                     *trims = make_tokenizer_with(true, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                                        "\"trim_offsets\": true, \"use_regex\": true}");
    const char *line = "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
                       "\"content\": \"x\"}, {\"role\": \"user\", \"content\": \"z\"}, {\"role\": "
                       "\"assistant\", \"content\": \"\"}]}";
    const char *name = write_template("{% for m in messages %}{{ m.role[0] }}{% if m.role == 'assistant' %}"
                                      "{% generation %}{{ m.content + '<|im_end|>\n' }}{% endgeneration %}{% else %}"
                                      "{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}");
    const char *expected = "_ u q <|im_end|> _ a +x +<|im_end|> _ u z <|im_end|> _ a +<|im_end|>";
    assert_tokens(t, name, line, expected);
    assert_tokens(trims, name, line, expected);
    name = write_template("{% for m in messages %}{{ m.role[0] + '\n' }}{% generation %}{{ m.content }}"
                          "{% endgeneration %}{{ '\n' }}<|im_end|>{% generation %} {% endgeneration %}{% endfor %}");
    assert_tokens(t, name, line,
                  "_ u \n +q \n +<|im_end|> _ a \n +x \n +<|im_end|> _ u \n +z \n +<|im_end|> _ a +\n\n "
                  "+<|im_end|>");
    assert_tokens(trims, name, line,
                  "_ u \n +q \n <|im_end|> _ a \n +x \n <|im_end|> _ u \n +z \n <|im_end|> _ a \n\n <|im_end|>");
    tokenizer_free(t);
    tokenizer_free(trims);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_answers_without_marks),
        cmocka_unit_test(test_sharegpt),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_prompt_and_completion),
        cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_tools),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(write_template(""));
    return failed;
}

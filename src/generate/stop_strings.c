#include "generate/stop_strings.h"

#include "base/json.h"
#include "base/utf8.h"

void stop_strings_add(struct stop_strings *stops, const char *string, size_t length) {
    struct text text = {0};
    text_add_bytes(&text, string, length);
    VEC_PUSH(stops, text);
}

trireme_status stop_strings_read(struct stop_strings *stops, const struct config *config, trireme_error *error) {
    const char *given = config->generate.stop;
    json_t *list = NULL;
    trireme_error why;
    if (*given && *given != '[')
        stop_strings_add(stops, given, strlen(given));
    if (*given != '[')
        return TRIREME_OK;
    bool good = json_parse(given, strlen(given), "list", &list, &why) == TRIREME_OK;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *string = json_array_get(list, i);
        good = good && json_string_length(string) > 0;
        if (good)
            stop_strings_add(stops, json_string_value(string), json_string_length(string));
    }
    json_decref(list);
    if (!good)
        return config_refuse(config, "generate.stop", error,
                             "which begins like a list: accepts [\"one\", \"another\"], none of them empty");
    return TRIREME_OK;
}

void stop_strings_release(struct stop_strings *stops) {
    for (size_t i = 0; i < stops->count; i++)
        text_release(&stops->item[i]);
    VEC_RELEASE(stops);
}

// How many bytes at the end of a text are the beginning of a character.
static size_t character_begun(const struct text *t) {
    for (size_t n = 1; n < UTF8_BYTES_MAX && n <= t->length; n++) {
        struct utf8_checker checker = {0};
        const char *from = t->text + t->length - n;
        if (((unsigned char)*from & 0xC0) == 0x80) // inside a character
            continue;
        return utf8_check(&checker, from, n) && checker.missing ? n : 0;
    }
    return 0;
}

// Whether a stop string stands at held[at], as far as there are bytes; *whole: all of one.
static bool stop_at(const struct stop_strings *stops, const struct text *held, size_t at, bool *whole) {
    bool begins = false;
    *whole = false;
    for (size_t i = 0; i < stops->count; i++) {
        const struct text *stop = &stops->item[i];
        const size_t left = held->length - at;
        if (memcmp(held->text + at, stop->text, MIN(left, stop->length)) != 0)
            continue;
        begins = true;
        *whole |= left >= stop->length;
    }
    return begins;
}

static void gate_tell(struct stop_gate *gate, size_t count, struct text *out) {
    struct text *held = &gate->held;
    if (count)
        text_add_bytes(out, held->text, count);
    held->length -= count;
    if (held->length && count)
        memmove(held->text, held->text + count, held->length);
}

void stop_gate_add(struct stop_gate *gate, const struct stop_strings *stops, const char *bytes, size_t length,
                   struct text *out) {
    struct text *held = &gate->held;
    if (length == 0 || gate->stopped)
        return;
    text_add_bytes(held, bytes, length);
    size_t told = held->length;
    for (size_t at = 0; at < held->length && !gate->stopped; at++)
        if (stop_at(stops, held, at, &gate->stopped) && (gate->stopped || at < told))
            told = at;
    if (gate->stopped)
        held->length = told;
    gate_tell(gate, gate->stopped ? told : MIN(told, held->length - character_begun(held)), out);
}

void stop_gate_end(struct stop_gate *gate, struct text *out) {
    gate_tell(gate, gate->held.length, out);
}

// Jinja, the language in which chat templates are written (Jinja 3.1, "Template Designer Documentation"), as
// `transformers` sets it up: trim_blocks, lstrip_blocks, break and continue, {% generation %}, and nothing can be
// changed from within but namespaces. What of the language templates do not use is refused by name when a template is
// parsed. Time and memory are bounded: a template comes from others, as do the values.
#ifndef CHAT_JINJA_H
#define CHAT_JINJA_H

#include "base/json.h"

// A parsed template. Threads share it.
struct jinja;

// Parses text[0, length), which is UTF-8; `where` names it in messages, which name the line too. USAGE: malformed, or
// not supported. The caller frees.
trireme_status jinja_parse(const char *text, size_t length, const char *where, struct jinja **out,
                           trireme_error *error);
void jinja_free(struct jinja *j);
// Whether it says itself, by {% generation %}, what the model generates.
bool jinja_marks_generation(const struct jinja *j);

struct jinja_span {
    size_t begin, end;
};

// Zero-initialise; jinja_output_release frees.
struct jinja_output {
    struct text text;
    VEC(struct jinja_span) generation; // what {% generation %} marks, in order
    VEC(size_t) seams;                 // where what the template wrote at once ends, in order
};
void jinja_output_release(struct jinja_output *out);

// Renders with the members of `variables`, an object. *out is emptied first. USAGE: the template calls
// raise_exception, does with a value what cannot be done with it, or takes too long or too much.
trireme_status jinja_render(const struct jinja *j, const json_t *variables, struct jinja_output *out,
                            trireme_error *error);

#endif

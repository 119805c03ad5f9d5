// Strings that end a text, found whatever tokens they are made of, and the text that may be told before it is known
// whether one of them goes on.
#ifndef GENERATE_STOP_STRINGS_H
#define GENERATE_STOP_STRINGS_H

#include "config/config.h"

// Zero-initialise; stop_strings_release frees.
struct stop_strings {
    VEC(struct text);
};
// Those of config->generate.stop. USAGE for a list that is none, or an empty string in it.
trireme_status stop_strings_read(struct stop_strings *stops, const struct config *config, trireme_error *error);
void stop_strings_add(struct stop_strings *stops, const char *string, size_t length);
void stop_strings_release(struct stop_strings *stops);

// What of a text is not told yet. Zero-initialise; text_release(&gate->held) frees.
struct stop_gate {
    struct text held;
    bool stopped;
};
// Appends to *out what the text's next bytes let be told: whole characters, up to the first stop string (`stopped` is
// set then, and the rest dropped) or to what may be the beginning of one.
void stop_gate_add(struct stop_gate *gate, const struct stop_strings *stops, const char *bytes, size_t length,
                   struct text *out);
// Appends what is left once the text has ended otherwise.
void stop_gate_end(struct stop_gate *gate, struct text *out);

#endif

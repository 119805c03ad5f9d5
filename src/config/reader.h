// Internal to config/: the events of a YAML text. Bytes that are not UTF-8, characters that YAML forbids, aliases,
// anchors and tags are refused, but for !!binary where a value may hold any bytes.
#ifndef CONFIG_READER_H
#define CONFIG_READER_H

#include "config/value.h"

#include <yaml.h>

enum { WHERE_BYTES = 320, NAME_MAX_SHOWN = 256 };

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; // the current one
    bool takes_binary;  // a scalar may be tagged !!binary, and then stands for the bytes of which it is the base64
    char name[NAME_MAX_SHOWN + 8], where[WHERE_BYTES];
};

// `name` stands for the file in messages. On failure there is nothing to close.
trireme_status reader_open(struct reader *reader, const char *name, const char *yaml, size_t length,
                           trireme_error *error);
void reader_close(struct reader *reader);
// Goes to the next event; `where` is then "name:line" of its beginning.
trireme_status reader_next(struct reader *reader, trireme_error *error);
// From the event that begins a mapping or list to the one that ends it.
trireme_status reader_skip(struct reader *reader, trireme_error *error);
// Whether the current event is an empty plain scalar: an empty document, or a section whose keys are all comments.
bool reader_is_empty(const struct reader *reader);

#endif

// JSON. Reading: jansson behind bounds (depth, number of values, no duplicate keys, UTF-8 only) and typed members with
// messages that a user can act on. Writing: our own, because jansson neither writes NaN nor the shortest form of a
// number. Trees are jansson's: json_t, json_decref, json_object_get, json_object_foreach, json_array_foreach.
//
// `where` names the source in messages: a path, or a path and the member inside it: `config.json: "rope_scaling"`.
// All refusals of content are TRIREME_ERROR_CORRUPT.
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/base.h"
#include "base/text.h"

#include <jansson.h>

#define JSON_DEPTH_MAX 64
// Values (members, elements) in one text. Bounds the memory that a small hostile file can take to about 1 GiB.
#define JSON_VALUES_MAX ((size_t)4000000)

// Parses one object or array that fills all `length` bytes (no NUL needed at the end). Integers beyond 64 bits become
// reals. The caller owns *out.
trireme_status json_parse(const char *text, size_t length, const char *where, json_t **out, trireme_error *error);
// json_parse of a file of at most `limit` bytes.
trireme_status json_parse_file(const char *path, size_t limit, json_t **out, trireme_error *error);

// Whether a member that is absent or null is an error, or leaves *out as the caller set it (the default).
enum json_need { JSON_REQUIRED, JSON_OPTIONAL };

// Typed members of `object`; strings and trees are borrowed from it. 12.0 is not an integer, 12 is a number.
// Bounds are inclusive; INT64_MIN and INT64_MAX, -INFINITY and INFINITY mean no bound; least = DBL_MIN accepts positive
// numbers only.
trireme_status json_read_integer(const json_t *object, const char *where, const char *key, enum json_need need,
                                 int64_t least, int64_t most, int64_t *out, trireme_error *error);
trireme_status json_read_number(const json_t *object, const char *where, const char *key, enum json_need need,
                                double least, double most, double *out, trireme_error *error);
trireme_status json_read_boolean(const json_t *object, const char *where, const char *key, enum json_need need,
                                 bool *out, trireme_error *error);
trireme_status json_read_string(const json_t *object, const char *where, const char *key, enum json_need need,
                                const char **out, trireme_error *error);
// A path as json_add_path writes it, which must be there. The caller frees *out.
trireme_status json_read_path(const json_t *object, const char *where, const char *key, char **out,
                              trireme_error *error);
trireme_status json_read_object(const json_t *object, const char *where, const char *key, enum json_need need,
                                const json_t **out, trireme_error *error);
trireme_status json_read_array(const json_t *object, const char *where, const char *key, enum json_need need,
                               const json_t **out, trireme_error *error);

// Foreign text as a message may quote it: in quotes, on one line, escaped, shortened in the middle when long. Returns
// `buffer`.
#define JSON_EXCERPT_BYTES 160
const char *json_excerpt(const char *string, char buffer[JSON_EXCERPT_BYTES]);
const char *json_excerpt_bytes(const char *bytes, size_t length, char buffer[JSON_EXCERPT_BYTES]);
// The same for a value: `"12"`, `[1,2]`, `an object`.
const char *json_excerpt_value(const json_t *value, char buffer[JSON_EXCERPT_BYTES]);

// Writing: appends compact JSON to a text, commas included: begin, add, end. `key` is NULL in an array and at the top
// level. Doubles take the fewest digits (15 to 17) that read back as the same bits; NaN and infinities become null.
// Ill-formed sequences in place of UTF-8 become U+FFFD (utf8.h). Between objects at the top level the caller adds a
// "\n" (text_add), as in .jsonl.
void json_begin_object(struct text *t, const char *key);
void json_end_object(struct text *t);
void json_begin_array(struct text *t, const char *key);
void json_end_array(struct text *t);
void json_add_integer(struct text *t, const char *key, int64_t value);
void json_add_number(struct text *t, const char *key, double value);
void json_add_boolean(struct text *t, const char *key, bool value);
void json_add_string(struct text *t, const char *key, const char *value);
// The same for text that may hold NUL bytes.
void json_add_text(struct text *t, const char *key, const struct text *value);
// A path, which may hold any bytes: a string, or, where it is not UTF-8, {"base64": "..."}.
void json_add_path(struct text *t, const char *key, const char *path);
// Adds values that are JSON text already, with commas between them; nothing where length is 0.
void json_add_written(struct text *t, const char *values, size_t length);
void json_add_value(struct text *t, const char *key, const json_t *value);
// A whole tree, for people: indented by two spaces as Hugging Face's files are, with a newline at the end.
void json_print(struct text *t, const json_t *value);

#endif

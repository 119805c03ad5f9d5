// Base64 (RFC 4648, section 4), in which names of files that are not UTF-8 stand in YAML and JSON, and tokens in files
// of tiktoken.
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include "base/text.h"

void base64_add(struct text *out, const char *bytes, size_t length);
// Appends the bytes that text[0, length) stands for; blanks and line ends in it do not count. False, with nothing
// appended, where it is not base64.
bool base64_read(const char *text, size_t length, struct text *out);
// The same for a whole text: NUL-terminated bytes that the caller frees. NULL: it is not base64.
char *base64_decode(const char *text, size_t *length);

#endif

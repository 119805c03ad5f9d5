// Base64 (RFC 4648, section 4), in which names of files that are not UTF-8 stand in YAML and JSON.
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include "base/text.h"

void base64_add(struct text *out, const char *bytes, size_t length);
// Decodes a text, in which blanks and line ends do not count, into NUL-terminated bytes that the caller frees. NULL: it
// is not base64.
char *base64_decode(const char *text, size_t *length);

#endif

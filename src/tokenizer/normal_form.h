// Unicode's normal forms (UAX 15), by utf8proc.
#ifndef TOKENIZER_NORMAL_FORM_H
#define TOKENIZER_NORMAL_FORM_H

#include "base/text.h"
#include "tokenizer/text_work.h"

enum normal_form { NORMAL_NFC, NORMAL_NFD, NORMAL_NFKC, NORMAL_NFKD };

// Appends the form of text[0, length), which is UTF-8, to *out.
void normal_form_add(enum normal_form form, struct text_work *work, const char *text, size_t length, struct text *out);

#endif

// What struct text_work has, for the steps that use it. Includes nothing of the steps.
#ifndef TOKENIZER_TEXT_WORK_PARTS_H
#define TOKENIZER_TEXT_WORK_PARTS_H

#include "tokenizer/expression.h"
#include "tokenizer/pieces.h"
#include "tokenizer/spans.h"
#include "tokenizer/text_work.h"

// A step may use anything of it that it does not get as an argument; nothing of it is kept from call to call.
struct text_work {
    struct expression_memory *matching; // NULL until a pattern is matched
    struct spans spans;
    size_t limit;            // of the length of what a normalizer makes
    struct text text[2];     // of normalizers, in turns
    struct pieces pieces[2]; // of pre-tokenizers, in turns
    VEC(int32_t) codes;      // of characters
};

#endif

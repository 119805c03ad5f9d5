// What one thread needs to normalize and cut text: buffers between steps, and memory in which patterns are matched.
// Normalizers, pre-tokenizers and decoders themselves do not change while they are used: threads share them.
#ifndef TOKENIZER_TEXT_WORK_H
#define TOKENIZER_TEXT_WORK_H

struct text_work;

struct text_work *text_work_create(void);
void text_work_free(struct text_work *work);

#endif

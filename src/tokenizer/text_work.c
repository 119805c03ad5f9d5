#include "tokenizer/text_work_parts.h"

struct text_work *text_work_create(void) {
    return mem_alloc(sizeof(struct text_work));
}

void text_work_free(struct text_work *work) {
    if (!work)
        return;
    expression_memory_free(work->matching);
    VEC_RELEASE(&work->spans);
    for (int i = 0; i < 2; i++) {
        text_release(&work->text[i]);
        pieces_release(&work->pieces[i]);
    }
    VEC_RELEASE(&work->codes);
    free(work);
}

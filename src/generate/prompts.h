// What is to be continued: generate.prompt, or the prompts of the file generate.batch.
#ifndef GENERATE_PROMPTS_H
#define GENERATE_PROMPTS_H

#include "config/config.h"

// Zero-initialise; prompts_release frees.
struct prompts {
    VEC(struct text);
};
// One prompt at least. A file that ends in .jsonl has an object in each line, its prompt in the member "prompt"; any
// other has a prompt in each line. Blank lines do not count. USAGE or CORRUPT name file and line.
trireme_status prompts_read(struct prompts *prompts, const struct config *config, trireme_error *error);
void prompts_release(struct prompts *prompts);

#endif

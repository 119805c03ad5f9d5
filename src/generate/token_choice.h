// Which token comes next: the logits become chances of the tokens that may come, and a random number takes one. What
// changes them comes in the order of `transformers`: repetition penalty, temperature, top_k, top_p, min_p.
#ifndef GENERATE_TOKEN_CHOICE_H
#define GENERATE_TOKEN_CHOICE_H

#include "config/config.h"

struct token_chance {
    double weight; // of the likeliest token 1
    int32_t token;
};

// Zero-initialise; token_chances_release frees.
struct token_chances {
    VEC(struct token_chance);
    VEC(double) logits; // while some are chosen
};

// Makes the list of the tokens that may come, at least one of them, from the finite logits[count] by temperature,
// top_k, top_p, min_p and repetition_penalty of `how`; at temperature 0 it has the likeliest alone. seen[token]:
// whether the text has the token. Of tokens that are equally likely all stay if one stays under top_k.
void token_chances_make(struct token_chances *chances, const struct config_generate *how, const double *logits,
                        int32_t count, const bool *seen);
// Takes one of them by a number in [0, 1).
int32_t token_chances_take(const struct token_chances *chances, double uniform);
void token_chances_release(struct token_chances *chances);

#endif

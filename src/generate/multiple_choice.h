// Questions with choices, one in each line of a .jsonl file: the model's answer is the choice that it takes to be the
// likeliest after the question. The scores are those that EleutherAI's lm-evaluation-harness gives to a task of the
// kind multiple_choice.
#ifndef GENERATE_MULTIPLE_CHOICE_H
#define GENERATE_MULTIPLE_CHOICE_H

#include "generate/likelihood.h"

// A line: {"query": "...", "choices": ["...", "..."], "gold": 0}; also "context" for the first, "answer" for the last.
struct question {
    struct text query;
    VEC(struct text) choices; // 1 or more
    int64_t gold;             // which one is right, from 0
};
struct questions {
    char *path;
    VEC(struct question);
    VEC(size_t) lines; // where each stands, from 1
};
// USAGE or CORRUPT name file and line; then *out is still to be released.
trireme_status questions_read(struct questions *out, const char *path, trireme_error *error);
void questions_release(struct questions *questions);

// How the answers to a question compare: by log-likelihood, and by that over the choice's characters, or bytes.
enum choice_score { SCORE_ACC, SCORE_ACC_NORM, SCORE_ACC_BYTES, CHOICE_SCORES };
const char *choice_score_name(enum choice_score score); // "acc", "acc_norm", "acc_bytes"

struct answer {
    VEC(struct likelihood_sum) choices; // of each, with the delimiter before it
    size_t chosen[CHOICE_SCORES];
};
// Answers question `number`. `delimiter` stands between question and choice. The caller releases out->choices, whatever
// comes back.
trireme_status question_answer(const struct questions *questions, size_t number, const char *delimiter,
                               struct likelihood *likelihood, struct answer *out, trireme_error *error);

#endif

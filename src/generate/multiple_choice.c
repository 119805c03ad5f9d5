#include "generate/multiple_choice.h"

#include "base/json.h"

#include <math.h>

static void question_release(struct question *q) {
    text_release(&q->query);
    for (size_t i = 0; i < q->choices.count; i++)
        text_release(&q->choices.item[i]);
    VEC_RELEASE(&q->choices);
}

// Whichever of two members there is.
static const char *member_of(const json_t *root, const char *name, const char *other) {
    return json_object_get(root, other) && !json_object_get(root, name) ? other : name;
}

static trireme_status question_fill(struct question *q, const json_t *root, const char *where, trireme_error *error) {
    const char *query;
    const json_t *choices;
    TRY(json_read_string(root, where, member_of(root, "query", "context"), JSON_REQUIRED, &query, error));
    TRY(json_read_array(root, where, "choices", JSON_REQUIRED, &choices, error));
    text_add_bytes(&q->query, query, strlen(query));
    for (size_t i = 0; i < json_array_size(choices); i++) {
        const json_t *choice = json_array_get(choices, i);
        struct text text = {0};
        if (!json_is_string(choice))
            FAIL(TRIREME_ERROR_CORRUPT, "%s: \"choices\"[%zu] is no text", where, i);
        text_add_bytes(&text, json_string_value(choice), json_string_length(choice));
        VEC_PUSH(&q->choices, text);
    }
    if (q->choices.count == 0)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"choices\" is empty", where);
    return json_read_integer(root, where, member_of(root, "gold", "answer"), JSON_REQUIRED, 0,
                             (int64_t)q->choices.count - 1, &q->gold, error);
}

static trireme_status questions_add(void *user, const struct file_line *line, trireme_error *error) {
    struct questions *out = user;
    struct question question = {0};
    json_t *root = NULL;
    trireme_status status = json_parse(line->text, line->length, line->where, &root, error);
    if (status == TRIREME_OK)
        status = question_fill(&question, root, line->where, error);
    if (status == TRIREME_OK) {
        VEC_PUSH(out, question);
        VEC_PUSH(&out->lines, line->number);
    } else {
        question_release(&question);
    }
    json_decref(root);
    return status;
}

trireme_status questions_read(struct questions *out, const char *path, trireme_error *error) {
    enum { LIMIT = 1 << 30 };
    *out = (struct questions){.path = mem_strdup(path)};
    TRY(file_each_line(path, LIMIT, questions_add, out, error));
    if (out->count == 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: has no question", path);
    return TRIREME_OK;
}

void questions_release(struct questions *questions) {
    for (size_t i = 0; i < questions->count; i++)
        question_release(&questions->item[i]);
    VEC_RELEASE(questions);
    VEC_RELEASE(&questions->lines);
    free(questions->path);
    *questions = (struct questions){0};
}

const char *choice_score_name(enum choice_score score) {
    static const char *const NAME[] = {
        [SCORE_ACC] = "acc", [SCORE_ACC_NORM] = "acc_norm", [SCORE_ACC_BYTES] = "acc_bytes"};
    return NAME[score];
}

// By how much a log-likelihood is divided.
static double choice_length(const struct text *choice, enum choice_score score) {
    int64_t characters = 0;
    for (size_t i = 0; i < choice->length; i++)
        characters += ((unsigned char)choice->text[i] & 0xC0) != 0x80;
    return score == SCORE_ACC ? 1 : score == SCORE_ACC_NORM ? (double)characters : (double)choice->length;
}

static trireme_status question_judge(const struct question *q, const char *delimiter, struct likelihood *l,
                                     struct answer *out, trireme_error *error) {
    double best[CHOICE_SCORES];
    for (size_t i = 0; i < q->choices.count; i++) {
        struct text text = {0};
        struct likelihood_sum sum;
        text_add(&text, "%s", delimiter);
        text_add_bytes(&text, q->choices.item[i].text ? q->choices.item[i].text : "", q->choices.item[i].length);
        trireme_status status = likelihood_after(l, &q->query, &text, &sum, error);
        text_release(&text);
        TRY(status);
        VEC_PUSH(&out->choices, sum);
        for (int s = 0; s < CHOICE_SCORES; s++) {
            const double score = sum.log / choice_length(&q->choices.item[i], (enum choice_score)s);
            if (i == 0 || score > best[s]) {
                best[s] = score;
                out->chosen[s] = i;
            }
        }
    }
    return TRIREME_OK;
}

trireme_status question_answer(const struct questions *questions, size_t number, const char *delimiter,
                               struct likelihood *l, struct answer *out, trireme_error *error) {
    *out = (struct answer){0};
    trireme_status status = question_judge(&questions->item[number], delimiter, l, out, error);
    if (status != TRIREME_OK)
        return error_prefix(error, status, "%s:%zu", questions->path, questions->lines.item[number]);
    return TRIREME_OK;
}

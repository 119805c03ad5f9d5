#include "verify/number_set.h"

enum { WORD = 64 };

void number_set_create(struct number_set *set, int bound) {
    size_t words = (size_t)bound / WORD + 1;
    set->bits = mem_alloc(words * sizeof *set->bits);
    set->any = mem_alloc((words / WORD + 1) * sizeof *set->any);
}

void number_set_release(struct number_set *set) {
    free(set->bits);
    free(set->any);
    *set = (struct number_set){0};
}

static uint64_t set_bit(int number) {
    return (uint64_t)1 << number % WORD;
}

void number_set_add(struct number_set *set, int number) {
    int word = number / WORD;
    set->bits[word] |= set_bit(number);
    set->any[word / WORD] |= set_bit(word);
}

void number_set_remove(struct number_set *set, int number) {
    int word = number / WORD;
    set->bits[word] &= ~set_bit(number);
    if (!set->bits[word])
        set->any[word / WORD] &= ~set_bit(word);
}

// The highest bit of a word below `end`, or NONE.
static int set_highest(uint64_t word, int end) {
    word &= end < WORD ? set_bit(end) - 1 : ~(uint64_t)0;
    return word ? WORD - 1 - __builtin_clzll(word) : NONE;
}

int number_set_below(const struct number_set *set, int end) {
    int word = end / WORD, found = set_highest(set->bits[word], end % WORD);
    for (int group = word / WORD, last = word % WORD; found == NONE; group--, last = WORD) {
        if (group < 0)
            return NONE;
        int next = set_highest(set->any[group], last);
        if (next == NONE)
            continue;
        word = group * WORD + next;
        found = set_highest(set->bits[word], WORD);
    }
    return word * WORD + found;
}

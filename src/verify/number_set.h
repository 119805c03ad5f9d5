// A set of numbers below a bound known beforehand, which finds the next lower member quickly. Internal to verify/.
#ifndef VERIFY_NUMBER_SET_H
#define VERIFY_NUMBER_SET_H

#include "program/program.h"

// `bits` has a bit for each number, `any` one for each word of `bits`: whether any bit of it is set.
struct number_set {
    uint64_t *bits, *any;
};

void number_set_create(struct number_set *set, int bound);
void number_set_release(struct number_set *set);
void number_set_add(struct number_set *set, int number);
void number_set_remove(struct number_set *set, int number);
// The greatest member below `end`, which is at most the bound; NONE where there is none.
int number_set_below(const struct number_set *set, int end);

#endif

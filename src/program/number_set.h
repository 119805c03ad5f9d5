// A set of numbers below a bound that is known beforehand, which quickly finds the next lower one. Internal to
// program/.
#ifndef PROGRAM_NUMBER_SET_H
#define PROGRAM_NUMBER_SET_H

#include "program/program.h"

// A bit for each number, and one for each 64 of these, of which it tells whether any is set.
struct number_set {
    uint64_t *bits, *any;
};

void number_set_create(struct number_set *set, int bound);
void number_set_release(struct number_set *set);
void number_set_add(struct number_set *set, int number);
void number_set_remove(struct number_set *set, int number);
// The greatest of the set below `end`, at most its bound; NONE where there is none.
int number_set_below(const struct number_set *set, int end);

#endif

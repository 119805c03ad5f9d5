// A directory of its own for each test that wants one: *state is its path.
#ifndef SUPPORT_DIRECTORY_H
#define SUPPORT_DIRECTORY_H

#include "support/test.h"

int directory_setup(void **state);
int directory_teardown(void **state);

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

#endif

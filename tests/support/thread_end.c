// cmocka ends the program without a word where a thread other than the main one fails an assertion or faults: it keeps
// what it has to say for the test, which does not come back. This has it say that.
#include "support/test.h"

#include <stdlib.h>
#include <unistd.h>

// Named so that cmake/tests.cmake can link it into every test.
void thread_end_watch(void);

static void tell(int status, void *unused) {
    (void)unused;
    if (status == 0 || gettid() == getpid())
        return;
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    fail_msg("%s", "a thread other than the main one has failed");
}

__attribute__((constructor)) void thread_end_watch(void) {
    on_exit(tell, NULL);
}

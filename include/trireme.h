// Trireme: trains large language models; every training step is an explicit, verified step program.
//
// This is the only public header. Functions return a trireme_status, write nothing to the terminal and never exit.
// What went wrong is in the caller's trireme_error: one line, naming what failed, where, and what to do.
// There is no global state: any number of threads may use the library, each with objects of its own.
#ifndef TRIREME_H
#define TRIREME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRIREME_API __attribute__((visibility("default")))

#define TRIREME_VERSION "0.1.0"

typedef enum trireme_status {
    TRIREME_OK = 0,
    TRIREME_ERROR_USAGE = -1,       // the caller asked for something impossible: a key, a type, a combination
    TRIREME_ERROR_IO = -2,          // the operating system refused: missing file, full disk, permission
    TRIREME_ERROR_CORRUPT = -3,     // a file is not what it says it is
    TRIREME_ERROR_MEMORY = -4,      // does not fit in the memory there is
    TRIREME_ERROR_PROGRAM = -5,     // the verifier refused a step program
    TRIREME_ERROR_DIVERGED = -6,    // the loss or gradient was not finite for too many steps in a row
    TRIREME_ERROR_BUSY = -7,        // the run directory belongs to a running process
    TRIREME_ERROR_INTERRUPTED = -8, // asked to stop; everything is saved, run again to continue
} trireme_status;

// One line of text saying what failed. `status` is TRIREME_OK and `message` empty when nothing did.
typedef struct trireme_error {
    trireme_status status;
    char message[1000];
} trireme_error;

#ifdef __cplusplus
}
#endif
#endif

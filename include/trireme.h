// Trireme: trains large language models; every training step is an explicit, verified step program.
//
// This is the only public header. Functions return a trireme_status, write nothing to the terminal and never exit.
// What went wrong is in the caller's trireme_error: one line, naming what failed, where, and what to do. It may be
// NULL: then the status alone tells. What else may be NULL is said where it stands, and refused elsewhere. There is no
// global state: any number of threads may use the library, each with objects of its own.
//
// A model's or token file that another program cuts short while it is read is TRIREME_ERROR_CORRUPT. A run's ranks.bin
// is mapped while it trains: should another program shorten that one, the process gets SIGBUS, which is the caller's to
// handle, as all signals are. `trireme show ranks` tells what is in there; nothing else reads it.
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
    TRIREME_ERROR_INTERRUPTED = -8, // asked to stop; what was done is saved, run again to continue
    TRIREME_ERROR_LOST = -9,        // a rank hangs or has died; the run ended on all
} trireme_status;

// One line of text saying what failed. `status` is TRIREME_OK and `message` empty when nothing did.
typedef struct trireme_error {
    trireme_status status;
    char message[1000];
} trireme_error;

// Version of the library that is linked; TRIREME_VERSION is that of this header.
TRIREME_API const char *trireme_version(void);

// What a call is to do, as on the command line: a configuration file (NULL: defaults) and `count` settings
// "section.key=value" that win over it. `trireme help config` lists all keys. Where the whole is NULL, defaults hold.
typedef struct trireme_settings {
    const char *path;
    const char *const *setting;
    size_t count;
} trireme_settings;

typedef struct trireme_progress {
    int64_t step, steps;
    double loss;     // nats per token; NaN where none was to be predicted
    double val_loss; // NaN where it was not measured
    double tokens_per_second;
} trireme_progress;

typedef struct trireme_trained {
    int64_t step;         // last step done
    double loss;          // of that step; NaN when there was none left to do, or it predicted nothing
    double val_loss;      // of that step; NaN where it was not measured
    char checkpoint[512]; // a Hugging Face directory; a run.directory too long for it is refused
} trireme_trained;

// Trains, or goes on with the run in run.directory, until training.steps. `stepped` (may be NULL) is called after every
// step; when it returns false the run saves, ends, and the result is TRIREME_ERROR_INTERRUPTED. `trained` (may be NULL)
// is filled in then, too.
TRIREME_API trireme_status trireme_train(const trireme_settings *settings,
                                         bool (*stepped)(void *user, const trireme_progress *progress), void *user,
                                         trireme_trained *trained, trireme_error *error);

// Continues `prompt` (length bytes) with the model in `directory`, a Hugging Face directory or a run's, whose tokens
// are bytes. Length 0, of which `prompt` may be NULL, is the end of a line, as a model continues something. `text` is
// called with pieces of the continuation as they come, and ends it by returning false. Settings of section generate
// apply, but for generate.prompt.
TRIREME_API trireme_status trireme_generate(const char *directory, const trireme_settings *settings, const char *prompt,
                                            size_t length, bool (*text)(void *user, const char *bytes, size_t count),
                                            void *user, trireme_error *error);

#ifdef __cplusplus
}
#endif
#endif

// Trireme: trains large language models; every training step is an explicit, verified step program.
//
// This is the only public header. Functions return a trireme_status and write nothing to the terminal. On failure the
// caller's trireme_error holds one line that names what failed, where, and what to do; it may be NULL: then the status
// alone tells. Other arguments may be NULL only where their comment says so, and are refused elsewhere. There is no
// global state: any number of threads may use the library, each with objects of its own.
//
// Memory that is not there is a failure like any other, TRIREME_ERROR_MEMORY. The large memory of a run (parameters,
// activations, files) is asked for beforehand. For the tables and lists besides it, calls that are under way share 32
// MB of address space, which nothing touches: where a limit (ulimit -v, ulimit -d, strict overcommit) makes the system
// refuse a table its memory, the table takes from these, and all calls that are under way end with that status. Two
// things end the process, by abort() after a line on stderr: a bug of the library, and a system that refuses a table
// for which even that is too little. A limit of resident memory (a job's, a container's) is checked before the first
// step; whoever exceeds one later is killed by the system.
//
// If another program cuts a model or token file short while it is being read, the result is TRIREME_ERROR_CORRUPT. A
// run's ranks.bin is mapped while the run trains: if another program shortens that file, the process gets SIGBUS, which
// is the caller's to handle, as all signals are. Only `trireme show ranks` reads that file.
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
    char message[996];
    int32_t reserved; // the library's own
} trireme_error;

// The version of the library that is linked; TRIREME_VERSION is that of this header.
TRIREME_API const char *trireme_version(void);

// What a call is to do, as on the command line: a configuration file, and settings that override it.
// `trireme help config` lists all keys. Functions that take a pointer to this accept NULL: all defaults.
typedef struct trireme_settings {
    const char *path;           // of a YAML file; NULL: none, so that every key has its default
    const char *const *setting; // [count], each "section.key=value"; may be NULL where count is 0
    size_t count;
} trireme_settings;

typedef struct trireme_progress {
    int64_t step, steps;      // the one just done, counted from 1; training.steps
    double loss;              // nats per token; NaN if the step had no token to predict
    double val_loss;          // nats per token; NaN unless it was measured after this step
    double tokens_per_second; // over all time since the step before, or since the run began
} trireme_progress;

typedef struct trireme_trained {
    int64_t step;         // the last step done
    double loss;          // of that step; NaN if no step was left to do, or it had no token to predict
    double val_loss;      // after that step; NaN if it was not measured
    char checkpoint[512]; // path of a Hugging Face directory; a run.directory too long for this is refused
} trireme_trained;

// Trains until training.steps; if run.directory already holds a run, continues it. `stepped` (may be NULL) is called
// after every step with `user`; when it returns false, the run saves, ends, and returns TRIREME_ERROR_INTERRUPTED.
// `trained` (may be NULL) is filled in on TRIREME_OK and on TRIREME_ERROR_INTERRUPTED.
TRIREME_API trireme_status trireme_train(const trireme_settings *settings,
                                         bool (*stepped)(void *user, const trireme_progress *progress), void *user,
                                         trireme_trained *trained, trireme_error *error);

// Continues `prompt` (`length` bytes) with the model in `directory`, which is a Hugging Face directory or a run's, with
// its tokenizer. Since a model must have something to continue, a length of 0 (`prompt` may then be NULL) stands for a
// newline where the tokenizer begins texts with nothing. `text` is called with `user` and each piece of the
// continuation as it comes, whole characters where it is UTF-8; returning false ends the continuation, and the result
// is still TRIREME_OK. The settings of section `generate` apply, except prompt, batch and samples.
TRIREME_API trireme_status trireme_generate(const char *directory, const trireme_settings *settings, const char *prompt,
                                            size_t length, bool (*text)(void *user, const char *bytes, size_t count),
                                            void *user, trireme_error *error);

#ifdef __cplusplus
}
#endif
#endif

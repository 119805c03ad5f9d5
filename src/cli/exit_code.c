#include "cli/exit_code.h"

#include <signal.h>

static const struct {
    trireme_status status;
    int code;
    const char *meaning;
} TABLE[] = {
    {TRIREME_OK, 0, "done"},
    {TRIREME_ERROR_PROGRAM, 1, "a bug; or the rank of this process ends because another has failed, which says why"},
    {TRIREME_ERROR_USAGE, 2, "command line or configuration ask for something impossible: change them"},
    {TRIREME_ERROR_IO, 3,
     "the system refused: missing file, full disk, no permission, output nobody reads: mend that, then again"},
    {TRIREME_ERROR_CORRUPT, 4, "a file is not what it says it is: repair or replace it"},
    {TRIREME_ERROR_MEMORY, 5, "it does not fit into the memory there is: ask for less, or give more"},
    {TRIREME_ERROR_DIVERGED, 6, "loss or gradient was not finite: change the configuration or the data"},
    {TRIREME_ERROR_BUSY, 7, "in use by another process: again later"},
    {TRIREME_ERROR_LOST, 8, "a rank hung or died: the same command goes on from the last checkpoint"},
    {TRIREME_ERROR_INTERRUPTED, 75, "asked to stop, all is saved: the same command goes on"},
};

static int instead;

void exit_code_instead(int code) {
    instead = code;
}

int exit_code(trireme_status status) {
    if (status == TRIREME_OK && instead)
        return instead;
    for (size_t i = 0; i < ARRAY_LENGTH(TABLE); i++)
        if (TABLE[i].status == status)
            return TABLE[i].code;
    return exit_code(TRIREME_ERROR_PROGRAM);
}

void exit_codes_help(struct text *out) {
    for (size_t i = 0; i < ARRAY_LENGTH(TABLE); i++) {
        if (TABLE[i].status == TRIREME_ERROR_INTERRUPTED)
            text_add(out, "%4d  checkpoint diff: they differ\n", EXIT_DIFFERENT);
        text_add(out, "%4d  %s\n", TABLE[i].code, TABLE[i].meaning);
    }
    text_add(out,
             "%4d  interrupted: prepare, eval and checkpoint change nothing; train ended at once, by a second SIGINT\n",
             EXIT_UNSAVED);
    text_add(out, "%4d  train ended at once by SIGUSR1 (%d: SIGTERM) after it had been asked to save and stop\n",
             128 + SIGUSR1, 128 + SIGTERM);
}

// Saves a run's checkpoints, all ranks at once, while the run goes on. Internal to run/.
#ifndef RUN_CHECKPOINT_SAVER_H
#define RUN_CHECKPOINT_SAVER_H

#include "ckpt/saver.h"
#include "ckpt/state_files.h"
#include "engine/engine.h"
#include "tokenizer/tokenizer_files.h"

struct checkpoint_saver; // one rank's

// Called on rank 0, on the saver's thread; NULL: not.
struct saver_hooks {
    void *user;
    trireme_status (*before_open)(void *user, trireme_error *error);   // before anything is made
    trireme_status (*before_commit)(void *user, trireme_error *error); // once all files are on the disk
    void (*after_commit)(void *user);
};

// All ranks take part. Engine and tokenizer must outlive the saver. `buffer_bytes` as in saver_create.
trireme_status checkpoint_saver_create(struct checkpoint_saver **out, const struct engine *engine,
                                       const struct tokenizer_files *tokenizer, int64_t buffer_bytes,
                                       trireme_error *error);
// Begins to save RUN/checkpoint/step-N, N = progress->step, which it copies. The files are the same on every mesh. The
// engine's values must not change until checkpoint_saver_await_copied returns. `hooks` may be NULL.
void checkpoint_saver_begin(struct checkpoint_saver *saver, const char *run_directory,
                            const struct state_progress *progress, const struct saver_hooks *hooks);
// As saver_await_copied.
bool checkpoint_saver_await_copied(struct checkpoint_saver *saver, double seconds);
bool checkpoint_saver_is_copied(const struct checkpoint_saver *saver);
// As saver_has_room, for the last save that began.
bool checkpoint_saver_has_room(const struct checkpoint_saver *saver);
bool checkpoint_saver_is_done(const struct checkpoint_saver *saver);
// Waits for the end; false where it has not come after so many seconds (INFINITY: for ever). What is still being done
// then is saver_doing's answer.
bool checkpoint_saver_await_end(struct checkpoint_saver *saver, double seconds);
const char *checkpoint_saver_doing(struct checkpoint_saver *saver);
// Waits for the end; the status is the same on all ranks.
trireme_status checkpoint_saver_end(struct checkpoint_saver *saver, trireme_error *error);
// Whether one of these two has been false at last. Then the saver, and all that it was given, must stay.
bool checkpoint_saver_hangs(const struct checkpoint_saver *saver);
// A save that is under way is waited for.
void checkpoint_saver_free(struct checkpoint_saver *saver);

#endif

// The engine's values in a checkpoint directory: a Hugging Face model, the tokenizer, and the training state beside it.
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "ckpt/checksum_file.h"
#include "ckpt/state_files.h"
#include "data/tokenizer_files.h"
#include "train/engine.h"

// Formats: where a run's checkpoints are, below its directory, and one of them, by its step (long long).
#define CHECKPOINTS_PATH "%s/checkpoint"
#define CHECKPOINT_PATH CHECKPOINTS_PATH "/step-%lld"

// Saves RUN/checkpoint/step-N, N = progress->step. All ranks take part, over `control` (NULL where there is one), which
// has them by number; rank 0 writes. The files are the same on every mesh.
trireme_status checkpoint_save(const struct engine *engine, struct communicator *control,
                               const struct tokenizer_files *tokenizer, const char *run_directory,
                               const struct state_progress *progress, trireme_error *error);
// Removes all checkpoints of the run up to that of `step` but the newest `keep` (0: none).
trireme_status checkpoint_prune(const char *run_directory, int64_t step, size_t keep, trireme_error *error);
// Removes what a run that died left half saved or half removed.
void checkpoint_sweep(const char *run_directory);
// Fills the engine (parameters, optimizer state, constants) from a checkpoint of the same model, saved on any mesh.
// All ranks take part, over `control`; NULL: each for itself.
trireme_status checkpoint_load(struct engine *engine, struct communicator *control, const char *directory,
                               const struct state_progress *progress, trireme_error *error);
// Parameters alone, from any Hugging Face directory; constants too.
trireme_status checkpoint_load_model(struct engine *engine, struct communicator *control, const char *directory,
                                     bool exact, trireme_error *error);
// The configuration of the run that a checkpoint is of; the caller releases it. False where the directory is no
// checkpoint.
bool checkpoint_config(struct config *out, const char *directory);
// One checksum over the manifest: identifies the checkpoint's content. Empty where the manifest cannot be read.
void checkpoint_identify(const char *directory, char hex[CHECKSUM_HEX]);
// The model directory that `path` means: itself when it has a config.json, the newest complete checkpoint when it is a
// run directory. Content is verified, where there is a manifest; the training state may be missing. Caller frees *out,
// and lets *hold go (directory_hold) once it has read what it needs.
trireme_status checkpoint_resolve(const char *path, char **out, int *hold, trireme_error *error);
// The same by the sizes of files alone: checkpoint_verify_once is to follow.
trireme_status checkpoint_find(const char *path, char **out, int *hold, trireme_error *error);
// Where the directory has a manifest, all of its content is checked, of the training state what is there. For all
// ranks, over `control` (NULL: this one is alone): one `reads`, the others wait.
trireme_status checkpoint_verify_once(const char *path, struct communicator *control, bool reads, trireme_error *error);
// The model of a configuration (model_config_resolve). model.init_from may name a run: *start (may be NULL; the caller
// frees it) is the directory whose weights are meant, empty without any, complete by its sizes; *hold as above.
trireme_status checkpoint_model(struct model_config *out, const struct config *config, int64_t vocab_size, char **start,
                                int *hold, trireme_error *error);
// The same of a run. Unless model.config says them, the tokens that begin and end a text are those of the weights that
// it starts from. A run that has a checkpoint goes on with its own model, beside which another that is named is found
// to differ when the weights are loaded; model.init_from is not opened any more, and *start is NULL.
trireme_status checkpoint_run_model(struct model_config *out, const struct config *config, int64_t vocab_size,
                                    char **start, int *hold, trireme_error *error);

#endif

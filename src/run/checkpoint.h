// The engine's values in a checkpoint directory: a Hugging Face model, the tokenizer, and the training state beside it.
#ifndef RUN_CHECKPOINT_H
#define RUN_CHECKPOINT_H

#include "ckpt/directory.h"
#include "ckpt/state_files.h"
#include "engine/engine.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_files.h"

// Formats of paths: the directory of a run's checkpoints, and one checkpoint, by its step (long long).
#define CHECKPOINTS_PATH "%s/checkpoint"
#define CHECKPOINT_PATH CHECKPOINTS_PATH "/step-%lld"

// Saves RUN/checkpoint/step-N, N = progress->step, and waits for that (checkpoint_saver.h does not). All ranks take
// part. The files are the same on every mesh.
trireme_status checkpoint_save(const struct engine *engine, const struct tokenizer_files *tokenizer,
                               const char *run_directory, const struct state_progress *progress, trireme_error *error);
// Finds the newest complete checkpoint from which a run of this configuration goes on: one in its own directory, or in
// checkpoint.emergency_directory where that has a later one, which must be this run's. As directory_newest; `skipped`
// is of both.
trireme_status checkpoint_newest(const struct config *config, struct manifest_check check,
                                 const struct directory_verifier *verifier, struct directory_search *out,
                                 trireme_error *error);
// Removes what a dead run left half saved or half removed.
void checkpoint_sweep(const char *run_directory);
// Fills the engine (parameters, optimizer state, constants) from a checkpoint of the same model, saved on any mesh.
// All ranks take part, over `control`; NULL: each rank loads for itself.
trireme_status checkpoint_load(struct engine *engine, struct communicator *control, const char *directory,
                               const struct state_progress *progress, trireme_error *error);
// Fills parameters and constants alone, from any Hugging Face directory; `exact` as in model_files_load.
trireme_status checkpoint_load_model(struct engine *engine, struct communicator *control, const char *directory,
                                     bool exact, trireme_error *error);
// The directory of a model's tokenizer: that of the model, or, where that has adapters and no tokenizer, of the one
// that they adapt (`base` as in model_config_read_on). The caller frees *out.
trireme_status checkpoint_tokenizer(char **out, const char *directory, const char *base, trireme_error *error);
// Loads it.
trireme_status checkpoint_load_tokenizer(struct tokenizer **out, const char *directory, const char *base,
                                         trireme_error *error);
// The configuration of the run that saved a checkpoint; the caller releases it. False where the directory is not a
// checkpoint.
bool checkpoint_config(struct config *out, const char *directory);
// Finds the model directory that `path` means: `path` itself when it has a config.json, the newest complete checkpoint
// when it is a run directory. Where there is a manifest, content is verified; the training state may be missing. Caller
// frees *out, and calls directory_let_go(*hold) once it has read what it needs.
trireme_status checkpoint_resolve(const char *path, char **out, int *hold, trireme_error *error);
// The same, checking only the sizes of files; checkpoint_verify_once should follow.
trireme_status checkpoint_find(const char *path, char **out, int *hold, trireme_error *error);
// Where the directory has a manifest, verifies all content; only the training state may be missing. All ranks call it
// over `control` (NULL with one rank), and each reads its share.
trireme_status checkpoint_verify_once(const char *path, struct communicator *control, trireme_error *error);
// The model of a configuration (model_config_resolve). *start becomes the directory that the weights come from, ""
// where there are none to start from; the caller frees it, and `start` may be NULL. Where model.init_from names a run,
// that is its newest checkpoint, complete by its sizes. *hold as above.
trireme_status checkpoint_model(struct model_config *out, const struct config *config, int64_t vocab_size, char **start,
                                int *hold, trireme_error *error);
// The same for a run. Unless model.config is given, the tokens that begin and end a text are those of the weights that
// the run starts from. A run that has a checkpoint goes on with its own model: *start is then NULL and model.init_from
// is not opened; a configuration that names another model is refused when the weights are loaded.
trireme_status checkpoint_run_model(struct model_config *out, const struct config *config, int64_t vocab_size,
                                    char **start, int *hold, trireme_error *error);

#endif

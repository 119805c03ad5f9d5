// Adapters of low rank, in PEFT's words and files. A layer x W^T is adapted by A [rank, in] and B [out, rank]:
// x W^T + scale (x A^T) B^T. A begins uniform in [-1, 1) / sqrt(in), as `kaiming_uniform_(a=sqrt(5))` of PyTorch, and B
// with zeros: so training starts from the model as it is.
//
// Tensor ranks: where W is split by rows, so is B, and each rank has all of A; where W is split by columns, so is A,
// and (x A^T) is summed over the ranks before B.
#ifndef MODEL_LORA_H
#define MODEL_LORA_H

#include "base/json.h"
#include "model/model.h"

#define LORA_CONFIG "adapter_config.json"
#define LORA_WEIGHTS "adapter_model.safetensors"
#define LORA_PREFIX "base_model.model." // before the names of the model's layers

// Takes the next name off *rest, a list separated by commas, without blanks around it; its length, 0: there is none.
int lora_next(const char **rest, const char **name);
// By what the adapters of a rank and an alpha are multiplied.
double lora_scale(const struct lora *lora, int64_t rank, double alpha);
// Whether `module`, as "model.layers.0.self_attn.q_proj", is called so, or ends so behind a point.
bool lora_names(const char *name, int length, const char *module);
// Whether the layer that files call `module` has an adapter: it is one of the targets, or ends as one does.
bool lora_adapts(const struct lora *lora, const char *module);
// Its rank, and by what it is multiplied; rank 0: it has none.
int64_t lora_rank_of(const struct lora *lora, const char *module, double *scale);
// The layers of a block that adapters may have, as files call them. Returns how many.
enum { LORA_STEMS = 7, LORA_RANK_MAX = 65536 };
int lora_stems(const struct model_config *config, const char *stem[LORA_STEMS]);
// Sets the targets from a list of names separated by commas, or "all-linear": all linear layers but the head. Refuses
// (TRIREME_ERROR_USAGE) names that no layer of the model has, naming those that there are.
trireme_status lora_set_targets(struct model_config *config, const char *list, trireme_error *error);

// Sets them to names that there are, which it sorts.
void lora_keep_targets(struct model_config *config, char **name, size_t count);

// Which layers of a model have adapters, in PEFT's words, beside rank and alpha (lora_choice.c).
struct lora_choice {
    const char *targets;          // "target_modules": as lora_set_targets takes them
    bool expression;              // or a regular expression of whole names
    const json_t *exclude;        // "exclude_modules": names, or a regular expression; NULL: none
    const json_t *layers;         // "layers_to_transform": a number or several; NULL: all
    const json_t *ranks, *alphas; // "rank_pattern", "alpha_pattern": other ranks, by regular expressions; NULL: none
    bool strict;                  // refuses patterns of these that no name matches
};
// Sets targets and exceptions of a model whose lora.rank and lora.alpha are set. TRIREME_ERROR_USAGE for what is no
// regular expression or takes too long, and where no layer is chosen.
trireme_status lora_choose(struct model_config *config, const struct lora_choice *choice, trireme_error *error);
// Sets the directory of the model that is adapted.
void lora_set_base(struct model_config *config, const char *path);
// Takes over the user's keys. Refuses those that differ from the adapters that the model has already.
trireme_status lora_override(struct model_config *config, const struct config *keys, trireme_error *error);

// An adapter_config.json of PEFT's.
struct lora_file {
    int64_t rank;
    double alpha;
    bool rslora;
    char *targets;   // a list, or
    bool expression; // a regular expression
    json_t *root;    // the file
    char *base;      // "": not known
};
// Whether a directory holds one.
bool lora_is_directory(const char *path);
// Refuses adapters in `path` that do not say which model they adapt, or one that is not there.
trireme_status lora_check_base(const char *path, const char *base, trireme_error *error);
// Reads that of the directory `path`; `base`, unless empty, replaces the model that it names. Members that ask
// for other arithmetic than these adapters', as "use_dora", are refused by name.
trireme_status lora_file_read(struct lora_file *out, const char *path, const char *base, trireme_error *error);
// The same from memory; `where` names it in messages.
trireme_status lora_file_parse(struct lora_file *out, const char *text, size_t length, const char *where,
                               const char *base, trireme_error *error);
// Gives the model the adapters that the file describes which messages call `where`.
trireme_status lora_file_take(const struct lora_file *file, const char *where, struct model_config *config,
                              trireme_error *error);
void lora_file_release(struct lora_file *file);
// Appends "lora_dropout 0.05" for the dropout that the file of a directory asks for.
void lora_dropout(const char *path, struct text *out);
// What PEFT opens and lora_file_read reads back to the same.
void lora_write(const struct model_config *config, struct text *out);

#endif

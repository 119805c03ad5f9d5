// A model's values in memory, whole and spread over ranks of one process, and what a checkpoint's files make of them.
#ifndef SUPPORT_SPREAD_H
#define SUPPORT_SPREAD_H

#include "support/models.h"

#include "ckpt/save_plan.h"

enum { SPREAD_GROUPS = 2 }; // parameters, and a moment of f32

// Over tensor ranks x shards x replicas.
struct spread {
    struct model_config config;
    struct parameter_table table;
    enum dtype dtype[SPREAD_GROUPS];
    struct save_values values[SPREAD_GROUPS]; // of the groups of the image: those of the holdings, one by one
    char **whole[SPREAD_GROUPS];              // [parameters]
    int tensor, shards, replicas, ranks;
    VEC(char *) parts; // to be freed
    VEC(struct holding) held;
    struct mesh mesh;
};

// A model of which `json` is the config.json, with any bits.
void spread_create(struct spread *s, const char *json, enum dtype dtype);
void spread_release(struct spread *s);
// Spreads the values anew.
void spread_over(struct spread *s, int tensor, int shards, int replicas);
// The files of a checkpoint of them: of the model several, and of the moment.
void spread_image(const struct spread *s, struct image *image);
// Who holds what.
void spread_holders(const struct spread *s, struct holders *out);
void spread_own(const struct spread *s, int rank, struct holdings *out);
// All files, one after another, made of blocks of some size as the plans of the ranks say; the caller frees.
char *spread_files(const struct spread *s, const struct image *image, int64_t block_bytes, size_t *bytes);

#endif

// Internal to model/: types of layers. Sliding windows of attention, of one size in all layers that have one: which
// layers do, in Hugging Face's config.json ("layer_types", "max_window_layers", "use_sliding_window") and in the user's
// keys, which also say which layers have linear attention. Members of attention's struct layer_part.
#ifndef MODEL_LAYERS_LAYER_WINDOWS_H
#define MODEL_LAYERS_LAYER_WINDOWS_H

#include "model/layer.h"

enum layer_type { LAYER_FULL, LAYER_SLIDING, LAYER_LINEAR };

// Gives the `layers` layers these types, and the window to those that slide; all else about them stays as it is.
trireme_status windows_set(struct model_config *config, const enum layer_type *type, int64_t layers, int64_t window,
                           trireme_error *error);
extern const char *const windows_members[];
trireme_status windows_read(const struct model_reader *reader);
void windows_write(json_t *root, const struct model_config *config, const struct architecture_info *architecture);
bool windows_fit(const struct architecture_info *architecture, const struct model_config *config);
trireme_status windows_check(const struct model_config *config, trireme_error *error);
trireme_status windows_override(struct model_config *config, const struct config *keys, trireme_error *error);
void windows_differ(const struct model_config *weights, const struct model_config *model, struct model_difference *out);
void windows_describe(const struct model_config *config, struct text *out);

#endif

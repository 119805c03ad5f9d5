// A YAML text as a tree of mappings, lists and scalars, for files that are not configurations: clusters. Each node
// knows its line and, by its parents, its path ("devices.a100.memory"), so that whoever reads it can refuse what is
// wrong naming file, line and key. Depth, nodes and lengths are bounded; keys that are there twice, aliases, anchors
// and tags are refused (TRIREME_ERROR_USAGE).
#ifndef CONFIG_TREE_H
#define CONFIG_TREE_H

#include "base/base.h"
#include "base/text.h"

enum { TREE_NODES_MAX = 1 << 20, TREE_DEPTH_MAX = 12, TREE_KEYS_MAX = 1024, TREE_BYTES_MAX = 1 << 26 };

enum tree_form { TREE_SCALAR, TREE_LIST, TREE_MAPPING };

// Nodes are told by their number; the outermost is 0, -1 is none.
struct tree_node {
    enum tree_form form;
    int line;
    char *key;                         // in a mapping, else NULL
    char *text;                        // of a scalar: "" for nothing
    int parent, child, next, position; // first child, next of the same parent, how many come before it there
};

struct tree {
    char *name; // stands for the file in messages
    VEC(struct tree_node) nodes;
};

// An empty text is an empty mapping; anything else but a mapping is refused. The caller releases *out.
trireme_status tree_parse(struct tree *out, const char *name, const char *yaml, size_t length, trireme_error *error);
void tree_release(struct tree *tree);
// The member of a mapping, -1 where it is absent.
int tree_member(const struct tree *tree, int mapping, const char *key);
int tree_children(const struct tree *tree, int node);
// "file:line: path: " and then the format's text. TRIREME_ERROR_USAGE.
trireme_status tree_refuse(const struct tree *tree, int node, trireme_error *error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// Refuses a node of another form, saying what is wanted: "a mapping", "a list", "a word or number".
trireme_status tree_expect(const struct tree *tree, int node, enum tree_form form, trireme_error *error);
// Refuses members of a mapping that are not among `known` (words separated by spaces), naming the nearest.
trireme_status tree_known(const struct tree *tree, int mapping, const char *known, trireme_error *error);

// What a figure counts. Its unit must be given, and one of these: bytes in B, kB, MB, GB, TB (or KiB ... TiB); rates in
// bytes or bits per second, GB/s, Gbit/s; times in s, ms, us, ns; operations in GFLOP/s, TFLOP/s, PFLOP/s. A plain
// number has none.
enum quantity { QUANTITY_NUMBER, QUANTITY_BYTES, QUANTITY_RATE, QUANTITY_SECONDS, QUANTITY_FLOPS };
// A scalar as a figure in bytes, bytes per second, seconds, operations per second or as it stands; bounds are
// inclusive.
trireme_status tree_figure(const struct tree *tree, int node, enum quantity quantity, double least, double most,
                           double *out, trireme_error *error);
trireme_status tree_integer(const struct tree *tree, int node, int64_t least, int64_t most, int64_t *out,
                            trireme_error *error);

#endif

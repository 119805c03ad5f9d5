// A YAML text as a tree of mappings, lists and scalars, for files that are not configurations: clusters. Each node
// knows its line and, by its parents, its path ("devices.a100.memory"), so that whoever reads it can refuse what is
// wrong naming file, line and key. Depth, nodes and lengths are bounded; keys that are there twice, aliases, anchors
// and tags are refused (TRIREME_ERROR_USAGE).
#ifndef CONFIG_OUTLINE_H
#define CONFIG_OUTLINE_H

#include "base/base.h"
#include "base/text.h"

enum { OUTLINE_NODES_MAX = 1 << 20, OUTLINE_DEPTH_MAX = 12, OUTLINE_KEYS_MAX = 1024, OUTLINE_BYTES_MAX = 1 << 26 };

enum outline_form { OUTLINE_SCALAR, OUTLINE_LIST, OUTLINE_MAPPING };

// Nodes are numbered; the outermost is 0, -1 is none.
struct outline_node {
    enum outline_form form;
    int line;
    char *key;                         // in a mapping, else NULL
    char *text;                        // of a scalar: "" for nothing
    int parent, child, next, position; // first child, next of the same parent, how many come before it there
};

struct outline {
    char *name; // stands for the file in messages
    VEC(struct outline_node) nodes;
};

// An empty text is an empty mapping; anything else but a mapping is refused. The caller releases *out.
trireme_status outline_parse(struct outline *out, const char *name, const char *yaml, size_t length,
                             trireme_error *error);
void outline_release(struct outline *outline);
// The member of a mapping, -1 where it is absent.
int outline_member(const struct outline *outline, int mapping, const char *key);
int outline_children(const struct outline *outline, int node);
// "file:line: path: " and then the format's text. TRIREME_ERROR_USAGE.
trireme_status outline_refuse(const struct outline *outline, int node, trireme_error *error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// Refuses a node of another form, saying what is wanted: "a mapping", "a list", "a word or number".
trireme_status outline_expect(const struct outline *outline, int node, enum outline_form form, trireme_error *error);
// Refuses members of a mapping that are not among `known` (words separated by spaces), naming the nearest.
trireme_status outline_known(const struct outline *outline, int mapping, const char *known, trireme_error *error);

// What a figure counts. Its unit must be given, and one of these: bytes in B, kB, MB, GB, TB (or KiB ... TiB); rates in
// bytes or bits per second, GB/s, Gbit/s; times in s, ms, us, ns; operations in GFLOP/s, TFLOP/s, PFLOP/s. A plain
// number has none.
enum quantity { QUANTITY_NUMBER, QUANTITY_BYTES, QUANTITY_RATE, QUANTITY_SECONDS, QUANTITY_FLOPS };
// A scalar as a figure: bytes, bytes per second, seconds, operations per second, or a plain number. Bounds are
// inclusive.
trireme_status outline_figure(const struct outline *outline, int node, enum quantity quantity, double least,
                              double most, double *out, trireme_error *error);
// The same for words of a command line, which `name` stands for in messages ("island_bandwidth"); there the unit may be
// left out. TRIREME_ERROR_USAGE.
trireme_status figure_read(const char *name, const char *text, enum quantity quantity, double least, double most,
                           double *out, trireme_error *error);
trireme_status outline_integer(const struct outline *outline, int node, int64_t least, int64_t most, int64_t *out,
                               trireme_error *error);

// The same for a member of a mapping. It must be there (need), or may be left out (may), in which case *out stays as it
// is.
trireme_status outline_need(const struct outline *outline, int mapping, const char *key, int *out,
                            trireme_error *error);
trireme_status outline_need_figure(const struct outline *outline, int mapping, const char *key, enum quantity quantity,
                                   double least, double most, double *out, trireme_error *error);
trireme_status outline_may_figure(const struct outline *outline, int mapping, const char *key, enum quantity quantity,
                                  double least, double most, double *out, trireme_error *error);
trireme_status outline_need_integer(const struct outline *outline, int mapping, const char *key, int64_t least,
                                    int64_t most, int *out, trireme_error *error);
trireme_status outline_may_integer(const struct outline *outline, int mapping, const char *key, int64_t least,
                                   int64_t most, int *out, trireme_error *error);

#endif

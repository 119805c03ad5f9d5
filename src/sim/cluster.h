// sim/: the time and memory that a step of given programs takes on given machines, and what they consist of, computed
// without running anything. Reads the programs that exec/ runs, and never includes exec/. Includes base/, config/,
// mesh/, program/, of kernels/ only what says in which dtype an instruction computes, and of compile/ what a run's
// programs are.
//
//   cluster    machines as a file describes them; efficiency: the part of it about what a device reaches
//   fit        such a description from measurements; import: from measurements of other programs
//   cost       seconds of one instruction on a device, of a collective or a message on links
//   topology   which ranks are alike, and what lies between the ranks of a group
//   simulate   the instructions of all ranks in time, from programs that prepare has laid out for it
//   memory     what a program's peak consists of
//   exchanges  what a program communicates over each group
//   sequence   the programs of a period as one; run_simulation: all that a run does over and over
//   trace      a simulated step as a trace for people to look at; picture: as SVG
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include "program/program.h"

enum { CLUSTER_LINKS_MAX = 6, CLUSTER_LEVELS_MAX, CURVE_LETTERS_MAX = 6, CLUSTER_DEVICES_MAX = 1 << 20 };

static const double FILE_BANDWIDTH = 2e9; // of an ordinary solid-state drive

// An op as it was measured: a matrix product of m x k by k x n, or any other op by the bytes that it moves.
struct curve_point {
    enum dtype dtype;
    double m, n, k; // 0 for any other op
    double bytes;
    double seconds;
};
// The bytes of a matrix product's operands.
static inline double product_bytes(double m, double n, double k, enum dtype dtype) {
    return (m * k + n * k + m * n) * (double)dtype_size(dtype);
}

// How much of the peak and of the memory's bandwidth an op reaches on operands of one dtype:
//   seconds = launch + max(least, flops / (peak * compute * f), (bytes + half_bytes) / (bandwidth * memory))
//   f = product over letters of x / (x + half), where x is the extent of a letter of the op's row (ops.def)
// and launch is the sum of the op's and the device's. A measured point takes the place of the last two terms of the
// maximum, and corrects estimates near it: the maximum is multiplied by the factor by which it is wrong at nearby
// points, weighted by their distance in octaves.
struct curve {
    double compute; // 1 where a file says nothing; 0: only bytes cost time, operations do not
    double memory;  // above 0
    double half_bytes;
    double launch; // seconds
    double least;  // seconds that a host takes to issue the op, while the device still has work
    // One kernel does the op only where the product of the extents of its letters b and h is a multiple of `fused`;
    // else it takes `unfused` kernels, each with its launch and its least. 0: always one kernel.
    int fused, unfused;
    int letters;
    struct {
        char letter;
        double half;
    } half[CURVE_LETTERS_MAX];
};

// Where `ranks` ranks share a device, each has the rates of another device of the file: `device`, its index.
struct shared {
    int ranks, device;
};

struct device {
    char *name;
    double peak[DTYPE_COUNT];       // FLOP/s, 0: does not compute with it
    int64_t memory, runtime_memory; // bytes; each rank's runtime takes the second
    double bandwidth;               // bytes per second, of its memory
    double file_bandwidth;          // bytes per second, to and from files; 0: FILE_BANDWIDTH
    double launch;                  // seconds from one instruction's end to the next one's beginning
    // Of CPUs: threads that run at once. Several ranks may then share a device, up to its cores: each has an equal part
    // of all rates, or the rates of the device that `shared` names for that many ranks.
    int cores;
    VEC(struct shared) shared;
    double communication; // the part of its computing that it loses while it communicates: 1 where cores do both
    // The same work takes a little longer on one rank than on another. So ranks that meet within a layer wait for the
    // slowest: `meeting` seconds each time, plus the part `jitter` of what they have computed since they last met
    // there.
    double meeting, jitter;
    struct curve curve[OP_COUNT][DTYPE_COUNT];
    struct curve other[DTYPE_COUNT]; // of ops that the file does not mention
    VEC(struct curve_point) points[OP_COUNT];
};

struct node_group {
    int device, nodes, devices; // devices of each node
};

enum link_algorithm { LINK_RING, LINK_TREE, LINK_DIRECT };

// What messages share that are under way at the same time: nothing, as if each of them were alone; the link of a rank
// to a switch, over which goes all that the rank sends and receives; or the link between two ranks, which each two
// have.
enum link_wiring { WIRING_NONE, WIRING_SWITCH, WIRING_DIRECT };

// A collective as it was measured within a level.
struct link_point {
    enum op op; // OP_SEND: a message
    int ranks;
    double bytes; // of the whole tensor: an all_reduce's or reduce_scatter's input, an all_gather's output
    double seconds;
};

// What joins the parts that the level below holds: ranks of a device, devices of a node, nodes.
struct link_level {
    char *name;
    enum { SPAN_DEVICE, SPAN_NODE, SPAN_NODES, SPAN_ALL, SPAN_ISLANDS } span;
    int nodes;        // SPAN_NODES: how many
    double start;     // seconds, once for each collective
    double message;   // seconds, once for each message
    double latency;   // seconds, for each of an algorithm's steps
    double bandwidth; // bytes per second each way, of one rank or of one adapter
    int adapters;     // of a part; 0: each rank has its own
    enum link_wiring wiring;
    bool half_duplex;              // only with a wiring: both directions of a link share its bandwidth
    enum link_algorithm algorithm; // steps to gather among n parts: ring n - 1, tree log2 n, direct 1
    VEC(struct link_point) points; // by op, ranks, bytes
};

struct straggler {
    int device;    // counted through all nodes
    double slower; // the factor by which its computing takes longer
};

// How collectives go over several levels: level by level; pipelined, each level working on the pieces that the one
// before has finished, so that the slowest level decides; or in rings through all ranks, so that each level carries
// everything that goes round.
enum collectives { COLLECTIVES_IN_TURN, COLLECTIVES_PIPELINED, COLLECTIVES_RING, COLLECTIVES_COUNT };
extern const char *const COLLECTIVES_WORDS[COLLECTIVES_COUNT];

struct cluster {
    char *name;  // of the file
    char *about; // one line, or NULL
    VEC(struct device) devices;
    VEC(struct node_group) groups;
    int levels;
    // From the inside out; the last of a file's CLUSTER_LINKS_MAX spans all. One rank: none. Behind them there may be
    // one for islands (cluster_join_islands).
    struct link_level level[CLUSTER_LEVELS_MAX];
    enum collectives collectives;
    VEC(struct straggler) stragglers;
    int total_devices;
    // Set by callers, not by files. ranks_per_device: how many ranks a device has at least, even where there are fewer
    // ranks than devices. ranks_before: how many ranks of somebody else the devices have before this run's first.
    int ranks_per_device, ranks_before;
};

// Reads a file's text; `name` stands for the file in messages (TRIREME_ERROR_USAGE, with line and key). The caller
// releases *out.
trireme_status cluster_parse(struct cluster *out, const struct op_table *table, const char *name, const char *yaml,
                             size_t length, trireme_error *error);
// Appends the file's text.
void cluster_print(const struct cluster *cluster, const struct op_table *table, struct text *out);
// `what`: the name of a shipped cluster, or the path of a file (TRIREME_ERROR_IO: it cannot be read). The caller
// releases *out.
trireme_status cluster_load(struct cluster *out, const struct op_table *table, const char *what, trireme_error *error);
// TRIREME_ERROR_USAGE, with `why` and a list of the shipped clusters.
trireme_status cluster_refuse(const char *why, trireme_error *error);
// Cuts the cluster down to its first `devices` devices. Refuses more than it has.
trireme_status cluster_resize(struct cluster *cluster, int devices, trireme_error *error);
// From now on what islands exchange goes over links of their own, whatever else lies between their devices: a ring, on
// which each island has one adapter for all its ranks. Both are words of a command line, and have units (figure_read):
// `bandwidth` is one way, `latency` of each of the ring's steps, 0 where it is NULL. Without a
// bandwidth nothing is done, but a latency alone is refused (TRIREME_ERROR_USAGE).
trireme_status cluster_join_islands(struct cluster *cluster, const char *bandwidth, const char *latency,
                                    trireme_error *error);
void cluster_release(struct cluster *cluster);

// Orders by op, ranks, bytes, for qsort.
int link_point_compare(const void *a, const void *b);

// The node of a device, counted through all nodes, and its type (an index of `devices`).
int cluster_node(const struct cluster *cluster, int device);
int cluster_type(const struct cluster *cluster, int device);
// Whether any device is a CPU, on which each core may have a rank.
bool cluster_has_cores(const struct cluster *cluster);

// The shipped clusters, one line each, for people.
trireme_status clusters_help(struct text *out, const struct op_table *table, trireme_error *error);

#endif

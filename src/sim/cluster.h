// sim/: what a step of given programs takes on given machines: time, memory and what they are made of, computed without
// running anything. Reads the programs that exec/ runs, and never includes it. Includes what stands above: base/,
// config/, mesh/, program/, kernels/ (in which dtype an instruction computes, no more).
//
//   cluster    machines as a file describes them; efficiency: its part about what a device reaches
//   fit        such a description from measurements; import: from those of other programs
//   cost       seconds of one instruction on a device, of a collective or a message on links
//   topology   which ranks are alike, and what lies between the ranks of a group
//   simulate   the instructions of all ranks in time, which prepare lays out for it
//   memory     what a program's peak consists of
//   trace      a simulated step to look at; picture: as SVG
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include "program/program.h"

enum { CLUSTER_LEVELS_MAX = 6, CURVE_LETTERS_MAX = 6, CLUSTER_DEVICES_MAX = 1 << 20 };

// An op as it was measured: a matrix product of m x k by k x n, or any other op by the bytes that it moves.
struct curve_point {
    enum dtype dtype;
    double m, n, k; // 0: of another op
    double bytes;
    double seconds;
};

// How much of the peak and of the memory's bandwidth an op reaches on operands of one dtype:
//   seconds = launch + max(least, flops / (peak * compute * f), (bytes + half_bytes) / (bandwidth * memory))
//   f = product over letters of x / (x + half), x the extent of a letter of the op's row (ops.def)
// The op's `launch` is added to the device's. Measured points stand for themselves, and draw what lies near along: the
// maximum is multiplied by what it is wrong by at points nearby, weighted by their distance in octaves.
struct curve {
    double compute; // 1 where a file says nothing; 0: operations cost nothing beside the bytes
    double memory;  // above 0
    double half_bytes;
    double launch; // seconds
    double least;  // seconds: what a host takes to issue it, while the device still has work
    // One kernel does it only where the product of its letters b and h is a multiple of `fused`; else so many do, each
    // with its launch and its least. 0: always one.
    int fused, unfused;
    int letters;
    struct {
        char letter;
        double half;
    } half[CURVE_LETTERS_MAX];
};

// Of so many ranks that share a device, each has the rates of another one.
struct shared {
    int ranks, device;
};

struct device {
    char *name;
    double peak[DTYPE_COUNT];       // FLOP/s, 0: does not compute with it
    int64_t memory, runtime_memory; // bytes; the second is taken by the runtime of each rank
    double bandwidth;               // bytes per second, of its memory
    double launch;                  // seconds from one instruction's end to the next one's begin
    // Of CPUs: threads that it runs at once. Several ranks may then share a device, up to its cores: each has its part
    // of all rates, or the rates of the device that `shared` names for so many ranks.
    int cores;
    VEC(struct shared) shared;
    double communication; // the part of its computing that it loses while it communicates: 1 where cores do both
    // What is alike takes a little longer on one rank than on another: those that meet within a layer wait for the
    // slowest so many seconds each time, and for this part of what they have computed since they met there last.
    double meeting, jitter;
    struct curve curve[OP_COUNT][DTYPE_COUNT];
    struct curve other[DTYPE_COUNT]; // what ops have that nothing is said of
    VEC(struct curve_point) points[OP_COUNT];
};

struct node_group {
    int device, nodes, devices; // devices of each node
};

enum link_algorithm { LINK_RING, LINK_TREE, LINK_DIRECT };

// A collective as it was measured within a level.
struct link_point {
    enum op op; // OP_SEND: a message
    int ranks;
    double bytes; // of the whole: what all_reduce takes in, all_gather gives, reduce_scatter takes in
    double seconds;
};

// What joins the parts that the level below holds: ranks of a device, devices of a node, nodes.
struct link_level {
    char *name;
    enum { SPAN_DEVICE, SPAN_NODE, SPAN_NODES, SPAN_ALL } span;
    int nodes;                     // SPAN_NODES
    double start;                  // seconds: once for each collective
    double message;                // seconds: the same for a message
    double latency;                // seconds: of each of an algorithm's steps
    double bandwidth;              // bytes per second, each way: of one rank, or of one adapter
    int adapters;                  // of a part; 0: each rank has its own
    enum link_algorithm algorithm; // ring: n - 1 steps to gather among n parts; tree: log2 n; direct: 1
    VEC(struct link_point) points; // by op, ranks, bytes
};

struct straggler {
    int device;    // counted through all nodes
    double slower; // its computing takes so many times as long
};

// How collectives go over several levels: one after the other; each on what the one before has finished already, so
// that the slowest decides; or by rings through all ranks, so that each level takes all that goes round.
enum collectives { COLLECTIVES_IN_TURN, COLLECTIVES_PIPELINED, COLLECTIVES_RING, COLLECTIVES_COUNT };
extern const char *const COLLECTIVES_WORDS[COLLECTIVES_COUNT];

struct cluster {
    char *name;  // of the file
    char *about; // one line, or NULL
    VEC(struct device) devices;
    VEC(struct node_group) groups;
    int levels;
    struct link_level level[CLUSTER_LEVELS_MAX]; // from the inside out; the last spans all. One rank: none
    enum collectives collectives;
    VEC(struct straggler) stragglers;
    int total_devices;
    // What no file says: ranks of a device, at least, also where there are fewer than devices; and how many ranks of
    // others the devices have before the first.
    int ranks_per_device, ranks_before;
};

// Reads a file's text; `name` stands for it in messages (TRIREME_ERROR_USAGE, with line and key).
trireme_status cluster_parse(struct cluster *out, const struct op_table *table, const char *name, const char *yaml,
                             size_t length, trireme_error *error);
// Appends the file's text.
void cluster_print(const struct cluster *cluster, const struct op_table *table, struct text *out);
// A cluster that is shipped, by its name, or the path of a file.
trireme_status cluster_load(struct cluster *out, const struct op_table *table, const char *what, trireme_error *error);
// TRIREME_ERROR_USAGE: `why`, and which clusters are shipped.
trireme_status cluster_refuse(const char *why, trireme_error *error);
// Leaves so many devices of the cluster: its first ones. Refuses more than it has.
trireme_status cluster_resize(struct cluster *cluster, int devices, trireme_error *error);
void cluster_release(struct cluster *cluster);

// By op, ranks, bytes, for qsort.
int link_point_compare(const void *a, const void *b);

// Of a device's number: its node, its type (an index of `devices`).
int cluster_node(const struct cluster *cluster, int device);
int cluster_type(const struct cluster *cluster, int device);
// Whether a device has cores, each of which may have a rank: a CPU.
bool cluster_has_cores(const struct cluster *cluster);

// The shipped clusters, one line each, for people.
trireme_status clusters_help(struct text *out, const struct op_table *table, trireme_error *error);

#endif

// Where ranks lie on a cluster, what lies between the ranks of a group, and which ranks nothing tells apart.
//
// Ranks are numbered as mesh.h does, and take devices in order; where there are more ranks than devices, each device
// has as many.
#ifndef SIM_TOPOLOGY_H
#define SIM_TOPOLOGY_H

#include "sim/cluster.h"

// What a rank computes on.
struct station {
    const struct device *device;
    double part;   // of its rates
    double slower; // its time is so many times as long
    int64_t room;  // bytes: of the whole device's memory what one of the ranks that share it has
};

// What a rank has of the device with this number, of those that ranks_per_device share each.
struct station station_on(const struct cluster *cluster, int device, int ranks_per_device);

// Between the members of a group. At each level so many parts are joined, at most (1: nothing to do there). Each rank
// of a part carries one of as many shares of what goes between them as there are parts below, times over; where a part
// has fewer ranks of the group than others, its ranks carry more, as if they had less bandwidth.
struct route {
    int ranks;
    int parts[CLUSTER_LEVELS_MAX];
    double bandwidth[CLUSTER_LEVELS_MAX]; // bytes per second of one rank, beside the others that use the same adapters
    double alone[CLUSTER_LEVELS_MAX];     // and if nobody else used them; 0: the same
};

// One use of links: collectives of `group`; with `peer` those between a rank and the rank so far along the one axis, or
// messages from the one to the other.
struct link_use {
    axis_set group;
    int peer;
    bool message;
};

struct topology {
    const struct cluster *cluster;
    struct mesh mesh;
    int ranks, ranks_per_device;
    size_t uses;
    struct link_use *use;
    struct route **route; // [uses]: what a rank's group goes over: [uses][ranks]
    // By topology_classify. Ranks of one class are alike. A rank's class follows from its coordinates alone: along each
    // axis coordinates are put into so many kinds, and a class is a kind along each.
    int kinds[AXIS_COUNT];
    int *kind[AXIS_COUNT];  // of each coordinate
    int *first[AXIS_COUNT]; // the first coordinate of each kind
    int classes;
};

// How many of so many ranks each device has.
int topology_share(const struct cluster *cluster, int ranks);
// The same of a mesh; refuses (TRIREME_ERROR_USAGE) a mesh of more than there is room for.
trireme_status topology_check(const struct cluster *cluster, const struct mesh *mesh, int *ranks_per_device,
                              trireme_error *error);
// The first device that one of so many ranks is on and that has no peak of a dtype; NULL: all have.
const struct device *topology_without(const struct cluster *cluster, int ranks, enum dtype dtype);
// Threads that the kernels of a rank have: `asked`, or where that is 0 the rank's part of the first device's cores.
int topology_threads(const struct cluster *cluster, int64_t asked, int ranks_per_device);
// Refuses (TRIREME_ERROR_USAGE) more ranks than the cluster has room for.
trireme_status topology_create(struct topology *out, const struct cluster *cluster, const struct mesh *mesh,
                               const struct link_use *uses, size_t count, trireme_error *error);
// Once, for those who ask for classes; where few ranks are alike it takes longer than all the rest. Coordinates along
// AXIS_PP are told apart always; along the others where device, straggler or links differ, or all of them with
// `every_rank`.
void topology_classify(struct topology *topology, bool every_rank);
void topology_release(struct topology *topology);

struct station topology_station(const struct topology *topology, int rank);
// The first rank of a class, and the class of a rank.
int topology_rank(const struct topology *topology, int who);
int topology_class(const struct topology *topology, int rank);
// How many ranks the class has.
int topology_members(const struct topology *topology, int who);

#endif

// Where ranks lie on a cluster, what lies between the ranks of a group, and which ranks nothing tells apart.
//
// Ranks are numbered as in mesh.h, and take devices in order; where there are more ranks than devices, all devices have
// equally many.
#ifndef SIM_TOPOLOGY_H
#define SIM_TOPOLOGY_H

#include "sim/cluster.h"

// What a rank computes on.
struct station {
    const struct device *device;
    double part;   // the rank's share of the device's rates
    double slower; // the factor by which its time is longer (struct straggler)
    int64_t room;  // the rank's share of the device's memory, in bytes
};

// The station of a rank on the device with this number, where ranks_per_device ranks share each device.
struct station station_on(const struct cluster *cluster, int device, int ranks_per_device);

// What lies between the members of a group. What goes between the parts of a level is divided among the ranks of a
// part: each carries 1 / (product of the parts of the levels below). Where a part has fewer ranks of the group than
// others, its ranks carry more, which counts as less bandwidth.
struct route {
    int ranks;
    int parts[CLUSTER_LEVELS_MAX];        // the most that the level joins; 1: nothing to do there
    double bandwidth[CLUSTER_LEVELS_MAX]; // bytes per second of one rank while others use the same adapters
    double alone[CLUSTER_LEVELS_MAX];     // bytes per second if nobody else used them; 0: the same
};

// One use of links: collectives of `group`. With `peer`, collectives between each rank and the rank at this distance
// along the group's one axis, or messages from the first to the second. Open ones do not wrap around: some ranks send
// nothing, others receive nothing.
enum link_message { LINK_NO_MESSAGE, LINK_MESSAGE, LINK_OPEN_MESSAGE };
struct link_use {
    axis_set group;
    int peer;
    enum link_message message;
};

// Whether the rank has a peer: at the ends of a group it may have none.
bool link_use_is_of(const struct mesh *mesh, const struct link_use *use, int rank);

struct topology {
    const struct cluster *cluster;
    struct mesh mesh;
    int ranks, ranks_per_device;
    size_t uses;
    struct link_use *use;
    struct route **route; // [uses][ranks]: what the use goes over in the rank's group
    // Set by topology_classify. Ranks of one class are alike. A rank's class follows from its coordinates alone: the
    // coordinates along each axis are put into kinds, and a class is a choice of one kind along each axis.
    int kinds[AXIS_COUNT];  // how many
    int *kind[AXIS_COUNT];  // of each coordinate
    int *first[AXIS_COUNT]; // the first coordinate of each kind
    int classes;
};

// How many ranks each device has where there are `ranks` ranks in all.
int topology_share(const struct cluster *cluster, int ranks);
// The same for a mesh; refuses (TRIREME_ERROR_USAGE) a mesh with more ranks than there is room for.
trireme_status topology_check(const struct cluster *cluster, const struct mesh *mesh, int *ranks_per_device,
                              trireme_error *error);
// The device that a rank is on where ranks_per_device ranks share each.
int topology_device(const struct cluster *cluster, int rank, int ranks_per_device);
// The first device, among those that `ranks` ranks are on, that has no peak for the dtype; NULL: all have one.
const struct device *topology_without(const struct cluster *cluster, int ranks, enum dtype dtype);
// Threads for the kernels of a rank: `asked`, or where that is 0 the rank's part of the first device's cores.
int topology_threads(const struct cluster *cluster, int64_t asked, int ranks_per_device);
// Finds the routes of `uses[count]` for all ranks. Refuses (TRIREME_ERROR_USAGE) more ranks than the cluster has room
// for. The caller releases *out, which points to the cluster.
trireme_status topology_create(struct topology *out, const struct cluster *cluster, const struct mesh *mesh,
                               const struct link_use *uses, size_t count, trireme_error *error);
// Finds the classes. To be called once, and only where classes are needed: with few ranks alike it takes longer than
// everything else here. Ranks with different coordinates along axes of `apart` are always in different classes; those
// with different coordinates along other axes only where device, straggler or links differ.
void topology_classify(struct topology *topology, axis_set apart);
void topology_release(struct topology *topology);

struct station topology_station(const struct topology *topology, int rank);
// The first rank of a class, and the class of a rank.
int topology_rank(const struct topology *topology, int who);
int topology_class(const struct topology *topology, int rank);
// How many ranks the class has.
int topology_members(const struct topology *topology, int who);

#endif

// Seconds of one instruction. Computing: from its flops and bytes (ops.def) and what the device reaches on such
// operands (cluster.h). Communication: from its bytes and what lies between the ranks (topology.h).
#ifndef SIM_COST_H
#define SIM_COST_H

#include "sim/topology.h"

// On rank `rank` of the mesh. `accumulates`: outputs are added to what is there.
double cost_compute(const struct station *station, const struct program *program, const struct op_table *table,
                    const struct instruction *instruction, int rank, bool accumulates);
// The axes along which ranks do not have equal shares of the instruction's work: attention of the queries of one part
// of a sequence, which see more keys than those of other parts.
axis_set cost_unequal(const struct program *program, const struct instruction *instruction);
// A collective (all_reduce, all_gather, reduce_scatter, reduce, broadcast), where `bytes` are those of the whole tensor
// that each rank gives or gets; or a message of `bytes` bytes (send).
//
// At each level n parts are joined. Each rank of a part works on 1 / (product of the parts below) of the whole; to
// gather or to reduce that takes steps * latency + (n - 1) / n * bytes / bandwidth, where bytes are those of its share.
// An all_reduce does both. The levels' times add up; where levels are pipelined the slowest transfer decides, and in a
// ring too, where n is the size of the whole group. The largest `start` of a level (a message: `message`) comes once on
// top. Measured points are used instead where one level alone joins all ranks; a broadcast without points of its own
// takes those of all_gather. A reduce is made as an all_reduce, and costs as much. In an all_to_all each rank sends
// over a level what is for the ranks of the other parts, however many are below.
//
// Where both directions of a link share its bandwidth, the bytes of a level count twice, since a rank receives while it
// sends; once in a ring over links between each two of three or more ranks, of which each carries one direction.
double cost_communicate(const struct cluster *cluster, const struct route *route, enum op op, double bytes);
// The part of a message's seconds in which nothing of it travels yet.
double cost_latency(const struct cluster *cluster, const struct route *route);
// The one level that joins the ranks; NONE where several do.
int route_only_level(const struct cluster *cluster, const struct route *route);
// Bytes of the whole tensor that the instruction communicates, in the dtype in which it travels.
double communicated_bytes(const struct program *program, const struct instruction *instruction);

#endif

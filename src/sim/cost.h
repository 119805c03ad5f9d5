// Seconds of one instruction: of computing, from its flops and bytes (ops.def) and what the device reaches on such
// operands (cluster.h); of communication, from its bytes and what lies between the ranks (topology.h).
#ifndef SIM_COST_H
#define SIM_COST_H

#include "sim/topology.h"

// `accumulates`: outputs are added to what is there.
double cost_compute(const struct station *station, const struct program *program, const struct op_table *table,
                    const struct instruction *instruction, bool accumulates);
// A collective (all_reduce, all_gather, reduce_scatter, reduce, broadcast) on `bytes`, those of the whole that each
// rank gives or gets; or a message of so many (send).
//
// At each level n parts are joined, each by one of its ranks, that has 1 / (product of the parts below) of the whole:
// to gather or to reduce takes steps * latency + (n - 1) / n * bytes / bandwidth; all_reduce does both. Levels add up,
// or where they are pipelined the slowest decides; in a ring likewise, and n is there all that the group has. Measured
// points of a level that alone joins all ranks go before, for broadcast without points those of all_gather. A reduce is
// made as an all_reduce, and costs as much.
double cost_communicate(const struct cluster *cluster, const struct route *route, enum op op, double bytes);
// The level that alone joins the ranks, NONE where several do.
int route_only_level(const struct cluster *cluster, const struct route *route);
// Bytes of the whole that the instruction communicates, as they travel.
double communicated_bytes(const struct program *program, const struct instruction *instruction);

#endif

// The keys of a mesh, short: DP "2" is a setting.
#ifndef SUPPORT_MESH_KEYS_H
#define SUPPORT_MESH_KEYS_H

#define DP "parallelism.data_parallel_replicate_degree="
#define FSDP "parallelism.data_parallel_shard_degree="
#define ZERO "parallelism.zero_stage="
#define UNIT "parallelism.data_parallel_unit_layers="
#define TP "parallelism.tensor_parallel_degree="
#define CP "parallelism.context_parallel_degree="
#define PP "parallelism.pipeline_parallel_degree="

#endif

// A cluster's file, from hostile bytes.
#include "sim/cluster.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct op_table *ops;
    trireme_error error = {.status = TRIREME_OK};
    struct cluster cluster;
    if (!ops)
        ops = op_table_create();
    trireme_status status = cluster_parse(&cluster, ops, "cluster.yaml", (const char *)data, size, &error);
    if (status != TRIREME_OK) {
        CHECK(error.status == status && error.message[0] && !strchr(error.message, '\n'));
        return 0;
    }
    int nodes = 0;
    for (size_t i = 0; i < cluster.groups.count; i++)
        nodes += cluster.groups.item[i].nodes;
    for (int device = 0; device < cluster.total_devices; device += 1 + cluster.total_devices / 16) {
        CHECK(cluster_type(&cluster, device) < (int)cluster.devices.count);
        CHECK(cluster_node(&cluster, device) < nodes);
    }
    CHECK(cluster_resize(&cluster, 1 + cluster.total_devices / 3, &error) == TRIREME_OK);
    cluster_release(&cluster);
    return 0;
}

// Another machine's figures, from hostile bytes: a cluster that takes them prints, and reads back or says
// why not.
#include "sim/fit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct op_table *ops;
    trireme_error error = {.status = TRIREME_OK};
    struct cluster cluster, again;
    if (!ops)
        ops = op_table_create();
    if (size > 4096) // fitting takes long where there is much
        return 0;
    CHECK(cluster_load(&cluster, ops, "a100", &error) == TRIREME_OK);
    trireme_status status = fit_import(&cluster, ops, "figures", (const char *)data, size, &error);
    if (status == TRIREME_OK) {
        struct text text = {0};
        cluster_print(&cluster, ops, &text);
        if (cluster_parse(&again, ops, "printed", text.text, text.length, &error) != TRIREME_OK)
            CHECK(error.message[0]);
        else
            cluster_release(&again);
        text_release(&text);
    } else {
        CHECK(error.status == status && error.message[0] && !strchr(error.message, '\n'));
    }
    cluster_release(&cluster);
    return 0;
}

// config.json from hostile bytes. What is accepted must be possible, and written again it must read back to the same.
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct model_config config, again;
    trireme_error error = {.status = TRIREME_OK};
    trireme_status status = model_config_parse(&config, (const char *)data, size, "config.json", &error);
    if (status != TRIREME_OK) {
        CHECK(error.status == status && error.message[0] && !strchr(error.message, '\n'));
        return 0;
    }
    CHECK(model_config_check(&config, &error) == TRIREME_OK);
    struct text text = {0};
    model_config_write(&config, "float32", &text);
    CHECK(model_config_parse(&again, text.text, text.length, "config.json", &error) == TRIREME_OK);
    CHECK(model_config_compare(&config, &again, true, &error) == TRIREME_OK);
    CHECK(config.bos_token_id == again.bos_token_id && config.eos_token_id == again.eos_token_id);
    text_release(&text);
    if (config.num_hidden_layers <= 4) {
        struct parameter_table table;
        parameter_table_create(&table, &config);
        CHECK(table.total > 0 && model_flops(&config, 1, 1) > 0);
        parameter_table_release(&table);
    }
    return 0;
}

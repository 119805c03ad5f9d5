// PEFT's adapter_config.json from hostile bytes. What is accepted and fits a model reads back to the same.
#include "model/lora.h"

static const char MODEL[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"num_hidden_layers\": 2, "
    "\"hidden_size\": 64, \"intermediate_size\": 96, \"num_attention_heads\": 4, \"vocab_size\": 100, "
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5}";

static trireme_status adapter_take(struct model_config *model, const char *text, size_t length, trireme_error *error) {
    struct lora_file file;
    CHECK(model_config_parse(model, MODEL, sizeof MODEL - 1, "config.json", error) == TRIREME_OK);
    TRY(lora_file_parse(&file, text, length, "adapter_config.json", "", error));
    const trireme_status status = lora_file_take(&file, "adapter_config.json", model, error);
    lora_file_release(&file);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct model_config model, again;
    trireme_error error = {.status = TRIREME_OK};
    trireme_status status = adapter_take(&model, (const char *)data, size, &error);
    if (status != TRIREME_OK) {
        CHECK(error.status == status && error.message[0] && !strchr(error.message, '\n'));
        return 0;
    }
    struct text text = {0};
    lora_write(&model, &text);
    CHECK(adapter_take(&again, text.text, text.length, &error) == TRIREME_OK);
    CHECK(model_config_compare(&model, &again, true, &error) == TRIREME_OK);
    text_release(&text);
    if (model.lora.rank <= 64) {
        struct parameter_table table;
        parameter_table_create(&table, &model);
        CHECK(table.frozen && table.total > 0);
        parameter_table_release(&table);
    }
    return 0;
}

// The table of optimizers and the rows ONLY of keys.def say the same: which settings count for which optimizer.
#include "config/config.h"
#include "support/test.h"

#include <ctype.h>
#include <string.h>

// Attributes, each with a space before it, of an optimizer and of the one that has the parameters it is not for.
static const struct {
    const char *symbol, *rest, *attributes;
} OPTIMIZERS[] = {
#define STATE(...)
#define KEY(attribute) " " #attribute " "
#define OPTIMIZER(symbol, op, begin, emit, takes, rest, states, attributes) {#symbol, #rest, attributes},
#include "optim/optimizers.def"
#undef OPTIMIZER
#undef KEY
#undef STATE
};

static const char *attributes_of(const char *symbol) {
    for (size_t i = 0; i < ARRAY_LENGTH(OPTIMIZERS); i++)
        if (strcmp(OPTIMIZERS[i].symbol, symbol) == 0)
            return OPTIMIZERS[i].attributes;
    fail_msg("no optimizer %s", symbol);
    return "";
}

static void settings_count_where_optimizers_have_them(void **unused) {
    (void)unused;
    static const char *const SETTINGS[] = {"beta1", "beta2", "eps", "momentum", "weight_decay"};
    for (size_t i = 0; i < ARRAY_LENGTH(OPTIMIZERS); i++)
        for (size_t k = 0; k < ARRAY_LENGTH(SETTINGS); k++) {
            char *attribute = mem_printf(" %s ", SETTINGS[k]);
            char *set[] = {mem_printf("optimizer.name=%s", OPTIMIZERS[i].symbol),
                           mem_printf("optimizer.%s=0.5", SETTINGS[k])};
            for (char *c = set[0] + strlen("optimizer.name="); *c; c++)
                *c = (char)tolower((unsigned char)*c);
            const bool has =
                strstr(OPTIMIZERS[i].attributes, attribute) || strstr(attributes_of(OPTIMIZERS[i].rest), attribute);
            struct config config;
            struct text idle = {0};
            trireme_error error = {0};
            assert_int_equal(config_load(&config, NULL, (const char *const *)set, 2, &error), TRIREME_OK);
            config_without_effect(&config, &idle);
            if ((idle.length == 0) != has)
                fail_msg("%s %s a setting %s, but rows ONLY of config/keys.def say otherwise", OPTIMIZERS[i].symbol,
                         has ? "has" : "does not have", SETTINGS[k]);
            text_release(&idle);
            config_release(&config);
            free(attribute), free(set[0]), free(set[1]);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(settings_count_where_optimizers_have_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Bytes and seconds as people read them: which unit they get, and how amounts just below the next unit are rounded.
#include "base/amount.h"
#include "support/test.h"

#include <math.h>

static void bytes_have_the_unit_in_which_they_are_below_1000(void **state) {
    (void)state;
    static const struct {
        int64_t bytes;
        const char *text;
    } CASES[] = {{0, "0 B"},
                 {1, "1 B"},
                 {999, "999 B"},
                 {1000, "1.0 kB"},
                 {1049, "1.0 kB"},
                 {1051, "1.1 kB"},
                 {999949, "999.9 kB"},
                 {999950, "1.0 MB"},
                 {999949999, "999.9 MB"},
                 {999950000, "1.0 GB"},
                 {999949999999, "999.9 GB"},
                 {999950000000, "1.0 TB"},
                 {1148900000000, "1.1 TB"},
                 {999950000000000, "1.0 PB"},
                 {INT64_MAX, "9.2 EB"},
                 {-1, "-1 B"},
                 {-999949, "-999.9 kB"},
                 {-999950, "-1.0 MB"},
                 {INT64_MIN, "-9.2 EB"}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++)
        assert_string_equal(amount(CASES[i].bytes).text, CASES[i].text);
}

static void one_is_singular(void **state) {
    (void)state;
    assert_string_equal(counted(1, "layer").text, "1 layer");
    assert_string_equal(counted(0, "layer").text, "0 layers");
    assert_string_equal(counted(2, "data-parallel rank").text, "2 data-parallel ranks");
    assert_string_equal(counted(-1, "token").text, "-1 tokens");
}

static void seconds_have_two_units(void **state) {
    (void)state;
    static const struct {
        double seconds;
        const char *text;
    } CASES[] = {{0, "0m00s"},
                 {.49, "0m00s"},
                 {.5, "0m01s"},
                 {59.49, "0m59s"},
                 {59.5, "1m00s"},
                 {3599.49, "59m59s"},
                 {3599.5, "1h00m"},
                 {3659, "1h00m"},
                 {3660, "1h01m"},
                 {86399.49, "23h59m"},
                 {86399.5, "1d00h"},
                 {86400 + 3599, "1d00h"},
                 {86400 + 3600, "1d01h"},
                 {1e9, "11574d01h"},
                 {1e300, "11574d01h"},
                 {INFINITY, "11574d01h"},
                 {-1, "0m00s"},
                 {-INFINITY, "0m00s"},
                 {NAN, "0m00s"}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        char text[32];
        duration_text(CASES[i].seconds, text);
        assert_string_equal(text, CASES[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_have_the_unit_in_which_they_are_below_1000),
        cmocka_unit_test(one_is_singular),
        cmocka_unit_test(seconds_have_two_units),
    };
    return cmocka_run_group_tests_name("amount", tests, NULL, NULL);
}

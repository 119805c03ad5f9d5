// ckpt/directory_manifest.h: manifests that are malformed or damaged.
#include "base/text.h"
#include "support/checkpoint.h"

static void test_malformed_manifests(void **state) {
    const char *folder = *state;
#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define FILES_OF(version, list) "{\"format\":\"trireme-directory\",\"version\":" version ",\"files\":[" list "]}"
#define FILES(list) FILES_OF("1", list)
    static const char *const CASE[][2] = {
        {"", "not valid JSON"},
        {"[]", "must be an object"},
        {"{}", "\"format\" is missing"},
        {"{\"format\":\"other\"}", "\"format\" must be \"trireme-directory\", found \"other\""},
        {"{\"format\":\"trireme-directory\",\"version\":3}", "\"version\" must be an integer from 1 to 2, found 3"},
        {"{\"format\":\"trireme-directory\",\"version\":2}", "does not end with its own checksum"},
        {FILES_OF("2", "{\"name\":\"a\",\"bytes\":1,\"blake2b\":\"" HEX "\"}"), "does not end with its own checksum"},
        {"{\"format\":\"trireme-directory\",\"version\":1}", "\"files\" is missing"},
        {FILES("1"), "must be an object"},
        {FILES("{}"), "\"name\" is missing"},
        {FILES("{\"name\":\"../a\",\"bytes\":1,\"blake2b\":\"" HEX "\"}"), "\"../a\" leaves the directory"},
        {FILES("{\"name\":\"/a\",\"bytes\":1,\"blake2b\":\"" HEX "\"}"), "leaves the directory"},
        {FILES("{\"name\":\"a/../b\",\"bytes\":1,\"blake2b\":\"" HEX "\"}"), "leaves the directory"},
        {FILES("{\"name\":\"a/\",\"bytes\":1,\"blake2b\":\"" HEX "\"}"), "leaves the directory"},
        {FILES("{\"name\":\"\",\"bytes\":1,\"blake2b\":\"" HEX "\"}"), "leaves the directory"},
        {FILES("{\"name\":\"a\",\"bytes\":-1,\"blake2b\":\"" HEX "\"}"),
         "\"bytes\" must be an integer, not negative, found -1"},
        {FILES("{\"name\":\"a\",\"bytes\":1}"), "\"blake2b\" is missing"},
        {FILES("{\"name\":\"a\",\"bytes\":1,\"blake2b\":\"AB\"}"), "must be 64 hexadecimal digits, found \"AB\""},
        {FILES("{\"name\":\"a\",\"bytes\":1,\"tensors\":1}"), "\"tensors\" must be an array"},
        {FILES("{\"name\":\"a\",\"bytes\":1,\"tensors\":[]}"), "do not add up to the file's 1 bytes"},
        {FILES("{\"name\":\"a\",\"bytes\":1,\"tensors\":[{\"name\":\"t\",\"bytes\":2,\"blake2b\":\"" HEX "\"}]}"),
         "do not add up"},
        {FILES("{\"name\":\"a\",\"bytes\":1,\"blake2b\":\"" HEX "\"},{\"name\":\"a\",\"bytes\":1,\"blake2b\":\"" HEX
               "\"}"),
         "lists \"a\" twice"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CASE); i++) {
        trireme_error error = {0};
        path_write(path_in(folder, "manifest.json"), CASE[i][0]);
        assert_refused(directory_verify(folder, MANIFEST_SIZES, NULL, &error), TRIREME_ERROR_CORRUPT, &error,
                       CASE[i][1]);
        assert_says(error.message, "/manifest.json: ");
    }
    path_write(path_in(folder, "manifest.json"),
               FILES("{\"name\":\"a\",\"bytes\":1,\"blake2b\":\"" HEX "\",\"more\":1}"));
    path_write(path_in(folder, "a"), "x");
    assert_int_equal(directory_verify(folder, MANIFEST_SIZES, NULL, NULL), TRIREME_OK);
#undef FILES
#undef FILES_OF
#undef HEX
}

// Names of tensors too, which nothing but a manifest's own checksum covers.
static void test_damaged_manifests(void **state) {
    const char *path = path_in(*state, "step-1"), *manifest = path_in(path, "manifest.json");
    assert_sample_saved(path, 1);
    trireme_error error = {0};
    char *text;
    size_t length;
    assert_ok(file_read(manifest, 1 << 20, &text, &length, &error), &error);
    for (size_t i = 0; i < length; i++)
        for (int bit = 0; bit < 8; bit++) {
            path_flip_bit(manifest, (off_t)i, bit);
            assert_refused(directory_verify(path, MANIFEST_SIZES, NULL, &error), TRIREME_ERROR_CORRUPT, &error,
                           "/manifest.json: ");
            path_flip_bit(manifest, (off_t)i, bit);
        }
    assert_ok(directory_verify(path, MANIFEST_CONTENT, NULL, &error), &error);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_malformed_manifests),
        IN_FOLDER(test_damaged_manifests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

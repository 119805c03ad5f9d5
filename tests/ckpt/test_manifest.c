// ckpt/directory_manifest.h: manifests that are malformed or damaged.
#include "base/text.h"
#include "support/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

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
        {"{\"format\":\"trireme-directory\",\"version\":4}", "\"version\" must be an integer from 1 to 3, found 4"},
        {"{\"format\":\"trireme-directory\",\"version\":3}", "does not end with its own checksum"},
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

// Writes a manifest by hand, as old versions have it: the list of files, and what else is in the object.
static void manifest_by_hand(const char *folder, int version, const char *list) {
    char hex[CHECKSUM_HEX],
        *text = mem_printf("{\"format\":\"trireme-directory\",\"version\":%d,\"files\":[%s]", version, list);
    checksum_of(text, strlen(text), hex);
    char *all = version == 1 ? mem_printf("%s}\n", text) : mem_printf("%s,\"blake2b\":\"%s\"}\n", text, hex);
    path_write(path_in(folder, "manifest.json"), all);
    free(all);
    free(text);
}

static char *part_of(const char *name, const char *content, size_t bytes) {
    char hex[CHECKSUM_HEX];
    checksum_of(content, bytes, hex);
    return mem_printf("{\"name\":\"%s\",\"bytes\":%zu,\"blake2b\":\"%s\"}", name, bytes, hex);
}

// Before there were blocks, tensors had checksums.
static void test_old_versions(void **state) {
    const char *folder = *state, *content = "headerfirstsecond", *file = path_in(folder, "tensors");
    char *header = part_of("__header__", content, 6), *first = part_of("first", content + 6, 5),
         *second = part_of("second", content + 11, 6);
    char *list = mem_printf("{\"name\":\"tensors\",\"bytes\":17,\"tensors\":[%s,%s,%s]}", header, first, second);
    trireme_error error = {0};
    for (int version = 1; version <= 2; version++) {
        path_write(file, content);
        manifest_by_hand(folder, version, list);
        assert_ok(directory_verify(folder, MANIFEST_CONTENT, NULL, &error), &error);
        path_flip_bit(file, 12, 1);
        assert_refused(directory_verify(folder, MANIFEST_CONTENT, NULL, &error), TRIREME_ERROR_CORRUPT, &error,
                       "/tensors: tensor \"second\" (bytes 11 to 17) is damaged: BLAKE2b expected ");
        path_flip_bit(file, 7, 1);
        assert_refused(directory_verify(folder, MANIFEST_CONTENT, NULL, &error), TRIREME_ERROR_CORRUPT, &error,
                       "/tensors: tensor \"first\" (bytes 6 to 11) is damaged: BLAKE2b expected ");
        assert_int_equal(truncate(file, 8), 0);
        assert_refused(directory_verify(folder, MANIFEST_SIZES, NULL, &error), TRIREME_ERROR_CORRUPT, &error,
                       "truncated: 8 bytes, expected 17; first tensor cut off: \"first\", bytes 6 to 11");
    }
    free(header);
    free(first);
    free(second);
    free(list);
}

static bool is_state(const char *name) {
    return strcmp(name, "state.safetensors") == 0 || strncmp(name, "training/", 9) == 0;
}

// What is read of a model and its training state has checksums, or the directory is not complete.
static void test_what_is_read_is_listed(void **state) {
    static const char *const FILES[] = {"config.json",
                                        "model.safetensors",
                                        "model.safetensors.index.json",
                                        "training/state.safetensors",
                                        "training/state.safetensors.index.json",
                                        "training/progress.json",
                                        "state.safetensors"};
    const char *folder = *state;
    trireme_error error = {0};
    assert_int_equal(mkdir(path_in(folder, "training"), 0700), 0);
    path_write(path_in(folder, "notes.json"), "of the user's");
    for (size_t i = 0; i < ARRAY_LENGTH(FILES); i++)
        path_write(path_in(folder, FILES[i]), "content");
    for (size_t left_out = 0; left_out <= ARRAY_LENGTH(FILES); left_out++) {
        struct text list = {0};
        for (size_t i = 0; i < ARRAY_LENGTH(FILES); i++) {
            char *part = part_of(FILES[i], "content", 7);
            if (i != left_out)
                text_add(&list, "%s%s", list.length ? "," : "", part);
            free(part);
        }
        manifest_by_hand(folder, 1, list.text);
        text_release(&list);
        if (left_out == ARRAY_LENGTH(FILES)) {
            assert_ok(directory_verify(folder, MANIFEST_CONTENT, NULL, &error), &error);
            break;
        }
        char *says = mem_printf("/manifest.json: does not list %s, so that no damage of it", FILES[left_out]);
        assert_refused(directory_verify(folder, MANIFEST_CONTENT, NULL, &error), TRIREME_ERROR_CORRUPT, &error, says);
        assert_refused(directory_verify(folder, MANIFEST_SIZES, NULL, &error), TRIREME_ERROR_CORRUPT, &error, says);
        free(says);
        // Who wants the model alone does without what is listed of the rest.
        const struct manifest_check model = {.content = true, .spare = is_state};
        assert_int_equal(directory_verify(folder, model, NULL, &error) == TRIREME_OK, is_state(FILES[left_out]));
        // A file that is not there need not be listed, except for weights.
        assert_int_equal(unlink(path_in(folder, FILES[left_out])), 0);
        if (strcmp(FILES[left_out], "model.safetensors") == 0)
            assert_refused(directory_verify(folder, MANIFEST_SIZES, NULL, &error), TRIREME_ERROR_CORRUPT, &error,
                           "/manifest.json: lists a model without weights");
        else
            assert_ok(directory_verify(folder, MANIFEST_SIZES, NULL, &error), &error);
        path_write(path_in(folder, FILES[left_out]), "content");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_malformed_manifests),
        IN_FOLDER(test_damaged_manifests),
        IN_FOLDER(test_old_versions),
        IN_FOLDER(test_what_is_read_is_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

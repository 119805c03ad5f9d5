// Opens arbitrary bytes as token files, and walks and samples whatever opens. The first byte chooses the form:
// Megatron's pair, cut in two by the next two bytes, or up to two shards of llm.c. Also reads the bytes as a manifest.
#include "data/sampler.h"
#include "data/token_manifest.h"

#include <unistd.h>

static char folder[200];

static char *place(const char *name) {
    return mem_printf("%s/%s", folder, name);
}

static void remove_folder(void) {
    static const char *const names[] = {"t.bin", "t.idx", "t.json", "s0.bin", "s1.bin"};
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        char *path = place(names[i]);
        unlink(path);
        free(path);
    }
    rmdir(folder);
}

static void put(const char *name, const uint8_t *bytes, size_t length) {
    char *path = place(name);
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(bytes, 1, length, file) == length && fclose(file) == 0);
    free(path);
}

static void walk(const struct token_set *set) {
    enum { MOST = 1000 };
    trireme_error error = {0};
    int32_t tokens[MOST];
    int64_t total = token_set_tokens(set), documents = 0;
    CHECK(total > 0);
    for (int64_t at = 0; at < MIN(total, 100 * MOST); at += MOST)
        if (token_set_read(set, at, MIN(total, at + MOST), 60000, tokens, &error) == TRIREME_OK)
            for (int64_t i = 0; i < MIN(total - at, MOST); i++)
                CHECK(tokens[i] >= 0 && tokens[i] < 60000);
    for (int64_t from = 0, found; from < total && documents < MOST; from = found + 1, documents++) {
        if (token_set_next_document(set, from, total, &found, &error) != TRIREME_OK)
            break;
        CHECK(found >= from && found <= total);
    }
    struct sampler_options options = {.seed = 1,
                                      .seq_len = total % 50 + 1,
                                      .global_batch_size = 3,
                                      .vocab_size = 100000,
                                      .validation_fraction = total % 7 / 6.0,
                                      .whole = total % 3 == 0};
    struct sampler s;
    if (sampler_init(&s, set, &options, &error) != TRIREME_OK)
        return;
    static const int64_t LAYOUT[] = {PLACES_CONTIGUOUS, PLACES_ZIGZAG, 1, 3};
    const int64_t layout = LAYOUT[total % 4], parts = total % 5 + 1;
    const struct places places = {layout, parts, places_rows(layout, parts, options.seq_len)};
    int32_t memory[4][3 * 51];
    struct sampler_batch batch = {places, total % parts, memory[0], memory[1], memory[2], memory[3]};
    for (int split = SAMPLER_TRAIN; split <= SAMPLER_VALIDATION; split++)
        for (int64_t step = 0; step < 20 && s.source[0].range[split].windows; step++)
            if (sampler_fill(&s, split, step, 0, 3, &batch, NULL, &error) == TRIREME_OK)
                for (int64_t i = 0; i < 3 * places.rows; i++)
                    CHECK(memory[2][i] >= 0 && memory[2][i] <= place_of(&places, batch.part, i % places.rows) &&
                          memory[1][i] >= -1);
    sampler_release(&s);
}

// A manifest that says of so many bytes of tokens that they are masked.
static void put_masked(const uint8_t *index, size_t length, size_t bytes) {
    const int code = length > 17 ? index[17] : 0;
    const int width = code == 1 ? 1 : code == 4 ? 4 : code == 5 ? 8 : 2;
    struct token_manifest m = {.tokenizer_kind = "x",
                               .tokenizer_checksum = "y",
                               .vocab_size = 9,
                               .tokens = (int64_t)bytes / width,
                               .documents = 1,
                               .masked = true};
    struct text json = {0};
    token_manifest_print(&m, &json);
    put("t.json", (const uint8_t *)json.text, json.length);
    text_release(&json);
}

static void open_set(const char *name) {
    trireme_error error = {0};
    char *path = place(name);
    struct token_set *set;
    if (token_set_open(path, &set, &error) == TRIREME_OK) {
        walk(set);
        token_set_close(set);
    } else {
        CHECK(error.status != TRIREME_OK && error.message[0] && !strchr(error.message, '\n'));
    }
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!folder[0]) {
        // Kept off the disk where that can be: every input is written to files.
        bool memory = access("/dev/shm", W_OK) == 0;
        snprintf(folder, sizeof folder, "%s/trireme-fuzz-XXXXXX", memory ? "/dev/shm" : "/tmp");
        CHECK(mkdtemp(folder));
        atexit(remove_folder);
    }
    if (size < 3)
        return 0;
    size_t cut = MIN((size_t)(data[1] | data[2] << 8), size - 3);
    const uint8_t *first = data + 3, *second = first + cut;
    size_t second_length = size - 3 - cut;
    if (data[0] % 2 == 0) {
        put("t.idx", first, cut);
        put("t.bin", second, second_length);
        open_set("t");
        put_masked(first, cut, second_length);
        open_set("t");
        put("t.json", first, cut);
        struct token_manifest m;
        bool found;
        char *path = place("t");
        token_manifest_read(path, second_length / 2, &m, &found, NULL);
        free(path);
        path = place("t.json");
        unlink(path);
        free(path);
    } else {
        put("s0.bin", first, cut);
        put("s1.bin", second, second_length);
        open_set("s0.bin");
        open_set("s*.bin");
    }
    return 0;
}

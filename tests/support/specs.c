// Ways to train (struct spec) in words, and their batches and schedule files.
#include "support/meshes_internal.h"

int spec_ranks(const struct spec *s) {
    return spec_replicas(s) * degree(s->cp) * degree(s->tp) * degree(s->pp);
}

int spec_replicas(const struct spec *s) {
    return degree(s->dp) * degree(s->fsdp) * degree(s->island);
}

// ---- shapes

static bool divides(int n, int by) {
    return n % by == 0;
}

struct shape spec_shape(const struct spec *s) {
    int replicas = spec_replicas(s), tp = degree(s->tp);
    return divides(24, replicas) && divides(24, tp) ? (struct shape){24, degree(s->cp) > 1 ? 11 : 12}
                                                    : (struct shape){35, 5};
}

int64_t spec_layout(const struct spec *s) {
    enum { STRIPE = 2 };
    const bool zigzag = s->ring && strcmp(s->ring, "zigzag") == 0, striped = s->ring && strcmp(s->ring, "striped") == 0;
    return striped ? STRIPE : zigzag ? PLACES_ZIGZAG : PLACES_CONTIGUOUS;
}

// How many ranks share a part of a sequence.
static int64_t spec_exchange(const struct spec *s) {
    return s->exchange && !s->ring ? degree(s->cp) : MAX(s->exchange, 1);
}

// The parts of sequences.
static struct places spec_places(const struct spec *s, struct shape shape) {
    return places_shared(spec_layout(s), degree(s->cp) / spec_exchange(s), spec_exchange(s), shape.seq_len);
}

int spec_micro_batch_size(const struct spec *s, struct shape shape) {
    int sequences = shape.sequences / spec_replicas(s);
    int size = s->micro_batch_size ? s->micro_batch_size : sequences / (s->pp > 1 ? s->pp + 1 : 2);
    size = MAX(size, 1);
    while (size > 1 && !divides(sequences, size))
        size--;
    const int rows = (int)(spec_places(s, shape).rows / spec_exchange(s));
    // With sequence parallelism the rows of a microbatch divide by the ranks.
    while (size < sequences && (!divides(sequences, size) || !divides(size * rows, degree(s->tp))))
        size++;
    return size;
}

// ---- words

static void add_word(char text[SPEC_TEXT], const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add_word(char text[SPEC_TEXT], const char *format, ...) {
    size_t length = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + length, SPEC_TEXT - length, format, args);
    va_end(args);
}

void spec_print(const struct spec *s, char text[SPEC_TEXT]) {
    text[0] = 0;
    if (s->island > 1)
        add_word(text, " x island %d", s->island);
    if (s->dp > 1)
        add_word(text, " x dp %d", s->dp);
    if (s->fsdp > 1)
        add_word(text, " x fsdp %d (zero %d)", s->fsdp, s->zero);
    if (s->cp > 1)
        add_word(text, " x cp %d", s->cp);
    if (s->cp > 1 && s->ring)
        add_word(text, " %s, %s", s->way ? s->way : "in a ring", s->ring);
    if (s->inner_ring)
        add_word(text, " (rings of %d)", s->inner_ring);
    if (s->cp > 1 && s->exchange)
        add_word(text, " (%d exchange)", (int)spec_exchange(s));
    if (s->node)
        add_word(text, " cut at %d (inside %x, whole %x)", s->node, s->inner, s->whole);
    if (s->cp > 1 && s->fsdp <= 1 && s->zero)
        add_word(text, " (zero %d)", s->zero);
    if (s->tp > 1)
        add_word(text, " x tp %d%s%s", s->tp, s->no_sequence ? "" : " (sp)", s->overlap ? " overlapped" : "");
    if (s->pp > 1)
        add_word(text, " x pp %d (%s%s%s%s)", s->pp, text_or(s->schedule, "1f1b"), *s->layout ? " " : "", s->layout,
                 s->vocabulary ? ", vocabulary spread" : "");
    if (text[0])
        memmove(text, text + 3, strlen(text + 3) + 1);
    else
        add_word(text, "one rank");
    if (s->dtype)
        add_word(text, ", %s", s->dtype);
    if (s->reduce)
        add_word(text, ", reduced in %s", s->reduce);
    if (s->optimizer)
        add_word(text, ", %s", s->optimizer);
    if (s->freeze)
        add_word(text, ", %s frozen", s->freeze);
    if (s->lora)
        add_word(text, ", adapters of %s", s->lora);
    if (s->recompute)
        add_word(text, ", recompute %s", s->recompute);
    if (s->full_layers)
        add_word(text, ", %s layers recomputed", s->full_layers);
    if (s->selective_layers)
        add_word(text, ", %s selectively", s->selective_layers);
    if (s->prefetch)
        add_word(text, ", prefetch %d", MAX(s->prefetch, 0));
    if (s->unit_layers)
        add_word(text, ", units of %d layers", MAX(s->unit_layers, 0));
    if (s->micro_batch_size)
        add_word(text, ", microbatches of %d", spec_micro_batch_size(s, spec_shape(s)));
    if (s->logits_rows)
        add_word(text, ", %d rows of logits", s->logits_rows);
}

int spec_chunks(const struct spec *s) {
    static const char *const TWO[] = {"loop", "wave", "interleaved", "zb-v", "v-half", "v-min", "hanayo", AUTO_OF_TWO};
    for (size_t i = 0; i < ARRAY_LENGTH(TWO) && s->pp > 1 && s->schedule; i++)
        if (strncmp(s->schedule, TWO[i], strlen(TWO[i])) == 0)
            return 2;
    return 1;
}

bool spec_possible(const struct spec *s, const struct model_config *model) {
    const struct shape shape = spec_shape(s);
    const bool contiguous = s->way && strcmp(s->way, "lightseq") == 0;
    if (s->way && (s->exchange || (contiguous && strcmp(s->ring, "contiguous") != 0)))
        return false;
    if (degree(s->cp) % spec_exchange(s) || spec_exchange(s) * degree(s->tp) > model->num_attention_heads ||
        (spec_exchange(s) > 1 && model->attention_sinks) ||
        (s->cp > 1 && model_is_recurrent(model) && (spec_layout(s) != PLACES_CONTIGUOUS || spec_exchange(s) > 1)))
        return false;
    const struct places places = spec_places(s, shape);
    const int64_t last = spec_exchange(s) == 1 ? 0 : places.rows - places.rows / spec_exchange(s);
    return place_of(&places, places.parts - 1, last) < shape.seq_len && s->tp <= model->num_attention_heads &&
           s->pp * spec_chunks(s) <= model->num_hidden_layers;
}

// ---- schedules that are files

static const char *const SCHEDULE_FILES[] = {"pairs", "reversed", "crossed",    "split",
                                             "loop",  "wave",     "loop split", "wave split"};

static bool is_schedule_file(const struct spec *s) {
    for (size_t i = 0; i < ARRAY_LENGTH(SCHEDULE_FILES) && s->pp > 1 && s->schedule; i++)
        if (strcmp(s->schedule, SCHEDULE_FILES[i]) == 0)
            return true;
    return false;
}

static bool says(const struct spec *s, const char *word) {
    return strstr(s->schedule, word) != NULL;
}

// Forwards of all microbatches chunk by chunk, then backwards; weights at the end of each three, or with backward.
static void write_chunks(FILE *f, const struct spec *s, int microbatches) {
    static const char *const SUFFIX[][2] = {{"", ""}, {".0", ".1"}};
    int chunks = spec_chunks(s);
    bool split = says(s, "split");
    const char *const *suffix = SUFFIX[chunks > 1];
    for (int m = 0; m < microbatches; m += 3) {
        int end = MIN(m + 3, microbatches);
        for (int c = 0; c < chunks; c++)
            for (int k = m; k < end; k++)
                fprintf(f, "F%d%s ", k, suffix[c]);
        for (int c = chunks; c-- > 0;)
            for (int k = m; k < end; k++)
                fprintf(f, "%s%d%s ", split && k % 4 ? "I" : "B", k, suffix[c]);
        for (int c = chunks; c-- > 0;)
            for (int k = m; k < end && split; k++)
                if (k % 4)
                    fprintf(f, "W%d%s ", k, suffix[c]);
    }
}

// Two microbatches forwards, then both backwards, and so on.
static void write_pairs(FILE *f, const struct spec *s, int microbatches, int stage) {
    bool reversed = says(s, "reversed"), crossed = says(s, "crossed");
    for (int m = 0; m < microbatches; m += 2) {
        int n = MIN(2, microbatches - m);
        for (int k = 0; k < n; k++)
            fprintf(f, "F%d ", m + (crossed && stage == 0 ? n - 1 - k : k));
        for (int k = 0; k < n; k++)
            fprintf(f, "B%d ", m + (reversed ? n - 1 - k : k));
    }
}

char *spec_write_schedule(const struct spec *s, struct shape shape) {
    if (!is_schedule_file(s))
        return NULL;
    int sequences = shape.sequences / spec_replicas(s);
    int microbatches = sequences / spec_micro_batch_size(s, shape), chunks = spec_chunks(s);
    const char *directory = getenv("TMPDIR");
    char *path = mem_printf("%s/schedule-XXXXXX", text_or(directory, "/tmp"));
    int file = mkstemp(path);
    FILE *f = file >= 0 ? fdopen(file, "w") : NULL;
    CHECK(f);
    if (chunks > 1) {
        fprintf(f, "placement");
        for (int v = 0; v < chunks * s->pp; v++)
            fprintf(f, " %d", says(s, "wave") && v / s->pp % 2 ? s->pp - 1 - v % s->pp : v % s->pp);
        fprintf(f, "\n");
    }
    for (int stage = 0; stage < s->pp; stage++) {
        if (chunks > 1 || says(s, "split"))
            write_chunks(f, s, microbatches);
        else
            write_pairs(f, s, microbatches, stage);
        fprintf(f, "\n");
    }
    CHECK(fclose(f) == 0);
    return path;
}

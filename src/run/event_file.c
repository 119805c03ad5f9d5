// A record is a length, its checksum, a message and its checksum (tensorflow/core/lib/io/record_writer.h). Messages are
// protocol buffers (tensorboard/compat/proto/event.proto and summary.proto): fields, each with a number and a kind.
#include "run/event_file.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

// Kinds of a field: how its value is written.
enum { VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 5 };
enum { EVENT_WALL_TIME = 1, EVENT_STEP, EVENT_FILE_VERSION, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_TENSOR = 8, VALUE_METADATA };
enum { SESSION_STATUS = 1, STATUS_START = 1 };
enum { METADATA_PLUGIN = 1, PLUGIN_NAME = 1, TENSOR_DTYPE = 1, TENSOR_SHAPE, TENSOR_STRING = 8, DTYPE_STRING = 7 };

// ---- messages

static void add_varint(struct text *out, uint64_t value) {
    for (; value > 127; value >>= 7)
        text_add_bytes(out, &(char){(char)(value | 128)}, 1);
    text_add_bytes(out, &(char){(char)value}, 1);
}

static void event_add_key(struct text *out, unsigned field, unsigned kind) {
    add_varint(out, field << 3 | kind);
}

static void event_add_bytes(struct text *out, unsigned field, const void *bytes, size_t length) {
    event_add_key(out, field, BYTES);
    add_varint(out, length);
    text_add_bytes(out, bytes, length);
}

static void add_integer(struct text *out, unsigned field, int64_t value) {
    event_add_key(out, field, VARINT);
    add_varint(out, (uint64_t)value);
}

static double event_now(void) {
    return 1e-9 * (double)clock_real();
}

// `seconds`: when it was, since the epoch.
static void begin_event(struct text *out, int64_t step, double seconds) {
    event_add_key(out, EVENT_WALL_TIME, EIGHT_BYTES);
    text_add_bytes(out, (const char *)&seconds, sizeof seconds);
    if (step)
        add_integer(out, EVENT_STEP, step);
}

static void add_scalar(struct text *summary, const char *tag, double value) {
    const float single = (float)value;
    struct text inner = {0};
    event_add_bytes(&inner, VALUE_TAG, tag, strlen(tag));
    event_add_key(&inner, VALUE_SIMPLE, FOUR_BYTES);
    text_add_bytes(&inner, (const char *)&single, sizeof single);
    event_add_bytes(summary, SUMMARY_VALUE, inner.text, inner.length);
    text_release(&inner);
}

// ---- records

// CRC-32C, rotated and with a constant added, so that data which contain checksums can be checksummed.
static uint32_t masked_checksum(const char *bytes, size_t length) {
    enum { POLYNOMIAL = 0x82f63b78 };
    uint32_t c = ~0u;
    for (size_t i = 0; i < length; i++) {
        c ^= (uint8_t)bytes[i];
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (c & 1 ? (uint32_t)POLYNOMIAL : 0);
    }
    c = ~c;
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

static trireme_status write_event(struct event_file *events, struct text *message, trireme_error *error) {
    const uint64_t length = message->length;
    const uint32_t of_length = masked_checksum((const char *)&length, sizeof length),
                   of_message = masked_checksum(message->text, message->length);
    struct text record = {0};
    text_add_bytes(&record, (const char *)&length, sizeof length);
    text_add_bytes(&record, (const char *)&of_length, sizeof of_length);
    text_add_bytes(&record, message->text, message->length);
    text_add_bytes(&record, (const char *)&of_message, sizeof of_message);
    text_release(message);
    const trireme_status status = file_append(fileno(events->file), events->path, record.text, record.length, error);
    text_release(&record);
    return status;
}

// ---- files

#define FILE_NAME "events.out.tfevents."
enum { SECONDS_DIGITS = 10 };

// The second in the name of the last of a directory's files; -1: there are none.
static int64_t last_second(const char *directory) {
    int64_t last = -1;
    DIR *dir = opendir(directory);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const char *digits = e->d_name + strlen(FILE_NAME);
        if (strncmp(e->d_name, FILE_NAME, strlen(FILE_NAME)) == 0 && strspn(digits, "0123456789") == SECONDS_DIGITS)
            last = MAX(last, strtoll(digits, NULL, 10));
    }
    if (dir)
        closedir(dir);
    return last;
}

// TensorBoard reads a directory's files in the order of their names: the new one must sort last, even if the clock has
// been set back, or a process with a higher number has started in the same second.
static trireme_status event_create(struct event_file *events, const char *directory, trireme_error *error) {
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    const int64_t now = clock_real() / 1000000000, next = last_second(directory) + 1;
    for (int number = 0; !events->file; number++) {
        free(events->path);
        events->path = mem_printf("%s/" FILE_NAME "%0*lld.%s.%ld.%d", directory, SECONDS_DIGITS,
                                  (long long)MAX(now, next), host, (long)getpid(), number);
        events->file = fopen(events->path, "wxe");
        if (!events->file && errno != EEXIST)
            FAIL(TRIREME_ERROR_IO, "%s: cannot create: %s", events->path, strerror(errno));
    }
    return TRIREME_OK;
}

// What TensorBoard reads first: the version, and from where the run goes on.
static trireme_status event_begin(struct event_file *events, int64_t step, trireme_error *error) {
    static const char VERSION[] = "brain.Event:2";
    struct text message = {0};
    begin_event(&message, 0, event_now());
    event_add_bytes(&message, EVENT_FILE_VERSION, VERSION, strlen(VERSION));
    TRY(write_event(events, &message, error));
    begin_event(&message, step + 1, event_now());
    struct text session = {0};
    add_integer(&session, SESSION_STATUS, STATUS_START);
    event_add_bytes(&message, EVENT_SESSION, session.text, session.length);
    text_release(&session);
    return write_event(events, &message, error);
}

trireme_status event_file_open(struct event_file *events, const char *directory, int64_t step, trireme_error *error) {
    TRY(directory_create(directory, error));
    trireme_status status = event_create(events, directory, error);
    if (status == TRIREME_OK)
        status = event_begin(events, step, error);
    if (status != TRIREME_OK) {
        if (events->file)
            unlink(events->path);
        event_file_close(events);
    }
    return status;
}

static trireme_status write_summary(struct event_file *events, int64_t step, double seconds, struct text *summary,
                                    trireme_error *error) {
    struct text message = {0};
    begin_event(&message, step, seconds);
    event_add_bytes(&message, EVENT_SUMMARY, summary->text, summary->length);
    text_release(summary);
    return write_event(events, &message, error);
}

static void add_validation(struct text *summary, double val_loss) {
    add_scalar(summary, "validation_metrics/loss", val_loss);
}

trireme_status event_file_add(struct event_file *events, const struct train_step *s, trireme_error *error) {
    struct text summary = {0};
    if (s->targets)
        add_scalar(&summary, "loss_metrics/global_avg_loss", s->loss);
    if (!isnan(s->val_loss))
        add_validation(&summary, s->val_loss);
    add_scalar(&summary, "grad_norm", s->grad_norm);
    add_scalar(&summary, "lr", s->lr);
    add_scalar(&summary, "n_tokens_seen", (double)s->tokens);
    add_scalar(&summary, "throughput(tps)", s->tokens_per_second);
    if (s->peak_flops > 0) {
        add_scalar(&summary, "tflops", s->mfu * s->peak_flops * 1e-12);
        add_scalar(&summary, "mfu(%)", 100 * s->mfu);
    }
    add_scalar(&summary, "time_metrics/end_to_end(s)", s->seconds);
    add_scalar(&summary, "time_metrics/data_loading(s)", s->wait_seconds);
    if (s->save_seconds > 0)
        add_scalar(&summary, "time_metrics/checkpoint(s)", s->save_seconds);
    if (s->validation_seconds > 0)
        add_scalar(&summary, "time_metrics/validation(s)", s->validation_seconds);
    add_scalar(&summary, "memory/max_reserved(GiB)", (double)s->peak_bytes / (1 << 30));
    return write_summary(events, s->step, s->time, &summary, error);
}

trireme_status event_file_add_validation(struct event_file *events, int64_t step, double val_loss,
                                         trireme_error *error) {
    struct text summary = {0};
    add_validation(&summary, val_loss);
    return write_summary(events, step, event_now(), &summary, error);
}

// A field that is a message; releases it.
static void event_add_message(struct text *out, unsigned field, struct text *message) {
    event_add_bytes(out, field, message->text ? message->text : "", message->length);
    text_release(message);
}

// Of the plugin "text", which shows Markdown: lines that begin with four blanks are shown as they are.
trireme_status event_file_add_sample(struct event_file *events, int64_t step, int number, const struct text *sample,
                                     trireme_error *error) {
    static const char PLUGIN[] = "text";
    struct text plugin = {0}, metadata = {0}, shape = {0}, shown = {0}, tensor = {0}, value = {0}, summary = {0};
    char *tag = mem_printf("samples/%d", number);
    event_add_bytes(&plugin, PLUGIN_NAME, PLUGIN, strlen(PLUGIN));
    event_add_message(&metadata, METADATA_PLUGIN, &plugin);
    text_add(&shown, "    ");
    for (size_t i = 0; i < sample->length; i++) {
        text_add_bytes(&shown, sample->text + i, 1);
        if (sample->text[i] == '\n')
            text_add(&shown, "    ");
    }
    add_integer(&tensor, TENSOR_DTYPE, DTYPE_STRING);
    event_add_message(&tensor, TENSOR_SHAPE, &shape); // of a single one
    event_add_message(&tensor, TENSOR_STRING, &shown);
    event_add_bytes(&value, VALUE_TAG, tag, strlen(tag));
    event_add_message(&value, VALUE_TENSOR, &tensor);
    event_add_message(&value, VALUE_METADATA, &metadata);
    event_add_message(&summary, SUMMARY_VALUE, &value);
    free(tag);
    return write_summary(events, step, event_now(), &summary, error);
}

void event_file_close(struct event_file *events) {
    if (events->file)
        fclose(events->file);
    free(events->path);
    *events = (struct event_file){0};
}

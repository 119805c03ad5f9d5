#include "engine/tuning.h"

#include <unistd.h>

void tuning_create(struct tuning *t) {
    *t = (struct tuning){0};
    pthread_mutex_init(&t->mutex, NULL);
    choices_create(&t->choices);
}

void tuning_release(struct tuning *t) {
    pthread_mutex_destroy(&t->mutex);
    choices_release(&t->choices);
    free(t->passed_over);
    free(t->untimed);
}

enum { FILE_BYTES_MAX = 1 << 24 };

static char *tuning_path_of(const char *directory) {
    return mem_printf("%s/kernels.json", directory);
}

// Only speed depends on the file: if it cannot be read, the run goes on without.
static void read_once(struct tuning *t, const char *directory) {
    if (t->read || !directory)
        return;
    t->read = true;
    char *path = tuning_path_of(directory), *text = NULL;
    size_t length;
    trireme_error why;
    if (access(path, F_OK) == 0 && (file_read(path, FILE_BYTES_MAX, &text, &length, &why) != TRIREME_OK ||
                                    choices_parse(&t->choices, text, length, path, &why) != TRIREME_OK))
        t->passed_over = mem_strdup(why.message);
    free(text);
    t->stored = t->choices.item.count;
    free(path);
}

void tuning_choose(struct tuning *t, struct engine *e, const char *directory, int64_t steps, double *saved) {
    trireme_error why;
    pthread_mutex_lock(&t->mutex);
    read_once(t, directory);
    struct executor *step = engine_executor(e, PROGRAM_TRAIN);
    if (executor_measure(step, &t->choices, steps, &why) != TRIREME_OK && !t->untimed)
        t->untimed = mem_strdup(why.message);
    for (size_t i = 0; i < e->programs.count; i++)
        executor_choose(e->programs.item[i].executor, &t->choices);
    if (saved)
        *saved = executor_saves(step, &t->choices);
    pthread_mutex_unlock(&t->mutex);
}

trireme_status tuning_store(struct tuning *t, const char *directory, trireme_error *error) {
    if (t->choices.item.count == t->stored && !t->passed_over)
        return TRIREME_OK;
    struct text text = {0};
    choices_print(&t->choices, &text);
    char *path = tuning_path_of(directory);
    trireme_status status = file_write_atomic(path, text.text, text.length, error);
    free(path);
    text_release(&text);
    return status;
}

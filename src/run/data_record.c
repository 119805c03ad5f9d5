#include "run/data_record.h"

#include "base/parallel_for.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

// ---- the file

static char *data_record_path(const char *run_directory) {
    return mem_printf("%s/data.json", run_directory);
}

trireme_status data_record_write(const char *run_directory, const char *data, const struct token_set *set,
                                 int64_t *written, trireme_error *error) {
    const int64_t known = token_set_known_blocks(set);
    if (known == *written)
        return TRIREME_OK;
    struct sums_list list = {.of = mem_strdup(data)};
    struct text text = {0};
    char *path = data_record_path(run_directory);
    token_set_list(set, &list);
    sums_list_print(&list, &text);
    trireme_status status = file_write_atomic(path, text.text, text.length, error);
    if (status == TRIREME_OK)
        *written = known;
    free(path);
    text_release(&text);
    sums_list_release(&list);
    return status;
}

trireme_status data_record_compare(const char *run_directory, const char *data, struct token_set *set,
                                   void (*read)(void *user), void *user, struct text *differs, trireme_error *damaged,
                                   trireme_error *error) {
    char *path = data_record_path(run_directory);
    struct sums_list list;
    bool found;
    trireme_status status = TRIREME_OK;
    if (sums_list_read(&list, path, &found, damaged) == TRIREME_OK) {
        if (found && list.of && strcmp(list.of, data) == 0)
            status = token_set_compare(set, &list, path, read, user, differs, error);
        sums_list_release(&list);
    }
    free(path);
    return status;
}

// ---- what is not known of the files

struct data_learner {
    const struct token_set *set;
    atomic_bool stop;
    pthread_t thread;
};

static void *learner_run(void *argument) {
    enum { LOWEST = 19 };
    const struct data_learner *learner = argument;
    setpriority(PRIO_PROCESS, (id_t)gettid(), LOWEST); // of this thread alone, as Linux has it
    token_set_learn(learner->set, &learner->stop);
    return NULL;
}

trireme_status data_learner_begin(struct data_learner **out, const struct token_set *set, trireme_error *error) {
    *out = NULL;
    if (token_set_is_known(set))
        return TRIREME_OK;
    struct data_learner *learner = mem_alloc(sizeof *learner);
    learner->set = set;
    trireme_status status =
        thread_start(&learner->thread, learner_run, learner, "the thread that makes checksums of the data", error);
    if (status == TRIREME_OK)
        *out = learner;
    else
        free(learner);
    return status;
}

void data_learner_end(struct data_learner *learner) {
    if (!learner)
        return;
    learner->stop = true;
    pthread_join(learner->thread, NULL);
    free(learner);
}

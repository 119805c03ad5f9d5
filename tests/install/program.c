// A program as a user would write it, which knows only the installed header and library. Its argument is a directory to
// work in.
#include <trireme.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Names that the library uses internally and must leave to its users.
int bug(void);
int mem_alloc(void);
int bug(void) {
    return 0;
}
int mem_alloc(void) {
    return 0;
}

// Writes a shard in the format of llm.c.
static int write_tokens(const char *path) {
    int header[256] = {20240520, 1, 1000};
    unsigned short tokens[1000];
    for (int i = 0; i < 1000; i++)
        tokens[i] = (unsigned short)(i * i % 50);
    FILE *file = fopen(path, "wb");
    if (!file)
        return 1;
    fwrite(header, sizeof header, 1, file);
    fwrite(tokens, sizeof tokens, 1, file);
    return fclose(file);
}

// An error is about this call alone, whatever it held before.
static int check_train(const char *steps, trireme_status expected, const char *message) {
    const char *setting[] = {"data.path=t.bin",
                             "model.family=llama",
                             "model.hidden_size=16",
                             "model.vocab_size=50",
                             "model.num_attention_heads=2",
                             "model.num_hidden_layers=1",
                             "training.seq_len=8",
                             "training.global_batch_size=2",
                             "run.directory=run",
                             steps};
    trireme_settings settings = {NULL, setting, sizeof setting / sizeof *setting};
    trireme_error error;
    memset(&error, 'x', sizeof error - 1);
    error.message[sizeof error.message - 1] = 0;
    trireme_status status = trireme_train(&settings, NULL, NULL, NULL, &error);
    bool told = *message ? strstr(error.message, message) != NULL : !*error.message;
    if (status == expected && error.status == status && told)
        return 0;
    fprintf(stderr, "%s: %d, %d: %s\n", steps, status, error.status, error.message);
    return 1;
}

int main(int count, char **argument) {
    if (count != 2 || chdir(argument[1]) != 0 || bug() || mem_alloc() || write_tokens("t.bin") != 0)
        return 1;
    if (check_train("training.steps=-1", TRIREME_ERROR_USAGE, "training.steps") ||
        check_train("training.steps=2", TRIREME_OK, ""))
        return 1;
    return puts(TRIREME_VERSION) < 0;
}

#include "support/directory.h"

#include "base/base.h"

int directory_setup(void **state) {
    const char *top = getenv("TMPDIR");
    char *path = mem_printf("%s/trireme-test-XXXXXX", top && *top ? top : "/tmp");
    if (!mkdtemp(path))
        return -1;
    *state = path;
    return 0;
}

int directory_teardown(void **state) {
    char *command = mem_printf("rm -rf '%s'", (char *)*state);
    int status = system(command);
    free(command);
    free(*state);
    return status;
}

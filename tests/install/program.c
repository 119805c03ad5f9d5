// A program of somebody else's, which knows nothing but the installed header and library.
#include <trireme.h>

#include <stdio.h>
#include <string.h>

// Names that the library uses inside and must leave to its users.
int bug(void);
int mem_alloc(void);
int bug(void) {
    return 0;
}
int mem_alloc(void) {
    return 0;
}

int main(void) {
    trireme_error error = {TRIREME_OK, ""};
    if (error.status != TRIREME_OK || bug() || mem_alloc())
        return 1;
    return puts(TRIREME_VERSION) < 0;
}

// Texts from standard input.
#ifndef CLI_STANDARD_INPUT_H
#define CLI_STANDARD_INPUT_H

#include "base/text.h"

// What is done with each text, which is not NUL-terminated. Messages of USAGE and CORRUPT are about the text: they get
// the number of its line.
typedef trireme_status standard_input_work(void *user, const char *text, size_t length, trireme_error *error);

// Does the work for all of standard input, of at most `limit` bytes: USAGE where it has more.
trireme_status standard_input_whole(size_t limit, standard_input_work *work, void *user, trireme_error *error);
// Does it for each line, without its end, as they come. `limit` is that of a line.
trireme_status standard_input_lines(size_t limit, standard_input_work *work, void *user, trireme_error *error);

#endif

// Where all goes that the program says: standard output and standard error.
//
// A command writes as it goes, and waits for whoever reads. One that must not wait, such as a training, calls
// console_begin: from then on lines go into queues of bounded size, which threads of their own write out. While a
// terminal is held or the reader of a pipe sleeps, lines for which there is no room are dropped; once there is room
// again, the next line says how many are missing. Lines of one stream stay in order, and so do those of two streams
// that lead to the same place, and those of two others as long as neither is held up.
#ifndef CLI_CONSOLE_H
#define CLI_CONSOLE_H

#include "base/base.h"

enum console_stream { CONSOLE_OUTPUT, CONSOLE_ERRORS, CONSOLE_STREAMS };

// A line of the run's course may be dropped. A frame, which the next one overwrites, is dropped while anything waits,
// and is not counted. A result is never dropped: there may only be few.
enum console_kind { CONSOLE_LINE, CONSOLE_FRAME, CONSOLE_RESULT };

// To be called once. IO where no thread can be started.
trireme_status console_begin(trireme_error *error);
// Any thread may call these two. The text holds its line ends. False where it is dropped, or could not be written:
// then errno says why.
bool console_add(enum console_stream stream, enum console_kind kind, const char *text, size_t length);
bool console_tell(enum console_stream stream, enum console_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// The same for one line on standard error, from a handler of signals: the text must stay in place. Before
// console_begin it is written only where that does not wait.
void console_note(const char *text);

// Seconds in which a reader takes nothing after which console_end drops lines, and after which it drops the rest.
enum { CONSOLE_PATIENCE = 1, CONSOLE_FOR_EVER = -1 };
// Waits until all is written. After console_begin only as long as whoever reads does, and for seconds at most, unless
// patience is CONSOLE_FOR_EVER. IO where standard output has not taken all but dropped lines.
trireme_status console_end(int patience, trireme_error *error);

#endif

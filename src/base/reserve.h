// What keeps a program alive that calls the library and runs out of memory: address space that is held for as long as
// calls of the library are under way, and never touched. When a table or list is refused its memory, the reserve is
// given back to the system and the table gets its memory after all; whoever asks next (reserve_check) ends the call
// with TRIREME_ERROR_MEMORY. The limits that make a system refuse memory are a process's, so the reserve is one, too:
// all calls that are under way then end.
#ifndef BASE_RESERVE_H
#define BASE_RESERVE_H

#include "base/base.h"

enum { RESERVE_BYTES = 32 << 20 };

// For the beginning and the end of a call. TRIREME_ERROR_MEMORY: there is not even that much; then nothing was taken.
trireme_status reserve_take(trireme_error *error);
void reserve_give(void);
// Gives the reserve back, since `bytes` bytes were refused. False: it was not there, or was given back before.
bool reserve_use(size_t bytes);
// TRIREME_ERROR_MEMORY from the moment at which the reserve was used until all calls have ended. Cheap.
trireme_status reserve_check(trireme_error *error);

#endif

// Whether ranks that are processes have made the same programs.
#ifndef ENGINE_COMPARE_H
#define ENGINE_COMPARE_H

#include "engine/engine.h"

// Compares each rank's programs with those that rank 0 has made for it: there, all stages are compiled. All ranks call
// it and get the same status; only rank 0 gets a message.
trireme_status compare_programs(const struct engine *engine, trireme_error *error);

#endif

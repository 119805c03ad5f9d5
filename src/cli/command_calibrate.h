// trireme bench calibrate.
#ifndef CLI_COMMAND_CALIBRATE_H
#define CLI_COMMAND_CALIBRATE_H

#include "cli/cli.h"

trireme_status bench_calibrate(const struct arguments *arguments, trireme_error *error);

#endif

// Gradients of tables that rows are looked up in: what a rank adds to one is as many rows as it has tokens, of a table
// of many more. Gathered from all ranks they are few bytes beside the table that an all_reduce would send (Kim et al.,
// "Parallax", EuroSys 2019, section 2). Internal to parallel/.
#ifndef PARALLEL_ROWS_H
#define PARALLEL_ROWS_H

#include "program/program.h"

// Lets templates make such gradients of the rows of all ranks along `group`, where the gradient is one of `tables`,
// [buffers], and those are few, or `always`. Returns of each buffer that there is now whether it holds rows of all
// ranks; the caller frees that.
bool *rows_gather(struct program *program, const int *template, int templates, axis_set group, const bool *tables,
                  bool always);
// Whether the instruction adds rows of all ranks to what is complete when all else is reduced.
bool rows_are_of_all(const struct instruction *instruction, const bool *all);

#endif

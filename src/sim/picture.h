// A picture of a pipeline as SVG, for print: a row for each rank, with a box for each thing that the rank does; what is
// left blank is the bubble. Colours also differ in lightness, for black-and-white print and for readers who tell few
// colours apart.
#ifndef SIM_PICTURE_H
#define SIM_PICTURE_H

#include "base/base.h"
#include "base/text.h"

enum picture_kind {
    PICTURE_FORWARD,
    PICTURE_BACKWARD,        // for the input and the weights
    PICTURE_BACKWARD_INPUT,  // for the input alone
    PICTURE_BACKWARD_WEIGHT, // for the weights
    PICTURE_OPTIMIZER,
    PICTURE_OTHER,
    PICTURE_KINDS
};

struct picture_box {
    double begin, end; // in any unit, from 0 on
    enum picture_kind kind;
    int chunk;      // from 0; later ones are lighter
    int microbatch; // written into the box where it fits; negative: none
};

struct picture_row {
    struct picture_box *box; // in the order of time, without overlap
    size_t count;
    int label; // the number in front of the row
};

struct picture {
    const char *title;    // UTF-8
    const char *unit;     // of time ("ms"), or ""
    const char *rows_are; // what a row stands for: "rank"
    struct picture_row *row;
    int rows, chunks;
};

// The most boxes of a picture: with more, no program opens the file.
#define PICTURE_BOXES_MAX ((size_t)1000000)

// Appends the whole file. At least one box must take time.
void picture_print(const struct picture *picture, struct text *svg);

#endif

// What pictures in SVG are made of. Lengths are in pixels of 1/96 inch.
#ifndef BASE_SVG_H
#define BASE_SVG_H

#include "base/text.h"

// Begins a picture on white, with its title `left` pixels from the edge; svg_end ends it.
void svg_begin(struct text *out, double width, double height, double left, const char *title);
void svg_end(struct text *out);
// Appends `before` and a length, to a hundredth of a pixel, without zeros at the end.
void svg_length(struct text *out, const char *before, double length);
// Appends words as character data. What XML does not allow becomes "?".
void svg_words(struct text *out, const char *words);
// Appends a box of one colour, 0xRRGGBB.
void svg_box(struct text *out, double x, double y, double width, double height, int colour);
// Appends one line of words from x, y on, or around it as the attribute text-anchor of the group around it says.
void svg_text(struct text *out, double x, double y, const char *words);
// Whether words on a colour are to be white.
bool svg_is_dark(int colour);

#endif

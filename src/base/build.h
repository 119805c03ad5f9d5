// Which build of the library this is.
#ifndef BASE_BUILD_H
#define BASE_BUILD_H

// "build 5f0c1e9a72d4, GNU 12.2.0": a hash of the sources, the compiler and its flags; then the compiler. Builds of the
// same sources with the same compiler and flags have the same text, wherever they were made.
extern const char build_text[];

#endif

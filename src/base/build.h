// Which build of the library this is.
#ifndef BASE_BUILD_H
#define BASE_BUILD_H

// "build 5f0c1e9a72d4, GNU 12.2.0": a hash of the sources, the compiler and its flags, and the compiler again. Of two
// builds of the same with the same it is the same, wherever they were made.
extern const char build_text[];

#endif

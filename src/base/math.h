// Elementary functions in double that give the same bits on every machine: they use IEEE addition, multiplication and
// division alone, and are compiled without contraction. The square root is the C library's, which IEEE fixes too.
// Worst errors found by tests/base/test_math.c, in units of the last place: exp, log, tanh, erf, sin, cos and pow
// all stay below 2 over the ranges given here.
#ifndef BASE_MATH_H
#define BASE_MATH_H

double math_exp(double x); // any x; gradual underflow
double math_log(double x); // x >= 0; -infinity at 0, NaN below
double math_tanh(double x);
double math_erf(double x);
double math_sin(double x);                             // |x| <= 2^28, NaN beyond
double math_cos(double x);                             // likewise
void math_sin_cos(double x, double *sin, double *cos); // both, in little more time than one
double math_pow(double x, double y);                   // x >= 0, NaN below; y == 0 gives 1

#endif

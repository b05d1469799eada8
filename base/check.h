/* check: assertions about our own code. Input from the network or from a disk is never checked with them.
 *
 * CHECK is in every build: the bugs that it catches would corrupt data or give wrong answers. VERIFY is for checks that
 * cost too much for production; BLOOMERY_VERIFY (presets dev and asan) compiles it in. Both end the process. */
#ifndef BLOOMERY_CHECK_H
#define BLOOMERY_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (__builtin_expect(!(condition), 0)) {                                    \
            fprintf(stderr, "%s:%d: bug: !(%s)\n", __FILE__, __LINE__, #condition); \
            abort();                                                                \
        }                                                                           \
    } while (0)

#ifdef BLOOMERY_VERIFY
#define VERIFY(condition) CHECK(condition)
#else
#define VERIFY(condition) ((void)sizeof(!(condition)))
#endif

#endif

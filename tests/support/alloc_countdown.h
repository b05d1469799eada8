/* alloc_countdown: makes an allocation of the code under test fail. For programs linked with --wrap=malloc,
 * --wrap=calloc, --wrap=realloc and, if they are used, --wrap=aligned_alloc and --wrap=mmap; allocations inside shared
 * libraries are not affected. Thread: the functions here one; what any other allocates meanwhile counts, too. */
#ifndef BLOOMERY_TEST_ALLOC_COUNTDOWN_H
#define BLOOMERY_TEST_ALLOC_COUNTDOWN_H

#include <stdbool.h>
#include <stddef.h>

/* The n-th allocation from now on (0: the next) fails, the others do not. */
void alloc_countdown_start(size_t n);

/* All fail from now on. */
void alloc_exhausted_start(void);

/* Whether what the calling thread allocates is left out of it. */
void alloc_countdown_spare(bool on);

/* Ends either; true if an allocation was made to fail. */
bool alloc_countdown_stop(void);

#endif

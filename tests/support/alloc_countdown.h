/* alloc_countdown: makes an allocation of the code under test fail, in programs of bloomery_failing_allocations
 * (cmake/tests.cmake). Allocations inside shared libraries do not count. Thread: one calls these functions;
 * allocations of all threads count. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The n-th allocation from now on (0: the next) fails, the others do not. */
void alloc_countdown_start(size_t n);

/* All fail from now on. */
void alloc_exhausted_start(void);

/* Whether the allocations of the calling thread are left out. */
void alloc_countdown_spare(bool on);

/* Ends either mode; true if an allocation was made to fail. */
bool alloc_countdown_stop(void);

/* environment: numbers from a test's environment, with which a developer makes it run longer, or repeats a run. */
#ifndef BLOOMERY_TEST_ENVIRONMENT_H
#define BLOOMERY_TEST_ENVIRONMENT_H

#include <stdint.h>

/* The variable as a number, or `otherwise` if it is not set. */
uint64_t environment_number(const char *variable, uint64_t otherwise);

#endif

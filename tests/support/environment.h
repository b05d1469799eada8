/* environment: numbers for a test from its environment, by which a developer has it continue for longer, or again. */
#ifndef BLOOMERY_TEST_ENVIRONMENT_H
#define BLOOMERY_TEST_ENVIRONMENT_H

#include <stdint.h>

/* The variable as a number, `otherwise` where it is not set. */
uint64_t environment_number(const char *variable, uint64_t otherwise);

#endif

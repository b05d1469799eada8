/* environment: numbers from a test's environment, with which a developer makes it run longer, or repeats a run. */
#pragma once

#include <stdint.h>

/* The variable as a number, or `otherwise` if it is not set. */
uint64_t environment_number(const char *variable, uint64_t otherwise);

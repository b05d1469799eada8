#include "environment.h"

#include <stdlib.h>

uint64_t environment_number(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);

    return text ? strtoull(text, NULL, 10) : otherwise;
}

/* quoted: quoted text as redis-cli and redis.conf write it. "..." knows \n \r \t \b \a \xHH, and a backslash before any
 * other byte represents that byte; '...' knows \' alone. Thread: any. */
#pragma once

#include <stdbool.h>

/* Unescapes the text between *read, the opening quote, and `end` (excluded) to *write. Moves *read past the closing
 * quote and *write past the result. The result is never longer than the source, so both may be the same memory. False
 * if the closing quote is missing; then neither moves. */
bool quoted_take(const char **read, const char *end, char **write);

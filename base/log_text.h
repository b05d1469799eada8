/* log_text: numbers as words for the operator. Texts are returned by value, so that they can be arguments of a message:
 * log_notice(log, "%s in %s", log_count(n, "filter").text, log_bytes(size).text).
 *
 * Thread: any. */
#pragma once

#include <stdint.h>

struct log_text {
    char text[64];
};

/* "0 filters", "1 filter", "2 filters". `noun` is in the singular, has up to 40 bytes and takes an s. */
struct log_text log_count(uint64_t n, const char *noun);

/* "1 byte", "812 bytes", "1.2 kB", "34 MB", "5.6 GB", "1.2 TB": powers of 1000; two digits at least. */
struct log_text log_bytes(uint64_t bytes);

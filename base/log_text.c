#include "log_text.h"

#include <inttypes.h>
#include <stdio.h>

struct log_text log_count(uint64_t n, const char *noun)
{
    struct log_text t;

    snprintf(t.text, sizeof(t.text), "%" PRIu64 " %.40s%s", n, noun, n == 1 ? "" : "s");
    return t;
}

struct log_text log_bytes(uint64_t bytes)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes / 1000;
    struct log_text t;
    size_t unit = 0;

    if (bytes < 1000)
        return log_count(bytes, "byte");
    for (; value >= 999.5 && unit < sizeof(units) / sizeof(units[0]) - 1; unit++) /* 999.5 would be printed as 1000 */
        value /= 1000;
    snprintf(t.text, sizeof(t.text), value < 9.95 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return t;
}

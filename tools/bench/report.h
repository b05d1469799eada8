/* report: what a run of the load generator found, for people and as JSON. Thread: any. */
#ifndef BLOOMERY_BENCH_REPORT_H
#define BLOOMERY_BENCH_REPORT_H

#include <stdio.h>

#include "load.h"

struct report {
    const char *command; /* the request's template */
    const char *server;  /* what the server says it is, "" if it does not */
    const struct load_options *options;
    const struct load_result *result;
    double server_cpu; /* seconds of CPU that the server used meanwhile; negative: unknown */
};

/* A few lines. They say which side was the limit, as far as the two sides' CPU tells. */
void report_print(const struct report *report, FILE *out);

/* One JSON object and a newline. Times are in microseconds, rates per second. */
void report_json(const struct report *report, FILE *out);

#endif

/* report: the results of a run of the load generator, for people and as JSON. Thread: any. */
#ifndef BLOOMERY_BENCH_REPORT_H
#define BLOOMERY_BENCH_REPORT_H

#include <stdio.h>

#include "load.h"

struct report {
    const char *command; /* the request's template */
    const char *server;  /* the server's name and version, "" if unknown */
    const struct load_options *options;
    const struct load_result *result;
    double server_cpu; /* CPU seconds of the server during the run; negative: unknown */
};

/* Prints a few lines. They name the side that was the limit, as far as the CPU times of both tell. */
void report_print(const struct report *report, FILE *out);

/* One JSON object and a newline. Times are in microseconds, rates per second. */
void report_json(const struct report *report, FILE *out);

#endif

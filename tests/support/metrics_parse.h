/* metrics_parse: a strict reader of Prometheus's text format. The test fails if the text breaks the format: a repeated
 * family or series, a sample outside its family, an unescaped label, a histogram with falling buckets. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct metrics_family {
    char *name, *help, *type;
};

struct metrics_sample {
    char *series; /* the name with its labels, unchanged: x{a="b"} */
    double value;
    size_t family;
};

struct metrics_parsed {
    struct metrics_family families[512];
    struct metrics_sample *samples;
    size_t nfamilies, nsamples;
    char *text; /* holds the strings above */
};

void metrics_parse(struct metrics_parsed *parsed, const char *text);
void metrics_parse_free(struct metrics_parsed *parsed);

/* The value of a series; false if it is missing. */
bool metrics_find(const struct metrics_parsed *parsed, const char *series, double *value_out);

/* The same; a series that is missing fails the test. */
double metrics_get(const struct metrics_parsed *parsed, const char *series);

/* metrics_text: writes Prometheus's text format (0.0.4) and OpenMetrics 1.0, which differ in the names of counters, the
 * type `info`, and the end.
 *
 * A family is begun, then its samples follow. Labels are text that is ready to stand between the braces.
 *
 * Thread: any, on distinct objects. */
#ifndef BLOOMERY_METRICS_TEXT_H
#define BLOOMERY_METRICS_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "resp_parse.h"

enum metric_type { METRIC_GAUGE, METRIC_COUNTER, METRIC_HISTOGRAM, METRIC_INFO };

struct metrics_text {
    struct buf *out;
    bool openmetrics;
    enum metric_type type; /* of the family that was begun last, as is its name */
    const char *name;
};

/* `name` without the "_total" of a counter and the "_info" of an info. Both texts stay valid until the next family. */
void metrics_family(struct metrics_text *text, enum metric_type type, const char *name, const char *help);

/* A sample of the family; `labels` may be "". A value that is no number is left out. */
void metrics_value(struct metrics_text *text, const char *labels, double value);
void metrics_count(struct metrics_text *text, const char *labels, uint64_t value);

/* A sample of a histogram: "bucket" with the label `le`, "sum" or "count". */
void metrics_bucket(struct metrics_text *text, const char *labels, double le, uint64_t count); /* INFINITY: the last */
void metrics_histogram_end(struct metrics_text *text, const char *labels, double sum, uint64_t count);

void metrics_end(struct metrics_text *text);

/* Appends `name="value"` with the value's escapes. */
void metrics_label(struct buf *out, const char *name, struct slice value);

#endif

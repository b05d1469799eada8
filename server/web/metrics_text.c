#include "metrics_text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *suffix(const struct metrics_text *text)
{
    return text->type == METRIC_COUNTER ? "_total" : text->type == METRIC_INFO ? "_info" : "";
}

void metrics_family(struct metrics_text *text, enum metric_type type, const char *name, const char *help)
{
    static const char *const types[] = {"gauge", "counter", "histogram", "info"};
    text->type = type;
    text->name = name;
    const char *end = text->openmetrics ? "" : suffix(text);
    const char *word = type == METRIC_INFO && !text->openmetrics ? "gauge" : types[type];
    buf_appendf(text->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, end, help, name, end, word);
}

static void begin_sample(struct metrics_text *text, const char *end, const char *labels)
{
    buf_appendf(text->out, labels[0] ? "%s%s{%s} " : "%s%s%s ", text->name, end, labels);
}

void metrics_value(struct metrics_text *text, const char *labels, double value)
{
    if (!isfinite(value))
        return;
    begin_sample(text, suffix(text), labels);
    buf_appendf(text->out, "%.15g\n", value);
}

void metrics_count(struct metrics_text *text, const char *labels, uint64_t value)
{
    begin_sample(text, suffix(text), labels);
    buf_appendf(text->out, "%" PRIu64 "\n", value);
}

void metrics_bucket(struct metrics_text *text, const char *labels, double le, uint64_t count)
{
    buf_appendf(text->out, "%s_bucket{%s%sle=\"", text->name, labels, labels[0] ? "," : "");
    buf_appendf(text->out, isinf(le) ? "+Inf" : "%.12g", le);
    buf_appendf(text->out, "\"} %" PRIu64 "\n", count);
}

void metrics_histogram_end(struct metrics_text *text, const char *labels, double sum, uint64_t count)
{
    begin_sample(text, "_sum", labels);
    buf_appendf(text->out, "%.15g\n", sum);
    begin_sample(text, "_count", labels);
    buf_appendf(text->out, "%" PRIu64 "\n", count);
}

void metrics_end(struct metrics_text *text)
{
    if (text->openmetrics)
        buf_append(text->out, "# EOF\n", strlen("# EOF\n"));
}

void metrics_label(struct buf *out, const char *name, struct slice value)
{
    buf_appendf(out, "%s=\"", name);
    for (size_t i = 0; i < value.len; i++) {
        char c = value.ptr[i];
        if (c == '\\' || c == '"')
            buf_append(out, "\\", 1);
        if (c == '\n')
            buf_append(out, "\\n", 2);
        else
            buf_append(out, &c, 1);
    }
    buf_append(out, "\"", 1);
}

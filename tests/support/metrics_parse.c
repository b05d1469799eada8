#include "metrics_parse.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool is_name(char c, bool first)
{
    return isalpha((unsigned char)c) || c == '_' || (!first && isdigit((unsigned char)c));
}

static char *skip_name(char *at)
{
    cr_assert(is_name(*at, true), "no name: %.80s", at);
    while (is_name(*at, false))
        at++;
    return at;
}

static char *skip_labels(char *at)
{
    const char *labels = at++;
    while (*at != '}') {
        at = skip_name(at);
        cr_assert(at[0] == '=' && at[1] == '"', "no label: %.200s", labels);
        for (at += 2; *at != '"'; at++) {
            cr_assert((unsigned char)*at >= 0x20, "a control character or the end in a label: %.200s", labels);
            if (*at == '\\') {
                at++;
                cr_assert(*at == '\\' || *at == '"' || *at == 'n', "a wrong escape in %.200s", labels);
            }
        }
        at++;
        if (*at == ',')
            at++;
        else
            cr_assert_eq(*at, '}', "labels: %.200s", labels);
    }
    return at + 1;
}

/* "# HELP name text" or "# TYPE name type". */
static void read_comment(struct metrics_parsed *parsed, char *line)
{
    bool help = strncmp(line, "# HELP ", 7) == 0;
    cr_assert(help || strncmp(line, "# TYPE ", 7) == 0, "neither HELP nor TYPE: %s", line);
    char *name = line + 7, *end = skip_name(name);
    cr_assert_eq(*end, ' ', "%s", line);
    *end = '\0';
    if (help) {
        cr_assert_lt(parsed->nfamilies, 512);
        for (size_t i = 0; i < parsed->nfamilies; i++)
            cr_assert_str_neq(parsed->families[i].name, name, "begun twice");
        parsed->families[parsed->nfamilies++] = (struct metrics_family){.name = name, .help = end + 1};
        return;
    }
    cr_assert_gt(parsed->nfamilies, 0);
    struct metrics_family *family = &parsed->families[parsed->nfamilies - 1];
    cr_assert_str_eq(family->name, name);
    cr_assert_null(family->type, "%s has two types", name);
    family->type = end + 1;
}

/* The permitted suffix of the family's name in that of a sample. */
static void check_suffix(const struct metrics_family *family, const char *suffix, size_t len)
{
    const char *const histogram[] = {"_bucket", "_sum", "_count", NULL}, *const none[] = {"", NULL};
    const char *const *allowed = none;
    cr_assert_not_null(family->type, "%s has no type", family->name);
    if (strcmp(family->type, "histogram") == 0)
        allowed = histogram;
    else
        cr_assert(strcmp(family->type, "gauge") == 0 || strcmp(family->type, "counter") == 0, "type %s", family->type);
    for (; *allowed; allowed++)
        if (strlen(*allowed) == len && strncmp(*allowed, suffix, len) == 0)
            return;
    cr_assert_fail("%s: a sample with '%.*s' behind the name", family->name, (int)len, suffix);
}

static void read_sample(struct metrics_parsed *parsed, char *line)
{
    char *end = skip_name(line), *number_end;
    cr_assert_gt(parsed->nfamilies, 0);
    const struct metrics_family *family = &parsed->families[parsed->nfamilies - 1];
    size_t len = strlen(family->name);
    cr_assert(strncmp(line, family->name, len) == 0, "%s is outside of its family, after %s", line, family->name);
    check_suffix(family, line + len, (size_t)(end - line) - len);
    if (*end == '{')
        end = skip_labels(end);
    cr_assert_eq(*end, ' ', "%s", line);
    *end = '\0';
    double value = strtod(end + 1, &number_end);
    cr_assert(number_end != end + 1 && *number_end == '\0', "%s: no number: '%s'", line, end + 1);
    cr_assert(strcmp(family->type, "gauge") == 0 || value >= 0, "%s is %g", line, value);
    parsed->samples[parsed->nsamples++] = (struct metrics_sample){line, value, parsed->nfamilies - 1};
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void check_unique(const struct metrics_parsed *parsed)
{
    char **names = malloc((parsed->nsamples + 1) * sizeof(*names));
    cr_assert_not_null(names);
    for (size_t i = 0; i < parsed->nsamples; i++)
        names[i] = parsed->samples[i].series;
    qsort(names, parsed->nsamples, sizeof(*names), compare);
    for (size_t i = 1; i < parsed->nsamples; i++)
        cr_assert_str_neq(names[i - 1], names[i], "a series twice");
    free(names);
}

/* Buckets of one series follow each other, rise, and end with le="+Inf", whose value equals the count. */
static void check_histograms(const struct metrics_parsed *parsed)
{
    double last = 0, last_le = -1, infinite = -1;
    for (size_t i = 0; i < parsed->nsamples; i++) {
        const struct metrics_sample *sample = &parsed->samples[i];
        const char *le = strstr(sample->series, "le=\"");
        if (strcmp(parsed->families[sample->family].type, "histogram") != 0)
            continue;
        if (le) {
            double end = strtod(le + 4, NULL); /* strtod() also reads "+Inf" */
            cr_assert(end > last_le && sample->value >= last, "%s falls", sample->series);
            last = sample->value;
            last_le = end;
            if (strncmp(le, "le=\"+Inf\"", 9) == 0)
                infinite = sample->value;
        } else if (strstr(sample->series, "_count")) {
            cr_assert_float_eq(sample->value, infinite, 0.1, "%s", sample->series);
            last = 0;
            last_le = infinite = -1;
        }
    }
}

void metrics_parse(struct metrics_parsed *parsed, const char *text)
{
    size_t lines = 1;
    *parsed = (struct metrics_parsed){.text = strdup(text)};
    for (const char *at = text; *at; at++)
        lines += *at == '\n';
    parsed->samples = calloc(lines, sizeof(*parsed->samples));
    cr_assert(parsed->text && parsed->samples);
    for (char *line = parsed->text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        cr_assert_not_null(end, "the last line has no end: %s", line);
        *end = '\0';
        if (line[0] == '#')
            read_comment(parsed, line);
        else
            read_sample(parsed, line);
    }
    check_unique(parsed);
    check_histograms(parsed);
}

void metrics_parse_free(struct metrics_parsed *parsed)
{
    free(parsed->samples);
    free(parsed->text);
    *parsed = (struct metrics_parsed){.nsamples = 0};
}

bool metrics_find(const struct metrics_parsed *parsed, const char *series, double *value_out)
{
    for (size_t i = 0; i < parsed->nsamples; i++)
        if (strcmp(parsed->samples[i].series, series) == 0) {
            *value_out = parsed->samples[i].value;
            return true;
        }
    return false;
}

double metrics_get(const struct metrics_parsed *parsed, const char *series)
{
    double value = 0;
    cr_assert(metrics_find(parsed, series, &value), "no series %s", series);
    return value;
}

#include "report.h"

#include <string.h>

#define BUSY 0.9 /* share of a core from which a side counts as busy */

static const struct {
    const char *name;
    double value;
} percentiles[] = {{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99.9", 99.9}, {"p99.99", 99.99}};
#define NPERCENTILES (sizeof(percentiles) / sizeof(percentiles[0]))

static double per_second(const struct load_result *result)
{
    return result->seconds > 0 ? (double)result->requests / result->seconds : 0;
}

static void print_count(FILE *out, double n)
{
    if (n >= 1e6)
        fprintf(out, "%.2f M", n / 1e6);
    else if (n >= 1e4)
        fprintf(out, "%.1f k", n / 1e3);
    else
        fprintf(out, "%.0f ", n);
}

/* The side that was busy. */
static const char *limit(const struct report *report)
{
    const struct load_result *result = report->result;
    bool generator = !report->options->spin && result->cpu_busiest >= BUSY * result->seconds;
    bool server = report->server_cpu >= BUSY * result->seconds;
    if (report->options->rate > 0 && per_second(result) >= 0.98 * report->options->rate)
        return "neither side: the rate asked for was kept";
    if (generator && !server)
        return "this load generator: give it more --threads, or another machine";
    if (server && !generator)
        return "the server";
    if (server && generator)
        return "both sides at once; read the server's figure per core";
    return report->server_cpu < 0 ? "not this load generator"
                                  : "neither side's CPU: waiting, for each other or for the disk";
}

static void print_percentiles(const struct hdr *hdr, FILE *out)
{
    for (size_t i = 0; i < NPERCENTILES; i++)
        fprintf(out, "  %s %.1f", percentiles[i].name, (double)hdr_percentile(hdr, percentiles[i].value) / 1000);
    fprintf(out, "  max %.1f", (double)hdr->max / 1000);
}

void report_print(const struct report *report, FILE *out)
{
    const struct load_result *result = report->result;
    unsigned items = report->options->request->items;

    fprintf(out, "%s\n", report->command);
    if (report->server[0])
        fprintf(out, "  server      %s\n", report->server);
    fprintf(out, "  load        %u connections, pipeline %u, %u thread%s", report->options->connections,
            report->options->pipeline, report->options->threads, report->options->threads == 1 ? "" : "s");
    if (report->options->rate > 0)
        fprintf(out, ", %.0f requests/s due", report->options->rate);
    fprintf(out, "\n  throughput  ");
    print_count(out, per_second(result));
    fprintf(out, "requests/s");
    if (items > 1) {
        fprintf(out, ", ");
        print_count(out, per_second(result) * items);
        fprintf(out, "items/s");
    }
    fprintf(out, " (%llu in %.2f s)\n  latency, us", (unsigned long long)result->requests, result->seconds);
    print_percentiles(&result->latency, out);
    fprintf(out, "\n");
    if (result->ones + result->zeros)
        fprintf(out, "  answers     %llu times 1, %llu times 0\n", (unsigned long long)result->ones,
                (unsigned long long)result->zeros);
    if (result->lateness.total) {
        fprintf(out, "  late itself, us");
        print_percentiles(&result->lateness, out);
        fprintf(out, " (not in the latencies)\n");
    }
    if (result->left_out)
        fprintf(out, "  left out    %llu requests that the generator noticed too late (%.2f %%)\n",
                (unsigned long long)result->left_out, 100 * (double)result->left_out / (double)result->lateness.total);
    fprintf(out, "  CPU         generator %.0f %% (busiest thread %.0f %%)", 100 * result->cpu_total / result->seconds,
            100 * result->cpu_busiest / result->seconds);
    if (report->server_cpu >= 0) {
        fprintf(out, ", server %.0f %%", 100 * report->server_cpu / result->seconds);
        if (report->server_cpu > 0) {
            fprintf(out, ": ");
            print_count(out, (double)result->requests / report->server_cpu);
            fprintf(out, "requests per second of a core");
        }
    }
    fprintf(out, "\n  the limit   %s\n", limit(report));
}

static void json_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            fprintf(out, "\\u%04x", c); /* bytes, taken for Latin-1 */
        else
            fputc(c, out);
    }
    fputc('"', out);
}

static void json_percentiles(FILE *out, const char *name, const char *prefix, const struct hdr *hdr)
{
    fprintf(out, ", \"%s\": {\"%smean\": %.3f", name, prefix, hdr_mean(hdr) / 1000);
    for (size_t i = 0; i < NPERCENTILES; i++)
        fprintf(out, ", \"%s%s\": %.3f", prefix, percentiles[i].name,
                (double)hdr_percentile(hdr, percentiles[i].value) / 1000);
    fprintf(out, ", \"%smax\": %.3f}", prefix, (double)hdr->max / 1000);
}

void report_json(const struct report *report, FILE *out)
{
    const struct load_result *result = report->result;
    const struct load_options *options = report->options;

    fprintf(out, "{\"command\": ");
    json_text(out, report->command);
    fprintf(out, ", \"server\": ");
    json_text(out, report->server);
    fprintf(out, ", \"connections\": %u, \"pipeline\": %u, \"threads\": %u, \"items_per_request\": %u, \"rate\": %.17g",
            options->connections, options->pipeline, options->threads, options->request->items, options->rate);
    fprintf(out, ", \"seconds\": %.6f, \"requests\": %llu, \"requests_per_second\": %.1f, \"items_per_second\": %.1f",
            result->seconds, (unsigned long long)result->requests, per_second(result),
            per_second(result) * options->request->items);
    fprintf(out, ", \"ones\": %llu, \"zeros\": %llu, \"left_out\": %llu", (unsigned long long)result->ones,
            (unsigned long long)result->zeros, (unsigned long long)result->left_out);
    json_percentiles(out, "latency_us", "", &result->latency);
    if (result->lateness.total)
        json_percentiles(out, "lateness_us", "lateness_", &result->lateness);
    fprintf(out, ", \"generator_cpu_seconds\": %.6f, \"generator_busiest_thread_seconds\": %.6f", result->cpu_total,
            result->cpu_busiest);
    if (report->server_cpu >= 0)
        fprintf(out, ", \"server_cpu_seconds\": %.6f", report->server_cpu);
    else
        fprintf(out, ", \"server_cpu_seconds\": null");
    fprintf(out, ", \"limit\": ");
    json_text(out, limit(report));
    fprintf(out, "}\n");
}

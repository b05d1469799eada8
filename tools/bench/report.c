#include "report.h"

#include <math.h>
#include <string.h>

#include "output.h"

#define BUSY 0.9 /* share of a core from which on a side counts as busy */

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
        return "neither side: the requested rate was reached";
    if (generator && !server)
        return "this load generator: use more --threads, or another machine";
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

static void put_us(struct buf *json, const char *prefix, const char *name, double us)
{
    char key[32];

    snprintf(key, sizeof(key), "%s%s", prefix, name);
    json_real(json, key, us);
}

static void put_percentiles(struct buf *json, const char *name, const char *prefix, const struct hdr *hdr)
{
    json_begin(json, name, '{');
    put_us(json, prefix, "mean", hdr_mean(hdr) / 1000);
    for (size_t i = 0; i < NPERCENTILES; i++)
        put_us(json, prefix, percentiles[i].name, (double)hdr_percentile(hdr, percentiles[i].value) / 1000);
    put_us(json, prefix, "max", (double)hdr->max / 1000);
    json_end(json, '}');
}

void report_json(const struct report *report, FILE *out)
{
    const struct load_result *result = report->result;
    const struct load_options *options = report->options;
    struct buf json;

    buf_init(&json, SIZE_MAX);
    json_begin(&json, NULL, '{');
    output_string(&json, "command", report->command);
    output_string(&json, "server", report->server);
    JSON_COUNTS(&json, {"connections", options->connections}, {"pipeline", options->pipeline},
                {"threads", options->threads}, {"items_per_request", options->request->items});
    json_real(&json, "rate", options->rate);
    json_real(&json, "seconds", result->seconds);
    json_count(&json, "requests", result->requests);
    json_real(&json, "requests_per_second", per_second(result));
    json_real(&json, "items_per_second", per_second(result) * options->request->items);
    JSON_COUNTS(&json, {"ones", result->ones}, {"zeros", result->zeros}, {"left_out", result->left_out});
    put_percentiles(&json, "latency_us", "", &result->latency);
    if (result->lateness.total)
        put_percentiles(&json, "lateness_us", "lateness_", &result->lateness);
    json_real(&json, "generator_cpu_seconds", result->cpu_total);
    json_real(&json, "generator_busiest_thread_seconds", result->cpu_busiest);
    json_real(&json, "server_cpu_seconds", report->server_cpu >= 0 ? report->server_cpu : NAN);
    json_str(&json, "limit", limit(report));
    json_end(&json, '}');
    fprintf(out, "%.*s\n", (int)buf_len(&json), buf_head(&json));
    buf_deinit(&json);
}

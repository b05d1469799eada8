/* `bloomery bench`: the options, the preparation of filters, and one run. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tls_options.h"
#include "tool.h"
#include "load.h"
#include "report.h"

static const struct {
    const char *name;
    const char *line;
    bool new_items; /* each request takes items of its own */
} workloads[] = {
    {"exists", "BF.EXISTS {filter} {item}", false},
    {"add", "BF.ADD {filter} {item}", true},
    {"mexists", "BF.MEXISTS {filter} {items}", false},
    {"madd", "BF.MADD {filter} {items}", true},
    {"ping", "PING", false},
    {"get", "GET {item}", false},
    {"set", "SET {item} {item}", false},
};

#define LOAD_BATCH 100 /* items of a request of --load */

struct bench {
    const struct tool_args *args;
    const char *line;
    bool new_items;
    struct endpoint endpoint;
    struct tls_context *tls;
    struct items_options items;
    struct request_template request;
    struct load_options load;
    unsigned batch;
    const char *filter;
    uint64_t nfilters;
    double reserve_error;
    uint64_t reserve_capacity; /* 0: filters are taken as they are */
    bool load_first;
};

/* ---- options ---- */

static bool has(const struct bench *bench, const char *option)
{
    return tool_option(bench->args, option) != NULL;
}

static const char *value_or(const struct bench *bench, const char *option, const char *otherwise)
{
    const char *value = tool_option(bench->args, option);
    return value ? value : otherwise;
}

static int wrong(const struct bench *bench, const char *option, const char *right)
{
    return tool_misused("bench", "%s '%s': %s", option, tool_option(bench->args, option), right);
}

static int get_unsigned(const struct bench *bench, const char *option, unsigned min, unsigned max, unsigned preset,
                        unsigned *out)
{
    uint64_t value = preset;
    int status = tool_number(bench->args, option, min, max, &value);
    *out = (unsigned)value;
    return status;
}

static int get_real(const struct bench *bench, const char *option, double max, double preset, double *out)
{
    *out = preset;
    return tool_real(bench->args, option, max, out);
}

/* Reads the number before the first `separator`; *rest is the text after it, or NULL. */
static bool split_number(const char *text, char separator, uint64_t max, uint64_t *number, const char **rest)
{
    char first[24];
    const char *at = strchr(text, separator);
    size_t len = at ? (size_t)(at - text) : strlen(text);
    *rest = at ? at + 1 : NULL;
    return len < sizeof(first) && snprintf(first, sizeof(first), "%.*s", (int)len, text) > 0 &&
           tool_parse_u64(first, 1, max, number);
}

static int get_size(struct bench *bench)
{
    const char *second;
    uint64_t min, max;
    if (!split_number(value_or(bench, "--size", "16"), '-', ITEM_MAX_SIZE, &min, &second) ||
        (second && !tool_parse_u64(second, min, ITEM_MAX_SIZE, &max)))
        return wrong(bench, "--size", "must be a number of bytes from 1 to 4096, or two numbers separated by '-'");
    bench->items.min_size = (unsigned)min;
    bench->items.max_size = (unsigned)(second ? max : min);
    return TOOL_OK;
}

static int get_order(struct bench *bench)
{
    const char *text = value_or(bench, "--order", bench->new_items ? "sequential" : "uniform");
    bench->items.skew = 0.99;
    if (strcmp(text, "uniform") == 0)
        bench->items.order = ITEMS_UNIFORM;
    else if (strcmp(text, "sequential") == 0)
        bench->items.order = ITEMS_SEQUENTIAL;
    else if (strncmp(text, "zipf", 4) == 0 &&
             (text[4] == '\0' || (text[4] == ':' && tool_parse_double(text + 5, &bench->items.skew) &&
                                  bench->items.skew > 0 && bench->items.skew < 10)))
        bench->items.order = ITEMS_ZIPF;
    else
        return wrong(bench, "--order", "must be 'uniform', 'sequential', 'zipf' or 'zipf:<exponent below 10>'");
    if (bench->items.skew == 1) /* the method's formulas have a pole at 1 */
        bench->items.skew = 1.000001;
    return TOOL_OK;
}

static int get_reserve(struct bench *bench)
{
    const char *rate;
    bench->reserve_error = 0.01;
    if (!has(bench, "--reserve") ||
        (split_number(tool_option(bench->args, "--reserve"), ':', UINT64_MAX, &bench->reserve_capacity, &rate) &&
         (!rate ||
          (tool_parse_double(rate, &bench->reserve_error) && bench->reserve_error > 0 && bench->reserve_error < 1))))
        return TOOL_OK;
    return wrong(bench, "--reserve", "must be a capacity, or '<capacity>:<error rate>'");
}

static void choose_workload(struct bench *bench, const char *name)
{
    bench->line = name;
    for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++) {
        if (strcmp(workloads[i].name, name) == 0) {
            bench->line = workloads[i].line;
            bench->new_items = workloads[i].new_items;
        }
    }
}

static int get_load(struct bench *bench)
{
    struct load_options *load = &bench->load;
    if (get_unsigned(bench, "--connections", 1, 100000, 50, &load->connections) ||
        get_unsigned(bench, "--pipeline", 1, 100000, 1, &load->pipeline) ||
        get_unsigned(bench, "--threads", 1, 1024, 1, &load->threads) ||
        tool_number(bench->args, "--requests", 1, UINT64_MAX - 1, &load->requests) ||
        get_real(bench, "--time", 1e6, load->requests ? 0 : 10, &load->seconds) ||
        get_real(bench, "--warmup", 1e6, load->requests ? 0 : 1, &load->warmup) ||
        get_real(bench, "--rate", 1e9, 0, &load->rate))
        return TOOL_USAGE;
    load->spin = has(bench, "--spin");
    if (load->spin && load->rate <= 0)
        return tool_misused("bench", "--spin needs a --rate");
    if (load->requests && load->warmup > 0)
        return tool_misused("bench", "--requests cannot be combined with --warmup");
    if (!load->requests && load->seconds <= 0)
        return tool_misused("bench", "--time 0 needs --requests");
    if (load->threads > load->connections)
        return tool_misused("bench", "too many threads: %u for %u connections", load->threads, load->connections);
    return TOOL_OK;
}

static int get_items(struct bench *bench)
{
    bench->items.count = 1000000;
    bench->items.seed = 1;
    if (tool_number(bench->args, "--items", 1, UINT64_C(1) << 61, &bench->items.count) ||
        tool_number(bench->args, "--start", 0, UINT64_C(1) << 61, &bench->items.start) ||
        tool_number(bench->args, "--seed", 0, UINT64_MAX, &bench->items.seed) ||
        get_real(bench, "--hits", 1, 1, &bench->items.hits) || get_size(bench) || get_order(bench))
        return TOOL_USAGE;
    return TOOL_OK;
}

static int get_endpoint(struct bench *bench)
{
    bool with_tls = has(bench, "--tls");
    unsigned port, resp;
    if (get_unsigned(bench, "--port", 1, 65535, 6379, &port) || get_unsigned(bench, "--resp", 2, 3, 2, &resp))
        return TOOL_USAGE;
    if (with_tls && has(bench, "--unix"))
        return tool_misused("bench", "--tls is for an address, not for a Unix socket");
    int status = tls_options_read(bench->args, with_tls, &bench->tls);
    bench->endpoint = (struct endpoint){.address = {.host = value_or(bench, "--host", "127.0.0.1"),
                                                    .port = value_or(bench, "--port", "6379"),
                                                    .unixpath = tool_option(bench->args, "--unix"),
                                                    .password = value_or(bench, "--password", getenv("REDISCLI_AUTH")),
                                                    .tls = bench->tls},
                                        .resp = (int)resp};
    return status;
}

static unsigned load_batch(const struct bench *bench)
{
    return bench->items.count < LOAD_BATCH ? (unsigned)bench->items.count : LOAD_BATCH;
}

/* The last batch may pass the number of items a little. */
static uint64_t load_batches(const struct bench *bench)
{
    return (bench->items.count + load_batch(bench) - 1) / load_batch(bench);
}

/* A filter that is reserved and loaded must hold all items: by default as many as fit. */
static int fit_items(struct bench *bench)
{
    uint64_t capacity = bench->reserve_capacity, loaded;
    if (!capacity || !bench->load_first)
        return TOOL_OK;
    if (!has(bench, "--items") && bench->items.count > capacity)
        bench->items.count = capacity < LOAD_BATCH ? capacity : capacity - capacity % LOAD_BATCH;
    loaded = load_batches(bench) * load_batch(bench);
    if (loaded <= capacity)
        return TOOL_OK;
    return tool_misused("bench", "--load with --items %llu needs a --reserve of at least %llu",
                        (unsigned long long)bench->items.count, (unsigned long long)loaded);
}

static int get_options(struct bench *bench)
{
    choose_workload(bench, bench->args->positional[0]);
    bench->nfilters = 1;
    bench->filter = value_or(bench, "--filter", "bench");
    bench->load_first = has(bench, "--load");
    int status = get_endpoint(bench);
    if (status)
        return status;
    if (get_items(bench) || get_load(bench) || get_unsigned(bench, "--batch", 1, 1000000, 100, &bench->batch) ||
        tool_number(bench->args, "--filters", 1, UINT64_C(1) << 40, &bench->nfilters) || get_reserve(bench))
        return TOOL_USAGE;
    if (bench->nfilters > 1 && (bench->load_first || bench->reserve_capacity))
        return tool_misused("bench",
                            "--reserve and --load are for one filter; with several filters the first add creates each");
    return fit_items(bench);
}

/* ---- preparation ---- */

static void show_progress(void *ctx, double seconds, double rate)
{
    const char *what = ctx;
    fprintf(stderr, "\r%s: %3.0f s, %.3f M requests/s ", what, seconds, rate / 1e6);
    fflush(stderr);
}

static int reserve(struct bench *bench)
{
    char reply[256], capacity[24], rate[32];
    struct errbuf err = {""};
    snprintf(capacity, sizeof(capacity), "%llu", (unsigned long long)bench->reserve_capacity);
    snprintf(rate, sizeof(rate), "%.17g", bench->reserve_error);
    int status =
        endpoint_ask(&bench->endpoint, (const char *const[]){"DEL", bench->filter}, 2, reply, sizeof(reply), &err);
    if (status == 0)
        status = endpoint_ask(&bench->endpoint,
                              (const char *const[]){"BF.RESERVE", bench->filter, rate, capacity, "NONSCALING"}, 5,
                              reply, sizeof(reply), &err);
    return status == 0 ? TOOL_OK : tool_failed("bench", "cannot reserve the filter: %s", err.text);
}

/* Adds items 0 .. items-1, over a few connections and in large batches. */
static int load_filter(struct bench *bench, struct load_result *result)
{
    struct items_options items = bench->items;
    struct load_options load = bench->load;
    struct request_template request;
    struct errbuf err = {""};
    unsigned batch = load_batch(bench);

    items.order = ITEMS_SEQUENTIAL;
    items.hits = 1;
    load.connections = load.connections < 8 ? load.connections : 8;
    load.threads = load.threads < load.connections ? load.threads : load.connections;
    load.pipeline = 8;
    load.rate = load.warmup = load.seconds = 0;
    load.spin = false;
    load.requests = load_batches(bench);
    load.items = &items;
    load.request = &request;
    load.ctx = (void *)"loading";
    int status = request_template_init(&request, "BF.MADD {filter} {items}", bench->filter, 1, batch, items.max_size);
    if (status == 0)
        status = load_run(&load, result, &err);
    request_template_deinit(&request);
    return status == 0 ? TOOL_OK : tool_failed("bench", "cannot load the filter: %s", err.text);
}

/* ---- the run ---- */

/* The value of a field of INFO, -1 if it is missing. */
static double info_number(const char *info, const char *field)
{
    const char *at = strstr(info, field);
    return at ? strtod(at + strlen(field), NULL) : -1;
}

/* Seconds of CPU that the server reports for itself; negative if it reports none. */
static double server_cpu(const struct bench *bench)
{
    char info[4096];
    struct errbuf err = {""};
    if (endpoint_ask(&bench->endpoint, (const char *const[]){"INFO", "cpu"}, 2, info, sizeof(info), &err) != 0)
        return -1;
    double user = info_number(info, "used_cpu_user:"), sys = info_number(info, "used_cpu_sys:");
    return user < 0 || sys < 0 ? -1 : user + sys;
}

static void server_name(const struct bench *bench, char *out, size_t size)
{
    char info[8192];
    struct errbuf err = {""};
    static const char *const fields[] = {"bloomery_version:", "redis_version:"};
    out[0] = '\0';
    if (endpoint_ask(&bench->endpoint, (const char *const[]){"INFO", "server"}, 2, info, sizeof(info), &err) != 0)
        return;
    for (size_t i = 0; i < 2 && !out[0]; i++) {
        const char *at = strstr(info, fields[i]);
        if (at)
            snprintf(out, size, "%.*s", (int)strcspn(at, "\r\n"), at);
    }
}

static int write_file(const char *path, const struct report *report, void (*write)(const struct report *, FILE *))
{
    bool to_stdout = path && strcmp(path, "-") == 0;
    if (!path)
        return TOOL_OK;
    FILE *out = to_stdout ? stdout : fopen(path, "w");
    if (!out)
        return tool_failed("bench", "cannot write %s: %s", path, strerror(errno));
    write(report, out);
    bool failed = fflush(out) != 0 || ferror(out);
    if (!to_stdout && fclose(out) != 0)
        failed = true;
    return failed ? tool_failed("bench", "cannot write %s: %s", path, strerror(errno)) : TOOL_OK;
}

static void write_hdr(const struct report *report, FILE *out)
{
    hdr_print(&report->result->latency, out);
}

static int measure(struct bench *bench, struct load_result *result)
{
    struct errbuf err = {""};
    char server[128];
    bool shows = has(bench, "--progress") || isatty(STDERR_FILENO);
    int status = TOOL_OK;

    bench->load.endpoint = &bench->endpoint;
    bench->load.items = &bench->items;
    bench->load.request = &bench->request;
    bench->load.progress = shows ? show_progress : NULL;
    if (bench->reserve_capacity)
        status = reserve(bench);
    if (!status && bench->load_first)
        status = load_filter(bench, result);
    if (status)
        return status;
    server_name(bench, server, sizeof(server));
    bench->load.ctx = (void *)"measuring";
    double cpu = server_cpu(bench), start_warm = bench->load.warmup;
    status = load_run(&bench->load, result, &err);
    double cpu_end = server_cpu(bench);
    if (shows)
        fputs("\r\033[K", stderr);
    if (status != 0)
        return tool_failed("bench", "%s", err.text);
    /* The server's CPU time per second of warm-up is assumed to equal that of the run. */
    double share = result->seconds / (result->seconds + start_warm);
    struct report report = {
        .command = bench->line,
        .server = server,
        .options = &bench->load,
        .result = result,
        .server_cpu = cpu < 0 || cpu_end < 0 ? -1 : (cpu_end - cpu) * share,
    };
    if (strcmp(value_or(bench, "--json", ""), "-") != 0 && strcmp(value_or(bench, "--hdr", ""), "-") != 0)
        report_print(&report, stdout);
    status = write_file(tool_option(bench->args, "--json"), &report, report_json);
    return status ? status : write_file(tool_option(bench->args, "--hdr"), &report, write_hdr);
}

static int run(const struct tool_args *args)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    struct load_result *result = calloc(1, sizeof(*result));
    if (!bench || !result) {
        free(bench);
        free(result);
        return tool_failed("bench", "out of memory");
    }
    bench->args = args;
    int status = get_options(bench);
    if (status == TOOL_OK) {
        int made = request_template_init(&bench->request, bench->line, bench->filter, bench->nfilters, bench->batch,
                                         bench->items.max_size);
        if (made == -EINVAL)
            status = tool_misused("bench", "the command is empty");
        else if (made != 0)
            status = tool_failed("bench", "out of memory");
        else
            status = measure(bench, result);
        request_template_deinit(&bench->request);
    }
    tls_context_destroy(bench->tls);
    free(bench);
    free(result);
    return status;
}

#define NUMBER(option, letter, text)                       \
    {                                                      \
        .name = (option), .value = (letter), .doc = (text) \
    }

static const struct tool_option options[] = {
    {.name = "--host", .value = "H", .doc = "The server's address (127.0.0.1).", .group = "Server"},
    NUMBER("--port", "P", "The server's port (6379)."),
    {.name = "--unix", .value = "PATH", .doc = "The server's Unix socket, instead of an address."},
    {.name = "--password", .value = "WORD", .doc = "The server's password; the default is $REDISCLI_AUTH."},
    {.name = "--resp", .value = "2|3", .doc = "The version of the protocol (2)."},
    {.name = "--tls", .doc = "Connects with TLS; see below."},
    {.name = "--connections", .value = "N", .doc = "Connections (50).", .group = "Load"},
    NUMBER("--pipeline", "N", "Pending requests of each connection (1)."),
    NUMBER("--threads", "N", "Threads of this program (1)."),
    NUMBER("--time", "SECONDS", "Duration of the measurement (10)."),
    NUMBER("--warmup", "SECONDS", "Duration of the run before the measurement (1)."),
    NUMBER("--requests", "N", "Number of requests, instead of a time."),
    NUMBER("--rate", "N",
           "Requests per second, independent of the server's speed. Latencies then run from the due time of a "
           "request until the kernel has the reply; the program's own lateness is shown separately. Without a "
           "rate each connection waits for its replies."),
    {.name = "--spin",
     .doc = "With --rate: never sleeps, so no wake-up delays requests; uses a processor per thread. Requests that are "
            "still 0.1 ms late, because another program used the processor, are counted and not sent."},
    {.name = "--items", .value = "N", .doc = "Items to choose from (1000000).", .group = "Items"},
    NUMBER("--start", "N", "The number of the first item (0)."),
    {.name = "--size", .value = "BYTES", .doc = "Bytes of an item, or MIN-MAX (16)."},
    {.name = "--order",
     .value = "ORDER",
     .doc = "uniform, sequential or zipf[:EXPONENT] (uniform; for add and madd sequential, all new)."},
    NUMBER("--hits", "SHARE",
           "The share of queries for items of this range (1); the other queries are for items "
           "never added."),
    NUMBER("--batch", "N", "Items of {items} (100)."),
    NUMBER("--seed", "N", "Seed of the random numbers (1)."),
    {.name = "--filter", .value = "NAME", .doc = "The filter (bench).", .group = "Filters"},
    NUMBER("--filters", "N", "One of NAME:0 .. NAME:<N-1> at random (1: NAME itself)."),
    {.name = "--reserve",
     .value = "CAPACITY",
     .doc = "Deletes NAME and reserves it again, NONSCALING; CAPACITY:RATE sets a rate other than 0.01."},
    {.name = "--load", .doc = "Adds all items before measuring; with --reserve, --items defaults to at most CAPACITY."},
    {.name = "--json", .value = "FILE", .doc = "The result as JSON; - is the standard output.", .group = "Output"},
    {.name = "--hdr", .value = "FILE", .doc = "Percentiles in HdrHistogram's text form; - is the standard output."},
    {.name = "--progress", .doc = "Shows a line on stderr once a second, even if stderr is not a terminal."},
    TLS_OPTIONS,
    {.name = NULL},
};

const struct tool_command tool_bench_command = {
    .name = "bench",
    .arguments = "WORKLOAD",
    .summary = "Puts load on a RESP server and measures throughput and latency.",
    .text = "WORKLOAD is exists, add, mexists, madd, ping, get, set, or your own command line in quotes. In it "
            "{filter} is a filter's name, {item} the next item and {items} a batch of items. The first error reply of "
            "the server ends the run.",
    .options = options,
    .examples = "bloomery bench exists --reserve 1000000 --load --pipeline 16\n"
                "bloomery bench 'BF.MEXISTS {filter} {items}' --batch 500 --time 30 --json -",
    .run = run,
};

/* `bloomery bench`: the options, the preparation of filters, and one run. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../tls_options.h"
#include "../tool.h"
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

enum option {
    OPT_HOST,
    OPT_PORT,
    OPT_UNIX,
    OPT_PASSWORD,
    OPT_RESP,
    OPT_CONNECTIONS,
    OPT_PIPELINE,
    OPT_THREADS,
    OPT_TIME,
    OPT_REQUESTS,
    OPT_WARMUP,
    OPT_RATE,
    OPT_SPIN,
    OPT_FILTER,
    OPT_FILTERS,
    OPT_ITEMS,
    OPT_START,
    OPT_SIZE,
    OPT_ORDER,
    OPT_HITS,
    OPT_BATCH,
    OPT_RESERVE,
    OPT_LOAD,
    OPT_JSON,
    OPT_HDR,
    OPT_SEED,
    OPT_PROGRESS,
    OPT_COUNT,
};

struct bench {
    struct {
        const char *name, *value;
    } options[OPT_COUNT];
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

static int wrong(const struct bench *bench, enum option option, const char *right)
{
    return tool_misused("bench", "%s '%s': %s", bench->options[option].name, bench->options[option].value, right);
}

static int get_u64(const struct bench *bench, enum option option, uint64_t min, uint64_t max, uint64_t preset,
                   uint64_t *out)
{
    char right[96];
    *out = preset;
    if (!bench->options[option].value || tool_parse_u64(bench->options[option].value, min, max, out))
        return TOOL_OK;
    snprintf(right, sizeof(right), "a number from %llu to %llu is needed", (unsigned long long)min,
             (unsigned long long)max);
    return wrong(bench, option, right);
}

static int get_unsigned(const struct bench *bench, enum option option, unsigned min, unsigned max, unsigned preset,
                        unsigned *out)
{
    uint64_t value = preset;
    int status = get_u64(bench, option, min, max, preset, &value);
    *out = (unsigned)value;
    return status;
}

static int get_double(const struct bench *bench, enum option option, double max, double preset, double *out)
{
    char right[96];
    *out = preset;
    if (!bench->options[option].value || (tool_parse_double(bench->options[option].value, out) && *out <= max))
        return TOOL_OK;
    snprintf(right, sizeof(right), "a number from 0 to %g is needed", max);
    return wrong(bench, option, right);
}

static int get_size(struct bench *bench)
{
    const char *text = bench->options[OPT_SIZE].value;
    char first[24];
    uint64_t min = 16, max = 16;
    bool good = true;
    if (text) {
        size_t len = strcspn(text, "-");
        good = len < sizeof(first);
        if (good) {
            memcpy(first, text, len);
            first[len] = '\0';
            good = tool_parse_u64(first, 1, ITEM_MAX_SIZE, &min);
            max = min;
            if (good && text[len] == '-')
                good = tool_parse_u64(text + len + 1, min, ITEM_MAX_SIZE, &max);
        }
    }
    bench->items.min_size = (unsigned)min;
    bench->items.max_size = (unsigned)max;
    return good ? TOOL_OK
                : wrong(bench, OPT_SIZE, "a number of bytes from 1 to 4096 is needed, or two with '-' between");
}

static int get_order(struct bench *bench)
{
    const char *text = bench->options[OPT_ORDER].value;
    bench->items.order = bench->new_items ? ITEMS_SEQUENTIAL : ITEMS_UNIFORM;
    bench->items.skew = 0.99;
    if (!text)
        return TOOL_OK;
    if (strcmp(text, "uniform") == 0)
        bench->items.order = ITEMS_UNIFORM;
    else if (strcmp(text, "sequential") == 0)
        bench->items.order = ITEMS_SEQUENTIAL;
    else if (strncmp(text, "zipf", 4) == 0 &&
             (text[4] == '\0' || (text[4] == ':' && tool_parse_double(text + 5, &bench->items.skew) &&
                                  bench->items.skew > 0 && bench->items.skew < 10)))
        bench->items.order = ITEMS_ZIPF;
    else
        return wrong(bench, OPT_ORDER, "'uniform', 'sequential', 'zipf' or 'zipf:<exponent below 10>' is needed");
    if (bench->items.skew == 1) /* the method's formulas have a pole at 1 */
        bench->items.skew = 1.000001;
    return TOOL_OK;
}

static int get_reserve(struct bench *bench)
{
    const char *text = bench->options[OPT_RESERVE].value;
    char capacity[24];
    if (!text)
        return TOOL_OK;
    size_t len = strcspn(text, ":");
    bench->reserve_error = 0.01;
    if (len < sizeof(capacity)) {
        memcpy(capacity, text, len);
        capacity[len] = '\0';
        if (tool_parse_u64(capacity, 1, UINT64_MAX, &bench->reserve_capacity) &&
            (text[len] == '\0' || (tool_parse_double(text + len + 1, &bench->reserve_error) &&
                                   bench->reserve_error > 0 && bench->reserve_error < 1)))
            return TOOL_OK;
    }
    return wrong(bench, OPT_RESERVE, "a capacity, or '<capacity>:<error rate>', is needed");
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
    int status = get_unsigned(bench, OPT_CONNECTIONS, 1, 100000, 50, &load->connections);
    if (!status)
        status = get_unsigned(bench, OPT_PIPELINE, 1, 100000, 1, &load->pipeline);
    if (!status)
        status = get_unsigned(bench, OPT_THREADS, 1, 1024, 1, &load->threads);
    if (!status)
        status = get_u64(bench, OPT_REQUESTS, 1, UINT64_MAX - 1, 0, &load->requests);
    if (!status)
        status = get_double(bench, OPT_TIME, 1e6, load->requests ? 0 : 10, &load->seconds);
    if (!status)
        status = get_double(bench, OPT_WARMUP, 1e6, load->requests ? 0 : 1, &load->warmup);
    if (!status)
        status = get_double(bench, OPT_RATE, 1e9, 0, &load->rate);
    load->spin = bench->options[OPT_SPIN].value != NULL;
    if (status)
        return status;
    if (load->spin && load->rate <= 0)
        return tool_misused("bench", "--spin needs a --rate: without one nothing is due at a moment");
    if (load->requests && load->warmup > 0)
        return tool_misused("bench", "--requests counts from the first one: it goes without --warmup");
    if (!load->requests && load->seconds <= 0)
        return tool_misused("bench", "--time 0 needs --requests");
    if (load->threads > load->connections)
        return tool_misused("bench", "%u threads for %u connections are too many", load->threads, load->connections);
    return TOOL_OK;
}

static int get_items(struct bench *bench)
{
    int status = get_u64(bench, OPT_ITEMS, 1, UINT64_C(1) << 61, 1000000, &bench->items.count);
    if (!status)
        status = get_u64(bench, OPT_START, 0, UINT64_C(1) << 61, 0, &bench->items.start);
    if (!status)
        status = get_u64(bench, OPT_SEED, 0, UINT64_MAX, 1, &bench->items.seed);
    if (!status)
        status = get_double(bench, OPT_HITS, 1, 1, &bench->items.hits);
    if (!status)
        status = get_size(bench);
    if (!status)
        status = get_order(bench);
    return status;
}

static int get_endpoint(struct bench *bench, const struct tool_args *args)
{
    bool with_tls = tool_option(args, "--tls") != NULL;
    unsigned port, resp;
    int status = get_unsigned(bench, OPT_PORT, 1, 65535, 6379, &port);
    if (!status)
        status = get_unsigned(bench, OPT_RESP, 2, 3, 2, &resp);
    if (!status && with_tls && bench->options[OPT_UNIX].value)
        status = tool_misused("bench", "--tls is for an address, not for a Unix socket");
    if (!status)
        status = tls_options_read(args, with_tls, &bench->tls);
    if (status)
        return status;
    bench->endpoint = (struct endpoint){
        .host = bench->options[OPT_HOST].value ? bench->options[OPT_HOST].value : "127.0.0.1",
        .port = bench->options[OPT_PORT].value ? bench->options[OPT_PORT].value : "6379",
        .unixpath = bench->options[OPT_UNIX].value,
        .password = bench->options[OPT_PASSWORD].value ? bench->options[OPT_PASSWORD].value : getenv("REDISCLI_AUTH"),
        .resp = (int)resp,
        .tls = bench->tls,
    };
    return TOOL_OK;
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
    if (!bench->options[OPT_ITEMS].value && bench->items.count > capacity)
        bench->items.count = capacity < LOAD_BATCH ? capacity : capacity - capacity % LOAD_BATCH;
    loaded = load_batches(bench) * load_batch(bench);
    if (loaded <= capacity)
        return TOOL_OK;
    return tool_misused("bench", "--load with --items %llu needs a --reserve of at least %llu",
                        (unsigned long long)bench->items.count, (unsigned long long)loaded);
}

static int get_options(struct bench *bench, const struct tool_args *args)
{
    static const char *const names[OPT_COUNT] = {
        "--host",    "--port",  "--unix",     "--password", "--resp",  "--connections", "--pipeline",
        "--threads", "--time",  "--requests", "--warmup",   "--rate",  "--spin",        "--filter",
        "--filters", "--items", "--start",    "--size",     "--order", "--hits",        "--batch",
        "--reserve", "--load",  "--json",     "--hdr",      "--seed",  "--progress",
    };
    for (int i = 0; i < OPT_COUNT; i++) {
        bench->options[i].name = names[i];
        bench->options[i].value = tool_option(args, names[i]);
    }
    choose_workload(bench, args->positional[0]);
    int status = get_endpoint(bench, args);
    if (!status)
        status = get_items(bench);
    if (!status)
        status = get_load(bench);
    if (!status)
        status = get_unsigned(bench, OPT_BATCH, 1, 1000000, 100, &bench->batch);
    if (!status)
        status = get_u64(bench, OPT_FILTERS, 1, UINT64_C(1) << 40, 1, &bench->nfilters);
    if (!status)
        status = get_reserve(bench);
    bench->filter = bench->options[OPT_FILTER].value ? bench->options[OPT_FILTER].value : "bench";
    bench->load_first = bench->options[OPT_LOAD].value != NULL;
    if (!status && bench->nfilters > 1 && (bench->load_first || bench->reserve_capacity))
        status =
            tool_misused("bench", "--reserve and --load are for one filter; several are made by the first add to each");
    return status ? status : fit_items(bench);
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

/* The value of a field of INFO, -1 if it is not there. */
static double info_number(const char *info, const char *field)
{
    const char *at = strstr(info, field);
    return at ? strtod(at + strlen(field), NULL) : -1;
}

/* Seconds of CPU that the server reports for itself; negative if it does not. */
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

static int write_files(const struct bench *bench, const struct report *report)
{
    const char *json = bench->options[OPT_JSON].value, *hdr = bench->options[OPT_HDR].value;
    for (int i = 0; i < 2; i++) {
        const char *path = i == 0 ? json : hdr;
        if (!path)
            continue;
        bool to_stdout = strcmp(path, "-") == 0;
        FILE *out = to_stdout ? stdout : fopen(path, "w");
        if (!out)
            return tool_failed("bench", "cannot write %s: %s", path, strerror(errno));
        if (i == 0)
            report_json(report, out);
        else
            hdr_print(&report->result->latency, out);
        bool failed = fflush(out) != 0 || ferror(out);
        if (!to_stdout && fclose(out) != 0)
            failed = true;
        if (failed)
            return tool_failed("bench", "cannot write %s: %s", path, strerror(errno));
    }
    return TOOL_OK;
}

static bool to_stdout(const struct bench *bench, enum option option)
{
    return bench->options[option].value && strcmp(bench->options[option].value, "-") == 0;
}

static int measure(struct bench *bench, struct load_result *result)
{
    struct errbuf err = {""};
    char server[128];
    bool shows = bench->options[OPT_PROGRESS].value || isatty(STDERR_FILENO);
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
    if (!to_stdout(bench, OPT_JSON) && !to_stdout(bench, OPT_HDR))
        report_print(&report, stdout);
    return write_files(bench, &report);
}

static int run(const struct tool_args *args)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    struct load_result *result = calloc(1, sizeof(*result));
    int status = bench && result ? get_options(bench, args) : tool_failed("bench", "out of memory");
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
    if (bench)
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
    {.name = "--host", .value = "H", .doc = "Its address; 127.0.0.1 without one.", .group = "Server"},
    NUMBER("--port", "P", "Its port (6379)."),
    {.name = "--unix", .value = "PATH", .doc = "Its Unix socket, instead of an address."},
    {.name = "--password", .value = "WORD", .doc = "Its password; otherwise that of $REDISCLI_AUTH, if there is one."},
    {.name = "--resp", .value = "2|3", .words = "2 3", .doc = "The version of the protocol (2)."},
    {.name = "--tls", .doc = "Connects with TLS; see below."},
    {.name = "--connections", .value = "N", .doc = "Connections (50).", .group = "Load"},
    NUMBER("--pipeline", "N", "Requests under way on each connection (1)."),
    NUMBER("--threads", "N", "Threads of this program (1)."),
    NUMBER("--time", "SECONDS", "How long to measure (10)."),
    NUMBER("--warmup", "SECONDS", "How long to run before (1)."),
    NUMBER("--requests", "N", "How many requests to send, instead of a time."),
    NUMBER(
        "--rate", "N",
        "Requests per second that are due whatever the server does. Latencies then run from the moment a request was "
        "due to that when the kernel has the reply; by how much this program itself is late is shown apart. Without a "
        "rate each connection waits for its replies."),
    {.name = "--spin",
     .doc =
         "With --rate: never sleeps, so that nothing is late because this program had to be woken; takes a processor "
         "per thread. What is noticed 0.1 ms late nevertheless, as the processor was taken away, is counted and not "
         "sent."},
    {.name = "--items", .value = "N", .doc = "Items to choose from (1000000).", .group = "Items"},
    NUMBER("--start", "N", "The number of the first one (0)."),
    {.name = "--size", .value = "BYTES", .doc = "Bytes of an item, or MIN-MAX (16)."},
    {.name = "--order",
     .value = "ORDER",
     .words = "uniform sequential zipf",
     .doc = "uniform, sequential or zipf[:EXPONENT] (uniform; for add and madd sequential, all new)."},
    NUMBER("--hits", "SHARE",
           "The share of queries for items that are among them (1); others are for items never added."),
    NUMBER("--batch", "N", "Items of {items} (100)."),
    NUMBER("--seed", "N", "Of the random numbers (1)."),
    {.name = "--filter", .value = "NAME", .doc = "The filter (bench).", .group = "Filters"},
    NUMBER("--filters", "N", "One of NAME:0 .. NAME:<N-1> at random (1: NAME itself)."),
    {.name = "--reserve",
     .value = "CAPACITY",
     .doc = "Deletes NAME and reserves it anew, not scaling; CAPACITY:RATE gives a rate other than 0.01."},
    {.name = "--load",
     .doc = "Adds all items before it measures; with --reserve --items is CAPACITY, if that is less."},
    {.name = "--json", .value = "FILE", .doc = "The result as JSON; - is the standard output.", .group = "Output"},
    {.name = "--hdr", .value = "FILE", .doc = "Percentiles in HdrHistogram's text form; - is the standard output."},
    {.name = "--progress", .doc = "Shows a line on stderr once a second, also when that is not a terminal."},
    TLS_OPTIONS,
    {.name = NULL},
};

const struct tool_command tool_bench_command = {
    .name = "bench",
    .arguments = "WORKLOAD",
    .min = 1,
    .max = 1,
    .summary = "Puts load on a RESP server and measures throughput and latency.",
    .text = "WORKLOAD is exists, add, mexists, madd, ping, get, set, or a command line of your own in quotes, in which "
            "{filter} stands for a filter's name, {item} for the next item and {items} for a batch of them. The first "
            "error that the server answers ends the run.",
    .options = options,
    .examples = "bloomery bench exists --reserve 1000000 --load --pipeline 16\n"
                "bloomery bench 'BF.MEXISTS {filter} {items}' --batch 500 --time 30 --json -",
    .run = run,
};

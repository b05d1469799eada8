/* INFO: the state of the server as text, in Redis's sections. Files of the kernel are read and counters of all threads
 * are summed up, so it is not done on the loop. */
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "acl.h"
#include "all_names.h"
#include "monitors.h"
#include "bloom_keyring.h"
#include "clock.h"
#include "command.h"
#include "facts.h"
#include "half_loads.h"
#include "handlers.h"
#include "histogram.h"
#include "host.h"
#include "key_file.h"
#include "persistence.h"
#include "registry_key.h"
#include "memory_use.h"
#include "server.h"
#include "version.h"

struct info {
    const struct facts *facts;
    struct buf *out;
};

/* Appends a line. */
__attribute__((format(printf, 2, 3))) static void info_line(struct info *info, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    buf_vappendf(info->out, fmt, args);
    va_end(args);
    buf_append(info->out, "\r\n", 2);
}

/* ---- values of the table ---- */

#define TO_TEXT(x)  #x
#define AS_TEXT(x)  TO_TEXT(x)
#define GCC_VERSION AS_TEXT(__GNUC__) "." AS_TEXT(__GNUC_MINOR__) "." AS_TEXT(__GNUC_PATCHLEVEL__)
#define MODULE_LINE "name=bf,ver=" AS_TEXT(REDISBLOOM_COMPAT_VERSION) ",api=1,filters=0,usedby=[],using=[],options=[]"
#define TEXT_SIZE   512

static const char *system_name(char *text)
{
    struct utsname os;
    if (uname(&os) != 0)
        return NULL;
    snprintf(text, TEXT_SIZE, "%s %s %s", os.sysname, os.release, os.machine);
    return text;
}

static const char *allocator_name(char *text)
{
    snprintf(text, TEXT_SIZE, "glibc-%s", gnu_get_libc_version());
    return text;
}

static const char *policy_name(const struct facts *f)
{
    static const char *const policies[] = {"noeviction", "reload", "maybe"};
    return policies[f->config->memory.maxmemory_policy];
}

/* ---- lines that are no numbers ---- */

static void listeners(struct info *info)
{
    const struct config *cfg = info->facts->config;
    const struct server *server = info->facts->server;
    char text[1024] = "";
    size_t used = 0, n = 0;

    for (size_t i = 0; i < cfg->network.bind.count && used < sizeof(text); i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "bind=%s,", cfg->network.bind.items[i]);
    if (server->process.port != 0)
        info_line(info, "listener%zu:name=tcp,%sport=%d", n++, text, server->process.port);
    if (server->process.tls_port != 0)
        info_line(info, "listener%zu:name=tls,%sport=%d", n++, text, server->process.tls_port);
    if (cfg->network.unixsocket[0] != '\0')
        info_line(info, "listener%zu:name=unix,bind=%s", n, cfg->network.unixsocket);
}

/* How evenly connections are spread. */
static void worker_connections(struct info *info)
{
    char text[2048] = "";
    size_t used = 0;

    for (unsigned i = 0; i < info->facts->server->threads.nworkers && used < sizeof(text); i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%u", i ? "," : "",
                                 host_connections(info->facts->server, i));
    info_line(info, "worker_connections:%s", text);
}

typedef size_t list_keys(struct bloom_pool *pool, uint64_t *ids, size_t max);

static void list_ids(struct info *info, const char *field, list_keys *list)
{
    uint64_t ids[KEY_FILE_KEYS];
    char text[KEY_FILE_KEYS * 17 + 1] = ""; /* 16 digits and a comma */
    size_t n = list(info->facts->server->pool, ids, KEY_FILE_KEYS);

    for (size_t i = 0; i < n; i++)
        snprintf(text + i * 17, sizeof(text) - i * 17, "%016" PRIx64 "%s", ids[i], i + 1 < n ? "," : "");
    info_line(info, "%s:%s", field, text);
}

static void keys_of_filters(struct info *info)
{
    list_ids(info, "bf_used_keys", bloom_keyring_used);
    list_ids(info, "bf_missing_keys", bloom_keyring_missing); /* KEYED filters of these answer errors */
}

/* ---- sections ---- */

enum info_section {
    INFO_NONE,
    INFO_SERVER,
    INFO_CLIENTS,
    INFO_MEMORY,
    INFO_PERSISTENCE,
    INFO_STATS,
    INFO_REPLICATION,
    INFO_CPU,
    INFO_MODULES,
    INFO_CLUSTER,
    INFO_BF
};

/* HUMAN: bytes, exactly and as people read them, 1536 and 1.50K; MICROS: seconds. */
enum info_format { WHOLE, HUNDREDTHS, PERCENT, SHORT, HUMAN, MICROS };

static void line_number(struct info *info, const char *name, enum info_format format, double value)
{
    static const int digits[] = {[HUNDREDTHS] = 2, [PERCENT] = 2, [MICROS] = 6};
    static const char units[] = "BKMGTPE";
    size_t unit = 0;

    if (isnan(value))
        return;
    if (format == SHORT)
        info_line(info, "%s:%.6g", name, value);
    else
        info_line(info, "%s:%.*f%s", name, format == WHOLE || format == HUMAN ? 0 : digits[format], value,
                  format == PERCENT ? "%" : "");
    if (format != HUMAN)
        return;
    for (; value >= 1024 && unit < sizeof(units) - 2; unit++)
        value /= 1024;
    info_line(info, "%s_human:%.*f%c", name, unit == 0 ? 0 : 2, value, units[unit]);
}

static void line_text(struct info *info, const char *name, const char *value)
{
    if (value)
        info_line(info, "%s:%s", name, value);
}

/* Redis has these fields, and exporters may ask for them. */
static void line_zeros(struct info *info, const char *names)
{
    struct slice rest = slice_of(names), name;
    while (config_next_word(&rest, &name))
        info_line(info, "%.*s:0", (int)name.len, name.ptr);
}

/* A value is read only if its section is wanted. */
static void write_section(struct info *info, enum info_section wanted)
{
    const struct facts *f = info->facts;
    char text[TEXT_SIZE];
#define NUMBER(section, name, format, value) \
    if (wanted == INFO_##section)            \
        line_number(info, name, format, (double)(value));
#define FACT(section, name, format, type, metric, help, value) NUMBER(section, name, format, value)
#define TEXT(section, name, value) \
    if (wanted == INFO_##section)  \
        line_text(info, name, value);
#define CALL(section, function)   \
    if (wanted == INFO_##section) \
        function(info);
#define ZEROS(section, names)     \
    if (wanted == INFO_##section) \
        line_zeros(info, names);
#include "facts.def"
}

/* ---- by command, by error ---- */

static void commandstats(struct info *info)
{
    const struct command *row;

    for (size_t i = 0; (row = command_row(i)) != NULL; i++) {
        uint64_t calls = stats_get(&info->facts->stats.calls[i]), ns = stats_get(&info->facts->stats.time_ns[i]);
        uint64_t rejected = stats_get(&info->facts->stats.rejected[i]),
                 failed = stats_get(&info->facts->stats.failed[i]);

        if (calls + rejected + failed > 0)
            info_line(info,
                      "cmdstat_%s:calls=%" PRIu64 ",usec=%" PRIu64 ",usec_per_call=%.2f,rejected_calls=%" PRIu64
                      ",failed_calls=%" PRIu64,
                      row->full_name, calls, ns / 1000, calls == 0 ? 0 : (double)ns / 1000 / (double)calls, rejected,
                      failed);
    }
}

static void errorstats(struct info *info)
{
    size_t used = atomic_load_explicit(&info->facts->errors.used, memory_order_relaxed);

    for (size_t i = 0; i < used; i++) {
        const struct errorstats_row *row = &info->facts->errors.rows[i];
        uint64_t count = atomic_load_explicit(&row->count, memory_order_relaxed);
        if (count > 0)
            info_line(info, "errorstat_%s:count=%" PRIu64, row->code, count);
    }
}

static void latencystats(struct info *info)
{
    const struct command *row;
    struct histogram histogram;

    for (size_t i = 0; (row = command_row(i)) != NULL; i++) {
        if (!info->facts->config->process.latency_tracking ||
            !counters_histogram(info->facts->server->stats.counters, i, &histogram))
            continue;
        info_line(info, "latency_percentiles_usec_%s:p50=%.3f,p99=%.3f,p99.9=%.3f", row->full_name,
                  (double)histogram_percentile(&histogram, 50) / 1000,
                  (double)histogram_percentile(&histogram, 99) / 1000,
                  (double)histogram_percentile(&histogram, 99.9) / 1000);
    }
}

void facts_of_commands(const struct facts *facts, struct buf *out)
{
    struct info info = {facts, out};
    commandstats(&info);
    latencystats(&info);
    errorstats(&info);
}

static void keyspace(struct info *info)
{
    struct registry *registry = info->facts->server->registry;
    for (unsigned number = 0; number < (unsigned)info->facts->config->data.databases; number++) {
        unsigned database = registry_database(registry, number);
        size_t n = all_names_count(registry, info->facts->server->sstables, database); /* as DBSIZE */
        struct registry_expiry expiry;
        if (n == 0)
            continue;
        registry_database_expiry(registry, database, &expiry);
        info_line(info, "db%u:keys=%zu,expires=%zu,avg_ttl=%" PRId64 ",subexpiry=0", number, n, expiry.count,
                  expiry.avg_ttl_ms);
    }
}

/* ---- the command ---- */

#define IN_DEFAULT    1u
#define IN_ALL        2u
#define IN_EVERYTHING 4u
#define IN_EACH       (IN_DEFAULT | IN_ALL | IN_EVERYTHING)

static const struct section {
    const char *name, *title;
    unsigned in;
    enum info_section section;        /* rows of the table */
    void (*write)(struct info *info); /* or a function */
} sections[] = {
    {"server", "Server", IN_EACH, INFO_SERVER, NULL},
    {"clients", "Clients", IN_EACH, INFO_CLIENTS, NULL},
    {"memory", "Memory", IN_EACH, INFO_MEMORY, NULL},
    {"persistence", "Persistence", IN_EACH, INFO_PERSISTENCE, NULL},
    {"stats", "Stats", IN_EACH, INFO_STATS, NULL},
    {"replication", "Replication", IN_EACH, INFO_REPLICATION, NULL},
    {"cpu", "CPU", IN_EACH, INFO_CPU, NULL},
    {"modules", "Modules", IN_DEFAULT | IN_EVERYTHING, INFO_MODULES, NULL},
    {"commandstats", "Commandstats", IN_ALL | IN_EVERYTHING, INFO_NONE, commandstats},
    {"errorstats", "Errorstats", IN_EACH, INFO_NONE, errorstats},
    {"latencystats", "Latencystats", IN_ALL | IN_EVERYTHING, INFO_NONE, latencystats},
    {"cluster", "Cluster", IN_EACH, INFO_CLUSTER, NULL},
    {"keyspace", "Keyspace", IN_EACH, INFO_NONE, keyspace},
    {"bf", "bf", IN_EACH, INFO_BF, NULL},
};

#define NSECTIONS (sizeof(sections) / sizeof(sections[0]))

struct info_request {
    bool wanted[NSECTIONS];
    struct facts facts; /* large for a stack */
};

static void want_section(struct info_request *request, struct slice name)
{
    unsigned in = slice_is(name, "default")      ? IN_DEFAULT
                  : slice_is(name, "all")        ? IN_ALL
                  : slice_is(name, "everything") ? IN_EVERYTHING
                                                 : 0;

    for (size_t i = 0; i < NSECTIONS; i++)
        if ((sections[i].in & in) != 0 || slice_is(name, sections[i].name))
            request->wanted[i] = true;
}

static void run_info(struct command_job *job)
{
    struct info_request *request = job->data;
    struct buf text;
    struct info all = {&request->facts, &text}, *info = &all;

    buf_init(&text, job->reply.buf->cap);
    if (request->wanted[NSECTIONS - 1])
        server_bf_totals(job->server, &request->facts.totals); /* first: no reference may be held over it */
    facts_gather(job->server, &request->facts);
    for (size_t i = 0; i < NSECTIONS; i++) {
        if (!request->wanted[i])
            continue;
        if (buf_len(&text) > 0)
            buf_append(&text, "\r\n", 2);
        info_line(info, "# %s", sections[i].title);
        if (sections[i].write)
            sections[i].write(info);
        else
            write_section(info, sections[i].section);
    }
    reply_text(&job->reply, &text);
}

void cmd_info(struct command_ctx *ctx)
{
    struct info_request request = {.wanted = {false}};

    if (command_argc(ctx) == 1)
        want_section(&request, slice_of("default"));
    for (size_t i = 1; i < command_argc(ctx); i++)
        want_section(&request, command_arg(ctx, i));
    command_defer_copy(ctx, run_info, &request, sizeof(request));
}

/* ---- facts ---- */

/* Zeros unless the server is loading: a probe may ask before the load has begun. */
static void load_of(const struct server *server, struct facts_load *out)
{
    const struct load_progress *load = &server->persistence->load;
    *out = (struct facts_load){0};
    if (!server_loading(server))
        return;
    double seconds = (double)(clock_ms() - load->started_ms) / 1000;
    out->started_unix_s = load->started_unix_ms / 1000;
    out->done = atomic_load_explicit(&load->done_bytes, memory_order_relaxed);
    out->total = atomic_load_explicit(&load->total_bytes, memory_order_relaxed);
    if (out->total < out->done)
        out->total = out->done;
    out->eta_s = out->done ? seconds * (double)(out->total - out->done) / (double)out->done : 1;
}

void readiness_of(struct server *server, struct readiness *readiness_out)
{
    const struct journal *journal = server_journal(server);
    char details[ERRBUF_SIZE];
    struct errbuf missed; /* has paths, which not everybody who may ask should see */
    struct facts_load load;
    load_of(server, &load);
    readiness_out->ready = false;
    if (server_loading(server))
        snprintf(readiness_out->reason, sizeof(readiness_out->reason), "loading the data directory: %.0f %%",
                 load.total ? 100 * (double)load.done / (double)load.total : 0);
    else if (sstables_may_miss(server->sstables, &missed))
        snprintf(readiness_out->reason, sizeof(readiness_out->reason), "%s",
                 sstables_is_scanning(server->sstables) ? SSTABLES_SCANNING : SSTABLES_INCOMPLETE);
    else if (persistence_refusal(server, details, sizeof(details)))
        snprintf(readiness_out->reason, sizeof(readiness_out->reason), "%s: writes are refused",
                 journal && journal_refuses(journal) ? "the log cannot be written" : "the last save failed");
    else if (server_config(server)->data.read_only)
        snprintf(readiness_out->reason, sizeof(readiness_out->reason), "read-only is yes: writes are refused");
    else
        *readiness_out = (struct readiness){.ready = true, .reason = "ready"};
}

/* Whether admission refuses writes for lack of memory, which it does only if evictions cannot make room. */
static bool refuses_memory(struct server *server)
{
    const struct config *config = server_config(server);
    bool evicts = config->memory.maxmemory_policy != MEMORY_NOEVICTION && !server_loading(server);
    uint64_t used = evicts ? memory_limited(server) : memory_staying(server);
    bool over = config->memory.maxmemory && used >= config->memory.maxmemory;
    return over && !(evicts && !residency_is_stuck(server));
}

void facts_process_bytes(uint64_t *resident_out, uint64_t *virtual_out)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long total, resident, page = (unsigned long long)sysconf(_SC_PAGESIZE);
    bool known = file && fscanf(file, "%llu %llu", &total, &resident) == 2;
    *virtual_out = known ? total * page : 0;
    *resident_out = known ? resident * page : 0;
    if (file)
        fclose(file);
}

void facts_gather(struct server *server, struct facts *f)
{
    struct journal *journal = server_journal(server);
    f->server = server;
    f->config = server_config(server);
    f->gauges = counters_main(server->stats.counters);
    readiness_of(server, &f->readiness);
    load_of(server, &f->load);
    counters_sum(server->stats.counters, &f->stats);
    counters_errors(server->stats.counters, &f->errors);
    sessions_totals(server->clients.sessions, &f->clients);
    f->blocked = 0;
    for (unsigned i = 0; i < server->threads.nworkers; i++)
        f->blocked += host_blocked(server, i);
    memory_use(server, &f->memory);
    f->sizes.used = memory_use_total(&f->memory);
    f->sizes.peak = server_peak_bytes(server);
    if (f->sizes.peak < f->sizes.used)
        f->sizes.peak = f->sizes.used;
    facts_process_bytes(&f->sizes.resident, &f->sizes.virtual_bytes);
    reclaimer_counts(server->reclaimer, &f->sizes.pending_objects, &f->sizes.freed_objects);
    pubsub_totals(server->pubsub, &f->pubsub);
    f->log = (struct journal_info){.records = false};
    if (journal)
        journal_info(journal, &f->log);
    saver_info(server->persistence->saver, &f->saves);
    residency_info(server, &f->residency);
    registry_expiry(server->registry, &f->expiry);
    f->sstables = (struct sstables_numbers){0};
    if (server->sstables)
        sstables_numbers(server->sstables, &f->sstables);
    f->refuses_memory = refuses_memory(server);
    getrusage(RUSAGE_SELF, &f->cpu[0]);
    getrusage(RUSAGE_CHILDREN, &f->cpu[1]);
}

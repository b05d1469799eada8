/* bloomery status: whether a server is healthy, by its own INFO, in one screen and one exit code. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "log_text.h"
#include "output.h"
#include "quarantined.h"
#include "server_call.h"
#include "tls_options.h"

#define COMMAND     "status"
#define DEFAULT_URL "redis://127.0.0.1:6379"
#define DEADLINE_MS 10000 /* for all of it */
#define REASONS     32
#define NAMED       5    /* quarantined filters that are named */
#define NEARLY      0.95 /* of a limit */
#define CERT_DAYS   14

struct status {
    struct server_call server;
    char *info; /* of the server, with a NUL */
    char reasons[REASONS][512];
    unsigned n;
};

/* ---- INFO ---- */

/* The value of a field, of *len bytes; NULL: the server has no such field. */
static const char *field(const struct status *status, const char *name, int *len)
{
    size_t name_len = strlen(name);
    for (const char *at = status->info; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, name, name_len) == 0 && at[name_len] == ':') {
            *len = (int)strcspn(at + name_len + 1, "\r\n");
            return at + name_len + 1;
        }
    }
    *len = 0;
    return NULL;
}

static uint64_t number(const struct status *status, const char *name)
{
    int len;
    const char *value = field(status, name, &len);
    return value ? strtoull(value, NULL, 10) : 0;
}

static bool is(const struct status *status, const char *name, const char *word)
{
    int len;
    const char *value = field(status, name, &len);
    return value && (size_t)len == strlen(word) && memcmp(value, word, (size_t)len) == 0;
}

/* ---- problems ---- */

__attribute__((format(printf, 2, 3))) static void problem(struct status *status, const char *fmt, ...)
{
    va_list args;
    if (status->n == REASONS)
        return;
    va_start(args, fmt);
    vsnprintf(status->reasons[status->n++], sizeof(status->reasons[0]), fmt, args);
    va_end(args);
}

/* The last good save, or, before the first one, the start. */
static struct log_text since_save(const struct status *status)
{
    uint64_t now = (uint64_t)time(NULL), saved = number(status, "rdb_last_save_time");
    return log_count(now > saved ? now - saved : 0, "second");
}

static void look_at_saves(struct status *status)
{
    int len;
    const char *why = field(status, "last_save_error", &len);
    if (!is(status, "rdb_last_bgsave_status", "err"))
        return;
    problem(status, "the last save has failed%s%.*s; BGSAVE tries again", why ? ": " : "", len, why ? why : "");
    if (number(status, "rdb_saves"))
        problem(status, "  the last good save was %s ago", since_save(status).text);
    else
        problem(status, "  no save has succeeded since the start, %s ago", since_save(status).text);
    if (!is(status, "aof_enabled", "1"))
        problem(status, "  there is no log of changes: stop-writes-on-bgsave-error may refuse writes until a save "
                        "succeeds");
}

static void look_at_log(struct status *status)
{
    int len;
    const char *why = field(status, "aof_last_write_error", &len);
    if (is(status, "aof_last_write_status", "err"))
        problem(
            status,
            "it cannot write its log of changes: %.*s; make room or repair the disk, and writes resume automatically",
            len, why ? why : "");
    else if (why)
        problem(status, "its log of changes is incomplete: %.*s; writes are refused until a save: run BGSAVE", len,
                why);
}

static void look_at_keys(struct status *status)
{
    int len;
    const char *ids = field(status, "bf_missing_keys", &len);
    if (ids && len > 0)
        problem(status, "KEYED filters answer errors: the key file lacks the keys %.*s", len, ids);
}

static void look_at_data(struct status *status)
{
    int percent_len;
    const char *percent = field(status, "loading_loaded_perc", &percent_len);
    if (is(status, "loading", "1"))
        problem(status, "it is loading its filters, %.*s %% so far, and serves them after the load",
                percent ? percent_len : 1, percent ? percent : "0");
    if (is(status, "bf_read_only", "1"))
        problem(status, "it refuses writes: its setting read-only is yes");
    look_at_saves(status);
    look_at_log(status);
    look_at_keys(status);
    if (number(status, "sstable_scanning"))
        problem(status, "it scans sstable-dir for the first time: %s so far; BF.FIND lists unknown filters",
                log_count(number(status, "sstable_filters"), "filter").text);
    if (number(status, "sstable_dirs_unreachable"))
        problem(status, "%" PRIu64 " of the directories of sstable-dir cannot be read; check that they are mounted",
                number(status, "sstable_dirs_unreachable"));
    if (number(status, "sstable_filters_broken"))
        problem(status, "%s of SSTables cannot be read; 'bloomery verify' shows the reasons",
                log_count(number(status, "sstable_filters_broken"), "filter").text);
}

/* The memory that maxmemory limits. */
static uint64_t limited_memory(const struct status *status)
{
    uint64_t used = number(status, "used_memory"), uncounted = number(status, "mem_not_counted_for_evict");
    return used > uncounted ? used - uncounted : 0;
}

/* If bits may be evicted, memory is meant to be nearly full. */
static void look_at_memory(struct status *status)
{
    uint64_t most = number(status, "maxmemory"), used = limited_memory(status);
    bool evicts = is(status, "maxmemory_policy", "reload") || is(status, "maxmemory_policy", "maybe");
    if (!most || (double)used < (evicts ? 1 : NEARLY) * (double)most)
        return;
    problem(status, "memory: %s of maxmemory %s are used; %s", log_bytes(used).text, log_bytes(most).text,
            evicts ? "evictions are too slow or impossible, for example after a failed save; raise maxmemory"
                   : "adds that need more are refused; raise maxmemory, or DEL filters");
}

static void look_at_limits(struct status *status)
{
    uint64_t clients = number(status, "connected_clients"), allowed = number(status, "maxclients");
    uint64_t expires = number(status, "tls_certificate_expires"), now = (uint64_t)time(NULL);
    static const char renew[] = "replace its files and send SIGHUP";
    look_at_memory(status);
    if (allowed && (double)clients >= NEARLY * (double)allowed)
        problem(status, "clients: %" PRIu64 " of maxclients %" PRIu64 "; CLIENT LIST shows them", clients, allowed);
    if (expires && expires <= now)
        problem(status, "the certificate has expired; %s", renew);
    else if (expires && expires - now < CERT_DAYS * 86400)
        problem(status, "the certificate expires in %s; %s", log_count((expires - now) / 86400, "day").text, renew);
}

static void name_one(void *ctx, const char *name, struct slice why)
{
    problem(ctx, "  %.*s: %.*s", SLICE_SHOWN_MAX, name, (int)(why.len < 300 ? why.len : 300), why.ptr);
}

/* A filter that cannot be named is a problem, too, and counts. */
static void name_quarantined(struct status *status)
{
    struct errbuf err = {{0}};
    uint64_t n = number(status, "bf_quarantined_filters");
    unsigned named;
    if (!n)
        return;
    problem(status, "%s in quarantine; restore the files and restart the server, or DEL", log_count(n, "filter").text);
    if (quarantined_find(&status->server.peer, NAMED, name_one, status, &named, &err) != 0)
        problem(status, "  the list is incomplete: %s", err.text);
    else if (named < n)
        problem(status, "  and %" PRIu64 " more, here or in other databases", n - named);
}

/* ---- the server ---- */

static int ask(struct status *status)
{
    struct resp_reply reply;
    int rc = server_call_connect(&status->server);
    if (rc != TOOL_OK)
        return rc;
    PEER_PUT(&status->server.peer, slice_of("INFO"), slice_of("everything"));
    rc = server_call_reply(&status->server, &reply);
    if (rc != TOOL_OK)
        return rc;
    struct slice text = resp_reply_text(&reply, 0);
    int len;
    status->info = strndup(text.ptr, text.len);
    if (!status->info)
        return tool_failed(COMMAND, "out of memory");
    if (!field(status, "bloomery_version", &len))
        return tool_failed(COMMAND, "%s: not a Bloomery server: its INFO has no bloomery_version",
                           status->server.url.shown);
    look_at_data(status);
    look_at_limits(status);
    name_quarantined(status);
    return TOOL_OK;
}

static void print_json(const struct status *status, struct buf *json)
{
    int len;
    const char *version = field(status, "bloomery_version", &len);
    json_str(json, "server", status->server.url.shown);
    json_text(json, "version", (struct slice){version, (size_t)len});
    json_bool(json, "healthy", status->n == 0);
    json_begin(json, "reasons", '[');
    for (unsigned i = 0; i < status->n; i++)
        json_text(json, NULL, (struct slice){status->reasons[i], strlen(status->reasons[i])});
    json_end(json, ']');
    JSON_COUNTS(json, {"uptime_s", number(status, "uptime_in_seconds")}, {"filters", number(status, "bf_filters")},
                {"items", number(status, "bf_items")}, {"full_filters", number(status, "bf_full_filters")},
                {"quarantined_filters", number(status, "bf_quarantined_filters")},
                {"used_memory", number(status, "used_memory")}, {"limited_memory", limited_memory(status)},
                {"maxmemory", number(status, "maxmemory")}, {"away_filters", number(status, "bf_away_filters")},
                {"clients", number(status, "connected_clients")},
                {"rejected_connections", number(status, "rejected_connections")},
                {"commands_per_s", number(status, "instantaneous_ops_per_sec")},
                {"changes_since_save", number(status, "rdb_changes_since_last_save")},
                {"last_save_unix", number(status, "rdb_last_save_time")});
    json_end(json, '}');
}

static void print_lines(const struct status *status)
{
    int len;
    const char *version = field(status, "bloomery_version", &len);
    uint64_t most = number(status, "maxmemory"), away = number(status, "bf_away_filters");
    uint64_t rejected = number(status, "rejected_connections");
    printf("%s: %s\n", status->server.url.shown, status->n ? "unhealthy" : "healthy");
    for (unsigned i = 0; i < status->n; i++) {
        printf("  ");
        tool_print_text(stdout, status->reasons[i], strlen(status->reasons[i]));
        putchar('\n');
    }
    printf("bloomery ");
    tool_print_text(stdout, version, (size_t)len);
    printf(", up for %s\n", log_count(number(status, "uptime_in_seconds"), "second").text);
    printf("%s", log_count(number(status, "bf_filters"), "filter").text);
    printf(", %s", log_count(number(status, "bf_items"), "item").text);
    if (number(status, "bf_full_filters"))
        printf(", %" PRIu64 " of fixed size are full", number(status, "bf_full_filters"));
    printf("\nmemory: %s", log_bytes(number(status, "used_memory")).text);
    if (most)
        printf(", of which %s count against maxmemory %s", log_bytes(limited_memory(status)).text,
               log_bytes(most).text);
    if (away)
        printf("; the bits of %s are on the disk only", log_count(away, "filter").text);
    printf("\n%s, %s a second", log_count(number(status, "connected_clients"), "client").text,
           log_count(number(status, "instantaneous_ops_per_sec"), "command").text);
    if (rejected)
        printf(", %s rejected so far", log_count(rejected, "connection").text);
    printf("\nlog of changes: %s; %s %s ago, %s since\n", is(status, "aof_enabled", "1") ? "on" : "off",
           number(status, "rdb_saves") ? "last save" : "no save since the start", since_save(status).text,
           log_count(number(status, "rdb_changes_since_last_save"), "change").text);
}

static int run(const struct tool_args *args)
{
    struct status *status = calloc(1, sizeof(*status));
    char standard[] = DEFAULT_URL;
    struct output out;
    if (!status)
        return tool_failed(COMMAND, "out of memory");
    int rc = server_call_read(&status->server, args, args->npositional ? args->positional[0] : standard);
    if (rc == TOOL_OK) {
        peer_set_deadline(&status->server.peer, DEADLINE_MS);
        rc = ask(status);
    }
    if (rc == TOOL_OK) {
        struct buf *json = output_single(&out, args);
        if (json)
            print_json(status, json);
        else
            print_lines(status);
        rc = output_end(&out, status->n ? TOOL_NONE : TOOL_OK);
    }
    server_call_close(&status->server);
    free(status->info);
    free(status);
    return rc;
}

static const struct tool_option options[] = {
    {.name = "--json", .doc = "An object: server, version, healthy, reasons, and numbers of INFO."},
    TLS_OPTIONS,
    {.name = NULL},
};

const struct tool_command tool_status_command = {
    .name = COMMAND,
    .arguments = "[URL]",
    .summary = "Reports whether a server is healthy, and its problems.",
    .text = SERVER_CALL_URL " Without it " DEFAULT_URL ".\n\nThe command reads INFO: loading, saves, the log of "
                            "changes, quarantined filters (with names and reasons), memory, clients, the certificate, "
                            "SSTables. The user needs the right to INFO, and for the names the right to SCAN, BF.CARD "
                            "and CLIENT NO-TOUCH. It waits ten seconds at most.",
    .options = options,
    .examples = "bloomery status || mail -s 'Bloomery has a problem' operators\nbloomery status "
                "rediss://ops@filters.example:6380 --json",
    .exit_status = "0: healthy. 1: the command has reported a problem. 2: the server did not answer.",
    .greps = true,
    .run = run,
};

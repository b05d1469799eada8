/* Commands for operators: those on replication, answered for a single server as clients and tools expect; DEBUG, saves
 * and SHUTDOWN, the slow log, the durations of commands. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "command.h"
#include "handlers.h"
#include "histogram.h"
#include "host.h"
#include "log.h"
#include "persistence.h"
#include "registry_key.h"
#include "saver.h"
#include "server.h"
#include "slowlog.h"

#define LEN(array) (sizeof(array) / sizeof((array)[0]))

/* ---- replication ---- */

void cmd_role(struct command_ctx *ctx)
{
    reply_array(ctx->reply, 3);
    reply_bulk_str(ctx->reply, "master");
    reply_integer(ctx->reply, 0);
    reply_array(ctx->reply, 0);
}

void cmd_replicaof(struct command_ctx *ctx)
{
    if (slice_is(command_arg(ctx, 1), "no") && slice_is(command_arg(ctx, 2), "one"))
        reply_status(ctx->reply, "OK"); /* there is no replication to end */
    else
        reply_error(ctx->reply, "ERR this server has no replication and cannot be a replica");
}

void cmd_failover(struct command_ctx *ctx)
{
    if (command_argc(ctx) == 2 && slice_is(command_arg(ctx, 1), "ABORT"))
        reply_error(ctx->reply, "ERR No failover in progress.");
    else
        reply_error(ctx->reply, "ERR FAILOVER requires connected replicas.");
}

/* Reads the timeout of WAIT and WAITAOF. False after an error reply. */
static bool read_timeout(struct command_ctx *ctx, size_t i, int64_t *ms_out)
{
    if (!slice_to_int64(command_arg(ctx, i), ms_out))
        return reply_error(ctx->reply, "ERR timeout is not an integer or out of range");
    if (*ms_out < 0)
        return reply_error(ctx->reply, "ERR timeout is negative");
    if (*ms_out == 0)
        *ms_out = SLEEP_FOR_EVER;
    return true;
}

/* Waits for missing replicas as for replicas that do not answer. */
void cmd_wait(struct command_ctx *ctx)
{
    int64_t replicas, ms;

    if (!slice_to_int64(command_arg(ctx, 1), &replicas))
        reply_error(ctx->reply, "ERR value is not an integer or out of range");
    else if (!read_timeout(ctx, 2, &ms))
        return;
    else if (replicas <= 0)
        reply_integer(ctx->reply, 0);
    else
        command_sleep(ctx, ms, ":0\r\n", false);
}

/* The reply at the timeout: neither this disk nor a replica has the writes. */
#define NONE_LOCAL_NONE_REMOTE "*2\r\n:0\r\n:0\r\n"

void cmd_waitaof(struct command_ctx *ctx)
{
    int64_t local, replicas, ms;

    if (!slice_to_int64(command_arg(ctx, 1), &local) || local < 0 || local > 1) {
        reply_error(ctx->reply, "ERR value is out of range, must be between 0 and 1");
    } else if (!slice_to_int64(command_arg(ctx, 2), &replicas) || replicas < 0) {
        reply_error(ctx->reply, "ERR value is out of range, must be positive");
    } else if (!read_timeout(ctx, 3, &ms)) {
        return;
    } else if (local > 0 && server_config(ctx->server)->log.appendonly) {
        /* EXEC never waits, as in Redis; and its writes reach the log at its end, not before. */
        if (ctx->session->multi.in_exec)
            buf_append(ctx->reply->buf, NONE_LOCAL_NONE_REMOTE, strlen(NONE_LOCAL_NONE_REMOTE));
        else
            command_wait_for_log(ctx, ms, replicas > 0);
    } else if (local > 0) {
        buf_append(ctx->reply->buf, sleep_without_log, strlen(sleep_without_log));
    } else if (replicas == 0) {
        reply_array(ctx->reply, 2);
        reply_integer(ctx->reply, 0);
        reply_integer(ctx->reply, 0);
    } else {
        command_sleep(ctx, ms, NONE_LOCAL_NONE_REMOTE, false);
    }
}

/* ---- modules ---- */

void cmd_module_refused(struct command_ctx *ctx)
{
    reply_error(ctx->reply,
                "ERR MODULE command not allowed: bf is built in, and nothing else can be loaded or unloaded");
}

/* ---- DEBUG ---- */

const char *debug_refusal(const struct server *server, const struct session *session)
{
    int allowed = server_config(server)->process.enable_debug_command;
    if (allowed == ENABLE_YES || (allowed == ENABLE_LOCAL && session->origin.local))
        return NULL;
    return "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from "
           "a local connection, otherwise you need to set this option in the configuration file, and then restart the "
           "server.";
}

static void debug_sleep(struct command_ctx *ctx)
{
    struct slice arg = command_arg(ctx, 2);
    char text[64], *end;

    if (arg.len == 0 || arg.len >= sizeof(text)) {
        reply_error(ctx->reply, "ERR value is not a valid float");
        return;
    }
    memcpy(text, arg.ptr, arg.len);
    text[arg.len] = '\0';
    double seconds = strtod(text, &end);
    if (*end != '\0' || !(seconds >= 0) || seconds > 1e9)
        reply_error(ctx->reply, "ERR value is not a valid float");
    else
        command_sleep(ctx, (int64_t)ceil(seconds * 1000), "+OK\r\n", true);
}

static void debug_object(struct command_ctx *ctx)
{
    char space[REGISTRY_MAX_NAME + 2 * DATABASE_PREFIX];
    struct slice name = command_arg(ctx, 2);
    struct entry *entry = NULL;

    if (name.len <= REGISTRY_MAX_NAME)
        entry = registry_lookup(ctx->server->registry, key_write(space, ctx->database, name));
    if (entry == NULL) {
        reply_error(ctx->reply, "ERR no such key");
        return;
    }
    const struct bloom_filter *filter = entry_shape(entry);
    char text[160];
    snprintf(text, sizeof(text),
             "Value at:0x%llx refcount:1 encoding:raw serializedlength:%llu lru:%u lru_seconds_idle:%lld",
             (unsigned long long)entry->id, filter == NULL ? 0 : (unsigned long long)bloom_filter_memory(filter),
             (unsigned)atomic_load_explicit(&entry->used, memory_order_relaxed),
             (long long)(entry_idle_ms(entry, clock_ms()) / 1000));
    reply_status(ctx->reply, text);
}

static void debug_text(struct command_ctx *ctx, bool error)
{
    struct slice given = command_arg(ctx, 2);
    char text[513];
    size_t len = given.len < sizeof(text) - 1 ? given.len : sizeof(text) - 1;

    for (size_t i = 0; i < len; i++) /* a client must not forge a line of the log or a reply */
        text[i] = (unsigned char)given.ptr[i] < ' ' || given.ptr[i] == 0x7f ? ' ' : given.ptr[i];
    text[len] = '\0';
    if (error) {
        reply_error(ctx->reply, text);
        return;
    }
    log_warning(&ctx->server->log, "DEBUG LOG: %s", text);
    reply_status(ctx->reply, "OK");
}

static void reply_raw(struct reply *reply, const char *resp2, const char *resp3)
{
    const char *text = reply->version == 3 ? resp3 : resp2;

    buf_append(reply->buf, text, strlen(text));
}

/* A reply of each type that the protocol has, for tests of clients' parsers. */
static void debug_protocol(struct command_ctx *ctx)
{
    struct slice type = command_arg(ctx, 2);
    struct reply *reply = ctx->reply;

    if (slice_is(type, "string")) {
        reply_bulk_str(reply, "Hello World");
    } else if (slice_is(type, "integer")) {
        reply_integer(reply, 12345);
    } else if (slice_is(type, "double")) {
        reply_double(reply, 3.141);
    } else if (slice_is(type, "null")) {
        reply_null(reply);
    } else if (slice_is(type, "array") || slice_is(type, "set")) {
        if (slice_is(type, "set"))
            reply_set(reply, 3);
        else
            reply_array(reply, 3);
        for (int i = 0; i < 3; i++)
            reply_integer(reply, i);
    } else if (slice_is(type, "map")) {
        reply_map(reply, 3);
        for (int i = 0; i < 3; i++) {
            reply_integer(reply, i);
            reply_bool(reply, i == 1);
        }
    } else if (slice_is(type, "bignum")) {
        reply_raw(reply, "$37\r\n1234567999999999999999999999999999999\r\n",
                  "(1234567999999999999999999999999999999\r\n");
    } else if (slice_is(type, "attrib")) {
        reply_raw(reply, "$39\r\nSome real reply following the attribute\r\n",
                  "|1\r\n$14\r\nkey-popularity\r\n*2\r\n$7\r\nkey:123\r\n:90\r\n"
                  "$39\r\nSome real reply following the attribute\r\n");
    } else if (slice_is(type, "push")) {
        reply_raw(reply, "-ERR RESP2 is not supported by this command\r\n",
                  ">2\r\n$16\r\nserver-cpu-usage\r\n:42\r\n$40\r\nSome real reply following the push reply\r\n");
    } else if (slice_is(type, "verbatim")) {
        reply_verbatim(reply, "txt", "This is a verbatim\nstring", strlen("This is a verbatim\nstring"));
    } else if (slice_is(type, "true") || slice_is(type, "false")) {
        reply_bool(reply, slice_is(type, "true"));
    } else {
        reply_error(reply, "ERR Wrong protocol type name. Please use one of the following: "
                           "string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false");
    }
}

static void debug_help(struct command_ctx *ctx)
{
    static const char *const lines[] = {
        "ERROR <text>",
        "    Reply with the text as an error.",
        "LOG <text>",
        "    Write the text to the server's log.",
        "OBJECT <key>",
        "    Describe a filter in the format of Redis's reply.",
        "PROTOCOL <type>",
        "    Reply with a value of the type: string, integer, double, bignum, null, array, set, map, attrib, push,",
        "    verbatim, true, false.",
        "SLEEP <seconds>",
        "    Let this connection wait.",
    };

    reply_help(ctx, lines, LEN(lines));
}

void cmd_debug(struct command_ctx *ctx)
{
    struct slice what = command_arg(ctx, 1);
    size_t argc = command_argc(ctx);

    if (argc == 2 && slice_is(what, "HELP"))
        debug_help(ctx);
    else if (argc == 3 && slice_is(what, "SLEEP"))
        debug_sleep(ctx);
    else if (argc == 3 && slice_is(what, "OBJECT"))
        debug_object(ctx);
    else if (argc == 3 && (slice_is(what, "ERROR") || slice_is(what, "LOG")))
        debug_text(ctx, slice_is(what, "ERROR"));
    else if (argc == 3 && slice_is(what, "PROTOCOL"))
        debug_protocol(ctx);
    else
        reply_wrong_subcommand(ctx);
}

/* ---- saves, SHUTDOWN, TIME ---- */

static const char save_running[] = "ERR Background save already in progress";

static void save_job(struct command_job *job)
{
    struct errbuf err = {""};
    rcu_reader_offline(); /* it may take minutes */
    int status = saver_run(job->server->persistence->saver, &err);
    rcu_reader_online();
    if (status == 0)
        reply_status(&job->reply, "OK");
    else if (status == SAVER_BUSY)
        reply_error(&job->reply, save_running);
    else
        reply_errorf(&job->reply, "ERR %s", err.text);
}

void cmd_save(struct command_ctx *ctx)
{
    command_defer(ctx, save_job, NULL);
}

void cmd_bgsave(struct command_ctx *ctx)
{
    bool schedule = command_argc(ctx) == 2 && slice_is(command_arg(ctx, 1), "SCHEDULE");
    if (command_argc(ctx) > 2 || (command_argc(ctx) == 2 && !schedule)) {
        reply_error(ctx->reply, "ERR syntax error");
        return;
    }
    switch (saver_start(ctx->server->persistence->saver, schedule)) {
    case SAVER_STARTED:
        reply_status(ctx->reply, "Background saving started");
        return;
    case SAVER_SCHEDULED:
        reply_status(ctx->reply, "Background saving scheduled");
        return;
    case SAVER_BUSY:
        reply_error(ctx->reply, save_running);
        return;
    }
}

/* A save lets the log be cut, which is the purpose of a rewrite. */
void cmd_bgrewriteaof(struct command_ctx *ctx)
{
    reply_status(ctx->reply, saver_rewrite(ctx->server->persistence->saver) == SAVER_STARTED
                                 ? "Background append only file rewriting started"
                                 : "Background append only file rewriting scheduled");
}

void cmd_lastsave(struct command_ctx *ctx)
{
    struct saver_info info;
    saver_info(ctx->server->persistence->saver, &info);
    reply_integer(ctx->reply, info.last_save_unix);
}

void cmd_time(struct command_ctx *ctx)
{
    int64_t now_us = clock_unix_us();
    char text[24];
    reply_array(ctx->reply, 2);
    reply_bulk(ctx->reply, text, (size_t)snprintf(text, sizeof(text), "%" PRId64, now_us / 1000000));
    reply_bulk(ctx->reply, text, (size_t)snprintf(text, sizeof(text), "%" PRId64, now_us % 1000000));
}

/* ---- SHUTDOWN ---- */

static void shutdown_job(struct command_job *job)
{
    const struct shutdown_request *request = job->data;
    struct errbuf err = {""};
    rcu_reader_offline();
    bool going = job->server->calls.shutdown(job->server, request, &err);
    rcu_reader_online();
    if (!going)
        reply_errorf(&job->reply, "ERR Errors trying to SHUTDOWN: %s", err.text);
    /* Otherwise there is no reply: the end of the connection informs clients. */
}

void cmd_shutdown(struct command_ctx *ctx)
{
    struct shutdown_request request = {.save = SHUTDOWN_SAVE_BY_RULES};
    for (size_t i = 1; i < command_argc(ctx); i++) {
        struct slice word = command_arg(ctx, i);
        if (slice_is(word, "NOSAVE") && request.save != SHUTDOWN_SAVE) {
            request.save = SHUTDOWN_NOSAVE;
        } else if (slice_is(word, "SAVE") && request.save != SHUTDOWN_NOSAVE) {
            request.save = SHUTDOWN_SAVE;
        } else if (slice_is(word, "FORCE")) {
            request.force = true;
        } else if (slice_is(word, "ABORT") && command_argc(ctx) == 2) {
            reply_error(ctx->reply, "ERR No shutdown in progress.");
            return;
        } else if (!slice_is(word, "NOW")) { /* there are no replicas to wait for: every shutdown is now */
            reply_error(ctx->reply, "ERR syntax error");
            return;
        }
    }
    command_defer_copy(ctx, shutdown_job, &request, sizeof(request));
}

/* ---- SLOWLOG ---- */

static void run_slowlog_get(struct command_job *job)
{
    const int64_t *n = job->data;

    slowlog_reply(job->server->stats.slowlog, *n < 0 ? SIZE_MAX : (size_t)*n, &job->reply);
}

void cmd_slowlog_get(struct command_ctx *ctx)
{
    int64_t n = 10;

    if (command_argc(ctx) > 3)
        reply_wrong_subcommand(ctx);
    else if (command_argc(ctx) == 3 && (!slice_to_int64(command_arg(ctx, 2), &n) || n < -1))
        reply_error(ctx->reply, "ERR count should be greater than or equal to -1");
    else
        command_defer_copy(ctx, run_slowlog_get, &n, sizeof(n));
}

void cmd_slowlog_len(struct command_ctx *ctx)
{
    reply_integer(ctx->reply, (int64_t)slowlog_len(ctx->server->stats.slowlog));
}

#define SLOWLOG_RESET_AT_ONCE 1000 /* entries: some ten microseconds */

static void run_slowlog_reset(struct command_job *job)
{
    slowlog_reset(job->server->stats.slowlog);
    reply_status(&job->reply, "OK");
}

/* The loop clears a small log itself. A job's duration includes the wait for a thread, so on a busy machine the cleared
 * log would contain the SLOWLOG RESET itself. */
void cmd_slowlog_reset(struct command_ctx *ctx)
{
    if (slowlog_len(ctx->server->stats.slowlog) > SLOWLOG_RESET_AT_ONCE) {
        command_defer(ctx, run_slowlog_reset, NULL);
        return;
    }
    slowlog_reset(ctx->server->stats.slowlog);
    reply_status(ctx->reply, "OK");
}

/* ---- LATENCY HISTOGRAM ---- */

#define FIRST_LOG2 10 /* the first bucket ends at 1024 ns, the "1" of the reply */

/* Pairs of microseconds and the number of calls that took at most this time, where it grows. */
static void reply_histogram(struct reply *reply, const struct histogram *histogram)
{
    uint64_t before = 0, total = histogram_count(histogram);
    size_t token = reply_map_begin(reply), n = 0;

    for (unsigned log2 = FIRST_LOG2; before < total && log2 < HISTOGRAM_MAX_LOG2; log2++) {
        uint64_t below = histogram_count_upto(histogram, (UINT64_C(1) << log2) - 1);
        if (below == before)
            continue;
        reply_integer(reply, (int64_t)((UINT64_C(1) << log2) / 1000));
        reply_integer(reply, (int64_t)below);
        before = below;
        n++;
    }
    if (before < total) {
        reply_integer(reply, (int64_t)((UINT64_C(1) << HISTOGRAM_MAX_LOG2) / 1000));
        reply_integer(reply, (int64_t)total);
        n++;
    }
    reply_map_end(reply, token, n);
}

struct histogram_request {
    bool all;
    bool wanted[STATS_MAX_COMMANDS];
};

static void run_latency_histogram(struct command_job *job)
{
    const struct histogram_request *request = job->data;
    const struct command *row;
    size_t token = reply_map_begin(&job->reply), n = 0;

    for (size_t i = 0; (row = command_row(i)) != NULL; i++) {
        struct histogram histogram;
        if (!(request->all || request->wanted[i]) || !counters_histogram(job->server->stats.counters, i, &histogram))
            continue;
        reply_bulk_str(&job->reply, row->full_name);
        reply_map(&job->reply, 2);
        reply_number_pair(&job->reply, "calls", (int64_t)histogram_count(&histogram));
        reply_bulk_str(&job->reply, "histogram_usec");
        reply_histogram(&job->reply, &histogram);
        n++;
    }
    reply_map_end(&job->reply, token, n);
}

/* Sums up the histograms of all threads, so not on the loop. A container represents its subcommands. */
void cmd_latency_histogram(struct command_ctx *ctx)
{
    struct histogram_request request = {.all = command_argc(ctx) == 2};

    for (size_t i = 2; i < command_argc(ctx); i++) {
        const struct command *row = command_find_full(command_arg(ctx, i));
        if (row == NULL)
            continue;
        request.wanted[command_index(row)] = true;
        for (size_t j = 0; j < row->nsubcommands; j++)
            request.wanted[command_index(&row->subcommands[j])] = true;
    }
    command_defer_copy(ctx, run_latency_histogram, &request, sizeof(request));
}

/* There are no events: SLOWLOG has the slow commands. Exporters ask for them all the same. */
void cmd_latency_latest(struct command_ctx *ctx)
{
    reply_array(ctx->reply, 0);
}

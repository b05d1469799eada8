/* INFO: the state of the server as text, in Redis's sections. Files of the kernel are read and counters of all threads
 * are summed up, so it is not done on the loop. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bf_totals.h"
#include "command.h"
#include "handlers.h"
#include "info.h"

void info_line(struct info *info, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    buf_vappendf(info->out, fmt, args);
    va_end(args);
    buf_append(info->out, "\r\n", 2);
}

void info_line_bytes(struct info *info, const char *name, uint64_t bytes)
{
    static const char units[] = "BKMGTPE";
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1024 && unit < sizeof(units) - 2) {
        value /= 1024;
        unit++;
    }
    info_line(info, "%s:%" PRIu64, name, bytes);
    info_line(info, "%s_human:%.*f%c", name, unit == 0 ? 0 : 2, value, units[unit]);
}

void info_zeros(struct info *info, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        info_line(info, "%s:0", names[i]);
}

/* ---- the command ---- */

#define IN_DEFAULT    1u
#define IN_ALL        2u
#define IN_EVERYTHING 4u
#define IN_EACH       (IN_DEFAULT | IN_ALL | IN_EVERYTHING)

static const struct section {
    const char *name;
    const char *title;
    unsigned in;
    void (*write)(struct info *info);
} sections[] = {
    {"server", "Server", IN_EACH, info_server},
    {"clients", "Clients", IN_EACH, info_clients},
    {"memory", "Memory", IN_EACH, info_memory},
    {"persistence", "Persistence", IN_EACH, info_persistence},
    {"stats", "Stats", IN_EACH, info_stats},
    {"replication", "Replication", IN_EACH, info_replication},
    {"cpu", "CPU", IN_EACH, info_cpu},
    {"modules", "Modules", IN_DEFAULT | IN_EVERYTHING, info_modules},
    {"commandstats", "Commandstats", IN_ALL | IN_EVERYTHING, info_commandstats},
    {"errorstats", "Errorstats", IN_EACH, info_errorstats},
    {"latencystats", "Latencystats", IN_ALL | IN_EVERYTHING, info_latencystats},
    {"cluster", "Cluster", IN_EACH, info_cluster},
    {"keyspace", "Keyspace", IN_EACH, info_keyspace},
    {"bf", "bf", IN_EACH, info_bf},
};

#define NSECTIONS (sizeof(sections) / sizeof(sections[0]))

struct info_request {
    bool wanted[NSECTIONS];
    struct info info; /* large for a stack */
};

static void want_section(struct info_request *request, struct slice name)
{
    unsigned in = slice_is(name, "default")      ? IN_DEFAULT
                  : slice_is(name, "all")        ? IN_ALL
                  : slice_is(name, "everything") ? IN_EVERYTHING
                                                 : 0;

    for (size_t i = 0; i < NSECTIONS; i++) {
        if ((sections[i].in & in) != 0 || slice_is(name, sections[i].name))
            request->wanted[i] = true;
    }
}

static bool wants(const struct info_request *request, void (*write)(struct info *info))
{
    for (size_t i = 0; i < NSECTIONS; i++) {
        if (sections[i].write == write)
            return request->wanted[i];
    }
    return false;
}

static void run_info(struct command_job *job)
{
    struct info_request *request = job->data;
    struct info *info = &request->info;
    struct buf text;

    buf_init(&text, job->reply.buf->cap);
    info->server = job->server;
    info->out = &text;
    if (wants(request, info_bf))
        server_bf_totals(job->server, &info->totals); /* first: no reference may be held over it */
    info->cfg = server_config(job->server);
    counters_sum(job->server->stats.counters, &info->stats);
    counters_errors(job->server->stats.counters, &info->errors);
    if (job->server->pubsub != NULL)
        pubsub_totals(job->server->pubsub, &info->pubsub);
    sessions_totals(job->server->clients.sessions, &info->clients);
    memory_use(job->server, &info->memory);
    for (size_t i = 0; i < NSECTIONS; i++) {
        if (!request->wanted[i])
            continue;
        if (buf_len(&text) > 0)
            buf_append(&text, "\r\n", 2);
        info_line(info, "# %s", sections[i].title);
        sections[i].write(info);
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

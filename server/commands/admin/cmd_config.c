/* CONFIG: the settings at run time. config.def has the permitted values. */
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "descriptors.h"
#include "glob.h"
#include "handlers.h"
#include "server.h"

/* ---- CONFIG GET ---- */

/* `name` may be NULL. */
static bool any_pattern_matches(struct command_ctx *ctx, const char *name)
{
    if (name == NULL)
        return false;
    struct slice text = {name, strlen(name)};

    for (size_t i = 2; i < command_argc(ctx); i++) {
        if (glob_match(command_arg(ctx, i), text, true))
            return true;
    }
    return false;
}

void cmd_config_get(struct command_ctx *ctx)
{
    const struct config *cfg = server_config(ctx->server);
    size_t nrows, n = 0, pattern_bytes = 0;
    const struct config_row *rows = config_table(&nrows);
    struct buf value;

    for (size_t i = 2; i < command_argc(ctx); i++)
        pattern_bytes += command_arg(ctx, i).len + 1;
    if (pattern_bytes > GLOB_MAX_PATTERN) {
        reply_error(ctx->reply, "ERR the patterns are too long");
        return;
    }
    for (size_t i = 0; i < nrows; i++)
        n += any_pattern_matches(ctx, rows[i].name) + any_pattern_matches(ctx, rows[i].alias);
    reply_map(ctx->reply, n);
    buf_init(&value, SIZE_MAX);
    for (size_t i = 0; i < nrows; i++) {
        const char *const names[] = {rows[i].name, rows[i].alias};

        for (size_t j = 0; j < 2; j++) {
            if (!any_pattern_matches(ctx, names[j]))
                continue;
            buf_truncate(&value, 0);
            config_get(cfg, &rows[i], &value);
            reply_bulk_str(ctx->reply, names[j]);
            reply_bulk(ctx->reply, buf_head(&value), buf_len(&value));
        }
    }
    if (buf_failed(&value))
        ctx->reply->buf->failed = true; /* without memory for the whole reply the connection is closed */
    buf_deinit(&value);
}

/* ---- CONFIG SET ---- */

/* Whether every name is known and comes once; otherwise replies. Looked at before any value, as Redis does. Ends at the
 * latest when there are more names than settings, however many arguments there are. */
static bool names_are_good(struct command_ctx *ctx)
{
    for (size_t i = 2; i < command_argc(ctx); i += 2) {
        struct slice name = command_arg(ctx, i);
        const struct config_row *row = config_find(name);

        if (row == NULL) {
            reply_errorf(ctx->reply, "ERR Unknown option or number of arguments for CONFIG SET - '%.*s'",
                         name.len > 128 ? 128 : (int)name.len, name.ptr);
            return false;
        }
        for (size_t j = 2; j < i; j += 2) {
            if (config_find(command_arg(ctx, j)) == row) {
                reply_errorf(ctx->reply,
                             "ERR CONFIG SET failed (possibly related to argument '%s') - duplicate parameter",
                             row->name);
                return false;
            }
        }
    }
    return true;
}

/* Creates the settings that the command asks for. NULL after an error reply. */
static struct config *changed_config(struct command_ctx *ctx)
{
    struct config *cfg = malloc(sizeof(*cfg));
    struct errbuf err = {""};
    int status;

    if (cfg == NULL || config_clone(server_config(ctx->server), cfg) != 0) {
        reply_error(ctx->reply, "ERR out of memory");
        free(cfg);
        return NULL;
    }
    for (size_t i = 2; i < command_argc(ctx); i += 2) {
        status = config_set(cfg, command_arg(ctx, i), command_arg(ctx, i + 1), CONFIG_RUNTIME, &err);
        if (status != CONFIG_OK)
            goto refused;
    }
    status = config_check(cfg, CONFIG_RUNTIME, &err);
    if (status == CONFIG_OK)
        return cfg;

refused:
    reply_errorf(ctx->reply, "ERR %s", err.text);
    config_deinit(cfg);
    free(cfg);
    return NULL;
}

/* Whether there can be as many clients as that; an error has been replied if not. */
static bool allow_clients(struct command_ctx *ctx, const struct config *cfg)
{
    struct server *server = ctx->server;
    int64_t clients;

    if (cfg->maxclients == server_config(server)->maxclients)
        return true;
    clients = descriptors_for_clients(cfg->maxclients, server->nworkers);
    if (clients < cfg->maxclients) {
        reply_errorf(ctx->reply,
                     "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not "
                     "able to handle the specified number of clients, try with %lld",
                     (long long)clients);
        return false;
    }
    atomic_store(&server->clients_max, clients);
    return true;
}

void cmd_config_set(struct command_ctx *ctx)
{
    struct config *cfg;

    if (command_argc(ctx) % 2 != 0) {
        reply_error(ctx->reply, "ERR syntax error");
        return;
    }
    if (!names_are_good(ctx))
        return;
    /* One change at a time, so that of two concurrent ones none is lost. */
    server_config_lock(ctx->server);
    cfg = changed_config(ctx);
    if (cfg != NULL && !allow_clients(ctx, cfg)) {
        config_deinit(cfg);
        free(cfg);
        cfg = NULL;
    }
    if (cfg != NULL)
        server_config_replace(ctx->server, cfg);
    server_config_unlock(ctx->server);
    if (cfg != NULL)
        reply_status(ctx->reply, "OK");
}

/* ---- CONFIG REWRITE and RESETSTAT ---- */

static void run_rewrite(struct command_job *job)
{
    struct server *server = job->server;
    struct config cfg;
    struct errbuf err = {""};

    /* A copy, so that no reader's section is held open over the writing. Taken under the lock: of two rewrites the
     * later one has the later settings. */
    rcu_reader_offline();
    pthread_mutex_lock(&server->settings.rewrite_lock);
    rcu_reader_online();
    int status = config_clone(server_config(server), &cfg);
    rcu_reader_offline();
    if (status == 0) {
        status = config_rewrite(&cfg, server->process.config_file, &err);
        config_deinit(&cfg);
    }
    pthread_mutex_unlock(&server->settings.rewrite_lock);
    rcu_reader_online();
    if (status == 0) {
        log_notice(&server->log, "CONFIG REWRITE: %s has been written", server->process.config_file);
        reply_status(&job->reply, "OK");
    } else {
        log_warning(&server->log, "CONFIG REWRITE failed: %s", err.text);
        reply_errorf(&job->reply, "ERR Rewriting config file: %s", err.text);
    }
}

void cmd_config_rewrite(struct command_ctx *ctx)
{
    if (ctx->server->process.config_file[0] == '\0')
        reply_error(ctx->reply, "ERR The server is running without a config file");
    else
        command_defer(ctx, run_rewrite, NULL);
}

static void run_resetstat(struct command_job *job)
{
    counters_reset(job->server->counters);
    atomic_store(&job->server->grown_base, bloom_pool_grown(job->server->pool));
    reply_status(&job->reply, "OK");
}

void cmd_config_resetstat(struct command_ctx *ctx)
{
    command_defer(ctx, run_resetstat, NULL);
}

void cmd_config_help(struct command_ctx *ctx)
{
    static const char *const lines[] = {
        "GET <pattern> [<pattern> ...]",
        "    Return the settings whose names match a pattern, with their values.",
        "RESETSTAT",
        "    Set the counters of INFO to zero.",
        "REWRITE",
        "    Write the settings in force into the configuration file.",
        "SET <setting> <value> [<setting> <value> ...]",
        "    Change settings, either all that are given or none.",
    };

    reply_help(ctx, lines, sizeof(lines) / sizeof(lines[0]));
}

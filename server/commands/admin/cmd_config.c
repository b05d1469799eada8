/* CONFIG: the settings at run time. config.def has the permitted values. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "acl.h"
#include "bloom_keyring.h"
#include "command.h"
#include "config_file.h"
#include "machine.h"
#include "glob_match.h"
#include "handlers.h"
#include "host.h"
#include "key_file.h"
#include "persistence.h"
#include "rcu.h"
#include "server.h"
#include "server_files.h"
#include "tls_context.h"
#include "lock.h"

/* ---- CONFIG GET ---- */

static bool any_pattern_matches(struct command_ctx *ctx, const struct config_row *row)
{
    for (size_t i = 2; i < command_argc(ctx); i++)
        if (!(row->flags & CONFIG_HIDDEN) && glob_match(command_arg(ctx, i), slice_of(row->name), true))
            return true;
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
        n += any_pattern_matches(ctx, &rows[i]);
    reply_map(ctx->reply, n);
    buf_init(&value, SIZE_MAX);
    for (size_t i = 0; i < nrows; i++) {
        if (!any_pattern_matches(ctx, &rows[i]))
            continue;
        buf_truncate(&value, 0);
        config_get(cfg, &rows[i], &value);
        if (rows[i].flags & CONFIG_SECRET && buf_len(&value)) { /* whether there is one may be seen */
            buf_truncate(&value, 0);
            buf_append(&value, "(redacted)", strlen("(redacted)"));
        }
        reply_bulk_str(ctx->reply, rows[i].name);
        reply_bulk(ctx->reply, buf_head(&value), buf_len(&value));
    }
    if (buf_failed(&value))
        ctx->reply->buf->failed = true; /* without memory for the whole reply the connection is closed */
    buf_deinit(&value);
}

/* ---- CONFIG SET ---- */

/* Names and values in turn, `n` words in all; where the reply goes. */
struct change {
    struct server *server;
    struct reply *reply;
    const struct slice *words;
    size_t n;
};

/* Whether every name is known and comes once; otherwise replies. Checked before any value, as in Redis. Ends at the
 * latest after more names than settings, for any number of arguments. */
static bool names_are_good(struct command_ctx *ctx)
{
    for (size_t i = 2; i < command_argc(ctx); i += 2) {
        struct slice name = command_arg(ctx, i);
        const struct config_row *row = config_find(name);

        if (row == NULL || row->flags & CONFIG_HIDDEN)
            return reply_errorf(ctx->reply, "ERR Unknown option or number of arguments for CONFIG SET - '%.*s'",
                                slice_shown(name), name.ptr);
        for (size_t j = 2; j < i; j += 2)
            if (config_find(command_arg(ctx, j)) == row)
                return reply_errorf(ctx->reply,
                                    "ERR CONFIG SET failed (possibly related to argument '%s') - duplicate parameter",
                                    row->name);
    }
    return true;
}

/* Creates the settings that the command asks for. NULL after an error reply. */
static struct config *changed_config(const struct change *change)
{
    struct config *cfg = malloc(sizeof(*cfg));
    struct errbuf err = {""};
    int status;

    if (cfg == NULL || config_clone(server_config(change->server), cfg) != 0) {
        reply_error(change->reply, "ERR out of memory");
        free(cfg);
        return NULL;
    }
    for (size_t i = 0; i < change->n; i += 2) {
        status = config_set(cfg, change->words[i], change->words[i + 1], CONFIG_RUNTIME, &err);
        if (status != CONFIG_OK)
            goto refused;
    }
    status = config_check(cfg, CONFIG_RUNTIME, &err);
    if (status == CONFIG_OK)
        return cfg;

refused:
    reply_errorf(change->reply, "ERR %s", err.text);
    config_deinit(cfg);
    free(cfg);
    return NULL;
}

static void drop_config(struct config *cfg)
{
    if (cfg)
        config_deinit(cfg);
    free(cfg);
}

/* Whether that many clients are possible; false after an error reply. */
static bool allow_clients(const struct change *change, const struct config *cfg)
{
    struct server *server = change->server;
    int64_t clients;

    if (cfg->network.maxclients == server_config(server)->network.maxclients)
        return true;
    clients = descriptors_for_clients(cfg->network.maxclients, server->threads.nworkers);
    if (clients < cfg->network.maxclients)
        return reply_errorf(
            change->reply,
            "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not "
            "able to handle the specified number of clients, try with %lld",
            (long long)clients);
    atomic_store(&server->clients.max, clients);
    return true;
}

/* A new requirepass is the default user's password from now on, regardless of earlier ones from ACL SETUSER. */
static bool apply_password(const struct change *change, const struct config *cfg)
{
    for (size_t i = 0; i < change->n; i += 2) {
        if (!slice_is(change->words[i], "requirepass"))
            continue;
        if (!acl_set_requirepass(change->server->acl, cfg->network.requirepass))
            return false;
        host_users_changed(change->server);
    }
    return true;
}

/* Puts the change into force and replies. One change at a time, so that of two concurrent ones none is lost. */
static bool change_settings(const struct change *change)
{
    lock_take(&change->server->settings.lock);
    struct config *cfg = changed_config(change);
    bool changed = cfg != NULL && allow_clients(change, cfg), password_applied = true;
    if (changed) {
        persistence_config_replace(change->server, cfg);
        password_applied = apply_password(change, cfg);
    } else {
        drop_config(cfg);
    }
    lock_give(&change->server->settings.lock);
    if (!password_applied)
        reply_error(change->reply, "ERR out of memory: the password of the user 'default' is unchanged");
    else if (changed)
        reply_status(change->reply, "OK");
    return changed;
}

/* ---- settings of files: a thread of the pool reads them, and only then anything changes ---- */

static const struct config_row *first_with_file(struct slice const *words, size_t n)
{
    for (size_t i = 0; i < n; i += 2) {
        const struct config_row *row = config_find(words[i]);
        if (row && row->flags & CONFIG_TLS)
            return row;
    }
    return NULL;
}

struct files {
    struct tls_context *tls; /* NULL: none is wanted */
    struct key_file *keys;   /* likewise */
};

static void drop_files(struct files *files)
{
    tls_context_destroy(files->tls);
    key_file_free(files->keys);
}

static void take_files(struct server *server, struct files *files)
{
    if (files->tls) {
        server_tls_report(server, files->tls);
        server_tls_replace(server, files->tls);
    }
    if (files->keys)
        server_keys_replace(server, files->keys);
}

/* KEYED filters would be lost with keys that are in memory only. */
static bool would_forget_keys(const struct change *change, const struct config *cfg, const struct key_file *keys,
                              struct errbuf *err)
{
    bool requested = false;
    for (size_t i = 0; i < change->n; i += 2)
        requested |=
            slice_is(change->words[i], "bf-key-file") || (cfg->filters.keyed && slice_is(change->words[i], "bf-keyed"));
    if (!requested || keys || !bloom_keyring_first(change->server->pool))
        return false;
    errbuf_set(err,
               "there is no file %s/" KEY_FILE_NAME ", and the keys in memory stay in use: restore it from a "
               "backup",
               change->server->process.data_dir);
    return true;
}

static int read_files(const struct change *change, const struct config *cfg, struct files *files, struct errbuf *err)
{
    int status = server_tls_load(cfg, &files->tls, err);
    STEP(status, server_keys_load(change->server, cfg, false, &files->keys, err));
    if (status == 0 && files->tls && !server_tls_may_replace(change->server, files->tls, err))
        status = -EINVAL;
    if (status == 0 && would_forget_keys(change, cfg, files->keys, err))
        status = -ENOENT;
    return status;
}

/* Reads the files of the settings asked for. False after an error reply. */
static bool prepare(const struct change *change, struct files *files)
{
    struct errbuf err = {""};

    lock_take(&change->server->settings.lock);
    struct config *cfg = changed_config(change);
    lock_give(&change->server->settings.lock);
    if (cfg == NULL)
        return false;
    rcu_reader_offline();
    int status = read_files(change, cfg, files, &err);
    rcu_reader_online();
    drop_config(cfg);
    if (status == 0)
        return true;
    drop_files(files);
    return reply_errorf(change->reply, "ERR CONFIG SET failed (possibly related to argument '%s') - %s",
                        first_with_file(change->words, change->n)->name, err.text);
}

static void run_files_change(struct command_job *job)
{
    const struct job_args *args = job->data;
    struct change change = {job->server, &job->reply, args->argv + 2, args->argc - 2};
    struct files files = {NULL};

    rcu_reader_offline();
    lock_take(&job->server->settings.files);
    rcu_reader_online();
    if (prepare(&change, &files)) {
        if (change_settings(&change))
            take_files(job->server, &files);
        else
            drop_files(&files);
    }
    lock_give(&job->server->settings.files);
}

void cmd_config_set(struct command_ctx *ctx)
{
    struct slice words[2 * CONFIG_MAX_SETTINGS] = {{NULL, 0}};
    size_t n = command_argc(ctx) - 2;

    if (command_argc(ctx) % 2 != 0) {
        reply_error(ctx->reply, "ERR syntax error");
        return;
    }
    if (!names_are_good(ctx)) /* so there are no more than there are settings */
        return;
    for (size_t i = 0; i < n; i++)
        words[i] = command_arg(ctx, i + 2);
    struct change change = {ctx->server, ctx->reply, words, n};
    if (first_with_file(words, n))
        command_defer_arguments(ctx, SIZE_MAX - 1, run_files_change);
    else
        change_settings(&change);
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
    lock_take(&server->settings.files);
    rcu_reader_online();
    int status = config_clone(server_config(server), &cfg);
    rcu_reader_offline();
    if (status == 0 && !cfg.users.aclfile[0])
        status = acl_to_settings(server->acl, &cfg);
    if (status == 0) {
        status = config_rewrite(&cfg, server->process.config_file, &err);
        config_deinit(&cfg);
    }
    lock_give(&server->settings.files);
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
    counters_reset(job->server->stats.counters);
    atomic_store(&job->server->stats.grown_base, bloom_pool_growths(job->server->pool));
    reply_status(&job->reply, "OK");
}

void cmd_config_resetstat(struct command_ctx *ctx)
{
    command_defer(ctx, run_resetstat, NULL);
}

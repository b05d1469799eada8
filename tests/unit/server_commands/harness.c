#include "harness.h"

#include "acl.h"
#include "clock.h"
#include "host.h"
#include "server_create.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ARGS 2048

static struct harness *current; /* the one that is running a command: command_defer() has no other way to find it */

void harness_init(struct harness *h)
{
    struct config *cfg = malloc(sizeof(*cfg));
    struct errbuf err = {""};

    memset(h, 0, sizeof(*h));
    cr_assert(cfg != NULL);
    cr_assert_eq(config_init(cfg), 0);
    cfg->log.appendonly = false; /* no journal here, as in the recorded servers */
    cfg->data.save.count = 0;    /* and no saves whose failures could refuse writes */
    tmpdir_create(h->dir);
    cr_assert_eq(config_set(cfg, slice_of("dir"), slice_of(h->dir), CONFIG_FILE, &err), CONFIG_OK, "%s", err.text);
    cr_assert_eq(server_create(&h->server, cfg, 1, &err), 0, "%s", err.text);
    cr_assert_eq(server_start(h->server, PARTS_DATA, &err), 0, "%s", err.text);
    struct server *server = h->server;
    log_set_level(&server->log, LOG_LEVEL_WARNING);
    server->process.port = 6379;
    rcu_reader_begin();
    buf_init(&h->out, 1 << 24);
    h->reply.buf = &h->out;
    sessions_add(server->clients.sessions, &h->session);
    harness_reconnect(h, 2);
}

void harness_deinit(struct harness *h)
{
    sessions_remove(h->server->clients.sessions, &h->session);
    acl_logout(&h->session);
    rcu_reader_end();
    server_destroy(h->server);
    tmpdir_remove(h->dir);
    buf_deinit(&h->out);
}

void harness_reconnect(struct harness *h, int version)
{
    sessions_remove(h->server->clients.sessions, &h->session);
    acl_logout(&h->session);
    memset(&h->session, 0, sizeof(h->session));
    h->session.origin.fd = 7;
    h->session.origin.created_ms = clock_ms();
    h->session.meters.last_ms = h->session.origin.created_ms;
    strcpy(h->session.origin.addr, "127.0.0.1:50000");
    strcpy(h->session.origin.laddr, "127.0.0.1:6379");
    atomic_store(&h->session.resp, version);
    acl_login_default(h->server, &h->session);
    sessions_add(h->server->clients.sessions, &h->session);
}

/* The loop's command_defer() passes the call to another thread; here only the reply matters, which is the same. */
bool command_keep_arguments(struct command_ctx *ctx)
{
    (void)ctx;
    return false;
}

void command_defer(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data)
{
    struct command_job job = {.server = ctx->server, .reply = *ctx->reply, .data = data, .run = run};

    current->deferred++;
    job.run(&job);
    free(data);
}

/* Nothing in these tests needs to be read first. */
bool command_do_first(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data)
{
    (void)run;
    reply_error(ctx->reply, "ERR a file has to be read first");
    free(data);
    return false;
}

/* The row for the words; the test fails without a row or with a wrong number of words. */
static const struct command *find_row(const struct slice *argv, size_t argc)
{
    int index = command_find(argv[0]);
    const struct command *row;

    cr_assert_geq(index, 0, "no command '%.*s'", (int)argv[0].len, argv[0].ptr);
    row = command_row((size_t)index);
    if (row->nsubcommands > 0 && argc > 1) {
        row = command_find_sub(row, argv[1]);
        cr_assert_not_null(row, "no subcommand '%.*s'", (int)argv[1].len, argv[1].ptr);
    }
    cr_assert(row->arity >= 0 ? argc == (size_t)row->arity : argc >= (size_t)-row->arity, "arity of %s",
              row->full_name);
    return row;
}

const char *harness_run(struct harness *h, const struct slice *argv, size_t argc, size_t *len_out)
{
    static struct resp_span spans[MAX_ARGS];
    static char bytes[1 << 16];
    struct resp_command args = {.base = bytes, .spans = spans, .argc = argc};
    const struct command *row = find_row(argv, argc);
    struct command_ctx ctx = {
        .server = h->server,
        .session = &h->session,
        .stats = &h->stats,
        .command = row,
        .args = &args,
        .reply = &h->reply,
    };
    size_t used = 0;

    cr_assert_leq(argc, MAX_ARGS);
    for (size_t i = 0; i < argc; i++) {
        cr_assert_leq(used + argv[i].len, sizeof(bytes));
        if (argv[i].len > 0)
            memcpy(bytes + used, argv[i].ptr, argv[i].len);
        spans[i] = (struct resp_span){(uint32_t)used, (uint32_t)argv[i].len};
        used += argv[i].len;
    }
    buf_truncate(&h->out, 0);
    h->reply.version = atomic_load(&h->session.resp);
    atomic_store(&h->session.meters.command, row->full_name);
    current = h;
    row->handler(&ctx);
    current = NULL;
    cr_assert_not(buf_failed(&h->out));
    if (len_out != NULL)
        *len_out = buf_len(&h->out);
    buf_append(&h->out, "", 1);
    return buf_head(&h->out);
}

const char *harness_call(struct harness *h, size_t *len_out, ...)
{
    struct slice argv[MAX_ARGS];
    size_t argc = 0;
    va_list words;

    va_start(words, len_out);
    for (const char *word; (word = va_arg(words, const char *)) != NULL; argc++) {
        cr_assert_lt(argc, MAX_ARGS);
        argv[argc] = slice_of(word);
    }
    va_end(words);
    return harness_run(h, argv, argc, len_out);
}

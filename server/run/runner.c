#include "runner.h"

#include "acl.h"
#include "client.h"
#include "subscriptions.h"
#include "transaction.h"

static void start_held(struct section *section)
{
    jobs_start_held(&runner_of(section->io)->jobs);
}

int runner_init(struct runner *runner)
{
    struct io *io = &runner->io;
    push_init(&runner->push, io);
    section_init(&runner->section, io, start_held);
    monitor_init(&runner->monitor, io->server->pubsub);
    log_waits_init(&runner->log, io);
    fetches_init(&runner->fetches, io->server, &io->mailbox, &runner->keyed);
    jobs_init(&runner->jobs, io, &runner->section, &runner->push);
    sleepers_init(&runner->sleepers, io, &runner->log);
    runner->slice_items = COMMAND_SLICE;
    int err = pipeline_init(&runner->pipeline, io, &runner->log, &runner->fetches);
    admission_init(&runner->admission, io, &runner->log, runner->pipeline.counters);
    return err;
}

void runner_deinit(struct runner *runner)
{
    buf_deinit(&runner->monitor.lines);
    keyed_deinit(&runner->keyed);
    pipeline_deinit(&runner->pipeline);
}

static const char protected_mode_text[] =
    "DENIED Bloomery is in protected mode: it has no password and takes connections from this machine only. To allow "
    "others, set a password ('requirepass' in the configuration file, or CONFIG SET requirepass from this machine), "
    "or, if "
    "the network itself is trusted, set 'protected-mode no'.";

const char *client_open(struct conn *conn)
{
    struct server *server = conn->io->server;
    struct session *session = &conn->session;
    acl_login_default(server, session);
    sessions_add(server->clients.sessions, session);
    bool refused = server_config(server)->network.protected_mode && session->acl.user->flags & ACL_NOPASS &&
                   !session->origin.local;
    return refused ? protected_mode_text : NULL;
}

size_t client_memory(const struct conn *conn)
{
    const struct client *client = (const struct client *)(const void *)conn;
    return client->running.reply.size + (client->job ? job_memory(client->job) : 0);
}

bool client_unsubscribe(struct conn *conn)
{
    return subscriptions_end(&conn->session);
}

void client_close(struct conn *conn)
{
    struct client *client = client_of(conn);
    sessions_remove(conn->io->server->clients.sessions, &conn->session);
    acl_logout(&conn->session);
    fetch_end(conn);
    transaction_end(&conn->session);
    buf_deinit(&client->running.reply);
}

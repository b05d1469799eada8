#include "client_calls.h"

#include "acl_session.h"
#include "client.h"
#include "runner.h"
#include "subscriptions.h"
#include "transaction.h"

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

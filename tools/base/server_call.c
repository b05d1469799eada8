#include "server_call.h"

#include <stdlib.h>

#define TIMEOUT_MS 60000

int server_call_read(struct server_call *call, const struct tool_args *args, char *text)
{
    const char *password = getenv("REDISCLI_AUTH");
    struct errbuf err = {{0}};

    call->command = args->command->name;
    peer_init(&call->peer, TIMEOUT_MS, NULL);
    if (server_url_read(&call->url, text, &err) != 0)
        return tool_misused(call->command, "%s", err.text);
    server_url_hide(text);
    if (!call->url.address.password && password && server_url_set_password(&call->url, password) != 0)
        return tool_failed(call->command, "$REDISCLI_AUTH is too long");
    int rc = tls_options_read(args, call->url.with_tls, &call->tls);
    call->url.address.tls = call->tls;
    return rc;
}

static int refuse(const struct server_call *call, const char *text)
{
    return tool_failed(call->command, "%s: %s", call->url.shown, text);
}

int server_call_connect(struct server_call *call)
{
    struct errbuf err = {{0}};

    return peer_log_in(&call->peer, &call->url.address, &err) == 0 ? TOOL_OK : refuse(call, err.text);
}

int server_call_any_reply(struct server_call *call, struct resp_reply *reply)
{
    struct errbuf err = {{0}};

    return peer_reply(&call->peer, reply, &err) == 0 ? TOOL_OK : refuse(call, err.text);
}

int server_call_reply(struct server_call *call, struct resp_reply *reply)
{
    int rc = server_call_any_reply(call, reply);

    if (rc == TOOL_OK && reply->nodes[0].kind == RESP_REPLY_ERROR) {
        struct slice text = resp_reply_text(reply, 0);
        return tool_failed(call->command, "%s answers: %.*s", call->url.shown, (int)text.len, text.ptr);
    }
    return rc;
}

void server_call_close(struct server_call *call)
{
    if (call->command)
        peer_close(&call->peer);
    tls_context_destroy(call->tls);
    call->tls = NULL;
}

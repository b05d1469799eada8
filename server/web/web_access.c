#include "web_access.h"

#include <netdb.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <netinet/in.h>

#include "acl.h"
#include "clock.h"
#include "command.h"
#include "server.h"

#define MAX_CREDENTIALS 4096 /* of base64: a name, and CONFIG_MAX_SECRET bytes */

/* Cuts "Basic <name>:<password> in base64" into the two, which lie in `text`. */
static bool read_credentials(const char *header, uint8_t *text, struct slice *name_out, struct slice *password_out)
{
    struct base64_decode_ctx decoder;
    size_t len = BASE64_DECODE_LENGTH(MAX_CREDENTIALS);
    if (strncasecmp(header, "Basic ", 6) != 0)
        return false;
    header += 6;
    header += strspn(header, " ");
    if (strlen(header) > MAX_CREDENTIALS)
        return false;
    base64_decode_init(&decoder);
    if (!base64_decode_update(&decoder, &len, text, strlen(header), header) || !base64_decode_final(&decoder))
        return false;
    const uint8_t *colon = memchr(text, ':', len);
    if (!colon)
        return false;
    *name_out = (struct slice){(const char *)text, (size_t)(colon - text)};
    *password_out = (struct slice){(const char *)colon + 1, len - (size_t)(colon + 1 - text)};
    return true;
}

/* As AUTH does it: passwords may be tried here, too. */
static void note_wrong_password(const struct web_request *request, struct slice name)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    char host[64] = "?", port[8] = "?", client[96];
    if (info) {
        socklen_t len =
            info->client_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
        (void)getnameinfo(info->client_addr, len, host, sizeof(host), port, sizeof(port),
                          NI_NUMERICHOST | NI_NUMERICSERV);
    }
    int len = snprintf(client, sizeof(client), "addr=%s:%s", host, port);
    struct acl_denied denied = {
        .reason = ACL_DENIED_AUTH,
        .object = {"HTTP", strlen("HTTP")},
        .user = name,
        .client = {client, (size_t)len},
        .now_ms = clock_unix_ms(),
        .max = (size_t)server_config(request->web->server)->acllog_max_len,
    };
    acl_log_add(request->web->server->acl, &denied);
}

/* The user whom the header names, the default user where it names nobody, or NULL if the password is wrong. */
static struct acl_user *user_of(const struct web_request *request, const char *header)
{
    struct acl *acl = request->web->server->acl;
    static const struct slice default_name = {"default", 7};
    uint8_t text[BASE64_DECODE_LENGTH(MAX_CREDENTIALS)];
    struct slice name = default_name, password = {"", 0};
    if (header && !read_credentials(header, text, &name, &password))
        name = default_name;
    struct acl_user *known = acl_get(acl, name);
    acl_user_unref(known);
    struct acl_user *user = acl_authenticate(acl, known ? name : default_name, password);
    if (!user && header) /* a browser asks without one first */
        note_wrong_password(request, name);
    return user;
}

/* Whether the request is the default user's, who may do without a password, or that of a user who has given his. */
static bool may_see(const struct web_request *request, const char *header)
{
    static const char info[] = "info";
    struct acl_user *user = user_of(request, header);
    size_t command = (size_t)command_find((struct slice){info, strlen(info)});
    bool may = user && acl_allows_command(user, command);
    acl_user_unref(user);
    return may;
}

static bool default_has_no_password(struct acl *acl)
{
    struct acl_user *user = acl_get_default(acl);
    bool none = user->flags & ACL_NOPASS;
    acl_user_unref(user);
    return none;
}

static bool is_own_name(const char *host)
{
    size_t len = strcspn(host, ":");
    if (strncasecmp(host, "localhost", len) == 0 && len == strlen("localhost"))
        return true;
    /* No name of a host has only these: its last part would be a number. */
    return host[0] == '[' || strspn(host, "0123456789.:") == strlen(host);
}

enum web_access web_access(const struct web_request *request)
{
    struct server *server = request->web->server;
    struct MHD_Connection *connection = request->connection;
    if (server_config(server)->protected_mode && default_has_no_password(server->acl)) {
        const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
        if (!request->conn->local || (host && !is_own_name(host)))
            return WEB_NOT_LOCAL;
    }
    const char *header = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    return may_see(request, header) ? WEB_ALLOWED : WEB_NO_PASSWORD;
}

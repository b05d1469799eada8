#include "web_access.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "acl.h"
#include "clock.h"
#include "command.h"
#include "routes.h"
#include "server.h"

#define MAX_CREDENTIALS 4096 /* of base64: a name, and CONFIG_MAX_SECRET bytes */

/* Cuts "Basic <name>:<password> in base64" into the two, which are in `text`. */
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
    struct sockaddr_storage addr;
    socklen_t addr_len = sizeof(addr);
    char host[64] = "?", port[8] = "?", client[96];
    if (getpeername(request->fd, (struct sockaddr *)&addr, &addr_len) == 0)
        (void)getnameinfo((struct sockaddr *)&addr, addr_len, host, sizeof(host), port, sizeof(port),
                          NI_NUMERICHOST | NI_NUMERICSERV);
    int len = snprintf(client, sizeof(client), "addr=%s:%s", host, port);
    struct acl_denied denied = {
        .reason = ACL_DENIED_AUTH,
        .object = slice_of("HTTP"),
        .user = name,
        .client = {client, (size_t)len},
        .now_ms = clock_unix_ms(),
        .max = (size_t)server_config(request->web->server)->users.acllog_max_len,
    };
    acl_log_add(request->web->server->acl, &denied);
}

/* The user named by the header, the default user if the header names none, or NULL if the password is wrong.
 * *unknown_out: the header has a name that no user has. */
static struct acl_user *user_of(const struct web_request *request, const char *header, bool *unknown_out)
{
    struct acl *acl = request->web->server->acl;
    static const struct slice default_name = {"default", 7};
    uint8_t text[BASE64_DECODE_LENGTH(MAX_CREDENTIALS)];
    struct slice name = default_name, password = {"", 0};
    if (header && !read_credentials(header, text, &name, &password))
        name = default_name;
    struct acl_user *known = acl_get(acl, name);
    acl_user_unref(known);
    *unknown_out = !known && name.len > 0;
    struct acl_user *user = acl_authenticate(acl, known ? name : default_name, password);
    if (!user && header) /* a browser asks without one first */
        note_wrong_password(request, name);
    return user;
}

static bool may_run(const struct acl_user *user, const char *command)
{
    return acl_allows_command(user, command_index(command_find_full(slice_of(command))));
}

static bool default_has_no_password(struct acl *acl)
{
    struct acl_user *user = acl_get_default(acl);
    bool none = user->flags & ACL_NOPASS;
    acl_user_unref(user);
    return none;
}

/* Whether the text is an address: of IPv6 between brackets, otherwise of IPv4 with all of its four numbers. */
static bool is_address(const char *text, size_t len)
{
    char address[INET6_ADDRSTRLEN];
    struct in6_addr parsed;
    bool brackets = len >= 2 && text[0] == '[' && text[len - 1] == ']';
    if (brackets)
        text++, len -= 2;
    if (len >= sizeof(address))
        return false;
    memcpy(address, text, len);
    address[len] = '\0';
    return inet_pton(brackets ? AF_INET6 : AF_INET, address, &parsed) == 1;
}

/* Of a Host header: an address or localhost, and perhaps a port. */
static bool is_own_name(const char *host)
{
    size_t len = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    if (len > strlen(host))
        return false;
    const char *port = host + len;
    if (port[0] != '\0' && (port[0] != ':' || port[1 + strspn(port + 1, "0123456789")] != '\0'))
        return false;
    return is_address(host, len) || (len == strlen("localhost") && strncasecmp(host, "localhost", len) == 0);
}

static bool is_local(const struct web_request *request)
{
    const char *host = request->head.host;
    return request->local && (!host || is_own_name(host));
}

/* Browsers show the page, whose paths need INFO: there another user may log in. */
static enum web_access refusal(const struct web_request *request, const char *command, bool named)
{
    bool ask = !may_run(request->user, "info") && (!named || strcmp(command, "info") == 0);
    return ask ? WEB_NO_PASSWORD : WEB_NO_RIGHT;
}

enum web_access web_access(struct web_request *request, const char *const *needs, const char **missing_out)
{
    struct server *server = request->web->server;
    if (!needs[0])
        return WEB_ALLOWED;
    if (server_config(server)->network.protected_mode && default_has_no_password(server->acl) && !is_local(request))
        return WEB_NOT_LOCAL;
    const char *header = http_field(&request->head, "Authorization");
    bool unknown;
    *missing_out = needs[0];
    request->user = user_of(request, header, &unknown);
    if (!request->user)
        return WEB_NO_PASSWORD;
    for (int i = 0; i < ROUTE_NEEDS && needs[i]; i++) {
        *missing_out = needs[i];
        if (!may_run(request->user, needs[i])) /* which names there are must not show */
            return unknown ? WEB_NO_PASSWORD : refusal(request, needs[i], header != NULL);
    }
    return WEB_ALLOWED;
}

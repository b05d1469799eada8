#include "web_access.h"

#include <nettle/base64.h>
#include <string.h>
#include <strings.h>

#include "password.h"
#include "server.h"

#define MAX_CREDENTIALS 4096 /* of base64: a name, and CONFIG_MAX_SECRET bytes */

static bool has_password(const char *header, const char *password)
{
    uint8_t text[BASE64_DECODE_LENGTH(MAX_CREDENTIALS)];
    struct base64_decode_ctx decoder;
    size_t len = sizeof(text);
    if (!header || strncasecmp(header, "Basic ", 6) != 0)
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
    return password_equal(password, (struct slice){(const char *)colon + 1, len - (size_t)(colon + 1 - text)});
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
    const struct config *config = server_config(request->web->server);
    struct MHD_Connection *connection = request->connection;
    if (config->requirepass[0]) {
        const char *header = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
        return has_password(header, config->requirepass) ? WEB_ALLOWED : WEB_NO_PASSWORD;
    }
    if (!config->protected_mode)
        return WEB_ALLOWED;
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    return request->conn->local && (!host || is_own_name(host)) ? WEB_ALLOWED : WEB_NOT_LOCAL;
}

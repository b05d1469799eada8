#include "tls_options.h"

int tls_options_read(const struct tool_args *args, bool wanted, struct tls_context **context_out)
{
    static const char *const names[] = {"--cacert", "--cert", "--key", "--insecure"};
    const char *command = args->command->name, *values[4];
    struct errbuf err = {""};
    *context_out = NULL;
    for (size_t i = 0; i < 4; i++) {
        values[i] = tool_option(args, names[i]);
        if (values[i] && !wanted)
            return tool_misused(command, "%s needs TLS: rediss://", names[i]);
    }
    if (!wanted)
        return TOOL_OK;
    struct tls_client_settings settings = {
        .ca_cert_file = values[0], .cert_file = values[1], .key_file = values[2], .insecure = values[3] != NULL};
    return tls_context_client(&settings, context_out, &err) == 0 ? TOOL_OK : tool_failed(command, "%s", err.text);
}

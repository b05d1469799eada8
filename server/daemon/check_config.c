#include "server_create.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "acl.h"
#include "config.h"
#include "key_file.h"
#include "server_files.h"
#include "store.h"
#include "tcp_bind.h"
#include "tls_context.h"

static int check_certificates(const struct config *config, struct errbuf *err)
{
    struct tls_context *context;
    int rc = server_tls_load(config, &context, err);
    if (rc == 0)
        tls_context_destroy(context);
    return rc;
}

static int check_users(const struct config *config, struct errbuf *err)
{
    _Atomic uint64_t bytes = 0;
    struct acl *acl;
    int rc = acl_create(&acl, config, &bytes, err);
    if (rc == 0)
        acl_destroy(acl);
    return rc;
}

static int check_keys(const struct config *config, struct errbuf *err)
{
    struct key_file *file;
    if (!config->filters.key_file[0])
        return 0;
    int rc = key_file_read(fsops_posix(), config->filters.key_file, &file, err);
    if (rc == 0)
        key_file_free(file);
    return rc;
}

/* A start makes it where it is missing. */
static int check_directory(const struct config *config, struct errbuf *err)
{
    const struct store_options options = {.fs = NULL};
    struct stat st;
    int rc = stat(config->data.dir, &st) == 0 ? S_ISDIR(st.st_mode) ? 0 : -ENOTDIR : -errno;
    if (rc != 0 && rc != -ENOENT)
        errbuf_set(err, "dir %s: %s", config->data.dir, strerror(-rc));
    if (rc != 0)
        return rc == -ENOENT ? 0 : rc;
    rc = store_verify(config->data.dir, &options, err);
    if (rc != 0 && rc != -ENOENT)
        errbuf_prefix(err, "dir");
    return rc == -ENOENT ? 0 : rc;
}

/* ---- files that a start makes ---- */

/* Whether a file may be made there. */
static int check_place(const char *setting, const char *path, struct errbuf *err)
{
    const char *slash = strrchr(path, '/');
    char directory[PATH_MAX];
    int len = snprintf(directory, sizeof(directory), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    int rc = len >= (int)sizeof(directory) ? -ENAMETOOLONG : access(directory, W_OK | X_OK) != 0 ? -errno : 0;
    return rc == 0 ? 0 : errbuf_fail(err, rc, "%s %s: the directory %s: %s", setting, path, directory, strerror(-rc));
}

static int check_log(const struct config *config, struct errbuf *err)
{
    const char *path = config->process.logfile;
    struct stat st;
    if (!path[0])
        return 0;
    if (stat(path, &st) != 0 && errno == ENOENT)
        return check_place("logfile", path, err);
    int rc = stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? -EISDIR : access(path, W_OK) != 0 ? -errno : 0;
    return rc == 0 ? 0 : errbuf_fail(err, rc, "logfile %s: %s", path, strerror(-rc));
}

static int check_socket(const struct config *config, struct errbuf *err)
{
    const size_t most = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;
    const char *path = config->network.unixsocket;
    struct stat st;
    if (!path[0])
        return 0;
    if (strlen(path) > most)
        return errbuf_fail(err, -ENAMETOOLONG, "unixsocket %s: the path has more than %zu bytes", path, most);
    if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
        return errbuf_fail(err, -ENOTSOCK, "unixsocket %s exists and is not a socket", path);
    return check_place("unixsocket", path, err);
}

/* ---- addresses ---- */

/* With port 0, which means any free port: a daemon may listen on the right one. */
static int check_addresses(const char *setting, const struct config_list *addresses, size_t *usable, struct errbuf *err)
{
    for (size_t i = 0; i < addresses->count; i++) {
        struct errbuf why = {""};
        struct tcp_socket tcp;
        int rc = tcp_bind(addresses->items[i], "0", TCP_ALONE, &tcp, &why);
        if (rc == 0) {
            close(tcp.fd);
            ++*usable;
        } else if (rc < 0) {
            const char *cause = strstr(why.text, ":0: ");
            return errbuf_fail(err, rc, "%s %s: %s", setting, addresses->items[i],
                               cause ? cause + strlen(":0: ") : why.text);
        }
    }
    return 0;
}

static int check_listeners(const struct config *config, struct errbuf *err)
{
    size_t usable = config->network.unixsocket[0] != 0, of_metrics = 0;
    int rc = 0;
    if (config->network.port || config->tls.port)
        rc = check_addresses("bind", &config->network.bind, &usable, err);
    if (rc == 0 && usable == 0)
        return errbuf_fail(err, -EINVAL, "nothing to listen on: set 'port' or 'tls-port', and 'bind', or 'unixsocket'");
    if (rc != 0 || !config->metrics.port)
        return rc;
    rc = check_addresses("metrics-bind", &config->metrics.bind, &of_metrics, err);
    if (rc == 0 && of_metrics == 0)
        return errbuf_fail(err, -EINVAL, "metrics-port is set, but metrics-bind names no address of this machine");
    return rc;
}

int check_config(const struct config *config, struct errbuf *err)
{
    static int (*const checks[])(const struct config *config, struct errbuf *err) = {
        check_certificates, check_users, check_keys, check_log, check_socket, check_listeners, check_directory,
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(checks) / sizeof(checks[0]); i++)
        rc = checks[i](config, err);
    return rc;
}

#include "server_create.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "acl.h"
#include "config.h"
#include "key_file.h"
#include "server_files.h"
#include "store.h"
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
    rc = store_visit(config->data.dir, &options, NULL, NULL, err);
    if (rc != 0 && rc != -ENOENT)
        errbuf_prefix(err, "dir");
    return rc == -ENOENT ? 0 : rc;
}

int check_config(const struct config *config, struct errbuf *err)
{
    static int (*const checks[])(const struct config *config, struct errbuf *err) = {
        check_certificates,
        check_users,
        check_keys,
        check_directory,
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(checks) / sizeof(checks[0]); i++)
        rc = checks[i](config, err);
    return rc;
}

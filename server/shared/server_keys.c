#include "server_keys.h"

#include <errno.h>
#include <inttypes.h>

#include "bloom_keyring.h"
#include "key_file.h"
#include "server.h"
#include "server_tls.h"

static int read_file(struct server *server, const char *path, struct key_file **out, struct errbuf *err)
{
    int rc = key_file_read(fsops_posix(), path, out, err);
    struct errbuf text;

    if (rc == 0 && key_file_is_exposed(path, &text))
        log_warning(&server->log, "%s", text.text);
    return rc;
}

int server_keys_load(struct server *server, const struct config *config, bool make, struct key_file **out,
                     struct errbuf *err)
{
    const char *dir = server->process.data_dir;
    struct path own;

    *out = NULL;
    if (config->filters.key_file[0])
        return read_file(server, config->filters.key_file, out, err);
    int rc = path_format(&own, err, "%s/" KEY_FILE_NAME, dir);
    if (rc == 0)
        rc = read_file(server, own.text, out, err);
    if (rc != -ENOENT)
        return rc;
    /* While keys are in memory, a file without them would make their filters unreadable. */
    if ((!make && !config->filters.keyed) || bloom_keyring_first(server->pool))
        return 0;
    rc = key_file_make(fsops_posix(), dir, own.text, err);
    if (rc == 0)
        rc = read_file(server, own.text, out, err);
    if (rc == 0)
        log_notice(&server->log, "created the key file %s: without it KEYED filters cannot be queried", own.text);
    return rc;
}

void server_keys_warn(struct server *server)
{
    uint64_t ids[KEY_FILE_KEYS];
    size_t n = bloom_keyring_missing(server->pool, ids, KEY_FILE_KEYS);

    for (size_t i = 0; i < n; i++)
        log_warning(&server->log,
                    "the key %016" PRIx64 " is missing: its KEYED filters return errors until the key file has it",
                    ids[i]);
}

void server_keys_replace(struct server *server, struct key_file *file)
{
    if (bloom_keyring_set(server->pool, file ? file->secrets : NULL, file ? file->n : 0) != 0)
        log_warning(&server->log, "the keys are unchanged: out of memory");
    key_file_free(file);
    server_keys_warn(server);
}

/* `make`: as for server_keys_load(). */
static int load(struct server *server, bool make, struct errbuf *err)
{
    struct key_file *file;
    struct config config;
    int rc;

    server_tls_lock(server);
    rc = server_config_copy(server, &config, err);
    if (rc == 0) {
        rc = server_keys_load(server, &config, make, &file, err);
        config_deinit(&config);
    }
    /* A key file that has disappeared from the data directory is no reason to forget its keys. */
    if (rc == 0 && file)
        server_keys_replace(server, file);
    else if (rc == 0 && bloom_keyring_first(server->pool))
        log_warning(&server->log, "the key file is missing; its keys are in memory only: restore it from a backup");
    server_tls_unlock(server);
    return rc;
}

void server_keys_reload(struct server *server)
{
    struct errbuf err = {""};

    if (load(server, false, &err) != 0)
        log_warning(&server->log, "the keys are unchanged: %s", err.text);
}

void server_keys_make(struct server *server)
{
    struct errbuf err = {""};
    int rc = load(server, true, &err);

    if (rc != 0)
        log_warning(&server->log, "%s", err.text);
    atomic_store(&server->settings.key_trouble, rc);
}

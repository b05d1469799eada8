#include "web_tls.h"

#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "server.h"
#include "web_internal.h"

#define CHAIN_MAX 16 /* certificates between the server's and the root, both included */

/* A certificate with those behind it, and its key. What a handshake was told of must outlast it: a replaced one is kept
 * for longer than a connection lasts. */
struct material {
    struct material *next; /* an older one */
    int64_t replaced_ms;
    gnutls_pcert_st chain[CHAIN_MAX];
    unsigned nchain;
    gnutls_privkey_t key;
};

struct web_tls {
    struct server *server;
    uint64_t generation; /* of the settings' files that were read last */
    struct material *now;
};

/* libmicrohttpd gives its callback no context; there is one HTTP server in a process. */
static struct web_tls *the_tls;

static void material_free(struct material *material)
{
    if (!material)
        return;
    for (unsigned i = 0; i < material->nchain; i++)
        gnutls_pcert_deinit(&material->chain[i]);
    gnutls_privkey_deinit(material->key);
    free(material);
}

static int fail(struct errbuf *err, const char *what, const char *path, int status)
{
    errbuf_set(err, "%s %s: %s", what, path, gnutls_strerror(status));
    return -1;
}

static int load_chain(struct material *material, const char *path, struct errbuf *err)
{
    gnutls_datum_t pem = {NULL, 0};
    unsigned n = CHAIN_MAX;
    int status = gnutls_load_file(path, &pem);
    if (status == 0)
        status = gnutls_pcert_list_import_x509_raw(material->chain, &n, &pem, GNUTLS_X509_FMT_PEM, 0);
    gnutls_free(pem.data);
    if (status == 0)
        material->nchain = n;
    return status == 0 ? 0 : fail(err, "tls-cert-file", path, status);
}

static int load_key(struct material *material, const char *path, const char *password, struct errbuf *err)
{
    gnutls_datum_t pem = {NULL, 0};
    int status = gnutls_privkey_init(&material->key);
    if (status == 0)
        status = gnutls_load_file(path, &pem);
    if (status == 0)
        status =
            gnutls_privkey_import_x509_raw(material->key, &pem, GNUTLS_X509_FMT_PEM, password[0] ? password : NULL, 0);
    gnutls_free(pem.data);
    return status == 0 ? 0 : fail(err, "tls-key-file", path, status);
}

static struct material *load(const struct config *config, struct errbuf *err)
{
    const char *cert = config->tls_cert_file, *key = config->tls_key_file[0] ? config->tls_key_file : cert;
    struct material *material = calloc(1, sizeof(*material));
    if (!material)
        errbuf_set(err, "%s", strerror(ENOMEM));
    else if (load_chain(material, cert, err) == 0 && load_key(material, key, config->tls_key_file_pass, err) == 0)
        return material;
    material_free(material);
    return NULL;
}

/* The settings in force, for as long as files are read. NULL without memory. */
static struct config *copy_config(struct server *server, uint64_t *generation_out)
{
    struct config *config = malloc(sizeof(*config));
    server_config_lock(server);
    *generation_out = atomic_load(&server->tls.generation);
    int status = config ? config_clone(server_config(server), config) : -ENOMEM;
    server_config_unlock(server);
    if (status == 0)
        return config;
    free(config);
    return NULL;
}

static struct material *load_now(struct web_tls *tls, struct errbuf *err)
{
    struct config *config = copy_config(tls->server, &tls->generation);
    struct material *material = NULL;
    if (config)
        material = load(config, err);
    else
        errbuf_set(err, "%s", strerror(ENOMEM));
    if (config)
        config_deinit(config);
    free(config);
    return material;
}

int web_tls_create(struct web_tls **tls_out, struct server *server, struct errbuf *err)
{
    *tls_out = NULL;
    if (!server_config(server)->metrics_tls)
        return 0;
    struct web_tls *tls = calloc(1, sizeof(*tls));
    if (!tls) {
        errbuf_set(err, "%s", strerror(ENOMEM));
        return -1;
    }
    tls->server = server;
    tls->now = load_now(tls, err);
    if (!tls->now) {
        free(tls);
        return -1;
    }
    the_tls = *tls_out = tls;
    return 0;
}

void web_tls_destroy(struct web_tls *tls)
{
    if (!tls)
        return;
    while (tls->now) {
        struct material *older = tls->now->next;
        material_free(tls->now);
        tls->now = older;
    }
    free(tls);
    the_tls = NULL;
}

/* Frees replaced ones that no connection can have been told of. */
static void free_old(struct web_tls *tls)
{
    struct material **at = &tls->now->next;
    while (*at && clock_ms() - (*at)->replaced_ms < 4 * WEB_REQUEST_MS)
        at = &(*at)->next;
    while (*at) {
        struct material *old = *at;
        *at = old->next;
        material_free(old);
    }
}

void web_tls_follow(struct web_tls *tls)
{
    struct errbuf err = {""};
    if (!tls)
        return;
    free_old(tls);
    if (tls->generation == atomic_load(&tls->server->tls.generation))
        return;
    struct material *material = load_now(tls, &err);
    if (!material) {
        log_warning(&tls->server->log, "metrics-tls: the certificate stays what it was: %s", err.text);
        return;
    }
    tls->now->replaced_ms = clock_ms();
    material->next = tls->now;
    tls->now = material;
}

static int retrieve(gnutls_session_t session, const gnutls_datum_t *authorities, int nauthorities,
                    const gnutls_pk_algorithm_t *algorithms, int nalgorithms, gnutls_pcert_st **chain_out,
                    unsigned *nchain_out, gnutls_privkey_t *key_out)
{
    (void)session, (void)authorities, (void)nauthorities, (void)algorithms, (void)nalgorithms;
    *chain_out = the_tls->now->chain;
    *nchain_out = the_tls->now->nchain;
    *key_out = the_tls->now->key;
    return 0;
}

void *web_tls_callback(void)
{
    gnutls_certificate_retrieve_function2 *function = retrieve;
    void *pointer;
    memcpy(&pointer, &function, sizeof(pointer));
    return pointer;
}

/* Certificates and keys from files. This file reads the bytes itself: OpenSSL would wait for a file without data, and
 * would never finish an endless file (as in /proc). */
#include "tls_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (4 << 20) /* of a file with certificates: the whole list of a system has 0.25 MB */

/* Opens it if it is of the kind. A descriptor, or -errno with the reason. */
static int open_as(const char *what, const char *path, bool directory, struct errbuf *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int status = -errno;
        errbuf_set(err, "%s %s: %s", what, path, strerror(-status));
        if (fd >= 0)
            close(fd);
        return status;
    }
    if (directory ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode))
        return fd;
    close(fd);
    return errbuf_fail(err, -EINVAL, "%s %s: is not a %s", what, path, directory ? "directory" : "file");
}

int tls_look_at_directory(const char *what, const char *path, struct errbuf *err)
{
    int fd = open_as(what, path, true, err);
    if (fd < 0)
        return fd;
    close(fd);
    return 0;
}

int tls_read_file(const char *what, const char *path, BIO **bytes_out, struct errbuf *err)
{
    char chunk[16384];
    ssize_t n = 0;
    size_t total = 0;
    int fd = open_as(what, path, false, err), status = 0;
    if (fd < 0)
        return fd;
    BIO *bytes = BIO_new(BIO_s_mem());
    bool fits = bytes && BIO_set_mem_eof_return(bytes, 0) == 1;
    while (fits && total <= FILE_MAX && (n = read(fd, chunk, sizeof(chunk))) > 0) {
        fits = BIO_write(bytes, chunk, (int)n) == (int)n;
        total += (size_t)n;
    }
    if (n < 0) {
        status = -errno;
        errbuf_set(err, "%s %s: %s", what, path, strerror(-status));
    } else if (!fits) {
        status = -ENOMEM;
        errbuf_set(err, "%s %s: out of memory", what, path);
    } else if (total > FILE_MAX) {
        status = -EINVAL;
        errbuf_set(err, "%s %s: has more than %d MB", what, path, FILE_MAX >> 20);
    }
    OPENSSL_cleanse(chunk, sizeof(chunk));
    close(fd);
    if (status)
        BIO_free(bytes);
    else
        *bytes_out = bytes;
    return status;
}

/* Whether the last certificate has been read. The end of the file is no error. */
static bool at_end(void)
{
    unsigned long code = ERR_peek_last_error();
    if (ERR_GET_LIB(code) != ERR_LIB_PEM || ERR_GET_REASON(code) != PEM_R_NO_START_LINE)
        return false;
    ERR_clear_error();
    return true;
}

bool tls_use_chain(SSL_CTX *ssl, BIO *bytes)
{
    pem_password_cb *ask = SSL_CTX_get_default_passwd_cb(ssl);
    void *ctx = SSL_CTX_get_default_passwd_cb_userdata(ssl);
    ERR_clear_error();
    X509 *certificate = PEM_read_bio_X509_AUX(bytes, NULL, ask, ctx);
    bool good = certificate && SSL_CTX_use_certificate(ssl, certificate) == 1 && SSL_CTX_clear_chain_certs(ssl) == 1;
    X509_free(certificate);
    while (good && (certificate = PEM_read_bio_X509(bytes, NULL, ask, ctx))) {
        good = SSL_CTX_add0_chain_cert(ssl, certificate) == 1;
        if (!good)
            X509_free(certificate);
    }
    return good && at_end();
}

bool tls_use_key(SSL_CTX *ssl, BIO *bytes)
{
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bytes, NULL, SSL_CTX_get_default_passwd_cb(ssl),
                                            SSL_CTX_get_default_passwd_cb_userdata(ssl));
    bool good = key && SSL_CTX_use_PrivateKey(ssl, key) == 1;
    EVP_PKEY_free(key);
    return good;
}

static int by_name(const X509_NAME *const *a, const X509_NAME *const *b)
{
    return X509_NAME_cmp(*a, *b);
}

static bool add_name(STACK_OF(X509_NAME) * names, X509 *certificate)
{
    X509_NAME *name = X509_get_subject_name(certificate);
    if (sk_X509_NAME_find(names, name) >= 0)
        return true;
    name = X509_NAME_dup(name);
    if (name && sk_X509_NAME_push(names, name))
        return true;
    X509_NAME_free(name);
    return false;
}

static bool add_authority(X509_STORE *store, STACK_OF(X509_NAME) * names, const X509_INFO *info)
{
    if (info->crl && X509_STORE_add_crl(store, info->crl) != 1)
        return false;
    return !info->x509 || (X509_STORE_add_cert(store, info->x509) == 1 && add_name(names, info->x509));
}

bool tls_use_authorities(SSL_CTX *ssl, BIO *bytes, bool shows)
{
    STACK_OF(X509_INFO) *infos = PEM_X509_INFO_read_bio(bytes, NULL, NULL, NULL);
    STACK_OF(X509_NAME) *names = sk_X509_NAME_new(by_name);
    bool good = infos && names;
    for (int i = 0; good && i < sk_X509_INFO_num(infos); i++)
        good = add_authority(SSL_CTX_get_cert_store(ssl), names, sk_X509_INFO_value(infos, i));
    if (good && sk_X509_NAME_num(names) == 0) {
        ERR_raise(ERR_LIB_PEM, PEM_R_NO_START_LINE); /* as for any file without a certificate */
        good = false;
    }
    sk_X509_INFO_pop_free(infos, X509_INFO_free);
    if (good && shows)
        SSL_CTX_set_client_CA_list(ssl, names);
    else
        sk_X509_NAME_pop_free(names, X509_NAME_free);
    return good;
}

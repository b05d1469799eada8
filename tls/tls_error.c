/* OpenSSL's errors in words for operators. A failure leaves a queue of errors for each thread: the first one is nearest
 * to the cause. */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>

#include "tls_error.h"

struct wording {
    int reason;
    const char *text;
};

/* For errors whose OpenSSL text does not help an operator. An alert comes from the other side. */
static const struct wording wordings[] = {
    {SSL_R_NO_SHARED_CIPHER, "the client and this server have no cipher in common"},
    {SSL_R_UNSUPPORTED_PROTOCOL, "the other side speaks a TLS version that is not permitted here"},
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, "the client has presented no certificate, but one is required"},
    {SSL_R_HTTP_REQUEST, "an HTTP request, not TLS"},
    {SSL_R_WRONG_VERSION_NUMBER, "the other side does not speak TLS"},
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA, "the other side does not know the CA of our certificate"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, "the other side does not accept our certificate"},
    {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, "the other side does not accept our certificate"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, "the other side says that our certificate has expired"},
    {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, "the other side requires a certificate, but we have presented none"},
    {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, "the other side does not permit our versions of TLS"},
    {SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE, "the other side refuses: no common cipher or version, or no certificate"},
    {SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC, "a record was damaged in transit"},
};

static const char *wording_of(unsigned long code)
{
    if (ERR_GET_LIB(code) != ERR_LIB_SSL)
        return NULL;
    for (size_t i = 0; i < sizeof(wordings) / sizeof(wordings[0]); i++)
        if (wordings[i].reason == ERR_GET_REASON(code))
            return wordings[i].text;
    return NULL;
}

void tls_error_take(char *text_out, size_t size)
{
    const char *data = NULL, *words, *ours = NULL;
    int flags = 0;
    unsigned long code = ERR_peek_error_all(NULL, NULL, NULL, &data, &flags);
    if (code == 0)
        words = "failed";
    else if (ERR_SYSTEM_ERROR(code))
        words = strerror(ERR_GET_REASON(code));
    else if (!(words = ours = wording_of(code)) && !(words = ERR_reason_error_string(code)))
        words = "unknown error";
    if (data && *data && (flags & ERR_TXT_STRING) && !ours && !ERR_SYSTEM_ERROR(code))
        snprintf(text_out, size, "%s (%s)", words, data);
    else
        snprintf(text_out, size, "%s", words);
    ERR_clear_error();
}

void tls_error(struct errbuf *err, const char *what)
{
    char text[256];
    tls_error_take(text, sizeof(text));
    errbuf_set(err, "%s: %s", what, text);
}

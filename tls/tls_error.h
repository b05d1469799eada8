/* tls_error: OpenSSL's reasons in plain English. Internal to the room. Thread: any. */
#ifndef BLOOMERY_TLS_ERROR_H
#define BLOOMERY_TLS_ERROR_H

#include <stddef.h>

#include "errbuf.h"

/* OpenSSL's reason for the last failure of this thread, and forgets it: a few words in plain English. */
void tls_error_take(char *text_out, size_t size);

/* Sets `err` to "<what>: <reason>". */
void tls_error(struct errbuf *err, const char *what);

#endif

/* Sending and receiving of wire.c with TLS. */
#pragma once

#include <sys/types.h>

#include "wire.h"

/* Like send() and recv(); -1 with errno EAGAIN: the received bytes had no data for the reader. */
ssize_t wire_tls_send(struct wire *wire, const void *data, size_t len);
ssize_t wire_tls_recv(struct wire *wire, void *data, size_t size);
bool wire_tls_has_more(const struct wire *wire); /* received, and not taken */
void wire_tls_close(struct wire *wire);

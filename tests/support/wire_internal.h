/* How wire.c sends and receives where there is TLS. */
#ifndef BLOOMERY_TEST_WIRE_INTERNAL_H
#define BLOOMERY_TEST_WIRE_INTERNAL_H

#include <sys/types.h>

#include "wire.h"

/* As send() and recv(); -1 with errno EAGAIN: nothing for the reader was in what came. */
ssize_t wire_tls_send(struct wire *wire, const void *data, size_t len);
ssize_t wire_tls_recv(struct wire *wire, void *data, size_t size);
bool wire_tls_has_more(const struct wire *wire); /* received, and not taken */
void wire_tls_close(struct wire *wire);

#endif

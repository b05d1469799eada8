/* Shared by the files of the room: TLS of a peer (peer_tls.c). */
#ifndef BLOOMERY_PEER_INTERNAL_H
#define BLOOMERY_PEER_INTERNAL_H

#include "peer.h"

/* Waits for events of poll() on the socket. Returns the events, more than 0; or -ETIMEDOUT, -ECANCELED, -errno. */
int peer_wait(int fd, short events, const struct peer_limit *limit);

/* A connected, non-blocking socket; or -errno with the reason. */
int peer_socket(const struct peer_address *address, const struct peer_limit *limit, struct errbuf *err);

/* Makes the connection one with TLS: the handshake, all of it within the limit. 0 or -errno with the reason. */
int peer_tls_open(struct peer *peer, const struct peer_address *address, struct errbuf *err);

/* As send and recv of plain bytes, between peer->out or peer->in and the socket. 0 or -errno. */
int peer_tls_send(struct peer *peer);
int peer_tls_receive(struct peer *peer);

/* Whether records wait for the socket. */
bool peer_tls_is_sending(const struct peer *peer);

/* The reason of a TLS failure; "" if there was none. */
const char *peer_tls_reason(const struct peer *peer);

/* Sends close_notify, if the socket takes it at once, and frees everything; idempotent. */
void peer_tls_close(struct peer *peer);

#endif

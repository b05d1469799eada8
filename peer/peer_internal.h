/* Shared by the files of the room: TLS of a peer (peer_tls.c). */
#ifndef BLOOMERY_PEER_INTERNAL_H
#define BLOOMERY_PEER_INTERNAL_H

#include "peer.h"

/* Waits for events of poll() on the socket. Returns the events, more than 0; or -ETIMEDOUT, -ECANCELED, -errno. */
int peer_wait(int fd, short events, const struct peer_limit *limit);

/* A connected, non-blocking socket; or -errno with the reason. */
int peer_socket(const struct peer_address *address, const struct peer_limit *limit, struct errbuf *err);

struct addrinfo;

/* The addresses of a host, to be freed by freeaddrinfo(). A separate thread looks up names, because getaddrinfo() can
 * take half a minute and cannot be interrupted; the caller waits until the limit. 0, -EHOSTUNREACH, -ETIMEDOUT,
 * -ECANCELED, -ENOMEM, or -EAGAIN (too many look-ups are under way), with the reason. */
int peer_resolve(const char *host, const char *port, const struct peer_limit *limit, struct addrinfo **list_out,
                 struct errbuf *err);

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

/* Takes the stream out; the rest is freed. */
struct tls_stream *peer_tls_release(struct peer *peer);

#endif

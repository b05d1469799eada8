/* broadcast: names that have changed, for the clients that subscribe to all names with a prefix (CLIENT TRACKING ON
 * BCAST). Names are those of clients, without a database.
 *
 * A thread that changes a filter tells the hub its name. The hub collects it once for each prefix that the name begins
 * with and each loop with clients of that prefix, and wakes these loops. A loop takes the names collected since its
 * last delivery, and makes one list of names for each prefix, in the order of the first changes.
 *
 * Cost of a change: one load while there are no clients; otherwise the hub's lock, a look-up (prefix_table.h), and a
 * look-up by hash for each prefix and loop. Bounds: a loop that would have to write more than BROADCAST_MAX_BYTES to
 * its clients tells them that all names may have changed; so it does when there was no memory. There are at most
 * BROADCAST_MAX_PREFIXES prefixes.
 *
 * The hub knows neither connection nor loop. Thread rule: a client, and deliveries to a loop, belong to that loop's
 * thread; everything else: any. Under the hub's lock only `wake` is called; no other lock is taken. */
#ifndef BLOOMERY_BROADCAST_H
#define BLOOMERY_BROADCAST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"

#define BROADCAST_MAX_BYTES    ((size_t)16 * 1024 * 1024) /* some milliseconds of a loop's work */
#define BROADCAST_MAX_PREFIXES ((size_t)10000)            /* different ones; to end them all takes some 20 ms */

struct broadcast;
struct broadcast_client;

/* Creates a hub for loops 0..nloops-1. `wake(ctx, loop)` is called under the hub's lock when the loop must call
 * broadcast_deliver(); it must be quick, must not fail and must not call the hub. 0 or -ENOMEM. */
int broadcast_create(struct broadcast **hub_out, unsigned nloops, void (*wake)(void *ctx, unsigned loop), void *ctx);
void broadcast_destroy(struct broadcast *hub); /* all clients must be gone. NULL is fine */

/* ---- changes: any thread ---- */

bool broadcast_has_clients(const struct broadcast *hub); /* one load */

/* The filter under the name has changed, and readers see it. `author`: the client that did it (broadcast_author()); 0:
 * all clients are told. */
void broadcast_change(struct broadcast *hub, struct slice name, uint64_t author);

/* A number that represents the client whose command the thread runs now, if that client does not want to be told of its
 * own changes; 0 otherwise. It reaches changes that are made below the commands, where no client is known. */
uint64_t broadcast_author(void);
void broadcast_set_author(uint64_t author);

/* ---- clients: the thread of their loop ---- */

/* broadcast_deliver() hands `owner` back. 0 or -ENOMEM. */
int broadcast_client_create(struct broadcast_client **client_out, struct broadcast *hub, unsigned loop, void *owner);

/* Ends its subscriptions; nothing is delivered to it any more. NULL is fine. Not from within a delivery. */
void broadcast_client_destroy(struct broadcast_client *client);

/* Changes by this author are not reported to it. 0: all are. */
void broadcast_client_leave_out(struct broadcast_client *client, uint64_t author);

/* BROADCAST_OK, _SAME (it has the prefix already), _LIMIT (BROADCAST_MAX_PREFIXES) or -ENOMEM. */
enum broadcast_status { BROADCAST_OK, BROADCAST_SAME, BROADCAST_LIMIT };
int broadcast_subscribe(struct broadcast_client *client, struct slice prefix);
void broadcast_unsubscribe(struct broadcast_client *client, struct slice prefix); /* one that it has */

/* Its prefixes, in the order of their bytes. The slices are valid until it unsubscribes. */
size_t broadcast_client_count(const struct broadcast_client *client);
struct slice broadcast_client_prefix(const struct broadcast_client *client, size_t i);

/* Whether one of its prefixes begins with `prefix`, or `prefix` with it: the first such one. */
bool broadcast_overlaps(const struct broadcast_client *client, struct slice prefix, struct slice *with_out);

size_t broadcast_client_bytes(const struct broadcast_client *client); /* memory, except for shared parts */

/* ---- delivery: the loop's thread ---- */

/* Calls tell(owner, names) for each client of the loop and each of its prefixes with changes since the last delivery.
 * `names` is a RESP array of bulk strings, valid during the call; its ptr is NULL: all names may have changed. `tell`
 * must not create, change or destroy clients. */
void broadcast_deliver(struct broadcast *hub, unsigned loop, void (*tell)(void *owner, struct slice names));

/* ---- for INFO: any thread ---- */

size_t broadcast_prefixes(const struct broadcast *hub); /* different ones */
size_t broadcast_bytes(const struct broadcast *hub);    /* memory of prefixes and of changes that are not delivered */

#endif

/* rcu: readers of shared structures, and deferred freeing of removed objects. A thin layer over liburcu's QSBR flavour
 * that frees off the loops and shows ThreadSanitizer the order of events.
 *
 * A worker is online while it handles events: it may hold references to shared objects. It is offline while it sleeps
 * in poll. The end of each loop iteration is a quiescent state. Threads of the pool are online for one job. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct reclaimer; /* a thread that frees removed objects after a grace period */

/* Make the calling thread a reader, online; and the reverse. */
void rcu_reader_begin(void);
void rcu_reader_end(void);

/* Online: the thread may take references. Offline: it holds none. Both are cheap and may be repeated. */
void rcu_reader_online(void);
void rcu_reader_offline(void);
bool rcu_reader_is_online(void);

/* Waits for a grace period: until every reader that is online now has been offline or passed a quiescent state. The
 * caller is offline, or not a reader. */
void rcu_wait_for_readers(void);

int reclaimer_create(struct reclaimer **reclaimer_out); /* 0, -ENOMEM or another -errno; starts its thread */

/* Frees all queued objects and ends the thread. No reader may be online. NULL is fine. False: an object has leaked
 * (reclaimer_defer()); its owner must stay. */
bool reclaimer_destroy(struct reclaimer *reclaimer);

/* Calls fn(object) in the reclaimer's thread once no reader can hold a reference any more. The object must be
 * unreachable already. fn returns 0 when it is done, or nonzero for a retry (the object is still pinned). Without
 * memory for the queue the object leaks. To wait here for readers would be worse: one of them may wait for a lock that
 * the caller holds. `bytes`: the memory that it frees, where that matters (reclaimer_bytes()). Thread: any. */
void reclaimer_defer(struct reclaimer *reclaimer, int (*fn)(void *object), void *object, uint64_t bytes);

/* The sum of `bytes` of the objects that are about to be freed: all queued ones except pinned ones. Thread: any. */
uint64_t reclaimer_bytes(const struct reclaimer *reclaimer);

/* Counts bytes of an object that will be handed over in a moment, as its successor is made before; and, negative, no
 * longer counts them, because it has been. Thread: any. */
void reclaimer_announce(struct reclaimer *reclaimer, int64_t bytes);

/* Waits until reclaimer_bytes() is 0, or a second has passed. Not by a reader that is online. */
void reclaimer_wait(struct reclaimer *reclaimer);

/* The numbers of queued objects and of freed ones. Thread: any. */
void reclaimer_counts(struct reclaimer *reclaimer, uint64_t *waiting_out, uint64_t *freed_out);

/* Waits until all objects deferred before the call are freed (tests, shutdown). Not by a reader that is online. */
void reclaimer_flush(struct reclaimer *reclaimer);

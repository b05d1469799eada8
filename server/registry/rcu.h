/* rcu: who reads shared structures, and when what was removed from them may be freed. A thin layer over liburcu's QSBR
 * flavour that adds deferred freeing off the loops and tells ThreadSanitizer what orders what.
 *
 * A worker is online (may hold references to shared objects) while it handles events and offline while it sleeps in poll;
 * the end of each loop iteration is a quiescent state. Threads of the pool are online for one job. */
#ifndef BLOOMERY_RCU_H
#define BLOOMERY_RCU_H

#include <stdbool.h>

#include <stdint.h>

struct reclaimer; /* frees removed objects in a thread of its own, after a grace period */

/* Makes the calling thread a reader, online; and the reverse. */
void rcu_reader_begin(void);
void rcu_reader_end(void);

/* Online: from here on references may be taken. Offline: none is held any more. Both are cheap and may be repeated. */
void rcu_reader_online(void);
void rcu_reader_offline(void);
bool rcu_reader_is_online(void);

/* A grace period: returns when every reader that is online now has been offline or passed a quiescent state. The caller is
 * offline, or no reader. */
void rcu_wait_for_readers(void);

int reclaimer_create(struct reclaimer **reclaimer_out); /* 0, -ENOMEM or another -errno; starts its thread */

/* Frees everything that is due and ends the thread. No reader may be online. NULL is fine. */
void reclaimer_destroy(struct reclaimer *reclaimer);

/* Calls fn(object) in the reclaimer's thread once no reader can hold a reference any more. The object must have been made
 * unreachable. fn returns 0 when it is done, or nonzero to be called again a little later (the object is still pinned).
 * Without memory to note it the object is given up: to lose its memory is better than to wait for readers here, one of
 * whom may be waiting for a lock that the caller holds. Thread: any. */
void reclaimer_defer(struct reclaimer *reclaimer, int (*fn)(void *object), void *object);

/* How many objects wait to be freed, and how many have been freed so far. Thread: any. */
void reclaimer_counts(struct reclaimer *reclaimer, uint64_t *waiting_out, uint64_t *freed_out);

/* Waits until everything deferred before the call has been freed (tests, shutdown). Not on a reader that is online. */
void reclaimer_flush(struct reclaimer *reclaimer);

#endif

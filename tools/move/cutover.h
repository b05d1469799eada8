/* cutover: makes the source read-only and closes its clients' connections, or undoes that.
 *
 * Read-only is a setting: `read-only yes` (Bloomery), or min-replicas-to-write beyond all numbers of replicas (Redis,
 * Valkey), which no write passes either. Both hold for all users and all commands that write.
 *
 * Thread: one. */
#ifndef BLOOMERY_CUTOVER_H
#define BLOOMERY_CUTOVER_H

#include "errbuf.h"
#include "move.h"

struct cutover; /* a connection to the source */

/* Connects, before anything is copied or paused, and checks every right that the calls below need. If another client
 * has paused the source's clients, this pause ends. NULL with the reason. */
struct cutover *cutover_begin(const struct move_options *options, struct errbuf *err);
void cutover_end(struct cutover *cutover); /* NULL is fine */

/* The source refuses writes. 0, or -errno with the reason; cutover_undo() must be called then. *answer_out: the code of
 * its refusals, constant. */
int cutover_refuse_writes(struct cutover *cutover, const char **answer_out, struct errbuf *err);

/* Closes all connections of clients to the source but this one. 0 or -errno. */
int cutover_close_clients(struct cutover *cutover, struct errbuf *err);

int cutover_unpause(struct cutover *cutover, struct errbuf *err); /* 0 or -errno */

/* Allows writes again, as far as cutover_refuse_writes() has come, and ends the pause. Steps that cannot be undone are
 * added to `err`. */
void cutover_undo(struct cutover *cutover, struct errbuf *err);

#endif

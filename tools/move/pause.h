/* pause: holds the writers of the source back while a move runs, by CLIENT PAUSE WRITE, and makes the source read-only
 * at its end where it is Bloomery. A thread renews the pause, which ends by itself 15 s after this process has died.
 * Until the end everything can be undone.
 *
 * Lifetime: pause_begin() to pause_end(). Thread: the one that has begun it. */
#ifndef BLOOMERY_MOVE_PAUSE_H
#define BLOOMERY_MOVE_PAUSE_H

#include "errbuf.h"
#include "move.h"

struct pause;

/* Tries all commands that are needed later, too, in forms that change nothing: a copy may take hours. NULL with the
 * reason: the source refuses one of them, or is read-only already. */
struct pause *pause_begin(const struct move_options *options, struct errbuf *err);

/* Makes the source read-only and disconnects its clients, so that a write that the pause has caught half way is never
 * acknowledged. 1; 0: it is no Bloomery, and has no such setting; or -errno: -ECANCELED when writers were not held back
 * all the time. */
int pause_close_source(struct pause *pause, struct errbuf *err);

/* Lets the writers go on; with `undo` a source that became read-only accepts writes again. Returns the seconds since
 * the beginning. Adds to `err` what could not be undone. */
double pause_end(struct pause *pause, bool undo, struct errbuf *err);

#endif

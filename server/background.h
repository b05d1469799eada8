/* background: threads whose work can wait. Thread: any. */
#ifndef BLOOMERY_BACKGROUND_H
#define BLOOMERY_BACKGROUND_H

/* From now on the calling thread, and those that it starts, give way to the threads that serve clients, where there are
 * fewer processors than threads that want one: they get about a tenth of what an ordinary thread gets, and a processor that is
 * idle all the same. Not less (SCHED_IDLE), as they take locks for moments that others wait for. Does nothing where it is
 * not allowed. */
void background_begin(void);

#endif

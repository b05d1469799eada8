/* crash_report: one line and a stack trace for a process that ends by SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT; the
 * signal then has its default effect, and systemd-coredump has the rest. A signal with a handler keeps it.
 * Thread: crash_report_start() once, while there is one thread; crash_note_command() any. */
#ifndef BLOOMERY_CRASH_REPORT_H
#define BLOOMERY_CRASH_REPORT_H

#include "log.h"

/* Reports to `log`, which must live on. `program`: name and version, forever valid. `truncated`: the path of a mapped
 * file that is shorter than its mapping, or NULL; asked after SIGBUS. */
void crash_report_start(const struct log *log, const char *program, const char *(*truncated)(void));

extern _Thread_local const char *crash_last_command; /* internal */
/* This thread runs a command from now on; its name is forever valid. */
static inline void crash_note_command(const char *name)
{
    crash_last_command = name;
}

#endif

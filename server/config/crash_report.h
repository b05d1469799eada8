/* crash_report: what the log has of a process that ends by SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT: the signal and
 * its address or its sender, the program and its build, the thread and the command that it ran last, and a stack trace:
 *
 *   2026-11-21T08:15:30.123Z 4711 warning crashed by SIGSEGV, address 0x10, code 1, thread worker-0, last command
 * bf.merge 2026-11-21T08:15:30.123Z 4711 warning crashed: bloomeryd 0.3.0, build d7851b19... 2026-11-21T08:15:30.123Z
 * 4711 warning crashed: #0 bloomeryd+0x4c1f0
 *
 * The addresses are those of the file: `addr2line -f -e <file with symbols> 0x4c1f0`. Then the signal has its default
 * effect, so that a core dump arises where the system makes them.
 *
 * A signal that somebody handles already is left to him: the sanitizers write reports of their own.
 *
 * The handler takes no lock and no memory and calls only what POSIX permits in one, and the unwinder of libgcc, which
 * glibc 2.35 and later let find its tables without a lock; a handler that has not come to its end after ten seconds is
 * given up. Other threads that crash meanwhile wait for the report.
 *
 * Thread: crash_report_start() once, while there is one thread; crash_note_command() any. */
#ifndef BLOOMERY_CRASH_REPORT_H
#define BLOOMERY_CRASH_REPORT_H

#include "log.h"

/* Reports to `log`, which has to live on. `program`: the name and the version, for ever valid. Libraries that are
 * loaded later have no names in traces. */
void crash_report_start(const struct log *log, const char *program);

extern _Thread_local const char *crash_last_command; /* internal */

/* Notes that this thread runs a command from now on. `name` is for ever valid. */
static inline void crash_note_command(const char *name)
{
    crash_last_command = name;
}

#endif

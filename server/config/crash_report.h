/* crash_report: the log's report on a process that ends by SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT. It has the
 * signal with its address or sender, the program and its build, the thread and its last command, and a stack trace:
 *
 *   2026-11-21T08:15:30.123Z 42 warning crashed by SIGSEGV, address 0x10, code 1, thread worker-0, last command bf.add
 *   2026-11-21T08:15:30.123Z 42 warning crashed: bloomeryd 0.3.0, build d7851b19...
 *   2026-11-21T08:15:30.123Z 42 warning crashed: #0 bloomeryd+0x4c1f0
 *
 * The addresses are those of the file: `addr2line -f -e <file with symbols> 0x4c1f0`. Then the signal has its default
 * effect, so that a core dump arises where the system makes them.
 *
 * A signal that has a handler already keeps it: the sanitizers write reports of their own.
 *
 * The handler takes no lock and no memory, and calls only async-signal-safe functions and the unwinder of libgcc, which
 * finds its tables without a lock since glibc 2.35. A handler that has not finished after ten seconds is abandoned.
 * Other threads that crash meanwhile wait for the report.
 *
 * Thread: crash_report_start() once, while there is one thread; crash_note_command() any. */
#ifndef BLOOMERY_CRASH_REPORT_H
#define BLOOMERY_CRASH_REPORT_H

#include "log.h"

/* Reports to `log`, which must live on. `program`: the name and the version, forever valid. Libraries that are loaded
 * later have no names in traces. */
void crash_report_start(const struct log *log, const char *program);

extern _Thread_local const char *crash_last_command; /* internal */

/* Notes that this thread runs a command from now on. `name` is forever valid. */
static inline void crash_note_command(const char *name)
{
    crash_last_command = name;
}

#endif

#include "crash_report.h"

#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include "clock.h"
#include "thread.h"

#define FRAMES_MAX  64
#define OBJECTS_MAX 48
#define STUCK_S     10

_Thread_local const char *crash_last_command;

/* Executable memory of a file. */
struct object {
    uintptr_t base, start, end;
    char name[32];
};

static struct {
    const struct log *log;
    const char *program;
    struct object objects[OBJECTS_MAX];
    size_t nobjects;
    char build[65]; /* of the program, in hexadecimal */
} facts;

static const struct {
    int number;
    const char *name;
} signals[] = {
    {SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGFPE, "SIGFPE"}, {SIGILL, "SIGILL"}, {SIGABRT, "SIGABRT"},
};
#define SIGNALS (sizeof(signals) / sizeof(signals[0]))

static volatile sig_atomic_t crashed_by;

/* ---- a line, by functions that a signal handler may call ---- */

struct line {
    char text[512];
    size_t len;
};

static void put(struct line *line, const char *text)
{
    for (; *text && line->len < sizeof(line->text) - 1; text++)
        line->text[line->len++] = *text;
}

/* With leading zeros up to `width`. */
static void put_number(struct line *line, uint64_t number, unsigned base, unsigned width)
{
    char digits[24];
    size_t at = sizeof(digits) - 1;
    digits[at] = '\0';
    do {
        digits[--at] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number > 0 || sizeof(digits) - 1 - at < width);
    put(line, digits + at);
}

static void put_hex(struct line *line, uint64_t number)
{
    put(line, "0x");
    put_number(line, number, 16, 1);
}

/* gmtime_r() may take a lock. Years begin in March here, so that the leap day is their last. */
static void put_time(struct line *line)
{
    static const char *const separators[] = {"-", "-", "T", ":", ":", "."};
    uint64_t now_ms = (uint64_t)clock_unix_ms();
    uint64_t days = now_ms / 86400000 + 719468, second = now_ms / 1000 % 86400;
    uint64_t era = days / 146097, day = days % 146097;
    uint64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    day -= 365 * year + year / 4 - year / 100;
    uint64_t month = (5 * day + 2) / 153;
    uint64_t parts[] = {era * 400 + year + (month >= 10),
                        month < 10 ? month + 3 : month - 9,
                        day - (153 * month + 2) / 5 + 1,
                        second / 3600,
                        second / 60 % 60,
                        second % 60};
    for (size_t i = 0; i < 6; i++) {
        put_number(line, parts[i], 10, i == 0 ? 4 : 2);
        put(line, separators[i]);
    }
    put_number(line, now_ms % 1000, 10, 3);
    put(line, "Z ");
}

static void begin_line(struct line *line, const char *text)
{
    line->len = 0;
    if (facts.log->journal) {
        put(line, "<2>"); /* critical, as syslog counts */
    } else {
        put_time(line);
        put_number(line, (uint64_t)getpid(), 10, 1);
        put(line, " warning ");
    }
    put(line, text);
}

static void end_line(struct line *line)
{
    line->text[line->len++] = '\n'; /* put() leaves room */
    (void)!write(facts.log->fd, line->text, line->len);
}

/* ---- the contents of the lines ---- */

static void say_signal(int number, const siginfo_t *info)
{
    struct line line;
    char thread[16] = "";
    begin_line(&line, "crashed by ");
    for (size_t i = 0; i < SIGNALS; i++)
        if (signals[i].number == number)
            put(&line, signals[i].name);
    if (info->si_code > 0) {
        put(&line, ", address ");
        put_hex(&line, (uintptr_t)info->si_addr);
        put(&line, ", code ");
        put_number(&line, (uint64_t)info->si_code, 10, 1);
    } else {
        put(&line, ", sent by process ");
        put_number(&line, (uint64_t)info->si_pid, 10, 1);
        put(&line, " of user ");
        put_number(&line, info->si_uid, 10, 1);
    }
    if (prctl(PR_GET_NAME, thread) == 0) {
        put(&line, ", thread ");
        put(&line, thread);
    }
    put(&line, ", last command ");
    put(&line, crash_last_command ? crash_last_command : "none");
    end_line(&line);
    begin_line(&line, "crashed: ");
    put(&line, facts.program);
    put(&line, ", build ");
    put(&line, facts.build[0] ? facts.build : "unknown");
    end_line(&line);
}

static void say_frame(size_t number, uintptr_t address)
{
    struct line line;
    begin_line(&line, "crashed: #");
    put_number(&line, number, 10, 1);
    put(&line, " ");
    for (size_t i = 0; i < facts.nobjects; i++) {
        const struct object *object = &facts.objects[i];
        if (address < object->start || address >= object->end)
            continue;
        put(&line, object->name);
        put(&line, "+");
        address -= object->base;
        break;
    }
    put_hex(&line, address);
    end_line(&line);
}

struct trace {
    uintptr_t frames[FRAMES_MAX];
    size_t n;
};

static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *arg)
{
    struct trace *trace = arg;
    int is_exact = 0; /* otherwise the address is behind the call */
    uintptr_t address = _Unwind_GetIPInfo(context, &is_exact);
    if (address == 0 || trace->n == FRAMES_MAX)
        return _URC_END_OF_STACK;
    trace->frames[trace->n++] = is_exact ? address : address - 1;
    return _URC_NO_REASON;
}

/* Where the thread was when the signal came; 0: not known. */
static uintptr_t interrupted_at(const ucontext_t *context)
{
#if defined(__x86_64__)
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)context->uc_mcontext.pc;
#else
    (void)context;
    return 0;
#endif
}

/* The interrupted instruction comes first: the unwinder gets no further than that where the stack is damaged. */
static void say_trace(const ucontext_t *context)
{
    struct trace trace = {.n = 0};
    uintptr_t at = interrupted_at(context);
    size_t first = 0;
    say_frame(0, at);
    (void)_Unwind_Backtrace(note_frame, &trace);
    for (size_t i = 0; i < trace.n; i++)
        if (trace.frames[i] == at)
            first = i + 1;
    for (size_t i = first; i < trace.n; i++)
        say_frame(i - first + 1, trace.frames[i]);
}

/* ---- the handlers ---- */

static void set_default(int number)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void on_stuck(int number)
{
    (void)number;
    set_default(crashed_by);
    kill(getpid(), crashed_by);
}

/* A fault within is the end at once, since the signals are blocked then. At the return a fault happens again, with its
 * default effect; a signal that was sent is sent again. */
static void on_crash(int number, siginfo_t *info, void *context)
{
    static _Atomic bool begun;
    int saved = errno;
    while (atomic_exchange(&begun, true))
        pause(); /* another thread reports, and ends the process */
    crashed_by = number;
    alarm(STUCK_S);
    say_signal(number, info);
    say_trace(context);
    set_default(number);
    if (info->si_code <= 0)
        (void)raise(number);
    errno = saved;
}

/* ---- the start ---- */

static void note_build(const struct dl_phdr_info *info, const ElfW(Phdr) * header)
{
    const char *at = (const char *)info->dlpi_addr + header->p_vaddr, *end = at + header->p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
        const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)(const void *)at;
        const unsigned char *id =
            (const unsigned char *)at + sizeof(*note) + (((size_t)note->n_namesz + 3) & ~(size_t)3);
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && 2 * note->n_descsz < sizeof(facts.build)) {
            struct line line = {.len = 0};
            for (size_t i = 0; i < note->n_descsz; i++)
                put_number(&line, id[i], 16, 2);
            memcpy(facts.build, line.text, line.len);
        }
        at = (const char *)id + (((size_t)note->n_descsz + 3) & ~(size_t)3);
    }
}

/* The program is the first one, without a name. */
static int note_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    bool is_program = facts.nobjects == 0;
    const char *slash = strrchr(info->dlpi_name, '/');
    (void)size;
    (void)arg;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (is_program && header->p_type == PT_NOTE)
            note_build(info, header);
        if (header->p_type != PT_LOAD || !(header->p_flags & PF_X) || facts.nobjects == OBJECTS_MAX)
            continue;
        struct object *object = &facts.objects[facts.nobjects++];
        object->base = info->dlpi_addr;
        object->start = info->dlpi_addr + header->p_vaddr;
        object->end = object->start + header->p_memsz;
        strncpy(object->name, is_program ? "bloomeryd" : slash ? slash + 1 : info->dlpi_name, sizeof(object->name) - 1);
    }
    return 0;
}

void crash_report_start(const struct log *log, const char *program)
{
    struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK}, before;
    struct sigaction stuck = {.sa_handler = on_stuck};
    facts.log = log;
    facts.program = program;
    (void)dl_iterate_phdr(note_object, NULL);
    thread_begin_signals();
    sigemptyset(&stuck.sa_mask);
    sigaction(SIGALRM, &stuck, NULL);
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < SIGNALS; i++)
        sigaddset(&action.sa_mask, signals[i].number);
    for (size_t i = 0; i < SIGNALS; i++)
        if (sigaction(signals[i].number, NULL, &before) == 0 && !(before.sa_flags & SA_SIGINFO) &&
            before.sa_handler == SIG_DFL)
            sigaction(signals[i].number, &action, NULL);
}

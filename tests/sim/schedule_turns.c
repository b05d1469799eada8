#include "schedule_turns.h"

#include <linux/futex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "schedule.h"

#define OWN_STACK (64 * 1024) /* of a stack, for the thread of the system; the rest is the run's */

/* A sanitizer looks for stacks where the system's threads have theirs. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define CAN_CARRY 1
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#undef CAN_CARRY
#endif
#endif
#endif

static _Thread_local struct turn *own_turn;

/* ---- threads of the system ---- */

static long futex(_Atomic int *word, int what, int value)
{
    long result;
#ifdef __x86_64__
    register long r10 __asm__("r10") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_futex), "D"(word), "S"(what), "d"(value), "r"(r10)
                     : "rcx", "r11", "memory");
#else
    static long (*call)(long, ...);
    if (!call)
        *(void **)&call = schedule_real("syscall");
    result = call(SYS_futex, word, what, value, NULL);
#endif
    return result;
}

static void await(_Atomic int *word)
{
    while (!atomic_load(word))
        futex(word, FUTEX_WAIT_PRIVATE, 0);
}

static void set(_Atomic int *word)
{
    atomic_store(word, 1);
    futex(word, FUTEX_WAKE_PRIVATE, 1);
}

static void await_turn(struct turn *own)
{
    await(&own->goes);
    atomic_store(&own->goes, 0);
}

/* ---- one that carries all ---- */

#ifdef CAN_CARRY

#define FSGSBASE 2 /* in AT_HWCAP2: a program may set the address of thread-local memory itself */

static bool carries(void)
{
    static int known = -1;
    if (known < 0)
        known = (getauxval(AT_HWCAP2) & FSGSBASE) != 0;
    return known;
}

/* Saves the registers that a function keeps on the stack, and takes those of another stack. */
void turn_switch(void **stack_out, void *stack, void *local);
__asm__(".text\n"
        ".globl turn_switch\n"
        ".type turn_switch, @function\n"
        "turn_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    wrfsbase %rdx\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size turn_switch, . - turn_switch\n");

static void *local_memory(void)
{
    void *local;
    __asm__("movq %%fs:0, %0" : "=r"(local));
    return local;
}

static void run_body(void)
{
    own_turn->body(own_turn->arg);
    abort();
}

/* Its first turn begins in run_body(), as if that had been called from nowhere. */
static void prepare(struct turn *own)
{
    uintptr_t end = ((uintptr_t)__builtin_frame_address(0) - OWN_STACK) & ~(uintptr_t)15;
    uintptr_t *stack = (uintptr_t *)end - 8; /* six registers, where to begin, and from where */
    for (int i = 0; i < 8; i++)
        stack[i] = 0;
    stack[6] = (uintptr_t)run_body;
    own->stack = stack;
    own->local = local_memory();
}

static void carry(struct turn *own, struct turn *to)
{
    await(&to->stands);
    turn_switch(&own->stack, to->stack, to->local);
}

#else

static bool carries(void)
{
    return false;
}

static void *local_memory(void)
{
    return NULL;
}

static void prepare(struct turn *own)
{
    (void)own;
}

static void carry(struct turn *own, struct turn *to)
{
    (void)own, (void)to;
}

#endif

/* ---- turns ---- */

static void *stand_by(void *arg)
{
    struct turn *own = arg;
    own_turn = own;
    if (carries()) {
        prepare(own);
        set(&own->stands);
        await(&own->goes);
    } else {
        await_turn(own);
        own->body(own->arg);
    }
    return NULL;
}

void turn_begin(struct turn *own)
{
    *own = (struct turn){.thread = pthread_self(), .local = local_memory(), .stands = 1};
}

/* AddressSanitizer must know its threads; it is asked where the program has it linked in. */
int __interceptor_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) __attribute__((weak));

int turn_create(struct turn *turn, void (*body)(void *arg), void *arg)
{
    static int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!create && !(create = __interceptor_pthread_create))
        *(void **)&create = schedule_real("pthread_create");
    *turn = (struct turn){.body = body, .arg = arg};
    return create(&turn->thread, NULL, stand_by, turn);
}

void turn_pass(struct turn *own, struct turn *to)
{
    if (carries()) {
        carry(own, to);
        return;
    }
    set(&to->goes);
    await_turn(own);
}

void turn_end(struct turn *own, struct turn *to)
{
    if (carries())
        carry(own, to);
    else
        set(&to->goes);
}

void turn_join(struct turn *turn)
{
    static int (*join)(pthread_t, void **);
    if (!join)
        *(void **)&join = schedule_real("pthread_join");
    if (carries())
        set(&turn->goes);
    join(turn->thread, NULL);
}

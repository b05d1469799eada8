#!/usr/bin/env python3
"""confined.py [--strict] [--refuse CALL,...] [--as USER:GROUP] UNIT PROGRAM [ARGUMENT...]: becomes the program, under the
restrictions of a systemd unit that need no systemd: the filter of system calls, the further filters that systemd makes of single
settings, no new privileges, no capabilities, the umask. What systemd's own groups of calls have, `systemd-analyze
syscall-filter` says; the filters are made by libseccomp, as systemd makes its own.

  --strict    a call that SystemCallFilter does not allow ends the process by SIGSYS, whatever SystemCallErrorNumber says: so a test
              sees that the list is complete
  --refuse    calls that are refused in addition, as though the list did not have them
  --as        the numbers of a user and a group to become; without it the user stays who he is, without capabilities

  confined.py --missing            what this machine lacks for it, if anything
"""
import ctypes
import errno
import os
import shutil
import subprocess
import sys

ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NOT_EQUAL, EQUAL, GREATER, MASKED_EQUAL = 1, 4, 6, 7
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
PROT_WRITE, PROT_EXEC, SHM_EXEC = 2, 4, 0o100000
CLONE_NEW = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x00000080)
SET_ID_BITS = (0o4000, 0o2000)
O_CREAT = os.O_CREAT
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
FAMILIES_END = 64  # above all that the kernel knows
libc = ctypes.CDLL(None, use_errno=True)


def unsupported():
    if not shutil.which("systemd-analyze"):
        return "there is no systemd-analyze"
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError as error:
        return str(error)
    return None


class Comparison(ctypes.Structure):
    _fields_ = [("argument", ctypes.c_uint), ("how", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


class Filter:
    def __init__(self, otherwise):
        self.library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
        self.library.seccomp_init.restype = ctypes.c_void_p
        self.otherwise = otherwise
        self.context = ctypes.c_void_p(self.library.seccomp_init(ctypes.c_uint32(otherwise)))

    def rule(self, action, call, *comparisons):
        """A call that this architecture or this library does not have is left out, as systemd does it."""
        number = self.library.seccomp_syscall_resolve_name(call.encode())
        if number < 0 or action == self.otherwise:
            return
        array = (Comparison * max(len(comparisons), 1))(*(Comparison(*each) for each in comparisons))
        status = self.library.seccomp_rule_add_array(self.context, ctypes.c_uint32(action), number, len(comparisons), array)
        if status < 0:
            sys.exit(f"confined: no rule for {call}: {os.strerror(-status)}")

    def load(self):
        status = self.library.seccomp_load(self.context)
        if status < 0:
            sys.exit(f"confined: the filter is refused: {os.strerror(-status)}")


def settings_of(unit):
    """The values of each setting, in order. An empty value takes the ones before it away."""
    settings = {}
    with open(unit) as lines:
        for line in lines:
            name, separator, value = line.strip().partition("=")
            if separator and not name.startswith(("#", ";")):
                settings[name] = settings.get(name, []) + [value] if value else []
    return settings


def members(name, known={}):
    """The calls of a group of systemd's; of a call, the call."""
    if not name.startswith("@"):
        return {name}
    if name not in known:
        text = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager", name], check=True, capture_output=True,
                              text=True).stdout
        words = [line.strip() for line in text.splitlines()[1:]]
        known[name] = set().union(*(members(word) for word in words if word and not word.startswith("#")))
    return known[name]


def allowed_calls(values):
    """What the lines of SystemCallFilter leave. The first one says whether the list allows, and it has to."""
    allowed = set(members("@default"))
    if not values or values[0].startswith("~"):
        sys.exit("confined: SystemCallFilter is no list of what is allowed")
    for value in values:
        for word in value.removeprefix("~").split():
            if value.startswith("~"):
                allowed -= members(word)
            else:
                allowed |= members(word)
    return allowed


def number_of_error(settings):
    values = settings.get("SystemCallErrorNumber", [])
    return ERRNO | getattr(errno, values[-1]) if values else KILL_PROCESS


def is_on(settings, name):
    return settings.get(name, ["no"])[-1] in ("yes", "true", "on", "1")


def filter_of_calls(settings, strict, refused):
    action = number_of_error(settings)
    calls = Filter(KILL_PROCESS if strict else action)
    for call in sorted(allowed_calls(settings.get("SystemCallFilter", [])) - set(refused)):
        calls.rule(ALLOW, call)
    if strict:
        for call in refused:
            calls.rule(action, call)
    return calls


def filter_of_arguments(settings):
    """What systemd makes of single settings, with the errors that it chooses."""
    some = Filter(ALLOW)
    denied = ERRNO | errno.EPERM
    if is_on(settings, "MemoryDenyWriteExecute"):
        both = PROT_WRITE | PROT_EXEC
        some.rule(denied, "mmap", (2, MASKED_EQUAL, both, both))
        some.rule(denied, "mprotect", (2, MASKED_EQUAL, PROT_EXEC, PROT_EXEC))
        some.rule(denied, "pkey_mprotect", (2, MASKED_EQUAL, PROT_EXEC, PROT_EXEC))
        some.rule(denied, "shmat", (2, MASKED_EQUAL, SHM_EXEC, SHM_EXEC))
    if "RestrictAddressFamilies" in settings:
        families = {FAMILIES[word] for value in settings["RestrictAddressFamilies"] for word in value.split()}
        for family in sorted(set(range(FAMILIES_END)) - families):
            some.rule(ERRNO | errno.EAFNOSUPPORT, "socket", (0, EQUAL, family, 0))
        some.rule(ERRNO | errno.EAFNOSUPPORT, "socket", (0, GREATER, FAMILIES_END - 1, 0))
    if is_on(settings, "RestrictNamespaces"):
        some.rule(ERRNO | errno.ENOSYS, "clone3")
        some.rule(denied, "setns")
        for flag in CLONE_NEW:
            some.rule(denied, "unshare", (0, MASKED_EQUAL, flag, flag))
            some.rule(denied, "clone", (0, MASKED_EQUAL, flag, flag))
    if is_on(settings, "RestrictRealtime"):
        for policy in (1, 2, 4):
            some.rule(denied, "sched_setscheduler", (1, EQUAL, policy, 0))
        some.rule(denied, "sched_setscheduler", (1, GREATER, 5, 0))
    if is_on(settings, "RestrictSUIDSGID"):
        for bit in SET_ID_BITS:
            for call, argument in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("mkdir", 1), ("mkdirat", 2), ("mknod", 1),
                                   ("mknodat", 2)):
                some.rule(denied, call, (argument, MASKED_EQUAL, bit, bit))
            for call, flags in (("open", 1), ("openat", 2)):
                some.rule(denied, call, (flags, MASKED_EQUAL, O_CREAT, O_CREAT), (flags + 1, MASKED_EQUAL, bit, bit))
        some.rule(ERRNO | errno.ENOSYS, "openat2")
    if is_on(settings, "LockPersonality"):
        some.rule(denied, "personality", (0, NOT_EQUAL, libc.personality(ctypes.c_ulong(0xFFFFFFFF)), 0))
    return some


def drop_privileges(settings, user):
    if settings.get("CapabilityBoundingSet") == [] and os.geteuid() == 0:
        for capability in range(64):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if user:
        uid, gid = map(int, user.split(":"))
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    if "UMask" in settings:
        os.umask(int(settings["UMask"][-1], 8))
    libc.prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0)  # a change of the user takes it away
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        sys.exit("confined: no_new_privs is refused")


def main(words):
    strict, refused, user = False, [], None
    if words == ["--missing"]:
        print(unsupported() or "", end="")
        return
    while words and words[0].startswith("--"):
        option = words.pop(0)
        if option == "--strict":
            strict = True
        elif option == "--refuse":
            refused = words.pop(0).split(",")
        elif option == "--as":
            user = words.pop(0)
        else:
            sys.exit(__doc__)
    if len(words) < 2:
        sys.exit(__doc__)
    settings = settings_of(words[0])
    # Made before the filters are in force, which forbid to start systemd-analyze as another user might.
    calls, arguments = filter_of_calls(settings, strict, refused), filter_of_arguments(settings)
    drop_privileges(settings, user)
    arguments.load()
    calls.load()
    os.execv(words[1], words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])

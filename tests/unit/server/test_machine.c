/* The memory that a control group leaves to the process. */
#include <criterion/criterion.h>
#include <string.h>
#include <sys/stat.h>

#include "machine.h"
#include "tmpdir.h"

TMPDIR_SUITE(dir, machine);

static void write_limit(const char *name, const char *text)
{
    file_write(tmp_path(dir, "%s", name).text, text, strlen(text));
}

static void make_dir(const char *name)
{
    cr_assert_eq(mkdir(tmp_path(dir, "%s", name).text, 0700), 0);
}

static uint64_t memory_with(const char *groups)
{
    write_limit("groups", groups);
    return machine_memory_of(tmp_path(dir, "groups").text, dir, 1000000);
}

Test(machine, without_groups_all_of_it)
{
    cr_expect_eq(machine_memory_of(tmp_path(dir, "none").text, dir, 1000000), 1000000);
    cr_expect_eq(memory_with("0::/\n"), 1000000);
    cr_expect_eq(memory_with("nonsense\n::\n:\n\n"), 1000000);
}

Test(machine, version_2_with_parents)
{
    make_dir("system.slice");
    make_dir("system.slice/bloomery.service");
    write_limit("system.slice/bloomery.service/memory.max", "max\n");
    cr_expect_eq(memory_with("0::/system.slice/bloomery.service\n"), 1000000);
    write_limit("system.slice/memory.max", "500000\n");
    cr_expect_eq(memory_with("0::/system.slice/bloomery.service\n"), 500000);
    write_limit("system.slice/bloomery.service/memory.max", "400000\n");
    cr_expect_eq(memory_with("0::/system.slice/bloomery.service\n"), 400000);
    write_limit("system.slice/bloomery.service/memory.max", "4000000\n");
    cr_expect_eq(memory_with("0::/system.slice/bloomery.service\n"), 500000);

    /* In a container the process's own group is the root, with any path outside. */
    write_limit("memory.max", "300000\n");
    cr_expect_eq(memory_with("0::/\n"), 300000);
    cr_expect_eq(memory_with("0::/gone/elsewhere\n"), 300000);
}

Test(machine, version_1)
{
    make_dir("memory");
    write_limit("memory/memory.limit_in_bytes", "9223372036854771712\n");
    cr_expect_eq(memory_with("5:devices:/\n4:memory:/docker/abc\n0::/\n"), 1000000);
    write_limit("memory/memory.limit_in_bytes", "200000\n");
    cr_expect_eq(memory_with("5:devices:/\n4:memory:/docker/abc\n0::/\n"), 200000);
}

Test(machine, this_one)
{
    cr_expect_gt(machine_memory(), 1 << 20);
}
